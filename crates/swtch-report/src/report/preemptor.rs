//! `report --by preemptor`: which tasks had the CPU while the tasks of the trace were runnable.
//!
//! All run-queue time is split among the holders of the CPU ([`swtch_core::contention`]), so the
//! rows sum to the run-queue time of all waits. Beside that time, the report shows how often a task
//! took the CPU from a running task, and how often its wakeup had asked for that. These may be two
//! different tasks.

use rustc_hash::FxHashMap;
use swtch_core::{
    Category, Certainty, Contention, ContentionSums, GroupSplit, HeldWaits, Holder, Nanos, Open,
    Reason, Rule, Switch, TaskKey, Wait, Wakeup,
};
use swtch_output::column::{Column, Word};
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text;

use super::filter::CountedParts;
use super::names::{Names, families};
use super::waker::MOST_IN_TABLE;
use super::{report_sheet, words};

/// A row of the table.
struct HolderRow<'a> {
    who: HolderOfRow,
    held: HeldWaits,
    all: Nanos,
    names: &'a Names,
}

/// The holder that a row is about.
enum HolderOfRow {
    Task(usize, HolderCounts),
    /// A holder that is no task, by its word.
    Other(&'static str),
    /// All holders together, with the number of preemptions.
    All(u64),
}

impl HolderRow<'_> {
    fn of_task(&self, cell: fn(&Names, usize) -> Cell) -> Cell {
        match self.who {
            HolderOfRow::Task(index, _) => cell(self.names, index),
            _ => Cell::Missing,
        }
    }
}

const PREEMPTOR: Word = words::PREEMPTOR.saying("who had the CPU while others were runnable");
const SWITCHES: Word = words::SWITCHES.saying("how often it took the CPU from a running task");
const WAITS: Word = words::WAITS.saying("waits of others, during a part of which it had the CPU");
const RUNQ: Word = words::RUNQ.saying("for how long others were runnable while it had the CPU");

fn columns<'a>() -> [Column<HolderRow<'a>>; 9] {
    [
        Column::new(PREEMPTOR, |row| match row.who {
            HolderOfRow::Other(word) => Cell::text(format!("({word})")),
            _ => row.of_task(Names::comm_cell),
        }),
        Column::new(words::KIND, |row| match row.who {
            HolderOfRow::Task(index, _) if row.names.thread(index).in_scope => Cell::text("task"),
            HolderOfRow::Task(..) => Cell::text("other task"),
            HolderOfRow::Other(word) => Cell::text(word),
            HolderOfRow::All(_) => Cell::Missing,
        }),
        Column::new(words::TID, |row| row.of_task(Names::tid_cell)),
        Column::new(words::PID, |row| row.of_task(Names::pid_cell)),
        Column::in_total(SWITCHES, |row| match row.who {
            HolderOfRow::Task(_, counts) => Cell::Count(counts.preempted),
            HolderOfRow::Other(_) => Cell::Missing,
            HolderOfRow::All(preemptions) => Cell::Count(preemptions),
        }),
        Column::new(words::BY_ITS_WAKEUP, |row| match row.who {
            HolderOfRow::Task(_, counts) => Cell::Count(counts.nominated),
            _ => Cell::Missing,
        }),
        Column::in_total(WAITS, |row| Cell::Count(row.held.waits)),
        Column::in_total(RUNQ, |row| Cell::Time(row.held.time)),
        Column::in_total(words::SHARE, |row| {
            Cell::share(row.held.time.as_ns(), row.all.as_ns())
        }),
    ]
}

/// Holders that are not tasks, in the order in which they are shown.
const OTHERS: [(Holder, &str); 5] = [
    (Holder::Interrupts, "interrupts"),
    (Holder::Steal, "steal"),
    (Holder::Throttle, "throttle"),
    (Holder::Idle, "idle"),
    (Holder::Unaccounted, "unaccounted"),
];

/// The counts of one task that had the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct HolderCounts {
    /// The waits of others, as far as it had the CPU in them.
    pub held: HeldWaits,
    /// The number of times that it took the CPU from a running task.
    pub preempted: u64,
    /// The number of times that its wakeup asked for a preemption.
    pub nominated: u64,
}

/// Sums up run-queue waits, and counts preemptions.
#[derive(Debug)]
pub struct Preemptors {
    sums: ContentionSums,
    preemptions: Preemptions,
    /// The holders of the CPU in the waits that were open at the end, which are no part of the report.
    open: OpenHolders,
}

/// Time by the holder of the CPU.
#[derive(Clone, Debug, Default)]
struct OpenHolders {
    /// That of each task, by its index; empty if there was none.
    tasks: Vec<Nanos>,
    others: FxHashMap<Holder, Nanos>,
}

/// Counts of which task took the CPU from which, by index.
#[derive(Debug)]
struct Preemptions {
    all: u64,
    /// The number of times that each task took the CPU.
    took: Vec<u64>,
    /// The number of times that the wakeup of each task asked for it.
    nominated: Vec<u64>,
    pairs: PreemptionPairs,
}

/// Preemptions by reason, task that took the CPU, and task that lost it.
#[derive(Debug)]
struct PreemptionPairs {
    /// Number of tasks, if it is at most [`MOST_IN_TABLE`]; else 0.
    tasks: usize,
    /// In a trace of few tasks, counts for each reason, at taker × `tasks` + loser; empty for a
    /// reason that no preemption had.
    tables: Vec<Vec<u64>>,
    /// In a trace of many tasks.
    pairs: FxHashMap<(Reason, usize, usize), u64>,
}

impl PreemptionPairs {
    fn new(tasks: usize) -> Self {
        Self {
            tasks: if tasks <= MOST_IN_TABLE { tasks } else { 0 },
            tables: vec![Vec::new(); Reason::ALL.len()],
            pairs: FxHashMap::default(),
        }
    }

    fn count(&mut self, reason: Reason, taker: usize, loser: usize) {
        if self.tasks == 0 {
            *self.pairs.entry((reason, taker, loser)).or_default() += 1;
            return;
        }
        let table = &mut self.tables[reason.index()];
        if table.is_empty() {
            table.resize(self.tasks * self.tasks, 0);
        }
        table[taker * self.tasks + loser] += 1;
    }

    /// Pairs of taker and loser for a reason, with how often.
    fn of(&self, reason: Reason) -> Vec<(usize, usize, u64)> {
        let table = self.tables[reason.index()].iter().enumerate();
        let table = table
            .filter(|(_, count)| **count > 0)
            .map(|(place, count)| (place / self.tasks, place % self.tasks, *count));
        let pairs = self.pairs.iter().filter(|(key, _)| key.0 == reason);
        let pairs = pairs.map(|(key, count)| (key.1, key.2, *count));
        table.chain(pairs).collect()
    }
}

impl Preemptors {
    /// For a trace with these tasks.
    pub fn new(contention: Contention, names: &Names) -> Self {
        let tasks = names.thread_count();
        Self {
            sums: ContentionSums::new(contention, &families(names)),
            preemptions: Preemptions {
                all: 0,
                took: vec![0; tasks],
                nominated: vec![0; tasks],
                pairs: PreemptionPairs::new(tasks),
            },
            open: OpenHolders::default(),
        }
    }

    /// Takes the next row. All rows of the trace are needed, including those that do not count,
    /// because other tasks waited for their runs.
    pub fn add(&mut self, row: &Switch, task: usize, counted: CountedParts, names: &Names) {
        if counted.switch {
            self.preemptions.add(row, task, names);
        }
        self.sums.push(row, counted.wait, &|key| names.index(key));
    }

    /// Takes the waits that could not be summed up before the end of the trace.
    pub fn finish(&mut self, names: &Names) {
        self.sums.finish(&|key| names.index(key));
    }

    /// After [`Self::finish`]: takes the runs that were open at the end, and divides these waits.
    pub fn add_open(&mut self, runs: &[Open], waits: &[Open], names: &Names) {
        let (runs, waits) = (as_rows(runs), as_rows(waits));
        let open = &mut self.open;
        open.tasks.resize(names.thread_count(), Nanos::ZERO);
        self.sums
            .split_open(&runs, &waits, &mut |holder, time| match holder {
                Holder::Task(task) => open.tasks[names.index(task)] += time,
                // An idle CPU would have taken it: who ran was not seen.
                Holder::Idle => *open.others.entry(Holder::Unaccounted).or_default() += time,
                other => *open.others.entry(other).or_default() += time,
            });
    }

    /// Returns how long each task had the CPU while others could run, in open waits too: tasks that had none are left
    /// out.
    pub fn held_by_tasks(&self) -> impl Iterator<Item = (usize, Nanos)> {
        let tasks = self.sums.totals().tasks().iter().enumerate();
        let open = |index| self.open.tasks.get(index).copied().unwrap_or_default();
        tasks
            .map(move |(index, held)| (index, held.time + open(index)))
            .filter(|(_, time)| *time > Nanos::ZERO)
    }

    /// Returns how long this holder, which is no task, had the CPU, in open waits too.
    pub fn held_by(&self, holder: Holder) -> Nanos {
        let open = self.open.others.get(&holder).copied().unwrap_or_default();
        self.other(holder).time + open
    }

    /// Run-queue time of all waits.
    pub const fn total(&self) -> Nanos {
        self.sums.totals().runq()
    }

    /// Returns what a holder that is not a task had: interrupts, steal, throttling, idle, unaccounted.
    pub fn other(&self, holder: Holder) -> HeldWaits {
        self.sums.totals().other(holder)
    }

    /// Returns which holders had the CPU during the waits for a reason; the groups are programs.
    pub fn split(&self, reason: Reason) -> GroupSplit {
        self.sums.totals().split(reason)
    }

    /// Preemptions for a reason: (task that took the CPU, task that lost it, how often), most often
    /// first.
    pub fn pairs(&self, reason: Reason) -> Vec<(usize, usize, u64)> {
        let mut pairs = self.preemptions.pairs.of(reason);
        pairs.sort_by(|a, b| b.2.cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
        pairs
    }

    /// Tasks that held or took the CPU, longest first.
    pub fn ranked(&self) -> Vec<(usize, HolderCounts)> {
        let tasks = self.sums.totals().tasks().iter();
        let counts = tasks.enumerate().map(|(index, held)| {
            let counts = HolderCounts {
                held: *held,
                preempted: self.preemptions.took[index],
                nominated: self.preemptions.nominated[index],
            };
            (index, counts)
        });
        let mut ranked: Vec<_> = counts
            .filter(|(_, h)| h.held.waits + h.preempted + h.nominated > 0)
            .collect();
        ranked.sort_by(|a, b| {
            let by_time = b.1.held.time.cmp(&a.1.held.time);
            by_time
                .then(b.1.preempted.cmp(&a.1.preempted))
                .then(a.0.cmp(&b.0))
        });
        ranked
    }

    /// The report: tasks by time, then the holders that are not tasks, then the sum.
    pub fn sheet(&self, names: &Names) -> Sheet {
        let all = self.total();
        let row = |who, held| HolderRow {
            who,
            held,
            all,
            names,
        };
        let tasks = self.ranked().into_iter();
        let tasks = tasks.map(|(index, counts)| row(HolderOfRow::Task(index, counts), counts.held));
        let others = OTHERS
            .iter()
            .map(|(holder, word)| row(HolderOfRow::Other(word), self.other(*holder)))
            .filter(|row| row.held.waits > 0);
        let waits = HeldWaits {
            time: all,
            waits: self.sums.totals().waits(),
        };
        let sums = row(HolderOfRow::All(self.preemptions.all), waits);
        let mut sheet = report_sheet("preemptor", &columns(), tasks.chain(others))
            .with_total(&columns(), &sums);
        sheet.notes = self.notes();
        sheet
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let unaccounted = self.other(Holder::Unaccounted);
        if unaccounted.waits > 0 {
            notes.push(format!(
                "in {} the trace does not say who had the CPU ({} in all)",
                text::counted(unaccounted.waits, "wait"),
                unaccounted.time
            ));
        }
        let beyond = self.sums.beyond_memory();
        if beyond > 0 {
            notes.push(format!(
                "{} reach back beyond the runs kept in memory; that part is unaccounted",
                text::counted(beyond, "wait")
            ));
        }
        notes
    }
}

/// Returns the waits and runs that were open at the end, as rows that end then. Those of an unknown CPU are left out.
fn as_rows(open: &[Open]) -> Vec<Switch> {
    let row = |open: &Open| {
        Some(Switch {
            ts: open.end(),
            cpu: open.cpu?,
            task: open.task,
            ran: Some(match open.reason {
                Some(_) => Nanos::ZERO,
                None => open.lasted,
            }),
            wait: Wait {
                reason: open.reason,
                off: open.reason.map(|_| open.lasted),
                runq: open.runq,
                wakeup: Wakeup {
                    cpu: open.cpu,
                    ..Wakeup::default()
                },
                ..Wait::default()
            },
            ..Switch::blank(&NO_RULE)
        })
    };
    open.iter().filter_map(row).collect()
}

/// The rule of such rows: what is open has not ended, so no rule has judged it.
static NO_RULE: Rule = Rule::foreign("", Reason::Unknown, Certainty::Inferred);

impl Preemptions {
    fn add(&mut self, row: &Switch, task: usize, names: &Names) {
        if row.rule.reason.category() != Category::Preemption {
            return;
        }
        self.all += 1;
        if let Some(next) = row.next_task.filter(|next| *next != TaskKey::IDLE) {
            let next = names.index(next);
            self.took[next] += 1;
            self.pairs.count(row.rule.reason, next, task);
        }
        if let Some(nominator) = row.evidence.nominator {
            self.nominated[names.index(nominator)] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, names, row, seen};
    use crate::report::filter::{Filter, Selection};
    use swtch_core::{Coverage, TaskEvent, Timestamp};

    fn at(mut row: Switch, start: u64, end: u64) -> Switch {
        row.ts = Timestamp::from_ns(end);
        row.ran = Some(Nanos::from_ns(end - start));
        row
    }

    fn fed(names: &Names, rows: &[Switch]) -> Preemptors {
        let selection = Selection::new(&Filter::default(), names, Timestamp::default());
        let contention = Contention::new(Coverage::EveryTask, 1, &[]);
        let mut preemptors = Preemptors::new(contention, names);
        for row in rows {
            let task = names.index(row.task);
            preemptors.add(row, task, selection.counts(row, task), names);
        }
        preemptors.finish(names);
        preemptors
    }

    fn table(names: &Names, rows: &[Switch]) -> String {
        fed(names, rows).sheet(names).to_table(20)
    }

    /// ```text
    /// cpu 0  server 0─100  hog 100─────300  worker 300─320  server 320─330
    ///                   └───────── server waits ──────────┘
    /// ```
    fn drawn() -> [Switch; 4] {
        let mut taken = at(row(1, Reason::Wakeup), 0, 100);
        taken.next_task = Some(TaskKey::new(3));
        taken.evidence.nominator = Some(TaskKey::new(2));
        let mut hog = at(row(3, Reason::Pipe), 100, 300);
        hog.next_task = Some(TaskKey::new(2));
        hog.irq = Nanos::from_ns(20);
        let mut worker = at(row(2, Reason::Pipe), 300, 320);
        worker.next_task = Some(TaskKey::new(1));
        let back = after(at(row(1, Reason::Pipe), 320, 330), Reason::Wakeup, 0, 220);
        [taken, hog, worker, back]
    }

    #[test]
    fn rows_sum_to_the_run_queue_time() {
        let expected = "\
preemptor     kind        tid  pid  switches  by its wakeup  waits    runq  share %
───────────────────────────────────────────────────────────────────────────────────
hog           task         30   30         1              0      1  180 ns     81.8
worker        task         11   10         0              1      1   20 ns      9.1
(interrupts)  interrupts    -    -         -              -      1   20 ns      9.1
───────────────────────────────────────────────────────────────────────────────────
total                                      1                     1  220 ns    100.0
";
        assert_eq!(table(&names(), &drawn()), expected);
    }

    #[test]
    fn time_is_told_apart_by_own_process_and_others() {
        let hog = TaskEvent {
            in_scope: false,
            ..seen(3, 30, 30, "hog")
        };
        let names = Names::new(&[seen(1, 10, 10, "server"), seen(2, 10, 11, "worker"), hog]);
        let preemptors = fed(&names, &drawn());
        let split = preemptors.split(Reason::Wakeup);
        let ns = [split.own, split.others, split.rest].map(Nanos::as_ns);
        assert_eq!(ns, [20, 180, 20]);
        let [server, hog] = [1, 3].map(|key| names.index(TaskKey::new(key)));
        assert_eq!(preemptors.pairs(Reason::Wakeup), [(hog, server, 1)]);
    }

    /// A thread that could run and had no CPU from 330 on, to the end at 1000: `hog` ran from 400 on.
    #[test]
    fn who_had_the_cpu_in_waits_to_the_end_is_told_apart_from_the_report() {
        let names = names();
        let mut preemptors = fed(&names, &drawn());
        let open = |task, reason, since, runq: Option<u64>| Open {
            task: TaskKey::new(task),
            reason,
            since: Timestamp::from_ns(since),
            lasted: Nanos::from_ns(1000 - since),
            runq: runq.map(Nanos::from_ns),
            cpu: Some(swtch_core::CpuId::new(0)),
        };
        let before = preemptors.sheet(&names).to_table(20);
        preemptors.add_open(
            &[open(3, None, 400, None)],
            &[open(1, Some(Reason::Wakeup), 330, Some(670))],
            &names,
        );
        assert_eq!(preemptors.sheet(&names).to_table(20), before);
        let hog = names.index(TaskKey::new(3));
        let held: Vec<_> = preemptors.held_by_tasks().collect();
        let of_hog = held.iter().find(|(index, _)| *index == hog).unwrap().1;
        assert_eq!(of_hog.as_ns(), 180 + 600);
        // Nothing was seen to run from 330 to 400.
        assert_eq!(preemptors.held_by(Holder::Unaccounted).as_ns(), 70);
    }

    /// The run of a task outside the scope is part of others' waits. Its own waits are not counted.
    #[test]
    fn tasks_out_of_scope_have_the_cpu_and_no_waits() {
        let other = TaskEvent {
            in_scope: false,
            ..seen(3, 30, 30, "hog")
        };
        let names = Names::new(&[seen(1, 10, 10, "server"), seen(2, 10, 11, "worker"), other]);
        let mut rows = drawn();
        rows[1] = after(rows[1], Reason::Pipe, 0, 50);
        let table = table(&names, &rows);
        assert!(table.contains("hog           other task"), "{table}");
        assert!(
            table.contains("total") && table.contains(" 220 ns    100.0"),
            "{table}"
        );
    }
}

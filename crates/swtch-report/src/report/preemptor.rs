//! `report --by preemptor`: which tasks had the CPU while the tasks of the trace were runnable.
//!
//! Every run-queue wait is split among the holders of the CPU ([`swtch_core::contention`]), so the
//! rows sum to the run-queue time of all waits. Beside that time, the report shows how often a task
//! took the CPU from a running task, and how often its wakeup had asked for that. These may be two
//! different tasks.

use rustc_hash::FxHashMap;
use swtch_core::{Category, Contended, Contention, Holder, Nanos, Reason, Switch, TaskKey};
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text;

use super::empty_sheet;
use super::filter::CountedParts;
use super::names::Names;
use super::programs::program_numbers;

const COLUMNS: [&str; 9] = [
    "preemptor",
    "kind",
    "tid",
    "pid",
    "switches",
    "by_its_wakeup",
    "waits",
    "runq_ns",
    "share_pct",
];

/// Holders that are not tasks, in the order in which they are shown.
const OTHERS: [(Holder, &str); 5] = [
    (Holder::Interrupts, "interrupts"),
    (Holder::Steal, "steal"),
    (Holder::Throttle, "throttle"),
    (Holder::Idle, "idle"),
    (Holder::Unaccounted, "unaccounted"),
];

/// What is counted of one holder.
#[derive(Clone, Copy, Debug, Default)]
pub struct HolderCounts {
    /// How long it had the CPU while others were runnable.
    pub time: Nanos,
    /// Number of waits in which it had the CPU.
    pub waits: u64,
    /// How often it took the CPU from a running task.
    pub preempted: u64,
    /// How often its wakeup asked for a preemption.
    pub nominated: u64,
    /// Number of the wait that was counted last: a holder may occur twice in one wait.
    last_wait: u64,
}

/// Run-queue time of the waits for one reason, by the holder of the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Split {
    /// Tasks of the waiter's own program ([`program_numbers`]).
    pub own: Nanos,
    /// Time of tasks of other programs.
    pub others: Nanos,
    /// Time of interrupts, steal, throttling, idle, and unaccounted time, as in
    /// [`Preemptors::other`].
    pub rest: Nanos,
}

/// Splits and sums run-queue waits.
#[derive(Debug)]
pub struct Preemptors {
    contention: Contention,
    sums: HolderSums,
}

#[derive(Debug)]
struct HolderSums {
    tasks: Vec<HolderCounts>,
    /// Number of each task's program: equal for tasks of one program ([`program_numbers`]).
    programs: Vec<usize>,
    others: [HolderCounts; OTHERS.len()],
    splits: Vec<Split>,
    /// Preemptions by reason, task that took the CPU, and task that lost it.
    pairs: FxHashMap<(Reason, usize, usize), u64>,
    preemptions: u64,
    waits: u64,
    total: Nanos,
}

impl Preemptors {
    /// For a trace with these tasks.
    pub fn new(contention: Contention, names: &Names) -> Self {
        Self {
            contention,
            sums: HolderSums {
                tasks: vec![HolderCounts::default(); names.thread_count()],
                programs: program_numbers(names),
                others: [HolderCounts::default(); OTHERS.len()],
                splits: vec![Split::default(); Reason::ALL.len()],
                pairs: FxHashMap::default(),
                preemptions: 0,
                waits: 0,
                total: Nanos::ZERO,
            },
        }
    }

    /// Takes the next row. All rows of the trace are needed, including those that do not count,
    /// because other tasks waited for their runs.
    pub fn add(&mut self, row: &Switch, task: usize, counted: CountedParts, names: &Names) {
        let sums = &mut self.sums;
        if counted.switch {
            sums.add_preemption(row, task, names);
        }
        let mut sink = |wait: Contended<'_>| sums.add_wait(wait, names);
        if counted.wait {
            self.contention.push(row, &mut sink);
        } else {
            self.contention.push_run(row, &mut sink);
        }
    }

    /// Takes the waits that could not be split before the end of the trace.
    pub fn finish(&mut self, names: &Names) {
        let sums = &mut self.sums;
        let mut sink = |wait: Contended<'_>| sums.add_wait(wait, names);
        self.contention.finish(&mut sink);
    }

    /// Run-queue time of all waits.
    pub const fn total(&self) -> Nanos {
        self.sums.total
    }

    /// What a holder that is not a task had: interrupts, steal, throttling, idle, unaccounted.
    pub fn other(&self, holder: Holder) -> HolderCounts {
        place_of(holder).map_or_else(HolderCounts::default, |place| self.sums.others[place])
    }

    /// Which holders had the CPU during the waits for a reason.
    pub fn split(&self, reason: Reason) -> Split {
        self.sums.splits[reason.index()]
    }

    /// Preemptions for a reason: (task that took the CPU, task that lost it, how often), most often
    /// first.
    pub fn pairs(&self, reason: Reason) -> Vec<(usize, usize, u64)> {
        let pairs = self.sums.pairs.iter();
        let mut pairs: Vec<_> = pairs
            .filter(|(key, _)| key.0 == reason)
            .map(|(key, count)| (key.1, key.2, *count))
            .collect();
        pairs.sort_by(|a, b| b.2.cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
        pairs
    }

    /// Tasks that held or took the CPU, longest first.
    pub fn ranked(&self) -> Vec<(usize, HolderCounts)> {
        let held = self.sums.tasks.iter().copied().enumerate();
        let mut ranked: Vec<_> = held
            .filter(|(_, h)| h.waits + h.preempted + h.nominated > 0)
            .collect();
        ranked.sort_by(|a, b| {
            let by_time = b.1.time.cmp(&a.1.time);
            by_time
                .then(b.1.preempted.cmp(&a.1.preempted))
                .then(a.0.cmp(&b.0))
        });
        ranked
    }

    /// The report: tasks by time, then the holders that are not tasks, then the sum.
    pub fn sheet(&self, names: &Names) -> Sheet {
        let sums = &self.sums;
        let all = sums.total.as_ns();
        let mut sheet = empty_sheet("preemptor", &COLUMNS);
        for (index, held) in self.ranked() {
            let label = [
                Cell::text(&names.thread(index).comm),
                Cell::text(if names.thread(index).in_scope {
                    "task"
                } else {
                    "other task"
                }),
                id(names.thread(index).tid.map(swtch_core::Tid::get)),
                id(names.process_of(index).pid.map(swtch_core::Pid::get)),
                Cell::Count(held.preempted),
                Cell::Count(held.nominated),
            ];
            sheet
                .rows
                .push(with_time(label, held.waits, held.time, all));
        }
        let others = OTHERS
            .iter()
            .zip(sums.others)
            .filter(|(_, held)| held.waits > 0);
        for ((_, word), held) in others {
            let missing = || Cell::Missing;
            let (name, kind) = (Cell::text(format!("({word})")), Cell::text(*word));
            let label = [name, kind, missing(), missing(), missing(), missing()];
            sheet
                .rows
                .push(with_time(label, held.waits, held.time, all));
        }
        let label = [
            Cell::text("total"),
            Cell::Missing,
            Cell::Missing,
            Cell::Missing,
            Cell::Count(sums.preemptions),
            Cell::Missing,
        ];
        sheet.total = Some(with_time(label, sums.waits, sums.total, all));
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
        let beyond = self.contention.beyond_memory();
        if beyond > 0 {
            notes.push(format!(
                "{} reach back beyond the runs kept in memory; that part is unaccounted",
                text::counted(beyond, "wait")
            ));
        }
        notes
    }
}

impl HolderSums {
    fn add_preemption(&mut self, row: &Switch, task: usize, names: &Names) {
        if row.rule.reason.category() != Category::Preemption {
            return;
        }
        self.preemptions += 1;
        if let Some(next) = row.next_task.filter(|next| *next != TaskKey::IDLE) {
            let next = names.index(next);
            self.tasks[next].preempted += 1;
            *self.pairs.entry((row.rule.reason, next, task)).or_default() += 1;
        }
        if let Some(nominator) = row.evidence.nominator {
            self.tasks[names.index(nominator)].nominated += 1;
        }
    }

    /// Adds a wait that counts. This loop runs for each run that each wait spans, which on crowded
    /// CPUs are hundreds.
    fn add_wait(&mut self, wait: Contended<'_>, names: &Names) {
        let (tasks, others, programs) = (&mut self.tasks, &mut self.others, &self.programs);
        let program = programs[names.index(wait.task)];
        self.waits += 1;
        self.total += wait.runq;
        let number = self.waits;
        let mut split = Split::default();
        wait.for_each_part(|holder, time| {
            let held = match holder {
                Holder::Task(task) => {
                    let task = names.index(task);
                    match programs[task] == program {
                        true => split.own += time,
                        false => split.others += time,
                    }
                    &mut tasks[task]
                }
                other => {
                    split.rest += time;
                    let place = place_of(other).expect("every holder but a task is listed");
                    &mut others[place]
                }
            };
            held.time += time;
            held.waits += u64::from(held.last_wait != number);
            held.last_wait = number;
        });
        let reason = wait.reason.unwrap_or(Reason::Unknown);
        self.splits[reason.index()].add(split);
    }
}

impl Split {
    fn add(&mut self, more: Self) {
        self.own += more.own;
        self.others += more.others;
        self.rest += more.rest;
    }
}

fn place_of(holder: Holder) -> Option<usize> {
    OTHERS.iter().position(|other| other.0 == holder)
}

fn id(number: Option<u32>) -> Cell {
    number.map_or(Cell::Missing, |number| Cell::Id(u64::from(number)))
}

fn with_time(label: [Cell; 6], waits: u64, time: Nanos, all_ns: u64) -> Vec<Cell> {
    let mut cells = label.to_vec();
    cells.push(Cell::Count(waits));
    cells.push(Cell::Time(time));
    cells.push(Cell::share(time.as_ns(), all_ns));
    cells
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
        let preemptors = fed(&names(), &drawn());
        let split = preemptors.split(Reason::Wakeup);
        let ns = [split.own, split.others, split.rest].map(Nanos::as_ns);
        assert_eq!(ns, [20, 180, 20]);
        let names = names();
        let [server, hog] = [1, 3].map(|key| names.index(TaskKey::new(key)));
        assert_eq!(preemptors.pairs(Reason::Wakeup), [(hog, server, 1)]);
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

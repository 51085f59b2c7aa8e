//! `report --by waker`: which tasks or interrupts made blocked tasks runnable, one hop: waker →
//! woken.
//!
//! If an interrupt or a timer did it, the interrupted task had no part in it and is not named.

use rustc_hash::FxHashMap;
use swtch_core::{Nanos, Reason, Switch, WakerKind};
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text;

use super::empty_sheet;
use super::names::Names;

const COLUMNS: [&str; 11] = [
    "waker",
    "kind",
    "waker_tid",
    "waker_pid",
    "woken",
    "woken_tid",
    "woken_pid",
    "switches",
    "share_pct",
    "blocked_ns",
    "runq_ns",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waker {
    /// A task, by its index in [`Names`].
    Task(usize),
    /// An interrupt of some kind.
    Other(WakerKind),
}

impl Waker {
    /// The waker of the wait before a row's run; `None` when none was seen.
    pub fn of(row: &Switch, names: &Names) -> Option<Self> {
        match (row.wait.wakeup.kind?, row.wait.wakeup.waker) {
            (WakerKind::None, _) => None,
            (WakerKind::Task, Some(task)) => Some(Self::Task(names.index(task))),
            (WakerKind::Task, None) => Some(Self::Task(Names::nameless())),
            (kind, _) => Some(Self::Other(kind)),
        }
    }

    /// `name/tid`, or the word for the interrupt.
    pub fn label(self, names: &Names) -> String {
        match self {
            Self::Task(index) => names.label(index),
            Self::Other(kind) => format!("({kind})"),
        }
    }
}

/// What is counted of one pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Woken {
    /// Waits of the woken task that the waker ended.
    pub waits: u64,
    pub blocked: Nanos,
    pub runq: Nanos,
}

/// Counts by waker and woken task.
#[derive(Debug)]
pub struct Wakers {
    /// Pairs of tasks in a trace of few tasks, at waker × `tasks` + woken. With 400 tasks that wake
    /// each other nearly every wait is of another pair, and finding it by a hash is most of the work.
    table: Vec<Woken>,
    /// Number of tasks in `table`; 0 in a trace of many.
    tasks: usize,
    /// All other pairs.
    pairs: FxHashMap<(Waker, usize), Woken>,
    /// Waits in which the task was never blocked, so that no wakeup was needed.
    runnable: u64,
    /// Waits whose wakeup was not seen.
    unseen: u64,
}

/// The most tasks whose pairs are kept in a table, which takes 6 MB then.
pub const MOST_IN_TABLE: usize = 512;

impl Wakers {
    /// No counts yet, for a trace with these tasks.
    pub fn new(names: &Names) -> Self {
        let tasks = names.thread_count();
        let tasks = if tasks <= MOST_IN_TABLE { tasks } else { 0 };
        Self {
            table: vec![Woken::default(); tasks * tasks],
            tasks,
            pairs: FxHashMap::default(),
            runnable: 0,
            unseen: 0,
        }
    }

    /// Adds the wait of a row that counts, of the task with this index.
    pub fn add(&mut self, row: &Switch, task: usize, names: &Names) {
        if row.wait.length().is_none() {
            return;
        }
        let Some(waker) = Waker::of(row, names) else {
            if row.wait.runq.is_some() {
                self.runnable += 1;
            } else {
                self.unseen += 1;
            }
            return;
        };
        let woken = match waker {
            Waker::Task(waker) if self.tasks > 0 => &mut self.table[waker * self.tasks + task],
            _ => self.pairs.entry((waker, task)).or_default(),
        };
        woken.waits += 1;
        woken.blocked += row.wait.blocked().unwrap_or(Nanos::ZERO);
        woken.runq += row.wait.runq.unwrap_or(Nanos::ZERO);
    }

    /// Pairs of waker and woken, most waits first.
    pub fn ranked(&self) -> Vec<((Waker, usize), Woken)> {
        let table = self.table.iter().enumerate();
        let table = table
            .filter(|(_, woken)| woken.waits > 0)
            .map(|(place, woken)| {
                let pair = (Waker::Task(place / self.tasks), place % self.tasks);
                (pair, *woken)
            });
        let pairs = self.pairs.iter().map(|(pair, woken)| (*pair, *woken));
        let mut ranked: Vec<_> = table.chain(pairs).collect();
        ranked.sort_by(|a, b| b.1.waits.cmp(&a.1.waits).then(a.0.cmp(&b.0)));
        ranked
    }

    pub fn sheet(&self, names: &Names) -> Sheet {
        let ranked = self.ranked();
        let all: u64 = ranked.iter().map(|(_, woken)| woken.waits).sum();
        let mut sheet = empty_sheet("waker", &COLUMNS);
        let mut total = Woken::default();
        for ((waker, task), woken) in ranked {
            let mut cells = waker_cells(waker, names);
            cells.extend(task_cells(task, names));
            cells.extend(measures(woken, all));
            sheet.rows.push(cells);
            total.waits += woken.waits;
            total.blocked += woken.blocked;
            total.runq += woken.runq;
        }
        let mut sums = vec![Cell::text("total")];
        sums.resize(7, Cell::Missing);
        sums.extend(measures(total, all));
        sheet.total = Some(sums);
        sheet.notes = self.notes();
        sheet
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.runnable > 0 {
            notes.push(format!(
                "{} more had no waker: the task was preempted or yielded and stayed runnable",
                text::counted(self.runnable, "wait")
            ));
        }
        if self.unseen > 0 {
            let waits = text::counted(self.unseen, "wait");
            notes.push(format!("the wakeup of {waits} more was not seen"));
        }
        notes
    }
}

/// Whether waits for this reason end by a wakeup.
pub const fn is_blocking(reason: Reason) -> bool {
    use swtch_core::Category;
    !matches!(
        reason.category(),
        Category::Preemption | Category::Yield | Category::Exit
    )
}

fn waker_cells(waker: Waker, names: &Names) -> Vec<Cell> {
    match waker {
        Waker::Task(index) => {
            let mut cells = task_cells(index, names);
            cells.insert(1, Cell::text(WakerKind::Task.as_str()));
            cells
        }
        Waker::Other(kind) => vec![
            Cell::text(format!("({kind})")),
            Cell::text(kind.as_str()),
            Cell::Missing,
            Cell::Missing,
        ],
    }
}

fn task_cells(index: usize, names: &Names) -> Vec<Cell> {
    let id = |number: Option<u32>| number.map_or(Cell::Missing, |n| Cell::Id(u64::from(n)));
    vec![
        Cell::text(&names.thread(index).comm),
        id(names.thread(index).tid.map(swtch_core::Tid::get)),
        id(names.process_of(index).pid.map(swtch_core::Pid::get)),
    ]
}

fn measures(woken: Woken, all: u64) -> [Cell; 4] {
    [
        Cell::Count(woken.waits),
        Cell::share(woken.waits, all),
        Cell::Time(woken.blocked),
        Cell::Time(woken.runq),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, names, row, woken_by};

    #[test]
    fn a_timer_that_interrupts_a_task_is_the_waker_and_the_task_is_not() {
        let names = names();
        let mut wakers = Wakers::new(&names);
        let slept = woken_by(after(row(1, Reason::Sleep), Reason::Sleep, 90, 10), 3);
        let mut by_timer = slept;
        by_timer.wait.wakeup.kind = Some(WakerKind::Timer);
        let preempted = after(row(1, Reason::Sleep), Reason::Slice, 0, 10);
        for row in [slept, by_timer, by_timer, preempted] {
            wakers.add(&row, names.index(row.task), &names);
        }
        let table = wakers.sheet(&names).to_table(20);
        let expected = "\
waker    kind   waker tid  waker pid  woken   woken tid  woken pid  switches  share %  blocked   runq
─────────────────────────────────────────────────────────────────────────────────────────────────────
(timer)  timer          -          -  server         10         10         2     66.7   180 ns  20 ns
hog      task          30         30  server         10         10         1     33.3    90 ns  10 ns
─────────────────────────────────────────────────────────────────────────────────────────────────────
total                                                                      3    100.0   270 ns  30 ns
note: 1 wait more had no waker: the task was preempted or yielded and stayed runnable
";
        assert_eq!(table, expected);
    }
}

//! `report --by waker`: which tasks or interrupts made blocked tasks runnable, one hop: waker →
//! woken.
//!
//! If an interrupt or a timer did it, the interrupted task had no part in it and is not named.

use rustc_hash::FxHashMap;
use swtch_core::{Nanos, Reason, Switch, WakerKind};
use swtch_output::column::{Column, Word};
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text;

use super::group::or_missing;
use super::names::Names;
use super::{report_sheet, words};

/// A row of the table.
struct WakerRow<'a> {
    /// The waker and the woken task; `None` in the line of sums.
    pair: Option<(Waker, usize)>,
    woken: Woken,
    all: u64,
    names: &'a Names,
}

impl WakerRow<'_> {
    /// A cell about the task that woke; missing where it was none.
    fn of_waker(&self, cell: fn(&Names, usize) -> Cell) -> Cell {
        match self.pair {
            Some((Waker::Task(index), _)) => cell(self.names, index),
            _ => Cell::Missing,
        }
    }

    /// A cell about the task that was woken.
    fn of_woken(&self, cell: fn(&Names, usize) -> Cell) -> Cell {
        or_missing(self.pair, |(_, woken)| cell(self.names, woken))
    }
}

const SWITCHES: Word = words::SWITCHES.saying("how often it ended a wait of the other");

fn columns<'a>() -> [Column<WakerRow<'a>>; 11] {
    [
        Column::new(words::WAKER, |row| match row.pair {
            Some((Waker::Other(kind), _)) => Cell::text(format!("({kind})")),
            _ => row.of_waker(Names::comm_cell),
        }),
        Column::new(words::KIND, |row| {
            or_missing(row.pair, |(waker, _)| Cell::text(waker.kind().as_str()))
        }),
        Column::new(words::WAKER_TID, |row| row.of_waker(Names::tid_cell)),
        Column::new(words::WAKER_PID, |row| row.of_waker(Names::pid_cell)),
        Column::new(words::WOKEN, |row| row.of_woken(Names::comm_cell)),
        Column::new(words::WOKEN_TID, |row| row.of_woken(Names::tid_cell)),
        Column::new(words::WOKEN_PID, |row| row.of_woken(Names::pid_cell)),
        Column::in_total(SWITCHES, |row| Cell::Count(row.woken.waits)),
        Column::in_total(words::SHARE, |row| Cell::share(row.woken.waits, row.all)),
        Column::in_total(words::BLOCKED, |row| Cell::Time(row.woken.blocked)),
        Column::in_total(words::RUNQ, |row| Cell::Time(row.woken.runq)),
    ]
}

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
            (kind, Some(task)) if kind.is_task() => Some(Self::Task(names.index(task))),
            (kind, None) if kind.is_task() => Some(Self::Task(Names::nameless())),
            (kind, _) => Some(Self::Other(kind)),
        }
    }

    const fn kind(self) -> WakerKind {
        match self {
            Self::Task(_) => WakerKind::Task,
            Self::Other(kind) => kind,
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

/// The counts of one pair.
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
    /// The pairs that are not in `table`.
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

    /// Returns how long tasks were blocked in waits that this task ended.
    pub fn blocked_for(&self, waker: usize) -> Nanos {
        let ranked = self.ranked();
        let of_it = ranked
            .iter()
            .filter(|((one, _), _)| *one == Waker::Task(waker));
        of_it.map(|(_, woken)| woken.blocked).sum()
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
        let mut total = Woken::default();
        for (_, woken) in &ranked {
            total.waits += woken.waits;
            total.blocked += woken.blocked;
            total.runq += woken.runq;
        }
        let row = |pair, woken| WakerRow {
            pair,
            woken,
            all,
            names,
        };
        let rows = ranked.into_iter();
        let rows = rows.map(|(pair, woken)| row(Some(pair), woken));
        let mut sheet =
            report_sheet("waker", &columns(), rows).with_total(&columns(), &row(None, total));
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

/// Returns true if waits for this reason end by a wakeup.
pub const fn is_blocking(reason: Reason) -> bool {
    use swtch_core::Category;
    !matches!(
        reason.category(),
        Category::Preemption | Category::Yield | Category::Exit
    )
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

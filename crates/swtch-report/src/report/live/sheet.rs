//! The columns of each view, with the words that explain them: one table for the screen, its help and
//! all formats.

mod columns;

use rustc_hash::FxHashMap;
use swtch_core::{CgroupId, FUTEX_OF_MANY, Nanos, Pid, TaskKey, Tid};
use swtch_output::sheet::{Cell, Sheet};

use super::frame::{LiveRow, LiveView, LiveWait, RateFrame, RowKey};
use super::sums::RowSums;
use super::tasks::LiveTasks;

/// The quota of CPU time of a cgroup, and how it was used up in the frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupLimits {
    /// Its path below the root of the hierarchy; it is not escaped.
    pub path: String,
    /// Number of CPUs that it may use on average (`cpu.max`), where it or a cgroup above has a quota:
    /// of several the one that stopped CPUs longest in the frame, else the smallest.
    pub quota_cpus: Option<f64>,
    /// The path of the cgroup that has this quota; it is not escaped.
    pub quota_of: Option<String>,
    /// Number of times that this quota was used up, in the frame.
    pub throttled: Option<u64>,
    /// The time for which it was used up, added up over CPUs.
    pub throttled_for: Option<Nanos>,
}

/// Switches a second of user-mode schedulers, which the kernel does not see.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserLevelRates {
    /// By the thread that a scheduler runs on.
    pub by_thread: FxHashMap<Tid, f64>,
    /// By process.
    pub by_process: FxHashMap<Pid, f64>,
}

/// The tables by which the rows of a frame are named.
#[derive(Clone, Copy, Debug)]
pub struct FrameNames<'a> {
    /// The threads.
    pub tasks: &'a LiveTasks,
    /// The cgroups, as far as they are known.
    pub cgroups: &'a FxHashMap<CgroupId, CgroupLimits>,
    /// The rates of the same threads at the user's level.
    pub user_level: &'a UserLevelRates,
}

/// The values that a cell is made of.
#[derive(Clone, Copy, Debug)]
pub struct CellSource<'a> {
    frame: &'a RateFrame,
    names: FrameNames<'a>,
    /// `None` in the line of sums.
    key: Option<RowKey>,
    sums: &'a RowSums,
    from_idle: u64,
}

/// A column of a view.
#[derive(Clone, Copy, Debug)]
pub struct LiveColumn {
    /// Its key in JSON and CSV, with the unit.
    pub key: &'static str,
    /// Its head on the screen.
    pub head: &'static str,
    /// The meaning of the column, in one sentence.
    pub help: &'static str,
    cell: fn(&CellSource<'_>) -> Cell,
}

impl LiveColumn {
    /// The columns of a view, the more important to the left.
    pub const fn of(view: LiveView) -> &'static [Self] {
        match view {
            LiveView::Process => columns::PROCESS,
            LiveView::Thread => columns::THREAD,
            LiveView::Cgroup => columns::CGROUP,
            LiveView::Reason => columns::REASON,
            LiveView::Pair => columns::PAIR,
            LiveView::Cpu => columns::CPU,
            LiveView::Lock => columns::LOCK,
        }
    }

    /// The cell of a row.
    pub fn cell(&self, row: &LiveRow, frame: &RateFrame, names: FrameNames<'_>) -> Cell {
        (self.cell)(&CellSource {
            frame,
            names,
            key: Some(row.key),
            sums: &row.sums,
            from_idle: row.from_idle,
        })
    }
}

impl RateFrame {
    /// The view as a table, the rows with the most switches first.
    pub fn sheet(&self, view: LiveView, names: FrameNames<'_>) -> Sheet {
        let columns = LiveColumn::of(view);
        let keys: Vec<_> = columns.iter().map(|column| column.key).collect();
        let mut sheet = Sheet::new(view.as_str(), &keys);
        let mut rows: Vec<&LiveRow> = self.rows(view).iter().collect();
        rows.sort_unstable_by_key(|row| (u64::MAX - row.sums.switches(), row.key));
        sheet.rows = rows
            .iter()
            .map(|row| columns.iter().map(|column| column.cell(row, self, names)))
            .map(Iterator::collect)
            .collect();
        let total = CellSource {
            frame: self,
            names,
            key: None,
            sums: &self.total,
            from_idle: self.from_idle,
        };
        if !matches!(view, LiveView::Pair | LiveView::Lock) {
            let cells = columns.iter().map(|column| (column.cell)(&total));
            let mut cells: Vec<Cell> = cells.collect();
            cells[0] = Cell::text("total");
            sheet.total = Some(cells);
        }
        sheet.dropped_first = DROPPED_FIRST;
        sheet.not_in_tables = NOT_IN_TABLES;
        sheet
    }
}

/// Heads of columns that a narrow table leaves out, the least important first.
const DROPPED_FIRST: &[&str] = &[
    "own cgroup per s",
    "own process per s",
    "runq p50 below",
    "runq %",
    "voluntary per s",
    "foreign per s",
    "category",
    "process",
];

/// Columns of JSON and CSV that people need not see.
const NOT_IN_TABLES: &[&str] = &["switches", "cost_low_pct", "cost_high_pct", "cost_per_s_ns"];

impl CellSource<'_> {
    fn rate(&self, number: u64) -> Cell {
        Cell::Rate(self.frame.per_second(number))
    }

    fn share(&self, time: Nanos) -> Cell {
        Cell::Percent(self.frame.share_pct(time.as_ns() as f64))
    }

    /// A share of a CPU; missing where no switch has a price.
    fn cost(&self, ns: f64) -> Cell {
        if self.sums.cost.high_ns > 0.0 {
            Cell::Percent(self.frame.share_pct(ns))
        } else {
            Cell::Missing
        }
    }

    fn thread(&self, key: TaskKey) -> [Cell; 4] {
        if key.is_idle() {
            return [
                Cell::text("(idle)"),
                Cell::Missing,
                Cell::Missing,
                Cell::Missing,
            ];
        }
        let Some(task) = self.names.tasks.get(key) else {
            return [
                Cell::text("(unnamed)"),
                Cell::Missing,
                Cell::Missing,
                Cell::Missing,
            ];
        };
        let process = self.names.tasks.process_name(task.pid);
        [
            Cell::text(task.comm.as_str()),
            Cell::Id(task.tid.get().into()),
            process.map_or(Cell::Missing, Cell::text),
            Cell::Id(task.pid.get().into()),
        ]
    }

    fn own_thread(&self) -> [Cell; 4] {
        match self.key {
            Some(RowKey::Thread(key) | RowKey::Pair(_, key, _)) => self.thread(key),
            _ => Default::default(),
        }
    }

    fn preemptor(&self) -> [Cell; 4] {
        match self.key {
            Some(RowKey::Pair(Some(key), ..)) => self.thread(key),
            Some(RowKey::Pair(None, ..)) => [
                Cell::text("(unnamed)"),
                Cell::Missing,
                Cell::Missing,
                Cell::Missing,
            ],
            _ => Default::default(),
        }
    }

    fn limits(&self) -> Option<&CgroupLimits> {
        match self.key {
            Some(RowKey::Cgroup(id)) => self.names.cgroups.get(&id?),
            _ => None,
        }
    }

    fn cgroup_of_process(&self) -> Cell {
        let Some(RowKey::Cgroup(id)) = self.key else {
            return Cell::Missing;
        };
        match (id, self.limits()) {
            (_, Some(limits)) => Cell::Cgroup(limits.path.clone()),
            (Some(id), None) => Cell::text(format!("(removed, id {id})")),
            (None, None) => Cell::text("(unnamed)"),
        }
    }

    fn process(&self) -> [Cell; 2] {
        let Some(RowKey::Process(pid) | RowKey::Lock(pid, _)) = self.key else {
            return Default::default();
        };
        let Some(pid) = pid else {
            return [Cell::text("(unnamed)"), Cell::Missing];
        };
        let name = self.names.tasks.process_name(pid).unwrap_or("(unnamed)");
        [Cell::text(name), Cell::Id(pid.get().into())]
    }

    fn lock(&self) -> Cell {
        match self.key {
            Some(RowKey::Lock(_, FUTEX_OF_MANY)) => Cell::text("(more locks)"),
            Some(RowKey::Lock(_, futex)) => Cell::Hex(futex),
            _ => Cell::Missing,
        }
    }

    /// The mean blocked time of waits that ended.
    fn mean_blocked(&self) -> Cell {
        let tally = &self.sums.tally;
        let split = tally.waits - tally.unsplit;
        let mean = tally.blocked.as_ns().checked_div(split);
        Cell::time(mean.map(Nanos::from_ns))
    }

    fn open_wait(&self) -> Option<LiveWait> {
        match self.key {
            Some(RowKey::Thread(task)) => self.frame.open_wait(task),
            _ => None,
        }
    }

    fn user_level(&self) -> Cell {
        let rates = self.names.user_level;
        let rate = match self.key {
            Some(RowKey::Process(Some(pid))) => rates.by_process.get(&pid),
            Some(RowKey::Thread(task)) => {
                let task = self.names.tasks.get(task);
                task.and_then(|task| rates.by_thread.get(&task.tid))
            }
            _ => None,
        };
        rate.map_or(Cell::Missing, |rate| Cell::Rate(*rate))
    }

    /// Says whose thread took the CPU, seen from the thread that lost it.
    fn relation(&self) -> Cell {
        let sums = self.sums;
        let of = [
            (sums.by_own_process, "own process"),
            (sums.by_own_cgroup, "own cgroup"),
            (sums.by_foreign, "foreign"),
        ];
        let found = of.iter().find(|(switches, _)| *switches > 0);
        found.map_or(Cell::Missing, |(_, words)| Cell::text(*words))
    }
}

/// The element of an array of cells.
fn nth<const N: usize>(cells: [Cell; N], place: usize) -> Cell {
    let mut cells = cells.into_iter();
    cells.nth(place).unwrap_or(Cell::Missing)
}

#[cfg(test)]
mod tests;

//! The columns of each view, with the words that explain them: one table for the screen, its help and
//! all formats.

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
    /// How often that quota was used up, in the frame.
    pub throttled: Option<u64>,
    /// For how long, added up over CPUs.
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

/// What the rows of a frame are named by.
#[derive(Clone, Copy, Debug)]
pub struct FrameNames<'a> {
    /// The threads.
    pub tasks: &'a LiveTasks,
    /// The cgroups, as far as they are known.
    pub cgroups: &'a FxHashMap<CgroupId, CgroupLimits>,
    /// What the same threads do at the user's level.
    pub user_level: &'a UserLevelRates,
}

/// What a cell is made of.
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
    /// What it says, in one sentence.
    pub help: &'static str,
    cell: fn(&CellSource<'_>) -> Cell,
}

impl LiveColumn {
    /// The columns of a view, the more important to the left.
    pub const fn of(view: LiveView) -> &'static [Self] {
        match view {
            LiveView::Process => PROCESS,
            LiveView::Thread => THREAD,
            LiveView::Cgroup => CGROUP,
            LiveView::Reason => REASON,
            LiveView::Pair => PAIR,
            LiveView::Cpu => CPU,
            LiveView::Lock => LOCK,
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
            (_, Some(limits)) => Cell::text(limits.path.as_str()),
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

    /// Whose thread took the CPU, seen from the thread that lost it.
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

macro_rules! column {
    ($name:ident, $key:literal, $head:literal, $help:literal, $cell:expr) => {
        const $name: LiveColumn = LiveColumn {
            key: $key,
            head: $head,
            help: $help,
            cell: $cell,
        };
    };
}

column!(
    SWITCHES_PER_S,
    "switches_per_s",
    "switch/s",
    "Context switches a second: how often a thread left a CPU.",
    |source| source.rate(source.sums.switches())
);
column!(
    SWITCHES,
    "switches",
    "switches",
    "Switches in this frame.",
    |source| Cell::Count(source.sums.switches())
);
column!(
    VOLUNTARY_PER_S,
    "voluntary_per_s",
    "vol/s",
    "Of them, those that the kernel calls voluntary: the thread blocked or ended.",
    |source| source.rate(source.sums.tally.voluntary)
);
column!(
    INVOLUNTARY_PER_S,
    "involuntary_per_s",
    "invol/s",
    "Of them, the others: the CPU was taken away, or the thread yielded.",
    |source| source.rate(source.sums.tally.involuntary())
);
column!(
    MAIN_REASON,
    "main_reason",
    "reason",
    "The reason of most of these switches (view 4 has all of them).",
    |source| source
        .sums
        .tally
        .main_reason()
        .map_or(Cell::Missing, |(reason, _)| Cell::text(reason.as_str()))
);
column!(
    ON_CPU_PCT,
    "on_cpu_pct",
    "on CPU%",
    "Time on a CPU in runs that ended in this frame: 100 is one CPU. A run that is longer than the frame \
     counts in the frame in which it ends.",
    |source| source.share(source.sums.tally.ran)
);
column!(
    RUNQ_P50,
    "runq_p50_below_ns",
    "runq p50",
    "Half of the waits for a CPU, once runnable, were shorter than this power of two.",
    |source| Cell::time(source.sums.runq_lengths.percentile_below(50))
);
column!(
    RUNQ_P99,
    "runq_p99_below_ns",
    "runq p99",
    "99 % of the waits for a CPU, once runnable, were shorter than this power of two.",
    |source| Cell::time(source.sums.runq_lengths.percentile_below(99))
);
column!(
    RUNQ_PCT,
    "runq_pct",
    "runq%",
    "Time spent runnable and waiting for a CPU: 100 is one thread that waits all the time.",
    |source| source.share(source.sums.tally.runq)
);
column!(
    BLOCKED_PCT,
    "blocked_pct",
    "blocked%",
    "Time spent blocked, of waits that ended: 100 is one thread that is blocked all the time. A wait that \
     is longer than the frame counts in the frame in which it ends, so this may exceed 100 for one thread.",
    |source| source.share(source.sums.tally.blocked)
);
column!(
    BLOCKED_ON,
    "blocked_on",
    "blocked on",
    "The reason of most of the blocked time (Enter shows all reasons of one row).",
    |source| source
        .sums
        .blocked_on()
        .map_or(Cell::Missing, |reason| Cell::text(reason.as_str()))
);
column!(
    OWN_PROCESS_PER_S,
    "own_process_per_s",
    "own/s",
    "Preemptions by another thread of the same process: fewer threads than CPUs end them.",
    |source| source.rate(source.sums.by_own_process)
);
column!(
    OWN_CGROUP_PER_S,
    "own_cgroup_per_s",
    "group/s",
    "Preemptions by another process of the same cgroup.",
    |source| source.rate(source.sums.by_own_cgroup)
);
column!(
    FOREIGN_PER_S,
    "foreign_per_s",
    "foreign/s",
    "Preemptions by a process of another cgroup, the kernel's threads among them: somebody else's work.",
    |source| source.rate(source.sums.by_foreign)
);
column!(
    COST_PCT,
    "cost_pct",
    "cost%",
    "What the switches themselves take, as a share of one CPU, by the saved price list of this machine: \
     whether they are too many. 10 ms a second are 1 %. It leaves out what caches lose.",
    |source| source.cost(source.sums.cost.point_ns)
);
column!(
    COST_LOW_PCT,
    "cost_low_pct",
    "cost≥",
    "The lower end of the interval of the cost.",
    |source| source.cost(source.sums.cost.low_ns)
);
column!(
    COST_HIGH_PCT,
    "cost_high_pct",
    "cost≤",
    "The upper end of the interval of the cost.",
    |source| source.cost(source.sums.cost.high_ns)
);
column!(
    COST_PER_S,
    "cost_per_s_ns",
    "cost/s",
    "The same as a time: so much of every second is spent switching.",
    |source| match source.sums.cost.high_ns > 0.0 {
        true => Cell::Estimated(source.frame.share_pct(source.sums.cost.point_ns) * 1e7),
        false => Cell::Missing,
    }
);
column!(
    PROCESS_NAME,
    "process",
    "process",
    "The process, by the name of its first thread.",
    |source| match source.key {
        Some(RowKey::Process(_) | RowKey::Lock(..)) => nth(source.process(), 0),
        _ => nth(source.own_thread(), 2),
    }
);
column!(PID, "pid", "pid", "Its process id.", |source| {
    match source.key {
        Some(RowKey::Process(_) | RowKey::Lock(..)) => nth(source.process(), 1),
        _ => nth(source.own_thread(), 3),
    }
});
column!(
    USER_PER_S,
    "user_switches_per_s",
    "user/s",
    "Switches a second between workers of a user-mode scheduler (swtch-fiber) in it: no work for the kernel, \
     which does not see them. Compare with switch/s.",
    |source| source.user_level()
);
column!(
    WAITING,
    "waiting_threads",
    "waiting",
    "Threads of it that are blocked at the end of the frame.",
    |source| match source.key {
        Some(RowKey::Process(Some(pid))) =>
            source.frame.waiting(pid).map_or(Cell::Missing, Cell::Count),
        _ => Cell::Missing,
    }
);
column!(
    WAITS_FOR,
    "waits_for",
    "waits for",
    "What it is blocked on at the end of the frame; none if it runs, or waits for a CPU.",
    |source| source
        .open_wait()
        .map_or(Cell::Missing, |wait| Cell::text(wait.reason.as_str()))
);
column!(
    WAIT_LASTS,
    "wait_lasts_ns",
    "so far",
    "For how long it has been blocked, at the end of the frame.",
    |source| Cell::time(source.open_wait().map(|wait| wait.lasts))
);
column!(
    LOCK_WORD,
    "lock",
    "lock",
    "The futex word that threads wait for: the address of a mutex, condition variable or join in the memory of \
     the process. Enter shows who waits; swtch record -p PID and report --by wait show who lets them go on.",
    |source| source.lock()
);
column!(
    MEAN_BLOCKED,
    "mean_blocked_ns",
    "mean wait",
    "How long a wait that ended was blocked, on average.",
    |source| source.mean_blocked()
);
column!(
    THREAD_NAME,
    "thread",
    "thread",
    "The thread, by its own name.",
    |source| nth(source.own_thread(), 0)
);
column!(TID, "tid", "tid", "Its thread id.", |source| nth(
    source.own_thread(),
    1
));
column!(
    CGROUP_PATH,
    "cgroup",
    "cgroup",
    "The cgroup of the threads, as of their last switch.",
    |source| source.cgroup_of_process()
);
column!(
    QUOTA_CPUS,
    "quota_cpus",
    "quota",
    "The CPUs that it may use on average (cpu.max), by its own quota or that of a cgroup above: of several the \
     one that stopped CPUs longest, else the smallest.",
    |source| source
        .limits()
        .and_then(|limits| limits.quota_cpus)
        .map_or(Cell::Missing, Cell::Ratio)
);
column!(
    QUOTA_OF,
    "quota_of",
    "quota of",
    "The cgroup that has this quota.",
    |source| source
        .limits()
        .and_then(|limits| limits.quota_of.as_deref())
        .map_or(Cell::Missing, Cell::text)
);
column!(
    THROTTLED_PER_S,
    "throttled_per_s",
    "throttled/s",
    "How often that quota was used up, so that a CPU stopped running what is below it (cpu.stat, nr_throttled).",
    |source| source
        .limits()
        .and_then(|limits| limits.throttled)
        .map_or(Cell::Missing, |number| source.rate(number))
);
column!(
    THROTTLED_PCT,
    "throttled_pct",
    "throttled%",
    "For how long CPUs were stopped by that quota: 100 is one CPU that was stopped all the time (cpu.stat).",
    |source| source
        .limits()
        .and_then(|limits| limits.throttled_for)
        .map_or(Cell::Missing, |time| source.share(time))
);
column!(
    REASON_WORD,
    "reason",
    "reason",
    "Why threads left their CPU (swtch's reasons: see docs/GLOSSARY.md).",
    |source| match source.key {
        Some(RowKey::Reason(reason) | RowKey::Pair(.., reason)) => Cell::text(reason.as_str()),
        _ => Cell::Missing,
    }
);
column!(
    CATEGORY,
    "category",
    "category",
    "The kind of reason.",
    |source| match source.key {
        Some(RowKey::Reason(reason)) => Cell::text(reason.category().as_str()),
        _ => Cell::Missing,
    }
);
column!(
    PREEMPTOR,
    "preemptor",
    "preemptor",
    "The thread that took the CPU.",
    |source| nth(source.preemptor(), 0)
);
column!(
    PREEMPTOR_TID,
    "preemptor_tid",
    "tid",
    "Its thread id.",
    |source| nth(source.preemptor(), 1)
);
column!(
    PREEMPTOR_PROCESS,
    "preemptor_process",
    "of process",
    "Its process.",
    |source| nth(source.preemptor(), 2)
);
column!(
    PREEMPTED,
    "preempted",
    "preempted",
    "The thread that lost the CPU.",
    |source| nth(source.own_thread(), 0)
);
column!(
    PREEMPTED_TID,
    "preempted_tid",
    "its tid",
    "Its thread id.",
    |source| nth(source.own_thread(), 1)
);
column!(
    PREEMPTED_PROCESS,
    "preempted_process",
    "its process",
    "Its process.",
    |source| nth(source.own_thread(), 2)
);
column!(
    RELATION,
    "relation",
    "relation",
    "Whether both are of one process (own process), of one cgroup (own cgroup), or neither (foreign).",
    |source| source.relation()
);
column!(CPU_NUMBER, "cpu", "CPU", "The CPU.", |source| {
    match source.key {
        Some(RowKey::Cpu(number)) => Cell::Id(number as u64),
        _ => Cell::Missing,
    }
});
column!(
    FROM_IDLE_PER_S,
    "from_idle_per_s",
    "from idle/s",
    "How often a thread came onto a CPU that had nothing to do. These are no switches of a thread, and are \
     counted apart.",
    |source| source.rate(source.from_idle)
);

const PROCESS: &[LiveColumn] = &[
    PROCESS_NAME,
    PID,
    SWITCHES_PER_S,
    USER_PER_S,
    COST_PCT,
    MAIN_REASON,
    RUNQ_P99,
    BLOCKED_PCT,
    BLOCKED_ON,
    WAITING,
    ON_CPU_PCT,
    FOREIGN_PER_S,
    INVOLUNTARY_PER_S,
    VOLUNTARY_PER_S,
    RUNQ_P50,
    RUNQ_PCT,
    OWN_PROCESS_PER_S,
    OWN_CGROUP_PER_S,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

const THREAD: &[LiveColumn] = &[
    THREAD_NAME,
    TID,
    SWITCHES_PER_S,
    USER_PER_S,
    WAITS_FOR,
    WAIT_LASTS,
    COST_PCT,
    MAIN_REASON,
    RUNQ_P99,
    BLOCKED_PCT,
    BLOCKED_ON,
    ON_CPU_PCT,
    FOREIGN_PER_S,
    INVOLUNTARY_PER_S,
    VOLUNTARY_PER_S,
    RUNQ_P50,
    RUNQ_PCT,
    OWN_PROCESS_PER_S,
    OWN_CGROUP_PER_S,
    PROCESS_NAME,
    PID,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

const CGROUP: &[LiveColumn] = &[
    CGROUP_PATH,
    SWITCHES_PER_S,
    COST_PCT,
    QUOTA_CPUS,
    QUOTA_OF,
    THROTTLED_PER_S,
    THROTTLED_PCT,
    FOREIGN_PER_S,
    RUNQ_P99,
    MAIN_REASON,
    ON_CPU_PCT,
    BLOCKED_PCT,
    BLOCKED_ON,
    INVOLUNTARY_PER_S,
    VOLUNTARY_PER_S,
    RUNQ_P50,
    RUNQ_PCT,
    OWN_PROCESS_PER_S,
    OWN_CGROUP_PER_S,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

const REASON: &[LiveColumn] = &[
    REASON_WORD,
    CATEGORY,
    SWITCHES_PER_S,
    COST_PCT,
    BLOCKED_PCT,
    RUNQ_P99,
    RUNQ_PCT,
    ON_CPU_PCT,
    RUNQ_P50,
    OWN_PROCESS_PER_S,
    OWN_CGROUP_PER_S,
    FOREIGN_PER_S,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

const PAIR: &[LiveColumn] = &[
    PREEMPTOR,
    PREEMPTOR_TID,
    PREEMPTED,
    PREEMPTED_TID,
    SWITCHES_PER_S,
    RELATION,
    REASON_WORD,
    RUNQ_P99,
    COST_PCT,
    RUNQ_P50,
    RUNQ_PCT,
    PREEMPTOR_PROCESS,
    PREEMPTED_PROCESS,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

const LOCK: &[LiveColumn] = &[
    LOCK_WORD,
    PROCESS_NAME,
    PID,
    SWITCHES_PER_S,
    BLOCKED_PCT,
    MEAN_BLOCKED,
    RUNQ_P99,
    COST_PCT,
    RUNQ_P50,
    RUNQ_PCT,
    ON_CPU_PCT,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

const CPU: &[LiveColumn] = &[CPU_NUMBER, SWITCHES_PER_S, FROM_IDLE_PER_S, SWITCHES];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::live::LiveCounts;
    use crate::report::live::drawn_live::{CPUS, THREADS, large_machine, large_reading};
    use std::time::{Duration, Instant};

    const SECOND: Nanos = Nanos::from_ns(1_000_000_000);

    #[test]
    fn columns_of_a_view_have_different_keys_and_are_explained() {
        for view in LiveView::ALL {
            let columns = LiveColumn::of(view);
            for (place, column) in columns.iter().enumerate() {
                let same = columns.iter().filter(|other| other.key == column.key);
                assert_eq!(same.count(), 1, "{view:?} {place} {}", column.key);
                assert!(column.help.ends_with('.'), "{}", column.key);
            }
        }
    }

    #[test]
    fn a_large_machine_has_a_row_for_each_thread_and_cpu() {
        let (counts, tasks) = large_machine();
        let frame = RateFrame::of(&counts, &tasks, None, &LiveView::ALL, SECOND);
        let cgroups = FxHashMap::default();
        let names = FrameNames {
            tasks: &tasks,
            cgroups: &cgroups,
            user_level: &UserLevelRates::default(),
        };
        let sheet = frame.sheet(LiveView::Thread, names);
        assert_eq!(sheet.rows.len(), THREADS as usize);
        assert_eq!(frame.sheet(LiveView::Cpu, names).rows.len() as u64, CPUS);
        let processes = frame.rows(LiveView::Process).len();
        assert_eq!(processes, THREADS as usize / 20);
        let rates: Vec<f64> = sheet
            .rows
            .iter()
            .map(|row| match row[2] {
                Cell::Rate(rate) => rate,
                _ => panic!("a rate"),
            })
            .collect();
        assert!(rates.is_sorted_by(|a, b| a >= b));
        assert!((rates[0] - 50.0 * 11.0).abs() < 1e-9);
    }

    /// A frame takes as long as what has changed in it, and not as what there is. Others only ever
    /// make a frame longer: one that is short enough shows that it is.
    #[test]
    fn a_frame_in_which_little_happens_is_quick_on_a_large_machine() {
        let (mut counts, tasks) = large_machine();
        counts.end_frame();
        let took = |counts: &mut LiveCounts, nth, busy| {
            let begin = Instant::now();
            large_reading(counts, nth, busy);
            let frame = RateFrame::of(counts, &tasks, None, &LiveView::ALL, SECOND);
            counts.end_frame();
            (begin.elapsed(), frame.total.switches())
        };
        let all = [2, 3, 4].map(|nth| took(&mut counts, nth, THREADS));
        assert!(all.iter().all(|(_, switches)| *switches > 5_000_000));
        let all = all.map(|(took, _)| took).into_iter().min().unwrap();
        let (mut few, mut nth) = (Duration::MAX, 5);
        while few.saturating_mul(10) >= all && nth < 200 {
            few = few.min(took(&mut counts, nth, 100).0);
            nth += 1;
        }
        assert!(few * 10 < all, "{few:?} for 100 threads, {all:?} for all");
    }
}

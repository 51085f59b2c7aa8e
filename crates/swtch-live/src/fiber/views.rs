//! The views of `swtch fiber`: sheets made from a snapshot of a page, with SQL Server's column
//! names.

use clap::ValueEnum;
use swtch_core::Nanos;
use swtch_observe::{
    Consistency, CurrentWait, SchedulerRow, Snapshot, TaskRow, ThreadRow, WaitStatistics, WorkerRow,
};
use swtch_report::report::{Cell, Sheet, SheetTable as Table};

use super::kernel::{KernelCounters, SnapshotThread, cpu_time};

/// A view of the state of a process's schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum View {
    /// Counters of each scheduler (`sys.dm_os_schedulers`).
    Schedulers,
    /// Each worker: where it stands and how its time was spent (`sys.dm_os_workers`).
    Workers,
    /// Each task that has a worker (`sys.dm_os_tasks`).
    Tasks,
    /// The OS threads (`sys.dm_os_threads`).
    Threads,
    /// Waits by type: how many, how long, how much of it for the turn (`sys.dm_os_wait_stats`).
    WaitStats,
    /// Waits that go on, and who ended the one before (`sys.dm_os_waiting_tasks`).
    WaitingTasks,
    /// Both levels of each thread since it began: the scheduler's switches and the kernel's.
    OsSwitches,
}

impl View {
    /// Makes this view's rows of a snapshot and the kernel's counters of the same threads.
    pub fn sheet(self, snapshot: &Snapshot, threads: &KernelCounters) -> Sheet {
        match self {
            Self::Schedulers => Sheet {
                views: SCHEDULER_TABLES.to_vec(),
                ..table("schedulers", &SCHEDULERS, &snapshot.schedulers, scheduler)
            },
            Self::Workers => Sheet {
                views: WORKER_TABLES.to_vec(),
                ..table("workers", &WORKERS, &snapshot.workers, worker)
            },
            Self::Tasks => table("tasks", &TASKS, snapshot.tasks(), |row| task(&row)),
            Self::Threads => {
                let both = snapshot.threads.iter().zip(threads.iter());
                table("threads", &THREADS, both, |(row, kernel)| {
                    thread(row, kernel)
                })
            }
            Self::WaitStats => table("wait_stats", &WAIT_STATS, &snapshot.wait_stats, waits),
            Self::WaitingTasks => {
                let rows = snapshot.waiting_tasks();
                table("waiting_tasks", &WAITING_TASKS, rows, |row| waiting(&row))
            }
            Self::OsSwitches => os_switches(snapshot, threads),
        }
    }
}

fn table<Row>(
    name: &'static str,
    columns: &[&'static str],
    rows: impl IntoIterator<Item = Row>,
    cells: impl Fn(Row) -> Vec<Cell>,
) -> Sheet {
    let mut sheet = Sheet::new(name, columns);
    sheet.rows = rows.into_iter().map(cells).collect();
    sheet.not_in_tables = NOT_IN_TABLES;
    sheet
}

/// The columns that tables leave out, to fit on a screen; the other formats have it.
const NOT_IN_TABLES: &[&str] = &["parent_task_id", "histogram"];

const SCHEDULER_TABLES: [Table; 2] = [
    Table {
        title: "",
        columns: &[
            "scheduler",
            "mode",
            "cpu_id",
            "context_switches_count",
            "yield_count",
            "self_reselect_count",
            "preemptive_switches_count",
            "idle_switches_count",
        ],
    },
    Table {
        title: "now, and where the time went",
        columns: &[
            "scheduler",
            "current_tasks_count",
            "runnable_tasks_count",
            "work_queue_count",
            "quantum_ns",
            "total_running_ns",
            "total_idle_ns",
            "total_scheduler_delay_ns",
        ],
    },
];

const WORKER_TABLES: [Table; 2] = [
    Table {
        title: "",
        columns: &[
            "worker",
            "scheduler",
            "task_id",
            "task",
            "state",
            "state_ns",
            "last_wait_type",
            "context_switch_count",
            "yield_count",
        ],
    },
    Table {
        title: "where the time of their tasks went",
        columns: &[
            "worker",
            "running_ns",
            "runnable_ns",
            "suspended_ns",
            "preemptive_ns",
            "os_interrupted_quanta_count",
            "tasks_processed_count",
        ],
    },
];

const LEVEL_TABLES: [Table; 2] = [
    Table {
        title: "",
        columns: &[
            "scheduler",
            "mode",
            "context_switches_count",
            "yield_count",
            "self_reselect_count",
            "os_interrupted_quanta_count",
        ],
    },
    Table {
        title: "OS level: what the kernel counts for its threads",
        columns: &[
            "scheduler",
            "threads",
            "os_voluntary",
            "os_involuntary",
            "cpu_time_ns",
            "run_queue_time_ns",
        ],
    },
];

const SCHEDULERS: [&str; 35] = [
    "scheduler",
    "runtime",
    "scheduler_id",
    "mode",
    "cpu_id",
    "is_idle",
    "accounting",
    "context_switches_count",
    "yield_count",
    "self_reselect_count",
    "preemptive_switches_count",
    "idle_switches_count",
    "total_scheduler_delay_ns",
    "runnable_tasks_count",
    "current_tasks_count",
    "current_workers_count",
    "active_workers_count",
    "work_queue_count",
    "queued_preemptive_count",
    "io_driver",
    "pending_io_count",
    "load_factor",
    "failed_to_create_worker",
    "active_worker",
    "active_thread",
    "quantum_ns",
    "current_run_ns",
    "total_running_ns",
    "total_idle_ns",
    "tasks_completed_count",
    "os_interrupted_quanta_count",
    "quantum_expired_count",
    "stolen_tasks_count",
    "stalls_count",
    "consistency",
];

fn scheduler(row: &SchedulerRow) -> Vec<Cell> {
    vec![
        id(row.scheduler),
        Cell::Id(row.runtime.into()),
        Cell::Id(row.scheduler_id.into()),
        Cell::text(row.mode.as_str()),
        row.cpu_id.map_or(Cell::Missing, |cpu| Cell::Id(cpu.into())),
        yes(row.is_idle),
        yes(row.accounting),
        Cell::Count(row.context_switches_count),
        Cell::Count(row.yield_count),
        Cell::Count(row.self_reselect_count),
        Cell::Count(row.preemptive_switches_count),
        Cell::Count(row.idle_switches_count),
        time(row.total_scheduler_delay_ns),
        Cell::Count(row.runnable_tasks_count.into()),
        Cell::Count(row.current_tasks_count.into()),
        Cell::Count(row.current_workers_count.into()),
        Cell::Count(row.active_workers_count.into()),
        Cell::Count(row.work_queue_count.into()),
        Cell::Count(row.queued_preemptive_count.into()),
        row.io_driver
            .map_or(Cell::Missing, |driver| Cell::text(driver.as_str())),
        Cell::Count(row.pending_io_count.into()),
        Cell::Count(row.load_factor.into()),
        Cell::Count(row.failed_to_create_worker.into()),
        row.active_worker.map_or(Cell::Missing, id),
        row.active_thread.map_or(Cell::Missing, id),
        time(row.quantum_ns),
        row.current_run_ns.map_or(Cell::Missing, time),
        time(row.total_running_ns),
        time(row.total_idle_ns),
        Cell::Count(row.tasks_completed_count),
        Cell::Count(row.os_interrupted_quanta_count),
        Cell::Count(row.quantum_expired_count),
        Cell::Count(row.stolen_tasks_count),
        Cell::Count(row.stalls_count),
        consistency(row.consistency),
    ]
}

const WORKERS: [&str; 24] = [
    "worker",
    "scheduler",
    "thread",
    "state",
    "state_ns",
    "task_id",
    "task",
    "parent_task_id",
    "task_age_ns",
    "running_ns",
    "runnable_ns",
    "suspended_ns",
    "preemptive_ns",
    "context_switch_count",
    "yield_count",
    "last_wait_type",
    "wait_resource",
    "signal_worker",
    "boost_count",
    "stack_bytes_used",
    "tasks_processed_count",
    "os_interrupted_quanta_count",
    "age_ns",
    "consistency",
];

fn worker(row: &WorkerRow) -> Vec<Cell> {
    vec![
        id(row.worker),
        row.scheduler.map_or(Cell::Missing, id),
        row.thread.map_or(Cell::Missing, id),
        Cell::text(row.state.as_str()),
        time(row.state_ns),
        row.task_id.map_or(Cell::Missing, Cell::Id),
        words(row.task_name.as_ref()),
        row.parent_task_id.map_or(Cell::Missing, Cell::Id),
        time(row.task_age_ns),
        time(row.running_ns),
        time(row.runnable_ns),
        time(row.suspended_ns),
        time(row.preemptive_ns),
        Cell::Count(row.context_switch_count),
        Cell::Count(row.yield_count),
        words(row.wait_type.as_ref()),
        Cell::Hex(row.wait_resource),
        row.signal_worker.map_or(Cell::Missing, id),
        Cell::Count(row.boost_count.into()),
        row.stack_bytes_used
            .map_or(Cell::Missing, |bytes| Cell::Count(bytes.into())),
        Cell::Count(row.tasks_processed_count.into()),
        Cell::Count(row.os_interrupted_quanta_count.into()),
        time(row.age_ns),
        consistency(row.consistency),
    ]
}

const TASKS: [&str; 7] = [
    "task_id",
    "task",
    "task_state",
    "scheduler",
    "worker",
    "parent_task_id",
    "age_ns",
];

fn task(row: &TaskRow) -> Vec<Cell> {
    vec![
        Cell::Id(row.task_id),
        words(row.name.as_ref()),
        Cell::text(row.state.as_str()),
        row.scheduler.map_or(Cell::Missing, id),
        id(row.worker),
        row.parent_task_id.map_or(Cell::Missing, Cell::Id),
        time(row.age_ns),
    ]
}

const THREADS: [&str; 9] = [
    "os_thread_id",
    "kind",
    "scheduler",
    "task_id",
    "run",
    "cpu_time_ns",
    "run_queue_time_ns",
    "stack_bytes",
    "age_ns",
];

fn thread(row: &ThreadRow, kernel: &SnapshotThread) -> Vec<Cell> {
    let counters = kernel.counters.as_ref();
    let runs = counters.and_then(|counters| counters.runs);
    vec![
        Cell::Id(kernel.tid.unwrap_or(row.os_thread_id).into()),
        Cell::text(row.kind.as_str()),
        row.scheduler.map_or(Cell::Missing, id),
        row.task_id.map_or(Cell::Missing, Cell::Id),
        Cell::Count(row.run.into()),
        Cell::time(counters.and_then(cpu_time)),
        Cell::time(runs.map(|runs| runs.runq)),
        Cell::Count(row.stack_bytes),
        time(row.age_ns),
    ]
}

const WAIT_STATS: [&str; 8] = [
    "scheduler",
    "wait_type",
    "waiting_tasks_count",
    "completed_count",
    "wait_time_ns",
    "max_wait_time_ns",
    "signal_wait_time_ns",
    "histogram",
];

fn waits(row: &WaitStatistics) -> Vec<Cell> {
    let filled = row.bucket_ns.iter().zip(&row.histogram);
    let filled = filled.filter(|(_, count)| **count > 0);
    let buckets = filled.map(|(from_ns, count)| format!("{from_ns}ns:{count}"));
    vec![
        id(row.scheduler),
        Cell::text(&row.wait_type),
        Cell::Count(row.waiting_tasks_count),
        Cell::Count(row.completed_count),
        time(row.wait_time_ns),
        time(row.max_wait_time_ns),
        time(row.signal_wait_time_ns),
        Cell::List(buckets.collect()),
    ]
}

const WAITING_TASKS: [&str; 8] = [
    "task_id",
    "task",
    "worker",
    "scheduler",
    "wait_type",
    "resource",
    "wait_duration_ns",
    "last_signal_task_id",
];

fn waiting(row: &CurrentWait) -> Vec<Cell> {
    vec![
        Cell::Id(row.task_id),
        words(row.name.as_ref()),
        id(row.worker),
        row.scheduler.map_or(Cell::Missing, id),
        words(row.wait_type.as_ref()),
        Cell::Hex(row.resource),
        time(row.wait_duration_ns),
        row.last_signal_task_id.map_or(Cell::Missing, Cell::Id),
    ]
}

const OS_SWITCHES: [&str; 11] = [
    "scheduler",
    "mode",
    "threads",
    "context_switches_count",
    "yield_count",
    "self_reselect_count",
    "os_voluntary",
    "os_involuntary",
    "os_interrupted_quanta_count",
    "cpu_time_ns",
    "run_queue_time_ns",
];

fn os_switches(snapshot: &Snapshot, threads: &KernelCounters) -> Sheet {
    let mut sheet = table("os_switches", &OS_SWITCHES, &snapshot.schedulers, |row| {
        let own = threads.iter();
        let own = own.filter(|thread| thread.scheduler == Some(row.scheduler));
        let counters = threads.of_scheduler(row.scheduler);
        let runs = counters.and_then(|counters| counters.runs);
        vec![
            id(row.scheduler),
            Cell::text(row.mode.as_str()),
            Cell::Count(own.count() as u64),
            Cell::Count(row.context_switches_count),
            Cell::Count(row.yield_count),
            Cell::Count(row.self_reselect_count),
            counters.map_or(Cell::Missing, |all| Cell::Count(all.voluntary)),
            counters.map_or(Cell::Missing, |all| Cell::Count(all.involuntary)),
            Cell::Count(row.os_interrupted_quanta_count),
            Cell::time(runs.map(|runs| runs.ran)),
            Cell::time(runs.map(|runs| runs.runq)),
        ]
    });
    sheet.views = LEVEL_TABLES.to_vec();
    sheet.notes.push(
        "os_voluntary and os_involuntary are the kernel's words for threads that left asleep and runnable; \
         they say nothing of what a worker wanted"
            .to_owned(),
    );
    sheet
}

fn id(number: usize) -> Cell {
    Cell::Id(number as u64)
}

fn time(ns: u64) -> Cell {
    Cell::Time(Nanos::from_ns(ns))
}

fn words(text: Option<&String>) -> Cell {
    text.map_or(Cell::Missing, |text| Cell::text(text.as_str()))
}

fn yes(is: bool) -> Cell {
    Cell::Count(is.into())
}

fn consistency(consistency: Consistency) -> Cell {
    Cell::text(match consistency {
        Consistency::Whole => "whole",
        Consistency::Rows => "rows",
        Consistency::Torn => "torn",
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use swtch_fiber::{Runtime, TaskBuilder, sleep};
    use swtch_observe::Page;

    /// A cell too many or too few would put every number after it under a wrong name.
    #[test]
    fn every_view_has_a_cell_for_each_column() {
        let runtime = Runtime::builder().schedulers(1).build().unwrap();
        let hostile = TaskBuilder::new().name("evil\u{1b}[2J\n");
        let sleeper = runtime
            .spawn_with(hostile, || sleep(Duration::from_secs(3600)))
            .unwrap();
        let page = Page::of_process(std::process::id()).unwrap();
        let mut shown = Vec::new();
        // The task needs a moment until it sleeps.
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            let snapshot = page.snapshot().unwrap();
            let threads = KernelCounters::read(page.pid(), &snapshot);
            let sheet = |view: &View| view.sheet(&snapshot, &threads);
            shown = View::value_variants().iter().map(sheet).collect();
            if shown.iter().all(|sheet| !sheet.rows.is_empty()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for sheet in &shown {
            assert!(!sheet.rows.is_empty(), "{}: no rows", sheet.name);
            for row in &sheet.rows {
                assert_eq!(row.len(), sheet.columns.len(), "{}", sheet.name);
            }
            let table = sheet.to_table(usize::MAX);
            assert!(!table.contains('\u{1b}'), "{}", sheet.name);
        }
        sleeper.cancel();
    }
}

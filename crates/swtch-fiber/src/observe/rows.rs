//! What an observer gets to see: rows with the names of SQL Server's views, times in ns.

use crate::page::layout::{
    BUCKETS, event_kind, io_driver, scheduler_status, thread_kind, worker_state,
};

/// Words for the numbers of the layout.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident: $type:ty { $($variant:ident = $number:path, $word:literal: $help:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $(#[doc = $help] $variant),+ }

        impl $name {
            /// The word that views show.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            pub(super) const fn from_number(number: $type) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// How a scheduler runs its workers.
    Mode: u32 {
        Fiber = scheduler_status::FIBER, "fiber": "workers are coroutines on one OS thread";
        Thread = scheduler_status::THREAD, "thread": "workers are OS threads that hand a baton on";
        Ended = scheduler_status::ENDED, "ended": "its runtime has ended, and its counters are final";
    }
}

numbered! {
    /// What an OS thread is to its scheduler.
    ThreadKind: u32 {
        Scheduler = thread_kind::SCHEDULER, "scheduler": "it runs a scheduler's workers, or started it";
        Worker = thread_kind::WORKER, "worker": "it is a worker";
        Helper = thread_kind::HELPER, "helper": "it runs code of workers that went preemptive";
        Monitor = thread_kind::MONITOR, "monitor": "it watches quanta and stalls";
    }
}

numbered! {
    /// What drives a scheduler's input and output.
    IoDriver: u32 {
        Uring = io_driver::URING, "io_uring": "the kernel completes operations";
        Epoll = io_driver::EPOLL, "epoll": "the kernel says what is ready";
        EpollSinceRefused = io_driver::EPOLL_SINCE_REFUSED, "epoll (io_uring refused)": "the kernel refused `io_uring`";
    }
}

numbered! {
    /// Where a worker stands.
    WorkerState: u32 {
        Idle = worker_state::IDLE, "idle": "it has no task";
        Runnable = worker_state::RUNNABLE, "runnable": "it waits for its turn";
        Running = worker_state::RUNNING, "running": "it holds the scheduler";
        Suspended = worker_state::SUSPENDED, "suspended": "it waits for something else";
        Preemptive = worker_state::PREEMPTIVE, "preemptive": "it runs outside of the scheduler";
    }
}

numbered! {
    /// What happened at a switch-out.
    EventKind: u8 {
        Yield = event_kind::YIELD, "yield": "the worker yielded";
        Suspend = event_kind::SUSPEND, "suspend": "it waits for something";
        Preemptive = event_kind::PREEMPTIVE, "preemptive": "it left the scheduler";
        Done = event_kind::DONE, "done": "its task ended";
        Idle = event_kind::IDLE, "idle": "nothing was runnable";
    }
}

/// How well the numbers of a scheduler and its workers go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consistency {
    /// They are of one moment.
    Whole,
    /// Each row is of one moment, the rows are of different ones: the scheduler switches faster
    /// than all of it can be read.
    Rows,
    /// A row was being changed at every look: its numbers may be of two moments.
    Torn,
}

/// A scheduler: `sys.dm_os_schedulers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerRow {
    /// Its place in the page, which other rows name.
    pub scheduler: usize,
    /// Its runtime in the process.
    pub runtime: u32,
    /// Its number within the runtime.
    pub scheduler_id: u32,
    /// How it runs workers.
    pub mode: Mode,
    /// The CPU it is bound to.
    pub cpu_id: Option<u32>,
    /// Whether it waits in the kernel for something to do.
    pub is_idle: bool,
    /// Whether clocks are read and times are kept.
    pub accounting: bool,
    /// Times that another worker was switched to.
    pub context_switches_count: u64,
    /// Times that a worker gave the scheduler up.
    pub yield_count: u64,
    /// Yields after which the same worker ran on.
    pub self_reselect_count: u64,
    /// Times that a worker left to run preemptively.
    pub preemptive_switches_count: u64,
    /// Times that nothing was runnable.
    pub idle_switches_count: u64,
    /// Between one worker switching out and another switching in, idle time aside.
    pub total_scheduler_delay_ns: u64,
    /// Workers on the runnable queue.
    pub runnable_tasks_count: u32,
    /// Tasks that have not ended.
    pub current_tasks_count: u32,
    /// Workers, with or without a task.
    pub current_workers_count: u32,
    /// Workers that have a task and are not preemptive.
    pub active_workers_count: u32,
    /// Tasks that wait for a worker.
    pub work_queue_count: u32,
    /// Workers that went preemptive and wait for a helper thread.
    pub queued_preemptive_count: u32,
    /// What drives its input and output.
    pub io_driver: Option<IoDriver>,
    /// I/O that was started and has not completed.
    pub pending_io_count: u32,
    /// Weight by which new tasks are routed.
    pub load_factor: u32,
    /// Times that no worker could be made.
    pub failed_to_create_worker: u32,
    /// The worker that runs.
    pub active_worker: Option<usize>,
    /// The thread that holds the scheduler.
    pub active_thread: Option<usize>,
    /// The quantum.
    pub quantum_ns: u64,
    /// How long the present run has lasted; `None` while idle.
    pub current_run_ns: Option<u64>,
    /// Time that workers ran here, the present run aside.
    pub total_running_ns: u64,
    /// Time that it waited in the kernel with nothing to do.
    pub total_idle_ns: u64,
    /// How long ago timers were looked at.
    pub last_timer_activity_ns: u64,
    /// Tasks that ended here.
    pub tasks_completed_count: u64,
    /// Runs during which the OS took the CPU away, as far as noticed without privilege.
    pub os_interrupted_quanta_count: u64,
    /// Requests to yield because a quantum was used up.
    pub quantum_expired_count: u64,
    /// Unstarted tasks taken from other schedulers.
    pub stolen_tasks_count: u64,
    /// Stalls reported here.
    pub stalls_count: u64,
    /// How old it is.
    pub age_ns: u64,
    /// How well its numbers go together.
    pub consistency: Consistency,
}

/// A worker: `sys.dm_os_workers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    /// Its place in the page.
    pub worker: usize,
    /// Its scheduler.
    pub scheduler: Option<usize>,
    /// The thread it ran on last.
    pub thread: Option<usize>,
    /// Where it stands.
    pub state: WorkerState,
    /// Since when.
    pub state_ns: u64,
    /// Its task; `None` when it has none.
    pub task_id: Option<u64>,
    /// The name of the task.
    pub task_name: Option<String>,
    /// The task that started its task.
    pub parent_task_id: Option<u64>,
    /// How long it has had the task.
    pub task_age_ns: u64,
    /// Time running, up to now.
    pub running_ns: u64,
    /// Time runnable, up to now.
    pub runnable_ns: u64,
    /// Time suspended, up to now.
    pub suspended_ns: u64,
    /// Time outside of the scheduler, up to now.
    pub preemptive_ns: u64,
    /// Times it was switched out for another worker, or for nobody.
    pub context_switch_count: u64,
    /// Times it gave the scheduler up.
    pub yield_count: u64,
    /// Present or latest wait type.
    pub wait_type: Option<String>,
    /// What it waits for: means something to the wait type.
    pub wait_resource: u64,
    /// The worker that made it runnable last.
    pub signal_worker: Option<usize>,
    /// Times in a row that it went to the head of the runnable queue.
    pub boost_count: u32,
    /// How deep it has used its stack, in whole pages; `None` when the monitor has not looked.
    pub stack_bytes_used: Option<u32>,
    /// Tasks it has ended.
    pub tasks_processed_count: u32,
    /// Runs during which the OS took the CPU away, as far as noticed.
    pub os_interrupted_quanta_count: u32,
    /// How old the worker is.
    pub age_ns: u64,
    /// Whether its numbers are of one moment.
    pub consistency: Consistency,
}

/// A task that has a worker: `sys.dm_os_tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// The task.
    pub task_id: u64,
    /// Its name.
    pub name: Option<String>,
    /// Where its worker stands.
    pub state: WorkerState,
    /// The scheduler it is bound to.
    pub scheduler: Option<usize>,
    /// Its worker.
    pub worker: usize,
    /// The task that started it.
    pub parent_task_id: Option<u64>,
    /// How long ago it got its worker.
    pub age_ns: u64,
}

/// An OS thread: `sys.dm_os_threads`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    /// Its place in the page.
    pub thread: usize,
    /// `gettid`, as the thread sees itself.
    pub os_thread_id: u32,
    /// What it is to its scheduler.
    pub kind: ThreadKind,
    /// Its scheduler.
    pub scheduler: Option<usize>,
    /// The task that runs on it.
    pub task_id: Option<u64>,
    /// Which run of the task that is.
    pub run: u32,
    /// How old it is.
    pub age_ns: u64,
    /// Size of its stack.
    pub stack_bytes: u64,
}

/// Waits of one type on one scheduler: `sys.dm_os_wait_stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// The scheduler.
    pub scheduler: usize,
    /// Name of the type.
    pub wait_type: String,
    /// Waits begun.
    pub waiting_tasks_count: u64,
    /// Waits ended.
    pub completed_count: u64,
    /// Time of the ended ones, until the worker ran again.
    pub wait_time_ns: u64,
    /// The longest of them.
    pub max_wait_time_ns: u64,
    /// The part of `wait_time_ns` after the signal.
    pub signal_wait_time_ns: u64,
    /// How many took the time of each bucket and more, in ns at the bucket's lower end.
    pub histogram: [u64; BUCKETS],
    /// The lower ends of the buckets, ns.
    pub bucket_ns: [u64; BUCKETS],
}

/// A wait that goes on: `sys.dm_os_waiting_tasks`, with the chain of who woke whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingRow {
    /// The task that waits.
    pub task_id: u64,
    /// Its name.
    pub name: Option<String>,
    /// Its worker.
    pub worker: usize,
    /// Its scheduler.
    pub scheduler: Option<usize>,
    /// What kind of thing it waits for.
    pub wait_type: Option<String>,
    /// Which one.
    pub resource: u64,
    /// For how long.
    pub wait_duration_ns: u64,
    /// The task that had ended its wait before; `None` for a timer, I/O or no task.
    pub last_signal_task_id: Option<u64>,
}

//! The rows that an observer sees, with the names of SQL Server's views; times in ns.

use crate::layout::{BUCKETS, event_kind, io_driver, scheduler_status, thread_kind, worker_state};

/// Enums whose variants have a number in the layout and a word in the views.
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
    /// The way in which a scheduler runs its workers.
    Mode: u32 {
        Fiber = scheduler_status::FIBER, "fiber": "workers are coroutines on one OS thread";
        Thread = scheduler_status::THREAD, "thread": "workers are OS threads that hand a baton on";
        Ended = scheduler_status::ENDED, "ended": "its runtime has ended, and its counters are final";
    }
}

numbered! {
    /// The role of an OS thread for its scheduler.
    ThreadKind: u32 {
        Scheduler = thread_kind::SCHEDULER, "scheduler": "it runs a scheduler's workers, or started it";
        Worker = thread_kind::WORKER, "worker": "it is a worker";
        Helper = thread_kind::HELPER, "helper": "it runs code of workers that went preemptive";
        Monitor = thread_kind::MONITOR, "monitor": "it watches quanta and stalls";
    }
}

numbered! {
    /// The driver of a scheduler's input and output.
    IoDriver: u32 {
        Uring = io_driver::URING, "io_uring": "the kernel completes operations";
        Epoll = io_driver::EPOLL, "epoll": "the kernel says what is ready";
        EpollSinceRefused = io_driver::EPOLL_SINCE_REFUSED, "epoll (io_uring refused)": "the kernel refused `io_uring`";
    }
}

numbered! {
    /// The state of a worker.
    WorkerState: u32 {
        Idle = worker_state::IDLE, "idle": "it has no task";
        Runnable = worker_state::RUNNABLE, "runnable": "it waits for its turn";
        Running = worker_state::RUNNING, "running": "it holds the scheduler";
        Suspended = worker_state::SUSPENDED, "suspended": "it waits for something else";
        Preemptive = worker_state::PREEMPTIVE, "preemptive": "it runs outside of the scheduler";
    }
}

numbered! {
    /// The event at a switch-out.
    EventKind: u8 {
        Yield = event_kind::YIELD, "yield": "the worker yielded";
        Suspend = event_kind::SUSPEND, "suspend": "it waits for something";
        Preemptive = event_kind::PREEMPTIVE, "preemptive": "it left the scheduler";
        Done = event_kind::DONE, "done": "its task ended";
        Idle = event_kind::IDLE, "idle": "nothing was runnable";
    }
}

/// The consistency of the numbers of a scheduler and its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consistency {
    /// All rows were read at one moment.
    Whole,
    /// Each row was read at one moment, but different rows at different moments: the scheduler
    /// switches faster than all of it can be read.
    Rows,
    /// The row was being changed at every attempt: its numbers may be of two moments.
    Torn,
}

/// One scheduler, a row of `sys.dm_os_schedulers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerRow {
    /// Index of its record in the page, by which other rows refer to it.
    pub scheduler: usize,
    /// Number of its runtime in the process.
    pub runtime: u32,
    /// Number of the scheduler within its runtime.
    pub scheduler_id: u32,
    /// The way in which the scheduler runs its workers.
    pub mode: Mode,
    /// The CPU it is bound to; `None` when it may run anywhere.
    pub cpu_id: Option<u32>,
    /// True if the scheduler sleeps in the kernel with nothing to do.
    pub is_idle: bool,
    /// True if clocks are read and times are kept.
    pub accounting: bool,
    /// Times that a worker was switched out; a yield after which the same worker ran on does not
    /// count.
    pub context_switches_count: u64,
    /// Times that a worker gave the scheduler up.
    pub yield_count: u64,
    /// Yields after which the same worker ran on.
    pub self_reselect_count: u64,
    /// Times that a worker left to run preemptively.
    pub preemptive_switches_count: u64,
    /// Times that nothing was runnable.
    pub idle_switches_count: u64,
    /// Time between one worker switching out and another switching in, without idle time.
    pub total_scheduler_delay_ns: u64,
    /// Workers on the runnable queue.
    pub runnable_tasks_count: u32,
    /// Tasks bound here that have not ended: queued, runnable, running, suspended.
    pub current_tasks_count: u32,
    /// Its workers, with or without a task.
    pub current_workers_count: u32,
    /// Workers that have a task and are not preemptive.
    pub active_workers_count: u32,
    /// Tasks that wait for a worker.
    pub work_queue_count: u32,
    /// Workers that went preemptive and wait for a helper thread.
    pub queued_preemptive_count: u32,
    /// The driver of its input and output; `None` before that is known.
    pub io_driver: Option<IoDriver>,
    /// I/O that was started and has not completed.
    pub pending_io_count: u32,
    /// Tasks queued or bound here that have not ended. A new task goes to the scheduler with the
    /// fewest.
    pub load_factor: u32,
    /// Times that no worker could be made.
    pub failed_to_create_worker: u32,
    /// Index of the worker that runs; `None` for none.
    pub active_worker: Option<usize>,
    /// Index of the thread that holds the scheduler.
    pub active_thread: Option<usize>,
    /// The time for which a worker may run before it is asked to yield.
    pub quantum_ns: u64,
    /// The time for which the present run has lasted; `None` while idle.
    pub current_run_ns: Option<u64>,
    /// Time that workers ran here, without the present run.
    pub total_running_ns: u64,
    /// Time that the scheduler slept with nothing to do.
    pub total_idle_ns: u64,
    /// Time since the timers were last checked.
    pub last_timer_activity_ns: u64,
    /// Tasks that ended on this scheduler.
    pub tasks_completed_count: u64,
    /// Runs during which the OS took the CPU away, as far as noticed without privilege.
    pub os_interrupted_quanta_count: u64,
    /// Requests to yield because a quantum was used up.
    pub quantum_expired_count: u64,
    /// Unstarted tasks taken from other schedulers.
    pub stolen_tasks_count: u64,
    /// Stalls of this scheduler that were found.
    pub stalls_count: u64,
    /// Time since the record was set up.
    pub age_ns: u64,
    /// Says whether this row and its workers were read at one moment.
    pub consistency: Consistency,
}

/// One worker, a row of `sys.dm_os_workers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    /// Index of its record in the page, by which other rows refer to it.
    pub worker: usize,
    /// Index of the scheduler it belongs to.
    pub scheduler: Option<usize>,
    /// Index of the thread on which it ran last.
    pub thread: Option<usize>,
    /// State of the worker at this moment.
    pub state: WorkerState,
    /// Time since it entered that state.
    pub state_ns: u64,
    /// Id of its task; `None` when it has none.
    pub task_id: Option<u64>,
    /// Name of the task, cut to 32 bytes; `None` without a name.
    pub task_name: Option<String>,
    /// Id of the task that spawned its task; `None` if that was not a task.
    pub parent_task_id: Option<u64>,
    /// Time since the task was bound to the worker.
    pub task_age_ns: u64,
    /// Time spent running, over all its tasks, up to now.
    pub running_ns: u64,
    /// Time spent runnable, over all its tasks, up to now.
    pub runnable_ns: u64,
    /// Time spent suspended, over all its tasks, up to now.
    pub suspended_ns: u64,
    /// Time spent outside of the scheduler, over all its tasks, up to now.
    pub preemptive_ns: u64,
    /// Times that it was switched out.
    pub context_switch_count: u64,
    /// Times it gave the scheduler up.
    pub yield_count: u64,
    /// Present or latest wait type.
    pub wait_type: Option<String>,
    /// The resource that it waits for: an address or a number whose meaning depends on the wait type.
    pub wait_resource: u64,
    /// Index of the worker that made it runnable last; `None` for a timer, I/O, or another thread.
    pub signal_worker: Option<usize>,
    /// Times in a row that it went to the head of the runnable queue.
    pub boost_count: u32,
    /// The depth to which it has used its stack, bytes in whole pages; `None` before the monitor has measured it.
    pub stack_bytes_used: Option<u32>,
    /// Tasks that this worker has ended.
    pub tasks_processed_count: u32,
    /// Runs during which the OS took the CPU away, as far as noticed without privilege.
    pub os_interrupted_quanta_count: u32,
    /// Time since the worker was created.
    pub age_ns: u64,
    /// Says whether this row was read at one moment.
    pub consistency: Consistency,
}

/// One task that has a worker: `sys.dm_os_tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// Id of the task, unique in its process.
    pub task_id: u64,
    /// Name of the task; `None` without a name.
    pub name: Option<String>,
    /// State of the worker that runs it.
    pub state: WorkerState,
    /// Index of the scheduler it is bound to.
    pub scheduler: Option<usize>,
    /// Index of the worker that runs it.
    pub worker: usize,
    /// Id of the task that spawned it; `None` if that was not a task.
    pub parent_task_id: Option<u64>,
    /// Time since it was bound to its worker.
    pub age_ns: u64,
}

/// One OS thread, a row of `sys.dm_os_threads`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    /// Index of its record in the page.
    pub thread: usize,
    /// Thread id (`gettid`), in the target's own pid namespace.
    pub os_thread_id: u32,
    /// The thread's part in its scheduler.
    pub kind: ThreadKind,
    /// Index of the scheduler it works for; `None` for none.
    pub scheduler: Option<usize>,
    /// Id of the task that runs on it; `None` for none.
    pub task_id: Option<u64>,
    /// Number of the present run, among the runs of that task; wraps at 2²⁴.
    pub run: u32,
    /// Time since the thread was registered.
    pub age_ns: u64,
    /// Size of its stack, bytes; 0 when unknown.
    pub stack_bytes: u64,
}

/// Waits of one type on one scheduler: `sys.dm_os_wait_stats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitStatistics {
    /// Index of the scheduler in the page.
    pub scheduler: usize,
    /// Name of the wait type.
    pub wait_type: String,
    /// Waits that have begun, ended or not.
    pub waiting_tasks_count: u64,
    /// Waits that have ended, in any way.
    pub completed_count: u64,
    /// Time of ended waits, until the worker ran again.
    pub wait_time_ns: u64,
    /// The longest ended wait of this type.
    pub max_wait_time_ns: u64,
    /// The part of `wait_time_ns` after the signal, in which the worker was runnable.
    pub signal_wait_time_ns: u64,
    /// Ended waits by length: one count per bucket, whose lower end is in `bucket_ns`.
    pub histogram: [u64; BUCKETS],
    /// Lower ends of the buckets, `2^b` ticks each, converted to ns.
    pub bucket_ns: [u64; BUCKETS],
}

/// One wait that has not ended: `sys.dm_os_waiting_tasks`, with the task that ended the wait
/// before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentWait {
    /// Id of the task that waits.
    pub task_id: u64,
    /// Name of the task; `None` without a name.
    pub name: Option<String>,
    /// Index of the worker that runs it.
    pub worker: usize,
    /// Index of the scheduler it belongs to.
    pub scheduler: Option<usize>,
    /// Name of the wait type; `None` for an unknown number.
    pub wait_type: Option<String>,
    /// Which object it waits for: an address or a number whose meaning depends on the wait type.
    pub resource: u64,
    /// The time for which the wait has lasted so far.
    pub wait_duration_ns: u64,
    /// Id of the task that ended its previous wait; `None` for a timer, I/O or a thread without a
    /// task.
    pub last_signal_task_id: Option<u64>,
}

//! The layout of the shared page: what a scheduler writes and another process reads.
//!
//! One file in memory (`memfd`, named [`FILE_NAME`]) per process holds all counters of all runtimes
//! of that process. Its owner maps it for writing, an observer for reading, and neither asks the
//! other for anything. So an observer neither stops nor delays the target, and the last values stay
//! readable when the target dies.
//!
//! ```text
//! 0        Header            who wrote this, where the tables are, how to read its clock
//! │        WaitTypeName[]    names of wait types, in the order of their numbers
//! │        SchedulerRecord[] one per scheduler
//! │        ThreadRecord[]    one per OS thread: its `gettid`, and the *word*: what runs on it now
//! │        WorkerRecord[]    one per worker, and what it works on
//! │        WorkerName[]      the name of its task
//! │        WaitRecord[][]    wait statistics: scheduler × wait type
//! │        RingHeader, RingEvent[]  per scheduler: its latest switches, while a recorder is active
//! ▼        WorkerStack[]     one per worker: how deeply it has used its stack
//! ```
//!
//! Rules that make it readable without a lock:
//!
//! - All fields are atomics of 8 or 4 bytes, written with plain stores by one writer at a time: the
//!   holder of the scheduler (fiber mode: its thread; thread mode: the worker with the baton). A
//!   worker in preemptive mode writes only its own `preemptive` fields.
//! - [`SchedulerRecord::sequence`] is odd while the records of that scheduler and of its workers
//!   are being changed: read it, read the records, read it again, and repeat if it has changed.
//! - Times are *ticks* of the target's clock (`clock`); two anchors in the header turn
//!   them into `CLOCK_MONOTONIC`.
//! - Offsets and sizes of all tables are in the header; [`VERSION`] grows with any change of a
//!   record.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Name of the memory file: `/proc/PID/fd` shows it as `/memfd:swtch-fiber (deleted)`.
pub const FILE_NAME: &str = "swtch-fiber";

/// First eight bytes of the file: `swtchfib`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"swtchfib");

/// Grows whenever a record changes.
pub const VERSION: u32 = 2;

/// Most wait types: built-in ones and those that programs name.
pub const WAIT_TYPES: usize = 128;

/// Buckets of a wait histogram: bucket `b` counts waits of `2^b ..= 2^(b+1) - 1` ticks, the last
/// one everything longer.
pub const BUCKETS: usize = 48;

/// Bytes of a name in the page; longer names are cut at a character border.
pub const NAME_BYTES: usize = 32;

/// Bits of [`ThreadRecord::word`] that count the runs of the task.
pub const RUN_BITS: u32 = 24;

/// The place of a table in the file, and the size to which it may grow.
#[derive(Debug, Default)]
#[repr(C)]
pub struct TableLayout {
    /// Bytes from the beginning of the file.
    pub offset: AtomicU64,
    /// Bytes from one record to the next.
    pub stride: AtomicU32,
    /// Number of records that have room.
    pub capacity: AtomicU32,
    /// Records in use: those beyond were never written.
    pub used: AtomicU32,
    pad: AtomicU32,
}

/// One moment in both clocks.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Anchor {
    /// Ticks of the target's clock.
    pub ticks: AtomicU64,
    /// The same moment in `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: AtomicU64,
}

/// The beginning of the file.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`], written last when the page is set up.
    pub magic: AtomicU64,
    /// Layout version of this page, see [`VERSION`].
    pub version: AtomicU32,
    /// The process that writes, as it sees itself (`getpid`).
    pub pid: AtomicU32,
    /// Address at which the owner has mapped the file: a field's address in the target is this plus
    /// its offset. The recorder's eBPF program reads at such addresses.
    pub base_address: AtomicU64,
    /// The moment at which the page was set up, `CLOCK_MONOTONIC` ns.
    pub created_monotonic_ns: AtomicU64,
    /// Odd while the anchors are being changed.
    pub anchor_sequence: AtomicU64,
    /// The two ends of a time span, of at least a second once the process is that old.
    pub anchors: [Anchor; 2],
    /// Events are written while the target's clock is before this tick. A recorder advances it some
    /// ten times a second; when the recorder dies, recording ends by itself.
    pub record_until_ticks: AtomicU64,
    /// Names of wait types, see [`WaitTypeName`]; the tables follow the order of the drawing.
    pub wait_type_names: TableLayout,
    /// One record per scheduler, see [`SchedulerRecord`].
    pub schedulers: TableLayout,
    /// One record per thread, see [`ThreadRecord`].
    pub threads: TableLayout,
    /// One record per worker, see [`WorkerRecord`].
    pub workers: TableLayout,
    /// One name per worker, see [`WorkerName`].
    pub worker_names: TableLayout,
    /// See [`WaitRecord`]: the row of scheduler `s`, wait type `w` is `s * WAIT_TYPES + w`.
    pub waits: TableLayout,
    /// See [`RingHeader`]; a stride holds the header and, at its end, all events of one scheduler.
    pub rings: TableLayout,
    /// One record per worker, see [`WorkerStack`].
    pub worker_stacks: TableLayout,
}

/// Name of a wait type: UTF-8, filled up with zeros.
#[derive(Debug)]
#[repr(C)]
pub struct WaitTypeName {
    /// The bytes, eight to a word, little endian.
    pub bytes: [AtomicU64; NAME_BYTES / 8],
}

/// The states of a scheduler's record.
pub mod scheduler_status {
    /// The record has no scheduler.
    pub const UNUSED: u32 = 0;
    /// It runs workers, one at a time, on one OS thread.
    pub const FIBER: u32 = 1;
    /// It passes a baton among OS threads.
    pub const THREAD: u32 = 2;
    /// Its runtime has ended; the counters are final until the record is used again.
    pub const ENDED: u32 = 3;
}

/// One scheduler. Names and meanings are those of `sys.dm_os_schedulers` (SQL Server).
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SchedulerRecord {
    /// Odd while records of this scheduler are being changed.
    pub sequence: AtomicU64,
    /// Times that a worker was switched out. A yield after which the same worker runs on is **not**
    /// counted here.
    pub context_switches_count: AtomicU64,
    /// Times that a worker gave the scheduler up: yields, waits, and going preemptive. Part of what
    /// the monitor takes for progress.
    pub yield_count: AtomicU64,
    /// Yields after which the same worker ran on, because no other was runnable.
    pub self_reselect_count: AtomicU64,
    /// Times that a worker left the scheduler to run preemptively.
    pub preemptive_switches_count: AtomicU64,
    /// Times that nothing was runnable and the scheduler waited in the kernel.
    pub idle_switches_count: AtomicU64,
    /// Ticks between one worker switching out and another switching in, summed: the delay that the
    /// scheduler and the OS add. Idle time is not part of it.
    pub total_scheduler_delay_ticks: AtomicU64,
    /// The moment at which the worker now running was switched in; 0 while idle.
    pub run_started_ticks: AtomicU64,

    /// State of the record, one of [`scheduler_status`].
    pub status: AtomicU32,
    /// The CPU it is bound to, plus one; 0 when it may run anywhere.
    pub cpu_plus_one: AtomicU32,
    /// Number of the runtime in this process: schedulers of one runtime share it.
    pub runtime: AtomicU32,
    /// Number within the runtime, from 0.
    pub scheduler_id: AtomicU32,
    /// 1 while it waits in the kernel for something to do.
    pub is_idle: AtomicU32,
    /// Workers on the runnable queue, without the one that runs.
    pub runnable_tasks_count: AtomicU32,
    /// Tasks bound here that have not ended: queued, runnable, running, suspended.
    pub current_tasks_count: AtomicU32,
    /// Workers, with or without a task.
    pub current_workers_count: AtomicU32,
    /// Workers that have a task and are not preemptive.
    pub active_workers_count: AtomicU32,
    /// Tasks that wait for a worker.
    pub work_queue_count: AtomicU32,
    /// I/O that was started and has not completed.
    pub pending_io_count: AtomicU32,
    /// Weight by which new tasks are routed: +1 when a task is queued here, -1 when it ends.
    pub load_factor: AtomicU32,
    /// Times that no worker could be made.
    pub failed_to_create_worker: AtomicU32,
    /// The worker that runs, plus one; 0 for none.
    pub active_worker_plus_one: AtomicU32,
    /// The [`ThreadRecord`] of the thread that holds the scheduler, plus one; 0 for none.
    pub active_thread_plus_one: AtomicU32,
    /// 1 where clocks are read and times are kept.
    pub accounting: AtomicU32,

    /// Length of the quantum, ns.
    pub quantum_ns: AtomicU64,
    /// The moment at which the timers were last checked.
    pub last_timer_activity_ticks: AtomicU64,
    /// Ticks that workers ran here while they held the scheduler.
    pub total_running_ticks: AtomicU64,
    /// Ticks that the scheduler waited in the kernel with nothing to do.
    pub total_idle_ticks: AtomicU64,
    /// Tasks that ended on this scheduler.
    pub tasks_completed_count: AtomicU64,
    /// Runs during which the OS took the CPU away, as far as it was noticed without privilege.
    pub os_interrupted_quanta_count: AtomicU64,
    /// Requests of the monitor to yield because a quantum was used up.
    pub quantum_expired_count: AtomicU64,
    /// The moment at which this record was set up.
    pub created_ticks: AtomicU64,
    /// Unstarted tasks taken from other schedulers.
    pub stolen_tasks_count: AtomicU64,
    /// Stalls of this scheduler that were found.
    pub stalls_count: AtomicU64,
    /// Workers that went preemptive and wait for a helper thread (fiber mode).
    pub queued_preemptive_count: AtomicU32,
    /// The driver of input and output, one of [`io_driver`].
    pub io_driver: AtomicU32,
    /// Zero; room for fields of later versions.
    pub reserved: [AtomicU32; 10],
}

impl SchedulerRecord {
    /// A number that changes whenever a worker gives the scheduler up and when it goes idle, so it
    /// distinguishes one run from the next.
    pub fn progress(&self) -> u64 {
        self.yield_count.load(Ordering::Relaxed)
            + self.tasks_completed_count.load(Ordering::Relaxed)
            + self.idle_switches_count.load(Ordering::Relaxed)
    }

    /// The result of a `look` during which the scheduler changed nothing; `None` when it always
    /// did, in this many tries.
    pub fn undisturbed<Seen>(&self, tries: usize, look: impl Fn() -> Seen) -> Option<Seen> {
        for _ in 0..tries {
            let before = self.sequence.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let seen = look();
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    return Some(seen);
                }
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// The drivers of a scheduler's input and output; 0 before that is known.
pub mod io_driver {
    /// The driver is `io_uring`, in either mode.
    pub const URING: u32 = 1;
    /// The driver is epoll, as the mode or the settings ask for it.
    pub const EPOLL: u32 = 2;
    /// The driver is epoll, because the kernel refused `io_uring`.
    pub const EPOLL_SINCE_REFUSED: u32 = 3;
}

/// An OS thread's part in its scheduler.
pub mod thread_kind {
    /// The record has no thread.
    pub const UNUSED: u32 = 0;
    /// It runs all workers of a scheduler (fiber mode), or started it (thread mode).
    pub const SCHEDULER: u32 = 1;
    /// It is a worker's thread (thread mode).
    pub const WORKER: u32 = 2;
    /// It runs code of workers that went preemptive (fiber mode).
    pub const HELPER: u32 = 3;
    /// It watches quanta and stalls.
    pub const MONITOR: u32 = 4;
}

/// One OS thread. A recorder finds the threads here.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ThreadRecord {
    /// **The word**: what runs on this thread, `task_id << RUN_BITS | run`, 0 for nothing. One
    /// plain store per switch; an eBPF program reads it when the kernel switches the thread out.
    pub word: AtomicU64,
    /// `gettid`, as the thread's own pid namespace sees it.
    pub tid: AtomicU32,
    /// The thread's part, one of [`thread_kind`].
    pub kind: AtomicU32,
    /// Index of its [`SchedulerRecord`], plus one; 0 for none.
    pub scheduler_plus_one: AtomicU32,
    /// Grows each time the record is reused for another thread.
    pub generation: AtomicU32,
    /// The moment at which the thread was registered.
    pub started_ticks: AtomicU64,
    /// Lowest address of its stack.
    pub stack_low: AtomicU64,
    /// One past the highest address of its stack.
    pub stack_high: AtomicU64,
    /// Zero; room for fields of later versions.
    pub reserved: [AtomicU64; 2],
}

/// The states of a worker.
pub mod worker_state {
    /// The record has no worker.
    pub const UNUSED: u32 = 0;
    /// It has no task to run.
    pub const IDLE: u32 = 1;
    /// It is runnable and waits for its turn.
    pub const RUNNABLE: u32 = 2;
    /// It runs and holds the scheduler.
    pub const RUNNING: u32 = 3;
    /// It waits for something other than its turn.
    pub const SUSPENDED: u32 = 4;
    /// It runs outside of the scheduler.
    pub const PREEMPTIVE: u32 = 5;
}

/// One worker and its task. Names are those of `sys.dm_os_workers`, `sys.dm_os_tasks` and
/// `sys.dm_os_waiting_tasks`.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct WorkerRecord {
    /// Id of its task, from 1, never reused in this process; 0 for none.
    pub task_id: AtomicU64,
    /// The moment at which it entered its state.
    pub state_since_ticks: AtomicU64,
    /// Ticks spent running, over all its tasks, up to `state_since_ticks`.
    pub running_ticks: AtomicU64,
    /// Ticks spent runnable, waiting for its turn.
    pub runnable_ticks: AtomicU64,
    /// Ticks spent suspended, until it was signalled.
    pub suspended_ticks: AtomicU64,
    /// Ticks spent outside of the scheduler.
    pub preemptive_ticks: AtomicU64,
    /// Times that it was switched out.
    pub context_switch_count: AtomicU64,
    /// Times it gave the scheduler up.
    pub yield_count: AtomicU64,
    /// The resource that it waits for: an address or a number whose meaning depends on the wait type.
    pub wait_resource: AtomicU64,
    /// The moment at which its present task was bound to it.
    pub task_bound_ticks: AtomicU64,
    /// The task that spawned its task; 0 if that was not a task.
    pub parent_task_id: AtomicU64,
    /// The moment at which the worker was made.
    pub created_ticks: AtomicU64,
    /// State of the worker, one of [`worker_state`].
    pub state: AtomicU32,
    /// Number of the present or latest wait type.
    pub wait_type: AtomicU32,
    /// Index of its [`SchedulerRecord`], plus one.
    pub scheduler_plus_one: AtomicU32,
    /// Index of the [`ThreadRecord`] it ran on last, plus one.
    pub thread_plus_one: AtomicU32,
    /// The worker that made it runnable last, plus one; 0 for a timer, I/O, or a thread that is not
    /// a worker.
    pub signal_worker_plus_one: AtomicU32,
    /// Times in a row that it went to the head of the runnable queue.
    pub boost_count: AtomicU32,
    /// Tasks that this worker has ended.
    pub tasks_processed_count: AtomicU32,
    /// Runs during which the OS took the CPU away, as far as it was noticed.
    pub os_interrupted_quanta_count: AtomicU32,
}

/// Name of a worker's task; all zeros when it has none.
pub type WorkerName = WaitTypeName;

/// The depth to which a worker has used its stack.
#[derive(Debug)]
#[repr(C)]
pub struct WorkerStack {
    /// Bytes from the lowest page in memory to the base of the stack, at the monitor's latest
    /// measurement; 0 before the first.
    pub bytes_used: AtomicU32,
}

/// Waits of one type on one scheduler, with the meanings of `sys.dm_os_wait_stats`.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct WaitRecord {
    /// Waits that have begun, ended or not.
    pub waiting_tasks_count: AtomicU64,
    /// Waits that have ended, in any way.
    pub completed_count: AtomicU64,
    /// Ticks of ended waits, from their beginning until the worker ran again.
    pub wait_ticks: AtomicU64,
    /// The longest ended wait, ticks.
    pub max_wait_ticks: AtomicU64,
    /// The part of `wait_ticks` after the signal, in which the worker waited for its turn.
    pub signal_wait_ticks: AtomicU64,
    /// Zero; room for fields of later versions.
    pub reserved: [AtomicU64; 3],
    /// Ended waits by length: bucket `b` counts those of `2^b ..= 2^(b+1) - 1` ticks (see
    /// [`BUCKETS`]).
    pub histogram: [AtomicU64; BUCKETS],
}

/// The kinds of user-mode switch-outs.
pub mod event_kind {
    /// The worker yielded, and another (or itself again) runs.
    pub const YIELD: u8 = 1;
    /// The worker waits, with the wait type in the event.
    pub const SUSPEND: u8 = 2;
    /// The worker left the scheduler to run preemptively.
    pub const PREEMPTIVE: u8 = 3;
    /// The worker's task has ended.
    pub const DONE: u8 = 4;
    /// The scheduler found nothing runnable and went to wait in the kernel.
    pub const IDLE: u8 = 5;
}

/// Head of a scheduler's ring. The writer never waits: it overwrites the oldest event.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RingHeader {
    /// Events ever written; event `n` (from 0) lies in slot `n % capacity`.
    pub written: AtomicU64,
    /// Events that fit, a power of two.
    pub capacity: AtomicU64,
    /// Zero; room for fields of later versions.
    pub reserved: [AtomicU64; 6],
}

/// One user-mode switch-out: one cache line.
///
/// Reading without a lock: load `written` (acquire), copy events `written - capacity + 1 ..
/// written`, load `written` again behind a fence: events up to the second value minus the capacity
/// may have been overwritten meanwhile and count as lost.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RingEvent {
    /// The moment at which the worker was switched out.
    pub ticks: AtomicU64,
    /// Ticks that it had run since it was switched in; for [`event_kind::IDLE`], how long no worker
    /// ran.
    pub ran_ticks: AtomicU64,
    /// The word ([`ThreadRecord::word`]) of the worker that left; 0 for [`event_kind::IDLE`].
    pub from_word: AtomicU64,
    /// The task that was chosen next; 0 for none.
    pub to_task: AtomicU64,
    /// Ticks between the end of the previous run and the begin of this run; 0 for a first run.
    pub off_ticks: AtomicU64,
    /// The part of `off_ticks` (or, for a first run, the time since the task was bound) during
    /// which it was runnable and waited for its turn.
    pub queued_ticks: AtomicU64,
    /// The task that ended the wait before this run; 0 for none, or for a signaller without a task.
    pub waker_task: AtomicU64,
    /// `tid | kind << 32 | wait_type << 40 | wait_type_before << 48`: the thread (`gettid`), one of
    /// [`event_kind`], what the worker waits for now, and what it waited for before this run.
    pub packed: AtomicU64,
}

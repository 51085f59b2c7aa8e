//! The shared page, byte by byte: what a scheduler writes and another process reads.
//!
//! One file in memory (`memfd`, named [`FILE_NAME`]) per process holds all counters of all runtimes
//! of that process. Its owner maps it for writing, an observer for reading; nobody asks the other
//! for anything, so an observer neither stops nor delays the target, and what was read last stays
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
//! ▼        RingHeader, Event[]  per scheduler: its latest switches, while somebody records
//! ```
//!
//! Rules that make it readable without a lock:
//!
//! - All fields are atomics of 8 or 4 bytes, written with plain stores by one writer at a time: who
//!   holds the scheduler (fiber mode: its thread; thread mode: the worker with the baton). A worker
//!   in preemptive mode writes only its own `preemptive` fields.
//! - [`SchedulerRecord::sequence`] is odd while the records of that scheduler and of its workers
//!   are being changed: read it, read the records, read it again, and repeat when it moved.
//! - Times are *ticks* of the target's clock (`clock`); two anchors in the header turn
//!   them into `CLOCK_MONOTONIC`.
//! - Sizes and places of all tables stand in the header; [`VERSION`] grows with any change of a
//!   record.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The name of the memory file: what `/proc/PID/fd` shows is `/memfd:swtch-fiber (deleted)`.
pub const FILE_NAME: &str = "swtch-fiber";

/// First eight bytes of the file: `swtchfib`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"swtchfib");

/// Grows whenever a record changes.
pub const VERSION: u32 = 2;

/// Number of wait types at most, built-in ones and those that programs name.
pub const WAIT_TYPES: usize = 128;

/// Buckets of a wait histogram: bucket `b` counts waits of `2^b ..= 2^(b+1) - 1` ticks, the last
/// one everything longer.
pub const BUCKETS: usize = 48;

/// Bytes of a name in the page; longer names are cut at a character border.
pub const NAME_BYTES: usize = 32;

/// Bits of [`ThreadRecord::word`] that count the runs of the task.
pub const RUN_BITS: u32 = 24;

/// Where a table lies in the file and how large it may grow.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Table {
    /// Bytes from the beginning of the file.
    pub offset: AtomicU64,
    /// Bytes from one record to the next.
    pub stride: AtomicU32,
    /// Records that have room.
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
    /// [`VERSION`].
    pub version: AtomicU32,
    /// The process that writes, as it sees itself (`getpid`).
    pub pid: AtomicU32,
    /// Where the owner has mapped the file: the address of a field in the target is this plus its
    /// offset. What the recorder's eBPF program reads lies at such an address.
    pub base_address: AtomicU64,
    /// When the page was set up, `CLOCK_MONOTONIC` ns.
    pub created_monotonic_ns: AtomicU64,
    /// Odd while the anchors are being changed.
    pub anchor_sequence: AtomicU64,
    /// The two ends of a time span of at least a second once the process is that old.
    pub anchors: [Anchor; 2],
    /// Events are written while the clock of the target stands before this tick. A recorder moves
    /// it on some ten times a second; when it dies, recording ends by itself.
    pub record_until_ticks: AtomicU64,
    /// Tables, in the order of the drawing above.
    pub wait_type_names: Table,
    /// See [`SchedulerRecord`].
    pub schedulers: Table,
    /// See [`ThreadRecord`].
    pub threads: Table,
    /// See [`WorkerRecord`].
    pub workers: Table,
    /// See [`WorkerName`].
    pub worker_names: Table,
    /// See [`WaitRecord`]: the row of scheduler `s`, wait type `w` is `s * WAIT_TYPES + w`.
    pub waits: Table,
    /// See [`RingHeader`]; a stride holds the header and, at its end, all events of one scheduler.
    pub rings: Table,
    /// See [`WorkerStack`].
    pub worker_stacks: Table,
}

/// Name of a wait type: UTF-8, filled up with zeros.
#[derive(Debug)]
#[repr(C)]
pub struct WaitTypeName {
    /// Eight bytes a word, little endian.
    pub bytes: [AtomicU64; NAME_BYTES / 8],
}

/// What a scheduler is.
pub mod scheduler_status {
    /// The record is free.
    pub const UNUSED: u32 = 0;
    /// It runs workers, one at a time, on one OS thread.
    pub const FIBER: u32 = 1;
    /// It hands a baton among OS threads.
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
    /// Times that another worker was switched to. A worker that yields and is chosen again itself
    /// is **not** counted here.
    pub context_switches_count: AtomicU64,
    /// Times that a worker gave the scheduler up: yields, waits, and going preemptive. The monitor
    /// takes this for progress.
    pub yield_count: AtomicU64,
    /// Yields after which the same worker ran on, because nobody else was runnable.
    pub self_reselect_count: AtomicU64,
    /// Times that a worker left the scheduler to run preemptively.
    pub preemptive_switches_count: AtomicU64,
    /// Times that nothing was runnable and the scheduler waited in the kernel.
    pub idle_switches_count: AtomicU64,
    /// Ticks between one worker switching out and another switching in, summed: what the scheduler
    /// and the OS put between two workers. Idle time is not part of it.
    pub total_scheduler_delay_ticks: AtomicU64,
    /// When the worker now running was switched in; 0 while idle.
    pub run_started_ticks: AtomicU64,

    /// One of [`scheduler_status`].
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

    /// The quantum, ns.
    pub quantum_ns: AtomicU64,
    /// When timers were last looked at.
    pub last_timer_activity_ticks: AtomicU64,
    /// Ticks that workers ran here while they held the scheduler.
    pub total_running_ticks: AtomicU64,
    /// Ticks that the scheduler waited in the kernel with nothing to do.
    pub total_idle_ticks: AtomicU64,
    /// Tasks that ended here.
    pub tasks_completed_count: AtomicU64,
    /// Runs during which the OS took the CPU away, as far as it was noticed without privilege.
    pub os_interrupted_quanta_count: AtomicU64,
    /// Requests of the monitor to yield because a quantum was used up.
    pub quantum_expired_count: AtomicU64,
    /// When this record was set up.
    pub created_ticks: AtomicU64,
    /// Unstarted tasks taken from other schedulers.
    pub stolen_tasks_count: AtomicU64,
    /// Stalls reported here.
    pub stalls_count: AtomicU64,
    /// Workers that went preemptive and wait for a helper thread (fiber mode).
    pub queued_preemptive_count: AtomicU32,
    /// One of [`io_driver`].
    pub io_driver: AtomicU32,
    /// Room for what comes.
    pub reserved: [AtomicU32; 10],
}

impl SchedulerRecord {
    /// A number that moves whenever a worker gives the scheduler up, and when it goes idle: what tells
    /// one run from the next.
    pub(crate) fn progress(&self) -> u64 {
        self.yield_count.load(Ordering::Relaxed)
            + self.tasks_completed_count.load(Ordering::Relaxed)
            + self.idle_switches_count.load(Ordering::Relaxed)
    }

    /// What `look` sees while the scheduler changes nothing; `None` when it always did, in so many tries.
    pub(crate) fn undisturbed<Seen>(&self, tries: usize, look: impl Fn() -> Seen) -> Option<Seen> {
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

/// What drives a scheduler's input and output; 0 before that is known.
pub mod io_driver {
    /// `io_uring`.
    pub const URING: u32 = 1;
    /// epoll, as its mode or its settings want it.
    pub const EPOLL: u32 = 2;
    /// epoll, since the kernel refused `io_uring`.
    pub const EPOLL_SINCE_REFUSED: u32 = 3;
}

/// What an OS thread is to its scheduler.
pub mod thread_kind {
    /// The record is free.
    pub const UNUSED: u32 = 0;
    /// It runs all workers of a scheduler (fiber mode), or started it (thread mode).
    pub const SCHEDULER: u32 = 1;
    /// It is a worker (thread mode).
    pub const WORKER: u32 = 2;
    /// It runs code of workers that went preemptive (fiber mode).
    pub const HELPER: u32 = 3;
    /// It watches quanta and stalls.
    pub const MONITOR: u32 = 4;
}

/// One OS thread. A recorder looks for threads here.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ThreadRecord {
    /// **The word**: what runs on this thread, `task_id << RUN_BITS | run`, 0 for nothing. One plain
    /// store a switch; an eBPF program reads it when the kernel switches the thread out.
    pub word: AtomicU64,
    /// `gettid`, as the thread's own pid namespace sees it.
    pub tid: AtomicU32,
    /// One of [`thread_kind`].
    pub kind: AtomicU32,
    /// Index of its [`SchedulerRecord`], plus one; 0 for none.
    pub scheduler_plus_one: AtomicU32,
    /// Grows each time the record is used for another thread.
    pub generation: AtomicU32,
    /// When the thread was registered.
    pub started_ticks: AtomicU64,
    /// Lowest address of its stack.
    pub stack_low: AtomicU64,
    /// One past the highest address of its stack.
    pub stack_high: AtomicU64,
    /// Room for what comes.
    pub reserved: [AtomicU64; 2],
}

/// Where a worker stands.
pub mod worker_state {
    /// The record is free.
    pub const UNUSED: u32 = 0;
    /// It has no task.
    pub const IDLE: u32 = 1;
    /// It waits for its turn.
    pub const RUNNABLE: u32 = 2;
    /// It holds the scheduler.
    pub const RUNNING: u32 = 3;
    /// It waits for something else.
    pub const SUSPENDED: u32 = 4;
    /// It runs outside of the scheduler.
    pub const PREEMPTIVE: u32 = 5;
}

/// One worker and its task. Names are those of `sys.dm_os_workers`, `sys.dm_os_tasks` and
/// `sys.dm_os_waiting_tasks`.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct WorkerRecord {
    /// Its task, from 1, never used again in this process; 0 for none.
    pub task_id: AtomicU64,
    /// When it entered its state.
    pub state_since_ticks: AtomicU64,
    /// Ticks spent running, up to `state_since_ticks`; those of a task of its own are from its start.
    pub running_ticks: AtomicU64,
    /// Ticks spent runnable.
    pub runnable_ticks: AtomicU64,
    /// Ticks spent suspended.
    pub suspended_ticks: AtomicU64,
    /// Ticks spent outside of the scheduler.
    pub preemptive_ticks: AtomicU64,
    /// Times it was switched out for another worker, or for nobody.
    pub context_switch_count: AtomicU64,
    /// Times it gave the scheduler up.
    pub yield_count: AtomicU64,
    /// What it waits for: an address or a number that means something to the wait type.
    pub wait_resource: AtomicU64,
    /// When its present task was bound to it.
    pub task_bound_ticks: AtomicU64,
    /// The task that started its task; 0 when that was no task.
    pub parent_task_id: AtomicU64,
    /// When the worker was made.
    pub created_ticks: AtomicU64,
    /// One of [`worker_state`].
    pub state: AtomicU32,
    /// Present or latest wait type.
    pub wait_type: AtomicU32,
    /// Index of its [`SchedulerRecord`], plus one.
    pub scheduler_plus_one: AtomicU32,
    /// Index of the [`ThreadRecord`] it ran on last, plus one.
    pub thread_plus_one: AtomicU32,
    /// Who made it runnable last: worker plus one, 0 for a timer, I/O, or a thread that is no worker.
    pub signal_worker_plus_one: AtomicU32,
    /// Times in a row that it went to the head of the runnable queue.
    pub boost_count: AtomicU32,
    /// Tasks it has ended.
    pub tasks_processed_count: AtomicU32,
    /// Runs during which the OS took the CPU away, as far as it was noticed.
    pub os_interrupted_quanta_count: AtomicU32,
}

/// Name of a worker's task.
pub type WorkerName = WaitTypeName;

/// How deep a worker has used its stack.
#[derive(Debug)]
#[repr(C)]
pub struct WorkerStack {
    /// Bytes from the lowest page in memory to the beginning of the stack, as the monitor found it last;
    /// 0 when it has not looked.
    pub bytes_used: AtomicU32,
}

/// Waits of one type on one scheduler, with the meanings of `sys.dm_os_wait_stats`.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct WaitRecord {
    /// Waits begun.
    pub waiting_tasks_count: AtomicU64,
    /// Waits ended.
    pub completed_count: AtomicU64,
    /// Ticks of ended waits, from their beginning until the worker ran again.
    pub wait_ticks: AtomicU64,
    /// The longest of them.
    pub max_wait_ticks: AtomicU64,
    /// The part of `wait_ticks` after the signal: waiting for the turn.
    pub signal_wait_ticks: AtomicU64,
    /// Room for what comes.
    pub reserved: [AtomicU64; 3],
    /// How many waits took `2^b` ticks and more.
    pub histogram: [AtomicU64; BUCKETS],
}

/// What happened at a user-mode switch-out.
pub mod event_kind {
    /// The worker yielded, and another (or itself again) runs.
    pub const YIELD: u8 = 1;
    /// It waits for what `wait_type` says.
    pub const SUSPEND: u8 = 2;
    /// It went preemptive.
    pub const PREEMPTIVE: u8 = 3;
    /// Its task ended.
    pub const DONE: u8 = 4;
    /// The scheduler found nothing runnable and went to wait in the kernel.
    pub const IDLE: u8 = 5;
}

/// Head of a scheduler's ring. The writer never waits: it overwrites the oldest.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RingHeader {
    /// Events ever written; event `n` (from 0) lies in slot `n % capacity`.
    pub written: AtomicU64,
    /// Events that fit, a power of two.
    pub capacity: AtomicU64,
    /// Room for what comes.
    pub reserved: [AtomicU64; 6],
}

/// One user-mode switch-out: one cache line.
///
/// Reading without a lock: load `written` (acquire), copy events `written - capacity + 1 ..
/// written`, load `written` again behind a fence: events up to the second value minus the capacity
/// may have been overwritten meanwhile and count as lost.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Event {
    /// When the worker left.
    pub ticks: AtomicU64,
    /// Ticks that it had run since it was switched in; for [`event_kind::IDLE`] how long nothing ran.
    pub ran_ticks: AtomicU64,
    /// The word ([`ThreadRecord::word`]) of who left; 0 for [`event_kind::IDLE`].
    pub from_word: AtomicU64,
    /// The task that was chosen next; 0 for nobody.
    pub to_task: AtomicU64,
    /// Ticks between the end of the run before and the begin of this run; 0 for a first run.
    pub off_ticks: AtomicU64,
    /// The part of `off_ticks` (or, for a first run, the time since the task was bound) during
    /// which it was runnable and waited for its turn.
    pub queued_ticks: AtomicU64,
    /// The task that ended the wait before this run; 0 for none or not a task.
    pub waker_task: AtomicU64,
    /// `tid | kind << 32 | wait_type << 40 | wait_type_before << 48`: the thread (`gettid`), one of
    /// [`event_kind`], what the worker waits for now, and what it waited for before this run.
    pub packed: AtomicU64,
}

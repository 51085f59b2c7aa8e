//! The report of the kernel about one switch-out: the input of the rules, stored beside their verdict so that a trace
//! can be judged again.

use std::fmt;

use crate::ids::TaskKey;
use crate::reason::words;
use crate::units::Nanos;

words! {
    /// The cause of the reschedule that ended a run, as the markers around `sched_set_need_resched_tp` saw it
    /// (`kernel/sched/core.c`, `__resched_curr`, v6.18).
    Cause {
        None = "none": "no reschedule was asked for",
        Wakeup = "wakeup": "a task was being woken by this CPU (sched_waking to sched_wakeup)",
        RemoteWakeup = "remote_wakeup": "a wakeup queued by another CPU was being finished here",
        NewTask = "new_task": "a new task was being started (sched_wakeup_new)",
        Tick = "tick": "the timer interrupt",
        Balance = "balance": "a task was being moved to this CPU (sched_migrate_task)",
        Own = "own": "the running task itself, outside any interrupt or wakeup",
        Foreign = "foreign": "some other context: priority change, cgroup move",
        NoHook = "no_hook": "what tells is missing: the hook in this kernel, or the event in an import or a recording without root",
    }
}

words! {
    /// Scheduling class, lowest first.
    Class {
        Idle = "idle": "the idle task",
        Ext = "ext": "sched_ext (a BPF scheduler)",
        Fair = "fair": "SCHED_OTHER, SCHED_BATCH, SCHED_IDLE",
        RealTime = "rt": "SCHED_FIFO, SCHED_RR",
        Deadline = "deadline": "SCHED_DEADLINE",
        Stop = "stop": "the per-CPU stopper (migration/N)",
    }
}

words! {
    /// The kind of file behind the descriptor that a blocked call names.
    WaitObject {
        None = "none": "the call names no file descriptor, or it could not be read",
        Regular = "regular": "regular file or directory",
        Block = "block": "block device",
        Char = "char": "character device (terminal)",
        Fifo = "fifo": "pipe or FIFO",
        Socket = "socket": "socket",
        EventFd = "eventfd": "eventfd",
        TimerFd = "timerfd": "timerfd",
        OtherFd = "other_fd": "another anonymous file (epoll, inotify, signalfd, userfaultfd, …)",
    }
}

words! {
    /// The kind of waker that made a blocked task runnable.
    WakerKind {
        None = "none": "not woken, or not seen",
        Task = "task": "a task, in its own context",
        Timer = "timer": "the timer interrupt",
        Interrupt = "interrupt": "a device interrupt",
        SoftIrq = "softirq": "a soft interrupt (network, block completion, timers)",
        Sender = "sender": "a task, by what it sent over a network of this machine: a soft interrupt inside its own system call, with no hard one before it (inferred)",
    }
}

impl WakerKind {
    /// Returns true if a task ended the wait, and not an interrupt on top of one.
    pub const fn is_task(self) -> bool {
        matches!(self, Self::Task | Self::Sender)
    }
}

/// Yes-or-no evidence, one bit each. The bit numbers are part of the wire and file formats: only
/// append.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EvidenceBits(pub u32);

macro_rules! bits {
    ($($bit:literal $name:ident = $word:literal: $help:literal),+ $(,)?) => {
        #[allow(clippy::doc_markdown, reason = "help lines are shown to people, not rendered")]
        impl EvidenceBits {
            $(#[doc = $help] pub const $name: Self = Self(1 << $bit);)+

            /// Bit number, word and meaning of each bit, for the generated docs.
            pub const TABLE: &'static [(u32, &'static str, &'static str)] =
                &[$(($bit, $word, $help)),+];
        }
    };
}

bits! {
    0 VOLUNTARY = "voluntary": "the task asked to block: the kernel counts the switch in nvcsw (imported: its prev_state says so)",
    1 IN_IOWAIT = "in_iowait": "the task sleeps in io_schedule",
    2 THROTTLED = "throttled": "its cgroup's CPU quota is used up",
    3 DL_THROTTLED = "dl_throttled": "its SCHED_DEADLINE budget is used up",
    4 FROZEN = "frozen": "a freezer holds it",
    5 MEMSTALL = "memstall": "it reclaims memory or waits for memory being refilled",
    6 EXITING = "exiting": "it is past exit (PF_EXITING)",
    7 KTHREAD = "kthread": "a kernel thread: it has no system calls",
    8 COMPAT = "compat": "it runs a 32-bit system call, whose number is of another table",
    9 KERNEL_PREEMPT = "kernel_preempt": "sched_switch's preempt argument: preempted inside the kernel",
    10 SLICE_END = "slice_end": "its deadline had just been renewed when the reschedule was asked for (without the hook: by a tick, a wakeup or its leaving)",
    11 IN_ENQUEUE = "in_enqueue": "asked for while the woken task was not yet queued",
    12 GROUP_SLICE_END = "group_slice_end": "as slice_end, for a group it belongs to",
    13 NEXT_STOPPER = "next_stopper": "the next task is the CPU's stopper (migration/N)",
    14 RAN_SLICE = "ran_slice": "its CPU time in this run reached its slice",
    15 TICK_IN_RUN = "tick_in_run": "the timer interrupt came at least once in this run",
    16 WOKEN_IS_NEXT = "woken_is_next": "the next task was woken to this CPU last, during this run and not before its last tick",
    17 LAZY = "lazy": "the reschedule was asked for lazily (it may wait for the next tick)",
    18 WQ_WORKER = "wq_worker": "a kernel worker thread (kworker, io-wq)",
    19 ROUND_ROBIN = "round_robin": "its policy is SCHED_RR",
    20 MIGRATION_PENDING = "migration_pending": "a change of its allowed CPUs is being carried out",
    21 PROTECTION_LAPSED = "protection_lapsed": "asked for outside ticks and wakeups (without the hook: by them), the protected part of its slice used up",
    22 WOKEN_SINCE_TICK = "woken_since_tick": "a task was woken to this CPU during this run, not before its last tick",
    23 MOVED_IS_NEXT = "moved_is_next": "the next task was moved to this CPU last, during this run and not before its last tick",
    24 NO_CALL = "no_call": "what recorded it (an import, perf events) does not tell the system call",
    25 REQUESTS_NOT_SEEN = "requests_not_seen": "the start of this run was not recorded, and neither were requests to reschedule before",
    26 KERNEL_LOCK = "kernel_lock": "the kernel says that it waits for a mutex, semaphore or read-write semaphore of its own (task->blocked_on, 6.17 and later; task->blocker, 6.16 and later)",
    27 MMAP_LOCK = "mmap_lock": "it stands in the queue of its address space's lock (mm->mmap_lock)",
    28 INODE_LOCK = "inode_lock": "it stands in the queue of the lock of the file that its call names (inode->i_rwsem)",
}

impl EvidenceBits {
    /// Returns true if all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of both sets of bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Shows the words of the set bits: `voluntary+in_iowait`.
impl fmt::Display for EvidenceBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = Self::TABLE
            .iter()
            .filter(|row| self.0 >> row.0 & 1 == 1)
            .map(|row| row.1)
            .collect();
        f.pad(&words.join("+"))
    }
}

impl fmt::Debug for EvidenceBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EvidenceBits({self})")
    }
}

/// Everything known about why one run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// `sched_switch`'s `prev_state` argument, raw bits; 0 is "still runnable".
    pub state: u32,
    /// The yes-or-no evidence, one bit each.
    pub bits: EvidenceBits,
    /// The context that asked for the reschedule.
    pub cause: Cause,
    /// The task whose wakeup (or move) asked for the reschedule.
    pub nominator: Option<TaskKey>,
    /// Time from the first request to reschedule until the switch; `None` without a request. A
    /// wakeup that asks is counted from its beginning, which may be older than the run: of the time
    /// before the run nothing is counted.
    pub need_resched_delay: Option<Nanos>,
    /// Number of the system call the task is in; `None` in user mode, in a fault, or for a kernel
    /// thread.
    pub syscall: Option<u32>,
    /// The call's first three arguments, when the task blocked in it.
    pub args: [u64; 3],
    /// Kind of file behind the call's file descriptor.
    pub wait_object: WaitObject,
    /// The object that the task waits on: futex word address, or inode number of the file.
    pub wait_key: Option<u64>,
    /// Class of the task that leaves.
    pub class: Class,
    /// Kernel priority of the task that leaves (`task->prio`): < 0 deadline, 0–99 real time,
    /// 100–139 fair.
    pub prio: i16,
    /// Class of the task that runs next.
    pub next_class: Class,
    /// Kernel priority of the task that runs next.
    pub next_prio: i16,
}

impl Evidence {
    /// Returns true if the task could have run on. One that is preempted inside the kernel stays runnable, even if it
    /// was about to sleep and its state says so already (`SM_PREEMPT` in `__schedule`).
    pub const fn left_runnable(&self) -> bool {
        self.state == 0 || self.bits.has(EvidenceBits::KERNEL_PREEMPT)
    }

    /// A fair task in user mode, still runnable, about which nothing else is known.
    /// Tests and importers start from it.
    pub const RUNNABLE: Self = Self {
        state: 0,
        bits: EvidenceBits(0),
        cause: Cause::None,
        nominator: None,
        need_resched_delay: None,
        syscall: None,
        args: [0; 3],
        wait_object: WaitObject::None,
        wait_key: None,
        class: Class::Fair,
        prio: 120,
        next_class: Class::Fair,
        next_prio: 120,
    };
}

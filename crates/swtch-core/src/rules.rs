//! Rules that turn the evidence of one switch-out into its reason: a table, the first match
//! decides.
//!
//! A rule is a row: name, reason, certainty, condition, and the observation it rests on. A task
//! that left in a sleeping state blocked, and its system call says on what. A task that left
//! runnable was made to leave, and the context that asked for the reschedule says why.
//!
//! Sources: `kernel/sched/core.c` and `fair.c` (v6.12, v6.18) and measurements with kernel stacks
//! as the oracle (`docs/REASONS.md`).

use crate::evidence::{Cause, Class, Evidence, EvidenceBits as Bits, WaitObject};
use crate::reason::{Certainty, Reason};
use crate::syscall::{SyscallTable, Waits, is_plain_file};

mod user;

pub(crate) use user::{UserRules, classify_user};

/// Version of this table. It grows by one whenever a verdict may change for the same evidence.
pub const RULES_VERSION: u32 = 6;

// Task states, `include/linux/sched.h` (v5.15 to v6.18; the values below did not change).
const TASK_UNINTERRUPTIBLE: u32 = 0x2;
const TASK_STOPPED: u32 = 0x4;
const TASK_TRACED: u32 = 0x8;
const EXIT_DEAD: u32 = 0x10;
const EXIT_ZOMBIE: u32 = 0x20;
const TASK_DEAD: u32 = 0x80;
const TASK_NOLOAD: u32 = 0x400;
const TASK_FROZEN: u32 = 0x8000;

/// `CLONE_VFORK` in the first argument of `clone` (`include/uapi/linux/sched.h`).
const CLONE_VFORK: u64 = 0x4000;

/// `F_SETLKW` and `F_OFD_SETLKW`, the second argument of `fcntl`
/// (`include/uapi/asm-generic/fcntl.h`).
const WAITING_LOCK_COMMANDS: [u64; 2] = [7, 38];

/// One row of the table of rules.
#[derive(Debug)]
pub struct Rule {
    /// Name of the rule, stored with each switch it decided.
    pub name: &'static str,
    /// The reason that the rule gives.
    pub reason: Reason,
    /// The certainty: the kernel said so, or the rule concluded it.
    pub certainty: Certainty,
    /// The observation that the rule rests on, in one line.
    pub help: &'static str,
    when: fn(&Facts) -> bool,
}

impl Rule {
    /// A rule of another version of swtch, known only from a trace that names it. It is in no table
    /// and decides nothing.
    pub const fn foreign(name: &'static str, reason: Reason, certainty: Certainty) -> Self {
        Self {
            name,
            reason,
            certainty,
            help: "a rule of another version of swtch",
            when: |_| false,
        }
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The facts that the conditions test: the evidence, and what its system call waits for.
#[derive(Debug)]
struct Facts<'a> {
    evidence: &'a Evidence,
    waits: Waits,
}

impl Facts<'_> {
    fn state_has(&self, bits: u32) -> bool {
        self.evidence.state & bits != 0
    }

    fn has(&self, bits: Bits) -> bool {
        self.evidence.bits.has(bits)
    }

    fn is_caused_by(&self, causes: &[Cause]) -> bool {
        causes.contains(&self.evidence.cause)
    }

    fn waits_on_file(&self, objects: &[WaitObject]) -> bool {
        self.waits.is_on_file() && objects.contains(&self.evidence.wait_object)
    }

    fn argument(&self, index: usize) -> u64 {
        self.evidence.args[index]
    }

    /// In user mode or in a fault: no system call, and not a kernel thread.
    fn is_outside_calls(&self) -> bool {
        self.evidence.syscall.is_none() && !self.has(Bits::KTHREAD) && !self.has(Bits::NO_CALL)
    }

    /// Asleep in a way that counts as load. Idle kernel threads sleep uninterruptibly, but with
    /// `TASK_NOLOAD`, so they do not count.
    fn is_uninterruptible(&self) -> bool {
        self.state_has(TASK_UNINTERRUPTIBLE) && !self.state_has(TASK_NOLOAD)
    }

    /// Past exit: the system call that it is in says no more what it does.
    fn is_ending(&self) -> bool {
        self.has(Bits::EXITING) || self.waits == Waits::Exit
    }

    fn is_yielding(&self) -> bool {
        matches!(self.waits, Waits::Yield)
    }

    fn may_block(&self) -> bool {
        !matches!(
            self.waits,
            Waits::Untold | Waits::Policy | Waits::Yield | Waits::Exit
        )
    }

    fn is_displaced_by_higher_class(&self) -> bool {
        self.evidence.next_class > self.evidence.class
    }

    fn is_woken_for(&self) -> bool {
        self.is_caused_by(&[Cause::Wakeup, Cause::RemoteWakeup, Cause::NewTask])
    }

    fn is_at_slice_end(&self) -> bool {
        self.has(Bits::SLICE_END) || self.has(Bits::GROUP_SLICE_END)
    }

    /// Asked for by the task itself, which has slices as the fair class gives them. In a call that may block
    /// the kernel itself looks at the slice when the task leaves, and one that is woken meanwhile has not lost
    /// the CPU to its slice; `read` of a file in /proc is such a call, and charges the run time.
    fn asked_for_its_own_slice(&self) -> bool {
        self.is_caused_by(&[Cause::Own])
            && self.evidence.class == Class::Fair
            && (!self.may_block() || self.waits == Waits::File)
    }
}

macro_rules! rule {
    ($name:literal, $reason:ident, $certainty:ident, $when:expr, $help:literal) => {
        Rule {
            name: $name,
            reason: Reason::$reason,
            certainty: Certainty::$certainty,
            help: $help,
            when: $when,
        }
    };
}

/// Rules for a task that left in a sleeping state (or dead).
const BLOCKED: &[Rule] = &[
    rule!(
        "task_dead",
        Exit,
        Certain,
        |f| f.state_has(TASK_DEAD | EXIT_DEAD | EXIT_ZOMBIE),
        "state TASK_DEAD: the last switch of a task"
    ),
    rule!(
        "stopped",
        Stop,
        Certain,
        |f| f.state_has(TASK_STOPPED | TASK_TRACED),
        "state TASK_STOPPED or TASK_TRACED: SIGSTOP, job control, ptrace"
    ),
    // The freezer's trap sleeps interruptibly. A task in vfork is marked as frozen, too, for as
    // long as it waits, but it waits uninterruptibly (wait_for_vfork_done, kernel/fork.c, since
    // v5.2).
    rule!(
        "frozen",
        Stop,
        Certain,
        |f| f.state_has(TASK_FROZEN) || f.has(Bits::FROZEN) && !f.is_uninterruptible(),
        "state TASK_FROZEN, or held by the cgroup freezer"
    ),
    rule!(
        "affinity_change",
        Migrate,
        Certain,
        |f| f.waits == Waits::Affinity,
        "in sched_setaffinity, waiting until it or another task is moved"
    ),
    // Where the kernel says that it waits for a lock, neither the call nor the file matters: a reader of
    // a pipe may wait for the pipe's mutex, and a task that ends for the lock of its address space.
    rule!(
        "address_space_lock",
        Lock,
        Certain,
        |f| f.has(Bits::MMAP_LOCK),
        "it stands in the queue of its address space's lock: mmap, munmap, mprotect, page faults, exit"
    ),
    rule!(
        "inode_lock",
        Lock,
        Certain,
        |f| f.has(Bits::INODE_LOCK),
        "it stands in the queue of the lock of the file that its call names"
    ),
    rule!(
        "kernel_lock",
        Lock,
        Certain,
        |f| f.has(Bits::KERNEL_LOCK),
        "the kernel says that it waits for a mutex, semaphore or read-write semaphore"
    ),
    rule!(
        "page_fault",
        Fault,
        Certain,
        |f| f.is_outside_calls() && !f.is_ending(),
        "blocked with no system call in its user registers: a fault of its own"
    ),
    rule!(
        "memory_stall",
        Fault,
        Certain,
        |f| f.has(Bits::MEMSTALL),
        "reclaims memory, or waits for a page that was evicted (PSI memstall)"
    ),
    rule!(
        "iowait",
        Io,
        Certain,
        |f| f.has(Bits::IN_IOWAIT),
        "asleep in io_schedule: block I/O"
    ),
    rule!(
        "ending",
        Unknown,
        Inferred,
        |f| f.is_ending(),
        "past exit, waiting for the rest of the teardown: nothing says on what"
    ),
    rule!(
        "compat_call",
        Unknown,
        Inferred,
        |f| f.has(Bits::COMPAT),
        "a 32-bit system call: its number is of another table"
    ),
    rule!(
        "futex_call",
        Futex,
        Certain,
        |f| f.waits == Waits::Futex,
        "blocked in futex(2)"
    ),
    rule!(
        "pipe_file",
        Pipe,
        Certain,
        |f| f.waits_on_file(&[WaitObject::Fifo]),
        "blocked reading or writing a pipe"
    ),
    rule!(
        "socket_file",
        Net,
        Certain,
        |f| f.waits_on_file(&[WaitObject::Socket]),
        "blocked on a socket"
    ),
    rule!(
        "socket_call",
        Net,
        Certain,
        |f| f.waits == Waits::Socket,
        "blocked in a call that only sockets have"
    ),
    rule!(
        "eventfd_file",
        Ipc,
        Certain,
        |f| f.waits_on_file(&[WaitObject::EventFd]),
        "blocked on an eventfd"
    ),
    rule!(
        "timerfd_file",
        Sleep,
        Certain,
        |f| f.waits_on_file(&[WaitObject::TimerFd]),
        "blocked reading a timerfd"
    ),
    rule!(
        "plain_file",
        Io,
        Inferred,
        |f| f.waits == Waits::File && is_plain_file(f.evidence.wait_object),
        "blocked on a file outside io_schedule: a file system's lock or write-back"
    ),
    rule!(
        "char_device",
        Io,
        Inferred,
        |f| f.waits_on_file(&[WaitObject::Char]),
        "blocked on a character device, such as a terminal"
    ),
    rule!(
        "other_file",
        Poll,
        Inferred,
        |f| f.waits_on_file(&[WaitObject::OtherFd]),
        "blocked on an anonymous file that gathers events (inotify, signalfd, …)"
    ),
    rule!(
        "ipc_call",
        Ipc,
        Certain,
        |f| f.waits == Waits::Ipc,
        "blocked in a semaphore, message queue or file lock call"
    ),
    rule!(
        "file_lock",
        Ipc,
        Certain,
        |f| f.waits == Waits::Fcntl && WAITING_LOCK_COMMANDS.contains(&f.argument(1)),
        "blocked in fcntl(F_SETLKW)"
    ),
    rule!(
        "poll_without_files",
        Sleep,
        Certain,
        |f| matches!(f.waits, Waits::PollCounted(index) if f.argument(index) == 0),
        "poll or select with no files: a sleep"
    ),
    rule!(
        "poll_call",
        Poll,
        Certain,
        |f| matches!(f.waits, Waits::Poll | Waits::PollCounted(_)),
        "blocked in epoll, poll, select or io_uring_enter"
    ),
    rule!(
        "sleep_call",
        Sleep,
        Certain,
        |f| f.waits == Waits::Sleep,
        "blocked in nanosleep, pause or a wait for a signal"
    ),
    rule!(
        "child_call",
        Child,
        Certain,
        |f| f.waits == Waits::Child,
        "blocked in wait4, waitid or vfork"
    ),
    rule!(
        "vfork_by_clone",
        Child,
        Certain,
        |f| f.waits == Waits::CloneMaybeVfork && f.argument(0) & CLONE_VFORK != 0,
        "blocked in clone with CLONE_VFORK until the child lets go of the address space"
    ),
    rule!(
        "file_system_call",
        Io,
        Inferred,
        |f| f.waits == Waits::FileSystem,
        "blocked in a file system call outside io_schedule: a lock or write-back"
    ),
    rule!(
        "memory_call",
        Lock,
        Inferred,
        |f| f.waits == Waits::Memory,
        "blocked in mmap, munmap, madvise, … without I/O or reclaim: a lock of the address space"
    ),
    rule!(
        "kernel_worker_idle",
        Ipc,
        Inferred,
        |f| f.has(Bits::WQ_WORKER) && !f.is_uninterruptible(),
        "a kernel worker without work waits for another context to queue some"
    ),
    rule!(
        "call_not_told",
        Blocked,
        Certain,
        |f| f.has(Bits::NO_CALL),
        "the kernel says that it blocked; what recorded it (an import, perf events) does not tell in which system call"
    ),
    rule!(
        "kernel_thread",
        Unknown,
        Inferred,
        |f| f.has(Bits::KTHREAD),
        "a kernel thread slept; without a system call nothing says on what"
    ),
];

/// The rule for a blocked task that no other rule matches.
const BLOCKED_UNKNOWN: Rule = rule!(
    "call_without_rule",
    Unknown,
    Inferred,
    |_| true,
    "blocked in a system call that does not say on what (see the syscall column)"
);

/// Rules for a task that left while still runnable.
const RUNNABLE: &[Rule] = &[
    rule!(
        "quota_used",
        Throttle,
        Certain,
        |f| f.has(Bits::THROTTLED),
        "its cgroup's CPU quota is used up"
    ),
    rule!(
        "deadline_budget_used",
        Throttle,
        Certain,
        |f| f.has(Bits::DL_THROTTLED),
        "its SCHED_DEADLINE runtime is used up"
    ),
    rule!(
        "signal_at_block",
        Other,
        Certain,
        |f| f.has(Bits::VOLUNTARY) && !f.is_yielding(),
        "it was about to block and a signal was pending: the kernel kept it runnable"
    ),
    rule!(
        "stopper",
        Migrate,
        Certain,
        |f| f.has(Bits::NEXT_STOPPER),
        "the CPU's stopper (migration/N) took over to move a task"
    ),
    rule!(
        "yield_call",
        Yield,
        Certain,
        |f| f.is_yielding()
            && f.is_caused_by(&[Cause::None, Cause::Own, Cause::NoHook])
            && !f.is_displaced_by_higher_class(),
        "it called sched_yield, and nobody had asked for the CPU before"
    ),
    // The caller itself asks for the reschedule where it loses its own priority (switched_to_fair,
    // prio_changed_fair and prio_changed_rt in kernel/sched/, v6.18) or gives another task a better
    // one. This comes before the rules about classes: a task that leaves real time gives way to a
    // higher class by its own call.
    rule!(
        "own_policy_call",
        Policy,
        Certain,
        |f| f.is_caused_by(&[Cause::Own]) && f.waits == Waits::Policy,
        "its own sched_setscheduler, sched_setparam, sched_setattr or setpriority asked for the reschedule"
    ),
    // The call takes microseconds, so a switch inside it is taken as its own doing, whoever comes
    // next. Other signs may be present as well, since a task that changes its policy is queued anew
    // and gets a new deadline.
    rule!(
        "guess_own_policy_call",
        Policy,
        Inferred,
        |f| f.is_caused_by(&[Cause::NoHook]) && f.waits == Waits::Policy,
        "no hook on this kernel: it left inside a call that changes a policy or priority"
    ),
    rule!(
        "higher_class",
        Class,
        Certain,
        |f| f.is_displaced_by_higher_class(),
        "the next task is of a higher class"
    ),
    rule!(
        "lower_class",
        Throttle,
        Inferred,
        |f| f.evidence.next_class < f.evidence.class && !f.is_yielding(),
        "a real-time task left for a lower class: real-time throttling or the fair server"
    ),
    rule!(
        "yield_call_while_asked",
        Yield,
        Inferred,
        |f| f.is_yielding(),
        "it was in sched_yield when another asked for the CPU: it left either way"
    ),
    rule!(
        "requests_not_seen",
        Unknown,
        Inferred,
        |f| f.has(Bits::REQUESTS_NOT_SEEN) && f.is_caused_by(&[Cause::None]),
        "its run began before the recording did, or with a switch that the kernel did not report"
    ),
    rule!(
        "round_robin_slice",
        Slice,
        Certain,
        |f| f.is_caused_by(&[Cause::Tick]) && f.has(Bits::ROUND_ROBIN),
        "SCHED_RR: the tick ended its turn"
    ),
    rule!(
        "tick_slice_end",
        Slice,
        Certain,
        |f| f.is_caused_by(&[Cause::Tick]) && f.has(Bits::SLICE_END),
        "the tick found its slice used up: the deadline had just been renewed"
    ),
    rule!(
        "tick_group_slice_end",
        Slice,
        Certain,
        |f| f.is_caused_by(&[Cause::Tick]) && f.has(Bits::GROUP_SLICE_END),
        "the tick found the slice of its group used up"
    ),
    rule!(
        "tick_protection_lapsed",
        Slice,
        Certain,
        |f| f.is_caused_by(&[Cause::Tick]),
        "the tick found the protected part of its slice used up (RUN_TO_PARITY)"
    ),
    // The kernel looks at the slice of the task that runs when another is queued (update_curr in
    // enqueue_entity), and then asks for its slice's sake. To whoever asks why the task lost the CPU, the
    // wakeup is the event: without it the task had run on, mostly for long (median run before: 8 µs in a
    // Java pool). How its slice stood is a detail, which the name of the rule keeps.
    rule!(
        "slice_end_at_wakeup",
        Wakeup,
        Certain,
        |f| f.is_woken_for() && f.has(Bits::IN_ENQUEUE) && f.is_at_slice_end(),
        "another task was being woken, and its slice was found used up then"
    ),
    rule!(
        "protection_lapsed_at_wakeup",
        Wakeup,
        Certain,
        |f| f.is_woken_for() && f.has(Bits::IN_ENQUEUE),
        "another task was being woken, and the protected part of its slice was found used up then"
    ),
    rule!(
        "woken_task",
        Wakeup,
        Certain,
        |f| f.is_caused_by(&[Cause::Wakeup]),
        "a task being woken was preferred"
    ),
    rule!(
        "woken_task_remote",
        Wakeup,
        Certain,
        |f| f.is_caused_by(&[Cause::RemoteWakeup]),
        "a task whose wakeup another CPU had queued was preferred"
    ),
    rule!(
        "new_task",
        Wakeup,
        Certain,
        |f| f.is_caused_by(&[Cause::NewTask]),
        "a task being started was preferred"
    ),
    // The kernel charges run time where a task asks for it (clock_gettime of its CPU time, getrusage, its
    // files in /proc: task_sched_runtime, kernel/sched/core.c), and finds the slice used up then and
    // there (update_curr, kernel/sched/fair.c). These come before the rule about blocking calls, which
    // read(2) of such a file is.
    rule!(
        "own_call_slice_end",
        Slice,
        Certain,
        |f| f.asked_for_its_own_slice() && f.is_at_slice_end(),
        "its own call charged its run time and found its slice used up: the deadline had just been renewed"
    ),
    rule!(
        "own_call_protection_lapsed",
        Slice,
        Inferred,
        |f| f.asked_for_its_own_slice() && f.has(Bits::PROTECTION_LAPSED),
        "asked for by itself, and the protected part of its slice is used up: its own call charged its run time"
    ),
    rule!(
        "woken_before_it_blocked",
        Other,
        Inferred,
        |f| f.is_caused_by(&[Cause::None, Cause::Own]) && f.may_block(),
        "in a blocking call, and nobody asked for the CPU: it was woken while it went to sleep"
    ),
    rule!(
        "protection_lapsed_elsewhere",
        Slice,
        Inferred,
        |f| f.is_caused_by(&[Cause::Balance, Cause::Foreign]) && f.has(Bits::PROTECTION_LAPSED),
        "the protected part of its slice was found used up while another task was moved or removed"
    ),
    rule!(
        "balanced_task",
        Other,
        Certain,
        |f| f.is_caused_by(&[Cause::Balance]),
        "a task that balancing moved here was preferred"
    ),
    rule!(
        "own_call",
        Other,
        Certain,
        |f| f.is_caused_by(&[Cause::Own]) && f.evidence.syscall.is_some(),
        "its own system call asked for the reschedule (cgroup, namespace, membarrier)"
    ),
    rule!(
        "own_context",
        Other,
        Inferred,
        |f| f.is_caused_by(&[Cause::Own]),
        "asked for in its own context, outside any call, interrupt or wakeup"
    ),
    rule!(
        "foreign_context",
        Other,
        Inferred,
        |f| f.is_caused_by(&[Cause::Foreign]),
        "another context asked: priority change, cgroup move, expedited RCU"
    ),
    // Kernels before 6.17 do not say who asked. From 6.6 on the recorder looks at the slice as the
    // kernel does (`update_curr`): what it finds comes first, since who comes later has nothing to
    // ask for any more. Otherwise: a request is obeyed within microseconds, so the last event on this
    // CPU asked: a tick, or a task that was woken or moved here. Tasks that came before a tick are
    // disregarded; tasks that the tick itself woke come after it.
    rule!(
        "guess_slice_at_wakeup",
        Wakeup,
        Inferred,
        |f| f.is_caused_by(&[Cause::NoHook]) && f.has(Bits::IN_ENQUEUE),
        "no hook on this kernel: another task was being queued, and its slice, or the protected part of it, was found used up then"
    ),
    rule!(
        "guess_slice_just_ended",
        Slice,
        Inferred,
        |f| f.is_caused_by(&[Cause::NoHook]) && f.is_at_slice_end(),
        "no hook on this kernel: a tick found its slice used up, or its leaving did"
    ),
    rule!(
        "guess_protection_lapsed",
        Slice,
        Inferred,
        |f| f.is_caused_by(&[Cause::NoHook]) && f.has(Bits::PROTECTION_LAPSED),
        "no hook on this kernel: a tick found the protected part of its slice used up (6.17 and later)"
    ),
    rule!(
        "guess_woken_task_is_next",
        Wakeup,
        Inferred,
        |f| f.is_caused_by(&[Cause::NoHook]) && f.has(Bits::WOKEN_IS_NEXT),
        "no hook on this kernel: the next task was woken to this CPU, and no tick came since"
    ),
    rule!(
        "guess_moved_task_is_next",
        Other,
        Inferred,
        |f| f.is_caused_by(&[Cause::NoHook]) && f.has(Bits::MOVED_IS_NEXT),
        "no hook on this kernel: the next task was moved to this CPU, and no tick came since"
    ),
    rule!(
        "guess_ran_a_slice",
        Slice,
        Inferred,
        |f| f.is_caused_by(&[Cause::NoHook])
            && f.has(Bits::TICK_IN_RUN)
            && !f.has(Bits::WOKEN_SINCE_TICK),
        "no hook on this kernel: a tick came, and no task was woken to this CPU since"
    ),
    rule!(
        "guess_woken_since_tick",
        Wakeup,
        Inferred,
        |f| f.is_caused_by(&[Cause::NoHook]) && f.has(Bits::WOKEN_SINCE_TICK),
        "no hook on this kernel: a task was woken to this CPU, and another one was preferred then"
    ),
    rule!(
        "guess_slice_without_tick",
        Slice,
        Inferred,
        |f| f.is_caused_by(&[Cause::NoHook]) && f.has(Bits::RAN_SLICE),
        "no hook on this kernel: nobody came, and its CPU time had reached its slice (6.6 and later)"
    ),
    rule!(
        "guess_woken_before_it_blocked",
        Other,
        Inferred,
        |f| f.is_caused_by(&[Cause::NoHook]) && f.may_block(),
        "no hook on this kernel: nobody came, and it was in a blocking call: woken on its way to sleep"
    ),
    // Only imports and recordings without root lack the call. Inferred, because a task that yields leaves in the same state.
    rule!(
        "preempted_or_yielded",
        Preempted,
        Inferred,
        |f| f.has(Bits::NO_CALL),
        "the kernel says that it could run on; what recorded it (an import, perf events) does not tell who asked, nor a sched_yield"
    ),
];

/// The rule for a task that left runnable when no other rule matches.
const RUNNABLE_UNKNOWN: Rule = rule!(
    "no_cause_seen",
    Unknown,
    Inferred,
    |_| true,
    "it left runnable, and nobody was seen to ask"
);

static BLOCKED_TABLE: &[Rule] = BLOCKED;
static RUNNABLE_TABLE: &[Rule] = RUNNABLE;
static BLOCKED_LAST: Rule = BLOCKED_UNKNOWN;
static RUNNABLE_LAST: Rule = RUNNABLE_UNKNOWN;

/// The rule that decides why a task left its CPU; it names the reason.
pub fn classify(evidence: &Evidence, calls: &SyscallTable) -> &'static Rule {
    let waits = match evidence.syscall {
        Some(number) if !evidence.bits.has(Bits::COMPAT) => calls.waits(number),
        _ => Waits::Untold,
    };
    let facts = Facts { evidence, waits };
    let (table, last) = if evidence.left_runnable() {
        (RUNNABLE_TABLE, &RUNNABLE_LAST)
    } else {
        (BLOCKED_TABLE, &BLOCKED_LAST)
    };
    table
        .iter()
        .find(|rule| (rule.when)(&facts))
        .unwrap_or(last)
}

/// All rules in the order in which they are tried; those of level `user` come last.
pub fn all_rules() -> impl Iterator<Item = &'static Rule> {
    kernel_rules().chain(user::TABLE)
}

/// The rules that [`classify`] tries, in that order.
fn kernel_rules() -> impl Iterator<Item = &'static Rule> {
    BLOCKED_TABLE
        .iter()
        .chain([&BLOCKED_LAST])
        .chain(RUNNABLE_TABLE)
        .chain([&RUNNABLE_LAST])
}

/// Rules whose reason was another one before [`RULES_VERSION`] 6, with that reason. A row of an older
/// trace names its rule, and that the condition held has not changed: it is read as today's.
const REJUDGED: [(&str, Reason); 2] = [
    ("slice_end_at_wakeup", Reason::Slice),
    ("protection_lapsed_at_wakeup", Reason::Slice),
];

/// The rule as it judges today, if an older version gave the same name this other reason.
pub fn rejudged(name: &str, then: Reason) -> Option<&'static Rule> {
    let is_it = REJUDGED.contains(&(name, then));
    is_it.then(|| rule_named(name)).flatten()
}

/// The rule with this name, for readers of a trace; `None` if this version has none.
pub fn rule_named(name: &str) -> Option<&'static Rule> {
    all_rules().find(|rule| rule.name == name)
}

#[cfg(test)]
mod tests;

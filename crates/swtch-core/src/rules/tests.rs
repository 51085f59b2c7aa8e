//! Known answers: for each rule, the least evidence that must lead to it. Since each rule has one,
//! none is shadowed by a rule tried before it.

use std::collections::BTreeSet;

use super::*;
use crate::evidence::Class;
use crate::syscall::Arch;

const TASK_INTERRUPTIBLE: u32 = 0x1;
const TASK_IDLE: u32 = TASK_UNINTERRUPTIBLE | TASK_NOLOAD;

fn number_of(call: &str) -> u32 {
    let named = |number: &u32| Arch::X86_64.syscall_name(*number) == Some(call);
    (0..1024).find(named).expect("a system call of x86-64")
}

/// Asleep, and as far as is known in user mode.
fn asleep() -> Evidence {
    Evidence {
        state: TASK_INTERRUPTIBLE,
        bits: Bits::VOLUNTARY,
        ..Evidence::RUNNABLE
    }
}

fn asleep_in(call: &str) -> Evidence {
    Evidence {
        syscall: Some(number_of(call)),
        ..asleep()
    }
}

/// As `wait_for_vfork_done` sleeps: killable, and marked as frozen.
fn in_vfork(call: &str) -> Evidence {
    asleep_in(call)
        .state(TASK_UNINTERRUPTIBLE)
        .bits(Bits::FROZEN)
}

fn asleep_on(call: &str, wait_object: WaitObject) -> Evidence {
    Evidence {
        wait_object,
        ..asleep_in(call)
    }
}

/// Runnable, and asked to leave by `cause`.
fn told_by(cause: Cause, bits: Bits) -> Evidence {
    Evidence {
        cause,
        bits,
        ..Evidence::RUNNABLE
    }
}

fn yielding(cause: Cause) -> Evidence {
    Evidence {
        cause,
        syscall: Some(number_of("sched_yield")),
        ..Evidence::RUNNABLE
    }
}

/// Runnable, in a call that blocks.
fn going_to_sleep(cause: Cause) -> Evidence {
    Evidence {
        syscall: Some(number_of("futex")),
        ..told_by(cause, Bits::default())
    }
}

/// Copies with one thing changed each.
impl Evidence {
    fn state(self, state: u32) -> Self {
        Self { state, ..self }
    }

    fn bits(self, bits: Bits) -> Self {
        let bits = self.bits.with(bits);
        Self { bits, ..self }
    }

    fn args(self, args: [u64; 3]) -> Self {
        Self { args, ..self }
    }

    fn classes(self, class: Class, next_class: Class) -> Self {
        Self {
            class,
            next_class,
            ..self
        }
    }
}

fn blocked_answers() -> Vec<(&'static str, Evidence)> {
    let kthread = Bits::KTHREAD;
    vec![
        ("task_dead", asleep_in("exit_group").state(TASK_DEAD)),
        ("stopped", asleep_in("read").state(TASK_STOPPED)),
        ("stopped", asleep_in("read").state(TASK_TRACED)),
        (
            "vfork_by_clone",
            in_vfork("clone3").args([CLONE_VFORK, 88, 0]),
        ),
        ("child_call", in_vfork("vfork")),
        ("frozen", asleep_in("read").bits(Bits::FROZEN)),
        ("frozen", asleep_in("read").state(TASK_FROZEN)),
        (
            "affinity_change",
            asleep_in("sched_setaffinity").state(TASK_UNINTERRUPTIBLE),
        ),
        (
            "address_space_lock",
            asleep().bits(Bits::MMAP_LOCK.with(Bits::KERNEL_LOCK)),
        ),
        (
            "inode_lock",
            asleep_on("pwrite64", WaitObject::Regular)
                .bits(Bits::INODE_LOCK.with(Bits::KERNEL_LOCK)),
        ),
        ("kernel_lock", asleep_in("read").bits(Bits::KERNEL_LOCK)),
        ("ending", asleep_in("write").bits(Bits::EXITING)),
        ("ending", asleep().bits(Bits::EXITING)),
        ("ending", asleep_in("exit_group")),
        ("page_fault", asleep()),
        ("memory_stall", asleep_in("futex").bits(Bits::MEMSTALL)),
        ("compat_call", asleep_in("futex").bits(Bits::COMPAT)),
        ("futex_call", asleep_in("futex")),
        ("pipe_file", asleep_on("read", WaitObject::Fifo)),
        ("socket_file", asleep_on("write", WaitObject::Socket)),
        (
            "iowait",
            asleep_on("pread64", WaitObject::Regular).bits(Bits::IN_IOWAIT),
        ),
        ("iowait", asleep().bits(kthread).bits(Bits::IN_IOWAIT)),
        ("socket_call", asleep_in("recvfrom")),
        ("eventfd_file", asleep_on("read", WaitObject::EventFd)),
        ("timerfd_file", asleep_on("read", WaitObject::TimerFd)),
        ("plain_file", asleep_on("write", WaitObject::Regular)),
        ("char_device", asleep_on("read", WaitObject::Char)),
        ("other_file", asleep_on("read", WaitObject::OtherFd)),
        ("ipc_call", asleep_in("semtimedop")),
        ("file_lock", asleep_in("fcntl").args([3, 7, 0])),
        ("poll_without_files", asleep_in("poll").args([0, 0, 5])),
        ("poll_call", asleep_in("poll").args([1 << 40, 1, 5])),
        ("poll_call", asleep_in("epoll_wait")),
        ("sleep_call", asleep_in("clock_nanosleep")),
        ("child_call", asleep_in("wait4")),
        ("file_system_call", asleep_in("openat")),
        ("memory_call", asleep_in("munmap")),
        (
            "kernel_worker_idle",
            asleep()
                .state(TASK_IDLE)
                .bits(kthread)
                .bits(Bits::WQ_WORKER),
        ),
        // In an import, no call in the registers is no sign of a fault.
        ("call_not_told", asleep().bits(Bits::NO_CALL)),
        ("call_not_told", asleep().bits(Bits::NO_CALL).bits(kthread)),
        ("kernel_thread", asleep().state(TASK_IDLE).bits(kthread)),
        ("call_without_rule", asleep_in("getpid")),
    ]
}

fn runnable_answers() -> Vec<(&'static str, Evidence)> {
    use Cause::{Balance, Foreign, NewTask, NoHook, Own, RemoteWakeup, Tick, Wakeup};
    let none = Bits::default();
    let (woken, ticked) = (Bits::WOKEN_SINCE_TICK, Bits::TICK_IN_RUN);
    let lapsed = Bits::PROTECTION_LAPSED;
    let in_enqueue = Bits::IN_ENQUEUE;
    let own_call = |call, cause| Evidence {
        syscall: Some(number_of(call)),
        ..told_by(cause, none)
    };
    vec![
        ("quota_used", told_by(Own, Bits::THROTTLED)),
        ("deadline_budget_used", told_by(Tick, Bits::DL_THROTTLED)),
        ("signal_at_block", told_by(Cause::None, Bits::VOLUNTARY)),
        (
            "stopper",
            told_by(Wakeup, Bits::NEXT_STOPPER).classes(Class::Fair, Class::Stop),
        ),
        ("yield_call", yielding(Cause::None)),
        ("yield_call", yielding(Own)),
        (
            "higher_class",
            told_by(Wakeup, none).classes(Class::Fair, Class::RealTime),
        ),
        (
            "higher_class",
            yielding(Own).classes(Class::Fair, Class::RealTime),
        ),
        (
            "lower_class",
            told_by(Tick, none).classes(Class::RealTime, Class::Fair),
        ),
        ("yield_call_while_asked", yielding(Wakeup)),
        ("round_robin_slice", told_by(Tick, Bits::ROUND_ROBIN)),
        ("tick_slice_end", told_by(Tick, Bits::SLICE_END)),
        ("tick_group_slice_end", told_by(Tick, Bits::GROUP_SLICE_END)),
        ("tick_protection_lapsed", told_by(Tick, none)),
        (
            "slice_end_at_wakeup",
            told_by(Wakeup, in_enqueue.with(Bits::SLICE_END)),
        ),
        (
            "slice_end_at_wakeup",
            told_by(NewTask, in_enqueue.with(Bits::GROUP_SLICE_END)),
        ),
        (
            "protection_lapsed_at_wakeup",
            told_by(RemoteWakeup, in_enqueue),
        ),
        ("woken_task", told_by(Wakeup, none)),
        ("woken_task_remote", told_by(RemoteWakeup, none)),
        ("new_task", told_by(NewTask, none)),
        ("own_call_slice_end", told_by(Own, Bits::SLICE_END)),
        ("own_call_slice_end", told_by(Own, Bits::GROUP_SLICE_END)),
        ("own_call_protection_lapsed", told_by(Own, lapsed)),
        ("woken_before_it_blocked", going_to_sleep(Own)),
        (
            "requests_not_seen",
            told_by(Cause::None, Bits::REQUESTS_NOT_SEEN),
        ),
        // A request that was seen belongs to that run, even if others were not seen.
        ("woken_task", told_by(Wakeup, Bits::REQUESTS_NOT_SEEN)),
        ("protection_lapsed_elsewhere", told_by(Balance, lapsed)),
        ("protection_lapsed_elsewhere", told_by(Foreign, lapsed)),
        ("balanced_task", told_by(Balance, none)),
        ("own_policy_call", own_call("setpriority", Own)),
        ("own_policy_call", own_call("sched_setattr", Own)),
        (
            "own_policy_call",
            own_call("sched_setscheduler", Own).classes(Class::Fair, Class::RealTime),
        ),
        ("own_call", own_call("setns", Own)),
        (
            "guess_own_policy_call",
            own_call("sched_setscheduler", NoHook).bits(Bits::SLICE_END),
        ),
        (
            "guess_own_policy_call",
            own_call("sched_setscheduler", NoHook).classes(Class::Fair, Class::RealTime),
        ),
        // Imports hold neither calls nor who asked.
        ("preempted_or_yielded", told_by(NoHook, Bits::NO_CALL)),
        ("own_context", told_by(Own, none)),
        ("foreign_context", told_by(Foreign, none)),
        (
            "guess_slice_at_wakeup",
            told_by(NoHook, in_enqueue.with(Bits::SLICE_END)),
        ),
        (
            "guess_slice_at_wakeup",
            told_by(NoHook, in_enqueue.with(lapsed)),
        ),
        (
            "guess_slice_just_ended",
            told_by(NoHook, woken.with(Bits::SLICE_END)),
        ),
        (
            "guess_slice_just_ended",
            told_by(NoHook, woken.with(Bits::GROUP_SLICE_END)),
        ),
        (
            "guess_protection_lapsed",
            told_by(NoHook, lapsed.with(woken).with(Bits::WOKEN_IS_NEXT)),
        ),
        (
            "guess_woken_task_is_next",
            told_by(NoHook, woken.with(Bits::WOKEN_IS_NEXT)),
        ),
        (
            "guess_moved_task_is_next",
            told_by(NoHook, ticked.with(Bits::MOVED_IS_NEXT)),
        ),
        ("guess_ran_a_slice", told_by(NoHook, ticked)),
        // The wakeup came after the tick, so the tick did not ask.
        (
            "guess_woken_since_tick",
            told_by(NoHook, ticked.with(woken)),
        ),
        ("guess_slice_without_tick", told_by(NoHook, Bits::RAN_SLICE)),
        ("guess_woken_before_it_blocked", going_to_sleep(NoHook)),
        ("no_cause_seen", told_by(Cause::None, none)),
        ("no_cause_seen", told_by(NoHook, none)),
    ]
}

fn answers() -> Vec<(&'static str, Evidence)> {
    [blocked_answers(), runnable_answers()].concat()
}

fn rule_for(evidence: &Evidence) -> &'static str {
    classify(evidence, &SyscallTable::of(Arch::X86_64)).name
}

#[test]
fn each_rule_decides_its_own_evidence() {
    for (name, evidence) in answers() {
        assert_eq!(rule_for(&evidence), name, "{evidence:?}");
    }
}

/// With the test above: no rule is shadowed, and a new rule needs a known answer.
#[test]
fn every_rule_has_a_known_answer() {
    let answered: BTreeSet<_> = answers().iter().map(|row| row.0).collect();
    let rules: BTreeSet<_> = kernel_rules().map(|rule| rule.name).collect();
    assert_eq!(answered, rules);
}

#[test]
fn a_name_leads_back_to_its_one_rule() {
    let names: BTreeSet<_> = all_rules().map(|rule| rule.name).collect();
    assert_eq!(names.len(), all_rules().count(), "a name stands twice");
    for rule in all_rules() {
        assert_eq!(rule_named(rule.name).map(|r| r.reason), Some(rule.reason));
    }
    assert_eq!(rule_named("no_such_rule"), None);
}

/// A name that an older version gave another reason is judged anew; any other verdict stays.
#[test]
fn what_older_versions_called_a_slice_at_a_wakeup_is_a_wakeup() {
    for (name, then) in REJUDGED {
        let today = rejudged(name, then).expect("a rule of today");
        assert_eq!((today.reason, RULES_VERSION), (Reason::Wakeup, 6));
        assert!(rejudged(name, Reason::Class).is_none());
    }
    assert!(rejudged("tick_slice_end", Reason::Slice).is_none());
}

#[test]
fn every_reason_is_given_by_some_rule() {
    for reason in Reason::ALL {
        assert!(all_rules().any(|rule| rule.reason == *reason), "{reason}");
    }
}

#[test]
fn a_rule_that_does_not_know_says_that_it_inferred() {
    for rule in all_rules().filter(|rule| rule.reason == Reason::Unknown) {
        assert_eq!(rule.certainty, Certainty::Inferred, "{}", rule.name);
    }
}

/// A task that waits in vfork is marked as frozen, too: seen on 6.18 at every `posix_spawn`.
#[test]
fn a_parent_in_vfork_is_not_frozen() {
    let vfork = in_vfork("vfork");
    assert_eq!(rule_for(&vfork), "child_call");
    assert_eq!(rule_for(&vfork.state(TASK_INTERRUPTIBLE)), "frozen");
}

/// A worker that sleeps in the middle of its work waits for what that work waits for.
#[test]
fn a_kernel_worker_at_work_is_not_idle() {
    let worker = asleep().bits(Bits::KTHREAD.with(Bits::WQ_WORKER));
    assert_eq!(rule_for(&worker.state(TASK_IDLE)), "kernel_worker_idle");
    assert_eq!(
        rule_for(&worker.state(TASK_UNINTERRUPTIBLE)),
        "kernel_thread"
    );
}

/// Nanosleep, futex and poll are all resumed by this call after SIGCONT: seen on 6.18.
#[test]
fn a_restarted_call_does_not_say_what_it_was() {
    assert_eq!(rule_for(&asleep_in("restart_syscall")), "call_without_rule");
}

#[test]
fn numbers_of_32_bit_calls_are_never_read_as_those_of_64_bit_calls() {
    let compat = asleep_in("wait4").bits(Bits::COMPAT);
    assert_eq!(rule_for(&compat), "compat_call");
    let disk = compat.bits(Bits::IN_IOWAIT);
    assert_eq!(rule_for(&disk), "iowait");
}

/// A request to reschedule is older than the blocking and does not affect it.
#[test]
fn a_task_that_blocked_is_not_preempted_whoever_asked() {
    let asked = Evidence {
        cause: Cause::Wakeup,
        ..asleep_in("futex")
    };
    assert_eq!(rule_for(&asked), "futex_call");
}

#[test]
fn calls_have_the_same_rules_on_other_architectures() {
    let futex = Evidence {
        syscall: Some(98),
        ..asleep()
    };
    assert_eq!(
        classify(&futex, &SyscallTable::of(Arch::Aarch64)).name,
        "futex_call"
    );
}

/// A profiler or a runtime asks for the thread's CPU time again and again: seen on 6.18 as two thirds of
/// the involuntary switches of such a thread.
#[test]
fn a_slice_that_the_own_call_finds_used_up_is_a_slice() {
    let asked = |call| Evidence {
        syscall: Some(number_of(call)),
        ..told_by(Cause::Own, Bits::SLICE_END)
    };
    for call in ["clock_gettime", "getrusage", "read"] {
        assert_eq!(rule_for(&asked(call)), "own_call_slice_end", "{call}");
    }
    // It left by itself, and was woken before it had: that its slice was over by then is no cause.
    let leaving = asked("futex");
    assert_eq!(rule_for(&leaving), "woken_before_it_blocked");
    let same = |call, rule| {
        let unused = Evidence {
            bits: Bits::default(),
            ..asked(call)
        };
        assert_eq!(rule_for(&unused), rule);
    };
    same("membarrier", "own_call");
    same("setns", "own_call");
    same("write", "woken_before_it_blocked");
}

/// The deadlines of real-time tasks are left over from when they were fair.
#[test]
fn a_real_time_task_has_no_slice_that_its_own_call_could_end() {
    let asked = Evidence {
        syscall: Some(number_of("getrusage")),
        ..told_by(Cause::Own, Bits::SLICE_END)
    };
    let fifo = asked.classes(Class::RealTime, Class::RealTime);
    assert_eq!(rule_for(&fifo), "own_call");
}

/// 20,001 threads that ended were 24,133 switches for `exit`: most of them waited for the lock of
/// their address space.
#[test]
fn only_the_end_of_a_task_is_an_exit() {
    let ending = asleep_in("exit")
        .state(TASK_UNINTERRUPTIBLE)
        .bits(Bits::EXITING);
    let rules = [
        (Bits::KERNEL_LOCK, "kernel_lock"),
        (Bits::MMAP_LOCK, "address_space_lock"),
        (Bits::IN_IOWAIT, "iowait"),
        (Bits::MEMSTALL, "memory_stall"),
        (Bits::default(), "ending"),
    ];
    for (bits, rule) in rules {
        assert_eq!(rule_for(&ending.bits(bits)), rule);
    }
    let exits = kernel_rules().filter(|rule| rule.reason == Reason::Exit);
    let exits: Vec<_> = exits.map(|rule| rule.name).collect();
    assert_eq!(exits, ["task_dead"]);
}

/// A file that is sent to a socket may have to come from the disk first.
#[test]
fn a_wait_for_the_disk_is_one_whatever_the_call_names() {
    let sending = asleep_on("sendfile", WaitObject::Socket);
    assert_eq!(rule_for(&sending), "socket_file");
    assert_eq!(rule_for(&sending.bits(Bits::IN_IOWAIT)), "iowait");
}

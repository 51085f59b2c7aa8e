//! Readings drawn by hand, and one of a large machine.

use swtch_core::{
    Arch, Cause, Class, CpuCounters, Evidence, EvidenceBits, GroupCounts, GroupTotals,
    LengthHistogram, Nanos, SwitchGroup, TaskKey, WaitObject,
};

use super::{LiveCounts, LiveTasks};
use crate::report::drawn::seen;

const TASK_INTERRUPTIBLE: u32 = 1;

/// Sums of so many switches: each ran for 10 µs and waited for 100 µs, 20 µs of it runnable.
pub fn totals(switches: u64) -> GroupTotals {
    let mut runq_lengths = LengthHistogram::default();
    runq_lengths.0[7] = switches;
    GroupTotals {
        counts: GroupCounts {
            switches,
            ran: Nanos::from_ns(10_000 * switches),
            waits: switches,
            off: Nanos::from_ns(100_000 * switches),
            split_waits: switches,
            split_off: Nanos::from_ns(100_000 * switches),
            runq: Nanos::from_ns(20_000 * switches),
            ..GroupCounts::default()
        },
        runq_lengths,
        ..GroupTotals::default()
    }
}

/// A task that blocks in `read` of a pipe.
pub fn blocked_in_read(task: u32) -> SwitchGroup {
    SwitchGroup {
        task: TaskKey::new(task),
        next_task: Some(TaskKey::IDLE),
        futex: 0,
        evidence: Evidence {
            state: TASK_INTERRUPTIBLE,
            bits: EvidenceBits::VOLUNTARY,
            syscall: Some(0),
            wait_object: WaitObject::Fifo,
            class: Class::Idle,
            next_class: Class::Idle,
            ..Evidence::RUNNABLE
        },
    }
}

/// A task whose CPU another one took, which had just woken up.
pub fn preempted_by(task: u32, next: u32) -> SwitchGroup {
    SwitchGroup {
        task: TaskKey::new(task),
        next_task: Some(TaskKey::new(next)),
        futex: 0,
        evidence: Evidence {
            cause: Cause::Wakeup,
            ..Evidence::RUNNABLE
        },
    }
}

/// Number of CPUs of the large machine.
pub const CPUS: u64 = 384;
/// Number of its threads, 20 in each process.
pub const THREADS: u32 = 20_000;

/// A machine with 384 CPUs and 20,000 threads, each of which has blocked and was preempted.
pub fn large_machine() -> (LiveCounts, LiveTasks) {
    let mut counts = LiveCounts::new(Arch::X86_64);
    let mut tasks = LiveTasks::default();
    for thread in 1..=THREADS {
        let pid = 1_000 + (thread - 1) / 20 * 20;
        let name = format!("worker-{}", pid % 97);
        tasks.meet(&seen(thread, pid, 999 + thread, &name));
    }
    large_reading(&mut counts, 1, THREADS);
    (counts, tasks)
}

/// Reading number `nth` of that machine: the first `busy` threads have switched since the last.
pub fn large_reading(counts: &mut LiveCounts, nth: u64, busy: u32) {
    for thread in 1..=busy {
        let switches = nth * u64::from(1 + thread % 50);
        counts.meet(2 * thread, &blocked_in_read(thread), &totals(10 * switches));
        let next = thread % THREADS + 1;
        counts.meet(
            2 * thread + 1,
            &preempted_by(thread, next),
            &totals(switches),
        );
    }
    counts.meet_cpus((0..CPUS).map(|cpu| CpuCounters {
        seen: nth * (1_000 + cpu),
        idle: nth * 400,
        ..CpuCounters::default()
    }));
}

use super::*;
use crate::stall::capture::Usage;

/// Two samples of a thread 20 ms apart, between which nothing has changed.
fn still() -> (ThreadSample, ThreadSample) {
    let before = ThreadSample {
        at_ns: 1_000_000_000,
        cpu_ns: Some(500_000_000),
        user_ns: Some(400_000_000),
        kernel_ns: Some(100_000_000),
        queued_ns: Some(9_000_000),
        voluntary: Some(40),
        involuntary: Some(70),
        state: Some('R'),
        call: Call::Running,
        preemptive: vec![(7, 1_000_000)],
        process_cpu_ns: Some(800_000_000),
        ..ThreadSample::default()
    };
    let mut after = before.clone();
    after.at_ns += 20_000_000;
    (before, after)
}

/// Adds milliseconds to a counter of nanoseconds.
fn add(counter: &mut Option<u64>, ms: u64) {
    *counter = counter.map(|ns| ns + ms * 1_000_000);
}

/// Turns the sample into one of a sleeping thread.
fn block(sample: &mut ThreadSample) {
    sample.state = Some('S');
    sample.voluntary = sample.voluntary.map(|count| count + 1);
    sample.call = Call::Inside {
        number: libc::SYS_clock_nanosleep,
        arguments: [0; 6],
        stack_pointer: 0,
        pc: 0,
    };
}

/// The thread's own answer when no tick has fallen since.
fn behind_call(behind_call: bool) -> Usage {
    Usage {
        user_ns: 400_000_000,
        kernel_ns: 100_000_000,
        behind_call,
    }
}

/// User time grows: an endless loop.
#[test]
fn cpu_in_user_mode_is_a_user_loop() {
    let (before, mut after) = still();
    add(&mut after.cpu_ns, 19);
    add(&mut after.user_ns, 16);
    add(&mut after.kernel_ns, 3);
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::UserLoop
    );
}

/// On a busy machine a loop gets only a part of the CPU; a worker that reaches yield points needs
/// little.
#[test]
fn a_quarter_of_the_cpu_is_a_loop_unless_it_blocked() {
    let (before, mut after) = still();
    add(&mut after.cpu_ns, 5);
    add(&mut after.queued_ns, 15);
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::UserLoop
    );
    after.voluntary = Some(41);
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::NotScheduled
    );
}

/// Kernel time grows: the thread is stuck in the OS.
#[test]
fn cpu_in_the_kernel_is_the_kernel() {
    let (before, mut after) = still();
    add(&mut after.cpu_ns, 19);
    add(&mut after.kernel_ns, 17);
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::InsideKernel
    );
}

/// The kernel measures the split at ticks. If no tick came, the two places where the signals
/// interrupted the thread decide; one alone may have met a loop at its only system call.
#[test]
fn without_a_tick_the_signals_decide() {
    let (mut before, mut after) = still();
    add(&mut after.cpu_ns, 19);
    before.usage = Some(behind_call(true));
    after.usage = Some(behind_call(true));
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::InsideKernel
    );
    before.usage = Some(behind_call(false));
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::UserLoop
    );
}

/// `stat` counts in 10 ms, the thread itself in µs. A difference between the two would be
/// meaningless, so the finer source is used if it answered at both ends.
#[test]
fn the_split_comes_from_one_source() {
    let (mut before, mut after) = still();
    add(&mut after.cpu_ns, 19);
    add(&mut after.user_ns, 20);
    after.usage = Some(Usage {
        kernel_ns: 700_000_000,
        ..behind_call(true)
    });
    let numbers = Numbers::between(&before, &after);
    assert_eq!(numbers.user, Some(Duration::from_millis(20)));
    before.usage = Some(behind_call(true));
    let (verdict, numbers) = judge(SchedulerDuty::Running, &before, &after);
    assert_eq!(numbers.kernel, Some(Duration::from_millis(600)));
    assert_eq!(verdict, StallVerdict::InsideKernel);
}

/// Neither time grows, and the thread sleeps: a call that blocks.
#[test]
fn a_sleeping_thread_is_blocked() {
    let (before, mut after) = still();
    block(&mut after);
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::BlockedInCall
    );
}

/// A thread in a loop of short sleeps is mostly sampled between two of them, or just woken.
#[test]
fn many_short_sleeps_are_blocking_too() {
    let (before, mut after) = still();
    after.voluntary = Some(60);
    add(&mut after.queued_ns, 1);
    add(&mut after.cpu_ns, 2);
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::BlockedInCall
    );
}

/// Neither time grows, the thread never blocked, and it is runnable. `schedstat` shows nothing,
/// because the wait has not ended.
#[test]
fn a_runnable_thread_without_cpu_is_not_scheduled() {
    let (before, after) = still();
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::NotScheduled
    );
}

/// A starved thread whose scheduler has a long queue: the scheduler is not the cause.
#[test]
fn a_starved_scheduler_has_no_queue_stall() {
    let (before, after) = still();
    assert_eq!(
        judge(SchedulerDuty::Queued, &before, &after).0,
        StallVerdict::NotScheduled
    );
}

/// The thread is blocked at the end, but was in the run queue most of the time.
#[test]
fn the_longer_part_of_a_mixed_time_decides() {
    let (before, mut after) = still();
    block(&mut after);
    add(&mut after.queued_ns, 15);
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::NotScheduled
    );
}

/// The scheduler's own preemptive thread had the CPU. Half of the missing time is the limit: with
/// less, other threads had more.
#[test]
fn preemptive_work_that_used_the_time_is_named() {
    let (before, mut after) = still();
    add(&mut after.cpu_ns, 4);
    after.preemptive = vec![(7, 9_000_000)];
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::StarvedByPreemptive
    );
    after.preemptive = vec![(7, 8_900_000)];
    assert_eq!(
        judge(SchedulerDuty::Running, &before, &after).0,
        StallVerdict::NotScheduled
    );
}

/// A thread that became preemptive between the samples has its whole CPU time in the second one.
#[test]
fn a_new_preemptive_thread_does_not_count() {
    let (before, mut after) = still();
    after.preemptive = vec![(8, 5_000_000_000)];
    let (verdict, numbers) = judge(SchedulerDuty::Running, &before, &after);
    assert_eq!(verdict, StallVerdict::NotScheduled);
    assert_eq!(numbers.preemptive, Duration::ZERO);
}

/// There is runnable work, but the scheduler sleeps or spins.
#[test]
fn a_queue_that_is_not_served_is_stalled() {
    let (before, mut after) = still();
    block(&mut after);
    assert_eq!(
        judge(SchedulerDuty::Queued, &before, &after).0,
        StallVerdict::QueueStalled
    );
    let (before, mut after) = still();
    add(&mut after.cpu_ns, 19);
    assert_eq!(
        judge(SchedulerDuty::Queued, &before, &after).0,
        StallVerdict::QueueStalled
    );
}

/// A report shows the known values and leaves the others out.
#[test]
fn numbers_that_are_not_known_are_not_shown() {
    let (before, mut after) = still();
    add(&mut after.cpu_ns, 19);
    after.queued_ns = None;
    after.voluntary = None;
    let text = judge(SchedulerDuty::Running, &before, &after).1.to_string();
    assert_eq!(
        text,
        "in 20.0 ms, on CPU 19.0 ms, user 0.0 ms, kernel 0.0 ms, preemptive work 0.0 ms, \
         process 0.0 ms, 0 involuntary switches, state R"
    );
}

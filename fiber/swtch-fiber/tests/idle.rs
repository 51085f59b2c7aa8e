//! A scheduler that has nothing to do sleeps in the kernel and uses no CPU.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use swtch_fiber::{Runtime, WaitType, preemptive, sleep, spawn};

/// A task that waits for a worker cannot run, so checking it again and again would be useless.
#[test]
fn a_scheduler_without_a_free_worker_sleeps() {
    let runtime = Runtime::builder().schedulers(1).workers(1).build().unwrap();
    let body = || {
        let waits = spawn(|| ()).unwrap();
        sleep(Duration::from_millis(250));
        assert!(!waits.is_finished(), "there is one worker, and it sleeps");
    };
    assert_hardly_used_a_cpu(|| runtime.run(body).unwrap());
}

/// A runtime that is dropped waits for code that cannot be cancelled.
#[test]
fn a_scheduler_that_waits_for_its_end_sleeps() {
    let runtime = Runtime::builder().schedulers(1).build().unwrap();
    let (begins, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let foreign = move || {
        begins.send(()).unwrap();
        ended.recv().unwrap();
    };
    runtime
        .spawn(move || preemptive(WaitType::PREEMPTIVE_OTHER, foreign))
        .unwrap();
    begun.recv().unwrap();
    let ends_it = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(250));
        end.send(()).unwrap();
    });
    assert_hardly_used_a_cpu(|| drop(runtime));
    ends_it.join().unwrap();
}

/// A thread that does not sleep would use a whole CPU, or on a busy machine its share of one.
fn assert_hardly_used_a_cpu(act: impl FnOnce()) {
    let (before, begin) = (cpu_time(), Instant::now());
    act();
    let (used, took) = (cpu_time() - before, begin.elapsed());
    assert!(used < took / 5, "{used:?} of CPU time in {took:?}");
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live `timespec`, which the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::from_nanos(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

//! A scheduler that has nothing to do sleeps in the kernel and uses no CPU.

use std::time::Duration;

use swtch_fiber::{Runtime, WaitType, preemptive, sleep, spawn};

/// A task that waits for a worker cannot run, so checking it again and again would be useless.
#[test]
fn a_scheduler_without_a_free_worker_sleeps() {
    let runtime = Runtime::builder().schedulers(1).workers(1).build().unwrap();
    let before = cpu_time();
    runtime
        .run(|| {
            let waits = spawn(|| ()).unwrap();
            sleep(Duration::from_millis(300));
            assert!(!waits.is_finished(), "there is one worker, and it sleeps");
        })
        .unwrap();
    let used = cpu_time() - before;
    assert!(used < Duration::from_millis(100), "{used:?} of CPU time");
}

/// A runtime that is dropped waits for code that cannot be cancelled.
#[test]
fn a_scheduler_that_waits_for_its_end_sleeps() {
    let runtime = Runtime::builder().schedulers(1).build().unwrap();
    let foreign = || std::thread::sleep(Duration::from_millis(300));
    runtime
        .spawn(move || preemptive(WaitType::PREEMPTIVE_OTHER, foreign))
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let before = cpu_time();
    drop(runtime);
    let used = cpu_time() - before;
    assert!(used < Duration::from_millis(100), "{used:?} of CPU time");
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

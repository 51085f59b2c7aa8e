//! Tests what is refused, and what ends the process with a message.

mod child;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use child::{PATIENCE, in_a_child, is_child};
use swtch_fiber::sync::Event;
use swtch_fiber::{
    Error, JoinError, Mode, Runtime, TaskBuilder, check_quantum, sleep, spawn, yield_now,
};

fn refused(builder: swtch_fiber::Builder) -> String {
    match builder.build() {
        Err(error @ Error::Setting { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A runtime with these settings could never run a task.
#[test]
fn settings_that_make_no_sense_are_refused_with_the_remedy() {
    let builder = Runtime::builder;
    assert!(refused(builder().schedulers(0)).starts_with("schedulers is 0: at least one"));
    assert!(refused(builder().schedulers(1_000_000)).contains("256"));
    assert!(refused(builder().workers(0)).starts_with("workers is 0: at least one"));
    assert!(refused(builder().quantum(Duration::ZERO)).starts_with("quantum is 0ns: at least"));
    assert!(refused(builder().mode(Mode::Thread).stack_size(1 << 40)).contains("1 GiB"));
    assert!(refused(builder().stack_size(1000)).starts_with("stack_size is 1000 bytes: "));
}

/// Libraries call yield points without knowing whether a worker runs them.
#[test]
fn yield_points_outside_of_a_runtime_are_harmless() {
    yield_now();
    assert!(!check_quantum());
    sleep(Duration::from_millis(1));
    let spawned = spawn(|| ());
    assert!(matches!(spawned, Err(Error::NoRuntime)));
}

/// A mistyped number must not cause a hang.
#[test]
fn a_scheduler_that_is_not_there_is_refused() {
    let runtime = Runtime::builder().schedulers(2).build().expect("a runtime");
    let spawned = runtime.spawn_with(TaskBuilder::new().on_scheduler(2), || ());
    let error = spawned.expect_err("there are 0 and 1").to_string();
    assert!(error.contains("no scheduler with this number"), "{error}");
}

/// If there are fewer workers than tasks, tasks wait for a worker.
#[test]
fn one_worker_runs_many_tasks_one_after_the_other() {
    for mode in [Mode::Fiber, Mode::Thread] {
        let builder = Runtime::builder().mode(mode).schedulers(1).workers(1);
        let runtime = builder.build().expect("a runtime");
        let handles: Vec<_> = (0..50)
            .map(|number| runtime.spawn(move || number).expect("spawned"))
            .collect();
        let sum: i32 = handles
            .into_iter()
            .map(|handle| handle.join().expect("no panic"))
            .sum();
        assert_eq!(sum, 1225, "{mode:?}");
    }
}

/// A worker that unwinds must not let others run with its panic count, so a yield does nothing.
#[test]
fn a_yield_in_a_destructor_that_runs_in_a_panic_is_left_out() {
    struct YieldOnDrop;
    impl Drop for YieldOnDrop {
        fn drop(&mut self) {
            yield_now();
        }
    }
    for mode in [Mode::Fiber, Mode::Thread] {
        let runtime = Runtime::builder()
            .mode(mode)
            .schedulers(1)
            .build()
            .expect("a runtime");
        let ended = runtime.run(|| {
            let other = spawn(|| {
                assert!(!std::thread::panicking(), "the panic of another worker");
            });
            let _yields = YieldOnDrop;
            assert!(other.is_err(), "meant");
        });
        assert!(matches!(ended, Err(JoinError::Panicked(_))), "{mode:?}");
        assert_eq!(runtime.run(|| 1).expect("goes on"), 1);
    }
}

/// A wait cannot be skipped there, and cannot be done either, so the process ends with the reason.
#[test]
fn a_wait_in_a_destructor_that_runs_in_a_panic_ends_the_process_with_the_reason() {
    const NAME: &str =
        "a_wait_in_a_destructor_that_runs_in_a_panic_ends_the_process_with_the_reason";
    struct WaitsOnDrop;
    impl Drop for WaitsOnDrop {
        fn drop(&mut self) {
            sleep(Duration::from_millis(1));
        }
    }
    if is_child(NAME) {
        let runtime = Runtime::builder().schedulers(1).build().expect("a runtime");
        let ended = runtime.run(|| {
            let _waits = WaitsOnDrop;
            panic!("meant");
        });
        panic!("must not get here: {ended:?}");
    }
    let output = in_a_child(NAME, &[], PATIENCE);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("a destructor waits while its task unwinds"),
        "{said}"
    );
    assert!(!output.status.success());
}

/// In thread mode each worker has a panic count of its own, so waiting is allowed.
#[test]
fn in_thread_mode_a_destructor_may_wait_in_a_panic() {
    struct WaitsWhenDropped;
    impl Drop for WaitsWhenDropped {
        fn drop(&mut self) {
            sleep(Duration::from_millis(1));
        }
    }
    let runtime = Runtime::builder()
        .mode(Mode::Thread)
        .schedulers(1)
        .build()
        .expect("a runtime");
    let ended = runtime.run(|| {
        let _waits = WaitsWhenDropped;
        panic!("meant");
    });
    assert!(matches!(ended, Err(JoinError::Panicked(_))));
}

/// Cancelling twice, or after the end, is no mistake.
#[test]
fn cancelling_what_has_ended_does_nothing() {
    let runtime = Runtime::builder().schedulers(1).build().expect("a runtime");
    let handle = runtime.spawn(|| 5).expect("spawned");
    while !handle.is_finished() {
        std::thread::yield_now();
    }
    handle.cancel();
    handle.cancel();
    assert_eq!(handle.join().expect("it had ended"), 5);
}

/// After a join that timed out the handle can be used again.
#[test]
fn a_join_that_times_out_gives_the_handle_back() {
    let runtime = Runtime::builder().schedulers(1).build().expect("a runtime");
    let may_end = Arc::new(Event::manual());
    let theirs = may_end.clone();
    let handle = runtime.spawn(move || theirs.wait()).expect("spawned");
    let handle = handle
        .join_timeout(Duration::from_millis(5))
        .expect_err("it may not end yet");
    may_end.set();
    handle.join().expect("it ends");
}

/// Without a handle the result is dropped at the task's end, and its destructor may panic.
#[test]
fn a_result_whose_destructor_panics_ends_nothing_but_itself() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("meant");
        }
    }
    for mode in [Mode::Fiber, Mode::Thread] {
        let builder = Runtime::builder().mode(mode).schedulers(1);
        let runtime = builder.build().expect("a runtime");
        runtime
            .run(|| {
                drop(spawn(|| Bomb).expect("in a runtime"));
                drop(spawn(|| std::panic::panic_any(Bomb)).map(drop));
                sleep(Duration::from_millis(5));
            })
            .expect("goes on");
        assert_eq!(runtime.run(|| 1).expect("goes on"), 1, "{mode:?}");
    }
}

/// The longest duration is used to say "never".
#[test]
fn the_longest_quantum_and_threshold_mean_never() {
    let builder = Runtime::builder().schedulers(1).quantum(Duration::MAX);
    let runtime = builder.build().expect("a runtime");
    assert_eq!(runtime.run(|| 1).expect("no panic"), 1);
    let builder = Runtime::builder()
        .schedulers(1)
        .stall_threshold(Duration::MAX);
    let runtime = builder.build().expect("a runtime");
    let yields = runtime.run(|| {
        let other = spawn(|| ()).expect("in a runtime");
        // The monitor must still end quanta.
        while !other.is_finished() {
            check_quantum();
        }
    });
    yields.expect("no panic");
}

/// The worker would wait for its own end.
#[test]
fn a_worker_that_drops_its_runtime_ends_the_process_with_the_reason() {
    const NAME: &str = "a_worker_that_drops_its_runtime_ends_the_process_with_the_reason";
    if is_child(NAME) {
        let runtime = std::sync::Arc::new(Runtime::builder().schedulers(1).build().expect("one"));
        let theirs = runtime.clone();
        let handle = runtime.spawn(move || {
            sleep(Duration::from_millis(20));
            drop(theirs);
        });
        drop(runtime);
        panic!("must not get here: {:?}", handle.expect("spawned").join());
    }
    let output = in_a_child(NAME, &[], PATIENCE);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("a worker drops the runtime that runs it"),
        "{said}"
    );
    assert!(!output.status.success());
}

/// The load counts sleepers too, so an idle scheduler must still take tasks that wait elsewhere.
#[test]
fn a_scheduler_without_work_takes_tasks_of_a_busy_one() {
    for mode in [Mode::Fiber, Mode::Thread] {
        let builder = Runtime::builder()
            .mode(mode)
            .schedulers(2)
            .stall_threshold(Duration::ZERO);
        let runtime = builder.build().expect("a runtime");
        let sleepers: Vec<_> = (0..10)
            .map(|_| {
                let placed = TaskBuilder::new().on_scheduler(1);
                runtime
                    .spawn_with(placed, || sleep(Duration::from_secs(1000)))
                    .expect("spawned")
            })
            .collect();
        let (may_end, latest) = (Arc::new(AtomicBool::new(false)), Instant::now() + PATIENCE);
        let busy: Vec<_> = (0..6)
            .map(|_| {
                let may_end = may_end.clone();
                let body = move || {
                    while !may_end.load(Ordering::Relaxed) && Instant::now() < latest {
                        std::hint::spin_loop();
                    }
                };
                runtime.spawn(body).expect("spawned")
            })
            .collect();
        let stolen = || {
            let counters = runtime.counters();
            counters
                .iter()
                .map(|one| one.stolen_tasks_count)
                .sum::<u64>()
        };
        while stolen() == 0 && Instant::now() < latest {
            std::thread::sleep(Duration::from_micros(200));
        }
        may_end.store(true, Ordering::Relaxed);
        for task in busy {
            task.join().expect("no panic");
        }
        assert!(stolen() > 0, "{mode:?}: the other one slept");
        for sleeper in sleepers {
            sleeper.cancel();
        }
    }
}

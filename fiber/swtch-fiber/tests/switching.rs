//! Both modes run tasks, switch between them, and count what they did.

mod sync_common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use swtch_fiber::{JoinError, Mode, WaitType, preemptive, sleep, spawn, yield_now};
use sync_common::{runtime, until_waits};

const MODES: [Mode; 2] = [Mode::Fiber, Mode::Thread];

/// The smallest program that has a result.
#[test]
fn a_task_has_a_result() {
    for mode in MODES {
        assert_eq!(runtime(mode, 1).run(|| 6 * 7).expect("no panic"), 42);
    }
}

/// Two workers that yield take turns.
#[test]
fn two_workers_that_yield_take_turns() {
    for mode in MODES {
        let order = Arc::new(Mutex::new(Vec::new()));
        let theirs = order.clone();
        runtime(mode, 1)
            .run(move || {
                let workers = ["a", "b"].map(|name| {
                    let order = theirs.clone();
                    spawn(move || {
                        for _ in 0..3 {
                            order.lock().expect("not poisoned").push(name);
                            yield_now();
                        }
                    })
                    .expect("in a runtime")
                });
                for worker in workers {
                    worker.join().expect("no panic");
                }
            })
            .expect("no panic");
        assert_eq!(
            *order.lock().expect("not poisoned"),
            ["a", "b", "a", "b", "a", "b"],
            "{mode:?}"
        );
    }
}

/// A sleeping worker must not keep others from running: twenty have begun to sleep before the first
/// has slept enough, and another one sleeps as long as it asked for meanwhile.
#[test]
fn sleepers_sleep_at_the_same_time() {
    const SHORT: Duration = Duration::from_millis(20);
    for mode in MODES {
        let runtime = runtime(mode, 1);
        for _ in 0..20 {
            drop(
                runtime
                    .spawn(|| sleep(Duration::from_secs(1000)))
                    .expect("spawned"),
            );
        }
        until_waits(&runtime, "SLEEP_TASK", 20);
        let slept = runtime.run(|| {
            let begin = Instant::now();
            sleep(SHORT);
            begin.elapsed()
        });
        assert!(slept.expect("no panic") >= SHORT, "{mode:?}");
    }
}

/// A panic is an error of its task only.
#[test]
fn a_panic_ends_one_task_and_not_the_scheduler() {
    for mode in MODES {
        let runtime = runtime(mode, 1);
        let ended = runtime.run(|| panic!("meant"));
        assert!(matches!(ended, Err(JoinError::Panicked(_))), "{mode:?}");
        assert_eq!(runtime.run(|| 1).expect("goes on"), 1);
    }
}

/// A waiting task unwinds when it is cancelled: its destructors run.
#[test]
fn cancelling_a_task_unwinds_it() {
    struct Sightings(Arc<AtomicU32>);
    impl Drop for Sightings {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    for mode in MODES {
        let dropped = Arc::new(AtomicU32::new(0));
        let runtime = runtime(mode, 1);
        let sightings = Sightings(dropped.clone());
        let sleeper = runtime.spawn(move || {
            let _sightings = sightings;
            sleep(Duration::from_secs(1000));
        });
        let sleeper = sleeper.expect("spawned");
        while runtime.run(yield_now).is_err() {}
        sleeper.cancel();
        assert!(
            matches!(sleeper.join(), Err(JoinError::Cancelled)),
            "{mode:?}"
        );
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
}

/// A runtime that ends leaves no task behind.
#[test]
fn dropping_a_runtime_cancels_what_is_left() {
    for mode in MODES {
        let runtime = runtime(mode, 2);
        let handles: Vec<_> = (0..10)
            .map(|_| {
                runtime
                    .spawn(|| sleep(Duration::from_secs(1000)))
                    .expect("spawned")
            })
            .collect();
        drop(runtime);
        for handle in handles {
            assert!(
                matches!(handle.join(), Err(JoinError::Cancelled)),
                "{mode:?}"
            );
        }
    }
}

/// Blocking code in a preemptive section does not block the scheduler.
#[test]
fn others_run_while_a_worker_is_preemptive() {
    let wait_type = WaitType::named("PREEMPTIVE_TEST_BLOCK").expect("there is room");
    for mode in MODES {
        let (send, receive) = std::sync::mpsc::channel();
        runtime(mode, 1)
            .run(move || {
                let other = spawn(move || send.send(7).expect("somebody listens"));
                // Without leaving the scheduler this would wait for ever.
                let received = preemptive(wait_type, move || receive.recv().expect("it was sent"));
                assert_eq!(received, 7);
                other.expect("in a runtime").join().expect("no panic");
            })
            .expect("no panic");
    }
}

/// Many tasks on several schedulers, all at once.
#[test]
fn tasks_spread_over_schedulers_all_end() {
    for mode in MODES {
        let runtime = runtime(mode, 4);
        let sum = runtime.run(|| {
            let tasks: Vec<_> = (0..200_u64)
                .map(|number| {
                    spawn(move || {
                        for _ in 0..10 {
                            yield_now();
                        }
                        number
                    })
                    .expect("in a runtime")
                })
                .collect();
            tasks
                .into_iter()
                .map(|task| task.join().expect("no panic"))
                .sum::<u64>()
        });
        assert_eq!(sum.expect("no panic"), 19_900, "{mode:?}");
    }
}

//! Timeouts and scopes: what is cut off, what is waited for, and that nothing is left behind.

mod sync_common;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use swtch_fiber::sync::{Event, Mutex};
use swtch_fiber::{
    Elapsed, Interval, JoinError, scope, sleep, sleep_until, spawn, timeout, yield_now,
};
use sync_common::{in_all_shapes, in_both_modes, until_waits};

const LONG: Duration = Duration::from_secs(1000);
const SHORT: Duration = Duration::from_millis(3);

struct DropCount(Arc<AtomicUsize>);

impl Drop for DropCount {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The wait is cut off, its stack unwound, and the worker continues.
#[test]
fn a_timeout_ends_the_wait_it_is_in_and_nothing_else() {
    in_all_shapes(|runtime| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let theirs = dropped.clone();
        let body = move || {
            let cut = timeout(SHORT, || {
                let _counts = DropCount(theirs);
                sleep(LONG);
            });
            let in_time = timeout(LONG, || {
                sleep(SHORT);
                7
            });
            (cut, in_time)
        };
        assert_eq!(runtime.run(body).expect("no panic"), (Err(Elapsed), Ok(7)));
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    });
    // A thread that is not a worker can be cut off as well.
    assert_eq!(timeout(SHORT, || Event::manual().wait()), Err(Elapsed));
}

/// The outer timeout must not be mistaken for the inner one, whichever passes first.
#[test]
fn of_nested_timeouts_the_one_that_is_over_ends() {
    in_both_modes(|runtime| {
        let inner_first = || timeout(LONG, || (timeout(SHORT, || sleep(LONG)), 1));
        let outer_first = || timeout(SHORT, || (timeout(LONG, || sleep(LONG)), 1));
        assert_eq!(
            runtime.run(inner_first).expect("no panic"),
            Ok((Err(Elapsed), 1))
        );
        assert_eq!(runtime.run(outer_first).expect("no panic"), Err(Elapsed));
        let afterwards = || {
            let cut = timeout(SHORT, || timeout(LONG, || sleep(LONG)));
            sleep(SHORT);
            cut
        };
        assert_eq!(runtime.run(afterwards).expect("no panic"), Err(Elapsed));
    });
}

/// A loop that only yields has no wait that could be cut off.
#[test]
fn a_timeout_ends_a_loop_that_yields_and_lets_other_code_finish() {
    in_both_modes(|runtime| {
        let endless = || {
            timeout(SHORT, || {
                loop {
                    yield_now()
                }
            })
        };
        let result: Result<(), Elapsed> = runtime.run(endless).expect("no panic");
        assert_eq!(result, Err(Elapsed));
        let late = || timeout(Duration::ZERO, || 5);
        assert_eq!(runtime.run(late).expect("no panic"), Ok(5));
    });
}

/// Cancellation is not a timeout: it passes through one.
#[test]
fn cancelling_goes_through_a_timeout() {
    in_both_modes(|runtime| {
        let sleeper = runtime
            .spawn(|| timeout(LONG, || sleep(LONG)))
            .expect("spawned");
        until_waits(runtime, "SLEEP_TASK", 1);
        sleeper.cancel();
        assert!(matches!(sleeper.join(), Err(JoinError::Cancelled)));
    });
}

/// It never ticks early; missed moments are counted and skipped.
#[test]
fn an_interval_keeps_its_distance() {
    in_both_modes(|runtime| {
        runtime
            .run(|| {
                let begun = Instant::now();
                let mut interval = Interval::new(SHORT);
                let due: u64 = (0..5).map(|_| interval.tick()).sum();
                assert!(begun.elapsed() >= SHORT * u32::try_from(due).expect("few"));
                sleep(5 * SHORT);
                assert!(interval.tick() >= 4);
                sleep_until(begun);
                let moment = Instant::now() + SHORT;
                sleep_until(moment);
                assert!(Instant::now() >= moment);
            })
            .expect("no panic");
    });
}

/// The purpose of a scope: no `Arc`, no `'static`, results by handle.
#[test]
fn tasks_of_a_scope_borrow_and_give_results() {
    in_all_shapes(|runtime| {
        let sum = runtime.run(|| {
            let words = ["a", "bb", "ccc"].map(String::from);
            let lengths: usize = scope(|scope| {
                let tasks = words.each_ref().map(|word| {
                    let body = move || {
                        yield_now();
                        word.len()
                    };
                    scope.spawn(body).expect("inside of a runtime")
                });
                tasks
                    .map(|task| task.join().expect("no panic"))
                    .iter()
                    .sum()
            });
            lengths + words.len()
        });
        assert_eq!(sum.expect("no panic"), 9);
    });
}

/// The borrowed data is freed when the scope returns, so sleeping tasks must have ended by then.
#[test]
fn a_scope_that_unwinds_ends_its_tasks_first() {
    in_all_shapes(|runtime| {
        for how in ["panic", "cancel", "timeout"] {
            let ended = Arc::new(AtomicUsize::new(0));
            let theirs = ended.clone();
            let before = sync_common::waits(runtime, "SLEEP_TASK");
            let body = move || {
                let data = Mutex::new(Vec::new());
                let unwinds = || {
                    scope(|scope| {
                        for number in 0..4 {
                            let (data, theirs) = (&data, theirs.clone());
                            let sleeper = move || {
                                let _counts = DropCount(theirs);
                                data.lock().push(number);
                                sleep(LONG);
                                data.lock().push(number);
                            };
                            scope.spawn(sleeper).expect("inside of a runtime");
                        }
                        if how == "panic" {
                            sleep(SHORT);
                            panic!("meant");
                        }
                    });
                };
                if how == "timeout" {
                    timeout(2 * SHORT, unwinds).expect_err("they sleep for long");
                } else {
                    unwinds();
                }
            };
            let task = runtime.spawn(body).expect("spawned");
            if how == "cancel" {
                until_waits(runtime, "SLEEP_TASK", before + 4);
                task.cancel();
            }
            let result = task.join();
            match how {
                "panic" => assert!(matches!(result, Err(JoinError::Panicked(_)))),
                "cancel" => assert!(matches!(result, Err(JoinError::Cancelled))),
                _ => result.expect("the timeout was caught"),
            }
            if how == "cancel" {
                assert_eq!(
                    ended.load(Ordering::SeqCst),
                    4,
                    "all slept, and all have unwound"
                );
            }
        }
    });
}

/// A panic whose result is not taken must not be lost.
#[test]
fn a_scope_panics_after_a_panic_that_nobody_took() {
    in_both_modes(|runtime| {
        let result = runtime.run(|| {
            scope(|scope| {
                let task = scope
                    .spawn(|| panic!("meant"))
                    .expect("inside of a runtime");
                let taken: Result<(), _> = task.join();
                assert!(matches!(taken, Err(JoinError::Panicked(_))));
            });
            scope(|scope| {
                scope
                    .spawn(|| panic!("meant"))
                    .expect("inside of a runtime");
            });
        });
        let message = result.expect_err("the second one panics").to_string();
        assert!(
            message.contains("a task of the scope panicked"),
            "{message}"
        );
    });
}

/// Values that are not `Send` may live across waits: a worker stays on its thread.
#[test]
fn what_is_not_send_lives_across_waits() {
    in_all_shapes(|runtime| {
        let run = || {
            let count = Cell::new(0);
            let other = spawn(|| sleep(SHORT)).expect("inside of a runtime");
            count.set(count.get() + 1);
            other.join().expect("no panic");
            count.set(count.get() + 1);
            count.get()
        };
        assert_eq!(runtime.run(run).expect("no panic"), 2);
    });
}

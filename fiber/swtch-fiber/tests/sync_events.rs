//! Event, condition variable, barrier: which waiters are woken, and that no other is.

mod sync_common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use swtch_fiber::sync::{Barrier, Condvar, Event, Mutex};
use swtch_fiber::{JoinError, JoinHandle, Runtime};
use sync_common::{in_all_shapes, until, until_waits};

const LONG: Duration = Duration::from_secs(1000);
const SHORT: Duration = Duration::from_millis(3);

fn waiters(runtime: &Runtime, event: &Arc<Event>, count: usize) -> Vec<JoinHandle<bool>> {
    let waits = || {
        let event = event.clone();
        runtime
            .spawn(move || event.wait_timeout(LONG))
            .expect("spawned")
    };
    let waiters = (0..count).map(|_| waits()).collect();
    until_waits(runtime, "EVENT", count as u64);
    waiters
}

/// Waiters continue after `set`, also if the event is reset before they run.
#[test]
fn a_manual_event_releases_all_who_wait_even_if_reset_at_once() {
    in_all_shapes(|runtime| {
        let event = Arc::new(Event::manual());
        let waiters = waiters(runtime, &event, 5);
        event.set();
        event.reset();
        for waiter in waiters {
            assert!(waiter.join().expect("no panic"));
        }
        assert!(!event.wait_timeout(SHORT), "it was reset");
        event.set();
        event.wait();
        assert!(event.is_set(), "waiting does not reset it");
    });
}

/// One waiter for each `set`: two would break a hand-off, none would be a lost wakeup.
#[test]
fn an_automatic_event_releases_one_for_each_set() {
    in_all_shapes(|runtime| {
        let event = Arc::new(Event::automatic());
        let mut waiters = waiters(runtime, &event, 4);
        event.set();
        until("one goes on", || {
            waiters.iter().any(JoinHandle::is_finished)
        });
        let finished = waiters.iter().filter(|waiter| waiter.is_finished()).count();
        assert_eq!(finished, 1);
        assert!(!event.is_set(), "it was used up");
        waiters.retain(|waiter| !waiter.is_finished());
        // A waiter that is cancelled must not use up a signal.
        let cancelled = waiters.remove(0);
        cancelled.cancel();
        event.set();
        event.set();
        assert!(matches!(cancelled.join(), Err(JoinError::Cancelled)));
        for waiter in waiters {
            assert!(waiter.join().expect("no panic"));
        }
        assert!(!event.is_set());
        event.set();
        assert!(
            event.wait_timeout(Duration::ZERO),
            "it stays set for the next"
        );
    });
}

/// The classic case: a queue that workers and a thread fill and empty.
#[test]
fn a_condition_is_waited_for_without_the_lock() {
    in_all_shapes(|runtime| {
        let shared = Arc::new((Mutex::new(0_u32), Condvar::new()));
        let takers: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                let take = move || {
                    for _ in 0..25 {
                        let guard = shared.0.lock();
                        let mut count = shared.1.wait_while(guard, |count| *count == 0);
                        *count -= 1;
                    }
                };
                runtime.spawn(take).expect("spawned")
            })
            .collect();
        for _ in 0..100 {
            *shared.0.lock() += 1;
            shared.1.notify_one();
        }
        for taker in takers {
            taker.join().expect("no panic");
        }
        assert_eq!(*shared.0.lock(), 0);
        let guard = shared.0.lock();
        let (guard, came) = shared
            .1
            .wait_timeout_while(guard, SHORT, |count| *count == 0);
        assert!(!came && *guard == 0);
    });
}

/// A waiter that has been notified and is cancelled while it waits for the lock has used up the
/// notification, so it has to pass it on.
#[test]
fn a_cancelled_waiter_hands_its_notification_on() {
    in_all_shapes(|runtime| {
        let shared = Arc::new((Mutex::new(()), Condvar::new()));
        let waits = || {
            let shared = shared.clone();
            let body = move || drop(shared.1.wait(shared.0.lock()));
            runtime.spawn(body).expect("spawned")
        };
        let first = waits();
        until_waits(runtime, "CONDITION", 1);
        let second = waits();
        until_waits(runtime, "CONDITION", 2);
        let guard = shared.0.lock();
        assert!(shared.1.notify_one());
        until_waits(runtime, "MUTEX", 1);
        first.cancel();
        assert!(matches!(first.join(), Err(JoinError::Cancelled)));
        drop(guard);
        second
            .join()
            .expect("it was notified in place of the first");
        assert!(!shared.1.notify_one(), "nobody waits any more");
    });
}

/// A group continues when it is complete, and the next group can come.
#[test]
fn a_barrier_holds_until_all_have_come_again_and_again() {
    in_all_shapes(|runtime| {
        let barrier = Arc::new(Barrier::new(4));
        let (came, leaders) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let (barrier, came, leaders) = (barrier.clone(), came.clone(), leaders.clone());
                let body = move || {
                    for round in 1..=20 {
                        came.fetch_add(1, Ordering::SeqCst);
                        if barrier.wait().is_leader() {
                            leaders.fetch_add(1, Ordering::SeqCst);
                        }
                        assert!(came.load(Ordering::SeqCst) >= 4 * round);
                        barrier.wait();
                    }
                };
                runtime.spawn(body).expect("spawned")
            })
            .collect();
        for worker in workers {
            worker.join().expect("no panic");
        }
        assert_eq!(leaders.load(Ordering::SeqCst), 20);
    });
}

/// Otherwise the others would continue without the missing one.
#[test]
fn a_cancelled_waiter_does_not_count_at_the_barrier() {
    in_all_shapes(|runtime| {
        let barrier = Arc::new(Barrier::new(2));
        let comes = || {
            let barrier = barrier.clone();
            runtime.spawn(move || barrier.wait()).expect("spawned")
        };
        let cancelled = comes();
        until_waits(runtime, "EVENT", 1);
        cancelled.cancel();
        assert!(matches!(cancelled.join(), Err(JoinError::Cancelled)));
        let first = comes();
        until_waits(runtime, "EVENT", 2);
        assert!(!first.is_finished());
        assert!(barrier.wait().is_leader());
        assert!(!first.join().expect("no panic").is_leader());
    });
}

//! Mutex, read-write lock, semaphore: which waiter is served, in which order, and what happens to
//! those that give up.

mod sync_common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use swtch_fiber::sync::{Barrier, Event, Mutex, RwLock, Semaphore};
use swtch_fiber::{JoinError, scope, spawn, yield_now};
use sync_common::{in_all_shapes, in_both_modes, until_waits};

const LONG: Duration = Duration::from_secs(1000);
const SHORT: Duration = Duration::from_millis(3);

/// The lock is held over a yield: without exclusion, additions would be lost.
#[test]
fn one_worker_at_a_time_has_the_mutex() {
    in_all_shapes(|runtime| {
        let sum = Arc::new(Mutex::new(0));
        let theirs = sum.clone();
        let adds = move |times: usize| {
            for _ in 0..times {
                let mut sum = theirs.lock();
                let before = *sum;
                yield_now();
                *sum = before + 1;
            }
        };
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let adds = adds.clone();
                runtime.spawn(move || adds(50)).expect("spawned")
            })
            .collect();
        // A thread that is not a worker takes its turns as well.
        adds(50);
        for worker in workers {
            worker.join().expect("no panic");
        }
        assert_eq!(*sum.lock(), 450);
        assert!(!sum.is_locked());
    });
}

/// A worker that locks again and again, and yields only while it holds the lock, would starve all
/// others if it could overtake more than once.
#[test]
fn a_waiter_is_overtaken_once_at_most() {
    in_both_modes(|runtime| {
        let rounds = runtime.run(|| {
            let mutex = Arc::new(Mutex::new(()));
            let got_it = Arc::new(AtomicBool::new(false));
            let mut guard = mutex.lock();
            let (theirs, gets_it) = (mutex.clone(), got_it.clone());
            let other = spawn(move || {
                let _guard = theirs.lock();
                gets_it.store(true, Ordering::Relaxed);
            });
            let mut rounds = 0;
            while !got_it.load(Ordering::Relaxed) && rounds < 100 {
                yield_now();
                drop(guard);
                guard = mutex.lock();
                rounds += 1;
            }
            drop(guard);
            other.expect("spawned").join().expect("no panic");
            rounds
        });
        let rounds = rounds.expect("no panic");
        assert!(rounds <= 4, "overtaken {rounds} times");
    });
}

/// A waiter that gives up must not block the line: the next one gets the lock.
#[test]
fn a_waiter_that_is_cancelled_or_too_late_hands_nothing_to_nobody() {
    in_all_shapes(|runtime| {
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.lock();
        let waits = |span| {
            let mutex = mutex.clone();
            runtime
                .spawn(move || mutex.lock_timeout(span).map(|mut value| *value += 1))
                .expect("spawned")
        };
        let cancelled = waits(LONG);
        until_waits(runtime, "MUTEX", 1);
        let late = waits(SHORT);
        until_waits(runtime, "MUTEX", 2);
        let patient = waits(LONG);
        until_waits(runtime, "MUTEX", 3);
        assert!(late.join().expect("no panic").is_none());
        cancelled.cancel();
        assert!(matches!(cancelled.join(), Err(JoinError::Cancelled)));
        drop(guard);
        assert!(patient.join().expect("no panic").is_some());
        assert_eq!(*mutex.lock(), 1);
    });
}

/// Cancellation unwinds through guards: others find the lock free, and not poisoned.
#[test]
fn unwinding_unlocks() {
    in_all_shapes(|runtime| {
        let mutex = Arc::new(Mutex::new(()));
        let theirs = mutex.clone();
        let panics = runtime.run(move || {
            let _guard = theirs.lock();
            panic!("meant");
        });
        assert!(matches!(panics, Err(JoinError::Panicked(_))));
        assert!(mutex.try_lock().is_some());
    });
}

/// The one deadlock that a lock can detect by itself.
#[test]
fn locking_twice_is_a_panic_and_not_for_ever() {
    in_both_modes(|runtime| {
        let twice = runtime.run(|| {
            let mutex = Mutex::new(());
            let _guard = mutex.lock();
            assert!(mutex.lock_timeout(SHORT).is_none(), "that is no deadlock");
            let _again = mutex.lock();
        });
        let message = twice.expect_err("a deadlock").to_string();
        assert!(message.contains("locks a mutex that it holds"), "{message}");
    });
}

/// Readers share the lock, a writer does not.
#[test]
fn many_read_or_one_writes() {
    in_all_shapes(|runtime| {
        let lock = Arc::new(RwLock::new(0));
        let readers = Arc::new(AtomicUsize::new(0));
        // All begin before the first one can have ended.
        let begin = Arc::new(Barrier::new(12));
        let tasks: Vec<_> = (0..12)
            .map(|number| {
                let (lock, readers) = (lock.clone(), readers.clone());
                let begin = begin.clone();
                let body = move || {
                    begin.wait();
                    for _ in 0..20 {
                        if number % 4 == 0 {
                            let mut value = lock.write();
                            assert_eq!(readers.load(Ordering::SeqCst), 0);
                            let before = *value;
                            yield_now();
                            *value = before + 1;
                        } else {
                            let value = lock.read();
                            let before = *value;
                            readers.fetch_add(1, Ordering::SeqCst);
                            yield_now();
                            assert_eq!(*value, before);
                            readers.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                };
                runtime.spawn(body).expect("spawned")
            })
            .collect();
        for task in tasks {
            task.join().expect("no panic");
        }
        assert_eq!(*lock.read(), 60);
        let (reading, theirs) = (lock.read(), lock.clone());
        let shared = runtime.run(move || *theirs.read());
        assert_eq!(
            shared.expect("no panic"),
            *reading,
            "two read at the same time"
        );
        drop(reading);
        assert!(lock.try_write().is_some(), "nobody has it any more");
    });
}

/// Otherwise a stream of readers would starve the writer.
#[test]
fn a_reader_does_not_overtake_a_waiting_writer() {
    in_all_shapes(|runtime| {
        let lock = Arc::new(RwLock::new(()));
        let reading = lock.read();
        let theirs = lock.clone();
        let writer = runtime
            .spawn(move || drop(theirs.write()))
            .expect("spawned");
        until_waits(runtime, "RWLOCK_EXCLUSIVE", 1);
        assert!(lock.try_read().is_none());
        let theirs = lock.clone();
        let reader = runtime.spawn(move || drop(theirs.read())).expect("spawned");
        until_waits(runtime, "RWLOCK_SHARED", 1);
        assert!(!reader.is_finished());
        // The writer gives up, and the reader behind it continues at once.
        writer.cancel();
        assert!(matches!(writer.join(), Err(JoinError::Cancelled)));
        reader.join().expect("no panic");
        drop(reading);
        assert!(lock.write_timeout(LONG).is_some());
    });
}

/// Small requests must not starve a large one, and a large one that is withdrawn must not block
/// others.
#[test]
fn permits_are_given_in_order_whatever_the_request() {
    in_all_shapes(|runtime| {
        let semaphore = Arc::new(Semaphore::new(2));
        let wants = |count: usize| {
            let semaphore = semaphore.clone();
            runtime
                .spawn(move || drop(semaphore.acquire_many(count)))
                .expect("spawned")
        };
        let one = semaphore.acquire();
        let large = wants(2);
        until_waits(runtime, "SEMAPHORE", 1);
        assert!(
            semaphore.try_acquire().is_none(),
            "one is free, but not its turn"
        );
        let small = wants(1);
        until_waits(runtime, "SEMAPHORE", 2);
        assert!(!small.is_finished());
        large.cancel();
        small.join().expect("no panic");
        assert!(matches!(large.join(), Err(JoinError::Cancelled)));
        assert!(semaphore.acquire_many_timeout(2, SHORT).is_none());
        drop(one);
        assert_eq!(semaphore.available_permits(), 2);
        semaphore.add_permits(1);
        semaphore.acquire().forget();
        assert_eq!(semaphore.available_permits(), 2);
    });
}

/// Tasks that borrow data and use all primitives: what a user writes first.
#[test]
fn tasks_of_a_scope_share_locks_by_reference() {
    in_all_shapes(|runtime| {
        let total = runtime.run(|| {
            let (sum, most) = (Mutex::new(0), RwLock::new(0));
            let gate = Semaphore::new(2);
            scope(|scope| {
                for number in 0..20_u64 {
                    let (sum, most, gate) = (&sum, &most, &gate);
                    let body = move || {
                        let _permit = gate.acquire();
                        *sum.lock() += number;
                        yield_now();
                        let mut most = most.write();
                        *most = number.max(*most);
                    };
                    scope.spawn(body).expect("inside of a runtime");
                }
            });
            sum.into_inner() + most.into_inner()
        });
        assert_eq!(total.expect("no panic"), 190 + 19);
    });
}

/// A thread that is not a worker waits in the kernel, and gets what it waits for.
#[test]
fn a_thread_outside_waits_for_workers_and_they_for_it() {
    in_all_shapes(|runtime| {
        let mutex = Arc::new(Mutex::new(()));
        let [locked, refused] = [(); 2].map(|()| Arc::new(Event::manual()));
        let (theirs, has_locked, was_refused) = (mutex.clone(), locked.clone(), refused.clone());
        let worker = runtime.spawn(move || {
            let guard = theirs.lock();
            has_locked.set();
            was_refused.wait();
            swtch_fiber::sleep(SHORT);
            drop(guard);
        });
        locked.wait();
        assert!(mutex.lock_timeout(Duration::ZERO).is_none());
        refused.set();
        drop(mutex.lock());
        worker.expect("spawned").join().expect("no panic");
    });
}

/// The mistake is reported with the numbers that led to it, not as an internal overflow.
#[test]
#[should_panic(
    expected = "3 permits cannot be 18446744073709551615 more: 9223372036854775807 is the most"
)]
fn more_permits_than_there_can_be_are_refused_with_the_numbers() {
    Semaphore::new(3).add_permits(usize::MAX);
}

//! The locks: exclusion, no waiter left behind, and each owner sees the writes of the one before.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::check;
use crate::park::Deadline;
use crate::sync::permits::Permits;
use crate::sync::raw_mutex::RawMutex;
use crate::wait_type::WaitType;

/// A value that `loom` watches: it reports two users at a time, and a write that the reader does
/// not see.
struct WatchedValue(UnsafeCell<usize>);

// SAFETY: the models test just this: that the lock lets one at a time reach it.
unsafe impl Sync for WatchedValue {}
// SAFETY: as above.
unsafe impl Send for WatchedValue {}

impl WatchedValue {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn add(&self) {
        // SAFETY: `loom` reports any violation of exclusive access.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn get(&self) -> usize {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }
}

fn mutex(others: &'static [Option<Deadline>], interruptions: usize) {
    check(interruptions, move || {
        let shared = Arc::new((RawMutex::new(), WatchedValue::new()));
        let add = |shared: &(RawMutex, WatchedValue), deadline| {
            let locked = shared.0.lock(deadline);
            if locked {
                shared.1.add();
                shared.0.unlock();
            }
            usize::from(locked)
        };
        let threads: Vec<_> = others
            .iter()
            .map(|deadline| {
                let shared = shared.clone();
                thread::spawn(move || add(&shared, *deadline))
            })
            .collect();
        let mut sum = add(&shared, None) + add(&shared, None);
        for thread in threads {
            sum += thread.join().expect("no panic");
        }
        assert!(shared.0.try_lock(), "it lies open, and nobody is announced");
        assert_eq!(shared.1.get(), sum);
    });
}

/// Two threads that wait without a deadline.
#[test]
fn the_mutex_lets_one_in_and_leaves_nobody() {
    mutex(&[None], 3);
    mutex(&[None, None], 3);
}

/// One thread gives up while it is being woken.
#[test]
fn the_mutex_passes_by_those_who_give_up() {
    mutex(&[Some(Deadline)], 3);
    mutex(&[Some(Deadline), None], 3);
}

fn permits(others: &'static [(usize, Option<Deadline>)], interruptions: usize) {
    check(interruptions, move || {
        let shared = Arc::new((Permits::new(2), WatchedValue::new()));
        let threads: Vec<_> = others
            .iter()
            .map(|(count, deadline)| {
                let shared = shared.clone();
                thread::spawn(move || {
                    if shared.0.acquire(*count, WaitType::EVENT, *deadline) {
                        if *count == 2 {
                            shared.1.add();
                        }
                        shared.0.release(*count);
                    }
                })
            })
            .collect();
        assert!(shared.0.acquire(2, WaitType::EVENT, None));
        shared.1.add();
        shared.0.release(2);
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert!(
            shared.0.try_acquire(2),
            "all are back, and nobody is announced"
        );
    });
}

/// One reader and several writers, as in a read-write lock.
#[test]
fn permits_are_never_two_peoples_and_all_come_back() {
    permits(&[(2, None)], 3);
    permits(&[(1, None), (2, None)], 3);
}

/// The first waiter gives up: those behind it continue.
#[test]
fn permits_of_those_who_give_up_go_to_the_next() {
    permits(&[(2, Some(Deadline))], 3);
    permits(&[(2, Some(Deadline)), (1, None)], 3);
}

/// The first waiter gives up, and the permits that those behind it want were free the whole time.
#[test]
fn a_large_request_that_is_withdrawn_holds_nobody_up() {
    check(3, || {
        let permits = Arc::new(Permits::new(2));
        assert!(permits.acquire(1, WaitType::EVENT, None));
        let (large, small) = (permits.clone(), permits.clone());
        let large = thread::spawn(move || large.acquire(2, WaitType::EVENT, Some(Deadline)));
        let small = thread::spawn(move || small.acquire(1, WaitType::EVENT, None));
        assert!(small.join().expect("no panic"));
        assert!(!large.join().expect("no panic"), "one is in use");
    });
}

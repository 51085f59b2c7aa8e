//! The primitives between threads that are not workers: no scheduler, no assembly. Miri can run
//! these: `cargo +nightly miri test -p swtch-fiber --test sync_outside`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use swtch_fiber::sync::channel::{self, RecvTimeoutError};
use swtch_fiber::sync::{Barrier, Condvar, Event, Mutex, RwLock, Semaphore};
use swtch_fiber::{Elapsed, timeout};

const TURNS: usize = if cfg!(miri) { 20 } else { 2_000 };
const SHORT: Duration = Duration::from_millis(2);

/// Locks hand a value from thread to thread.
#[test]
fn locks_exclude_threads() {
    let (sum, most, gate) = (Mutex::new(0), RwLock::new(0), Semaphore::new(2));
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for turn in 0..TURNS {
                    *sum.lock() += 1;
                    if turn % 4 == 0 {
                        *most.write() += 1;
                    } else {
                        let seen = *most.read();
                        assert!(seen <= 3 * TURNS);
                    }
                    let _permit = gate.acquire();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 3 * TURNS);
    assert_eq!(most.into_inner(), 3 * TURNS.div_ceil(4));
    assert_eq!(gate.available_permits(), 2);
}

/// A waiter that times out leaves a correct line behind.
#[test]
fn threads_give_up_in_time() {
    let (mutex, lock, gate) = (Mutex::new(()), RwLock::new(()), Semaphore::new(0));
    let (guard, reader) = (mutex.lock(), lock.read());
    thread::scope(|scope| {
        scope.spawn(|| assert!(mutex.lock_timeout(SHORT).is_none()));
        scope.spawn(|| assert!(lock.write_timeout(SHORT).is_none()));
        scope.spawn(|| assert!(gate.acquire_timeout(SHORT).is_none()));
        scope.spawn(|| assert_eq!(timeout(SHORT, || gate.acquire().forget()), Err(Elapsed)));
    });
    drop((guard, reader));
    assert!(mutex.try_lock().is_some() && lock.try_write().is_some());
    gate.add_permits(1);
    assert!(gate.try_acquire().is_some());
}

/// Messages own memory, so a lost or doubled one would be detected.
#[test]
fn messages_pass_between_threads() {
    for capacity in [0, 1, usize::MAX] {
        let (sender, receiver) = channel::bounded(capacity);
        assert_eq!(receiver.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
        let received: usize = thread::scope(|scope| {
            for _ in 0..2 {
                let sender = sender.clone();
                scope.spawn(move || {
                    (0..TURNS).for_each(|turn| sender.send(vec![turn]).expect("open"));
                });
            }
            drop(sender);
            let takers = [(); 2].map(|()| scope.spawn(|| receiver.iter().count()));
            takers
                .map(|taker| taker.join().expect("no panic"))
                .iter()
                .sum()
        });
        assert_eq!(received, 2 * TURNS, "capacity {capacity}");
    }
}

/// Threads wake each other by events, conditions and barriers.
#[test]
fn threads_wake_each_other() {
    let (event, barrier) = (Event::automatic(), Barrier::new(2));
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for own in 0..2 {
            let (event, barrier, turn, changed) = (&event, &barrier, &turn, &changed);
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let guard = turn.lock();
                    let mut guard = changed.wait_while(guard, |turn| *turn != own);
                    *guard = 1 - own;
                    changed.notify_all();
                }
                barrier.wait();
                if own == 0 {
                    event.set();
                } else {
                    event.wait();
                }
            });
        }
    });
    assert!(!event.is_set());
}

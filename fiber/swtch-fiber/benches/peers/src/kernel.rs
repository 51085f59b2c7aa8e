//! The kernel's own switches, and those of `std`: threads bound to one CPU.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::protocol::{Meter, serve};

/// `sched_yield` by the only runnable thread: a system call and no switch.
pub fn yields_alone() -> io::Result<()> {
    serve("sched_yield", |operations| {
        let meter = Meter::start();
        for _ in 0..operations {
            thread::yield_now();
        }
        meter.stop(0)
    })
}

/// Two threads that yield to each other.
pub fn yields_pair() -> io::Result<()> {
    serve("sched_yield", |operations| {
        let count = AtomicU64::new(0);
        let yields = || {
            for _ in 0..operations / 2 {
                thread::yield_now();
            }
            count.fetch_add(operations / 2, Ordering::Relaxed);
        };
        let meter = Meter::start();
        thread::scope(|scope| {
            scope.spawn(yields);
            yields();
        });
        meter.stop(count.into_inner())
    })
}

/// Two threads that hand a turn to each other: each sets the other's event and waits on its own, as
/// in a scheduler whose workers are threads.
pub fn futex_pair() -> io::Result<()> {
    serve("futex hand-off", |operations| {
        let turns = [AtomicU32::new(0), AtomicU32::new(0)];
        let handed = AtomicU64::new(0);
        let take_turns = |own: usize| {
            for _ in 0..operations / 2 {
                wait(&turns[own]);
                set(&turns[1 - own]);
            }
            handed.fetch_add(operations / 2, Ordering::Relaxed);
        };
        let meter = Meter::start();
        thread::scope(|scope| {
            scope.spawn(|| take_turns(1));
            set(&turns[0]);
            take_turns(0);
        });
        meter.stop(handed.load(Ordering::Relaxed))
    })
}

/// Threads that end at once, one at a time.
pub fn spawns() -> io::Result<()> {
    let count = Arc::new(AtomicU64::new(0));
    serve("std::thread", |operations| {
        count.store(0, Ordering::Relaxed);
        let meter = Meter::start();
        for _ in 0..operations {
            let count = Arc::clone(&count);
            let thread = thread::spawn(move || count.fetch_add(1, Ordering::Relaxed));
            thread.join().ok();
        }
        meter.stop(count.load(Ordering::Relaxed))
    })
}

/// A mutex that no other thread wants.
pub fn mutex() -> io::Result<()> {
    serve("std::sync::Mutex", |operations| {
        let mutex = Mutex::new(0);
        let add = || mutex.lock().map(|mut value| *value += 1).is_ok();
        let meter = Meter::start();
        for _ in 0..operations {
            add();
        }
        meter.stop(mutex.lock().map_or(0, |value| *value))
    })
}

/// Sets the event and wakes the thread that waits for it.
fn set(event: &AtomicU32) {
    event.store(1, Ordering::Release);
    futex(event, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
}

/// Waits for the event and resets it.
fn wait(event: &AtomicU32) {
    while event.swap(0, Ordering::Acquire) == 0 {
        futex(event, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 0);
    }
}

fn futex(word: &AtomicU32, operation: i32, value: u32) {
    // SAFETY: the word outlives the call, which takes no other pointer: null is "no deadline".
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

//! `may`: stackful coroutines with stealing; here on one worker thread.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use may::coroutine::{self, JoinHandle};

use crate::protocol::{Meter, MeterReading, serve};

/// Two coroutines that yield to each other.
pub fn yields() -> io::Result<()> {
    among(2, coroutine::yield_now)
}

/// A thousand coroutines that yield to each other.
pub fn yields_of_1000() -> io::Result<()> {
    among(1000, coroutine::yield_now)
}

/// Two coroutines that yield to each other five calls deep.
pub fn yields_in_situ() -> io::Result<()> {
    among(2, || yield_below(5))
}

/// Yields from a call depth of `depth`.
#[inline(never)]
fn yield_below(depth: u32) {
    if depth == 1 {
        coroutine::yield_now();
    } else {
        yield_below(depth - 1);
    }
    // Work after the call, so that it is a call and no jump.
    black_box(depth);
}

/// Several coroutines that yield to each other. The meter starts when all have begun.
fn among(tasks: u64, give_way: impl Fn() + Copy + Send + 'static) -> io::Result<()> {
    one_worker();
    serve("may, 1 worker", move |operations| {
        inside(move || {
            let count = Arc::new(AtomicU64::new(0));
            let start = |_| {
                let count = Arc::clone(&count);
                spawn(move || {
                    for _ in 0..operations / tasks {
                        give_way();
                    }
                    count.fetch_add(operations / tasks, Ordering::Relaxed);
                })
            };
            let all: Vec<_> = (0..tasks).map(start).collect();
            coroutine::yield_now();
            let meter = Meter::start();
            for one in all {
                finished(one.join());
            }
            meter.stop(count.load(Ordering::Relaxed))
        })
    })
}

/// Coroutines that end at once, `batch` at a time, joined from the last on.
pub fn spawns(batch: u64) -> io::Result<()> {
    one_worker();
    serve("may, 1 worker", move |operations| {
        inside(move || {
            let count = Arc::new(AtomicU64::new(0));
            let mut started = Vec::new();
            let meter = Meter::start();
            for _ in 0..operations / batch {
                started.extend((0..batch).map(|_| {
                    let count = Arc::clone(&count);
                    spawn(move || {
                        count.fetch_add(1, Ordering::Relaxed);
                    })
                }));
                for one in started.drain(..).rev() {
                    finished(one.join());
                }
            }
            meter.stop(count.load(Ordering::Relaxed))
        })
    })
}

/// A mutex that no other coroutine wants.
pub fn mutex() -> io::Result<()> {
    one_worker();
    serve("may, 1 worker", |operations| {
        inside(move || {
            let mutex = may::sync::Mutex::new(0);
            let meter = Meter::start();
            for _ in 0..operations {
                *finished(mutex.lock()) += 1;
            }
            meter.stop(*finished(mutex.lock()))
        })
    })
}

/// One worker, on the CPU of this process; by itself it would choose CPU 0.
fn one_worker() {
    may::config().set_workers(1).set_worker_pin(false);
}

/// Runs `work` in a coroutine.
fn inside(work: impl FnOnce() -> MeterReading + Send + 'static) -> MeterReading {
    finished(spawn(work).join())
}

fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // SAFETY: the closures of this file use little of their stack, and keep no reference to a
    // thread-local over a yield; there is one worker, so none moves to another thread either.
    unsafe { coroutine::spawn(work) }
}

/// The value of a result that cannot be an error here: no coroutine of this file panics.
fn finished<T, E>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|_| unreachable!("a coroutine panicked"))
}

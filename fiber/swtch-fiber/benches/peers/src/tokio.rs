//! `tokio`: stackless tasks, on the thread that blocks on them or on one worker thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinError, yield_now};

use crate::protocol::{Meter, MeterReading, serve};

/// All tasks run on the thread that waits for them.
pub fn current_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().build()
}

/// One worker thread, with the machinery for several.
pub fn one_worker() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).build()
}

/// Several tasks that yield to each other. The meter starts when all have begun.
pub fn yields(runtime: &Runtime, tasks: u64) -> io::Result<()> {
    serve("tokio", |operations| {
        inside(runtime, async move {
            let count = Arc::new(AtomicU64::new(0));
            let start = |_| {
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    for _ in 0..operations / tasks {
                        yield_now().await;
                    }
                    count.fetch_add(operations / tasks, Ordering::Relaxed);
                })
            };
            let all: Vec<_> = (0..tasks).map(start).collect();
            yield_now().await;
            let meter = Meter::start();
            for one in all {
                finished(one.await);
            }
            meter.stop(count.load(Ordering::Relaxed))
        })
    })
}

/// Tasks that end at once, `batch` at a time, joined from the last on.
pub fn spawns(runtime: &Runtime, batch: u64) -> io::Result<()> {
    serve("tokio", |operations| {
        inside(runtime, async move {
            let count = Arc::new(AtomicU64::new(0));
            let mut started = Vec::new();
            let meter = Meter::start();
            for _ in 0..operations / batch {
                started.extend((0..batch).map(|_| {
                    let count = Arc::clone(&count);
                    tokio::spawn(async move {
                        count.fetch_add(1, Ordering::Relaxed);
                    })
                }));
                for one in started.drain(..).rev() {
                    finished(one.await);
                }
            }
            meter.stop(count.load(Ordering::Relaxed))
        })
    })
}

/// A mutex that no other task wants.
pub fn mutex(runtime: &Runtime) -> io::Result<()> {
    serve("tokio", |operations| {
        inside(runtime, async move {
            let mutex = tokio::sync::Mutex::new(0);
            let meter = Meter::start();
            for _ in 0..operations {
                *mutex.lock().await += 1;
            }
            meter.stop(*mutex.lock().await)
        })
    })
}

/// Runs `work` as a task, beside those that it starts.
fn inside(
    runtime: &Runtime,
    work: impl Future<Output = MeterReading> + Send + 'static,
) -> MeterReading {
    finished(runtime.block_on(runtime.spawn(work)))
}

/// Returns what came of a task of this file: none panics, none is cancelled.
fn finished<T>(result: Result<T, JoinError>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

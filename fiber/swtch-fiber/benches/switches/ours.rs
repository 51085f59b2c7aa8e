//! The arms of this crate: each does the same as its peers, by the public interface.

use std::fmt::Display;
use std::hint::black_box;
use std::io;
use std::time::Duration;

use swtch_fiber::sync::Mutex;
use swtch_fiber::{JoinHandle, Mode, Runtime, check_quantum, yield_now};

use crate::protocol::{Meter, MeterReading, serve as speak};

/// Calls between the loop and the yield, for the arms with calls in between.
const DEPTH: u32 = 5;

/// A time span longer than any benchmark.
const A_DAY: Duration = Duration::from_secs(86_400);

/// Says whether clocks are read and times are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accounting {
    On,
    Off,
}

/// Serves `arm` until stdin ends.
pub fn serve(arm: &str) -> io::Result<()> {
    let fiber = |accounting| runtime(Mode::Fiber, accounting);
    match arm {
        "swtch-yield" | "swtch-yield-again" => pair(&fiber(Accounting::On)?, yield_now),
        "swtch-yield-in-situ" => pair(&fiber(Accounting::On)?, || yield_below(DEPTH)),
        "swtch-yield-beside-a-sleeper" => beside_a_sleeper(&fiber(Accounting::On)?),
        "swtch-yield-no-accounting" => pair(&fiber(Accounting::Off)?, yield_now),
        "swtch-yield-no-accounting-in-situ" => {
            pair(&fiber(Accounting::Off)?, || yield_below(DEPTH))
        }
        "swtch-yield-alone" => alone(&fiber(Accounting::On)?, yield_now),
        "swtch-check-quantum" => alone(&fiber(Accounting::On)?, || {
            black_box(check_quantum());
        }),
        "swtch-yield-1000" => among(&fiber(Accounting::On)?, 1000, yield_now),
        "swtch-thread-mode" => pair(&runtime(Mode::Thread, Accounting::On)?, yield_now),
        "swtch-spawn" => spawns(&fiber(Accounting::On)?, 1),
        "swtch-spawn-64" => spawns(&fiber(Accounting::On)?, 64),
        "swtch-mutex" => mutex(&fiber(Accounting::On)?),
        _ => Err(io::Error::other(format!("there is no arm {arm:?}"))),
    }
}

fn runtime(mode: Mode, accounting: Accounting) -> io::Result<Runtime> {
    Runtime::builder()
        .schedulers(1)
        .mode(mode)
        .accounting(accounting == Accounting::On)
        .build()
        .map_err(io::Error::other)
}

/// Two tasks that yield to each other.
fn pair(runtime: &Runtime, give_way: impl Fn() + Copy + Send + 'static) -> io::Result<()> {
    among(runtime, 2, give_way)
}

/// Several tasks that yield to each other. The meter starts when all have begun.
fn among(
    runtime: &Runtime,
    tasks: u64,
    give_way: impl Fn() + Copy + Send + 'static,
) -> io::Result<()> {
    blocks(runtime, move |operations| {
        let one = move || repeat(operations / tasks, give_way);
        let all: Vec<_> = (0..tasks).map(|_| spawn(one)).collect();
        yield_now();
        let meter = Meter::start();
        let count = all.into_iter().map(|task| finished(task.join())).sum();
        meter.stop(count)
    })
}

/// The same while a third task waits for a deadline that never comes, which costs no clock reading.
fn beside_a_sleeper(runtime: &Runtime) -> io::Result<()> {
    let sleeper = runtime.spawn(|| swtch_fiber::sleep(A_DAY));
    let sleeper = sleeper.map_err(io::Error::other)?;
    let served = pair(runtime, yield_now);
    sleeper.cancel();
    served
}

/// One task that yields, without any other.
fn alone(runtime: &Runtime, give_way: impl Fn() + Copy + Send + 'static) -> io::Result<()> {
    blocks(runtime, move |operations| {
        let meter = Meter::start();
        meter.stop(repeat(operations, give_way))
    })
}

/// Tasks that end at once, `batch` at a time. The last is joined first: then the others have ended,
/// and no time is spent on waking the task that joins.
fn spawns(runtime: &Runtime, batch: u64) -> io::Result<()> {
    blocks(runtime, move |operations| {
        let mut started = Vec::new();
        let mut count = 0;
        let meter = Meter::start();
        for _ in 0..operations / batch {
            started.extend((0..batch).map(|_| spawn(|| black_box(1))));
            count += started
                .drain(..)
                .rev()
                .map(|task| finished(task.join()))
                .sum::<u64>();
        }
        meter.stop(count)
    })
}

/// A mutex that no other task wants.
fn mutex(runtime: &Runtime) -> io::Result<()> {
    blocks(runtime, |operations| {
        let mutex = Mutex::new(0);
        let meter = Meter::start();
        repeat(operations, || *mutex.lock() += 1);
        let count = *mutex.lock();
        meter.stop(count)
    })
}

/// Runs the blocks of an arm in a worker.
fn blocks(
    runtime: &Runtime,
    block: impl Fn(u64) -> MeterReading + Copy + Send + 'static,
) -> io::Result<()> {
    speak("swtch-fiber", |operations| {
        finished(runtime.run(move || block(operations)))
    })
}

/// Starts a task in the runtime of the caller.
fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    finished(swtch_fiber::spawn(body))
}

/// The value of a result that cannot be an error here: no task of this file panics or is cancelled.
fn finished<T>(result: Result<T, impl Display>) -> T {
    result.unwrap_or_else(|error| unreachable!("{error}"))
}

/// Calls `what` the given number of times, and counts.
fn repeat(times: u64, what: impl Fn()) -> u64 {
    let mut count = 0;
    for _ in 0..times {
        what();
        count += 1;
    }
    count
}

/// Yields from a call depth of `depth` below the loop.
#[inline(never)]
fn yield_below(depth: u32) {
    if depth == 1 {
        yield_now();
    } else {
        yield_below(depth - 1);
    }
    // Work after the call, so that it is a call and no jump.
    black_box(depth);
}

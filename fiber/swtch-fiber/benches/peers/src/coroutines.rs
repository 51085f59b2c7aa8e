//! Bare coroutines: the base of any scheduler that is built on `corosensei`, also of ours.

use std::cell::Cell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::io;
use std::rc::Rc;

use corosensei::{Coroutine, Yielder};

use crate::protocol::{Meter, serve};

/// Calls between the loop and the suspension, for the arms with calls in between.
const DEPTH: u32 = 5;

type Task = Coroutine<(), (), ()>;

/// One coroutine, resumed and suspended in turn: an operation is both transfers.
pub fn bare() -> io::Result<()> {
    resumed("corosensei, one coroutine", |yielder| yielder.suspend(()))
}

/// One coroutine that suspends five calls below the loop. Calls that return after a switch are
/// mispredicted, which a loop that suspends in its own body hides.
pub fn in_situ() -> io::Result<()> {
    resumed("corosensei, suspends five calls deep", |yielder| {
        suspend_below(yielder, DEPTH);
    })
}

fn resumed(about: &str, suspend: impl Fn(&Yielder<(), ()>) + 'static) -> io::Result<()> {
    let count = Rc::new(Cell::new(0));
    let mut task = counting(&count, suspend);
    serve(about, move |operations| {
        count.set(0);
        let meter = Meter::start();
        for _ in 0..operations {
            task.resume(());
        }
        meter.stop(count.get())
    })
}

/// Two coroutines that go through a run queue: the least work that a scheduler has to do.
pub fn ring() -> io::Result<()> {
    queued("corosensei, two through a queue", |yielder| {
        yielder.suspend(());
    })
}

/// Two coroutines that go through a run queue and suspend five calls deep.
pub fn ring_in_situ() -> io::Result<()> {
    queued(
        "corosensei, two through a queue, five calls deep",
        |yielder| {
            suspend_below(yielder, DEPTH);
        },
    )
}

fn queued(about: &str, suspend: impl Fn(&Yielder<(), ()>) + Copy + 'static) -> io::Result<()> {
    let count = Rc::new(Cell::new(0));
    let tasks = [0, 1].map(|_| Box::new(counting(&count, suspend)));
    let mut runnable = VecDeque::from(tasks);
    serve(about, move |operations| {
        count.set(0);
        let meter = Meter::start();
        for _ in 0..operations {
            if let Some(mut task) = runnable.pop_front() {
                task.resume(());
                runnable.push_back(task);
            }
        }
        meter.stop(count.get())
    })
}

/// A coroutine that counts each time it runs, for ever.
fn counting(count: &Rc<Cell<u64>>, suspend: impl Fn(&Yielder<(), ()>) + 'static) -> Task {
    let count = Rc::clone(count);
    Task::new(move |yielder, ()| {
        loop {
            count.set(count.get() + 1);
            suspend(yielder);
        }
    })
}

/// Suspends from a call depth of `depth`.
#[inline(never)]
fn suspend_below(yielder: &Yielder<(), ()>, depth: u32) {
    if depth == 1 {
        yielder.suspend(());
    } else {
        suspend_below(yielder, depth - 1);
    }
    // Work after the call, so that it is a call and no jump.
    black_box(depth);
}

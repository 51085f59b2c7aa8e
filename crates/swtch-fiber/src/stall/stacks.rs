//! Where the stacks of workers lie, for the monitor.
//!
//! What a worker owns is known to the holder of its scheduler only, and a scheduler that stalls
//! cannot be asked. So whoever makes a worker notes its stack here, under the worker's number.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::page::WORKERS;

struct Place {
    low: AtomicUsize,
    high: AtomicUsize,
}

/// Takes memory only as far as there are workers: pages of zeros that nobody touched.
static PLACES: [Place; WORKERS as usize] = [const {
    Place {
        low: AtomicUsize::new(0),
        high: AtomicUsize::new(0),
    }
}; WORKERS as usize];

/// Notes the stack of a worker that is being made.
pub(crate) fn note(worker: u32, stack: Range<usize>) {
    let place = &PLACES[worker as usize];
    place.low.store(stack.start, Ordering::Relaxed);
    place.high.store(stack.end, Ordering::Relaxed);
}

/// The stack of a worker; empty when none was noted. Its memory may be gone meanwhile.
pub(super) fn of(worker: u32) -> Range<usize> {
    let place = &PLACES[worker as usize];
    place.low.load(Ordering::Relaxed)..place.high.load(Ordering::Relaxed)
}

//! Yield points: where a worker lets others run.
//!
//! All of the way from here to the suspension is inlined into the caller. A function that suspends
//! and returns afterwards returns to an address that the processor did not predict, because the calls
//! it remembers are the scheduler's by then: 20 ns here (AMD EPYC), as much as all the rest of a
//! switch, and the same for one function as for five.

use std::sync::atomic::Ordering;

use crate::worker;

/// Lets other runnable workers of this scheduler run first. Where there are none the worker goes on
/// at once: that counts as a yield, not as a context switch.
///
/// A thread that is no worker yields to the kernel's other threads.
#[inline(always)]
pub fn yield_now() {
    match worker::current().and_then(|cell| Some((cell, cell.scheduler()?))) {
        Some((cell, scheduler)) => scheduler.yield_now(cell),
        None => std::thread::yield_now(),
    }
}

/// Yields if the worker's quantum is over; else costs a load. For loops that wait for nothing.
///
/// Does nothing on a thread that is no worker. Returns whether it yielded.
#[inline(always)]
pub fn check_quantum() -> bool {
    let Some((cell, scheduler)) =
        worker::current().and_then(|cell| Some((cell, cell.scheduler()?)))
    else {
        return false;
    };
    if !scheduler.need_yield.load(Ordering::Relaxed) {
        return false;
    }
    scheduler.yield_now(cell);
    true
}

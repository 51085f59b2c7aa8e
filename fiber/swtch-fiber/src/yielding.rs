//! Yield points, at which a worker lets others run.
//!
//! The whole path from here to the suspension is inlined into the caller. The processor predicts
//! returns from the calls that it remembers, and after a suspension those are the scheduler's. A
//! function that suspends and then returns is therefore mispredicted: 20 ns here (AMD EPYC), as
//! much as the rest of a switch, and the same for one function as for five.

use std::sync::atomic::Ordering;

use crate::scheduler::worker::{self, WorkerCell};
use crate::scheduler::{LeaveKind, Scheduler};
use crate::{park, switch};

/// Lets other runnable workers of this scheduler run first. If there are none, the worker continues
/// at once: that counts as a yield, not as a context switch.
///
/// A thread that is not a worker yields to the kernel's other threads.
#[inline(always)]
pub fn yield_now() {
    match worker::current().and_then(|cell| Some((cell, cell.scheduler()?))) {
        Some((cell, scheduler)) => yield_to_others(scheduler, cell),
        None => std::thread::yield_now(),
    }
}

/// Yields if the worker's quantum is over; otherwise it costs one load. For loops that never wait.
///
/// Returns whether it yielded. Does nothing on a thread that is not a worker.
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
    yield_to_others(scheduler, cell);
    true
}

#[inline(always)]
fn yield_to_others(scheduler: &'static Scheduler, cell: &'static WorkerCell) {
    if !scheduler.reselects(cell) {
        switch::leave(scheduler, cell, LeaveKind::Yield);
    }
    // Checked after the yield, so that a task that was cancelled while runnable ends when it is
    // chosen.
    park::unwind_if_cancelled(cell);
}

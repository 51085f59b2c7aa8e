//! Lets a worker leave its scheduler and come back, in either mode: as a coroutine ([`fiber`]) or as a thread
//! ([`baton`]).

use crate::page::ThreadSlot;
use crate::scheduler::worker::WorkerCell;
use crate::scheduler::{AttachWorker, LeaveKind, Mode, Scheduler};
use crate::{baton, fiber, fork};

/// Gives the scheduler to other workers until the calling worker is chosen again.
#[inline(always)]
pub(crate) fn leave(scheduler: &'static Scheduler, cell: &'static WorkerCell, kind: LeaveKind) {
    fork::refuse_in_child();
    // SAFETY: the calling worker holds the scheduler: only a worker that runs leaves it.
    match unsafe { scheduler.group() }.settings.mode {
        Mode::Fiber => fiber::leave(cell, kind),
        Mode::Thread => baton::leave(scheduler, cell, kind),
    }
}

/// Runs a scheduler on the calling thread, which holds it, until it has ended.
pub(crate) fn run(scheduler: &'static Scheduler, thread: &ThreadSlot) {
    // SAFETY: the calling thread holds the scheduler.
    match unsafe { scheduler.group() }.settings.mode {
        Mode::Fiber => fiber::run(scheduler, thread),
        Mode::Thread => baton::run(scheduler, thread),
    }
}

/// The function that gives a new worker its stack or its thread.
pub(crate) fn attach_worker(mode: Mode) -> AttachWorker {
    match mode {
        Mode::Fiber => fiber::attach_stack,
        Mode::Thread => baton::start_worker,
    }
}

//! The one way to block: a worker waits without blocking its thread. Exactly one of signal,
//! deadline and cancellation ends the wait.
//!
//! ```text
//! let waiter = park::prepare(WaitType::EVENT, resource);  // armed: a signal may come from here on
//! queue.push(waiter);                                      // the resource owns its waiters
//! if condition_holds_after_all { park::withdraw(waiter) }  // … or
//! match park::wait(waiter, deadline) { … }                 // others run meanwhile
//! ```
//!
//! Threads that are not workers may wait as well: they sleep in the kernel.

use std::panic::resume_unwind;
use std::sync::atomic::Ordering;
use std::time::Duration;

use swtch_observe::clock;

use crate::scheduler::worker::{self, Phase, WorkerCell};
pub(crate) use crate::scheduler::{Deadline, Limit, Waiter};
use crate::scheduler::{LeaveKind, Scheduler};
use crate::wait_type::WaitType;
use crate::{fork, futex, switch};

/// The way in which a wait ended. A wait that was cancelled does not return: it unwinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum WaitOutcome {
    /// The resource signalled the waiter.
    Signalled,
    /// The deadline passed before a signal came.
    TimedOut,
}

/// The panic payload that unwinds the stack of a cancelled task.
#[derive(Debug)]
pub(crate) struct Cancelled;

/// The panic payload that unwinds the stack as far as the [`timeout`](crate::timeout) with this
/// number.
#[derive(Debug)]
pub(crate) struct Expired {
    pub(crate) number: u64,
}

thread_local! {
    /// The control block by which this thread waits, if it is not a worker.
    static OUTSIDER: OutsideThread = OutsideThread(WorkerCell::take(None));
}

#[derive(Debug)]
struct OutsideThread(&'static WorkerCell);

impl Drop for OutsideThread {
    fn drop(&mut self) {
        // SAFETY: the thread of this block ends, and so does not wait.
        unsafe { self.0.recycle() };
    }
}

/// Begins a wait of the calling worker or thread. Follow it by [`wait`] or [`withdraw`].
///
/// `resource` is shown by the views as the wait object: usually the address of the primitive.
pub(crate) fn prepare(wait_type: WaitType, resource: usize) -> Waiter {
    begin(wait_type, resource, false)
}

/// As [`prepare`], for a wait that is not ended by cancelling the task.
pub(crate) fn prepare_uncancellable(wait_type: WaitType, resource: usize) -> Waiter {
    begin(wait_type, resource, true)
}

fn begin(wait_type: WaitType, resource: usize, uncancellable: bool) -> Waiter {
    // A stack that unwinds already is not made to unwind again.
    let uncancellable = uncancellable || std::thread::panicking();
    let Some(cell) = worker::current() else {
        return Waiter::arm(OUTSIDER.with(|outsider| outsider.0), uncancellable);
    };
    // SAFETY: the calling worker runs.
    let own = unsafe { cell.own() };
    own.wait_type = wait_type;
    if let Some(slot) = &own.slot {
        slot.record
            .wait_resource
            .store(resource as u64, Ordering::Relaxed);
    }
    Waiter::arm(cell, uncancellable)
}

/// Replaces the limit of the calling worker's (or thread's) waits. Returns the previous one.
pub(crate) fn replace_limit(limit: Option<Limit>) -> Option<Limit> {
    let cell = worker::current().unwrap_or_else(|| OUTSIDER.with(|outsider| outsider.0));
    // SAFETY: the calling worker runs, or the block stands for the calling thread.
    std::mem::replace(&mut unsafe { cell.own() }.limit, limit)
}

/// The limit of the present wait, if it comes before `deadline`.
fn limit_before(cell: &WorkerCell, deadline: Option<Deadline>) -> Option<Limit> {
    // SAFETY: the calling worker runs, or the block stands for the calling thread.
    let limit = unsafe { cell.own() }.limit?;
    let first = deadline.is_none_or(|deadline| limit.deadline < deadline);
    (first && !cell.wait.is_uncancellable()).then_some(limit)
}

/// Waits until `waiter` is signalled or `deadline` has passed.
///
/// Unwinds when the task is cancelled, or when a timeout around the wait has passed.
pub(crate) fn wait(waiter: Waiter, deadline: Option<Deadline>) -> WaitOutcome {
    let cell = waiter.cell();
    let limit = limit_before(cell, deadline);
    let deadline = limit.map(|limit| limit.deadline).or(deadline);
    if deadline.is_none() {
        cell.wait.has_no_deadline();
    }
    if let Some(scheduler) = cell.scheduler() {
        if !cell.wait.is_uncancellable()
            && cancellation_wanted(cell)
            && waiter.decide(Phase::Cancelled)
        {
            resume_unwind(Box::new(Cancelled));
        }
        if let Some(deadline) = deadline {
            scheduler.add_timer(deadline, waiter);
        }
        switch::leave(scheduler, cell, LeaveKind::Suspend);
    } else {
        wait_in_kernel(waiter, deadline);
    }
    match cell.wait.phase() {
        Phase::Signalled => WaitOutcome::Signalled,
        Phase::TimedOut => match limit {
            Some(Limit { number, .. }) => resume_unwind(Box::new(Expired { number })),
            None => WaitOutcome::TimedOut,
        },
        Phase::Cancelled => resume_unwind(Box::new(Cancelled)),
        Phase::AtWork | Phase::Armed => unreachable!("nobody runs before its wait is decided"),
    }
}

/// Ends a wait that was prepared and is not needed. False when it was signalled already: then the
/// caller owns what the signal stands for.
#[must_use]
pub(crate) fn withdraw(waiter: Waiter) -> bool {
    if waiter.decide(Phase::AtWork) {
        return true;
    }
    // The signaller puts this worker into the inbox, so it has to be taken out again.
    if waiter.cell().scheduler().is_some() {
        let _signalled = wait(waiter, None);
    }
    false
}

/// Returns true if the task was asked to end. False while it unwinds: it is not made to unwind again.
#[inline(always)]
fn cancellation_wanted(cell: &WorkerCell) -> bool {
    // SAFETY: the calling worker runs.
    let own = unsafe { cell.own() };
    // SAFETY: set while the task runs, which keeps the flag alive.
    let asked = unsafe { own.cancel.as_ref() }.is_some_and(|flag| flag.load(Ordering::SeqCst));
    asked && !std::thread::panicking()
}

/// Unwinds when the calling worker's task is cancelled, or a timeout around it has passed.
#[inline(always)]
pub(crate) fn unwind_if_cancelled(cell: &WorkerCell) {
    if cancellation_wanted(cell) {
        resume_unwind(Box::new(Cancelled));
    }
    // SAFETY: the calling worker runs.
    if let Some(limit) = unsafe { cell.own() }.limit {
        unwind_if_over(limit);
    }
}

#[cold]
fn unwind_if_over(limit: Limit) {
    let is_over = limit.deadline.monotonic_ns <= clock::monotonic_ns();
    if is_over && !std::thread::panicking() {
        let number = limit.number;
        resume_unwind(Box::new(Expired { number }));
    }
}

fn wait_in_kernel(waiter: Waiter, deadline: Option<Deadline>) {
    fork::refuse_in_child();
    while waiter.is_open() {
        let left = deadline.map(|deadline| {
            Duration::from_nanos(deadline.monotonic_ns.saturating_sub(clock::monotonic_ns()))
        });
        if left.is_some_and(|left| left.is_zero()) {
            // If this fails, a signal came first, and then the signal counts.
            let _won = waiter.decide(Phase::TimedOut);
            return;
        }
        let bell = &waiter.cell().bell;
        if bell.swap(0, Ordering::Acquire) == 0 {
            futex::wait(bell, 0, left);
        }
    }
}

/// A wait that has been decided. The owner of this value has to wake the worker.
#[derive(Debug)]
#[must_use = "the worker sleeps until it is woken"]
pub(crate) struct PendingWake {
    cell: &'static WorkerCell,
    /// Read before the wait was decided. After that a thread that is not a worker may continue and
    /// end, and its block may belong to a worker by the time of the wake.
    scheduler: Option<&'static Scheduler>,
}

impl PendingWake {
    /// Makes the worker runnable, or wakes the thread.
    pub(crate) fn wake(self) {
        match self.scheduler {
            Some(scheduler) => scheduler.wake(self.cell),
            None => {
                self.cell.bell.store(1, Ordering::Release);
                futex::wake(&self.cell.bell);
            }
        }
    }
}

impl Waiter {
    /// Ends the wait and makes the worker runnable. False when the wait had ended already: then the
    /// caller must offer the resource to another waiter.
    pub(crate) fn signal(self) -> bool {
        self.end(Phase::Signalled)
    }

    /// Ends the wait as [`signal`](Self::signal) does, but leaves the wakeup for later: for callers
    /// that hold the lock of a resource. `None` when the wait had ended already.
    ///
    /// A thread that is not a worker may run from here on; a worker does not run before
    /// [`PendingWake::wake`].
    pub(crate) fn claim(self) -> Option<PendingWake> {
        self.claim_as(Phase::Signalled)
    }

    /// Ends the wait because its deadline has passed, or its task was cancelled.
    pub(crate) fn end(self, phase: Phase) -> bool {
        self.claim_as(phase).map(PendingWake::wake).is_some()
    }

    fn claim_as(self, phase: Phase) -> Option<PendingWake> {
        let cell = self.cell();
        let scheduler = cell.scheduler();
        let decided = self.decide(phase);
        decided.then_some(PendingWake { cell, scheduler })
    }
}

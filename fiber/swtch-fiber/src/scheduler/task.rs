//! Tasks as schedulers know them: a closure without its types, which waits for a worker or has one.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::JoinError;
use crate::pair::PairOwner;

/// The next id of a task: from 1, never reused in this process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Reserves ids for the next tasks of one spawner.
pub(crate) fn fresh_ids(count: u64) -> Range<u64> {
    let first = NEXT_ID.fetch_add(count, Ordering::Relaxed);
    first..first + count
}

/// A task that waits for a worker.
pub(crate) struct Task {
    pub(crate) id: u64,
    /// The task that has started it; 0 for none.
    pub(crate) parent: u64,
    pub(crate) name: Option<Arc<str>>,
    /// When it came into the queue; 0 where times are not kept.
    pub(crate) queued_ticks: u64,
    /// It was asked to run on one scheduler: no other may steal it.
    pub(crate) placed: bool,
    pub(crate) closure: PairOwner<dyn ErasedClosure>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Task")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A closure with its result, without their types.
pub(crate) trait ErasedClosure: Send + Sync {
    /// Runs the closure on the calling worker, unless the task was cancelled before; never unwinds.
    ///
    /// # Safety
    /// Called once at most, and not after [`ErasedClosure::abandon`].
    unsafe fn run(&self);
    /// Ends the task without running it.
    ///
    /// # Safety
    /// Called once at most, and not after [`ErasedClosure::run`].
    unsafe fn abandon(&self, why: JoinError);
    /// Asks the task to end: at its next wait, or out of the present one.
    fn cancel(&self);
}

/// A task that has a worker. The worker's record has its id and name, so this can be small.
pub(crate) struct BoundTask(PairOwner<dyn ErasedClosure>);

impl std::fmt::Debug for BoundTask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("BoundTask")
    }
}

impl BoundTask {
    /// Runs the task on the calling worker, until it ends.
    pub(crate) fn run(self) {
        // SAFETY: `self` is the scheduler's owner of the task (the other is the handle), and gone afterwards: neither is
        // called again.
        unsafe { self.0.run() };
        self.drop_owner();
    }

    /// Drops this owner. If the handle is gone, too, that drops the result, whose destructor is the program's code, and may
    /// panic.
    fn drop_owner(self) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(self.0))) {
            // Dropping a payload could panic again, without end, so it is leaked.
            std::mem::forget(payload);
        }
    }

    /// Asks the task to end before it begins.
    pub(crate) fn cancel(&self) {
        self.0.cancel();
    }
}

impl Task {
    /// Converts a task that has got its worker.
    pub(crate) fn bound(self) -> BoundTask {
        BoundTask(self.closure)
    }

    /// Ends the task without running it.
    pub(crate) fn abandon(self, why: JoinError) {
        // SAFETY: as in `BoundTask::run`.
        unsafe { self.closure.abandon(why) };
        self.bound().drop_owner();
    }
}

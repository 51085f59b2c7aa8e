//! The waiters of one resource, first come, first served. The resource owns them, not the
//! scheduler.
//!
//! ```text
//! waiter:     push, length = n │ fence │ ready after all? ─ no ─▶ wait
//! signaller:  make it ready    │ fence │ length?  ─ not 0 ─▶ signal
//! ```
//!
//! Whichever fence comes first in their total order, either the waiter sees that the resource is
//! ready, or the signaller sees that there is a waiter.

use crate::atomics::{AtomicUsize, Mutex, MutexGuard, Ordering, const_new, fence, lock};
use crate::park::{self, Deadline, WaitOutcome, Waiter};
use crate::sync::line::{WaiterLine, wait_in_line};
use crate::wait_type::WaitType;

/// A queue of waits. The lock is held for a few instructions, never over a switch.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    /// Length of the queue: a thread that reads 0 need not take the lock.
    length: AtomicUsize,
    line: Mutex<WaiterLine<()>>,
}

/// Says whether cancelling the task ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelling {
    Ends,
    Waits,
}

impl WaitQueue {
    const_new! {
        pub(crate) fn new() -> Self {
            Self {
                length: AtomicUsize::new(0),
                line: Mutex::new(WaiterLine::new()),
            }
        }
    }

    /// Waits until `is_ready`, which must become true before [`signal_all`](Self::signal_all) or
    /// [`signal_one`](Self::signal_one) is called. `resource` is shown by the views as the wait
    /// object.
    pub(crate) fn wait_until(
        &self,
        (wait_type, resource): (WaitType, usize),
        deadline: Option<Deadline>,
        cancelling: Cancelling,
        mut is_ready: impl FnMut() -> bool,
    ) -> WaitOutcome {
        while !is_ready() {
            let waiter = match cancelling {
                Cancelling::Ends => park::prepare(wait_type, resource),
                Cancelling::Waits => park::prepare_uncancellable(wait_type, resource),
            };
            self.push(waiter);
            // A thread that made it ready before `push` found no waiter to signal.
            if is_ready() {
                self.remove(waiter);
                if !park::withdraw(waiter) {
                    // The signal was not needed here, so pass it on to another waiter.
                    self.signal_one();
                }
                return WaitOutcome::Signalled;
            }
            let leave = || self.remove(waiter);
            if wait_in_line(waiter, deadline, leave) == WaitOutcome::TimedOut {
                return WaitOutcome::TimedOut;
            }
        }
        WaitOutcome::Signalled
    }

    /// Adds a waiter at the end. If a signal misses the waiter, the resource was ready before, and
    /// the caller sees that after this call.
    pub(crate) fn push(&self, waiter: Waiter) {
        {
            let mut line = lock(&self.line);
            line.push_back(waiter, ());
            self.measure(&line);
        }
        fence(Ordering::SeqCst);
    }

    /// Removes a waiter, wherever it stands in the queue. False when it was not there any more.
    pub(crate) fn remove(&self, waiter: Waiter) -> bool {
        let mut line = lock(&self.line);
        let was_there = line.remove(waiter).is_some();
        self.measure(&line);
        was_there
    }

    /// Wakes the first waiter that still waits. False when there was none.
    pub(crate) fn signal_one(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut line = lock(&self.line);
        let mut claim = None;
        while let Some(first) = line.pop() {
            claim = first.waiter.claim();
            if claim.is_some() {
                break;
            }
        }
        self.unlock(line);
        claim.map(park::PendingWake::wake).is_some()
    }

    /// Wakes all waiters that wait now.
    pub(crate) fn signal_all(&self) {
        if self.is_empty() {
            return;
        }
        let mut line = lock(&self.line);
        let claims = line.claim_all();
        *line = WaiterLine::new();
        self.unlock(line);
        claims.wake();
    }

    /// True if the queue is empty. The fence orders this load after the caller's store that made
    /// the resource ready.
    fn is_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.length.load(Ordering::Relaxed) == 0
    }

    fn measure(&self, line: &WaiterLine<()>) {
        self.length.store(line.len(), Ordering::Relaxed);
    }

    fn unlock(&self, line: MutexGuard<'_, WaiterLine<()>>) {
        self.measure(&line);
    }
}

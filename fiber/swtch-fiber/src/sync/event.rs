//! An event, which workers can wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::park::{self, Deadline, WaitOutcome};
use crate::sync::line::{Claims, WaiterLine, wait_in_line};
use crate::wait_type::WaitType;

/// An event that is set or not. Waiting for a set event returns at once.
///
/// A *manual* event stays set until [`reset`](Self::reset), and lets all waiters continue. An
/// *automatic* one lets one waiter continue for each [`set`](Self::set), the one that has waited
/// longest; without a waiter it stays set for the first one that comes. (These are the terms of
/// Windows, and of SQLOS.)
#[derive(Debug)]
pub struct Event {
    automatic: bool,
    is_set: AtomicBool,
    line: Mutex<WaiterLine<()>>,
}

impl Event {
    /// A manual event, which is not set yet.
    #[must_use]
    pub const fn manual() -> Self {
        Self::new(false)
    }

    /// An automatic event, which is not set yet. The waiter that continues resets it.
    #[must_use]
    pub const fn automatic() -> Self {
        Self::new(true)
    }

    const fn new(automatic: bool) -> Self {
        Self {
            automatic,
            is_set: AtomicBool::new(false),
            line: Mutex::new(WaiterLine::new()),
        }
    }

    /// Sets the event. All present waiters continue, or the first one, also if it is reset before
    /// they run.
    pub fn set(&self) {
        let mut claims = Claims::default();
        {
            let mut line = self.lock();
            while let Some(first) = line.pop() {
                if let Some(claim) = first.waiter.claim() {
                    claims.add(claim);
                    if self.automatic {
                        break;
                    }
                }
            }
            if !self.automatic || claims.is_empty() {
                self.is_set.store(true, Ordering::Release);
            }
        }
        claims.wake();
    }

    /// Resets the event: from now on waiters wait.
    pub fn reset(&self) {
        self.is_set.store(false, Ordering::Relaxed);
    }

    /// Returns true if the event is set at this moment.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Waits until the event is set.
    pub fn wait(&self) {
        let happened = self.wait_until(None);
        debug_assert!(happened, "without a deadline nothing times out");
    }

    /// Waits until the event is set, at most for `span`. Returns whether it was set.
    #[must_use]
    pub fn wait_timeout(&self, span: Duration) -> bool {
        self.take() || self.wait_until(Some(Deadline::after(span)))
    }

    fn wait_until(&self, deadline: Option<Deadline>) -> bool {
        if self.take() {
            return true;
        }
        let waiter = {
            let mut line = self.lock();
            if self.take() {
                return true;
            }
            let waiter = park::prepare(WaitType::EVENT, std::ptr::from_ref(self).addr());
            line.push_back(waiter, ());
            waiter
        };
        let leave = || self.lock().remove(waiter);
        wait_in_line(waiter, deadline, leave) == WaitOutcome::Signalled
    }

    /// Returns true if it is set; an automatic event is reset by this.
    fn take(&self) -> bool {
        if self.automatic {
            let order = (Ordering::Acquire, Ordering::Relaxed);
            let taken = self.is_set.compare_exchange(true, false, order.0, order.1);
            return taken.is_ok();
        }
        self.is_set()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, WaiterLine<()>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

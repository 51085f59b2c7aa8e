//! A condition variable: waiting for a change of a mutex's value.

use std::time::{Duration, Instant};

use crate::park::{self, Deadline, WaitOutcome};
use crate::sync::line::wait_in_line;
use crate::sync::mutex::MutexGuard;
use crate::sync::wait_queue::WaitQueue;
use crate::wait_type::WaitType;

/// Lets workers wait until the value of a [`Mutex`](crate::sync::Mutex) has changed.
///
/// There are no wakeups without a notification, but the value may have changed again before the
/// worker has the lock: prefer [`wait_while`](Self::wait_while). A waiter that is cancelled while
/// it waits for the lock passes its notification on.
#[derive(Debug)]
pub struct Condvar {
    waiters: WaitQueue,
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

/// Passes a notification on if the wait for the mutex unwinds.
struct Notified<'condvar>(Option<&'condvar Condvar>);

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        if let Some(condvar) = self.0 {
            condvar.notify_one();
        }
    }
}

impl Condvar {
    /// A condition variable without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            waiters: WaitQueue::new(),
        }
    }

    /// Unlocks the mutex, waits for a notification, and locks it again.
    pub fn wait<'mutex, Value: ?Sized>(
        &self,
        guard: MutexGuard<'mutex, Value>,
    ) -> MutexGuard<'mutex, Value> {
        self.wait_until(guard, None).0
    }

    /// Waits while `condition` holds for the value.
    pub fn wait_while<'mutex, Value: ?Sized>(
        &self,
        mut guard: MutexGuard<'mutex, Value>,
        mut condition: impl FnMut(&mut Value) -> bool,
    ) -> MutexGuard<'mutex, Value> {
        while condition(&mut *guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// As [`wait`](Self::wait), at most for `span`. The second value tells whether a notification
    /// came.
    pub fn wait_timeout<'mutex, Value: ?Sized>(
        &self,
        guard: MutexGuard<'mutex, Value>,
        span: Duration,
    ) -> (MutexGuard<'mutex, Value>, bool) {
        self.wait_until(guard, Some(Deadline::after(span)))
    }

    /// As [`wait_while`](Self::wait_while), at most for `span`. The second value tells whether
    /// `condition` no longer holds.
    pub fn wait_timeout_while<'mutex, Value: ?Sized>(
        &self,
        mut guard: MutexGuard<'mutex, Value>,
        span: Duration,
        mut condition: impl FnMut(&mut Value) -> bool,
    ) -> (MutexGuard<'mutex, Value>, bool) {
        let begun = Instant::now();
        while condition(&mut *guard) {
            let Some(left) = span.checked_sub(begun.elapsed()) else {
                return (guard, false);
            };
            guard = self.wait_timeout(guard, left).0;
        }
        (guard, true)
    }

    fn wait_until<'mutex, Value: ?Sized>(
        &self,
        guard: MutexGuard<'mutex, Value>,
        deadline: Option<Deadline>,
    ) -> (MutexGuard<'mutex, Value>, bool) {
        let mutex = guard.mutex();
        let waiter = park::prepare(WaitType::CONDITION, std::ptr::from_ref(self).addr());
        self.waiters.push(waiter);
        drop(guard);
        let leave = || self.waiters.remove(waiter);
        let notified = wait_in_line(waiter, deadline, leave) == WaitOutcome::Signalled;
        let mut hands_on = Notified(notified.then_some(self));
        let guard = mutex.lock();
        hands_on.0 = None;
        (guard, notified)
    }

    /// Wakes the worker that has waited longest. False when none waits.
    pub fn notify_one(&self) -> bool {
        self.waiters.signal_one()
    }

    /// Wakes all waiters that wait now.
    pub fn notify_all(&self) {
        self.waiters.signal_all();
    }
}

//! A lock without data: one exchange while there are no waiters.
//!
//! An unlock wakes the first waiter and leaves the lock open, so that a worker that locks again
//! before its turn ends does not have to switch for it. The price is that the woken waiter may find
//! the lock taken. Then it goes to the head of the line and is *handed* the lock: it is overtaken
//! at most once.

use crate::atomics::{AtomicU32, AtomicU64, Mutex, Ordering, const_new, lock};
use crate::park::{self, Deadline, WaitOutcome, Waiter};
use crate::scheduler::worker;
use crate::sync::line::{WaiterLine, wait_in_line};
use crate::wait_type::WaitType;

const LOCKED: u32 = 1;
/// There are waiters in the line, so an unlock has to check it.
const WAITING: u32 = 2;

/// The service that a waiter wants from an unlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnlockRequest {
    /// To be woken, and to try to lock.
    Try,
    /// To be handed the lock directly.
    HandOff,
}

/// The lock; its protocol is described above.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RawMutex {
    /// The task that holds it; 0 for none, [`worker::OUTSIDE`] for a thread that is not a worker.
    /// It is the first word, because the address of the mutex is the wait object in the views, and
    /// the monitor reads there which task a waiter waits for.
    owner: AtomicU64,
    state: AtomicU32,
    line: Mutex<WaiterLine<UnlockRequest>>,
}

impl RawMutex {
    const_new! {
        pub(crate) fn new() -> Self {
            Self {
                owner: AtomicU64::new(0),
                state: AtomicU32::new(0),
                line: Mutex::new(WaiterLine::new()),
            }
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & LOCKED == 0 {
            let order = (Ordering::Acquire, Ordering::Relaxed);
            match self
                .state
                .compare_exchange_weak(state, state | LOCKED, order.0, order.1)
            {
                Ok(_) => {
                    self.owner.store(worker::task_here(), Ordering::Relaxed);
                    return true;
                }
                Err(other) => state = other,
            }
        }
        false
    }

    /// Takes the lock, and waits if necessary. False when the deadline came first.
    ///
    /// # Panics
    /// When the calling task holds it already and would wait for ever.
    #[inline]
    pub(crate) fn lock(&self, deadline: Option<Deadline>) -> bool {
        let order = (Ordering::Acquire, Ordering::Relaxed);
        let open = self.state.compare_exchange(0, LOCKED, order.0, order.1);
        if open.is_err() && !self.lock_in_line(deadline) {
            return false;
        }
        self.owner.store(worker::task_here(), Ordering::Relaxed);
        true
    }

    #[cold]
    fn lock_in_line(&self, deadline: Option<Deadline>) -> bool {
        let task = worker::task_here();
        let holds_it =
            task != worker::OUTSIDE && self.owner.load(Ordering::Relaxed) == task && task != 0;
        assert!(
            deadline.is_some() || !holds_it,
            "task {task} locks a mutex that it holds"
        );
        let mut request = UnlockRequest::Try;
        loop {
            let Some(waiter) = self.stand_in_line(request) else {
                return true;
            };
            match (
                wait_in_line(waiter, deadline, || self.leave(waiter)),
                request,
            ) {
                (WaitOutcome::TimedOut, _) => return false,
                (WaitOutcome::Signalled, UnlockRequest::HandOff) => return true,
                (WaitOutcome::Signalled, UnlockRequest::Try) => request = UnlockRequest::HandOff,
            }
        }
    }

    /// Joins the line; `None` when the lock was free and is now the caller's.
    fn stand_in_line(&self, request: UnlockRequest) -> Option<Waiter> {
        let mut line = lock(&self.line);
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let open = state & LOCKED == 0;
            let wanted = if open {
                state | LOCKED
            } else {
                state | WAITING
            };
            let order = (Ordering::Acquire, Ordering::Relaxed);
            match self
                .state
                .compare_exchange_weak(state, wanted, order.0, order.1)
            {
                Ok(_) if open => return None,
                Ok(_) => break,
                Err(other) => state = other,
            }
        }
        let waiter = park::prepare(WaitType::MUTEX, std::ptr::from_ref(self).addr());
        match request {
            UnlockRequest::Try => line.push_back(waiter, request),
            UnlockRequest::HandOff => line.push_front(waiter, request),
        }
        Some(waiter)
    }

    /// Removes a waiter that gives up.
    fn leave(&self, waiter: Waiter) {
        let mut line = lock(&self.line);
        line.remove(waiter);
        if line.is_empty() {
            self.state.fetch_and(!WAITING, Ordering::Relaxed);
        }
    }

    /// Releases the lock, or hands it over. The caller must have locked it.
    #[inline]
    pub(crate) fn unlock(&self) {
        self.owner.store(0, Ordering::Relaxed);
        let order = (Ordering::Release, Ordering::Relaxed);
        if self
            .state
            .compare_exchange(LOCKED, 0, order.0, order.1)
            .is_err()
        {
            self.unlock_in_line();
        }
    }

    #[cold]
    fn unlock_in_line(&self) {
        let mut line = lock(&self.line);
        while let Some(first) = line.pop() {
            let waiting = if line.is_empty() { 0 } else { WAITING };
            // While the lock is taken and the line is locked here, no other thread changes the
            // state. It is set before the claim, because a thread may run as soon as it is claimed.
            self.state.store(LOCKED | waiting, Ordering::Relaxed);
            let Some(claim) = first.waiter.claim() else {
                continue;
            };
            if first.request == UnlockRequest::Try {
                self.state.store(waiting, Ordering::Release);
            }
            drop(line);
            claim.wake();
            return;
        }
        self.state.store(0, Ordering::Release);
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LOCKED != 0
    }
}

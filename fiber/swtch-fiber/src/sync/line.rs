//! The line of waiters that all primitives use: wait in it, be claimed, or leave it early.

use std::collections::VecDeque;

use crate::park::{self, Deadline, PendingWake, WaitOutcome, Waiter};

/// Waiters of one resource, each with its request.
#[derive(Debug)]
pub(crate) struct WaiterLine<Request> {
    places: VecDeque<QueuedWaiter<Request>>,
}

#[derive(Debug)]
pub(crate) struct QueuedWaiter<Request> {
    pub(crate) waiter: Waiter,
    pub(crate) request: Request,
}

impl<Request> WaiterLine<Request> {
    pub(crate) const fn new() -> Self {
        Self {
            places: VecDeque::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Removes the waiters whose wait has ended.
    pub(crate) fn keep_open(&mut self) {
        self.places.retain(|place| place.waiter.is_open());
    }

    pub(crate) fn push_back(&mut self, waiter: Waiter, request: Request) {
        self.places.push_back(QueuedWaiter { waiter, request });
    }

    pub(crate) fn push_front(&mut self, waiter: Waiter, request: Request) {
        self.places.push_front(QueuedWaiter { waiter, request });
    }

    pub(crate) fn first(&self) -> Option<&QueuedWaiter<Request>> {
        self.places.front()
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedWaiter<Request>> {
        self.places.pop_front()
    }

    /// Removes a waiter, wherever it stands.
    pub(crate) fn remove(&mut self, waiter: Waiter) -> Option<Request> {
        let place = self
            .places
            .iter()
            .position(|place| place.waiter.is(waiter))?;
        self.places.remove(place).map(|place| place.request)
    }

    /// Removes and claims the first waiter that still waits. Waiters before it whose wait has ended
    /// stay in the line: they take their request back themselves.
    pub(crate) fn claim_first(&mut self) -> Option<(Waiter, Request, PendingWake)> {
        let claimed = self
            .places
            .iter()
            .enumerate()
            .find_map(|(place, standing)| Some((place, standing.waiter.claim()?)));
        let (place, claim) = claimed?;
        let standing = self.places.remove(place)?;
        Some((standing.waiter, standing.request, claim))
    }

    /// Claims all waiters that still wait, and leaves them in the line.
    pub(crate) fn claim_all(&self) -> Claims {
        Claims(
            self.places
                .iter()
                .filter_map(|place| place.waiter.claim())
                .collect(),
        )
    }
}

/// Workers to be woken after the lock of their resource is released. A worker that is woken earlier
/// could run into that lock.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Claims(Vec<PendingWake>);

impl Claims {
    pub(crate) fn add(&mut self, claim: PendingWake) {
        self.0.push(claim);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn wake(self) {
        for claim in self.0 {
            claim.wake();
        }
    }
}

/// Waits. Calls `leave` if the wait ends by its deadline, or by cancellation, which unwinds.
pub(crate) fn wait_in_line<Left>(
    waiter: Waiter,
    deadline: Option<Deadline>,
    leave: impl FnOnce() -> Left,
) -> WaitOutcome {
    struct Leaving<Left, Leave: FnOnce() -> Left>(Option<Leave>);
    impl<Left, Leave: FnOnce() -> Left> Drop for Leaving<Left, Leave> {
        fn drop(&mut self) {
            let _left = self.0.take().map(|leave| leave());
        }
    }
    let mut leaving = Leaving(Some(leave));
    let wake = park::wait(waiter, deadline);
    if wake == WaitOutcome::Signalled {
        leaving.0 = None;
    }
    wake
}

//! One wait of a worker or thread, by which others end it.

use super::worker::{Phase, WorkerCell};

/// One wait of one worker (or thread). May be kept for any time and sent anywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    cell: &'static WorkerCell,
    ticket: u64,
}

impl Waiter {
    /// Begins a wait of the worker or thread with this control block.
    #[inline]
    pub(crate) fn arm(cell: &'static WorkerCell, uncancellable: bool) -> Self {
        let ticket = cell.wait.arm(uncancellable);
        Self { cell, ticket }
    }

    /// Ends the wait. False when it had ended already. The caller has to make the worker runnable.
    #[inline]
    pub(crate) fn decide(self, phase: Phase) -> bool {
        self.cell.wait.decide(self.ticket, phase)
    }

    /// The present wait of `cell`, if it is undecided.
    pub(crate) fn of(cell: &'static WorkerCell) -> Option<Self> {
        cell.wait.open_ticket().map(|ticket| Self { cell, ticket })
    }

    /// Returns true if the wait is undecided.
    pub(crate) fn is_open(self) -> bool {
        self.cell.wait.is_open(self.ticket)
    }

    /// Returns true if both are the same wait.
    pub(crate) fn is(self, other: Self) -> bool {
        std::ptr::eq(self.cell, other.cell) && self.ticket == other.ticket
    }

    pub(crate) fn cell(self) -> &'static WorkerCell {
        self.cell
    }
}

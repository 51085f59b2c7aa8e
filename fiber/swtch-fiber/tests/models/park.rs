//! Replaces `src/park.rs` and `src/scheduler/waiter.rs`: the same waits, for threads without a
//! scheduler.

use crate::scheduler::worker::{Phase, WorkerCell};
use crate::wait_type::WaitType;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) cell: &'static WorkerCell,
    pub(crate) ticket: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    Signalled,
    TimedOut,
}

/// A deadline that may pass at any moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline;

#[derive(Debug)]
pub(crate) struct PendingWake {
    cell: &'static WorkerCell,
}

impl PendingWake {
    pub(crate) fn wake(self) {
        self.cell.bell.notify();
    }
}

loom::thread_local! {
    static CELL: &'static WorkerCell = WorkerCell::take(None);
}

pub(crate) fn prepare(_wait_type: WaitType, _resource: usize) -> Waiter {
    let cell = CELL.with(|cell| *cell);
    Waiter {
        cell,
        ticket: cell.wait.arm(false),
    }
}

pub(crate) fn prepare_uncancellable(wait_type: WaitType, resource: usize) -> Waiter {
    prepare(wait_type, resource)
}

pub(crate) fn wait(waiter: Waiter, deadline: Option<Deadline>) -> WaitOutcome {
    while waiter.is_open() {
        if deadline.is_some() {
            let _won = waiter.cell.wait.decide(waiter.ticket, Phase::TimedOut);
        } else {
            waiter.cell.bell.wait();
        }
    }
    match waiter.cell.wait.phase() {
        Phase::TimedOut => WaitOutcome::TimedOut,
        _ => WaitOutcome::Signalled,
    }
}

pub(crate) fn withdraw(waiter: Waiter) -> bool {
    waiter.cell.wait.decide(waiter.ticket, Phase::AtWork)
}

impl Waiter {
    pub(crate) fn claim(self) -> Option<PendingWake> {
        self.end(Phase::Signalled)
            .then_some(PendingWake { cell: self.cell })
    }

    pub(crate) fn end(self, phase: Phase) -> bool {
        self.cell.wait.decide(self.ticket, phase)
    }

    pub(crate) fn is_open(self) -> bool {
        self.cell.wait.is_open(self.ticket)
    }

    pub(crate) fn is(self, other: Self) -> bool {
        std::ptr::eq(self.cell, other.cell) && self.ticket == other.ticket
    }
}

//! The scheduler's use of its driver: start and stop operations, and make their workers runnable.

use std::io;
use std::sync::atomic::Ordering;

use super::driver::{IoRequest, Operation};
use super::worker::Phase;
use super::{Core, Scheduler, Waiter};

impl Scheduler {
    /// Starts an operation of the calling worker, which holds the scheduler.
    ///
    /// The caller stays on the stack frame of `operation`, and does not touch what `request`
    /// borrows, until the operation has a result.
    pub(crate) fn start_io(&self, request: IoRequest<'_>, operation: &Operation) -> io::Result<()> {
        // SAFETY: the calling worker holds the scheduler.
        let core = unsafe { self.core() };
        let started = core.io.start(request, operation, self.alarm.descriptor());
        core.count_pending_io();
        started
    }

    /// Asks the kernel to give an operation up. True when it has ended already.
    pub(crate) fn stop_io(&self, operation: &Operation) -> bool {
        // SAFETY: the calling worker holds the scheduler.
        let core = unsafe { self.core() };
        let over = core.io.stop(operation);
        core.count_pending_io();
        over
    }
}

impl Core {
    /// Makes those workers runnable whose operations have ended.
    pub(crate) fn drive_io(&mut self, scheduler: &Scheduler) {
        self.io.turn();
        while let Some(waiter) = self.io.next_completion() {
            self.end_io_wait(scheduler, waiter);
        }
        if self.io.take_rang() {
            scheduler.alarm.quiet();
        }
        self.count_pending_io();
    }

    fn end_io_wait(&mut self, scheduler: &Scheduler, waiter: Waiter) {
        let cell = waiter.cell();
        // If the deadline or a cancellation came first, the worker finds the result by itself.
        if waiter.decide(Phase::Signalled) {
            cell.signalled_ticks
                .store(scheduler.now(), Ordering::Relaxed);
            cell.signaller_task.store(0, Ordering::Relaxed);
            cell.signaller_worker.store(0, Ordering::Relaxed);
            self.signalled(cell);
        }
    }

    fn count_pending_io(&self) {
        self.accounts
            .record()
            .pending_io_count
            .store(self.io.pending(), Ordering::Relaxed);
    }
}

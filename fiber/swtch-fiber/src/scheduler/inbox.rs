//! Workers that other threads made runnable, on their way to their scheduler.
//!
//! A stack without locks: any thread pushes, the holder of the scheduler takes all at once. A
//! worker is in it at most once, because the thread that decided its wait pushes it, and it waits
//! again only after it was taken out.

use std::ptr;

use super::worker::WorkerCell;
use crate::atomics::{AtomicPtr, Ordering, const_new};

/// The head of the stack, newest first.
#[derive(Debug)]
pub(crate) struct Inbox {
    newest: AtomicPtr<WorkerCell>,
}

/// The workers that were taken, oldest first.
#[derive(Debug)]
pub(crate) struct TakenWorkers {
    next: *mut WorkerCell,
}

impl Inbox {
    const_new! {
        pub(crate) fn new() -> Self {
            Self {
                newest: AtomicPtr::new(ptr::null_mut()),
            }
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Relaxed).is_null()
    }

    /// Adds a worker. The caller has decided its wait.
    pub(crate) fn push(&self, cell: &'static WorkerCell) {
        let cell_address = ptr::from_ref(cell).cast_mut();
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            cell.inbox_next.store(newest, Ordering::Relaxed);
            let pushed = self.newest.compare_exchange_weak(
                newest,
                cell_address,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match pushed {
                Ok(_) => return,
                Err(other) => newest = other,
            }
        }
    }

    /// Takes all workers, in the order in which they were pushed.
    pub(crate) fn take(&self) -> TakenWorkers {
        let mut newest = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        let mut oldest: *mut WorkerCell = ptr::null_mut();
        // SAFETY: addresses in the stack come from references that live for ever.
        while let Some(cell) = unsafe { newest.as_ref() } {
            let older = cell.inbox_next.load(Ordering::Relaxed);
            cell.inbox_next.store(oldest, Ordering::Relaxed);
            oldest = newest;
            newest = older;
        }
        TakenWorkers { next: oldest }
    }
}

impl Iterator for TakenWorkers {
    type Item = &'static WorkerCell;

    fn next(&mut self) -> Option<&'static WorkerCell> {
        // SAFETY: as in `take`.
        let cell = unsafe { self.next.as_ref() }?;
        self.next = cell.inbox_next.load(Ordering::Relaxed);
        Some(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worker that waited longest is served first.
    #[test]
    fn workers_come_out_in_the_order_they_went_in() {
        let inbox = Inbox::new();
        let cells: Vec<_> = (0..3).map(|_| WorkerCell::take(None)).collect();
        for cell in &cells {
            inbox.push(cell);
        }
        let taken: Vec<_> = inbox.take().map(ptr::from_ref).collect();
        let pushed: Vec<_> = cells.iter().map(|cell| ptr::from_ref(*cell)).collect();
        assert_eq!(taken, pushed);
        assert!(inbox.is_empty());
    }

    /// Signals come from all threads at once; a worker whose signal is lost never wakes.
    #[test]
    fn nobody_is_lost_when_threads_push_at_the_same_time() {
        let inbox = Inbox::new();
        let mut taken = 0;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1_000).for_each(|_| inbox.push(WorkerCell::take(None))));
            }
            while taken < 2_000 {
                taken += inbox.take().count();
            }
        });
        assert_eq!(taken, 2_000);
    }
}

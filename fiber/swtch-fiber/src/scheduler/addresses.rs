//! Addresses of the stacks and control blocks of workers, for the monitor.
//!
//! A worker's private data may only be read by the holder of its scheduler, and a scheduler that
//! stalls cannot be asked. So the code that makes a worker records these addresses here, under the
//! worker's number.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use super::worker::WorkerCell;
use crate::page::{WORKERS, WritablePage};

/// The edges of a recorded stack and the control block of one worker; 0 and null where none was
/// recorded.
struct WorkerAddresses {
    low: AtomicUsize,
    high: AtomicUsize,
    cell: AtomicPtr<WorkerCell>,
}

/// The table takes memory only for workers that exist: the rest are zero pages that nobody touches.
static ADDRESSES: [WorkerAddresses; WORKERS as usize] = [const {
    WorkerAddresses {
        low: AtomicUsize::new(0),
        high: AtomicUsize::new(0),
        cell: AtomicPtr::new(ptr::null_mut()),
    }
}; WORKERS as usize];

/// Records the control block of a worker that is being made.
pub(crate) fn note_cell(worker: u32, cell: &'static WorkerCell) {
    let address = &ADDRESSES[worker as usize].cell;
    address.store(ptr::from_ref(cell).cast_mut(), Ordering::Release);
}

/// Records the stack of a worker that is being made.
pub(crate) fn note_stack(worker: u32, stack: Range<usize>) {
    let addresses = &ADDRESSES[worker as usize];
    addresses.low.store(stack.start, Ordering::Relaxed);
    addresses.high.store(stack.end, Ordering::Relaxed);
}

/// The control block of a worker. It may belong to another worker by now.
pub(crate) fn cell(worker: u32) -> Option<&'static WorkerCell> {
    let cell = ADDRESSES[worker as usize].cell.load(Ordering::Acquire);
    // SAFETY: stored from a reference that lives for ever: blocks are never freed.
    unsafe { cell.as_ref() }
}

/// The stack of a worker: the recorded one, or that of its thread; empty when there is none. Its
/// memory may have been freed meanwhile.
pub(crate) fn stack(page: &WritablePage, worker: u32) -> Range<usize> {
    let addresses = &ADDRESSES[worker as usize];
    let noted = addresses.low.load(Ordering::Relaxed)..addresses.high.load(Ordering::Relaxed);
    let thread = page.worker(worker).thread_plus_one.load(Ordering::Relaxed);
    let Some(thread) = thread.checked_sub(1).filter(|_| noted.is_empty()) else {
        return noted;
    };
    let edge = |address: &AtomicU64| usize::try_from(address.load(Ordering::Relaxed)).unwrap_or(0);
    let thread = page.thread(thread);
    edge(&thread.stack_low)..edge(&thread.stack_high)
}

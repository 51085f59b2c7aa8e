//! Overflows of threads that run tasks on their own stacks: workers in thread mode, and helpers of
//! preemptive sections. The records of the shared page tell which task it is.
//!
//! All of this runs in a signal handler: it takes no lock and allocates nothing.

use std::fmt::{self, Write};
use std::sync::atomic::Ordering;

use swtch_observe::layout::{RUN_BITS, ThreadRecord, thread_kind, worker_state};

use crate::page::{self, WritablePage, gettid};

/// Addresses this far below a stack count as its guard: a frame may reach beyond the guard's one
/// page.
const BELOW: u64 = 64 * 1024;

/// Older C libraries count the guard as part of the stack (`pthread_attr_getguardsize(3)`, bugs).
const INSIDE: u64 = 4096;

/// A thread that has overflowed its stack.
#[derive(Debug)]
pub(super) struct Overflow {
    worker: u32,
    is_helper: bool,
    address: u64,
    low: u64,
    high: u64,
}

/// The overflow, if a fault at `address` is one of the calling thread's own stack, in a task.
pub(super) fn overflow_here(address: usize, stack_pointer: usize) -> Option<Overflow> {
    let page = page::page_if_there()?;
    let (index, thread) = record_here(page)?;
    let low = thread.stack_low.load(Ordering::Relaxed);
    let high = thread.stack_high.load(Ordering::Relaxed);
    let (address, stack_pointer) = (address as u64, stack_pointer as u64);
    let guard = low.saturating_sub(BELOW)..low + INSIDE;
    let runs_here = (guard.start..high).contains(&stack_pointer);
    if low == 0 || !guard.contains(&address) || !runs_here {
        return None;
    }
    let is_helper = thread.kind.load(Ordering::Relaxed) == thread_kind::HELPER;
    let worker = if is_helper {
        worker_with_task(page, thread.word.load(Ordering::Relaxed) >> RUN_BITS)
    } else {
        worker_on_thread(page, index)
    }?;
    Some(Overflow {
        worker,
        is_helper,
        address,
        low,
        high,
    })
}

/// The record of the calling thread, if it runs tasks on its own stack.
fn record_here(page: &'static WritablePage) -> Option<(u32, &'static ThreadRecord)> {
    let own = gettid();
    let used = page.header().threads.used.load(Ordering::Acquire);
    (0..used)
        .map(|index| (index, page.thread(index)))
        .find(|(_, thread)| {
            let kind = thread.kind.load(Ordering::Acquire);
            let runs_tasks = matches!(kind, thread_kind::WORKER | thread_kind::HELPER);
            runs_tasks && thread.tid.load(Ordering::Relaxed) == own
        })
}

fn worker_with_task(page: &WritablePage, task: u64) -> Option<u32> {
    let used = page.header().workers.used.load(Ordering::Acquire);
    let has_it = |worker: &u32| page.worker(*worker).task_id.load(Ordering::Relaxed) == task;
    (task != 0).then(|| (0..used).find(has_it)).flatten()
}

/// In thread mode a worker has one thread for its whole life.
fn worker_on_thread(page: &WritablePage, thread: u32) -> Option<u32> {
    let used = page.header().workers.used.load(Ordering::Acquire);
    (0..used).find(|worker| {
        let record = page.worker(*worker);
        let is_used = record.state.load(Ordering::Relaxed) != worker_state::UNUSED;
        is_used && record.thread_plus_one.load(Ordering::Relaxed) == thread + 1
    })
}

impl Overflow {
    /// The message: which task, which addresses, what to do.
    pub(super) fn tell(&self, words: &mut dyn Write) -> fmt::Result {
        let Self { low, high, .. } = self;
        words.write_str("\nswtch-fiber: ")?;
        page::describe_worker(self.worker, words)?;
        if self.is_helper {
            words.write_str(", in a preemptive section,")?;
        }
        write!(
            words,
            " has overflowed its stack of {} KiB\n  fault at {:#x}, stack from {low:#x} to {high:#x}\n  \
             remedy: ",
            (high - low) / 1024,
            self.address,
        )?;
        words.write_str(if self.is_helper {
            "a larger RUST_MIN_STACK for the helper threads of such sections"
        } else {
            "a larger `stack_size` for this runtime"
        })?;
        words.write_str(
            " (only touched pages cost memory), or less on the stack: large values in a Box, recursion \
             with a bound",
        )
    }
}

//! Measures how deeply workers have used their stacks, which the monitor does for the views.
//!
//! Each measurement is a system call of 0.3 µs, so none is made on a scheduler's thread, and at
//! most a thousand a second are made. The values shown are some seconds old, with very many workers
//! some minutes.

use std::sync::atomic::Ordering;

use swtch_observe::layout::worker_state;

use crate::page::{self, WritablePage};
use crate::scheduler::{SchedulerGroup, addresses};
use crate::stack::bytes_used;

/// Stacks that are measured in each pass.
const AT_A_TIME: u32 = 1000;

/// Goes through the stacks of a runtime's workers, round after round.
#[derive(Debug, Default)]
pub(super) struct StackMeter {
    /// Index of the worker that comes next.
    next: u32,
}

impl StackMeter {
    /// Measures the next stacks, at most [`AT_A_TIME`].
    pub(super) fn look(&mut self, group: &SchedulerGroup) {
        let Some(page) = page::page_if_there() else {
            return;
        };
        let used = page.header().workers.used.load(Ordering::Acquire);
        let owners: Vec<u32> = group
            .entries()
            .iter()
            .map(|entry| entry.index + 1)
            .collect();
        for _ in 0..used.min(AT_A_TIME) {
            self.next = if self.next >= used { 0 } else { self.next };
            measure(page, self.next, &owners);
            self.next += 1;
        }
    }
}

fn measure(page: &'static WritablePage, worker: u32, owners: &[u32]) {
    let record = page.worker(worker);
    let is_used = record.state.load(Ordering::Acquire) != worker_state::UNUSED;
    if !is_used || !owners.contains(&record.scheduler_plus_one.load(Ordering::Relaxed)) {
        return;
    }
    let stack = addresses::stack(page, worker);
    let bytes = u32::try_from(bytes_used(stack)).unwrap_or(u32::MAX);
    page.worker_stack(worker)
        .bytes_used
        .store(bytes, Ordering::Relaxed);
}

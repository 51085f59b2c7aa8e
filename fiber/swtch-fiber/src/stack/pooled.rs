//! A stack that is in use, and a handle to it that stays valid after a coroutine has taken it over.

use std::num::NonZeroUsize;
use std::ptr;

use corosensei::stack::{Stack, StackPointer};

use super::pool::StackPool;
use super::slab::{KEPT, Slot};

/// A stack in use. It goes back to its pool when it is dropped.
#[derive(Debug)]
pub struct PooledStack {
    pub(super) slot: Slot,
    pub(super) pool: &'static StackPool,
}

impl PooledStack {
    /// A handle that can be kept after a coroutine has taken the stack over.
    pub fn handle(&self) -> StackHandle {
        StackHandle { slot: self.slot }
    }

    /// Records the worker that the stack belongs to, for the message of an overflow. Cleared when
    /// the stack goes back to its pool.
    pub fn set_owner(&self, worker_index: u32) {
        self.slot.set_owner(Some(worker_index));
    }
}

impl Drop for PooledStack {
    #[inline]
    fn drop(&mut self) {
        self.slot.set_owner(None);
        self.pool.put(self.slot);
    }
}

// SAFETY: a slot has a guard of whole pages below at least `SMALLEST_STACK_SIZE` usable bytes, both
// ends aligned (geometry.rs), and belongs to one `PooledStack` at a time.
unsafe impl Stack for PooledStack {
    #[inline]
    fn base(&self) -> StackPointer {
        NonZeroUsize::new(self.slot.base()).unwrap_or(NonZeroUsize::MAX)
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        NonZeroUsize::new(self.slot.limit()).unwrap_or(NonZeroUsize::MAX)
    }
}

/// The position of a stack, and how much of it was used, whichever worker has it now.
#[derive(Clone, Copy, Debug)]
pub struct StackHandle {
    slot: Slot,
}

impl StackHandle {
    /// Lowest usable address, just above the guard.
    pub fn low(self) -> usize {
        self.slot.low()
    }

    /// One past the highest usable address: where the stack begins.
    pub fn high(self) -> usize {
        self.slot.base()
    }

    /// The most bytes in use since the stack's pages were last given back, in whole pages. One
    /// system call; may be called on any thread.
    pub fn bytes_used(self) -> usize {
        self.slot.bytes_used()
    }

    /// Called by a worker on its own stack after each task. Once in
    /// [`USES_BETWEEN_LOOKS`](super::slab::USES_BETWEEN_LOOKS) calls it gives back the pages below
    /// what a warm stack keeps. Does nothing when called from that deep.
    pub(crate) fn trim_periodically(self) {
        let here = ptr::from_ref(&self).addr();
        if self.slot.base().saturating_sub(here) < KEPT / 2 {
            self.slot.trim_periodically();
        }
    }

    /// Records the owner, as [`PooledStack::set_owner`] does.
    pub fn set_owner(self, worker_index: u32) {
        self.slot.set_owner(Some(worker_index));
    }
}

#[cfg(test)]
mod tests {
    use corosensei::Coroutine;

    use super::*;
    use crate::stack::memory::page_size;
    use crate::stack::slab::USES_BETWEEN_LOOKS;

    /// A worker keeps its stack from task to task. One deep task must not cost memory for its whole
    /// life, and the worker must survive the trimming of its own stack.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn worker_gives_back_what_a_deep_task_used_and_lives_on() {
        let stack = StackPool::of_size(31 * page_size())
            .unwrap()
            .take()
            .unwrap();
        let handle = stack.handle();
        // SAFETY: the byte lies in the usable part of a stack that only this test has.
        unsafe { (handle.low() as *mut u8).write_volatile(1) };
        let before = handle.bytes_used();
        let worker = move |_: &corosensei::Yielder<(), ()>, ()| {
            let kept = [7_u8; 512];
            for _ in 0..USES_BETWEEN_LOOKS {
                handle.trim_periodically();
            }
            std::hint::black_box(kept).iter().all(|byte| *byte == 7)
        };
        let kept = Coroutine::with_stack(stack, worker).resume(()).as_return();
        assert_eq!(kept, Some(true));
        let after = handle.bytes_used();
        assert!(
            before > KEPT && 0 < after && after <= KEPT,
            "{before}, then {after}"
        );
    }
}

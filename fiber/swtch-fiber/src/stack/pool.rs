//! The pool: stacks used last are handed out first, and stacks that stay unused lose their pages.
//!
//! One pool per stack size serves the whole process, for two reasons. A stack outlives its runtime
//! anyway, since it is never unmapped; with a shared pool, a program that starts and ends runtimes
//! keeps using the same stacks. And a signal handler must find any stack, whichever runtime made
//! it.
//!
//! ```text
//!  take ◀── warm: back … front ──trim──▶ cold ──▶ take, when warm is empty
//!  drop ──▶                                       then: a fresh slot of the newest slab
//! ```
//!
//! Pages go back to the kernel in two ways. A stack that comes back is measured now and then (a
//! system call, so not each time), and pages used deeper than [`KEPT`](super::slab::KEPT) are
//! freed. [`StackPool::trim`], called by a thread that has time, frees the pages of the stacks that
//! were not taken since the last call: those at the front of the queue, whose length never fell
//! below their number.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::geometry::Geometry;
use super::guards::Guards;
use super::memory::page_size;
use super::pooled::PooledStack;
use super::shadow;
use super::slab::{Slab, Slot};
use crate::error::StackError;

/// All stacks of one size.
#[derive(Debug)]
pub struct StackPool {
    geometry: Geometry,
    guards: Guards,
    free_stacks: Mutex<FreeStacks>,
}

/// The part of a pool that its lock protects.
#[derive(Debug, Default)]
struct FreeStacks {
    /// Used stacks, the latest at the back. Has capacity for all stacks of the pool.
    warm: VecDeque<Slot>,
    /// Stacks whose pages were given back.
    cold: Vec<Slot>,
    /// Number of stacks at the front of `warm` that were not taken since the last check.
    quiet: usize,
    /// The slab that is being cut, and the index of its next slot.
    fresh: Option<(&'static Slab, u32)>,
    slabs: u32,
    stacks: usize,
}

impl StackPool {
    /// The pool of stacks with at least `stack_size` usable bytes: the same one for the same size.
    ///
    /// # Errors
    ///
    /// When the size is out of bounds, or shadow stacks are on.
    pub fn of_size(stack_size: usize) -> Result<&'static Self, StackError> {
        Self::with_guards(stack_size, Guards::of_this_kernel())
    }

    /// As [`StackPool::of_size`], with a chosen kind of guards: [`Guards::Mappings`] works on every
    /// kernel, at two mappings per stack.
    ///
    /// # Errors
    ///
    /// When the size is out of bounds, or shadow stacks are on.
    pub fn with_guards(stack_size: usize, guards: Guards) -> Result<&'static Self, StackError> {
        static POOLS: Mutex<Vec<&'static StackPool>> = Mutex::new(Vec::new());
        shadow::refuse_when_on()?;
        let geometry = Geometry::new(stack_size, page_size())?;
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |pool: &&&'static Self| pool.geometry == geometry && pool.guards == guards;
        if let Some(pool) = pools.iter().find(same) {
            return Ok(pool);
        }
        let pool: &'static Self = Box::leak(Box::new(Self {
            geometry,
            guards,
            free_stacks: Mutex::default(),
        }));
        pools.push(pool);
        Ok(pool)
    }

    /// The kind of guards of its stacks.
    pub fn guards(&self) -> Guards {
        self.guards
    }

    /// Number of stacks that exist, in use or not.
    pub fn stacks(&self) -> usize {
        self.free_stacks().stacks
    }

    /// Number of stacks that are not in use.
    pub fn idle_stacks(&self) -> usize {
        let free_stacks = self.free_stacks();
        free_stacks.warm.len() + free_stacks.cold.len()
    }

    /// Takes a stack: the one that came back last, or a new one.
    ///
    /// # Errors
    ///
    /// When a new one is needed and the kernel has no address space, mappings or memory for it.
    #[inline]
    pub fn take(&'static self) -> Result<PooledStack, StackError> {
        let slot = self.free_stacks().take(self)?;
        Ok(PooledStack { slot, pool: self })
    }

    /// Gives back the memory of stacks that were not taken since the last call, but of at most
    /// `at_most` stacks; returns their number. One system call each, half a microsecond if there is
    /// a page. Made for a thread that has time, about once a second; the next call continues where
    /// this one stopped.
    pub fn trim(&self, at_most: usize) -> usize {
        for trimmed in 0..at_most {
            // One at a time, so that a thread that needs a stack meanwhile need not make a new one.
            let Some(slot) = self.free_stacks().take_quiet() else {
                return trimmed;
            };
            slot.release_below(0);
            self.free_stacks().cold.push(slot);
        }
        at_most
    }

    /// Puts a stack back that is no longer in use.
    #[inline]
    pub(super) fn put(&self, slot: Slot) {
        slot.trim_periodically();
        self.free_stacks().warm.push_back(slot);
    }

    #[inline]
    fn free_stacks(&self) -> MutexGuard<'_, FreeStacks> {
        self.free_stacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl FreeStacks {
    #[inline]
    fn take(&mut self, pool: &StackPool) -> Result<Slot, StackError> {
        if let Some(slot) = self.warm.pop_back() {
            self.quiet = self.quiet.min(self.warm.len());
            return Ok(slot);
        }
        match self.cold.pop() {
            Some(slot) => Ok(slot),
            None => self.cut(pool),
        }
    }

    /// The stack that has been unused longest. When there is none, `None`, and a new period begins.
    fn take_quiet(&mut self) -> Option<Slot> {
        if self.quiet == 0 {
            self.quiet = self.warm.len();
            return None;
        }
        self.quiet -= 1;
        self.warm.pop_front()
    }

    /// Takes a fresh stack, from a new slab when the newest is used up.
    #[cold]
    fn cut(&mut self, pool: &StackPool) -> Result<Slot, StackError> {
        let (slab, index) = match self.fresh {
            Some((slab, index)) if index < slab.slots() => (slab, index),
            _ => {
                let slots = pool.geometry.slots_of_slab(self.slabs);
                let slab = Slab::reserve(pool.geometry, pool.guards, slots)?;
                self.slabs += 1;
                self.fresh = Some((slab, 0));
                // Reserved now, so that a stack can come back without an allocation.
                self.warm
                    .reserve(self.stacks + slab.slots() as usize - self.warm.len());
                (slab, 0)
            }
        };
        let slot = slab.cut(index)?;
        self.fresh = Some((slab, index + 1));
        self.stacks += 1;
        Ok(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::slab::{KEPT, USES_BETWEEN_LOOKS};

    /// A pool that no other test uses, because its size is unique.
    fn pool_of_pages(pages: usize) -> &'static StackPool {
        StackPool::of_size(pages * page_size()).unwrap()
    }

    fn touch(stack: &PooledStack, address: usize) {
        assert!((stack.handle().low()..stack.handle().high()).contains(&address));
        // SAFETY: the byte lies in the usable part of a stack that only the caller has.
        unsafe { (address as *mut u8).write_volatile(1) };
    }

    /// Runtimes with the same stack size share a pool; another size has another pool.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn one_pool_serves_all_who_ask_for_its_size() {
        assert!(std::ptr::eq(pool_of_pages(21), pool_of_pages(21)));
        assert!(!std::ptr::eq(pool_of_pages(21), pool_of_pages(22)));
    }

    /// The stack that was used last has its top in the cache.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn stack_that_came_back_last_is_taken_first() {
        let pool = pool_of_pages(23);
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        let (first_low, second_low) = (first.handle().low(), second.handle().low());
        drop(first);
        drop(second);
        assert_eq!(pool.take().unwrap().handle().low(), second_low);
        let again = [pool.take().unwrap(), pool.take().unwrap()];
        assert_eq!(
            again.map(|stack| stack.handle().low()),
            [second_low, first_low]
        );
        assert_eq!((pool.stacks(), pool.idle_stacks()), (2, 2));
    }

    /// Threads that take and return stacks never share one.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn no_stack_is_handed_out_twice() {
        let pool = pool_of_pages(24);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                scope.spawn(move || {
                    for round in 0..200 {
                        let stacks: Vec<_> = (0..5).map(|_| pool.take().unwrap()).collect();
                        stacks.iter().for_each(|stack| stack.set_owner(worker));
                        if round % 50 == 0 {
                            pool.trim(3);
                        }
                        assert!(
                            stacks
                                .iter()
                                .all(|stack| stack.slot.owner() == Some(worker))
                        );
                    }
                });
            }
        });
        assert!(
            pool.stacks() <= 24,
            "{} stacks, of which 20 were in use",
            pool.stacks()
        );
        assert_eq!(pool.idle_stacks(), pool.stacks());
    }

    /// Memory that was needed once, for a deep call, is not kept for ever.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn pages_of_deep_use_are_given_back_on_return() {
        let pool = pool_of_pages(25);
        for _ in 0..USES_BETWEEN_LOOKS {
            let stack = pool.take().unwrap();
            touch(&stack, stack.handle().low());
            touch(&stack, stack.handle().high() - 1);
        }
        let used = pool.take().unwrap().handle().bytes_used();
        assert!(0 < used && used <= KEPT, "{used} bytes kept");
    }

    /// The stacks that were never taken are those below the lowest fill level since the last call.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn trim_frees_what_nobody_took_since() {
        let pool = pool_of_pages(26);
        let stacks: Vec<_> = (0..5).map(|_| pool.take().unwrap()).collect();
        let handles: Vec<_> = stacks.iter().map(PooledStack::handle).collect();
        stacks
            .iter()
            .for_each(|stack| touch(stack, stack.handle().high() - 1));
        drop(stacks);
        assert_eq!(pool.trim(100), 0, "all came back just now");
        let used = [pool.take().unwrap(), pool.take().unwrap()];
        let lows = used.each_ref().map(|stack| stack.handle().low());
        drop(used);
        assert_eq!((pool.trim(2), pool.trim(100)), (2, 1), "in two portions");
        for handle in handles {
            let in_memory = handle.bytes_used() > 0;
            assert_eq!(in_memory, lows.contains(&handle.low()), "{handle:?}");
        }
        assert_eq!(pool.idle_stacks(), 5);
    }

    /// The guard must still be there after its stack's pages were given back (madvise(2): markers
    /// survive).
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn guard_outlives_pages_given_back() {
        for guards in [Guards::of_this_kernel(), Guards::Mappings] {
            let pool = StackPool::with_guards(27 * page_size(), guards).unwrap();
            let stack = pool.take().unwrap();
            let low = stack.handle().low();
            touch(&stack, low);
            drop(stack);
            assert_eq!((pool.trim(1), pool.trim(1)), (0, 1));
            assert!(readable(low) && !readable(low - 1), "{guards:?}");
        }
    }

    /// Returns true if a byte can be read, tested by the kernel: `write` to a pipe fails instead of faulting.
    fn readable(address: usize) -> bool {
        use std::os::fd::AsRawFd;
        let (_reader, writer) = std::io::pipe().unwrap();
        // SAFETY: the kernel checks the address and answers EFAULT where there is nothing.
        unsafe { libc::write(writer.as_raw_fd(), address as *const libc::c_void, 1) == 1 }
    }
}

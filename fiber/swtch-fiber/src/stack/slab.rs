//! Slabs: the mappings that stacks are cut from, and the list by which a fault finds its stack.
//!
//! A slab is one private mapping. It is put on a list that only grows and is read without a lock,
//! so that a signal handler may walk it on any thread at any moment.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use corosensei::stack::valgrind::ValgrindStackRegistration;

use super::geometry::{Geometry, SlotPart};
use super::guards::Guards;
use super::memory::{advise, bytes_used, map, mapping_limit};
use crate::error::StackError;

/// Bytes at the top of a warm stack that stay in memory.
pub(super) const KEPT: usize = 16 * 1024;

/// A stack is measured once in this many uses. That is a system call of 0.3 µs: one nanosecond a
/// use.
pub(super) const USES_BETWEEN_LOOKS: u32 = 256;

/// The newest slab of the process, head of the list.
static NEWEST: AtomicPtr<Slab> = AtomicPtr::new(ptr::null_mut());

/// Number of slots with a guard, in all slabs.
static STACKS: AtomicUsize = AtomicUsize::new(0);

/// The data of one stack.
#[derive(Debug)]
struct StackRecord {
    /// Lowest address of the guard.
    limit: usize,
    /// The address at which the stack begins; it grows downwards.
    base: usize,
    /// Shared by all stacks of its slab.
    geometry: &'static Geometry,
    /// Index of the worker that it belongs to, plus one; 0 for none.
    owner_plus_one: AtomicU32,
    /// Times that it was used. Only changed by the owner of the stack.
    uses: AtomicU32,
}

impl StackRecord {
    /// The record of slot `index` of the slab at `slab_low`.
    fn new(slab_low: usize, geometry: &'static Geometry, index: u32) -> Self {
        let limit = slab_low + geometry.offset(index);
        Self {
            limit,
            base: limit + geometry.stride() - Geometry::colour(index),
            geometry,
            owner_plus_one: AtomicU32::new(0),
            uses: AtomicU32::new(0),
        }
    }
}

/// One mapping full of stacks.
#[derive(Debug)]
pub(super) struct Slab {
    low: usize,
    geometry: &'static Geometry,
    guards: Guards,
    records: Box<[StackRecord]>,
    /// The next slab in the list, which is older.
    older: AtomicPtr<Self>,
}

impl Slab {
    /// Reserves address space for `slots` stacks, or fewer if the kernel has no more in one piece.
    ///
    /// # Errors
    ///
    /// [`StackError::Reserve`] when there is no room for a single one.
    pub fn reserve(
        geometry: Geometry,
        guards: Guards,
        mut slots: u32,
    ) -> Result<&'static Self, StackError> {
        let low = loop {
            match map(geometry.offset(slots)) {
                Ok(low) => break low,
                Err(_) if slots > 1 => slots /= 2,
                Err(source) => {
                    return Err(StackError::Reserve {
                        bytes: geometry.stride(),
                        stacks: STACKS.load(Ordering::Relaxed),
                        mapping_limit: mapping_limit(),
                        source,
                    });
                }
            }
        };
        // A huge page under a stack would cost 2 MiB for the first word pushed. A kernel without
        // huge pages refuses this advice, and does not need it.
        let _ = advise(low, geometry.offset(slots), libc::MADV_NOHUGEPAGE);
        let geometry: &'static Geometry = Box::leak(Box::new(geometry));
        let records = (0..slots)
            .map(|index| StackRecord::new(low, geometry, index))
            .collect();
        let older = AtomicPtr::new(ptr::null_mut());
        let slab = Box::leak(Box::new(Self {
            low,
            geometry,
            guards,
            records,
            older,
        }));
        Ok(slab.publish())
    }

    /// Puts the slab on the list of all slabs.
    fn publish(&'static self) -> &'static Self {
        let this = ptr::from_ref(self).cast_mut();
        let mut newest = NEWEST.load(Ordering::Relaxed);
        loop {
            self.older.store(newest, Ordering::Relaxed);
            match NEWEST.compare_exchange_weak(newest, this, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return self,
                Err(other) => newest = other,
            }
        }
    }

    /// Number of slots in this slab.
    pub fn slots(&self) -> u32 {
        u32::try_from(self.records.len()).unwrap_or(u32::MAX)
    }

    /// Protects slot `index` and returns it. The pool calls this once for each slot.
    ///
    /// # Errors
    ///
    /// [`StackError::Guard`] when the kernel has no more mappings or memory.
    pub fn cut(&'static self, index: u32) -> Result<Slot, StackError> {
        let slot = Slot(&self.records[index as usize]);
        self.guards
            .protect(slot.limit(), self.geometry.guard)
            .map_err(|source| StackError::Guard {
                stacks: STACKS.load(Ordering::Relaxed),
                splits: self.guards == Guards::Mappings,
                mapping_limit: mapping_limit(),
                source,
            })?;
        STACKS.fetch_add(1, Ordering::Relaxed);
        // Memcheck recognizes a switch of stacks only between stacks that it knows; without it
        // these are a few instructions without effect. Stacks are never freed, so the registration
        // is kept too.
        std::mem::forget(ValgrindStackRegistration::new(
            slot.low() as *mut u8,
            self.geometry.usable,
        ));
        Ok(slot)
    }
}

/// The location of one stack. Valid for ever, whichever worker uses it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot(&'static StackRecord);

impl Slot {
    /// The stack or guard at `address`, of any pool. Takes no lock and allocates nothing.
    pub fn at(address: usize) -> Option<(Self, SlotPart)> {
        let mut next = NEWEST.load(Ordering::Acquire);
        loop {
            // SAFETY: the list holds leaked slabs only, which were complete before they were put on
            // it.
            let slab: &'static Slab = unsafe { next.as_ref() }?;
            let offset = address.wrapping_sub(slab.low);
            if offset < slab.geometry.offset(slab.slots()) {
                let place = slab.geometry.place(offset)?;
                let (SlotPart::Guard(index) | SlotPart::Stack(index)) = place;
                return Some((Self(slab.records.get(index as usize)?), place));
            }
            next = slab.older.load(Ordering::Relaxed);
        }
    }

    /// Lowest address of the guard.
    pub fn limit(self) -> usize {
        self.0.limit
    }

    /// Lowest usable address, just above the guard.
    pub fn low(self) -> usize {
        self.0.limit + self.0.geometry.guard
    }

    /// Usable bytes that were asked for. Rounding and colours add to them.
    pub fn asked(self) -> usize {
        self.0.geometry.asked
    }

    /// One past the highest address; the stack begins lower by its colour.
    pub fn high(self) -> usize {
        self.0.limit + self.0.geometry.stride()
    }

    /// Returns the address at which the stack begins; it grows downwards.
    pub fn base(self) -> usize {
        self.0.base
    }

    /// Index of the worker that it belongs to; `None` for none.
    pub fn owner(self) -> Option<u32> {
        self.0.owner_plus_one.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Records which worker it belongs to.
    pub fn set_owner(self, worker_index: Option<u32>) {
        let plus_one = worker_index.map_or(0, |index| index.saturating_add(1));
        self.0.owner_plus_one.store(plus_one, Ordering::Relaxed);
    }

    /// Called by the owner of the stack after each use, when nothing on it lies deeper than
    /// [`KEPT`]. Once in [`USES_BETWEEN_LOOKS`] uses it gives back the pages below that.
    #[inline]
    pub fn trim_periodically(self) {
        let uses = self.0.uses.load(Ordering::Relaxed).wrapping_add(1);
        self.0.uses.store(uses, Ordering::Relaxed);
        if uses.is_multiple_of(USES_BETWEEN_LOOKS) {
            self.release_depth();
        }
    }

    #[cold]
    fn release_depth(self) {
        if self.bytes_used() > KEPT {
            self.release_below(KEPT);
        }
    }

    /// Bytes from the lowest page in memory to the base: how deeply the stack was used since its
    /// pages were last given back. Pages that were swapped out do not count.
    pub fn bytes_used(self) -> usize {
        bytes_used(self.low()..self.base())
    }

    /// Gives all pages back to the kernel but those of the highest `keep` bytes; the guard stays.
    /// The caller must own the stack, and nothing below `keep` may be in use.
    pub fn release_below(self, keep: usize) {
        let length = self.0.geometry.length_below(keep);
        // Refused for locked memory, whose pages are meant to stay.
        let _ = advise(self.low(), length, libc::MADV_DONTNEED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::memory::page_size;
    use crate::stack::{DEFAULT_STACK_SIZE, SMALLEST_STACK_SIZE};

    fn slab(guards: Guards) -> &'static Slab {
        let geometry = Geometry::new(SMALLEST_STACK_SIZE, page_size()).unwrap();
        Slab::reserve(geometry, guards, 4).unwrap()
    }

    /// A fault handler has only an address to go by.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn any_address_of_a_stack_leads_to_it() {
        let slot = slab(Guards::Mappings).cut(2).unwrap();
        slot.set_owner(Some(41));
        for (address, expected) in [
            (slot.limit(), SlotPart::Guard(2)),
            (slot.low() - 1, SlotPart::Guard(2)),
            (slot.low(), SlotPart::Stack(2)),
            (slot.high() - 1, SlotPart::Stack(2)),
        ] {
            let (found, place) = Slot::at(address).unwrap();
            assert_eq!((found.owner(), place), (Some(41), expected));
        }
        assert!(Slot::at(0).is_none());
        assert!(Slot::at(&raw const slot as usize).is_none());
    }

    /// The high-water mark counts pages from the top, and is reset when they are given back.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn bytes_used_are_those_touched_since_pages_were_given_back() {
        for guards in [Guards::of_this_kernel(), Guards::Mappings] {
            let slot = slab(guards).cut(1).unwrap();
            assert_eq!(slot.bytes_used(), 0);
            let deep = slot.low() as *mut u8;
            // SAFETY: the byte lies in the usable part of a stack that only this test has.
            unsafe { deep.write_volatile(1) };
            assert_eq!(slot.bytes_used(), slot.base() - slot.low());
            slot.release_below(0);
            assert_eq!(slot.bytes_used(), 0);
        }
    }

    /// If the kernel has no large range, smaller ones are reserved; if there is none, that is an
    /// error.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn a_reservation_beyond_the_address_space_shrinks() {
        let geometry = Geometry::new(1 << 30, page_size()).unwrap();
        let slab = Slab::reserve(geometry, Guards::Mappings, 1 << 20).unwrap();
        assert!(slab.slots() < 1 << 20);
        let absurd = Geometry {
            usable: 1 << 50,
            ..Geometry::new(DEFAULT_STACK_SIZE, 4096).unwrap()
        };
        let error = Slab::reserve(absurd, Guards::Mappings, 8).unwrap_err();
        assert!(matches!(error, StackError::Reserve { .. }), "{error}");
    }
}

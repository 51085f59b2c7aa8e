//! The position of each stack in its slab: arithmetic only.
//!
//! The sizes of slots and slabs decide three things:
//!
//! - **Aliasing.** Stack tops at the same offset in their page fall into the same few sets of the
//!   first-level cache (64 sets of 64 bytes are one page), so that a dozen workers evict each
//!   other's hottest lines. Each slot's top is therefore lowered by a *colour*.
//! - **Mappings.** Slabs double up to [`LARGEST_SLAB`], so that few stacks reserve little, and
//!   100,000 stacks need only a couple of dozen mappings.
//! - **Large frames.** Rust touches every page of a large frame in order; C code compiled
//!   without `-fstack-clash-protection` does not. The guard is wider than one page, since markers
//!   cost nothing.

use crate::error::StackError;

/// Default number of usable bytes of a stack.
pub const DEFAULT_STACK_SIZE: usize = 64 * 1024;

/// Smaller sizes are refused, bytes. Measured on x86-64, Rust 1.95, in whole pages: a worker that
/// enters and does nothing uses 4 KiB, one that panics and prints its first backtrace 24 KiB (12 to
/// 16 KiB later), in release as in test builds; a signal in addition takes 3.4 KiB with AVX-512.
pub const SMALLEST_STACK_SIZE: usize = 32 * 1024;

/// Larger sizes are refused, bytes: probably a mistake in the unit.
pub const LARGEST_STACK_SIZE: usize = 1 << 30;

/// Bytes below each stack that fault; whole pages, at least one.
const GUARD: usize = 16 * 1024;

/// Number of different colours. Measured on a Xeon (48 KiB, 12 ways) with 40 words used in each of
/// 32 coroutines that resume in turn: 4.8 ns a resume without colours, 4.0 with these; of 1024: 5.8
/// and 4.7.
const COLOURS: u32 = 16;

/// Bytes from one colour to the next: a cache line. Two lines were no better, and waste more of the
/// page.
const COLOUR_STEP: usize = 64;

/// Number of slots in the first slab.
const FIRST_SLOTS: u32 = 64;

/// Largest size of a slab that holds more than one slot, bytes.
const LARGEST_SLAB: usize = 512 << 20;

/// The sizes of all slots of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Usable bytes that were asked for, for messages.
    pub asked: usize,
    /// Size of a page in bytes.
    pub page: usize,
    /// Bytes at the low end of a slot that fault.
    pub guard: usize,
    /// Bytes of a slot above its guard.
    pub usable: usize,
}

/// The part of a slot in which an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotPart {
    /// The guard of the stack with this index.
    Guard(u32),
    /// The usable part of the stack with this index.
    Stack(u32),
}

impl Geometry {
    /// Computes sizes for stacks of at least `stack_size` usable bytes on pages of `page` bytes.
    ///
    /// # Errors
    ///
    /// When `stack_size` is out of bounds.
    pub fn new(stack_size: usize, page: usize) -> Result<Self, StackError> {
        if stack_size < SMALLEST_STACK_SIZE {
            return Err(StackError::TooSmall {
                asked: stack_size,
                least: SMALLEST_STACK_SIZE,
            });
        }
        if stack_size > LARGEST_STACK_SIZE {
            return Err(StackError::TooLarge {
                asked: stack_size,
                most: LARGEST_STACK_SIZE,
            });
        }
        let darkest = (COLOURS as usize - 1) * COLOUR_STEP;
        Ok(Self {
            asked: stack_size,
            page,
            guard: GUARD.next_multiple_of(page),
            usable: (stack_size + darkest).next_multiple_of(page),
        })
    }

    /// Bytes from one slot to the next.
    pub fn stride(&self) -> usize {
        self.guard + self.usable
    }

    /// Number of slots in the slab that comes after `slabs` others.
    pub fn slots_of_slab(&self, slabs: u32) -> u32 {
        let most = u32::try_from(LARGEST_SLAB / self.stride()).unwrap_or(u32::MAX);
        let doubled = FIRST_SLOTS.checked_shl(slabs.min(16)).unwrap_or(u32::MAX);
        doubled.min(most).max(1)
    }

    /// Bytes from the beginning of a slab to slot `index`.
    pub fn offset(&self, index: u32) -> usize {
        index as usize * self.stride()
    }

    /// Bytes between the top of stack `index` and the end of its slot.
    pub fn colour(index: u32) -> usize {
        (index % COLOURS) as usize * COLOUR_STEP
    }

    /// Bytes of whole pages below the highest `keep` bytes of a stack.
    pub fn length_below(&self, keep: usize) -> usize {
        self.usable.saturating_sub(keep.next_multiple_of(self.page))
    }

    /// The part of the slot at `offset` bytes into a slab.
    pub fn place(&self, offset: usize) -> Option<SlotPart> {
        let index = u32::try_from(offset / self.stride()).ok()?;
        let within = offset % self.stride();
        Some(if within < self.guard {
            SlotPart::Guard(index)
        } else {
            SlotPart::Stack(index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_geometry() -> Geometry {
        Geometry::new(DEFAULT_STACK_SIZE, 4096).unwrap()
    }

    /// A stack that cannot hold a panic, or that is larger than memory, is refused with the reason.
    #[test]
    fn sizes_out_of_bounds_are_refused() {
        assert!(matches!(
            Geometry::new(0, 4096),
            Err(StackError::TooSmall { asked: 0, .. })
        ));
        assert!(matches!(
            Geometry::new(SMALLEST_STACK_SIZE - 1, 4096),
            Err(StackError::TooSmall { .. })
        ));
        assert!(matches!(
            Geometry::new(LARGEST_STACK_SIZE + 1, 4096),
            Err(StackError::TooLarge { .. })
        ));
        assert!(matches!(
            Geometry::new(usize::MAX, 4096),
            Err(StackError::TooLarge { .. })
        ));
        assert!(Geometry::new(SMALLEST_STACK_SIZE, 4096).is_ok());
        assert!(Geometry::new(LARGEST_STACK_SIZE, 4096).is_ok());
    }

    /// The kernel protects whole pages, of 4 KiB here and up to 64 KiB on aarch64.
    #[test]
    fn guard_and_stack_are_whole_pages_of_any_size() {
        for page in [4096, 16 * 1024, 64 * 1024] {
            let geometry = Geometry::new(DEFAULT_STACK_SIZE + 1, page).unwrap();
            assert_eq!(geometry.guard % page, 0);
            assert_eq!(geometry.usable % page, 0);
            assert!(geometry.guard >= page);
        }
    }

    /// The kernel rounds a length up to pages: with pages of 64 KiB it would free what is to be
    /// kept.
    #[test]
    fn what_is_given_back_ends_below_what_is_kept() {
        for page in [4096, 64 * 1024] {
            let geometry = Geometry::new(DEFAULT_STACK_SIZE, page).unwrap();
            let length = geometry.length_below(16 * 1024);
            assert_eq!(length % page, 0);
            assert!(length <= geometry.usable - 16 * 1024);
            assert_eq!(geometry.length_below(0), geometry.usable);
            assert_eq!(geometry.length_below(1 << 40), 0);
        }
    }

    /// With any colour, a stack has the bytes that were asked for.
    #[test]
    fn no_colour_takes_from_the_size_asked_for() {
        let geometry = default_geometry();
        for index in 0..100 {
            assert!(geometry.usable - Geometry::colour(index) >= DEFAULT_STACK_SIZE);
            assert_eq!(
                Geometry::colour(index) % corosensei::stack::STACK_ALIGNMENT,
                0
            );
        }
    }

    /// A worker that uses three kilobytes while it waits costs one page, not two.
    #[test]
    fn colours_leave_three_quarters_of_the_first_page() {
        assert!((0..1000).all(|index| Geometry::colour(index) <= 1024));
    }

    /// 100,000 workers must fit into 64 mappings, with room for other pools.
    #[test]
    fn a_hundred_thousand_slots_are_few_slabs() {
        let geometry = default_geometry();
        let (mut slots, mut slabs) = (0, 0);
        while slots < 100_000 {
            slots += geometry.slots_of_slab(slabs);
            slabs += 1;
        }
        assert!(slabs <= 32, "{slabs} slabs");
        assert_eq!(geometry.slots_of_slab(0), FIRST_SLOTS);
    }

    /// A slab of the largest stacks still holds one.
    #[test]
    fn a_slab_holds_at_least_one_slot() {
        let geometry = Geometry::new(LARGEST_STACK_SIZE, 4096).unwrap();
        assert!((0..100).all(|slabs| geometry.slots_of_slab(slabs) == 1));
    }

    /// A fault address must lead to the right stack, also at the borders.
    #[test]
    fn addresses_belong_to_guard_or_stack_up_to_the_last_byte() {
        let geometry = default_geometry();
        for index in [0, 1, 77] {
            let low = geometry.offset(index);
            assert_eq!(geometry.place(low), Some(SlotPart::Guard(index)));
            assert_eq!(
                geometry.place(low + geometry.guard - 1),
                Some(SlotPart::Guard(index))
            );
            assert_eq!(
                geometry.place(low + geometry.guard),
                Some(SlotPart::Stack(index))
            );
            assert_eq!(
                geometry.place(low + geometry.stride() - 1),
                Some(SlotPart::Stack(index))
            );
            assert_eq!(
                geometry.place(low + geometry.stride()),
                Some(SlotPart::Guard(index + 1))
            );
        }
    }
}

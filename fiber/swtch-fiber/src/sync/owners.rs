//! The tasks that hold a resource, stored where the monitor finds them: these words are at the
//! address that a waiting worker's record names as its wait object.
//!
//! | wait type | at the resource |
//! |---|---|
//! | `MUTEX` | the task that holds it |
//! | `JOIN` | the task that has to end; or [`SEVERAL`] and [`NAMED`] of them, for a scope |
//! | `RWLOCK_SHARED`, `RWLOCK_EXCLUSIVE` | the writing task, and [`NAMED`] of the readers |
//!
//! 0 means no task, [`OUTSIDE`] a thread that is not a worker. No lock depends on these words. If
//! more tasks hold a resource than can be named, a cycle of waiters may stay undetected, but no
//! false one is reported.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::scheduler::worker::{self, OUTSIDE};

/// Stored instead of the first task: all of the named tasks after it have to end. No task id gets
/// this high.
pub(crate) const SEVERAL: u64 = 1 << 62;

/// Number of holders that can be named after the first word.
pub(crate) const NAMED: usize = PLACES as usize;
const PLACES: u8 = 4;

/// The words of a resource that several tasks may hold.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Owners {
    first: AtomicU64,
    named: [AtomicU64; NAMED],
}

/// The index at which a holder is named, if there was room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HolderIndex(Option<u8>);

impl Owners {
    /// The words of a lock without holders.
    pub(crate) const fn of_lock() -> Self {
        Self::starting_with(0)
    }

    /// The words of a group of tasks that is waited for as a whole.
    pub(crate) const fn of_group() -> Self {
        Self::starting_with(SEVERAL)
    }

    const fn starting_with(first: u64) -> Self {
        Self {
            first: AtomicU64::new(first),
            named: [const { AtomicU64::new(0) }; NAMED],
        }
    }

    /// The calling task holds it exclusively.
    #[inline]
    pub(crate) fn held_alone(&self) {
        self.first.store(worker::task_here(), Ordering::Relaxed);
    }

    /// The resource is no longer held exclusively.
    #[inline]
    pub(crate) fn left(&self) {
        self.first.store(0, Ordering::Relaxed);
    }

    /// Names the calling task as one of several holders.
    ///
    /// An atomic exchange was a third of the cost of a read lock, so there is none. If two tasks
    /// take one index, the later is named, and a second clearing leaves one holder unnamed. A name
    /// never outlasts its holder, which clears the index after it wrote there.
    #[inline]
    pub(crate) fn add(&self) -> HolderIndex {
        let task = worker::task_here();
        if task == OUTSIDE {
            return HolderIndex(None);
        }
        let is_free = |place: &u8| self.named[usize::from(*place)].load(Ordering::Relaxed) == 0;
        let place = (0..PLACES).find(is_free);
        if let Some(place) = place {
            self.named[usize::from(place)].store(task, Ordering::Relaxed);
        }
        HolderIndex(place)
    }

    /// Removes the holder that was named at `place`.
    #[inline]
    pub(crate) fn remove(&self, place: HolderIndex) {
        if let Some(place) = place.0 {
            self.named[usize::from(place)].store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The monitor reads these words by their offset.
    #[test]
    fn the_words_stand_in_a_row() {
        assert_eq!(std::mem::offset_of!(Owners, first), 0);
        assert_eq!(std::mem::offset_of!(Owners, named), 8);
        assert_eq!(size_of::<Owners>(), 8 + 8 * NAMED);
    }

    /// There may be more threads that are not workers than words for holders. Such threads are not
    /// named, so they must not use any of these words.
    #[test]
    fn a_thread_outside_takes_no_place() {
        let owners = Owners::of_lock();
        for _ in 0..2 * NAMED {
            assert!(owners.add().0.is_none());
        }
        owners.held_alone();
        assert_eq!(owners.first.load(Ordering::Relaxed), OUTSIDE);
        owners.left();
        assert_eq!(owners.first.load(Ordering::Relaxed), 0);
    }
}

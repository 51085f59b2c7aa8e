//! Who holds a resource, where the monitor finds it: the address that a waiting worker's record names
//! begins with these words.
//!
//! | wait type | at the resource |
//! |---|---|
//! | `MUTEX` | the task that holds it |
//! | `JOIN` | the task that has to end; or [`SEVERAL`] and [`NAMED`] of them, for a scope |
//! | `RWLOCK_SHARED`, `RWLOCK_EXCLUSIVE` | the task that writes, and [`NAMED`] of those that read |
//!
//! 0 is nobody, [`OUTSIDE`] a thread that is no worker. Nothing is decided by these words: when more
//! hold a resource than can be named, a circle of waiters may go unseen and none is seen that is not there.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::worker::{self, OUTSIDE};

/// In place of the first task: all of those that are named behind it have to end. No task gets so far.
pub(crate) const SEVERAL: u64 = 1 << 62;

/// Holders that are named behind the first word.
pub(crate) const NAMED: usize = PLACES as usize;
const PLACES: u8 = 4;

/// Words of a resource that several may hold.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Owners {
    first: AtomicU64,
    named: [AtomicU64; NAMED],
}

/// Where a holder is named, if there was room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(Option<u8>);

impl Owners {
    /// Those of a lock: nobody yet.
    pub(crate) const fn of_lock() -> Self {
        Self::starting_with(0)
    }

    /// Those of a group of tasks that is waited for as a whole.
    pub(crate) const fn of_group() -> Self {
        Self::starting_with(SEVERAL)
    }

    const fn starting_with(first: u64) -> Self {
        Self {
            first: AtomicU64::new(first),
            named: [const { AtomicU64::new(0) }; NAMED],
        }
    }

    /// The calling task holds it alone.
    #[inline]
    pub(crate) fn held_alone(&self) {
        self.first.store(worker::task_here(), Ordering::Relaxed);
    }

    /// Nobody holds it alone any more.
    #[inline]
    pub(crate) fn left(&self) {
        self.first.store(0, Ordering::Relaxed);
    }

    /// The calling task holds it beside others.
    ///
    /// No exchange, which was a third of the price of a read lock: of two that take one place the later
    /// is named, and clearing it twice leaves a holder unnamed. A name never outlasts its holder, who
    /// clears the place after it wrote there.
    #[inline]
    pub(crate) fn add(&self) -> Place {
        let task = worker::task_here();
        if task == OUTSIDE {
            return Place(None);
        }
        let is_free = |place: &u8| self.named[usize::from(*place)].load(Ordering::Relaxed) == 0;
        let place = (0..PLACES).find(is_free);
        if let Some(place) = place {
            self.named[usize::from(place)].store(task, Ordering::Relaxed);
        }
        Place(place)
    }

    /// Who was named at `place` does not hold it any more.
    #[inline]
    pub(crate) fn remove(&self, place: Place) {
        if let Some(place) = place.0 {
            self.named[usize::from(place)].store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The monitor reads these words by their place.
    #[test]
    fn the_words_stand_in_a_row() {
        assert_eq!(std::mem::offset_of!(Owners, first), 0);
        assert_eq!(std::mem::offset_of!(Owners, named), 8);
        assert_eq!(size_of::<Owners>(), 8 + 8 * NAMED);
    }

    /// Threads may outnumber the places, and are not named: none may be taken by them.
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

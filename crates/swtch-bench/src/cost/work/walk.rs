//! A walk through memory, each step at the address that the last one read.
//!
//! ```text
//! line 0 ──▶ line 5 ──▶ line 2 ──▶ … ──▶ line 0     all places once, then where it began
//! ```
//!
//! A step cannot begin before the last has ended, so nothing hides what a miss costs but the
//! CPU's own guess of where the next line will be, and no compiler can leave a step out.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Work;
use super::mapping::Mapping;

/// Words in a cache line of 64 bytes.
pub(super) const LINE: usize = 64 / size_of::<AtomicUsize>();

/// The work.
pub(super) struct Walk {
    memory: Arc<Mapping>,
    steps: usize,
    at: usize,
}

impl Walk {
    /// The cycle that [`link`] made, from its first place.
    pub(super) const fn new(memory: Arc<Mapping>, first: usize, steps: usize) -> Self {
        Self {
            memory,
            steps,
            at: first,
        }
    }
}

/// Writes a cycle through `places`, indices of words, in their order.
///
/// Every place is written to, so that it lies in a page of its own: one that is only read is the page
/// of zeros that all share, and fits into every cache.
pub(super) fn link(memory: &Mapping, places: &[usize]) {
    let words = memory.words();
    let nexts = places.iter().cycle().skip(1);
    for (place, next) in places.iter().zip(nexts) {
        words[*place].store(*next, Ordering::Relaxed);
        // Beside it, because the place itself may be sent to word 0.
        words[*place + 1].store(usize::MAX, Ordering::Relaxed);
    }
}

impl Work for Walk {
    fn run(&mut self) {
        let words = self.memory.words();
        let mut at = self.at;
        for _ in 0..self.steps {
            at = words[at].load(Ordering::Relaxed);
        }
        self.at = black_box(at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::{Backing, PageSize};
    use super::*;

    /// Where the walk ends depends on every step: half a cycle ends elsewhere, two halves at home.
    #[test]
    fn no_step_is_left_out() {
        let memory = Mapping::new(4096, Backing::Anonymous, PageSize::Small).unwrap();
        let places = [0, 3 * LINE, LINE, 2 * LINE];
        link(&memory, &places);
        let mut walk = Walk::new(Arc::new(memory), places[0], 2);
        walk.run();
        assert_eq!(walk.at, places[2]);
        walk.run();
        assert_eq!(walk.at, places[0]);
    }
}

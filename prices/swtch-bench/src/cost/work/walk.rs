//! A walk through memory, in which each step goes to the address that the last one read.
//!
//! ```text
//! line 0 ──▶ line 5 ──▶ line 2 ──▶ … ──▶ line 0     every line once, then back to the start
//! ```
//!
//! A step cannot begin before the last one has ended. So only the CPU's own prediction of the next
//! line can hide the cost of a miss, and no compiler can leave a step out.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Work;
use super::mapping::Mapping;

/// Words in a cache line of 64 bytes.
pub(super) const LINE: usize = 64 / size_of::<AtomicUsize>();

pub(super) struct Walk {
    memory: Arc<Mapping>,
    steps: usize,
    at: usize,
}

impl Walk {
    /// Walks the cycle that [`link`] made, from the word with index `first`.
    pub(super) const fn new(memory: Arc<Mapping>, first: usize, steps: usize) -> Self {
        Self {
            memory,
            steps,
            at: first,
        }
    }
}

/// Writes a cycle through `places`, which are indices of words, in their order.
///
/// Every one of these words is written to, so that the kernel allocates its page: pages that are
/// only read all map the shared zero page, which fits into every cache.
pub(super) fn link(memory: &Mapping, places: &[usize]) {
    let words = memory.words();
    let nexts = places.iter().cycle().skip(1);
    for (place, next) in places.iter().zip(nexts) {
        words[*place].store(*next, Ordering::Relaxed);
        // A second word is written too, because the place itself may hold the index 0.
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
    use super::super::mapping::{PageSize, Visibility};
    use super::*;

    /// The end of the walk depends on every step: half a cycle ends elsewhere, a full one at the
    /// start.
    #[test]
    fn no_step_is_left_out() {
        let memory = Mapping::new(4096, Visibility::Private, PageSize::Small).unwrap();
        let places = [0, 3 * LINE, LINE, 2 * LINE];
        link(&memory, &places);
        let mut walk = Walk::new(Arc::new(memory), places[0], 2);
        walk.run();
        assert_eq!(walk.at, places[2]);
        walk.run();
        assert_eq!(walk.at, places[0]);
    }
}

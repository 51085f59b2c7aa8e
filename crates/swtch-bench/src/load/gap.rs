//! What a member sees of its own switches: two readings of the clock that follow each other, and lie far
//! apart.
//!
//! ```text
//! readings  ||||||||||||||||            |||||||||||||||||
//!                          │◀── gap ───▶│      something else had the CPU, or an interrupt
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock;

/// Two readings are a gap from here on: a reading takes 20 to 50 ns, an interrupt a few µs.
const LEAST_NS: u64 = 10_000;

/// Gaps that a member keeps: the longest. Places for them are there before it begins.
const MOST: usize = 32;

/// Time that a member did not see go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last reading before it: ns of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// The first reading after it.
    pub to_ns: u64,
}

impl Gap {
    /// How long it is, in ns.
    pub const fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// The longest gaps so far; unused places are of length 0.
#[derive(Debug, Default)]
pub(super) struct Longest([Gap; MOST]);

impl Longest {
    /// Reads the clock again and again for so long.
    pub(super) fn watch(&mut self, length_ns: u64) {
        let mut last = clock::now().as_ns();
        let until = last.saturating_add(length_ns);
        while last < until {
            let now = clock::now().as_ns();
            if now.saturating_sub(last) >= LEAST_NS {
                self.keep(Gap {
                    from_ns: last,
                    to_ns: now,
                });
            }
            last = now;
        }
    }

    fn keep(&mut self, gap: Gap) {
        let shortest = self.0.iter_mut().min_by_key(|one| one.length_ns());
        if let Some(shortest) = shortest.filter(|one| one.length_ns() < gap.length_ns()) {
            *shortest = gap;
        }
    }
}

/// Where a member leaves them.
#[derive(Debug)]
pub(super) struct Left([[AtomicU64; 2]; MOST]);

impl Left {
    pub(super) fn leave(&self, longest: &Longest) {
        for (place, gap) in self.0.iter().zip(&longest.0) {
            place[0].store(gap.from_ns, Ordering::Relaxed);
            place[1].store(gap.to_ns, Ordering::Relaxed);
        }
    }

    /// Those that there are, in order of time.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        let gaps = self.0.iter().map(|place| Gap {
            from_ns: place[0].load(Ordering::Relaxed),
            to_ns: place[1].load(Ordering::Relaxed),
        });
        let mut gaps: Vec<Gap> = gaps.filter(|gap| gap.length_ns() > 0).collect();
        gaps.sort_by_key(|gap| gap.from_ns);
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_kept() {
        let mut longest = Longest::default();
        for length in (1..=100).rev().chain(101..=110) {
            longest.keep(Gap {
                from_ns: 1000,
                to_ns: 1000 + length,
            });
        }
        let mut lengths: Vec<u64> = longest.0.iter().map(Gap::length_ns).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, (79..=110).collect::<Vec<_>>());
    }

    /// A thread that is asleep while another watches leaves no gap; one that holds the CPU does, but
    /// nobody can say how often: so only that the watch ends in time is certain.
    #[test]
    fn a_watch_is_as_long_as_it_was_told() {
        let before = clock::now();
        let mut longest = Longest::default();
        longest.watch(3_000_000);
        let took = clock::now().since(before).unwrap().as_ns();
        assert!(took >= 3_000_000, "{took}");
        assert!(longest.0.iter().all(|gap| gap.length_ns() <= took));
    }
}

//! Gaps: what a member sees of its own switches, as two consecutive clock readings that are far
//! apart.
//!
//! ```text
//! readings  ||||||||||||||||            |||||||||||||||||
//!                          │◀── gap ───▶│      something else had the CPU, or an interrupt
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock;

/// Shortest gap: a reading takes 20 to 50 ns, an interrupt a few µs.
const LEAST_NS: u64 = 10_000;

/// Number of gaps that a member keeps, the longest ones. The array is allocated before the member
/// begins.
const MOST: usize = 32;

/// A stretch of time in which a member did not run, for example because another task or an
/// interrupt had its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockGap {
    /// The last reading before the gap: ns of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// The first reading after the gap, on the same clock.
    pub to_ns: u64,
}

impl ClockGap {
    /// Length of the gap, in ns.
    pub const fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// The longest gaps so far; unused entries have the length 0.
#[derive(Debug, Default)]
pub(super) struct LongestGaps([ClockGap; MOST]);

impl LongestGaps {
    /// Reads the clock repeatedly for `length_ns`.
    pub(super) fn watch(&mut self, length_ns: u64) {
        let mut last = clock::now().as_ns();
        let until = last.saturating_add(length_ns);
        while last < until {
            let now = clock::now().as_ns();
            if now.saturating_sub(last) >= LEAST_NS {
                self.keep(ClockGap {
                    from_ns: last,
                    to_ns: now,
                });
            }
            last = now;
        }
    }

    fn keep(&mut self, gap: ClockGap) {
        let shortest = self.0.iter_mut().min_by_key(|one| one.length_ns());
        if let Some(shortest) = shortest.filter(|one| one.length_ns() < gap.length_ns()) {
            *shortest = gap;
        }
    }
}

/// The longest gaps of a member in shared memory, where the player reads them.
#[derive(Debug)]
pub(super) struct SharedGaps([[AtomicU64; 2]; MOST]);

impl SharedGaps {
    pub(super) fn store(&self, longest: &LongestGaps) {
        for (slot, gap) in self.0.iter().zip(&longest.0) {
            slot[0].store(gap.from_ns, Ordering::Relaxed);
            slot[1].store(gap.to_ns, Ordering::Relaxed);
        }
    }

    /// The recorded gaps, in order of time.
    pub(super) fn gaps(&self) -> Vec<ClockGap> {
        let gaps = self.0.iter().map(|slot| ClockGap {
            from_ns: slot[0].load(Ordering::Relaxed),
            to_ns: slot[1].load(Ordering::Relaxed),
        });
        let mut gaps: Vec<ClockGap> = gaps.filter(|gap| gap.length_ns() > 0).collect();
        gaps.sort_by_key(|gap| gap.from_ns);
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_kept() {
        let mut longest = LongestGaps::default();
        for length in (1..=100).rev().chain(101..=110) {
            longest.keep(ClockGap {
                from_ns: 1000,
                to_ns: 1000 + length,
            });
        }
        let mut lengths: Vec<u64> = longest.0.iter().map(ClockGap::length_ns).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, (79..=110).collect::<Vec<_>>());
    }

    /// It is not predictable how often a thread loses the CPU, so the test only requires that the watch takes its time,
    /// and that no gap is longer than the watch.
    #[test]
    fn a_watch_is_as_long_as_it_was_told() {
        let before = clock::now();
        let mut longest = LongestGaps::default();
        longest.watch(3_000_000);
        let took = clock::now().since(before).unwrap().as_ns();
        assert!(took >= 3_000_000, "{took}");
        assert!(longest.0.iter().all(|gap| gap.length_ns() <= took));
    }
}

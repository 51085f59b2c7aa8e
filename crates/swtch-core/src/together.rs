//! For how long any of several tasks ran, and for how long only one of them.
//!
//! ```text
//!  cpu 0  ├──── A ────┤     ├── A ──┤
//!  cpu 1       ├── B ──────────┤
//!         └ 1 ┘└── 2 ─┘└ 1 ─┘└2┘└ 1 ┘
//! ```

use std::collections::VecDeque;

use crate::units::{Nanos, Timestamp};

/// Stretches that later runs may overlap still. A run that began before more of them than this is counted as if it had
/// begun later.
const MOST_OPEN: usize = 4096;

/// Stretches in which several ran that are kept, 16 bytes each; what was before them is taken to be in whatever is asked
/// for.
const MOST_KEPT: usize = 1 << 20;

/// The time that stretches cover, each moment once.
#[derive(Debug, Default)]
struct CoveredTime {
    settled: Nanos,
    /// Apart from each other, and in order.
    stretches: VecDeque<(Timestamp, Timestamp)>,
}

impl CoveredTime {
    /// Adds a stretch, and tells which parts of it were covered before.
    fn add(
        &mut self,
        (from, to): (Timestamp, Timestamp),
        most: usize,
        mut again: impl FnMut(Timestamp, Timestamp),
    ) {
        if self.stretches.back().is_none_or(|last| last.1 < from) {
            self.stretches.push_back((from, to));
        } else {
            // Runs come in order of their ends, so nearly all that a run overlaps is at the end.
            let stretches = self.stretches.iter().rev();
            let later = stretches.clone().take_while(|one| one.0 > to).count();
            let overlap = stretches.skip(later).take_while(|one| one.1 >= from);
            let after = self.stretches.len() - later;
            let first = after - overlap.count();
            let mut joined = (from, to);
            for one in self.stretches.drain(first..after) {
                if one.0.max(from) < one.1.min(to) {
                    again(one.0.max(from), one.1.min(to));
                }
                joined = (joined.0.min(one.0), joined.1.max(one.1));
            }
            self.stretches.insert(first, joined);
        }
        if self.stretches.len() > most
            && let Some(oldest) = self.stretches.pop_front()
        {
            self.settled += oldest.1.since(oldest.0).unwrap_or_default();
        }
    }

    /// Returns how much of these stretches it covers, which are in the order of their beginnings.
    fn within(&self, stretches: &[(Timestamp, Timestamp)]) -> Nanos {
        let mut sum = Nanos::ZERO;
        let mut first = 0;
        for (from, to) in stretches.iter().copied() {
            while self.stretches.get(first).is_some_and(|one| one.1 <= from) {
                first += 1;
            }
            let here = self.stretches.range(first..).take_while(|one| one.0 < to);
            let length = |one: &(Timestamp, Timestamp)| one.1.min(to).since(one.0.max(from));
            sum += here.map(|one| length(one).unwrap_or_default()).sum();
        }
        sum
    }

    fn sum(&self) -> Nanos {
        let open = self.stretches.iter();
        let open = open.map(|one| one.1.since(one.0).unwrap_or_default());
        self.settled + open.sum()
    }
}

/// The runs of several tasks.
#[derive(Debug, Default)]
pub struct RunsTogether {
    ran: Nanos,
    any: CoveredTime,
    several: CoveredTime,
}

impl RunsTogether {
    /// Adds a run; runs come in the order of their ends.
    pub fn add_run(&mut self, from: Timestamp, to: Timestamp) {
        self.ran += to.since(from).unwrap_or_default();
        let several = &mut self.several;
        self.any.add((from, to), MOST_OPEN, |from, to| {
            several.add((from, to), MOST_KEPT, |_, _| ());
        });
    }

    /// Returns how long they ran, each for itself.
    pub const fn ran(&self) -> Nanos {
        self.ran
    }

    /// Returns how long at least one of them ran.
    pub fn any(&self) -> Nanos {
        self.any.sum()
    }

    /// For how much of these stretches, in each of which one of them ran, no other one did: at least so much.
    pub fn alone_in(&self, stretches: impl Iterator<Item = (Timestamp, Timestamp)>) -> Nanos {
        let mut stretches: Vec<_> = stretches.collect();
        stretches.sort_unstable();
        let lengths = stretches
            .iter()
            .map(|(from, to)| to.since(*from).unwrap_or_default());
        let all: Nanos = lengths.sum();
        all.saturating_sub(self.several.settled + self.several.within(&stretches))
    }

    /// Returns how long exactly one of them ran.
    pub fn alone(&self) -> Nanos {
        self.any().saturating_sub(self.several.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(runs: &[(u64, u64)]) -> [u64; 3] {
        let mut together = RunsTogether::default();
        for (from, to) in runs {
            together.add_run(Timestamp::from_ns(*from), Timestamp::from_ns(*to));
        }
        [together.ran(), together.any(), together.alone()].map(Nanos::as_ns)
    }

    /// The picture of this module.
    #[test]
    fn each_moment_counts_once() {
        assert_eq!(of(&[(0, 12), (5, 27), (18, 30)]), [46, 30, 14]);
        assert_eq!(of(&[(0, 10), (10, 20), (25, 30)]), [25, 25, 25]);
    }

    #[test]
    fn a_stretch_is_divided_by_who_else_ran() {
        let mut together = RunsTogether::default();
        let at = Timestamp::from_ns;
        for (from, to) in [(0, 12), (5, 27), (18, 30)] {
            together.add_run(at(from), at(to));
        }
        let alone = |stretches: &[(u64, u64)]| {
            let stretches = stretches.iter().map(|(from, to)| (at(*from), at(*to)));
            together.alone_in(stretches).as_ns()
        };
        assert_eq!(alone(&[(0, 12)]), 5);
        assert_eq!(alone(&[(2, 4), (10, 20), (28, 30)]), 2 + 6 + 2);
        assert_eq!(alone(&[]), 0);
    }

    /// Three at a time are no more alone than two, and a long run that ends last covers all before it.
    #[test]
    fn a_run_may_have_begun_before_many_others() {
        assert_eq!(of(&[(5, 10), (12, 20), (15, 18), (3, 21)]), [34, 18, 5]);
        let short: Vec<_> = (0..100).map(|one| (one * 10, one * 10 + 5)).collect();
        let mut runs = short.clone();
        runs.push((0, 1000));
        assert_eq!(of(&runs), [1500, 1000, 500]);
        runs.push((0, 1000));
        assert_eq!(of(&runs), [2500, 1000, 0]);
    }
}

//! Branches that depend on data: what a switch costs when the branch predictor has learned another
//! task's pattern.
//!
//! Compare [`PatternSharing::PerMember`] with [`PatternSharing::Same`], where all members train the
//! predictor alike. Few branches are quickly learned again, and more branches than the predictor holds are
//! mispredicted anyway, so the cost of a switch first rises with their number and then falls.

use std::hint::black_box;

use serde::{Deserialize, Serialize};

use super::Work;
use super::random::SplitMix64;

/// Says whether members have the same branch pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PatternSharing {
    /// Each member has a pattern of its own.
    PerMember,
    /// All members have the same pattern.
    Same,
}

pub(super) struct Branches {
    /// One bit per branch, so that the data take little of the cache.
    pattern: Vec<u64>,
    count: u32,
    taken: u64,
}

impl Branches {
    pub(super) fn new(count: u32, patterns: PatternSharing, member: usize) -> Self {
        let seed = match patterns {
            PatternSharing::PerMember => member as u64 + 1,
            PatternSharing::Same => 1,
        };
        let mut random = SplitMix64::new(seed);
        Self {
            pattern: (0..count.div_ceil(64)).map(|_| random.next()).collect(),
            count,
            taken: 0,
        }
    }
}

impl Work for Branches {
    fn run(&mut self) {
        let mut left = self.count;
        for word in &self.pattern {
            let mut bits = *word;
            for _ in 0..left.min(64) {
                if bits & 1 == 1 {
                    // `black_box` must not run on the path that is not taken. So the compiler has
                    // to emit a branch, where it would otherwise add the bit.
                    self.taken = black_box(self.taken + 1);
                }
                bits >>= 1;
            }
            left = left.saturating_sub(64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_branch_is_gone_through() {
        let mut work = Branches::new(100, PatternSharing::Same, 7);
        let ones = work.pattern[0].count_ones() + (work.pattern[1] << 28).count_ones();
        work.run();
        assert_eq!(work.taken, u64::from(ones));
    }

    /// A random pattern must take much longer than a constant one: so there are branches to
    /// mispredict. Others only ever make a run longer, so that the shortest of each approach the
    /// true ones.
    #[test]
    fn branches_are_not_folded_away() {
        let time = |work: &mut Branches| {
            let start = Instant::now();
            work.run();
            start.elapsed()
        };
        let mut random = Branches::new(1 << 18, PatternSharing::Same, 0);
        let mut constant = Branches::new(1 << 18, PatternSharing::Same, 0);
        constant.pattern.fill(u64::MAX);
        let mut shortest = [Duration::MAX; 2];
        for round in 0..1000 {
            let times = [time(&mut random), time(&mut constant)];
            shortest = [0, 1].map(|one| shortest[one].min(times[one]));
            if round >= 20 && shortest[0] > shortest[1] * 3 / 2 {
                return;
            }
        }
        panic!("random and constant take {shortest:?}");
    }
}

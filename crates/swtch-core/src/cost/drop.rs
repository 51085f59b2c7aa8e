//! Leaves blocks out, and only for reasons that are declared beforehand and counted.
//!
//! Leaving out whatever looks odd would bias the result. Two things are known to be no part of what
//! a block measures: a task from outside that got the CPU in between (the kernel counts an
//! involuntary switch where the block by its construction has none), and a stall that made the
//! block several times as long as others of its series: many interrupts, a tick that ran over, or a
//! guest that lost its core.
//!
//! A block is dropped alone, without its round: on a busy machine a round of thirty arms nearly
//! always has one such block. Comparisons use the rounds in which *all* compared series have kept
//! their blocks ([`KeptBlocks::together`]), so that values stay paired.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::interval::median;

/// The longest that a block may last, in multiples of the median of its series in the tree.
/// Preemption by another task doubles a block of 1 ms and is counted by the kernel; noise of caches
/// and clocks stays far below.
pub const LONGEST: f64 = 3.0;

/// One timed block of one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Number of the round in its tree.
    pub round: usize,
    /// The series that was timed: any number that identifies one operation of one arm.
    pub series: usize,
    /// Wall time over number of operations, ns.
    pub ns_per_operation: f64,
    /// Involuntary switches of the block's tasks beyond those that its construction causes.
    pub unexpected_switches: u64,
}

/// The numbers of blocks that were left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Another task got the CPU during the block.
    pub foreign_switch: usize,
    /// The block lasted more than [`LONGEST`] times the median of its series, without such a
    /// switch.
    pub too_long: usize,
}

impl Dropped {
    /// Number of blocks left out for any reason.
    pub const fn total(&self) -> usize {
        self.foreign_switch + self.too_long
    }

    /// The sums of both counts, as for two trees.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            foreign_switch: self.foreign_switch + other.foreign_switch,
            too_long: self.too_long + other.too_long,
        }
    }
}

/// The blocks of one tree that are used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptBlocks {
    /// ns per operation, by round and series.
    blocks: BTreeMap<(usize, usize), f64>,
    dropped: Dropped,
}

impl KeptBlocks {
    /// Sorts the blocks of one tree into kept and dropped ones.
    pub fn of(blocks: &[Block]) -> Self {
        let limits = limits(blocks);
        let mut kept = Self::default();
        for block in blocks {
            let limit = limits.get(&block.series);
            if block.unexpected_switches > 0 {
                kept.dropped.foreign_switch += 1;
            } else if limit.is_some_and(|limit| block.ns_per_operation > *limit) {
                kept.dropped.too_long += 1;
            } else {
                let place = (block.round, block.series);
                kept.blocks.insert(place, block.ns_per_operation);
            }
        }
        kept
    }

    /// Number of blocks left out, by reason.
    pub const fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// ns per operation of all rounds in which each of these series kept its block: one vector per
    /// series, in the order of rounds, all of the same length.
    pub fn together<const N: usize>(&self, series: [usize; N]) -> [Vec<f64>; N] {
        let mut columns = [(); N].map(|()| Vec::new());
        let Some(first) = series.first() else {
            return columns;
        };
        for (round, _) in self.blocks.keys().filter(|(_, series)| series == first) {
            let row = series.map(|series| self.blocks.get(&(*round, series)));
            if row.iter().all(Option::is_some) {
                for (column, value) in columns.iter_mut().zip(row) {
                    column.extend(value);
                }
            }
        }
        columns
    }
}

/// The longest time that is kept, of each series; computed from the blocks that no other task
/// disturbed.
fn limits(blocks: &[Block]) -> BTreeMap<usize, f64> {
    let mut times: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for block in blocks.iter().filter(|block| block.unexpected_switches == 0) {
        let series = times.entry(block.series).or_default();
        series.push(block.ns_per_operation);
    }
    let limit = |(series, times): (usize, Vec<f64>)| Some((series, median(&times)? * LONGEST));
    times.into_iter().filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn block(round: usize, series: usize, ns: f64, unexpected: u64) -> Block {
        Block {
            round,
            series,
            ns_per_operation: ns,
            unexpected_switches: unexpected,
        }
    }

    /// Two series; the second takes a hundred times as long, which is no reason to drop it.
    #[test]
    fn only_declared_reasons_drop_a_block() {
        let kept = KeptBlocks::of(&[
            block(0, 0, 10.0, 0),
            block(0, 1, 1000.0, 0),
            block(1, 0, 11.0, 1),
            block(1, 1, 2900.0, 0),
            block(2, 0, 10.0, 0),
            block(2, 1, 2800.0, 0),
            block(3, 0, 12.0, 0),
            block(3, 1, 1001.0, 0),
            block(4, 1, 999.0, 0),
        ]);
        let dropped = kept.dropped();
        assert_eq!((dropped.foreign_switch, dropped.too_long), (1, 0));
        assert_eq!(kept.together([0]), [vec![10.0, 10.0, 12.0]]);
        assert_eq!(
            kept.together([0, 1]),
            [vec![10.0, 10.0, 12.0], vec![1000.0, 2800.0, 1001.0]]
        );
    }

    /// The median here is 1001: 3004 is beyond three times that, 3002 is not.
    #[test]
    fn a_block_of_more_than_three_times_the_median_is_too_long() {
        let times = [1000.0, 1001.0, 1001.0, 3002.0, 3004.0];
        let blocks: Vec<Block> = (0..)
            .zip(times)
            .map(|(round, ns)| block(round, 7, ns, 0))
            .collect();
        let kept = KeptBlocks::of(&blocks);
        assert_eq!(kept.dropped().too_long, 1);
        assert_eq!(kept.together([7]), [vec![1000.0, 1001.0, 1001.0, 3002.0]]);
    }

    /// A long block that was preempted is counted once, as preempted.
    #[test]
    fn a_block_is_dropped_for_one_reason() {
        let kept = KeptBlocks::of(&[
            block(0, 0, 1.0, 0),
            block(1, 0, 1.0, 0),
            block(2, 0, 9.0, 4),
        ]);
        assert_eq!(kept.dropped().total(), 1);
        assert_eq!(kept.dropped().foreign_switch, 1);
        assert_eq!(kept.dropped().plus(kept.dropped()).total(), 2);
    }

    /// Values stay paired: a round counts only if all the series have it.
    #[test]
    fn a_round_without_one_of_the_blocks_is_no_pair() {
        let kept = KeptBlocks::of(&[
            block(0, 0, 1.0, 0),
            block(0, 1, 2.0, 1),
            block(1, 1, 2.5, 0),
            block(1, 0, 1.5, 0),
        ]);
        assert_eq!(kept.together([0, 1]), [vec![1.5], vec![2.5]]);
        assert_eq!(kept.together([0, 9]), [vec![], vec![]]);
        assert!(kept.together([]).is_empty());
    }
}

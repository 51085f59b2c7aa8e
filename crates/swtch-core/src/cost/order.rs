//! The order of the arms in each round: random, and yet balanced.
//!
//! An arm is timed a little differently when it is first or last in a round, or after a certain
//! other arm (caches, the scheduler's own state), and the machine drifts during a round. So every
//! arm stands equally often in every place, and follows every other equally often. The squares of
//! Williams do both in as many rounds as there are arms; with an odd number of arms two squares,
//! one the mirror of the other, do it together. Each square is drawn anew.
//!
//! ```text
//! round 0   A B D C     one square: every arm once in every row,
//! round 1   B C A D     once in every column,
//! round 2   C D B A     and once right after every other
//! round 3   D A C B
//! round 4   …           another square
//! ```
//!
//! A cyclic square would not do: there every arm follows the same other one in all rows, and that
//! one affects it in all of them. Two arms that did the same came out different in 7 to 10 of 10
//! sessions by 0.3 %.
//!
//! With two arms, consecutive rounds are ABBA (or BAAB), which takes out a linear drift.
//!
//! Sources: E. J. Williams, "Experimental Designs Balanced for the Estimation of Residual Effects
//! of Treatments", Australian Journal of Scientific Research A 2 (1949); R. A. Fisher, "The Design
//! of Experiments", 1935, §33 (Latin squares, and why they are drawn); Abedi and Brecht,
//! "Conducting Repeatable Experiments in Highly Variable Cloud Computing Environments", ICPE 2017
//! (random multiple interleaved trials).

use fastrand::Rng;

/// 2⁶⁴ over the golden ratio: it sets the draws of neighbouring squares apart.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A Latin square: in `size` rounds every arm stands once in every place.
#[derive(Clone, Debug)]
pub struct LatinSquare {
    size: usize,
    seed: u64,
}

impl LatinSquare {
    /// A square for `size` arms, drawn by `seed`: the same seed gives the same order.
    pub const fn new(size: usize, seed: u64) -> Self {
        Self { size, seed }
    }

    /// The order of the arms in `round`: the indices below `size`, each once.
    pub fn row(&self, round: usize) -> impl Iterator<Item = usize> + use<> {
        let size = self.size;
        let square = round / size.max(1);
        let (arms, shifts) = self.draw(square);
        let shift = shifts.get(round % size.max(1)).copied().unwrap_or_default();
        let is_mirror = size % 2 == 1 && square % 2 == 1;
        (0..size).map(move |place| {
            let place = if is_mirror { size - 1 - place } else { place };
            arms[(zigzag(place, size) + shift) % size]
        })
    }

    /// Draws which arm bears which number in the square, and the order of its rows. A square and its mirror use the
    /// same draw.
    fn draw(&self, square: usize) -> (Vec<usize>, Vec<usize>) {
        let square = if self.size % 2 == 1 {
            square / 2
        } else {
            square
        };
        let mut rng = Rng::with_seed(self.seed ^ (square as u64).wrapping_mul(GOLDEN));
        let mut arms: Vec<usize> = (0..self.size).collect();
        let mut shifts = arms.clone();
        rng.shuffle(&mut arms);
        rng.shuffle(&mut shifts);
        (arms, shifts)
    }
}

/// The first row of a Williams square: 0, 1, n-1, 2, n-2, … All steps between neighbours differ, so
/// no two of its shifts have the same neighbours.
const fn zigzag(place: usize, size: usize) -> usize {
    if place % 2 == 1 {
        place.div_ceil(2)
    } else {
        (size - place / 2) % size
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn rounds(size: usize, seed: u64, rounds: std::ops::Range<usize>) -> Vec<Vec<usize>> {
        let square = LatinSquare::new(size, seed);
        rounds.map(|round| square.row(round).collect()).collect()
    }

    /// Each square is a Latin square, for the first squares of many seeds.
    #[test]
    fn every_arm_stands_once_in_every_place_per_square() {
        for size in 1..9 {
            for seed in 0..20 {
                let rows = rounds(size, seed, 2 * size..3 * size);
                for place in 0..size {
                    let mut column: Vec<_> = rows.iter().map(|row| row[place]).collect();
                    column.sort_unstable();
                    assert_eq!(column, (0..size).collect::<Vec<_>>());
                }
                for row in rows {
                    let mut row = row;
                    row.sort_unstable();
                    assert_eq!(row, (0..size).collect::<Vec<_>>());
                }
            }
        }
    }

    /// A linear drift within two rounds affects both arms equally.
    #[test]
    fn two_arms_are_timed_as_abba() {
        for seed in 0..20 {
            for pair in rounds(2, seed, 0..20).chunks(2) {
                let [a, b] = [pair[0][0], pair[0][1]];
                assert_eq!(pair[1], [b, a]);
            }
        }
    }

    #[test]
    fn the_seed_alone_decides_the_order() {
        assert_eq!(rounds(7, 5, 0..30), rounds(7, 5, 0..30));
        assert_ne!(rounds(7, 5, 0..7), rounds(7, 6, 0..7));
    }

    /// Otherwise an arm would be affected by the same predecessor in all rounds. An odd number of
    /// arms needs two squares.
    #[test]
    fn every_arm_follows_every_other_equally_often() {
        for size in 2..10 {
            let squares = if size % 2 == 1 { 2 } else { 1 };
            let mut follows = BTreeMap::new();
            for row in rounds(size, 1, 0..size * squares) {
                for pair in row.windows(2) {
                    *follows.entry((pair[0], pair[1])).or_insert(0) += 1;
                }
            }
            assert_eq!(follows.len(), size * (size - 1), "{size}");
            assert!(follows.values().all(|times| *times == squares), "{size}");
        }
    }

    #[test]
    fn squares_are_drawn_anew() {
        assert_ne!(rounds(6, 3, 0..6), rounds(6, 3, 6..12));
    }

    #[test]
    fn no_arms_have_no_order() {
        assert_eq!(rounds(0, 1, 0..2), [[0_usize; 0], []]);
    }
}

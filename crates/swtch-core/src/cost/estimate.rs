//! The value of a measurement and its confidence interval.
//!
//! A measurement is a number of fresh process trees, each with a number of rounds. Two *identical*
//! arms of one tree differ by about 1 %, depending on where their memory happens to lie, and keep
//! that difference for the tree's whole life, while their blocks agree within 0.2 %. So the rounds
//! of a tree say how well *this tree* is known; how much trees differ, only other trees can say.
//! The statistical unit is the tree:
//!
//! ```text
//! tree 0   rounds ─▶ median ┐
//! tree 1   rounds ─▶ median ├─▶ median of the medians, sign interval over the trees
//! …        rounds ─▶ median ┘
//! ```
//!
//! Rounds are never pooled across trees: sixty rounds of each of ten trees are ten values, not six
//! hundred (Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013, §4: repeat
//! where the variance is; Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously
//! Wrong!", ASPLOS 2009).
//!
//! With fewer than [`LEAST_TREES`] there is no interval over trees. The interval then says where
//! the medians of *these* trees lie, from their own rounds; a comparison must allow for the unknown
//! variation between trees ([`super::verdict::differs`] does).
//!
//! Contrasts are paired round by round: drift from round to round is common to all arms of a round,
//! so it cancels.

use serde::{Deserialize, Serialize};

use crate::stats::autocorrelation::effective_n;
use crate::stats::holm;
use crate::stats::interval::{ConfidenceInterval, SignInterval, median, sign_interval};
use crate::stats::sign_test::sign_test;

/// The confidence of intervals, unless another is asked for.
pub const CONFIDENCE: f64 = 0.95;

/// The fewest trees that have an interval of their own: [`crate::stats::interval::LEAST_VALUES`].
pub const LEAST_TREES: usize = crate::stats::interval::LEAST_VALUES;

/// A value and its interval, in the unit of what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the medians of the trees.
    pub point: f64,
    /// Lower end of the confidence interval.
    pub low: f64,
    /// Upper end of the confidence interval.
    pub high: f64,
    /// The probability (0 to 1) that such an interval holds the true value: that of all possible
    /// trees if [`Self::covers_trees`], else only that of the trees that were measured.
    pub confidence: f64,
    /// Number of trees that had rounds.
    pub trees: usize,
    /// Number of rounds of all trees together.
    pub rounds: usize,
}

/// The comparison of one arm, b, with another, a.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contrast {
    /// b minus a, round by round, in the unit of both.
    pub difference: Estimate,
    /// b divided by a, round by round, computed as medians of the logarithm.
    pub ratio: Estimate,
    /// Sign-test p-value (0 to 1) for ratio = 1, over trees. With fewer than [`LEAST_TREES`]: over
    /// rounds, the largest of any tree, and 1 if trees disagree. Holm-adjusted within a family.
    pub p: f64,
}

/// The two sides of a contrast: the trees of a, and of b.
pub type Pair<'a> = (&'a [Vec<f64>], &'a [Vec<f64>]);

impl Estimate {
    /// The estimate at [`CONFIDENCE`]; each inner vector holds the rounds of one tree.
    ///
    /// Trees without rounds are skipped. `None` if no tree has any, or a value is not finite.
    pub fn of_trees(trees: &[Vec<f64>]) -> Option<Self> {
        Self::of_trees_at(trees, CONFIDENCE)
    }

    /// The estimate at another confidence (0 to 1). [`Self::confidence`] says which was reached.
    pub fn of_trees_at(trees: &[Vec<f64>], confidence: f64) -> Option<Self> {
        if !trees.iter().flatten().all(|value| value.is_finite()) {
            return None;
        }
        let medians: Vec<f64> = trees.iter().filter_map(|rounds| median(rounds)).collect();
        let sign = if medians.len() >= LEAST_TREES {
            sign_interval(&medians, confidence, None)?
        } else {
            within_trees(trees, confidence)?
        };
        Some(Self {
            point: median(&medians)?,
            low: sign.interval.low,
            high: sign.interval.high,
            confidence: sign.confidence,
            trees: medians.len(),
            rounds: trees.iter().map(Vec::len).sum(),
        })
    }

    /// b minus a, paired round by round.
    ///
    /// `None` if a and b differ in their number of trees or of rounds, and as for
    /// [`Self::of_trees`].
    pub fn of_differences(a: &[Vec<f64>], b: &[Vec<f64>]) -> Option<Self> {
        Self::of_trees(&paired(a, b, |a, b| b - a)?)
    }

    /// The ends `low` and `high` as an [`ConfidenceInterval`].
    pub const fn interval(&self) -> ConfidenceInterval {
        ConfidenceInterval {
            low: self.low,
            high: self.high,
        }
    }

    /// Half the length of the interval, in per cent of the point. `None` if the point is 0.
    pub fn half_width_pct(&self) -> Option<f64> {
        (self.point != 0.0).then(|| self.interval().half_width() / self.point.abs() * 100.0)
    }

    /// Returns true if the interval includes the variation between trees.
    pub const fn covers_trees(&self) -> bool {
        self.trees >= LEAST_TREES
    }

    fn exp(self) -> Self {
        Self {
            point: self.point.exp(),
            low: self.low.exp(),
            high: self.high.exp(),
            ..self
        }
    }
}

impl Contrast {
    /// Compares b with a at [`CONFIDENCE`]; each inner vector holds the rounds of one tree, and the
    /// same index is the same round of the same tree.
    ///
    /// `None` if a and b differ in their number of trees or of rounds, no tree has any, or a value
    /// is not positive and finite. (Values that may be negative have no ratio: use
    /// [`Estimate::of_differences`].)
    pub fn of_trees(a: &[Vec<f64>], b: &[Vec<f64>]) -> Option<Self> {
        Self::of_trees_at(a, b, CONFIDENCE)
    }

    /// Compares b with a at another confidence (0 to 1).
    pub fn of_trees_at(a: &[Vec<f64>], b: &[Vec<f64>], confidence: f64) -> Option<Self> {
        if !a.iter().chain(b).flatten().all(|value| *value > 0.0) {
            return None;
        }
        let log_ratios = paired(a, b, |a, b| (b / a).ln())?;
        Some(Self {
            difference: Estimate::of_trees_at(&paired(a, b, |a, b| b - a)?, confidence)?,
            ratio: Estimate::of_trees_at(&log_ratios, confidence)?.exp(),
            p: p_value(&log_ratios)?,
        })
    }

    /// Compares many pairs, so that the probability of any wrong claim among them is at most
    /// `alpha` (0 to 1): intervals at Holm's levels, and adjusted p values. The results are in the
    /// order given; pairs that cannot be compared are `None` and do not count in the adjustment.
    ///
    /// [`holm::least_trees`] says how many trees are needed. With fewer, intervals fall short of
    /// their level, which [`Estimate::confidence`] shows.
    pub fn of_family(pairs: &[Pair<'_>], alpha: f64) -> Vec<Option<Self>> {
        let alone: Vec<Option<Self>> = pairs.iter().map(|(a, b)| Self::of_trees(a, b)).collect();
        let p: Vec<f64> = alone.iter().flatten().map(|contrast| contrast.p).collect();
        let mut levels = holm::confidence_levels(&p, alpha).into_iter();
        let mut adjusted = holm::adjusted(&p).into_iter();
        pairs
            .iter()
            .zip(alone)
            .map(|((a, b), alone)| {
                alone?;
                let contrast = Self::of_trees_at(a, b, levels.next()?)?;
                let p = adjusted.next()?;
                Some(Self { p, ..contrast })
            })
            .collect()
    }
}

/// Each round of a with the same round of b; `None` if their numbers differ.
fn paired(
    a: &[Vec<f64>],
    b: &[Vec<f64>],
    compare: impl Fn(f64, f64) -> f64,
) -> Option<Vec<Vec<f64>>> {
    if !a.iter().map(Vec::len).eq(b.iter().map(Vec::len)) {
        return None;
    }
    let tree = |(a, b): (&Vec<f64>, &Vec<f64>)| {
        let rounds = a.iter().zip(b);
        rounds.map(|(a, b)| compare(*a, *b)).collect()
    };
    Some(a.iter().zip(b).map(tree).collect())
}

/// The smallest interval that contains those of all trees, with the lowest confidence of any.
fn within_trees(trees: &[Vec<f64>], confidence: f64) -> Option<SignInterval> {
    trees
        .iter()
        .filter_map(|rounds| within_tree(rounds, confidence))
        .reduce(|one, other| SignInterval {
            interval: one.interval.joined(&other.interval),
            confidence: one.confidence.min(other.confidence),
        })
}

/// The interval for the median of one tree, over as many rounds as these are worth. If those are
/// too few: from lowest to highest value, with the confidence that this reaches.
fn within_tree(rounds: &[f64], confidence: f64) -> Option<SignInterval> {
    let worth = effective_n(rounds)?;
    sign_interval(rounds, confidence, Some(worth)).or_else(|| {
        Some(SignInterval {
            interval: ConfidenceInterval {
                low: rounds.iter().copied().reduce(f64::min)?,
                high: rounds.iter().copied().reduce(f64::max)?,
            },
            confidence: (1.0 - 2.0 * 0.5_f64.powf(worth)).max(0.0),
        })
    })
}

/// The sign test of zero: over trees; if those are too few, the highest p of any tree's own rounds,
/// and 1 if the trees disagree.
fn p_value(trees: &[Vec<f64>]) -> Option<f64> {
    let medians: Vec<f64> = trees.iter().filter_map(|rounds| median(rounds)).collect();
    if medians.len() >= LEAST_TREES {
        return sign_test(&medians, 0.0, None);
    }
    let rises = medians.iter().filter(|median| **median > 0.0).count();
    if rises != 0 && rises != medians.len() {
        return Some(1.0);
    }
    let own = |rounds: &Vec<f64>| sign_test(rounds, 0.0, effective_n(rounds));
    trees.iter().filter_map(own).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trees with these medians, five rounds each.
    fn trees(medians: &[f64]) -> Vec<Vec<f64>> {
        medians
            .iter()
            .map(|median| [-2.0, 1.0, 0.0, 2.0, -1.0].map(|off| median + off).to_vec())
            .collect()
    }

    #[test]
    fn the_tree_is_the_unit() {
        let estimate =
            Estimate::of_trees(&trees(&[103.0, 101.0, 104.0, 102.0, 106.0, 105.0])).unwrap();
        assert_eq!(estimate.point, 103.5);
        assert_eq!((estimate.low, estimate.high), (101.0, 106.0));
        assert_eq!(estimate.confidence, 0.968_75);
        assert_eq!((estimate.trees, estimate.rounds), (6, 30));
        assert!(estimate.covers_trees());
    }

    /// More rounds do not make more trees: the interval stays.
    #[test]
    fn rounds_are_not_pooled() {
        let few = trees(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let many: Vec<Vec<f64>> = few.iter().map(|rounds| rounds.repeat(100)).collect();
        let [few, many] = [few, many].map(|trees| Estimate::of_trees(&trees).unwrap());
        assert_eq!(few.interval(), many.interval());
    }

    #[test]
    fn few_trees_join_their_own_intervals() {
        let rounds = |center: f64| -> Vec<f64> {
            let order = [4, 8, 1, 6, 3, 9, 2, 7, 5];
            order.map(|place| center + f64::from(place)).to_vec()
        };
        let one = Estimate::of_trees(&[rounds(0.0)]).unwrap();
        assert_eq!((one.low, one.point, one.high), (2.0, 5.0, 8.0));
        let two = Estimate::of_trees(&[rounds(0.0), rounds(10.0)]).unwrap();
        assert_eq!((two.low, two.point, two.high), (2.0, 10.0, 18.0));
        assert!(!two.covers_trees());
    }

    /// Three rounds give an answer, with a low confidence.
    #[test]
    fn few_rounds_are_unsure() {
        let estimate = Estimate::of_trees(&[vec![1.0, 3.0, 2.0]]).unwrap();
        assert_eq!((estimate.low, estimate.high), (1.0, 3.0));
        assert_eq!(estimate.confidence, 0.75);
        let single = Estimate::of_trees(&[vec![1.0]]).unwrap();
        assert_eq!(single.confidence, 0.0);
    }

    #[test]
    fn trees_without_rounds_are_passed_over() {
        assert_eq!(Estimate::of_trees(&[]), None);
        assert_eq!(Estimate::of_trees(&[vec![], vec![]]), None);
        assert_eq!(Estimate::of_trees(&[vec![f64::INFINITY]]), None);
        assert_eq!(Estimate::of_trees(&[vec![], vec![7.0]]).unwrap().trees, 1);
    }

    #[test]
    fn half_width_is_relative_to_the_point() {
        let estimate = Estimate::of_trees(&trees(&[98.0, 99.0, 100.0, 100.0, 101.0, 102.0]));
        assert_eq!(estimate.unwrap().half_width_pct(), Some(2.0));
        let zero = Estimate::of_trees(&trees(&[0.0; 6])).unwrap();
        assert_eq!(zero.half_width_pct(), None);
    }

    /// A drift that both arms share does not appear in the contrast.
    #[test]
    fn what_arms_share_cancels_round_by_round() {
        let a: Vec<Vec<f64>> = (0..8)
            .map(|tree| {
                (0..9)
                    .map(|round| f64::from(100 << tree) + f64::from(round))
                    .collect()
            })
            .collect();
        let b: Vec<Vec<f64>> = a
            .iter()
            .map(|rounds| rounds.iter().map(|value| value * 1.5).collect())
            .collect();
        let contrast = Contrast::of_trees(&a, &b).unwrap();
        assert!((contrast.ratio.low - 1.5).abs() < 1e-9);
        assert!((contrast.ratio.high - 1.5).abs() < 1e-9);
        assert_eq!(contrast.difference.low, 52.0);
        assert!((contrast.p - 2.0 / 256.0).abs() < 1e-12);
    }

    #[test]
    fn what_has_no_pairs_or_no_ratio_is_no_contrast() {
        let a = trees(&[10.0; 6]);
        assert_eq!(Contrast::of_trees(&a, &a[1..]), None);
        let mut shorter = a.clone();
        shorter[2].pop();
        assert_eq!(Contrast::of_trees(&a, &shorter), None);
        let negative = trees(&[1.0; 6]);
        assert_eq!(Contrast::of_trees(&a, &negative), None);
        let difference = Estimate::of_differences(&a, &negative).unwrap();
        assert_eq!(difference.point, -9.0);
    }

    /// Two trees that contradict each other are no evidence.
    #[test]
    fn trees_that_disagree_are_no_evidence() {
        let a = vec![vec![10.0; 9], vec![11.0; 9]];
        let b = vec![vec![11.0; 9], vec![10.0; 9]];
        assert_eq!(Contrast::of_trees(&a, &b).unwrap().p, 1.0);
        assert!(Contrast::of_trees(&a[..1], &b[..1]).unwrap().p < 0.01);
    }

    /// Ten trees: 2/1024 each. Of two contrasts the first must meet half of alpha, so its p is
    /// doubled and its interval is wider.
    #[test]
    fn a_family_is_judged_together() {
        let a = trees(&[100.0; 10]);
        let b = trees(&[
            101.0, 102.0, 103.0, 104.0, 105.0, 106.0, 107.0, 108.0, 109.0, 110.0,
        ]);
        let family = Contrast::of_family(&[(&a, &b), (&a, &a[1..]), (&a, &b)], 0.05);
        assert_eq!(family[1], None);
        let [first, _, last] = family[..] else {
            panic!("three were asked for");
        };
        let (first, last) = (first.unwrap(), last.unwrap());
        assert!((first.p - 4.0 / 1024.0).abs() < 1e-12);
        assert_eq!(last.p, first.p);
        assert!(first.ratio.confidence >= 0.975);
        assert!(first.ratio.low <= last.ratio.low);
    }
}

//! The median and its confidence interval, from order statistics only.
//!
//! The interval rests on one fact: each value lies below the true median with probability 1/2, like
//! a coin. So how many of n lie below is binomial, and the k-th lowest and k-th highest value hold
//! the median between them with a probability that is known exactly. Nothing is assumed about the
//! distribution, not even symmetry; times have long tails on one side only.
//!
//! ```text
//! 12 values, sorted   · · [ · · · · │ · · · · ] · ·      k = 3: 96.1 %
//!                       low       median    high
//! ```
//!
//! The interval assumes independent values. Where successive values are alike, the caller says how
//! many independent ones they are worth ([`super::autocorrelation::effective_n`]).
//!
//! Source: W. J. Conover, "Practical Nonparametric Statistics", 3rd ed., §3.2; Hahn and Meeker,
//! "Statistical Intervals", §5.2.

use serde::{Deserialize, Serialize};

/// The fewest values for which lowest and highest value make an interval: it has 96.9 %, with five
/// values it would have 93.8 %.
pub const LEAST_VALUES: usize = 6;

/// An interval with both ends included, in the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceInterval {
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end; never below `low`.
    pub high: f64,
}

impl ConfidenceInterval {
    /// Half the length of the interval.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Returns true if `value` lies in the interval.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The shortest interval that contains both.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }
}

/// An interval for a median, and its confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignInterval {
    /// The interval; its ends are two of the values.
    pub interval: ConfidenceInterval,
    /// The probability, from 0 to 1, with which an interval made like this holds the median. At
    /// least what was asked for, unless even the lowest and highest value do not reach that.
    pub confidence: f64,
}

/// The middle value, or the mean of the two middle ones. `None` if there is no value, or one is
/// NaN.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which the share `at` (0 to 1) of all values lies, linear between neighbours
/// (type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996). `None` if there
/// is no value, one is NaN, `at` is outside 0 to 1, or nothing lies between both infinities.
pub fn quantile(values: &[f64], at: f64) -> Option<f64> {
    let sorted = sorted(values)?;
    if !(0.0..=1.0).contains(&at) {
        return None;
    }
    let place = at * (sorted.len() - 1) as f64;
    let below = sorted[whole(place)];
    let above = sorted[whole(place.ceil())];
    if below == above || place.fract() == 0.0 {
        // Neighbours may be infinite, and their difference NaN.
        return Some(below);
    }
    Some(below + (above - below) * place.fract()).filter(|value| !value.is_nan())
}

/// The interquartile range in per cent of the median: how far the middle half of all values
/// spreads. `None` as for [`median`], and if the median is 0.
pub fn iqr_pct(values: &[f64]) -> Option<f64> {
    let [low, middle, high] = [0.25, 0.5, 0.75].map(|at| quantile(values, at));
    let middle = middle.filter(|middle| *middle != 0.0)?;
    Some((high? - low?) / middle.abs() * 100.0)
}

/// The interval for the median of `values` with at least `confidence` (0 to 1).
///
/// `effective_n` says how many independent values these are worth, if fewer. The ranks are those
/// for that many values, stretched to all of them and rounded outwards.
///
/// With [`LEAST_VALUES`] or more, lowest and highest value are the answer when no ranks reach
/// `confidence`; [`SignInterval::confidence`] says what they do reach. `None` if fewer values do
/// not reach it, or if one is NaN.
pub fn sign_interval(
    values: &[f64],
    confidence: f64,
    effective_n: Option<f64>,
) -> Option<SignInterval> {
    let sorted = sorted(values)?;
    let worth = effective_n.map_or(sorted.len(), whole).min(sorted.len());
    let (rank, attained) = rank(worth, confidence)?;
    if attained < confidence && worth < LEAST_VALUES {
        return None;
    }
    // Of `worth` values the lowest `rank - 1` are left out; of all values a proportional number.
    let left_out = (rank - 1) * sorted.len() / worth;
    Some(SignInterval {
        interval: ConfidenceInterval {
            low: sorted[left_out],
            high: sorted[sorted.len() - 1 - left_out],
        },
        confidence: attained,
    })
}

/// The highest k for which the k-th lowest and the k-th highest of `count` values hold the median
/// with `confidence`, and the confidence that they reach. k = 1 if none reaches it; `None` without
/// values.
fn rank(count: usize, confidence: f64) -> Option<(usize, f64)> {
    if count == 0 {
        return None;
    }
    let attained = |at_most: f64| (1.0 - 2.0 * at_most).max(0.0);
    let mut tails = coin_tails(count);
    let mut best = (1, attained(tails.next()?));
    for (rank, tail) in (2..=count.div_ceil(2)).zip(tails) {
        if attained(tail) < confidence {
            break;
        }
        best = (rank, attained(tail));
    }
    Some(best)
}

/// The probabilities that a coin thrown `count` times shows heads at most 0, 1, 2 … times: exact
/// sums, the terms by logarithm since 2⁻ⁿ is no `f64` beyond 1074 throws.
pub(super) fn coin_tails(count: usize) -> impl Iterator<Item = f64> {
    let mut term = -(count as f64) * std::f64::consts::LN_2;
    let mut sum = 0.0;
    (0..=count).map(move |heads| {
        sum += term.exp();
        term += ((count - heads) as f64 / (heads + 1) as f64).ln();
        f64::min(sum, 1.0)
    })
}

/// The values in rising order; `None` if there is none, or one is NaN.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

/// The whole number at or below `number`, which must not be negative.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding down is what it is for; a cast from float saturates"
)]
pub(crate) fn whole(number: f64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_to(last: u32) -> Vec<f64> {
        (1..=last).rev().map(f64::from).collect()
    }

    fn ends(values: &[f64], confidence: f64, worth: Option<f64>) -> Option<(f64, f64, f64)> {
        sign_interval(values, confidence, worth).map(|one| {
            let rounded = (one.confidence * 10_000.0).round() / 10_000.0;
            (one.interval.low, one.interval.high, rounded)
        })
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn quantiles_are_linear_between_neighbours() {
        let values = one_to(5);
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 0.125), Some(1.5));
        assert_eq!(quantile(&values, 1.0), Some(5.0));
        assert_eq!(quantile(&values, 1.1), None);
        assert_eq!(quantile(&[f64::INFINITY; 2], 0.5), Some(f64::INFINITY));
    }

    #[test]
    fn the_middle_half_is_relative_to_the_median() {
        assert_eq!(iqr_pct(&[8.0, 9.0, 10.0, 11.0, 30.0]), Some(20.0));
        assert_eq!(iqr_pct(&[0.0; 3]), None);
        assert_eq!(iqr_pct(&[]), None);
    }

    /// Ranks and confidence as printed in tables (Hahn and Meeker, table A.15; Conover, §3.2).
    #[test]
    fn ranks_are_those_of_the_tables() {
        assert_eq!(ends(&one_to(6), 0.95, None), Some((1.0, 6.0, 0.9688)));
        assert_eq!(ends(&one_to(8), 0.95, None), Some((1.0, 8.0, 0.9922)));
        assert_eq!(ends(&one_to(9), 0.95, None), Some((2.0, 8.0, 0.9609)));
        assert_eq!(ends(&one_to(12), 0.95, None), Some((3.0, 10.0, 0.9614)));
        assert_eq!(ends(&one_to(20), 0.95, None), Some((6.0, 15.0, 0.9586)));
        assert_eq!(ends(&one_to(100), 0.95, None), Some((40.0, 61.0, 0.9648)));
    }

    #[test]
    fn too_few_values_have_no_interval() {
        assert_eq!(ends(&one_to(5), 0.95, None), None);
        assert_eq!(ends(&one_to(5), 0.9, None), Some((1.0, 5.0, 0.9375)));
        assert_eq!(ends(&[], 0.5, None), None);
    }

    /// Six trees cannot give 99 %; the confidence they reach is reported.
    #[test]
    fn lowest_and_highest_are_the_most_that_can_be_said() {
        assert_eq!(ends(&one_to(6), 0.99, None), Some((1.0, 6.0, 0.9688)));
    }

    /// Beyond 1074 values, 2⁻ⁿ is zero in `f64`. The normal approximation is good there.
    #[test]
    fn thousands_of_values_are_no_matter() {
        let (low, high, confidence) = ends(&one_to(4000), 0.95, None).unwrap();
        assert_eq!((low, high), (1938.0, 2063.0));
        assert!((0.95..0.952).contains(&confidence), "{confidence}");
        let all = coin_tails(4000).last().unwrap();
        assert!((all - 1.0).abs() < 1e-9, "{all}");
    }

    /// 100 values worth 9: ranks 2 and 8 of 9, one ninth left out on each side.
    #[test]
    fn dependent_values_have_a_wider_interval() {
        assert_eq!(
            ends(&one_to(100), 0.95, Some(9.8)),
            Some((12.0, 89.0, 0.9609))
        );
        assert_eq!(
            ends(&one_to(100), 0.95, Some(6.0)),
            Some((1.0, 100.0, 0.9688))
        );
        assert_eq!(ends(&one_to(100), 0.95, Some(5.9)), None);
        assert_eq!(
            ends(&one_to(12), 0.95, Some(900.0)),
            ends(&one_to(12), 0.95, None)
        );
    }
}

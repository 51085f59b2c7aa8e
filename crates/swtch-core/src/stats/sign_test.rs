//! The sign test: whether a median differs from a given value.
//!
//! It is the inverse of the interval of [`super::interval`]: p is below 5 % exactly when the 95 %
//! interval excludes the value. That also decides how values *equal* to the given one are treated.
//! Dropping them (as Dixon and Mood did) can make a claim from the few that are left; splitting
//! them can still disagree with the interval, which includes its ends. Here they count for the
//! weaker side, against any difference. Block times are seldom equal to the last digit; where a
//! clock's step makes them equal, that is no sign of a difference.
//!
//! Source: Dixon and Mood, "The Statistical Sign Test", JASA 41 (1946); Conover, "Practical
//! Nonparametric Statistics", 3rd ed., §3.4.

use super::interval::{coin_tails, whole};

/// The probability, from 0 to 1, of signs at least as uneven if the median were `zero`: two-sided
/// and exact.
///
/// `effective_n` says how many independent values these are worth, if fewer. `None` if there is no
/// value, or one is NaN.
pub fn sign_test(values: &[f64], zero: f64, effective_n: Option<f64>) -> Option<f64> {
    if values.is_empty() || zero.is_nan() || values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let at_or_below = values.iter().filter(|value| **value <= zero).count();
    let at_or_above = values.iter().filter(|value| **value >= zero).count();
    let weaker = at_or_below.min(at_or_above);
    let worth = effective_n.map_or(values.len(), whole);
    let worth = worth.clamp(1, values.len());
    // Rounded up: a fraction of a value counts against a difference.
    let weaker = (weaker * worth).div_ceil(values.len());
    coin_tails(worth)
        .nth(weaker)
        .map(|tail| (2.0 * tail).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::super::interval::sign_interval;
    use super::*;

    fn p(below: usize, equal: usize, above: usize) -> f64 {
        let values = [vec![-1.0; below], vec![0.0; equal], vec![1.0; above]].concat();
        sign_test(&values, 0.0, None).unwrap()
    }

    /// By hand: 2 × 11/1024, 2 × 1/64, and 1.
    #[test]
    fn probabilities_are_those_of_a_coin() {
        assert!((p(1, 0, 9) - 22.0 / 1024.0).abs() < 1e-12);
        assert!((p(6, 0, 0) - 2.0 / 64.0).abs() < 1e-12);
        assert!((p(5, 0, 5) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn equal_values_speak_against_a_difference() {
        assert_eq!(p(0, 1, 9), p(1, 0, 9));
        assert_eq!(p(0, 10, 0), 1.0);
    }

    #[test]
    fn nothing_is_no_test() {
        assert_eq!(sign_test(&[], 0.0, None), None);
        assert_eq!(sign_test(&[f64::NAN], 0.0, None), None);
    }

    /// Sixty rounds of one sign that are worth six: 2 × 1/64.
    #[test]
    fn dependent_values_count_for_less() {
        let p = sign_test(&[1.0; 60], 0.0, Some(6.5)).unwrap();
        assert!((p - 2.0 / 64.0).abs() < 1e-12);
    }

    /// Both give the same answer, also for values that are equal to zero.
    #[test]
    fn test_and_interval_agree() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let count = rng.usize(6..40);
            let shift = f64::from(rng.i32(-4..5));
            let values: Vec<f64> = (0..count)
                .map(|_| f64::from(rng.i32(-5..6)) + shift)
                .collect();
            let p = sign_test(&values, 0.0, None).unwrap();
            let holds_zero = sign_interval(&values, 0.95, None)
                .unwrap()
                .interval
                .contains(0.0);
            assert_eq!(p > 0.05, holds_zero, "{p} {values:?}");
        }
    }
}

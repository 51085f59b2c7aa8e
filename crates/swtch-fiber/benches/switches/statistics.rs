//! The median of some values, and its confidence interval: order statistics only.
//!
//! Each value lies below the true median with probability 1/2, like a coin toss. So the k-th lowest
//! and the k-th highest of n contain it between them with a probability that is known exactly,
//! whatever the distribution. (Conover, "Practical Nonparametric Statistics", 3rd ed., §3.2.
//! `swtch-core` has the same for prices; this crate does not depend on it.)

/// Least probability with which [`interval`] contains the median.
const CONFIDENCE: f64 = 0.95;

/// The quantile `at` (0 to 1), linear between neighbours; `None` when there is no value.
pub fn quantile(values: &[f64], at: f64) -> Option<f64> {
    let sorted = sorted(values);
    let last = sorted.len().checked_sub(1)?;
    let place = at.clamp(0.0, 1.0) * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounding down is what it is for"
    )]
    let below = place as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64))
}

/// The middle value, or the mean of the two middle ones.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Two of the values that contain the true median between them with at least 95 %; `None` when
/// there are too few values for that (fewer than six).
pub fn interval(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    // The probability that at most `left_out` of n coins show heads, for 0, 1, 2 …
    let mut term = 0.5_f64.powi(i32::try_from(sorted.len()).ok()?);
    let mut tail = 0.0;
    let mut ends = None;
    for left_out in 0..sorted.len() / 2 {
        tail += term;
        if 1.0 - 2.0 * tail < CONFIDENCE {
            break;
        }
        ends = Some((sorted[left_out], sorted[sorted.len() - 1 - left_out]));
        term *= (sorted.len() - left_out) as f64 / (left_out + 1) as f64;
    }
    ends
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

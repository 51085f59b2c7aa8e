//! Measures how strongly consecutive rounds depend on one another, and how many independent ones they are worth.
//!
//! A round resembles the one before it; sixty rounds that drift together say as little as a few
//! independent ones. The integrated autocorrelation time τ measures this: n rounds are worth n / τ
//! independent ones.
//!
//! ```text
//! τ = 1 + 2 (ρ₁ + ρ₂ + …)      independent: 1;  AR(1) with 0.9: 19
//! ```
//!
//! The sum needs an end, since far lags are noise. The window is Geyer's initial monotone sequence:
//! lags are added in pairs (ρ₂ₖ + ρ₂ₖ₊₁, positive in any reversible process), until a pair is not
//! positive, and no pair counts for more than the one before it.
//!
//! A short series understates its own correlation: the first lag comes out too low by about (1 +
//! 4ρ) / n (Kendall 1954, Marriott and Pope 1954), and a slow drift below noisy blocks has no lag
//! that stands out at all. So τ is the longest of three: Geyer's, that of an AR(1) process with the
//! corrected first lag, and the factor by which the means of six batches vary more than independent
//! values would. An interval that is too wide does less harm than one that is too narrow.
//!
//! Limit: a drift slower than the series cannot be seen. If the contrast of two arms drifts over
//! tens of rounds by half as much as blocks vary, the 95 % interval of a tree of 60 rounds holds
//! the truth in 89 %; only more trees help ([`crate::cost::estimate`]).
//!
//! Sources: C. J. Geyer, "Practical Markov Chain Monte Carlo", Statistical Science 7 (1992), §3.3;
//! Law and Kelton, "Simulation Modeling and Analysis", §9.5.3 (batch means).

/// Number of batches whose means are compared: few, so that each is long.
const BATCHES: usize = 6;

/// The autocorrelation of neighbours, from -1 to 1. `None` with fewer than three values, if all are
/// equal, or if one is not finite.
pub fn lag1(values: &[f64]) -> Option<f64> {
    Centered::new(values).map(|series| series.correlation(1))
}

/// The integrated autocorrelation time, in values. At least 1, even for a series that alternates,
/// since too narrow an interval does more harm. `None` as for [`lag1`].
pub fn integrated_time(values: &[f64]) -> Option<f64> {
    let series = Centered::new(values)?;
    let times = [series.first_lag_time(), series.batch_time()];
    Some(times.into_iter().fold(series.geyer_time(), f64::max))
}

/// Returns how many independent values these are worth for their *median*: at most as many as there are. `None` if one
/// is not finite, or there is none.
///
/// An interval from order statistics counts how many values lie below the median. So the
/// autocorrelation of the series of *below or not* matters, too; the longer time of the two counts.
/// (Spikes hide the correlation of the values, and coarse steps that of the signs.)
pub fn effective_n(values: &[f64]) -> Option<f64> {
    let median = super::interval::median(values)?;
    if values.iter().any(|value| value.is_infinite()) {
        return None;
    }
    let signs: Vec<f64> = values
        .iter()
        .map(|value| (value - median).signum() * f64::from(*value != median))
        .collect();
    let time = |series: &[f64]| integrated_time(series).unwrap_or(1.0);
    Some(values.len() as f64 / time(values).max(time(&signs)))
}

/// A series minus its mean.
struct Centered {
    values: Vec<f64>,
    squares: f64,
}

impl Centered {
    fn new(values: &[f64]) -> Option<Self> {
        if values.len() < 3 || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let mean = mean(values.iter().copied());
        let values: Vec<f64> = values.iter().map(|value| value - mean).collect();
        let squares: f64 = values.iter().map(|value| value * value).sum();
        // Rounding may put the mean of equal values slightly off.
        let rounding = values.len() as f64 * (mean * f64::EPSILON).powi(2) * 4.0;
        (squares > rounding).then_some(Self { values, squares })
    }

    fn correlation(&self, lag: usize) -> f64 {
        let later = self.values.iter().skip(lag);
        let products: f64 = self.values.iter().zip(later).map(|(a, b)| a * b).sum();
        products / self.squares
    }

    /// τ by Geyer's initial monotone sequence.
    fn geyer_time(&self) -> f64 {
        let mut sum = 0.0;
        let mut pair_before = f64::INFINITY;
        for lag in (0..self.values.len()).step_by(2) {
            let pair = self.correlation(lag) + self.correlation(lag + 1);
            if pair <= 0.0 {
                break;
            }
            pair_before = pair.min(pair_before);
            sum += pair_before;
        }
        // The first pair holds lag 0 once, all others stand for both directions.
        (2.0 * sum - 1.0).max(1.0)
    }

    /// τ from the variance of the means of [`BATCHES`] equal batches; remaining values are left
    /// out.
    fn batch_time(&self) -> f64 {
        let size = self.values.len() / BATCHES;
        if size < 2 {
            return 1.0;
        }
        let batches = self.values.chunks_exact(size).take(BATCHES);
        let means: Vec<f64> = batches.map(|batch| mean(batch.iter().copied())).collect();
        let center = mean(means.iter().copied());
        let squares: f64 = means.iter().map(|mean| (mean - center).powi(2)).sum();
        let between = size as f64 * squares / (BATCHES - 1) as f64;
        let within = self.squares / self.values.len() as f64;
        (between / within).max(1.0)
    }

    /// τ of an AR(1) process with the first lag of this series, corrected for its shortness.
    fn first_lag_time(&self) -> f64 {
        let count = self.values.len() as f64;
        let seen = self.correlation(1);
        if seen <= 2.0 / count.sqrt() {
            // Within what independent values show by chance.
            return 1.0;
        }
        let corrected = ((count * seen + 1.0) / (count - 4.0).max(1.0)).min(1.0 - 1.0 / count);
        (1.0 + corrected) / (1.0 - corrected)
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::promises::SeededNoise;

    /// (1 × -1.5) + … over the squares, by hand: -1.5 -0.5 0.5 1.5.
    #[test]
    fn first_lag_of_a_ramp_is_known() {
        assert_eq!(lag1(&[1.0, 2.0, 3.0, 4.0]), Some(0.25));
        assert_eq!(lag1(&[1.0, -1.0, 1.0, -1.0]), Some(-0.75));
    }

    #[test]
    fn what_does_not_vary_has_no_autocorrelation() {
        assert_eq!(lag1(&[0.1; 50]), None);
        assert_eq!(lag1(&[1.0, 2.0]), None);
        assert_eq!(lag1(&[1.0, 2.0, f64::INFINITY]), None);
        assert_eq!(effective_n(&[0.1; 50]), Some(50.0));
        assert_eq!(effective_n(&[]), None);
    }

    #[test]
    fn independent_values_are_worth_themselves() {
        let mut noise = SeededNoise::new(1);
        let values: Vec<f64> = (0..2000).map(|_| noise.normal()).collect();
        let worth = effective_n(&values).unwrap();
        assert!((1400.0..=2000.0).contains(&worth), "{worth}");
    }

    #[test]
    fn what_swings_is_worth_no_more_than_itself() {
        let values = [1.0, -1.0].repeat(30);
        assert_eq!(effective_n(&values), Some(60.0));
    }

    /// The formula gives τ = 19 for AR(1) with 0.9.
    #[test]
    fn an_autoregressive_series_has_its_known_time() {
        let values: Vec<f64> = SeededNoise::new(2)
            .autoregressive(0.9)
            .take(20_000)
            .collect();
        let time = integrated_time(&values).unwrap();
        assert!((15.0..24.0).contains(&time), "{time}");
        assert!((lag1(&values).unwrap() - 0.9).abs() < 0.01);
    }

    /// Spikes make values look independent; their signs still show the drift.
    #[test]
    fn spikes_do_not_hide_a_drift() {
        let mut noise = SeededNoise::new(3);
        let mut values: Vec<f64> = noise.autoregressive(0.9).take(4000).collect();
        for _ in 0..200 {
            values[noise.rng.usize(0..4000)] += 100.0;
        }
        assert!(integrated_time(&values).unwrap() < 3.0);
        let worth = effective_n(&values).unwrap();
        assert!(worth < 400.0, "{worth}");
    }
}

//! Intervals of counts: shares, rates and their ratios. The number of events says more about them than a few
//! rounds do.
//!
//! Sources: E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22
//! (1927); B. Woolf, "On estimating the relation between blood group and disease", Annals of Human Genetics
//! 19 (1955); J. B. S. Haldane, "The estimation and significance of the logarithm of a ratio of frequencies",
//! Annals of Human Genetics 20 (1956).

use super::ConfidenceInterval;

/// 95 % of a normal distribution lie within this many deviations of the mean.
const DEVIATIONS: f64 = 1.96;

/// A number that comes from counts, and its interval, at 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredCount {
    /// The number.
    pub point: f64,
    /// The interval of its true value.
    pub interval: ConfidenceInterval,
}

impl MeasuredCount {
    /// A number whose logarithm is nearly normal with this variance, around `middle`.
    fn of_logarithm(point: f64, middle: f64, variance: f64) -> Self {
        let spread = (variance.sqrt() * DEVIATIONS).exp();
        Self {
            point,
            interval: ConfidenceInterval {
                low: middle / spread,
                high: middle * spread,
            },
        }
    }
}

/// A count over the time in which it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EventRate {
    /// Number of events that were counted.
    pub count: u64,
    /// Seconds in which they were counted, summed over all tasks that were watched.
    pub seconds: f64,
    /// The factor by which the counts of parts of that time vary more than those of independent events; see
    /// [`dispersion`]. Values below 1 count as 1.
    pub dispersion: f64,
}

impl EventRate {
    /// Events per second; `None` if no time was watched.
    pub fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.count as f64 / self.seconds)
    }

    const fn variance(&self) -> f64 {
        self.dispersion.max(1.0)
    }

    /// This rate over another. Both counts are taken as those of events that come independently of each
    /// other (Poisson): the logarithm of their ratio is nearly normal with variance 1/a + 1/b, each term
    /// times its dispersion. Half an event is added to both, so that a count of 0 has an interval, too
    /// (Haldane for odds; Woolf's interval). `None` when one was not watched.
    pub fn over(&self, other: &Self) -> Option<MeasuredCount> {
        if self.seconds <= 0.0 || other.seconds <= 0.0 {
            return None;
        }
        let (a, b) = (self.count as f64 + 0.5, other.count as f64 + 0.5);
        let ratio = (a / self.seconds) / (b / other.seconds);
        let variance = self.variance() / a + other.variance() / b;
        Some(MeasuredCount::of_logarithm(ratio, ratio, variance))
    }
}

/// Returns the factor by which counts vary more than those of independent events at one rate: Pearson's χ² over its
/// degrees of freedom. Events that come in bursts have more than 1, and intervals that ignored it would be too narrow
/// (`kworker` ran in bursts of some dozens, seen on 6.18). Pairs are a count and the seconds in which it was counted; 0
/// with fewer than two.
pub fn dispersion(parts: &[(f64, f64)]) -> f64 {
    let count: f64 = parts.iter().map(|part| part.0).sum();
    let seconds: f64 = parts.iter().map(|part| part.1).sum();
    if parts.len() < 2 || count <= 0.0 || seconds <= 0.0 {
        return 0.0;
    }
    let chi_squared = parts.iter().filter(|part| part.1 > 0.0).map(|part| {
        let expected = count / seconds * part.1;
        (part.0 - expected).powi(2) / expected
    });
    chi_squared.sum::<f64>() / (parts.len() - 1) as f64
}

/// A share: `part` of `whole` events that come independently (Wilson's interval). From 0 to 1; `None` if
/// `whole` is 0.
pub fn share(part: u64, whole: u64) -> Option<MeasuredCount> {
    let (n, p) = (whole as f64, part as f64 / whole as f64);
    (whole > 0).then(|| MeasuredCount {
        point: p,
        interval: wilson(p, n),
    })
}

/// Wilson's interval of a share `p` that was found in `n` things; `n` need not be whole where things count differently.
pub(crate) fn wilson(p: f64, n: f64) -> ConfidenceInterval {
    const Z_SQUARED: f64 = DEVIATIONS * DEVIATIONS;
    let middle = (p + Z_SQUARED / (2.0 * n)) / (1.0 + Z_SQUARED / n);
    let inner = p * (1.0 - p) / n + Z_SQUARED / (4.0 * n * n);
    let half = (Z_SQUARED * inner).sqrt() / (1.0 + Z_SQUARED / n);
    ConfidenceInterval {
        low: (middle - half).max(0.0),
        high: (middle + half).min(1.0),
    }
}

/// Estimates how many events each of so many `things` has on average. The events come independently (Poisson): the
/// logarithm of their count is nearly normal with variance 1/count. Half an event is added, so that a count of 0 has an
/// interval, too. `None` if `things` is 0.
pub fn events_per(count: u64, things: u64) -> Option<MeasuredCount> {
    let (point, things) = (count as f64, things as f64);
    let count = point + 0.5;
    let measured = MeasuredCount::of_logarithm(point / things, count / things, 1.0 / count);
    (things > 0.0).then_some(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 36 events for 48: 0.75, and exp(1.96 / √36.5) = 1.383 around 0.760.
    #[test]
    fn a_count_for_each_has_the_interval_of_independent_events() {
        let measured = events_per(36, 48).unwrap();
        let ConfidenceInterval { low, high } = measured.interval;
        assert!((measured.point - 0.75).abs() < 1e-9);
        assert!(
            (low - 0.5497).abs() < 1e-3 && (high - 1.0518).abs() < 1e-3,
            "{low} {high}"
        );
        assert_eq!(events_per(1, 0), None);
    }

    /// Woolf's interval: 20 and 10 events in the same time, ln 2.05/1.05 ± 1.96 √(1/20.5 + 1/10.5).
    #[test]
    fn few_counts_have_wide_ratios() {
        let rate = |count| EventRate {
            count,
            seconds: 1.0,
            dispersion: 0.0,
        };
        let ConfidenceInterval { low, high } = rate(20).over(&rate(10)).unwrap().interval;
        assert!((low - 0.926).abs() < 0.005, "{low}");
        assert!((high - 4.116).abs() < 0.01, "{high}");
        let none = rate(0).over(&rate(0)).unwrap().interval;
        assert!(none.low < 0.1 && none.high > 10.0, "{none:?}");
    }

    #[test]
    fn bursts_are_dispersed_and_widen_the_interval() {
        assert!((dispersion(&[(5.0, 1.0), (5.0, 1.0)])).abs() < 1e-12);
        // 20 and 0 where 10 and 10 are expected: 10 + 10, over one degree of freedom.
        let burst = dispersion(&[(20.0, 1.0), (0.0, 1.0)]);
        assert!((burst - 20.0).abs() < 1e-12, "{burst}");
        let rate = |count, dispersion| EventRate {
            count,
            seconds: 1.0,
            dispersion,
        };
        let low = |dispersion| {
            let ratio = rate(20, dispersion).over(&rate(5, 0.0)).unwrap();
            ratio.interval.low
        };
        assert!(low(0.0) > 1.0 && low(burst) < 1.0);
    }

    /// Wilson's interval for 100 of 100: from 96.3 %.
    #[test]
    fn all_of_a_hundred_is_not_all_of_all() {
        let all = share(100, 100).unwrap().interval;
        assert!((all.low - 0.963).abs() < 0.001, "{}", all.low);
        assert!((all.high - 1.0).abs() < 1e-12);
        assert!(share(0, 0).is_none());
    }
}

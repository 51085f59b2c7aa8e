//! A number from several rounds: its median, its interval, and the verdict that follows.
//!
//! ```text
//!  band of a claim        ├───────────┤
//!  interval inside          ├──┤            holds
//!  interval outside                   ├──┤  does not hold
//!  interval over an end            ├───┤   undecided
//! ```
//!
//! Verdicts come from intervals alone. Counts of rare events have the intervals of counts
//! ([`Rate`]), because the number of events says more about them than a few rounds do.

use swtch_core::cost::{ConfidenceInterval, median, sign_interval};
use swtch_output::text::counted;

use super::claim::Verdict;

/// Probability with which an interval covers the true value.
pub const CONFIDENCE: f64 = 0.95;

/// Tolerance within which two numbers count as the same. What textbooks call "the same time" and
/// "twice" spreads as much in their own figures (6.99 s to 7.63 s for one thread a CPU).
pub const SAME: f64 = 0.10;

/// The median of one value per round, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundMedian {
    pub point: f64,
    /// Interval of the true median; `None` with too few rounds (five or fewer).
    pub interval: Option<ConfidenceInterval>,
    /// Number of values; 0 where the number comes from counts.
    pub rounds: usize,
}

impl RoundMedian {
    /// The median of one value per round. `None` without values, or when one is not a number.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            point: median(values)?,
            interval: sign_interval(values, CONFIDENCE, None).map(|one| one.interval),
            rounds: values.len(),
        })
    }

    /// The ends of its interval, as a picture wants them.
    pub fn ends(&self) -> Option<(f64, f64)> {
        self.interval.map(|interval| (interval.low, interval.high))
    }

    /// Whether it is in the band from `low` to `high`.
    pub fn is_within(&self, low: f64, high: f64) -> Verdict {
        within(self.interval, low, high, self.rounds)
    }

    /// With two digits after the point: `1.98 (1.95 … 2.01)`.
    pub fn ratio(&self) -> String {
        self.words(|number| format!("{number:.2}"))
    }

    /// Percent with two digits: `0.31 % (0.20 % … 0.44 %)`. The numbers are shares of 1.
    pub fn percent(&self) -> String {
        self.words(|share| format!("{:.2} %", share * 100.0))
    }

    /// As a rate per second, with its interval.
    pub fn rate(&self) -> String {
        self.words(|number| format!("{}/s", brief(number)))
    }

    fn words(&self, word: impl Fn(f64) -> String) -> String {
        let point = word(self.point);
        match self.interval {
            Some(ConfidenceInterval { low, high }) => {
                format!("{point} ({} … {})", word(low), word(high))
            }
            None => format!("{point} ({})", too_few(self.rounds)),
        }
    }
}

/// A count over the time in which it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Number of events that were counted.
    pub count: u64,
    /// Seconds in which they were counted, summed over all tasks that were watched.
    pub seconds: f64,
    /// How much more the counts of parts of that time vary than those of independent events; see
    /// [`dispersion`]. Values below 1 count as 1.
    pub dispersion: f64,
}

impl Rate {
    /// Events per second; `None` if no time was watched.
    pub fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.count as f64 / self.seconds)
    }

    /// The rate as text, such as `12.3/s`; `-` if no time was watched.
    pub fn words(&self) -> String {
        self.per_second()
            .map_or_else(|| "-".to_owned(), |rate| format!("{}/s", brief(rate)))
    }

    const fn variance(&self) -> f64 {
        self.dispersion.max(1.0)
    }

    /// This rate over another, with an interval. Both counts are taken as those of events that come
    /// independently of each other (Poisson): the logarithm of their ratio is nearly normal with
    /// variance 1/a + 1/b, each term times its dispersion. Half an event is added to both, so that
    /// a count of 0 has an interval too (J. B. S. Haldane 1956 for odds; Woolf's interval).
    ///
    /// `None` when one was not watched.
    pub fn over(&self, other: &Self) -> Option<RoundMedian> {
        /// 95 % of a normal distribution lie within this many deviations of the mean.
        const DEVIATIONS: f64 = 1.96;
        if self.seconds <= 0.0 || other.seconds <= 0.0 {
            return None;
        }
        let (a, b) = (self.count as f64 + 0.5, other.count as f64 + 0.5);
        let ratio = (a / self.seconds) / (b / other.seconds);
        let spread = ((self.variance() / a + other.variance() / b).sqrt() * DEVIATIONS).exp();
        Some(RoundMedian {
            point: ratio,
            interval: Some(ConfidenceInterval {
                low: ratio / spread,
                high: ratio * spread,
            }),
            rounds: 0,
        })
    }
}

/// How much more counts vary than those of independent events at one rate: Pearson's χ² over its
/// degrees of freedom. Events that come in bursts have more than 1, and intervals that ignored it
/// would be too narrow (`kworker` ran in bursts of some dozens, seen on 6.18). Pairs are a count
/// and the seconds in which it was counted; 0 with fewer than two.
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

/// A share with its interval: `part` of `whole` events that come independently (Wilson 1927). From
/// 0 to 1; `None` if `whole` is 0.
pub fn share(part: u64, whole: u64) -> Option<RoundMedian> {
    /// Two-sided 95 % of a normal distribution, squared.
    const Z_SQUARED: f64 = 1.96 * 1.96;
    if whole == 0 {
        return None;
    }
    let (n, p) = (whole as f64, part as f64 / whole as f64);
    let middle = (p + Z_SQUARED / (2.0 * n)) / (1.0 + Z_SQUARED / n);
    let inner = p * (1.0 - p) / n + Z_SQUARED / (4.0 * n * n);
    let half = (Z_SQUARED * inner).sqrt() / (1.0 + Z_SQUARED / n);
    Some(RoundMedian {
        point: p,
        interval: Some(ConfidenceInterval {
            low: (middle - half).max(0.0),
            high: (middle + half).min(1.0),
        }),
        rounds: 0,
    })
}

/// How many events each of so many `things` has on average. The events come independently
/// (Poisson): the logarithm of their count is nearly normal with variance 1/count. Half an event is
/// added, so that a count of 0 has an interval too. `None` if `things` is 0.
pub fn events_per(count: u64, things: u64) -> Option<RoundMedian> {
    const DEVIATIONS: f64 = 1.96;
    let (count, things) = ((count as f64) + 0.5, things as f64);
    let spread = (DEVIATIONS / count.sqrt()).exp();
    (things > 0.0).then(|| RoundMedian {
        point: (count - 0.5) / things,
        interval: Some(ConfidenceInterval {
            low: count / things / spread,
            high: count / things * spread,
        }),
        rounds: 0,
    })
}

/// The verdict where this machine, or this run, cannot tell.
pub fn cannot_be_tested(why: impl Into<String>) -> Verdict {
    Verdict::CannotBeTested(why.into())
}

/// The reason given for a claim whose load was not run.
pub const STOPPED: &str = "it was stopped before that was run";

/// Why there is no interval.
fn too_few(rounds: usize) -> String {
    format!("no interval: {}", counted(rounds as u64, "round"))
}

fn within(interval: Option<ConfidenceInterval>, low: f64, high: f64, rounds: usize) -> Verdict {
    let Some(interval) = interval else {
        return Verdict::Undecided(too_few(rounds));
    };
    if low <= interval.low && interval.high <= high {
        Verdict::Holds
    } else if interval.high < low || high < interval.low {
        Verdict::DoesNotHold
    } else {
        let (band, way) = match (low.is_finite(), high.is_finite()) {
            (true, true) => (format!("within {} … {}", brief(low), brief(high)), "beyond"),
            (true, false) => (format!("above {}", brief(low)), "below"),
            _ => (format!("below {}", brief(high)), "above"),
        };
        Verdict::Undecided(format!(
            "the claim holds {band}, and the interval reaches {way}"
        ))
    }
}

/// Three digits, or all of a large number.
fn brief(number: f64) -> String {
    match number.abs() {
        size if size >= 99.5 => format!("{number:.0}"),
        size if size >= 9.95 => format!("{number:.1}"),
        size if size >= 0.095 => format!("{number:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{number:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::claim::all_of;

    fn measured(low: f64, high: f64) -> RoundMedian {
        RoundMedian {
            point: f64::midpoint(low, high),
            interval: Some(ConfidenceInterval { low, high }),
            rounds: 9,
        }
    }

    /// 36 events for 48: 0.75, and exp(1.96 / √36.5) = 1.383 around 0.760.
    #[test]
    fn a_count_for_each_has_the_interval_of_independent_events() {
        let measured = events_per(36, 48).unwrap();
        let ConfidenceInterval { low, high } = measured.interval.unwrap();
        assert!((measured.point - 0.75).abs() < 1e-9);
        assert!(
            (low - 0.5497).abs() < 1e-3 && (high - 1.0518).abs() < 1e-3,
            "{low} {high}"
        );
        assert_eq!(events_per(1, 0), None);
    }

    #[test]
    fn an_interval_inside_a_band_holds_and_one_over_its_end_is_open() {
        assert_eq!(measured(1.95, 2.05).is_within(1.8, 2.2), Verdict::Holds);
        assert_eq!(measured(1.0, 1.1).is_within(1.8, 2.2), Verdict::DoesNotHold);
        let open = measured(1.7, 2.0).is_within(1.8, 2.2);
        let why = "the claim holds within 1.80 … 2.20, and the interval reaches beyond";
        assert_eq!(open, Verdict::Undecided(why.to_owned()));
    }

    #[test]
    fn five_rounds_decide_nothing() {
        let five = RoundMedian::of(&[2.0; 5]).unwrap();
        let why = "no interval: 5 rounds".to_owned();
        assert_eq!(five.is_within(1.8, 2.2), Verdict::Undecided(why));
        assert_eq!(five.ratio(), "2.00 (no interval: 5 rounds)");
        let one = RoundMedian::of(&[2.0]).unwrap();
        assert_eq!(one.ratio(), "2.00 (no interval: 1 round)");
        assert_eq!(
            RoundMedian::of(&[2.0; 6]).unwrap().is_within(1.8, 2.2),
            Verdict::Holds
        );
    }

    /// Woolf's interval: 20 and 10 events in the same time, ln 2.05/1.05 ± 1.96 √(1/20.5 + 1/10.5).
    #[test]
    fn few_counts_have_wide_ratios() {
        let rate = |count| Rate {
            count,
            seconds: 1.0,
            dispersion: 0.0,
        };
        let ConfidenceInterval { low, high } = rate(20).over(&rate(10)).unwrap().interval.unwrap();
        assert!((low - 0.926).abs() < 0.005, "{low}");
        assert!((high - 4.116).abs() < 0.01, "{high}");
        let none = rate(0).over(&rate(0)).unwrap().interval.unwrap();
        assert!(none.low < 0.1 && none.high > 10.0, "{none:?}");
    }

    #[test]
    fn bursts_are_dispersed_and_widen_the_interval() {
        assert!((dispersion(&[(5.0, 1.0), (5.0, 1.0)])).abs() < 1e-12);
        // 20 and 0 where 10 and 10 are expected: 10 + 10, over one degree of freedom.
        let burst = dispersion(&[(20.0, 1.0), (0.0, 1.0)]);
        assert!((burst - 20.0).abs() < 1e-12, "{burst}");
        let rate = |count, dispersion| Rate {
            count,
            seconds: 1.0,
            dispersion,
        };
        let low = |dispersion| {
            let ratio = rate(20, dispersion).over(&rate(5, 0.0)).unwrap();
            ratio.interval.unwrap().low
        };
        assert!(low(0.0) > 1.0 && low(burst) < 1.0);
    }

    /// Wilson's interval for 100 of 100: from 96.3 %.
    #[test]
    fn all_of_a_hundred_is_not_all_of_all() {
        let all = share(100, 100).unwrap().interval.unwrap();
        assert!((all.low - 0.963).abs() < 0.001, "{}", all.low);
        assert!((all.high - 1.0).abs() < 1e-12);
        assert!(share(0, 0).is_none());
    }

    #[test]
    fn the_worst_verdict_is_that_of_all() {
        let open = || Verdict::Undecided("few".to_owned());
        assert_eq!(all_of([Verdict::Holds, open()]), open());
        assert_eq!(all_of([open(), Verdict::DoesNotHold]), Verdict::DoesNotHold);
        assert_eq!(all_of([]), Verdict::Holds);
    }
}

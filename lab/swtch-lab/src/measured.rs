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
//! ([`swtch_core::stats::counts`]), because the number of events says more about them than a few rounds do.

use swtch_core::cost::Estimate;
use swtch_core::stats::{ConfidenceInterval, EventRate, MeasuredCount, median, sign_interval};
use swtch_output::sheet::Cell;
use swtch_output::text::{counted, nanos};

use super::claim::Verdict;

/// Probability with which an interval covers the true value.
pub const CONFIDENCE: f64 = 0.95;

/// A number with its interval: the median of one value per round, or what comes from counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabNumber {
    pub point: f64,
    /// Interval of the true value; `None` with too few rounds (five or fewer).
    pub interval: Option<ConfidenceInterval>,
    /// Number of values; `None` where it comes from counts, which always have an interval, or from
    /// process trees.
    pub rounds: Option<usize>,
}

impl LabNumber {
    /// The median of one value per round. `None` without values, or when one is not a number.
    pub fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            point: median(values)?,
            interval: sign_interval(values, CONFIDENCE, None).map(|one| one.interval),
            rounds: Some(values.len()),
        })
    }

    /// What comes from counts.
    pub fn of_counts(counted: Option<MeasuredCount>) -> Option<Self> {
        counted.map(|counted| Self {
            point: counted.point,
            interval: Some(counted.interval),
            rounds: None,
        })
    }

    /// The number times `factor`, and `more`.
    pub fn scaled(self, factor: f64, more: f64) -> Self {
        let scaled = |number: f64| number * factor + more;
        let interval = self.interval.map(|interval| {
            let [one, other] = [interval.low, interval.high].map(scaled);
            ConfidenceInterval {
                low: one.min(other),
                high: one.max(other),
            }
        });
        Self {
            point: scaled(self.point),
            interval,
            ..self
        }
    }

    /// The cell of how many rounds it is the median of.
    pub fn rounds_cell(&self) -> Cell {
        self.rounds
            .map_or(Cell::Missing, |rounds| Cell::Count(rounds as u64))
    }

    /// The ends of its interval, as a picture wants them.
    pub fn ends(&self) -> Option<(f64, f64)> {
        self.interval.map(|interval| (interval.low, interval.high))
    }

    /// Whether it is in the band from `low` to `high`.
    pub fn is_within(&self, low: f64, high: f64) -> Verdict {
        let Some(interval) = self.interval else {
            return Verdict::Undecided(self.no_interval());
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

    /// With its interval, as `1.98 (1.95 … 2.01)`. The unit is one of claims.toml: `%` of a share of
    /// 1, `/s`, `ns` for a length of time, `n` for a count without an interval, or none.
    pub fn in_unit(&self, unit: &str) -> String {
        match unit {
            "n" => format!("{:.0}", self.point),
            "%" => self.words(|share| format!("{:.2} %", share * 100.0)),
            "/s" => self.words(|number| format!("{}/s", brief(number))),
            "ns" => self.words(nanos),
            _ => self.words(|number| match number.abs() {
                99.5.. => format!("{number:.0}"),
                9.95.. => format!("{number:.1}"),
                _ => format!("{number:.2}"),
            }),
        }
    }

    fn words(&self, word: impl Fn(f64) -> String) -> String {
        let point = word(self.point);
        match self.interval {
            Some(ConfidenceInterval { low, high }) => {
                format!("{point} ({} … {})", word(low), word(high))
            }
            None => format!("{point} ({})", self.no_interval()),
        }
    }

    /// Why there is no interval.
    fn no_interval(&self) -> String {
        self.rounds.map_or_else(
            || "no interval: too few process trees".to_owned(),
            |rounds| format!("no interval: {}", counted(rounds as u64, "round")),
        )
    }
}

impl From<Estimate> for LabNumber {
    fn from(estimate: Estimate) -> Self {
        Self {
            point: estimate.point,
            interval: estimate.covers_trees().then(|| estimate.interval()),
            rounds: None,
        }
    }
}

/// The rate as text, such as `12.3/s`; `-` if no time was watched.
pub fn rate_in_words(rate: &EventRate) -> String {
    rate.per_second()
        .map_or_else(|| "-".to_owned(), |rate| format!("{}/s", brief(rate)))
}

/// The verdict where this machine, or this run, cannot tell.
pub fn cannot_be_tested(why: impl Into<String>) -> Verdict {
    Verdict::CannotBeTested(why.into())
}

/// The reason given for a claim whose load was not run.
pub const STOPPED: &str = "it was stopped before that was run";

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
    use crate::claim::all_of;

    fn measured(low: f64, high: f64) -> LabNumber {
        LabNumber {
            point: f64::midpoint(low, high),
            interval: Some(ConfidenceInterval { low, high }),
            rounds: Some(9),
        }
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
        let five = LabNumber::of(&[2.0; 5]).unwrap();
        let why = "no interval: 5 rounds".to_owned();
        assert_eq!(five.is_within(1.8, 2.2), Verdict::Undecided(why));
        assert_eq!(five.in_unit(""), "2.00 (no interval: 5 rounds)");
        let one = LabNumber::of(&[2.0]).unwrap();
        assert_eq!(one.in_unit(""), "2.00 (no interval: 1 round)");
        assert_eq!(
            LabNumber::of(&[2.0; 6]).unwrap().is_within(1.8, 2.2),
            Verdict::Holds
        );
    }

    #[test]
    fn the_worst_verdict_is_that_of_all() {
        let open = || Verdict::Undecided("few".to_owned());
        assert_eq!(all_of([Verdict::Holds, open()]), open());
        assert_eq!(all_of([open(), Verdict::DoesNotHold]), Verdict::DoesNotHold);
        assert_eq!(all_of([]), Verdict::Holds);
    }
}

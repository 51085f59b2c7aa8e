//! The distribution of lengths of time: a histogram with two significant digits, an exact sum and
//! an exact maximum.
//!
//! A trace has millions of lengths from nanoseconds to minutes. Sorting them takes memory without
//! bound; an HDR histogram keeps each within 1 % in a few kilobytes. The last percentiles show what
//! a mean hides (one wait of a second among a million short ones).

use hdrhistogram::Histogram;

use crate::units::Nanos;

/// Each length is kept within one part in 10².
const SIGNIFICANT_DIGITS: u8 = 2;

/// Lengths of one kind, such as the waits of one task.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
    sum: Nanos,
    longest: Nanos,
}

impl Default for Distribution {
    fn default() -> Self {
        let mut histogram = Histogram::new(SIGNIFICANT_DIGITS)
            .expect("a histogram of two digits is always possible");
        histogram.auto(true);
        Self {
            histogram,
            sum: Nanos::ZERO,
            longest: Nanos::ZERO,
        }
    }
}

impl Distribution {
    /// The percentiles that reports show, with the words for them in columns.
    pub const PERCENTILES: [(f64, &'static str); 4] =
        [(50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99_9")];

    /// Adds one length to the distribution.
    pub fn record(&mut self, length: Nanos) {
        if self.histogram.record(length.as_ns()).is_err() {
            self.histogram.saturating_record(length.as_ns());
        }
        self.sum += length;
        self.longest = self.longest.max(length);
    }

    /// Adds all lengths of another distribution.
    pub fn merge(&mut self, other: &Self) {
        // Both resize as needed, so a length that was recorded there has a bucket here.
        if self.histogram.add(&other.histogram).is_ok() {
            self.sum += other.sum;
            self.longest = self.longest.max(other.longest);
        }
    }

    /// Number of lengths that were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Sum of all lengths, exact.
    pub const fn sum(&self) -> Nanos {
        self.sum
    }

    /// The longest length, exact; `None` if none was recorded.
    pub fn longest(&self) -> Option<Nanos> {
        (self.count() > 0).then_some(self.longest)
    }

    /// The length that `percent` (0 to 100) of all do not exceed, within 1 %; `None` if none was
    /// recorded.
    pub fn percentile(&self, percent: f64) -> Option<Nanos> {
        let longest = self.longest()?;
        let bound = Nanos::from_ns(self.histogram.value_at_percentile(percent));
        // The histogram returns the upper edge of a bucket, which no length may have reached.
        Some(bound.min(longest))
    }

    /// Recorded lengths, each within 1 %, shortest first, with how often each occurred.
    pub fn recorded(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        self.histogram.iter_recorded().map(|bucket| {
            let edge = Nanos::from_ns(bucket.value_iterated_to());
            (edge.min(self.longest), bucket.count_at_value())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lengths: impl IntoIterator<Item = u64>) -> Distribution {
        let mut distribution = Distribution::default();
        for ns in lengths {
            distribution.record(Nanos::from_ns(ns));
        }
        distribution
    }

    #[test]
    fn percentiles_are_within_one_percent() {
        let distribution = of(1..=100_000);
        for (percent, exact) in [(50.0, 50_000), (99.0, 99_000), (99.9, 99_900)] {
            let shown = distribution.percentile(percent).unwrap().as_ns();
            assert!(shown.abs_diff(exact) * 100 <= exact, "{percent}: {shown}");
        }
    }

    #[test]
    fn sum_and_maximum_are_exact() {
        let distribution = of([1_234_567, 3]);
        assert_eq!(distribution.sum(), Nanos::from_ns(1_234_570));
        assert_eq!(distribution.longest(), Some(Nanos::from_ns(1_234_567)));
        assert_eq!(
            distribution.percentile(99.9),
            Some(Nanos::from_ns(1_234_567))
        );
    }

    /// A drawing of a distribution shows all of it, however long the lengths are.
    #[test]
    fn recorded_lengths_are_all_there_within_one_percent() {
        let hour = 3_600_000_000_000;
        let recorded: Vec<_> = of([7, 1_000_000, 1_000_000, hour]).recorded().collect();
        let counts: Vec<_> = recorded.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 2, 1]);
        for ((shown, _), exact) in recorded.iter().zip([7, 1_000_000, hour]) {
            assert!(shown.as_ns().abs_diff(exact) * 100 <= exact, "{shown}");
        }
    }

    #[test]
    fn merged_distributions_hold_the_lengths_of_both() {
        let mut both = of(1..=50_000);
        both.merge(&of(50_001..=100_000));
        both.merge(&of([]));
        let all = of(1..=100_000);
        assert_eq!(both.count(), all.count());
        assert_eq!(both.sum(), all.sum());
        assert_eq!(both.longest(), all.longest());
        assert_eq!(both.percentile(99.0), all.percentile(99.0));
    }

    #[test]
    fn nothing_recorded_has_no_percentile() {
        assert_eq!(of([]).percentile(50.0), None);
        assert_eq!(of([]).longest(), None);
    }

    /// A clock fault may produce any number; it must not stop the report.
    #[test]
    fn the_longest_possible_length_is_taken() {
        assert_eq!(of([u64::MAX]).longest(), Some(Nanos::from_ns(u64::MAX)));
        assert_eq!(of([0]).percentile(50.0), Some(Nanos::ZERO));
    }
}

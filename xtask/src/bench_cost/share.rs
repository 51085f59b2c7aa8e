//! A share of runs in which something happened, with the interval for its long-run probability.

use std::fmt;

/// The 97.5 % quantile of the normal distribution, for a two-sided interval of 95 %.
const Z: f64 = 1.959_964;

/// How many of a number of runs had an outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The number of runs with the outcome.
    pub hits: usize,
    /// The number of all runs.
    pub of: usize,
}

impl Share {
    /// Counts how many of `outcomes` are true.
    pub fn of(outcomes: impl IntoIterator<Item = bool>) -> Self {
        outcomes
            .into_iter()
            .fold(Self::default(), |share, happened| Self {
                hits: share.hits + usize::from(happened),
                of: share.of + 1,
            })
    }

    /// The 95 % confidence interval of the probability, each end from 0 to 1 (Wilson, "Probable
    /// inference, the law of succession, and statistical inference", JASA 22, 1927). `None` without
    /// runs.
    #[expect(clippy::cast_precision_loss, reason = "runs are thousands at most")]
    pub fn interval(self) -> Option<(f64, f64)> {
        if self.of == 0 {
            return None;
        }
        let n = self.of as f64;
        let share = self.hits as f64 / n;
        let middle = share + Z * Z / (2.0 * n);
        let reach = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        let at = |end: f64| (end / scale).clamp(0.0, 1.0);
        Some((at(middle - reach), at(middle + reach)))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hits, of } = self;
        match self.interval() {
            None => f.pad("no runs"),
            Some((low, high)) => f.pad(&format!(
                "{hits} of {of} ({:.0}–{:.0} %)",
                low * 100.0,
                high * 100.0
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value in tables of Wilson's interval.
    #[test]
    fn the_interval_is_wilsons() {
        let share = Share { hits: 5, of: 10 };
        let (low, high) = share.interval().unwrap();
        assert!((low - 0.2366).abs() < 1e-4 && (high - 0.7634).abs() < 1e-4);
    }

    #[test]
    fn never_in_twenty_runs_may_still_be_one_in_seven() {
        let share = Share::of([false; 20]);
        assert_eq!(share.to_string(), "0 of 20 (0–16 %)");
        assert_eq!(Share::default().to_string(), "no runs");
        assert_eq!(
            Share { hits: 20, of: 20 }.to_string(),
            "20 of 20 (84–100 %)"
        );
    }
}

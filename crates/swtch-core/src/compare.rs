//! Tells whether figures changed between two sides, A (before) and B (after), each with one run or more.
//!
//! ```text
//! each run's figure ─▶ contrast (B against A, its noise) ─▶ family: one error rate ─▶ FigureChange
//!                        ▲ several runs: Welch's t
//!                        ▲ one against several: the spread of the several
//!                        ▲ one against one: block bootstrap inside each run (`blocks`)
//! ```
//!
//! **The run is the unit.** Thousands of switches of one run say how well *that run* is known. How
//! much runs differ, only other runs can say. So the figure of a run is one value, and its spread
//! over runs is the noise.
//!
//! - **Figures above 0** are compared as a ratio: Welch's t interval for the difference of the mean
//!   logarithms. Means on this scale are geometric.
//! - **A figure that is 0 in some run** has no logarithm there. It is compared as a difference of
//!   means, also by Welch's t, and its ratio is that difference in parts of A's mean.
//! - **One run against several**: if nothing changed, all runs are alike, so the spread of the
//!   several holds for the one, too (Student's t for one further value).
//! - **One run against one**: nothing tells how much runs differ. The interval then holds only what
//!   varied *inside* the two runs, and is too narrow for a claim about others.
//! - **All figures of a comparison are one family**: p values and intervals are Holm's, so the
//!   probability of one false claim among all of them stays below `1 - CONFIDENCE`.
//!
//! Sources: B. L. Welch, "The generalization of 'Student's' problem when several different
//! population variances are involved", Biometrika 34 (1947); S. Holm (see [`crate::stats::holm`]).

mod blocks;
#[cfg(test)]
mod tests;

pub use blocks::{BlockSeries, LEAST_BLOCKS, WithinRun};

use crate::cost::CONFIDENCE;
use crate::stats::{ConfidenceInterval, holm, student};

/// The values of one figure on one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideValues {
    /// The figure in each run, not negative.
    pub runs: Vec<f64>,
    /// The uncertainty of a single run by itself; needed only when both sides have one run.
    pub within: Option<WithinRun>,
}

/// One figure on both sides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FigureValues {
    /// Before.
    pub a: SideValues,
    /// After.
    pub b: SideValues,
    /// The smallest step by which the figure can change, in its unit: a rate of counted events
    /// has 1 / length. Runs that agree to the step are not known better than that.
    pub step: f64,
    /// The part of a value by which it may be off in every run alike: 0.01 for percentiles that are known within 1 %.
    /// A change as small as this is none.
    pub resolution: f64,
}

/// A way of comparing a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareMethod {
    /// Several runs on both sides: the spread over runs.
    Runs,
    /// A single run on one side: the spread over the runs of the other.
    OneAgainstRuns,
    /// A single run on both sides: only what varied inside each.
    Blocks,
}

impl CompareMethod {
    /// Returns how sides with these numbers of runs are compared.
    pub const fn of_runs(a: usize, b: usize) -> Self {
        match (a, b) {
            (0 | 1, 0 | 1) => Self::Blocks,
            (0 | 1, _) | (_, 0 | 1) => Self::OneAgainstRuns,
            _ => Self::Runs,
        }
    }

    /// The word used in columns.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::OneAgainstRuns => "one-against-runs",
            Self::Blocks => "blocks",
        }
    }
}

/// The comparison of one figure of B with that of A, judged together with all others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigureChange {
    /// The figure of A: the mean over runs, geometric where figures are compared as a ratio.
    pub a: f64,
    /// The figure of B.
    pub b: f64,
    /// B divided by A; `None` if A is 0 in every run.
    pub ratio: Option<f64>,
    /// The interval of the ratio, at the confidence that the family needs; `None` with the ratio.
    pub interval: Option<ConfidenceInterval>,
    /// The p value for no change, adjusted for the family.
    pub p: f64,
    /// True if the figure is 0 in some run, so that it was compared as a difference.
    pub is_by_difference: bool,
}

impl FigureChange {
    /// Returns true if a change may be claimed.
    pub fn is_sure(&self) -> bool {
        self.p <= 1.0 - CONFIDENCE
    }

    /// Returns true if B is larger.
    pub fn is_rise(&self) -> bool {
        self.b > self.a
    }
}

/// Compares all figures as one family. The results are in the order given; a figure that cannot be
/// compared (no runs, values that are no numbers, a single run too short for blocks) is `None` and
/// does not count in the family.
pub fn compare(figures: &[FigureValues]) -> Vec<Option<FigureChange>> {
    let contrasts: Vec<_> = figures.iter().map(SideContrast::of).collect();
    let p: Vec<f64> = contrasts.iter().flatten().map(SideContrast::p).collect();
    let mut adjusted = holm::adjusted(&p).into_iter();
    let mut levels = holm::confidence_levels(&p, 1.0 - CONFIDENCE).into_iter();
    let judged = contrasts.into_iter().map(|contrast| {
        let contrast = contrast?;
        Some(contrast.judged(adjusted.next()?, levels.next()?))
    });
    judged.collect()
}

/// B minus A on the scale on which they are compared, and its noise.
#[derive(Clone, Copy, Debug)]
struct SideContrast {
    /// The mean of A on the scale.
    a: f64,
    /// The mean of B on the scale.
    b: f64,
    standard_error: f64,
    /// Degrees of freedom of the noise.
    freedom: f64,
    /// A difference up to this is none.
    resolution: f64,
    scale: CompareScale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompareScale {
    Logarithm,
    Linear,
}

impl SideContrast {
    fn of(figure: &FigureValues) -> Option<Self> {
        let all = || figure.a.runs.iter().chain(&figure.b.runs);
        if !all().all(|value| value.is_finite() && *value >= 0.0) {
            return None;
        }
        let is_above_0 = all().all(|value| *value > 0.0);
        let logarithms_known = |side: &SideValues| {
            let within = side.within.as_ref();
            within.is_none_or(|within| within.of_logarithm.is_some())
        };
        let scale = match is_above_0 && logarithms_known(&figure.a) && logarithms_known(&figure.b) {
            true => CompareScale::Logarithm,
            false => CompareScale::Linear,
        };
        let a = SideMean::of(&figure.a.runs, figure.step, scale)?;
        let b = SideMean::of(&figure.b.runs, figure.step, scale)?;
        let noise = match CompareMethod::of_runs(a.runs, b.runs) {
            CompareMethod::Runs => welch(a.variance_of_mean(), b.variance_of_mean()),
            CompareMethod::OneAgainstRuns => one_further(if a.runs == 1 { b } else { a }),
            CompareMethod::Blocks => {
                let [a, b] = [&figure.a, &figure.b].map(|side| side.within?.variance(scale));
                welch(a?, b?)
            }
        };
        Some(Self {
            a: a.mean,
            b: b.mean,
            standard_error: noise.0.sqrt(),
            freedom: noise.1,
            resolution: match scale {
                CompareScale::Logarithm => (1.0 + figure.resolution).ln(),
                CompareScale::Linear => figure.resolution * a.mean.max(b.mean),
            },
            scale,
        })
    }

    fn p(&self) -> f64 {
        let beyond = (self.b - self.a).abs() - self.resolution;
        if beyond <= 0.0 {
            return 1.0;
        }
        if self.standard_error == 0.0 {
            // Every run of a side has the same value: what differs is no noise.
            return 0.0;
        }
        student::two_sided_p(beyond / self.standard_error, self.freedom)
    }

    fn judged(&self, p: f64, confidence: f64) -> FigureChange {
        let reach = match self.standard_error > 0.0 {
            true => student::quantile(confidence, self.freedom) * self.standard_error,
            false => 0.0,
        } + self.resolution;
        let difference = self.b - self.a;
        let ends = [difference, difference - reach, difference + reach];
        let [ratio, low, high] = match self.scale {
            CompareScale::Logarithm => ends.map(f64::exp),
            // A figure is never below 0.
            CompareScale::Linear => ends.map(|end| (1.0 + end / self.a).max(0.0)),
        };
        let has_ratio = self.scale == CompareScale::Logarithm || self.a > 0.0;
        let shown = |mean: f64| match self.scale {
            CompareScale::Logarithm => mean.exp(),
            CompareScale::Linear => mean,
        };
        FigureChange {
            a: shown(self.a),
            b: shown(self.b),
            ratio: has_ratio.then_some(ratio),
            interval: has_ratio.then_some(ConfidenceInterval { low, high }),
            p,
            is_by_difference: self.scale == CompareScale::Linear,
        }
    }
}

/// The runs of one side on a scale.
#[derive(Clone, Copy, Debug)]
struct SideMean {
    runs: usize,
    mean: f64,
    /// Variance of a run's figure; meaningless for a single run.
    variance: f64,
}

/// A variance and its degrees of freedom.
type Noise = (f64, f64);

impl SideMean {
    fn of(runs: &[f64], step: f64, scale: CompareScale) -> Option<Self> {
        if runs.is_empty() {
            return None;
        }
        let count = runs.len() as f64;
        let plain_mean = runs.iter().sum::<f64>() / count;
        let scaled = |value: &f64| match scale {
            CompareScale::Logarithm => value.ln(),
            CompareScale::Linear => *value,
        };
        let mean = runs.iter().map(scaled).sum::<f64>() / count;
        let squares = runs.iter().map(|run| (scaled(run) - mean).powi(2));
        let variance = squares.sum::<f64>() / (count - 1.0).max(1.0);
        // The variance of rounding to a step is step² / 12.
        let step = match scale {
            CompareScale::Logarithm => step / plain_mean,
            CompareScale::Linear => step,
        };
        Some(Self {
            runs: runs.len(),
            mean,
            variance: variance.max(step * step / 12.0),
        })
    }

    fn variance_of_mean(&self) -> Noise {
        let count = self.runs as f64;
        (self.variance / count, count - 1.0)
    }
}

/// The variance of a difference, and its degrees of freedom by Welch and Satterthwaite.
fn welch(a: Noise, b: Noise) -> Noise {
    let variance = a.0 + b.0;
    if variance == 0.0 {
        return (0.0, a.1 + b.1);
    }
    let parts = a.0 * a.0 / a.1 + b.0 * b.0 / b.1;
    (variance, variance * variance / parts)
}

/// The noise of one further run against the mean of several that are alike.
fn one_further(several: SideMean) -> Noise {
    let count = several.runs as f64;
    (several.variance * (1.0 + 1.0 / count), count - 1.0)
}

//! Judges what a measurement is worth, in words, and when two arms may be said to differ.
//!
//! There are always three answers: a measurement on a busy machine is not wrong, and one that found
//! no difference has not shown that there is none.
//!
//! # When two arms differ
//!
//! Two things must hold. The interval excludes 1, which chance alone would seldom cause. And the
//! ratio itself lies beyond a margin that stands for what identical arms show as well:
//! [`RESOLUTION_PCT`], or as far as the interval of two identical arms of the same measurement
//! (A/A) reaches from 1.
//!
//! ```text
//!            1-margin     1     1+margin
//! ───────────────┼────────┼────────┼──────────────▶ b over a
//!                │        │  ├─────┼─•───────┤      larger
//!                │   ├────•───┤    │                none that is beyond the margin
//!                │        │ ├──•───┼──┤             unresolved
//!         ├──────┼────────┼────────•───────┤        unresolved
//! ```
//!
//! The ratio must pass the margin, not the whole interval: an interval that lies beyond 1 %
//! altogether would never find a difference *of* 1 %, which is to be found nine times in ten. The
//! interval, which is over trees, prevents false claims; the margin is for what no interval sees, a
//! bias that is the same in all of them.
//!
//! With fewer than [`LEAST_TREES`] trees the interval knows nothing of what differs between trees.
//! Then the margin is at least [`FEW_TREES_PCT`], the whole interval must lie beyond it, and there
//! must be [`LEAST_ROUNDS`] rounds: fewer do not show how they drift.
//!
//! Sources: Schuirmann, "A comparison of the two one-sided tests procedure…", J. Pharmacokinetics
//! 15 (1987), for "none" as a claim of its own; Barrett et al., "Virtual Machine Warmup Blows Hot
//! and Cold", OOPSLA 2017, for steadiness.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::drop::Dropped;
use super::estimate::{CONFIDENCE, Contrast, Estimate, LEAST_TREES};
use crate::stats::regimes::Regimes;

/// The smallest difference at which two arms are told apart, in per cent. Blocks of one arm in one
/// tree agree within 0.2.
pub const RESOLUTION_PCT: f64 = 0.5;

/// The smallest difference at which two arms are told apart, in per cent, with too few trees to see what differs
/// between trees: identical arms of one tree were seen to differ by about 1 %.
pub const FEW_TREES_PCT: f64 = 2.0;

/// The fewest rounds of all trees, if the trees are few. Of 10 rounds whose contrast drifts by 2.8
/// %, 5.3 % of identical arms were told apart, of 20 rounds 2.5 % (simulated).
pub const LEAST_ROUNDS: usize = 20;

/// The least confidence of an interval from which "no difference" may be concluded.
const LEAST_CONFIDENCE: f64 = 0.9;

/// Interquartile range of the sentinel, per cent of its median: quiet machines stay within 1 to 2.
const NOISY_IQR_PCT: f64 = 5.0;

/// Share of the time that the hypervisor or a quota took away, in per cent: as much as a difference
/// that is to be found.
const NOISY_STEAL_PCT: f64 = 1.0;

/// Interrupts per second on the CPU that measures. The tick is at most 1000; at 2 µs each, 5000
/// take 1 %.
const NOISY_INTERRUPTS_PER_S: f64 = 5000.0;

/// Share of blocks left out, in per cent, from which the remaining ones may be a biased selection.
const NOISY_DROPPED_PCT: f64 = 10.0;

/// Share of blocks left out, in per cent, from which the remaining ones count as biased.
const UNRESOLVED_DROPPED_PCT: f64 = 50.0;

/// Reach of the A/A interval, in per cent, beyond which no relevant difference can be seen.
const UNRESOLVED_A_A_PCT: f64 = 5.0;

/// The fewest independent rounds of a measurement that rests on its rounds.
const LEAST_EFFECTIVE_N: f64 = 6.0;

/// The facts about the machine during a measurement. `None` where the system does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Number of fresh process trees that were measured.
    pub trees: usize,
    /// Blocks that were timed, kept or not, of all trees.
    pub blocks: usize,
    /// Number of blocks left out, by reason.
    pub dropped: Dropped,
    /// Interquartile range of the sentinel's times, in per cent of their median.
    pub sentinel_iqr_pct: Option<f64>,
    /// Speeds at which the sentinel ran.
    pub regimes: Option<Regimes>,
    /// Autocorrelation of neighbouring rounds, from -1 to 1: the highest of any tree.
    pub lag1: Option<f64>,
    /// The number of independent rounds that those of one tree are worth: the lowest of any tree.
    pub effective_n: Option<f64>,
    /// Share of the time that the hypervisor gave to others, in per cent.
    pub steal_pct: Option<f64>,
    /// Number of times that a cgroup's CPU quota stopped the measurement.
    pub throttled: Option<u64>,
    /// Interrupts per second on the CPU that measured.
    pub interrupts_per_s: Option<f64>,
    /// Switches to tasks outside the measurement. A block with one is dropped; others do no harm.
    pub foreign_switches: Option<u64>,
    /// True if the sentinel was steady before the first round, in every tree.
    pub was_steady: bool,
    /// Contrast of two identical arms, compared like any others.
    pub a_a: Option<Contrast>,
}

/// A reason why a measurement is worth less. `Display` is a sentence without its full stop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[non_exhaustive]
pub enum Reason {
    /// Two identical arms came out different.
    IdenticalDiffer {
        /// The second arm over the first.
        ratio: f64,
    },
    /// The interval of two identical arms is wide.
    IdenticalUncertain {
        /// The distance from 1 to which the interval reaches, in per cent.
        reach_pct: f64,
    },
    /// Many blocks were left out.
    Dropped {
        /// Share of all blocks, in per cent.
        share_pct: f64,
        /// Number of blocks left out, by reason.
        dropped: Dropped,
    },
    /// Few trees, whose rounds are so correlated that they are worth few.
    FewRounds {
        /// The number of independent rounds that they are worth.
        effective_n: f64,
    },
    /// The machine never reached a steady speed before the first round.
    Unsteady,
    /// The machine ran at two speeds.
    TwoSpeeds {
        /// The time by which everything takes longer at the slower speed, in per cent.
        gap_pct: f64,
        /// The share of readings at the slower speed, in per cent.
        slow_share_pct: f64,
    },
    /// The speed of the machine varied widely.
    Spread {
        /// Interquartile range of the sentinel, in per cent of its median.
        iqr_pct: f64,
    },
    /// The hypervisor gave the CPU to others.
    Stolen {
        /// Share of the time that was stolen, in per cent.
        pct: f64,
    },
    /// A cgroup's CPU quota stopped the measurement.
    Throttled {
        /// Number of times that it was stopped.
        times: u64,
    },
    /// The CPU took many interrupts while measuring.
    Interrupted {
        /// Number of interrupts per second.
        per_s: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IdenticalDiffer { ratio } => {
                write!(
                    f,
                    "two identical arms came out different, as 1 to {ratio:.3}"
                )
            }
            Self::IdenticalUncertain { reach_pct } => write!(
                f,
                "two identical arms could be told equal only within {reach_pct:.1} %"
            ),
            Self::Dropped { share_pct, dropped } => write!(
                f,
                "{share_pct:.0} % of the blocks were left out: {} because another task got the \
                 CPU, {} because they took over three times as long as usual",
                dropped.foreign_switch, dropped.too_long
            ),
            Self::FewRounds { effective_n } => write!(
                f,
                "the rounds drifted together: they are worth {effective_n:.1} independent ones"
            ),
            Self::Unsteady => {
                f.write_str("the machine never came to a steady speed before it began")
            }
            Self::TwoSpeeds {
                gap_pct,
                slow_share_pct,
            } => write!(
                f,
                "the machine ran at two speeds: {gap_pct:.0} % slower for {slow_share_pct:.0} % \
                 of the time"
            ),
            Self::Spread { iqr_pct } => write!(
                f,
                "the same fixed loop took times that spread over {iqr_pct:.1} % (middle half)"
            ),
            Self::Stolen { pct } => {
                write!(f, "the hypervisor gave {pct:.1} % of the time to others")
            }
            Self::Throttled { times } => write!(f, "a CPU quota stopped it {times} times"),
            Self::Interrupted { per_s } => {
                write!(f, "the CPU took {per_s:.0} interrupts per second")
            }
        }
    }
}

/// The worth of a measurement, from best to worst.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reasons")]
pub enum MeasurementVerdict {
    /// Nothing speaks against the measurement.
    #[default]
    Quiet,
    /// The intervals hold, but are wider than they need be, or the values are higher.
    Noisy(Vec<Reason>),
    /// The measurement answers nothing. The gravest reasons come first.
    Unresolved(Vec<Reason>),
}

impl MeasurementVerdict {
    /// The verdict on a measurement under this noise.
    pub fn of(noise: &Noise) -> Self {
        let grave = noise.unresolved();
        let reasons = [grave.clone(), noise.noisy()].concat();
        if !grave.is_empty() {
            Self::Unresolved(reasons)
        } else if !reasons.is_empty() {
            Self::Noisy(reasons)
        } else {
            Self::Quiet
        }
    }

    /// The reasons against the measurement; empty if it is quiet.
    pub fn reasons(&self) -> &[Reason] {
        match self {
            Self::Quiet => &[],
            Self::Noisy(reasons) | Self::Unresolved(reasons) => reasons,
        }
    }
}

impl Noise {
    /// The reasons for which the measurement answers nothing.
    fn unresolved(&self) -> Vec<Reason> {
        let a_a = self.a_a.as_ref();
        let differ = a_a.filter(|a_a| differs(a_a, None).is_claim());
        let reach = a_a.map(|a_a| reach_pct(&a_a.ratio));
        let rests_on_rounds = self.trees < LEAST_TREES;
        [
            differ.map(|a_a| Reason::IdenticalDiffer {
                ratio: a_a.ratio.point,
            }),
            above(reach, UNRESOLVED_A_A_PCT)
                .map(|reach_pct| Reason::IdenticalUncertain { reach_pct }),
            self.dropped_above(UNRESOLVED_DROPPED_PCT),
            self.effective_n
                .filter(|worth| rests_on_rounds && *worth < LEAST_EFFECTIVE_N)
                .map(|effective_n| Reason::FewRounds { effective_n }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The reasons for which its intervals are wider, or its values higher, than they need be.
    fn noisy(&self) -> Vec<Reason> {
        let flips = self.regimes.filter(|regimes| regimes.count > 1);
        let dropped = self.dropped_above(NOISY_DROPPED_PCT);
        let is_told = self.dropped_above(UNRESOLVED_DROPPED_PCT).is_some();
        [
            (!self.was_steady).then_some(Reason::Unsteady),
            flips.map(|regimes| Reason::TwoSpeeds {
                gap_pct: regimes.gap_pct,
                slow_share_pct: regimes.slow_share_pct,
            }),
            above(self.sentinel_iqr_pct, NOISY_IQR_PCT).map(|iqr_pct| Reason::Spread { iqr_pct }),
            above(self.steal_pct, NOISY_STEAL_PCT).map(|pct| Reason::Stolen { pct }),
            self.throttled
                .filter(|times| *times > 0)
                .map(|times| Reason::Throttled { times }),
            above(self.interrupts_per_s, NOISY_INTERRUPTS_PER_S)
                .map(|per_s| Reason::Interrupted { per_s }),
            dropped.filter(|_| !is_told),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn dropped_above(&self, limit_pct: f64) -> Option<Reason> {
        let share_pct = 100.0 * self.dropped.total() as f64 / self.blocks.max(1) as f64;
        (share_pct > limit_pct).then_some(Reason::Dropped {
            share_pct,
            dropped: self.dropped,
        })
    }
}

fn above(value: Option<f64>, limit: f64) -> Option<f64> {
    value.filter(|value| *value > limit)
}

/// The verdict of a contrast on b, compared with a.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// b is larger, beyond the margin.
    Larger,
    /// b is smaller, beyond the margin.
    Smaller,
    /// No difference that identical arms do not show as well: the interval lies within the margin.
    None,
    /// The interval is too wide, or too unsure, to say.
    Unresolved,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Larger => "larger",
            Self::Smaller => "smaller",
            Self::None => "no difference",
            Self::Unresolved => "unresolved",
        })
    }
}

impl Difference {
    /// Returns true if the arms are said to differ.
    pub const fn is_claim(self) -> bool {
        matches!(self, Self::Larger | Self::Smaller)
    }
}

/// Judges whether b differs from a; `a_a` is the contrast of two identical arms in the same measurement.
///
/// A contrast of a family ([`Contrast::of_family`]) is claimed only if all claims of the family
/// together keep the error rate.
pub fn differs(contrast: &Contrast, a_a: Option<&Contrast>) -> Difference {
    let ratio = &contrast.ratio;
    let margin = 1.0 + margin_pct(contrast, a_a) / 100.0;
    // With too few trees, the interval does not include what differs between trees.
    let beyond = if ratio.covers_trees() { 1.0 } else { margin };
    let is_significant = contrast.p <= 1.0 - CONFIDENCE;
    if !ratio.covers_trees() && ratio.rounds < LEAST_ROUNDS {
        Difference::Unresolved
    } else if is_significant && ratio.low > beyond && ratio.point > margin {
        Difference::Larger
    } else if is_significant && ratio.high < 1.0 / beyond && ratio.point < 1.0 / margin {
        Difference::Smaller
    } else if lies_within(ratio, margin) {
        Difference::None
    } else {
        Difference::Unresolved
    }
}

fn lies_within(ratio: &Estimate, margin: f64) -> bool {
    ratio.confidence >= LEAST_CONFIDENCE && ratio.low >= 1.0 / margin && ratio.high <= margin
}

/// Returns how far from 1 a ratio of identical arms may lie, in per cent. Reports give it with [`Difference::None`],
/// which claims no more than this.
pub fn margin_pct(contrast: &Contrast, a_a: Option<&Contrast>) -> f64 {
    let least = if contrast.ratio.covers_trees() {
        RESOLUTION_PCT
    } else {
        FEW_TREES_PCT
    };
    a_a.map_or(least, |a_a| reach_pct(&a_a.ratio).max(least))
}

/// Returns how far from 1 the interval reaches, on the side where it reaches farther, in per cent. At least its half
/// width; more where it lies off centre, as it does if few trees show one offset.
fn reach_pct(ratio: &Estimate) -> f64 {
    let reach = ratio.high.max(1.0 / ratio.low);
    (reach - 1.0).max(0.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Noise {
        Noise {
            trees: 12,
            blocks: 1000,
            sentinel_iqr_pct: Some(0.8),
            regimes: Regimes::of(&[50.0, 50.1, 50.2]),
            lag1: Some(0.2),
            effective_n: Some(25.0),
            steal_pct: Some(0.0),
            throttled: Some(0),
            interrupts_per_s: Some(260.0),
            foreign_switches: Some(3),
            was_steady: true,
            a_a: Some(ratio(0.998, 1.003, 12)),
            ..Noise::default()
        }
    }

    fn ratio(low: f64, high: f64, trees: usize) -> Contrast {
        let ratio = Estimate {
            point: f64::midpoint(low, high),
            low,
            high,
            confidence: 0.96,
            trees,
            rounds: trees * 30,
        };
        Contrast {
            difference: ratio,
            ratio,
            p: 0.01,
        }
    }

    fn words(noise: &Noise) -> Vec<String> {
        let verdict = MeasurementVerdict::of(noise);
        verdict.reasons().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_quiet_machine_is_quiet() {
        assert_eq!(MeasurementVerdict::of(&quiet()), MeasurementVerdict::Quiet);
    }

    /// A value that the system does not give is no reason; an unsteady machine is one.
    #[test]
    fn what_is_not_known_is_no_reason() {
        let noise = Noise::default();
        assert_eq!(
            MeasurementVerdict::of(&noise),
            MeasurementVerdict::Noisy(vec![Reason::Unsteady])
        );
    }

    #[test]
    fn every_kind_of_noise_is_told() {
        let regimes = Regimes::of(&[50.0, 50.0, 50.0, 85.0]);
        let noise = Noise {
            was_steady: false,
            regimes,
            sentinel_iqr_pct: Some(17.5),
            steal_pct: Some(2.25),
            throttled: Some(4),
            interrupts_per_s: Some(9000.4),
            dropped: Dropped {
                foreign_switch: 150,
                too_long: 50,
            },
            ..quiet()
        };
        assert!(matches!(
            MeasurementVerdict::of(&noise),
            MeasurementVerdict::Noisy(_)
        ));
        assert_eq!(
            words(&noise),
            [
                "the machine never came to a steady speed before it began",
                "the machine ran at two speeds: 70 % slower for 25 % of the time",
                "the same fixed loop took times that spread over 17.5 % (middle half)",
                "the hypervisor gave 2.2 % of the time to others",
                "a CPU quota stopped it 4 times",
                "the CPU took 9000 interrupts per second",
                "20 % of the blocks were left out: 150 because another task got the CPU, 50 \
                 because they took over three times as long as usual",
            ]
        );
    }

    /// The gravest first; blocks that were left out are reported once.
    #[test]
    fn what_answers_nothing_says_why() {
        let noise = Noise {
            a_a: Some(ratio(1.02, 1.08, 12)),
            dropped: Dropped {
                foreign_switch: 600,
                too_long: 0,
            },
            was_steady: false,
            ..quiet()
        };
        assert!(matches!(
            MeasurementVerdict::of(&noise),
            MeasurementVerdict::Unresolved(_)
        ));
        let words = words(&noise);
        assert_eq!(words.len(), 4);
        assert_eq!(
            words[0],
            "two identical arms came out different, as 1 to 1.050"
        );
        assert_eq!(
            words[1],
            "two identical arms could be told equal only within 8.0 %"
        );
        assert!(words[2].starts_with("60 % of the blocks were left out"));
    }

    /// With six trees the interval is over trees; what their rounds are worth then does not matter.
    #[test]
    fn few_independent_rounds_matter_to_few_trees_only() {
        let noise = Noise {
            effective_n: Some(3.5),
            ..quiet()
        };
        assert_eq!(MeasurementVerdict::of(&noise), MeasurementVerdict::Quiet);
        let few = Noise { trees: 2, ..noise };
        assert_eq!(
            words(&few),
            ["the rounds drifted together: they are worth 3.5 independent ones"]
        );
    }

    #[test]
    fn a_difference_leaves_out_one_and_is_beyond_the_margin() {
        let says = |low, high| differs(&ratio(low, high, 12), None);
        assert_eq!(says(1.006, 1.02), Difference::Larger);
        assert_eq!(says(0.9, 0.99), Difference::Smaller);
        assert_eq!(says(0.997, 1.004), Difference::None);
        assert_eq!(says(1.001, 1.004), Difference::None);
        assert_eq!(says(1.001, 1.02), Difference::Larger);
        assert_eq!(says(1.001, 1.008), Difference::Unresolved);
        assert_eq!(says(0.999, 1.05), Difference::Unresolved);
        assert_eq!(says(0.9, 1.1), Difference::Unresolved);
    }

    #[test]
    fn identical_arms_set_the_margin() {
        let contrast = ratio(1.006, 1.009, 12);
        let says = |low, high| differs(&contrast, Some(&ratio(low, high, 12)));
        assert_eq!(says(0.999, 1.001), Difference::Larger);
        assert_eq!(says(0.999, 1.008), Difference::Unresolved);
        assert_eq!(says(0.99, 1.0), Difference::None);
    }

    /// One tree does not show how much another would differ.
    #[test]
    fn few_trees_claim_only_what_is_large() {
        let says = |low, high| differs(&ratio(low, high, 1), None);
        assert_eq!(says(1.012, 1.014), Difference::None);
        assert_eq!(says(1.018, 1.05), Difference::Unresolved);
        assert_eq!(says(1.03, 1.04), Difference::Larger);
        assert_eq!(says(0.95, 0.97), Difference::Smaller);
        let mut short = ratio(1.3, 1.4, 1);
        short.ratio.rounds = 19;
        assert_eq!(differs(&short, None), Difference::Unresolved);
    }

    #[test]
    fn what_is_unsure_is_no_claim() {
        let mut large = ratio(1.5, 1.6, 1);
        large.p = 0.0625;
        assert_eq!(differs(&large, None), Difference::Unresolved);
        let mut equal = ratio(0.999, 1.001, 1);
        equal.ratio.confidence = 0.75;
        assert_eq!(differs(&equal, None), Difference::Unresolved);
    }
}

//! From what the moments have met to what a switch costs.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use crate::cost::estimate::CONFIDENCE;
use crate::stats::interval::{ConfidenceInterval, median, whole};
use crate::stats::student;

use super::{Injection, TouchedMemory, UnitResponse};

/// The share of the shortest, and of the longest units that a mean leaves out.
const TRIMMED: f64 = 0.2;

/// The fewest moments of each kind from which an interval is made: the mean of fewer is not normal.
const FEWEST: usize = 30;

/// What the time before the moment may count for in the length of the unit: nothing where units are alike, all of it
/// where they have no memory.
const SLOPES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// The standard deviation of what one act costs: interrupts differ (seen on KVM, where a program of equal units differed
/// by a third of this).
const SPREAD_OF_ACTS_NS: f64 = 3000.0;

/// Confidence with which a control must differ from 0 before that is told: one experiment has several.
const CONTROL_CONFIDENCE: f64 = 0.99;

/// What one kind of act adds to the CPU time of the unit that it meets, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EffectOfAct {
    /// The estimate.
    pub ns: f64,
    /// The interval, with [`CONFIDENCE`].
    pub interval: ConfidenceInterval,
    /// True if it differs from 0 so clearly that chance does so once in a hundred experiments.
    pub is_clear: bool,
}

impl EffectOfAct {
    /// From an estimate and its standard error, with these degrees of freedom.
    fn new(ns: f64, error: f64, freedom: f64) -> Self {
        let reach = student::quantile(CONFIDENCE, freedom) * error;
        Self {
            ns,
            interval: ConfidenceInterval {
                low: ns - reach,
                high: ns + reach,
            },
            is_clear: ns.abs() > student::quantile(CONTROL_CONFIDENCE, freedom) * error,
        }
    }

    /// Half the length of the interval, in ns.
    pub fn half_width_ns(&self) -> f64 {
        self.interval.half_width()
    }
}

/// What one switch costs the program, to a task that touches so much memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PriceForProgram {
    /// The memory; `None` for a task that touches nothing.
    pub touched: Option<TouchedMemory>,
    /// Direct and indirect cost together.
    pub cost: EffectOfAct,
    /// What the memory alone adds; `None` where none is touched.
    pub memory: Option<EffectOfAct>,
    /// The number of moments at which this was done.
    pub moments: usize,
}

/// All that the experiment tells.
#[derive(Clone, Debug, PartialEq)]
pub struct InjectionEstimates {
    /// The prices, by rising memory.
    pub prices: Vec<PriceForProgram>,
    /// What an interrupt costs that switches to nobody.
    pub interrupt: EffectOfAct,
    /// The control: what is done on another CPU should cost nothing.
    pub elsewhere: EffectOfAct,
    /// What the program does more of in the same unit, because it had to wait for as long as the largest walk takes: work
    /// that piled up, which is no cost.
    pub piled_up: EffectOfAct,
    /// The mean CPU time of the units that were met, in ns. Long ones are met more often than others.
    pub unit_ns: f64,
    /// The number of moments that met a unit.
    pub moments: usize,
    /// The CPU time that all acts together have cost the program, in ns: at least 0.
    pub spent_ns: f64,
}

/// Too few moments met units of work for an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooFewMoments {
    /// What was done at them.
    pub injection: Injection,
    /// The number of units that they met.
    pub met: usize,
}

impl fmt::Display for TooFewMoments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { injection, met } = self;
        write!(
            f,
            "{met} units of work were met by {injection}, and fewer than {FEWEST} make no estimate: measure longer (-d), or \
             allow more (--budget)"
        )
    }
}

impl Error for TooFewMoments {}

/// The trimmed mean of one kind, and how sure it is.
#[derive(Clone, Copy, Debug, Default)]
struct MeanOfKind {
    mean: f64,
    /// The square of the standard error.
    error2: f64,
    count: usize,
}

impl InjectionEstimates {
    /// Estimates from what the moments have met.
    ///
    /// # Errors
    /// When there are too few of a kind.
    pub fn of(responses: &[UnitResponse]) -> Result<Self, TooFewMoments> {
        let kinds = means_of_kinds(responses);
        let kind = |injection| {
            let found = kinds.get(&injection).copied().unwrap_or_default();
            match found.count {
                met if met < FEWEST => Err(TooFewMoments { injection, met }),
                _ => Ok(found),
            }
        };
        let (nothing, interrupt) = (kind(Injection::Nothing)?, kind(Injection::Interrupt)?);
        let switch = kind(Injection::Switch)?;
        let direct = [(switch, 1.0), (interrupt, -1.0)];
        let mut prices = vec![PriceForProgram {
            touched: None,
            cost: sum_of(&direct),
            memory: None,
            moments: switch.count,
        }];
        let of_switch_ns = (switch.mean - nothing.mean).max(0.0);
        let mut spent_ns = (interrupt.mean - nothing.mean).max(0.0) * count_as_f64(interrupt.count)
            + of_switch_ns * count_as_f64(switch.count);
        let mut longest = switch;
        for memory in TouchedMemory::ALL {
            let (touch, hold) = (
                kind(Injection::Touch(memory))?,
                kind(Injection::Hold(memory))?,
            );
            let indirect = [(touch, 1.0), (hold, -1.0)];
            prices.push(PriceForProgram {
                touched: Some(memory),
                cost: sum_of(&[indirect, direct].concat()),
                memory: Some(sum_of(&indirect)),
                moments: touch.count,
            });
            // What a hold adds to a switch is work that piled up, which costs nothing.
            spent_ns += of_switch_ns * count_as_f64(touch.count + hold.count)
                + (touch.mean - hold.mean).max(0.0) * count_as_f64(touch.count);
            longest = hold;
        }
        Ok(Self {
            prices,
            interrupt: sum_of(&[(interrupt, 1.0), (nothing, -1.0)]),
            elsewhere: sum_of(&[(kind(Injection::Elsewhere)?, 1.0), (nothing, -1.0)]),
            piled_up: sum_of(&[(longest, 1.0), (switch, -1.0)]),
            unit_ns: nothing.mean,
            moments: responses.len(),
            spent_ns,
        })
    }
}

/// Half the length of the interval of the price of a switch that touches nothing, in ns, if so many moments meet units as
/// these. `None` if these are too few to tell.
pub fn resolution(responses: &[UnitResponse], moments: f64) -> Option<f64> {
    if responses.len() < FEWEST {
        return None;
    }
    let all = MeanOfKind::of(adjusted(responses));
    let variance = all.error2 * count_as_f64(all.count) + SPREAD_OF_ACTS_NS.powi(2);
    let of_kind = |injection: Injection| {
        let lots = Injection::LOTS.iter().filter(|lot| **lot == injection);
        moments * count_as_f64(lots.count()) / count_as_f64(Injection::LOTS.len())
    };
    let error2 = variance / of_kind(Injection::Switch) + variance / of_kind(Injection::Interrupt);
    Some(student::quantile(CONFIDENCE, 1e6) * error2.sqrt())
}

fn means_of_kinds(responses: &[UnitResponse]) -> BTreeMap<Injection, MeanOfKind> {
    let mut kinds: BTreeMap<Injection, Vec<f64>> = BTreeMap::new();
    for (response, value) in responses.iter().zip(adjusted(responses)) {
        kinds.entry(response.injection).or_default().push(value);
    }
    kinds
        .into_iter()
        .map(|(injection, values)| (injection, MeanOfKind::of(values)))
        .collect()
}

/// The lengths of the units, of which that part of the time before the moment is taken out that makes them most alike. It
/// is one part for all kinds, so it favours none.
fn adjusted(responses: &[UnitResponse]) -> Vec<f64> {
    let before: Vec<f64> = responses.iter().map(|one| one.before_ns).collect();
    let middle = median(&before).unwrap_or(0.0);
    let with = |slope: f64| -> Vec<f64> {
        let lengths = responses.iter();
        lengths
            .map(|one| one.cpu_ns - slope * (one.before_ns - middle))
            .collect()
    };
    let spread = |slope: &f64| MeanOfKind::of(with(*slope)).error2;
    let best = SLOPES
        .into_iter()
        .min_by(|a, b| spread(a).total_cmp(&spread(b)));
    with(best.unwrap_or(0.0))
}

impl MeanOfKind {
    /// Of values, by Yuen: the mean of the middle, with the variance of values of which the others are drawn in to its
    /// ends.
    fn of(mut values: Vec<f64>) -> Self {
        let count = values.len();
        let left_out = whole(count_as_f64(count) * TRIMMED);
        if count < 2 || 2 * left_out >= count {
            return Self {
                count,
                ..Self::default()
            };
        }
        values.sort_unstable_by(f64::total_cmp);
        let (low, high) = (values[left_out], values[count - 1 - left_out]);
        let middle = &values[left_out..count - left_out];
        let mean = middle.iter().sum::<f64>() / count_as_f64(middle.len());
        let n = count_as_f64(count);
        let drawn_in = || values.iter().map(|value| value.clamp(low, high));
        let center = drawn_in().sum::<f64>() / n;
        let squares: f64 = drawn_in().map(|value| (value - center).powi(2)).sum();
        let kept = count_as_f64(middle.len());
        Self {
            mean,
            error2: squares / (kept * (kept - 1.0).max(1.0)),
            count,
        }
    }
}

/// A sum of means, each with its factor.
fn sum_of(parts: &[(MeanOfKind, f64)]) -> EffectOfAct {
    let ns = parts.iter().map(|(kind, factor)| kind.mean * factor).sum();
    let error2: f64 = parts
        .iter()
        .map(|(kind, factor)| kind.error2 * factor * factor)
        .sum();
    let fewest = parts.iter().map(|(kind, _)| kind.count).min().unwrap_or(0);
    let freedom = (count_as_f64(fewest) * (1.0 - 2.0 * TRIMMED)).max(2.0) - 1.0;
    EffectOfAct::new(ns, error2.sqrt(), freedom)
}

#[expect(clippy::cast_precision_loss, reason = "moments are far fewer than 2⁵³")]
const fn count_as_f64(count: usize) -> f64 {
    count as f64
}

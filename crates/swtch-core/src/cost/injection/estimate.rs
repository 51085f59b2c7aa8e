//! From what the moments have met to what a switch costs.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use crate::cost::estimate::CONFIDENCE;
use crate::stats::interval::{ConfidenceInterval, quantile};
use crate::stats::student;

use super::{Injection, TouchedMemory, UnitResponse};

/// Units that take longer than this share of those that were met count as if they took that long. A few of them hold
/// garbage collections and checkpoints, which are longer than all else, and hide what an act costs.
const LONGEST_SHARE: f64 = 0.99;

/// The fewest moments of each kind from which an interval is made: the mean of fewer is not normal.
const FEWEST: usize = 30;

/// The smallest share of acts that must come before the unit ends. Where most come too late, what is divided by the share
/// is mostly noise.
const SMALLEST_IN_TIME: f64 = 0.2;

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
    /// The share of them, from 0 to 1, at which the task had the CPU before the unit ended.
    pub in_time: f64,
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
pub enum TooFewMoments {
    /// Of one kind there are too few.
    Met {
        /// The kind.
        injection: Injection,
        /// The number of units that it met.
        met: usize,
    },
    /// Most acts came after the unit had ended.
    Late {
        /// The share that came in time, from 0 to 1.
        share: f64,
    },
}

impl fmt::Display for TooFewMoments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Met { injection, met } => write!(
                f,
                "{met} units of work were met by {injection}, and fewer than {FEWEST} make no estimate"
            ),
            Self::Late { share } => write!(
                f,
                "only {:.0} % of the injected switches came before the unit of work had ended",
                share * 100.0
            ),
        }
    }
}

impl Error for TooFewMoments {}

/// The mean of one kind, and how sure it is.
#[derive(Clone, Copy, Debug, Default)]
struct MeanOfKind {
    mean: f64,
    /// The square of the standard error.
    error2: f64,
    count: usize,
    in_time: f64,
}

/// Responses of which what was known before the moment has been taken out.
#[derive(Debug)]
struct AdjustedResponses {
    /// One for each response, in its order.
    values: Vec<f64>,
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
                met if met < FEWEST => Err(TooFewMoments::Met { injection, met }),
                _ => Ok(found),
            }
        };
        let (nothing, interrupt) = (kind(Injection::Nothing)?, kind(Injection::Interrupt)?);
        let switch = kind(Injection::Switch)?;
        if switch.in_time < SMALLEST_IN_TIME {
            return Err(TooFewMoments::Late {
                share: switch.in_time,
            });
        }
        // Interrupts take as long to come as the task that one of them wakes.
        let late = switch.in_time;
        let mut prices = vec![PriceForProgram {
            touched: None,
            cost: sum_of(&[(switch, 1.0 / late), (interrupt, -1.0 / late)]),
            memory: None,
            moments: switch.count,
            in_time: late,
        }];
        let cost_of_switch = (switch.mean - nothing.mean).max(0.0);
        let mut spent_ns = (interrupt.mean - nothing.mean).max(0.0) * count_as_f64(interrupt.count)
            + cost_of_switch * count_as_f64(switch.count);
        let mut longest = switch;
        for memory in TouchedMemory::ALL {
            let (touch, hold) = (
                kind(Injection::Touch(memory))?,
                kind(Injection::Hold(memory))?,
            );
            let in_time = f64::midpoint(touch.in_time, hold.in_time).max(SMALLEST_IN_TIME);
            let indirect = [(touch, 1.0 / in_time), (hold, -1.0 / in_time)];
            let direct = [(switch, 1.0 / late), (interrupt, -1.0 / late)];
            prices.push(PriceForProgram {
                touched: Some(memory),
                cost: sum_of(&[indirect, direct].concat()),
                memory: Some(sum_of(&indirect)),
                moments: touch.count,
                in_time: touch.in_time,
            });
            // What a hold adds is work that piled up, apart from what any switch costs.
            spent_ns += cost_of_switch * count_as_f64(touch.count + hold.count)
                + (touch.mean - hold.mean).max(0.0) * count_as_f64(touch.count);
            longest = hold;
        }
        Ok(Self {
            prices,
            interrupt: sum_of(&[(interrupt, 1.0 / late), (nothing, -1.0 / late)]),
            elsewhere: sum_of(&[(kind(Injection::Elsewhere)?, 1.0), (nothing, -1.0)]),
            piled_up: sum_of(&[(longest, 1.0 / late), (switch, -1.0 / late)]),
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
    let adjusted = AdjustedResponses::of(responses);
    let all = MeanOfKind::of(adjusted.values.iter().map(|value| (*value, false)));
    let variance = all.error2 * count_as_f64(all.count);
    let of_kind = |injection: Injection| {
        let lots = Injection::LOTS.iter().filter(|lot| **lot == injection);
        moments * count_as_f64(lots.count()) / count_as_f64(Injection::LOTS.len())
    };
    let error2 = variance / of_kind(Injection::Switch) + variance / of_kind(Injection::Interrupt);
    Some(student::quantile(CONFIDENCE, 1e6) * error2.sqrt())
}

fn means_of_kinds(responses: &[UnitResponse]) -> BTreeMap<Injection, MeanOfKind> {
    let adjusted = AdjustedResponses::of(responses);
    let mut kinds: BTreeMap<Injection, Vec<(f64, bool)>> = BTreeMap::new();
    for (response, value) in responses.iter().zip(&adjusted.values) {
        let of_kind = kinds.entry(response.injection).or_default();
        of_kind.push((*value, response.is_in_time));
    }
    kinds
        .into_iter()
        .map(|(injection, values)| (injection, MeanOfKind::of(values.into_iter())))
        .collect()
}

impl MeanOfKind {
    /// Of values, each with whether the act came in time.
    fn of(values: impl Iterator<Item = (f64, bool)>) -> Self {
        let (mut count, mut mean, mut squares, mut in_time) = (0_usize, 0.0, 0.0, 0.0);
        // Welford 1962.
        for (value, is_in_time) in values {
            count += 1;
            let off = value - mean;
            mean += off / count_as_f64(count);
            squares += off * (value - mean);
            in_time += f64::from(u8::from(is_in_time));
        }
        let n = count_as_f64(count);
        Self {
            mean,
            error2: squares / (n * (n - 1.0).max(1.0)).max(1.0),
            count,
            in_time: in_time / n.max(1.0),
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
    let freedom = count_as_f64(fewest).max(2.0) - 1.0;
    EffectOfAct::new(ns, error2.sqrt(), freedom)
}

impl AdjustedResponses {
    /// Takes out what the time before the moment says of the whole unit, by one slope for all kinds: where units are
    /// alike it says nothing, and where they have no memory (exponential ones) all of that time is in the whole.
    fn of(responses: &[UnitResponse]) -> Self {
        let lengths: Vec<f64> = responses.iter().map(|one| one.cpu_ns).collect();
        let longest = quantile(&lengths, LONGEST_SHARE).unwrap_or(f64::INFINITY);
        let n = count_as_f64(responses.len()).max(1.0);
        let capped = responses
            .iter()
            .map(|one| (one.cpu_ns.min(longest), one.before_ns.min(longest)));
        let capped: Vec<_> = capped.collect();
        let means = capped
            .iter()
            .fold((0.0, 0.0), |(y, x), one| (y + one.0 / n, x + one.1 / n));
        let (mut both, mut of_x) = (0.0, 0.0);
        for (y, x) in &capped {
            both += (y - means.0) * (x - means.1);
            of_x += (x - means.1) * (x - means.1);
        }
        let slope = if of_x > 0.0 { both / of_x } else { 0.0 };
        let values = capped
            .iter()
            .map(|(y, x)| y - slope * (x - means.1))
            .collect();
        Self { values }
    }
}

#[expect(clippy::cast_precision_loss, reason = "moments are far fewer than 2⁵³")]
const fn count_as_f64(count: usize) -> f64 {
    count as f64
}

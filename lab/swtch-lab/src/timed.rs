//! Times arms side by side for an experiment, as `swtch cost` does: blocks of a millisecond in
//! rounds, fresh process trees, intervals over trees.
//!
//! ```text
//! groups ─▶ measure: trees of blocks ─▶ Timed ─▶ Blocks of a group ─▶ estimates, contrasts
//!                                         │    └▶ GroupPrices: its rows of a price list
//!                                         └▶ notes: what disturbed it, what is not here
//! ```
//!
//! It neither chooses arms nor draws conclusions: experiments do; it decides only whether an interval
//! supports a claim.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use swtch_bench::cost::home;
use swtch_core::cost::{
    self, Contrast, Estimate, LEAST_TREES, NamedContrast, Price, Reason, differs,
};
use swtch_output::text;
use swtch_plot::content::{Dot, NamedDot};
use swtch_report::report::Cell;

use super::claim::Verdict;
use super::context::ExperimentContext;
use super::findings::Findings;
use super::measured::LabNumber;
use super::parameters::Parameters;
use swtch_cost::list;
use swtch_cost::measure::{MeasuredGroup, Measurements, measure};
use swtch_cost::menu::{ArmGroup, Menu, Role};
use swtch_cost::noise::noise;
use swtch_cost::series::{ArmOperation, Blocks};

/// The measurements of all groups, for one experiment.
#[derive(Debug)]
pub struct Timed {
    measurements: Measurements,
    /// True if it was told to stop before it was done.
    pub was_interrupted: bool,
}

impl Timed {
    /// Times all groups, and once more those that a busy machine spoiled, if the `budget` lasts.
    /// The calling process must have no other thread.
    ///
    /// # Errors
    ///
    /// A process cannot be started, or one that measures failed.
    pub fn side_by_side(
        groups: Vec<ArmGroup>,
        budget: Duration,
        context: &ExperimentContext,
    ) -> Result<Self> {
        let menu = Menu::of_groups(groups, home()?)?;
        Ok(Self {
            measurements: measure(&menu, budget, &context.stop, has_enough_trees)?,
            was_interrupted: context.must_stop(),
        })
    }

    /// The group `name`; `None` when it was ended before it had enough trees.
    pub fn group(&self, name: &str) -> Option<&MeasuredGroup> {
        let mut groups = self.measurements.measured.iter();
        groups.find(|measured| measured.group.name == name)
    }

    /// What a price list says of the group `name`; `None` as for [`Timed::group`].
    pub fn prices(&self, name: &str) -> Option<GroupPrices<'_>> {
        self.group(name).map(GroupPrices::of)
    }

    /// Findings that hold only the notes; the experiment adds the rest.
    pub fn findings(&self) -> Findings {
        Findings {
            notes: self.notes(),
            was_interrupted: self.was_interrupted,
            ..Findings::default()
        }
    }

    /// What a reader needs to judge the numbers: noise, what is missing, unfinished groups.
    fn notes(&self) -> Vec<String> {
        let blocks: Vec<Blocks<'_>> = self.measurements.measured.iter().map(Blocks::of).collect();
        let all: Vec<Contrast> = blocks.iter().filter_map(twins).collect();
        let verdict = cost::MeasurementVerdict::of(&noise(&self.measurements, &blocks, &all));
        let reasons: Vec<String> = verdict.reasons().iter().map(Reason::to_string).collect();
        let noisy = match &verdict {
            cost::MeasurementVerdict::Quiet => None,
            cost::MeasurementVerdict::Noisy(_) => Some("the machine was not quiet"),
            cost::MeasurementVerdict::Unresolved(_) => {
                Some("the machine was busy, and little can be said")
            }
        };
        let noisy = noisy.map(|noisy| format!("{noisy}: {}", reasons.join("; ")));
        let unfinished = self
            .measurements
            .unfinished
            .iter()
            .map(|name| format!("{name} was ended before enough process trees were measured"));
        noisy
            .into_iter()
            .chain(self.missing())
            .chain(unfinished)
            .collect()
    }

    /// What this machine does not have, and why.
    fn missing(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for measured in &self.measurements.measured {
            for missing in measured.trees.iter().flat_map(|tree| &tree.missing) {
                let kind = &measured.group.arms[missing.arm].kind;
                // `Error::NotHere` begins with these words, and the line says them itself.
                let why = missing.why.trim_start_matches("not here: ");
                let line = format!("{kind} is not here: {why}");
                if !all.contains(&line) {
                    all.push(line);
                }
            }
        }
        all
    }
}

/// What a price list says of one group.
#[derive(Debug)]
pub struct GroupPrices<'m> {
    measured: &'m MeasuredGroup,
    /// The blocks that the prices are made of.
    pub blocks: Blocks<'m>,
    /// The prices, in the order of the arms; none for an arm that was not measured, or whose
    /// baseline could not be compared with it.
    pub rows: Vec<Price>,
}

impl<'m> GroupPrices<'m> {
    fn of(measured: &'m MeasuredGroup) -> Self {
        let blocks = Blocks::of(measured);
        let mut rows = list::prices(measured, &blocks);
        rows.retain(|price| price.net_ns.is_some() || price.baseline_ns.is_none());
        Self {
            rows,
            measured,
            blocks,
        }
    }

    /// The price of an operation, by its name.
    pub fn find(&self, kind: &str) -> Option<&Price> {
        self.rows.iter().find(|price| price.kind == kind)
    }

    /// How the whole time of one operation compares with that of another.
    pub fn contrast(&self, without: &str, with: &str) -> Option<Contrast> {
        let arms = &self.measured.group.arms;
        let arm = |kind: &str| arms.iter().position(|arm| arm.kind == kind);
        let (without, with) = (arm(without)?, arm(with)?);
        self.blocks
            .contrast(ArmOperation::of(without), ArmOperation::of(with))
    }

    /// The contrasts that the group declares, judged as one family.
    pub fn contrasts(&self) -> Vec<NamedContrast> {
        list::contrasts(&[(self.measured, &self.blocks)])
    }
}

/// What one operation costs: net of its baseline, where it has one.
pub fn net_cost(price: &Price) -> &Estimate {
    price.net_ns.as_ref().unwrap_or(&price.hand_off_ns)
}

/// Reads the parameter `trees`: how many process trees are measured.
///
/// # Errors
///
/// There are too few for an interval, or absurdly many.
pub fn trees(parameters: &Parameters) -> Result<usize> {
    let trees = parameters.count("trees");
    ensure!(
        (LEAST_TREES as u64..=1000).contains(&trees),
        "trees: {trees} is not between {LEAST_TREES}, which an interval takes, and 1000"
    );
    Ok(usize::try_from(trees)?)
}

/// Whether every arm has blocks of enough trees that count.
fn has_enough_trees(measured: &MeasuredGroup) -> bool {
    let blocks = Blocks::of(measured);
    let arms = 0..measured.group.arms.len();
    let mut estimates = arms.filter_map(|arm| blocks.estimate(ArmOperation::of(arm)));
    estimates.all(|estimate| estimate.covers_trees())
}

/// Two arms that do the same, where a group has them.
pub fn twins(blocks: &Blocks<'_>) -> Option<Contrast> {
    let pair = blocks.group().twins().into_iter().next()?;
    blocks.contrast(pair.without, pair.with)
}

/// Adds a copy of the first arm as its twin: two arms that do the same must come out the same.
pub fn add_twin(group: &mut ArmGroup) {
    let twin = group.arms.first().cloned();
    if let Some(mut twin) = twin {
        twin.role = Role::Twin(0);
        group.add(twin);
    }
}

/// Whether `estimate` lies in the band of a claim.
pub fn is_within(estimate: &Estimate, band: Range<f64>) -> Verdict {
    if !estimate.covers_trees() {
        return Verdict::Undecided(format!(
            "{} measured, too few for an interval",
            text::counted(estimate.trees as u64, "process tree")
        ));
    }
    LabNumber::from(*estimate).is_within(band.start, band.end)
}

/// The verdict on "the second arm costs more than the first", beyond what two equal arms differ by.
pub fn is_larger(contrast: &Contrast, twins: Option<&Contrast>) -> Verdict {
    is_difference_larger(&contrast.ratio, differs(contrast, twins))
}

/// Whether a contrast of a price list shows that its thing costs something.
pub fn adds(contrast: &NamedContrast) -> Verdict {
    is_difference_larger(&contrast.ratio, contrast.verdict)
}

fn is_difference_larger(ratio: &Estimate, difference: cost::Difference) -> Verdict {
    if !ratio.covers_trees() {
        return is_within(ratio, 1.0..f64::INFINITY);
    }
    match difference {
        cost::Difference::Larger => Verdict::Holds,
        cost::Difference::Smaller => Verdict::DoesNotHold,
        cost::Difference::None => {
            Verdict::Undecided("they differ by no more than two arms that do the same".to_owned())
        }
        cost::Difference::Unresolved => {
            Verdict::Undecided("the interval does not tell them apart".to_owned())
        }
    }
}

/// `one` minus `other`, with an interval from their ends alone: wider than that of paired rounds.
pub fn unpaired_difference(one: &Estimate, other: &Estimate) -> Estimate {
    Estimate {
        point: one.point - other.point,
        low: one.low - other.high,
        high: one.high - other.low,
        trees: one.trees.min(other.trees),
        ..*one
    }
}

/// The estimate multiplied by `factor`, to change its unit.
pub fn scaled(estimate: &Estimate, factor: f64) -> Estimate {
    let [one, other] = [estimate.low * factor, estimate.high * factor];
    Estimate {
        point: estimate.point * factor,
        low: one.min(other),
        high: one.max(other),
        ..*estimate
    }
}

/// As a length of time with its interval: `870 ns (862 ns … 881 ns)`.
pub fn time(estimate: &Estimate) -> String {
    words(estimate, text::nanos)
}

fn words(estimate: &Estimate, word: impl Fn(f64) -> String) -> String {
    let [point, low, high] = [estimate.point, estimate.low, estimate.high].map(word);
    format!("{point} ({low} … {high})")
}

/// A value, half the length of its interval, and the ends: four cells of a sheet.
pub fn cells(estimate: Option<&Estimate>) -> [Cell; 4] {
    match estimate {
        None => [const { Cell::Missing }; 4],
        Some(estimate) => [
            estimate.point,
            estimate.interval().half_width(),
            estimate.low,
            estimate.high,
        ]
        .map(Cell::Estimated),
    }
}

/// A value without its interval: one cell of a sheet.
pub fn cell(estimate: Option<&Estimate>) -> Cell {
    estimate.map_or(Cell::Missing, |estimate| Cell::Estimated(estimate.point))
}

/// A point of a curve, with its interval.
pub fn dot(x: f64, estimate: &Estimate) -> Dot {
    Dot {
        x,
        y: estimate.point,
        interval: Some((estimate.low, estimate.high)),
    }
}

/// A point with a name, with its interval.
pub fn named_dot(label: impl Into<String>, series: Option<&str>, estimate: &Estimate) -> NamedDot {
    NamedDot {
        label: label.into(),
        series: series.map(str::to_owned),
        value: estimate.point,
        interval: Some((estimate.low, estimate.high)),
    }
}

/// Where and when it was measured, in one line.
pub fn subtitle() -> String {
    swtch_plot::subtitle(&swtch_host::origin())
}

/// Explains the whiskers; the same sentence for all pictures.
pub const WHISKERS: &str = "Bars: 95 % intervals over fresh process trees.";

/// A fact of this machine; `None` where it cannot be read.
pub fn fact_value(name: &str) -> Option<String> {
    let facts = swtch_host::price_facts();
    facts.into_iter().find(|fact| fact.name == name)?.value
}

/// CPUs that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::all_of;

    fn estimate(low: f64, high: f64) -> Estimate {
        let medians = [low, low, low, high, high, high].map(|median| vec![median]);
        Estimate::of_trees(&medians).unwrap()
    }

    /// The cases that the head of `measured` draws.
    #[test]
    fn an_interval_decides_only_on_one_side_of_the_border() {
        let band = 0.4..0.6;
        let verdict = |low, high| is_within(&estimate(low, high), band.clone());
        assert_eq!(verdict(0.45, 0.5), Verdict::Holds);
        assert_eq!(verdict(0.61, 0.7), Verdict::DoesNotHold);
        assert_eq!(verdict(0.1, 0.39), Verdict::DoesNotHold);
        assert!(matches!(verdict(0.5, 0.7), Verdict::Undecided(_)));
    }

    /// A group that was ended early decides nothing.
    #[test]
    fn two_trees_decide_nothing() {
        let few = Estimate::of_trees(&[vec![0.5; 9], vec![0.5; 9]]).unwrap();
        assert!(
            matches!(is_within(&few, 0.4..0.6), Verdict::Undecided(why) if why.contains("2 process trees"))
        );
    }

    #[test]
    fn a_claim_of_two_parts_fails_with_either() {
        let open = || Verdict::Undecided(String::new());
        assert_eq!(all_of([Verdict::Holds, Verdict::Holds]), Verdict::Holds);
        assert_eq!(all_of([open(), Verdict::DoesNotHold]), Verdict::DoesNotHold);
        assert_eq!(all_of([open(), Verdict::Holds]), open());
    }

    #[test]
    fn a_negative_factor_keeps_the_ends_in_order() {
        let turned = scaled(&estimate(1.0, 2.0), -1.0);
        assert_eq!((turned.low, turned.high), (-2.0, -1.0));
    }

    /// The low end is the least that the one may be, less the most that the other may be.
    #[test]
    fn an_unpaired_difference_is_as_wide_as_both_intervals() {
        let difference = unpaired_difference(&estimate(10.0, 14.0), &estimate(3.0, 5.0));
        assert_eq!((difference.low, difference.high), (5.0, 11.0));
    }
}

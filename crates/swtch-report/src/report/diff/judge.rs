//! From the figures of runs to what changed: which figures are compared, and how sure each is.

use std::collections::BTreeSet;

use swtch_core::Distribution;
use swtch_core::compare::{
    BlockSeries, CompareMethod, FigureChange, FigureValues, SideValues, WithinRun, compare,
};

use super::figure::{AmountKey, FigureKey, FigureUnit, WaitKey};
use super::measure::MeasuredRun;

/// The fewest events in a run (on average, of the side that has more) for a figure to be judged.
/// Counts of fewer vary by a quarter from chance alone.
pub const LEAST_EVENTS: u64 = 20;

/// The fewest waits in each run for their 99th percentile: five of them lie above it.
const LEAST_FOR_P99: u64 = 500;

/// Pairs of programs, and places of waits, that are compared: the largest of each. Every further
/// figure makes all others less sure.
const MOST_OF_A_KIND: usize = 5;

/// Percentiles of waits that are compared.
const PERCENTILES: [u8; 2] = [50, 99];

/// Lengths are kept within this part of themselves ([`Distribution`]).
const RESOLUTION: f64 = 0.01;

/// Two runs of one program seldom agree better than this. A single pair does not tell how well they
/// do, so it claims no smaller change.
pub const LEAST_OF_A_PAIR: f64 = 0.05;

/// The unit by which amounts are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// The time that was recorded: for servers, whose runs end when the recording does.
    Second,
    /// Nothing: for runs that do the same work, however long that takes.
    Run,
    /// The turns of all that was recorded: for servers under another load.
    Turn,
    /// The spans of one kind, which were recorded on request: as turns, and not inferred.
    Span,
}

impl Per {
    /// All units of a comparison, in the order in which help names them.
    pub const ALL: [Self; 4] = [Self::Second, Self::Run, Self::Turn, Self::Span];

    /// The word on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Run => "run",
            Self::Turn => "turn",
            Self::Span => "span",
        }
    }

    /// The variant with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|per| per.as_str() == word)
    }
}

/// The verdict on one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureVerdict {
    /// It surely changed, in the direction that is worse.
    Worse,
    /// It surely changed, in the direction that is better.
    Better,
    /// It surely rose, which is neither.
    More,
    /// It surely fell, which is neither.
    Less,
    /// It may be the same.
    NotSure,
    /// It was not judged.
    NotJudged,
}

impl FigureVerdict {
    /// The word in columns.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Better => "better",
            Self::More => "more",
            Self::Less => "less",
            Self::NotSure => "no sure change",
            Self::NotJudged => "not judged",
        }
    }

    /// Returns true if a change is claimed.
    pub const fn is_change(self) -> bool {
        matches!(self, Self::Worse | Self::Better | Self::More | Self::Less)
    }
}

/// The reason why a figure was not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotJudgedReason {
    /// Too few events.
    Rare,
    /// One run on each side, and this figure has one value in each.
    OneValue,
    /// One run on each side, too short to be divided into blocks.
    Short,
}

impl NotJudgedReason {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rare => "too rare to judge",
            Self::OneValue => "a single value on each side has no noise to compare with",
            Self::Short => "the runs are too short to be judged alone",
        }
    }
}

/// One figure, compared.
#[derive(Clone, Debug)]
pub struct JudgedFigure {
    /// The figure that was compared.
    pub key: FigureKey,
    /// Its value in each run of A; empty where a run has none.
    pub a: Vec<f64>,
    /// Its value in each run of B.
    pub b: Vec<f64>,
    /// The change, or the reason why it was not judged.
    pub change: Result<FigureChange, NotJudgedReason>,
}

impl JudgedFigure {
    /// Returns the verdict on it.
    pub fn verdict(&self) -> FigureVerdict {
        let Ok(change) = &self.change else {
            return FigureVerdict::NotJudged;
        };
        match (
            change.is_sure(),
            self.key.is_worse_if_more(),
            change.is_rise(),
        ) {
            (false, _, _) => FigureVerdict::NotSure,
            (true, true, true) => FigureVerdict::Worse,
            (true, true, false) => FigureVerdict::Better,
            (true, false, true) => FigureVerdict::More,
            (true, false, false) => FigureVerdict::Less,
        }
    }

    /// Mean of A and of B, as they are shown.
    pub fn means(&self) -> [Option<f64>; 2] {
        match &self.change {
            Ok(change) => [Some(change.a), Some(change.b)],
            Err(_) => [&self.a, &self.b].map(|runs| mean(runs)),
        }
    }

    /// The change in percent of A; `None` if A is 0 or the figure was not judged.
    pub fn change_pct(&self) -> Option<f64> {
        Some((self.change.ok()?.ratio? - 1.0) * 100.0)
    }

    /// The ends of its interval.
    pub fn interval_pct(&self) -> Option<[f64; 2]> {
        let interval = self.change.ok()?.interval?;
        Some([interval.low, interval.high].map(|end| (end - 1.0) * 100.0))
    }

    /// Half the length of its interval.
    fn half_width_pct(&self) -> Option<f64> {
        let [low, high] = self.interval_pct()?;
        Some((high - low) / 2.0)
    }

    /// Returns true if it is surely worse, by more than `limit_pct`. A figure that was 0 in every run of A is worse by
    /// more than any limit.
    pub fn is_regression(&self, limit_pct: f64) -> bool {
        self.verdict() == FigureVerdict::Worse
            && self.change_pct().is_none_or(|change| change > limit_pct)
    }

    /// Returns the size of the change, by which rows are ordered.
    fn size(&self) -> f64 {
        let ratio = self.change.ok().and_then(|change| change.ratio);
        ratio.map_or(f64::INFINITY, |ratio| ratio.max(1e-300).ln().abs())
    }
}

/// All figures of a comparison.
#[derive(Debug)]
pub struct Judgement {
    /// The figures that surely changed, the largest change first; then those that did not; then those
    /// that were not judged.
    pub figures: Vec<JudgedFigure>,
    /// The method by which runs were compared.
    pub method: CompareMethod,
    /// Pairs of programs that are smaller than those compared.
    pub further_pairs: usize,
    /// Places of waits that are smaller than those compared.
    pub further_stacks: usize,
}

impl Judgement {
    /// Compares the runs of A with those of B.
    pub fn of(a: &[MeasuredRun], b: &[MeasuredRun], per: Per) -> Self {
        let method = CompareMethod::of_runs(a.len(), b.len());
        let (mut keys, further_pairs, further_stacks) = keys(a, b);
        if matches!(per, Per::Turn | Per::Span) {
            keys.retain(|key| !key.follows_from_load());
        }
        let mut figures = Vec::new();
        let mut values = Vec::new();
        for key in keys {
            let [of_a, of_b] = [a, b].map(|runs| SideFigure::of(runs, &key, per, method));
            let change = if is_rare(&key, &of_a, &of_b) {
                Err(NotJudgedReason::Rare)
            } else {
                values.push(figure_values(&key, &of_a, &of_b, per, method));
                // Replaced below by the change, where it could be told.
                Err(match key {
                    FigureKey::Length => NotJudgedReason::OneValue,
                    _ => NotJudgedReason::Short,
                })
            };
            figures.push(JudgedFigure {
                key,
                a: of_a.values.runs,
                b: of_b.values.runs,
                change,
            });
        }
        let mut changes = compare(&values).into_iter();
        let asked = figures.iter_mut();
        for figure in asked.filter(|figure| figure.change != Err(NotJudgedReason::Rare)) {
            if let Some(change) = changes.next().flatten() {
                figure.change = Ok(change);
            }
        }
        figures.sort_by(|a, b| {
            let rank = |figure: &JudgedFigure| match figure.verdict() {
                FigureVerdict::NotJudged => 2,
                FigureVerdict::NotSure => 1,
                _ => 0,
            };
            let by_rank = rank(a).cmp(&rank(b));
            by_rank
                .then(b.size().total_cmp(&a.size()))
                .then_with(|| a.key.cmp(&b.key))
        });
        Self {
            figures,
            method,
            further_pairs,
            further_stacks,
        }
    }

    /// Figures with this verdict.
    pub fn with(&self, verdict: FigureVerdict) -> impl Iterator<Item = &JudgedFigure> {
        let figures = self.figures.iter();
        figures.filter(move |figure| figure.verdict() == verdict)
    }

    /// Figures that surely changed.
    pub fn changed(&self) -> impl Iterator<Item = &JudgedFigure> {
        let figures = self.figures.iter();
        figures.filter(|figure| figure.verdict().is_change())
    }

    /// Number of figures that were judged together.
    pub fn judged(&self) -> usize {
        let figures = self.figures.iter();
        figures.filter(|figure| figure.change.is_ok()).count()
    }

    /// Figures that are worse by more than `limit_pct`.
    pub fn regressions(&self, limit_pct: f64) -> Vec<&JudgedFigure> {
        let figures = self.figures.iter();
        figures
            .filter(|figure| figure.is_regression(limit_pct))
            .collect()
    }

    /// The changes in percent that could hide in the steadiest quarter of the figures without a sure
    /// change, and in the steadier half. `None` if there is none.
    pub fn hidden_pct(&self) -> Option<[f64; 2]> {
        let unsure = self.with(FigureVerdict::NotSure);
        let halves: Vec<f64> = unsure.filter_map(JudgedFigure::half_width_pct).collect();
        let most = |share| swtch_core::stats::quantile(&halves, share);
        Some([most(0.25)?, most(0.5)?])
    }
}

/// A figure in the runs of one side.
#[derive(Debug)]
struct SideFigure {
    values: SideValues,
    /// Events in each run.
    events: Vec<u64>,
    /// Runs that have no value.
    missing: usize,
    mean_seconds: f64,
    mean_units: f64,
}

impl SideFigure {
    fn of(runs: &[MeasuredRun], key: &FigureKey, per: Per, method: CompareMethod) -> Self {
        let measured: Vec<_> = runs.iter().map(|run| value(run, key, per)).collect();
        let known = measured.iter().flatten();
        let within = match (method, runs) {
            (CompareMethod::Blocks, [run]) => within(run, key, per),
            _ => None,
        };
        let seconds: f64 = runs.iter().map(MeasuredRun::seconds).sum();
        let units: f64 = runs.iter().map(MeasuredRun::all_units).sum();
        Self {
            values: SideValues {
                runs: known.clone().map(|(value, _)| *value).collect(),
                within,
            },
            events: known.map(|(_, events)| *events).collect(),
            missing: measured.iter().filter(|one| one.is_none()).count(),
            mean_seconds: seconds / runs.len().max(1) as f64,
            mean_units: units / runs.len().max(1) as f64,
        }
    }

    /// Events of a run on average.
    fn mean_events(&self) -> u64 {
        let runs = u64::try_from(self.events.len()).unwrap_or(u64::MAX).max(1);
        self.events.iter().sum::<u64>() / runs
    }

    fn fewest_events(&self) -> u64 {
        self.events.iter().copied().min().unwrap_or(0)
    }
}

/// The figure of a run, and the events that it rests on; `None` if the run has none.
fn value(run: &MeasuredRun, key: &FigureKey, per: Per) -> Option<(f64, u64)> {
    match key {
        FigureKey::Length => Some((run.length.as_ns() as f64, LEAST_EVENTS)),
        FigureKey::Amount(amount) => {
            let measured = run.amounts.get(amount);
            let total = measured.map_or(0.0, |amount| amount.total());
            let events = measured.map_or(0, |amount| amount.events);
            Some((total / divisor(run, per), events))
        }
        FigureKey::Percentile(wait, percent) => {
            let all = together(run.lengths.get(wait)?);
            let length = all.percentile(f64::from(*percent))?;
            Some((length.as_ns() as f64, all.count()))
        }
    }
}

fn within(run: &MeasuredRun, key: &FigureKey, per: Per) -> Option<WithinRun> {
    let series = match key {
        FigureKey::Length => return None,
        FigureKey::Amount(amount) => {
            let measured = run.amounts.get(amount);
            let sums = measured.map_or_else(|| vec![0.0; run.blocks], |one| one.blocks.clone());
            BlockSeries::Sums(match per {
                Per::Second | Per::Run => sums,
                Per::Turn | Per::Span => at_equal_units(&sums, &run.units),
            })
        }
        FigureKey::Percentile(wait, percent) => {
            let blocks = run.lengths.get(wait)?.iter();
            let blocks = blocks.map(|block| {
                let recorded = block.recorded();
                recorded
                    .map(|(length, count)| (length.as_ns(), count))
                    .collect()
            });
            BlockSeries::Percentile(f64::from(*percent), blocks.collect())
        }
    };
    WithinRun::of(&series, value(run, key, per)?.0)
}

/// The amounts of blocks as they would be if each had as many units: load alone is no noise then.
fn at_equal_units(sums: &[f64], units: &[f64]) -> Vec<f64> {
    let mean = units.iter().sum::<f64>() / units.len().max(1) as f64;
    let blocks = sums.iter().zip(units);
    let equal = blocks.map(|(sum, units)| {
        if *units > 0.0 {
            sum * mean / units
        } else {
            *sum
        }
    });
    equal.collect()
}

fn figure_values(
    key: &FigureKey,
    a: &SideFigure,
    b: &SideFigure,
    per: Per,
    method: CompareMethod,
) -> FigureValues {
    let is_count = key.unit() == FigureUnit::Events;
    let resolution = match (method, key) {
        (CompareMethod::Blocks, _) => LEAST_OF_A_PAIR,
        (_, FigureKey::Percentile(..)) => RESOLUTION,
        _ => 0.0,
    };
    let step = match per {
        Per::Run => 1.0,
        Per::Second => 2.0 / (a.mean_seconds + b.mean_seconds),
        Per::Turn | Per::Span => 2.0 / (a.mean_units + b.mean_units).max(1.0),
    };
    FigureValues {
        a: a.values.clone(),
        b: b.values.clone(),
        step: if is_count { step } else { 0.0 },
        resolution,
    }
}

/// Amounts need events on one side at least: what appears or disappears is a change. Percentiles
/// need enough waits in every run.
fn is_rare(key: &FigureKey, a: &SideFigure, b: &SideFigure) -> bool {
    match key {
        FigureKey::Length => false,
        FigureKey::Amount(_) => a.mean_events().max(b.mean_events()) < LEAST_EVENTS,
        FigureKey::Percentile(_, percent) => {
            let least = match percent {
                99.. => LEAST_FOR_P99,
                _ => LEAST_EVENTS,
            };
            a.missing + b.missing > 0 || a.fewest_events().min(b.fewest_events()) < least
        }
    }
}

/// The figures to compare, and how many smaller pairs and stacks there are besides.
fn keys(a: &[MeasuredRun], b: &[MeasuredRun]) -> (Vec<FigureKey>, usize, usize) {
    let runs = || a.iter().chain(b);
    let mut keys = Vec::new();
    // A recording of something else than a command is as long as it was asked to be.
    if runs().all(|run| !run.meta.command.is_empty()) {
        keys.push(FigureKey::Length);
    }
    let amounts: BTreeSet<_> = runs().flat_map(|run| run.amounts.keys()).collect();
    let (pairs, others): (Vec<_>, Vec<_>) = amounts
        .into_iter()
        .partition(|key| matches!(key, AmountKey::Pair { .. }));
    let (stacks, others): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|key| matches!(key, AmountKey::Stack(_)));
    let (pairs, further_pairs) = largest(a, b, pairs);
    // A stack that was taken on one side only is no change of the program.
    let have_stacks = runs().all(|run| run.meta.stacks.is_some());
    let (stacks, further_stacks) = largest(a, b, if have_stacks { stacks } else { Vec::new() });
    for amount in others.into_iter().chain(pairs).chain(stacks) {
        keys.push(FigureKey::Amount(amount.clone()));
    }
    let waits: BTreeSet<&WaitKey> = runs().flat_map(|run| run.lengths.keys()).collect();
    for wait in waits {
        keys.extend(PERCENTILES.map(|percent| FigureKey::Percentile(wait.clone(), percent)));
    }
    (keys, further_pairs, further_stacks)
}

/// The largest of these amounts, by the sum of both sides' means: which of them changed plays no
/// part in the choice.
fn largest<'k>(
    a: &[MeasuredRun],
    b: &[MeasuredRun],
    mut keys: Vec<&'k AmountKey>,
) -> (Vec<&'k AmountKey>, usize) {
    let mean_of = |runs: &[MeasuredRun], key: &AmountKey| {
        let amounts = runs.iter().filter_map(|run| run.amounts.get(key));
        amounts.map(|amount| amount.total()).sum::<f64>() / runs.len().max(1) as f64
    };
    let size = |key: &AmountKey| mean_of(a, key) + mean_of(b, key);
    keys.sort_by(|left, right| size(right).total_cmp(&size(left)).then(left.cmp(right)));
    let further = keys.len().saturating_sub(MOST_OF_A_KIND);
    keys.truncate(MOST_OF_A_KIND);
    (keys, further)
}

fn together(blocks: &[Distribution]) -> Distribution {
    let mut all = Distribution::default();
    blocks.iter().for_each(|block| all.merge(block));
    all
}

fn divisor(run: &MeasuredRun, per: Per) -> f64 {
    match per {
        Per::Second => run.seconds(),
        Per::Run => 1.0,
        Per::Turn | Per::Span => run.all_units(),
    }
}

/// The run whose switches are nearest to the median of its side; the first of several that are.
/// `None` if there is no run.
pub fn typical(runs: &[MeasuredRun], per: Per) -> Option<&MeasuredRun> {
    let switches = FigureKey::Amount(AmountKey::Switches(None));
    let counts = runs.iter().map(|run| match value(run, &switches, per) {
        Some((count, _)) => count,
        None => 0.0,
    });
    let counts: Vec<f64> = counts.collect();
    runs.get(nearest_to_median(&counts)?)
}

/// The place of the value that is nearest to the median; `None` if there is no value.
fn nearest_to_median(values: &[f64]) -> Option<usize> {
    let median = swtch_core::stats::quantile(values, 0.5)?;
    let distance = |place: &usize| (values[*place] - median).abs();
    (0..values.len()).min_by(|one, other| distance(one).total_cmp(&distance(other)))
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that something disturbed would stand for a side that was not.
    #[test]
    fn the_typical_run_is_nearest_to_the_median() {
        assert_eq!(nearest_to_median(&[90.0, 10.0, 11.0, 12.0, 14.0]), Some(3));
        assert_eq!(nearest_to_median(&[7.0]), Some(0));
        assert_eq!(nearest_to_median(&[]), None);
    }

    #[test]
    fn of_two_runs_the_first_is_shown() {
        assert_eq!(nearest_to_median(&[4.0, 8.0]), Some(0));
    }
}

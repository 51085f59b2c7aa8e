//! `swtch lab mutex`: preemptions follow run time, lock waits follow contention (claims C1 to C7).
//!
//! ```text
//!  no lock      ▓▓▓▓▓▓▓▓▓▓▓│▓▓▓▓▓▓▓▓▓▓▓▓▓▓│▓▓▓▓▓▓     │ preempted, at some rate per second
//!  everything   ▓▓▓·····▓▓▓·····▓▓▓│▓▓▓·····▓▓▓      · waits for the lock, when it is contended
//! ```
//!
//! `tally` sums the plays of a variant, `preemptors` names the tasks that took the CPU. Members
//! that preempt each other (more threads than CPUs) are counted apart: their turns are no
//! preemptions by others. So is the recorder, which wakes up to read its events and would not be
//! there otherwise.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use swtch_core::Nanos;
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Content, Dots, Measure, NamedDot, Scale};
use swtch_report::report::{Cell, Sheet};

use super::context::{ExperimentContext, RecordingChoice};
use super::findings::{Findings, FindingsTable};
use super::load_experiment::LoadExperiment;
use super::measured::{LabNumber, rate_in_words};
use super::parameters::{ParameterValue, Parameters};
use super::quantities::Quantities;
use preemptors::PreemptionsByName;
use swtch_core::stats::{EventRate, events_per};
use tally::PlayTally;

mod preemptors;
mod tally;

/// The file of the experiment.
pub const FILE: &str = include_str!("../experiments/mutex.toml");

/// Most threads by default: as many as in the article.
const MAX_THREADS: usize = 4;

/// A variant of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MutexVariant {
    NoLock,
    FirstLoop,
    Everything,
    Counter,
    Heavier,
    Lighter,
    OneLoop,
    FourLoops,
}

/// The variants and their names, in the order of the file.
const VARIANTS: [(MutexVariant, &str); 8] = [
    (MutexVariant::NoLock, "no-lock"),
    (MutexVariant::FirstLoop, "first-loop"),
    (MutexVariant::Everything, "everything"),
    (MutexVariant::Counter, "counter"),
    (MutexVariant::Heavier, "heavier"),
    (MutexVariant::Lighter, "lighter"),
    (MutexVariant::OneLoop, "one-loop"),
    (MutexVariant::FourLoops, "four-loops"),
];

/// The variants without a lock.
const VARIANTS_WITHOUT_LOCK: [MutexVariant; 5] = [
    MutexVariant::NoLock,
    MutexVariant::Heavier,
    MutexVariant::Lighter,
    MutexVariant::OneLoop,
    MutexVariant::FourLoops,
];

impl fmt::Display for MutexVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = VARIANTS.iter().find(|(variant, _)| variant == self);
        f.pad(name.expect("invariant: all of them are listed").1)
    }
}

/// The sums over all plays of each variant.
struct Tallies {
    by_variant: BTreeMap<MutexVariant, PlayTally>,
    why_unrecorded: Option<String>,
}

/// Runs the experiment.
///
/// # Errors
/// A load cannot be played.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let mut experiment = LoadExperiment::open("mutex", FILE, parameters, context)?;
    let threads = match parameters.count("threads") {
        0 => experiment.cpus()?.min(MAX_THREADS) as u64,
        threads => threads,
    };
    let changed = [("threads", ParameterValue::Count(threads))];
    let variants = VARIANTS.map(|(variant, _)| variant);
    let rounds =
        experiment.rounds(
            &variants,
            parameters.count("rounds"),
            |experiment, variant| {
                let result =
                    experiment.play(&variant.to_string(), &changed, RecordingChoice::Wanted)?;
                Ok(result
                    .map(|result| PlayTally::of(&result.played.members, result.evidence.as_ref())))
            },
        )?;
    let by_variant = variants.iter().enumerate().filter_map(|(index, variant)| {
        let sum = rounds.of(index).cloned().reduce(PlayTally::plus)?;
        Some((*variant, sum))
    });
    let tallies = Tallies {
        by_variant: by_variant.collect(),
        why_unrecorded: experiment.why_unrecorded().map(str::to_owned),
    };
    let mut findings = tallies.findings(&experiment.subtitle());
    experiment.close(&mut findings);
    Ok(findings)
}

/// The time that a rate refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateBase {
    /// From a thread's begin to its end.
    LifeSecond,
    /// The CPU time that it used.
    CpuSecond,
}

impl Tallies {
    fn findings(&self, subtitle: &str) -> Findings {
        let mut findings = Findings {
            tables: vec![self.table()],
            answers: self.quantities().answers("mutex"),
            ..Findings::default()
        };
        if self.why_unrecorded.is_none() {
            let preemptors = self.preemptors();
            findings.tables.push(preemptors.table());
            findings.tables.push(self.table_of_starts());
            findings.sentences.extend(preemptors.sentence());
        } else {
            findings.notes.push(
                "without a recording, preemptions are the kernel's count of involuntary switches, and \
                 synchronization that of voluntary ones"
                    .to_owned(),
            );
        }
        findings.pictures.push(self.picture(subtitle));
        findings
    }

    /// The preemptors of all variants together, as they do not depend on what a thread does.
    fn preemptors(&self) -> PreemptionsByName {
        let tallies = self.by_variant.values();
        let all = tallies.map(|tally| tally.preemptors.clone());
        all.reduce(PreemptionsByName::plus).unwrap_or_default()
    }

    /// One rate over another.
    fn over(
        &self,
        one: MutexVariant,
        other: MutexVariant,
        rate: fn(&PlayTally) -> EventRate,
    ) -> Option<LabNumber> {
        let of = |variant| self.by_variant.get(&variant).map(rate);
        LabNumber::of_counts(of(one)?.over(&of(other)?))
    }

    /// The rates of these variants, in words.
    fn rates(&self, variants: &[MutexVariant], rate: fn(&PlayTally) -> EventRate) -> String {
        let tallies = variants.iter().filter_map(|variant| {
            let rate = rate(self.by_variant.get(variant)?);
            Some(format!("{variant} {}", rate_in_words(&rate)))
        });
        tallies.collect::<Vec<_>>().join(", ")
    }

    fn quantities(&self) -> Quantities {
        use MutexVariant::{Counter, Everything, FirstLoop, Heavier, Lighter, NoLock};
        let per_life = |tally: &PlayTally| tally.preemptions(RateBase::LifeSecond);
        let per_cpu = |tally: &PlayTally| tally.preemptions(RateBase::CpuSecond);
        let mut all = Quantities::of_loads();
        all.words("cpu-rates", self.rates(&VARIANTS_WITHOUT_LOCK, per_cpu));
        let others = VARIANTS_WITHOUT_LOCK[1..].iter();
        let others = others.map(|one| (String::new(), self.over(*one, NoLock, per_cpu)));
        all.list("without-lock", others);
        let per_thread = PlayTally::preemptions_per_thread;
        all.number("heavier", self.over(Heavier, Lighter, per_thread));
        all.number("heavier-rate", self.over(Heavier, Lighter, per_cpu));
        let of = |variant| self.by_variant.get(&variant);
        let cpu = |variant| of(variant).map_or(0.0, PlayTally::cpu_per_thread);
        all.words("longer", format!("{:.2}", cpu(Heavier) / cpu(Lighter)));
        let everything = self.rates(&[Everything, NoLock], per_life);
        all.words("everything-rates", everything);
        all.words("counter-rates", self.rates(&[Counter, NoLock], per_life));
        all.number("everything", self.over(Everything, NoLock, per_life));
        all.number("counter", self.over(Counter, NoLock, per_life));
        all.words(
            "waits",
            self.rates(&[NoLock, Counter, FirstLoop, Everything], PlayTally::waits),
        );
        let steps = [(Counter, FirstLoop), (FirstLoop, Everything)];
        let steps =
            steps.map(|(few, more)| (String::new(), self.over(more, few, PlayTally::waits)));
        all.list("growth", steps);
        self.add_starts(&mut all);
        self.preemptors().add_to(&mut all);
        if let Some(why) = &self.why_unrecorded {
            for claim in ["C2", "C7"] {
                let ours = "the kernel's counters name nobody";
                all.cannot(claim, ours, format!("nothing was recorded: {why}"));
            }
        }
        all
    }

    /// How often, and why, the CPU is taken from a thread before it begins its work.
    fn add_starts(&self, all: &mut Quantities) {
        let threads: usize = self
            .by_variant
            .values()
            .map(|tally| tally.starts.len())
            .sum();
        let reasons = self.start_reasons();
        let taken = events_per(reasons.values().sum(), threads as u64);
        all.number("starts", LabNumber::of_counts(taken));
        all.words("threads", threads);
        let words = reasons
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"));
        let words: Vec<String> = words.collect();
        all.words(
            "start-reasons",
            match words.is_empty() {
                true => "never".to_owned(),
                false => words.join(", "),
            },
        );
    }

    fn start_reasons(&self) -> BTreeMap<&'static str, u64> {
        let mut reasons = BTreeMap::new();
        for (reason, count) in self
            .by_variant
            .values()
            .flat_map(|tally| &tally.start_reasons)
        {
            *reasons.entry(reason.as_str()).or_default() += count;
        }
        reasons
    }

    fn table(&self) -> FindingsTable {
        let mut sheet = Sheet::new("variants", &COLUMNS);
        for (variant, tally) in &self.by_variant {
            let rate = |rate: EventRate| rate.per_second().map_or(Cell::Missing, Cell::Ratio);
            sheet.rows.push(vec![
                Cell::text(variant.to_string()),
                Cell::time(tally.took().map(|took| Nanos::from_rounded(took.point))),
                Cell::Time(Nanos::from_rounded(tally.cpu_per_thread() * 1e9)),
                Cell::Ratio(tally.preemptions_per_thread().per_second().unwrap_or(0.0)),
                rate(tally.preemptions(RateBase::CpuSecond)),
                rate(tally.preemptions(RateBase::LifeSecond)),
                rate(tally.waits()),
                Cell::Count(tally.by_members),
                Cell::Count(tally.by_recorder),
                Cell::Count(tally.threads),
            ]);
        }
        FindingsTable::new(
            "preemptions and waits for the lock, by variant, all rounds together",
            sheet,
        )
    }

    fn table_of_starts(&self) -> FindingsTable {
        let mut sheet = Sheet::new("starts", &["reason", "switches", "per_thread"]);
        let threads: usize = self
            .by_variant
            .values()
            .map(|tally| tally.starts.len())
            .sum();
        for (reason, count) in self.start_reasons() {
            sheet.rows.push(vec![
                Cell::text(reason),
                Cell::Count(count),
                Cell::Ratio(count as f64 / threads as f64),
            ]);
        }
        FindingsTable::new("preemptions of a thread before it begins its work", sheet)
    }

    fn picture(&self, subtitle: &str) -> Picture {
        let rows = self.by_variant.iter().flat_map(|(variant, tally)| {
            let series = [
                ("preemptions", tally.preemptions(RateBase::LifeSecond)),
                ("waits for the lock", tally.waits()),
            ];
            series.into_iter().filter_map(move |(name, rate)| {
                Some(NamedDot {
                    label: variant.to_string(),
                    series: Some(name.to_owned()),
                    value: rate.per_second().filter(|_| rate.count > 0)?,
                    interval: None,
                })
            })
        });
        Picture {
            name: "mutex".to_owned(),
            title: "Switches of a thread, by what it does".to_owned(),
            subtitle: subtitle.to_owned(),
            explanation:
                "a point: all switches of the variant over all seconds of its threads' lives; none \
                          is not drawn"
                    .to_owned(),
            notes: Vec::new(),
            content: Content::Dots(Dots {
                axis: Axis::new(
                    "switches per second of a thread's life",
                    Measure::Plain,
                    Scale::Logarithmic,
                ),
                rows: rows.collect(),
            }),
        }
    }
}

const COLUMNS: [&str; 10] = [
    "variant",
    "took_ns",
    "cpu_per_thread_ns",
    "preemptions_per_thread",
    "per_cpu_s",
    "per_life_s",
    "lock_waits_per_life_s",
    "by_each_other",
    "by_recorder",
    "threads",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;

    /// A tally with these preemptions, waits, seconds of life and seconds of CPU time.
    fn tally(preemptions: u64, waits: u64, life_s: f64, cpu_s: f64) -> PlayTally {
        PlayTally {
            threads: 2,
            life_s,
            cpu_s,
            preemptions,
            waits,
            ..PlayTally::default()
        }
    }

    fn tallies(by_variant: &[(MutexVariant, PlayTally)]) -> Tallies {
        Tallies {
            by_variant: by_variant.iter().cloned().collect(),
            why_unrecorded: None,
        }
    }

    #[test]
    fn a_serialised_program_waits_more_and_is_preempted_less() {
        let all = tallies(&[
            (MutexVariant::NoLock, tally(1000, 0, 100.0, 100.0)),
            (MutexVariant::Counter, tally(990, 50, 100.0, 99.0)),
            (MutexVariant::FirstLoop, tally(800, 5_000, 100.0, 80.0)),
            (MutexVariant::Everything, tally(500, 90_000, 100.0, 50.0)),
        ]);
        for answer in ["C4", "C5", "C6"].map(|claim| all.quantities().answer(claim)) {
            assert_eq!(answer.verdict, Verdict::Holds, "{answer:?}");
        }
    }

    #[test]
    fn a_handful_of_preemptions_says_little() {
        let all = tallies(&[
            (MutexVariant::NoLock, tally(4, 0, 1.0, 1.0)),
            (MutexVariant::Everything, tally(2, 9_000, 1.0, 0.5)),
        ]);
        assert!(matches!(
            all.quantities().answer("C4").verdict,
            Verdict::Undecided(_)
        ));
    }

    #[test]
    fn what_was_stopped_before_is_not_judged() {
        let none = tallies(&[]);
        for answer in ["C1", "C3", "C4", "C6"].map(|claim| none.quantities().answer(claim)) {
            assert!(
                matches!(answer.verdict, Verdict::CannotBeTested(_)),
                "{answer:?}"
            );
        }
    }
}

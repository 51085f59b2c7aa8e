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

use super::claim::{Answer, Verdict, all_of};
use super::context::{ExperimentContext, RecordingChoice};
use super::findings::{Findings, FindingsTable};
use super::load_experiment::LoadExperiment;
use super::measured::{LabNumber, STOPPED, cannot_be_tested, rate_in_words};
use super::parameters::{ParameterValue, Parameters};
use preemptors::PreemptionsByName;
use swtch_core::stats::{EventRate, events_per};
use tally::PlayTally;

mod preemptors;
mod tally;

/// The file of the experiment.
pub const FILE: &str = include_str!("../experiments/mutex.toml");

/// Most threads by default: as many as in the article.
const MAX_THREADS: usize = 4;

/// Rates are alike when neither is more than this many times the other. In the article they lie
/// between 0.8 and 1.3 preemptions a second.
const ALIKE: f64 = 2.0;

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

/// The other variants without a lock, beside the first.
const WITHOUT_LOCK: [MutexVariant; 4] = [
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
            answers: vec![
                self.c1(),
                self.c2(),
                self.c3(),
                self.c4(),
                self.c5(),
                self.c6(),
                self.c7(),
            ],
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

    fn preemptions(&self, variant: MutexVariant, per: RateBase) -> Option<EventRate> {
        Some(self.by_variant.get(&variant)?.preemptions(per))
    }

    fn waits(&self, variant: MutexVariant) -> Option<EventRate> {
        Some(self.by_variant.get(&variant)?.waits())
    }

    /// One rate of preemptions over another.
    fn over(&self, variant: MutexVariant, other: MutexVariant, per: RateBase) -> Option<LabNumber> {
        let (one, other) = (
            self.preemptions(variant, per)?,
            self.preemptions(other, per)?,
        );
        LabNumber::of_counts(one.over(&other))
    }

    fn c1(&self) -> Answer {
        let rates = [MutexVariant::NoLock]
            .into_iter()
            .chain(WITHOUT_LOCK)
            .filter_map(|variant| {
                let rate = self.preemptions(variant, RateBase::CpuSecond)?;
                Some(format!("{variant} {}", rate_in_words(&rate)))
            });
        let rates: Vec<String> = rates.collect();
        let ratios = WITHOUT_LOCK
            .into_iter()
            .filter_map(|variant| self.over(variant, MutexVariant::NoLock, RateBase::CpuSecond));
        let ratios: Vec<LabNumber> = ratios.collect();
        let words: Vec<String> = ratios.iter().map(LabNumber::ratio).collect();
        let verdicts = ratios
            .iter()
            .map(|ratio| ratio.is_within(1.0 / ALIKE, ALIKE));
        self.answer(
            "C1",
            format!(
                "preemptions per second of CPU time: {}; the others over no-lock: {}",
                rates.join(", "),
                words.join(", ")
            ),
            verdicts.collect(),
        )
    }

    /// C2: how often, and why, the CPU is taken from a thread before it begins its work.
    fn c2(&self) -> Answer {
        if let Some(answer) = self.answer_without_recording("C2") {
            return answer;
        }
        let tallies = || self.by_variant.values();
        let threads: u64 = tallies().map(|tally| tally.starts.len() as u64).sum();
        let reasons = self.start_reasons();
        let Some(measured) = LabNumber::of_counts(events_per(reasons.values().sum(), threads))
        else {
            return self.answer("C2", String::new(), Vec::new());
        };
        let words: Vec<String> = reasons
            .iter()
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        self.answer(
            "C2",
            format!(
                "before it begins its work the CPU is taken from a thread {} times on average ({threads} \
                 threads): {}; migrate is the move to the CPU that it is pinned to, which who starts there \
                 is spared",
                measured.ratio(),
                match words.is_empty() {
                    true => "never".to_owned(),
                    false => words.join(", "),
                }
            ),
            vec![measured.is_within(0.5, 1.5)],
        )
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

    fn c3(&self) -> Answer {
        let per_thread = |variant| Some(self.by_variant.get(&variant)?.preemptions_per_thread());
        let more = per_thread(MutexVariant::Heavier)
            .zip(per_thread(MutexVariant::Lighter))
            .and_then(|(heavier, lighter)| LabNumber::of_counts(heavier.over(&lighter)));
        let rates = self.over(
            MutexVariant::Heavier,
            MutexVariant::Lighter,
            RateBase::CpuSecond,
        );
        let longer = self
            .by_variant
            .get(&MutexVariant::Heavier)
            .zip(self.by_variant.get(&MutexVariant::Lighter));
        let (Some(more), Some(rates), Some((heavier, lighter))) = (more, rates, longer) else {
            return self.answer("C3", String::new(), Vec::new());
        };
        self.answer(
            "C3",
            format!(
                "heavier over lighter: {:.2} times the CPU time, {} times the preemptions of a thread, {} \
                 times as many per second",
                heavier.cpu_per_thread() / lighter.cpu_per_thread(),
                more.ratio(),
                rates.ratio()
            ),
            vec![
                more.is_within(1.0, f64::INFINITY),
                rates.is_within(1.0 / ALIKE, ALIKE),
            ],
        )
    }

    fn c4(&self) -> Answer {
        let ratio = self.over(
            MutexVariant::Everything,
            MutexVariant::NoLock,
            RateBase::LifeSecond,
        );
        let words = self.side_by_side(MutexVariant::Everything, MutexVariant::NoLock, ratio);
        let verdicts = ratio.map(|ratio| ratio.is_within(0.0, 1.0));
        self.answer("C4", words, verdicts.into_iter().collect())
    }

    fn c5(&self) -> Answer {
        let ratio = self.over(
            MutexVariant::Counter,
            MutexVariant::NoLock,
            RateBase::LifeSecond,
        );
        let words = self.side_by_side(MutexVariant::Counter, MutexVariant::NoLock, ratio);
        let verdicts = ratio.map(|ratio| ratio.is_within(1.0 / ALIKE, ALIKE));
        self.answer("C5", words, verdicts.into_iter().collect())
    }

    /// Two variants side by side, preemptions per second of a thread's life.
    fn side_by_side(
        &self,
        one: MutexVariant,
        other: MutexVariant,
        ratio: Option<LabNumber>,
    ) -> String {
        let rate = |variant| {
            self.preemptions(variant, RateBase::LifeSecond)
                .map_or_else(|| "-".to_owned(), |rate| rate_in_words(&rate))
        };
        format!(
            "preemptions per second of a thread's life: {one} {}, {other} {}: {} times",
            rate(one),
            rate(other),
            ratio.map_or_else(|| "-".to_owned(), |ratio| ratio.ratio())
        )
    }

    /// C6: waits grow with the part of the body under the lock, and preemptions do not.
    fn c6(&self) -> Answer {
        let rising = [
            MutexVariant::Counter,
            MutexVariant::FirstLoop,
            MutexVariant::Everything,
        ];
        let rates: Vec<(MutexVariant, EventRate)> = [MutexVariant::NoLock]
            .into_iter()
            .chain(rising)
            .filter_map(|variant| Some((variant, self.waits(variant)?)))
            .collect();
        let words: Vec<String> = rates
            .iter()
            .map(|(variant, rate)| format!("{variant} {}", rate_in_words(rate)))
            .collect();
        let grows = rising.windows(2).filter_map(|pair| {
            let ratio = self.waits(pair[1])?.over(&self.waits(pair[0])?);
            Some(LabNumber::of_counts(ratio)?.is_within(1.0, f64::INFINITY))
        });
        let preemptions = self.over(
            MutexVariant::Everything,
            MutexVariant::NoLock,
            RateBase::LifeSecond,
        );
        let stay = preemptions.map(|ratio| ratio.is_within(0.0, ALIKE));
        self.answer(
            "C6",
            format!(
                "waits for the lock per second of a thread's life: {}; preemptions of the last over the \
                 first: {}",
                words.join(", "),
                preemptions.map_or_else(|| "-".to_owned(), |ratio| ratio.ratio())
            ),
            grows.chain(stay).collect(),
        )
    }

    fn c7(&self) -> Answer {
        self.answer_without_recording("C7").unwrap_or_else(|| {
            let (ours, verdict) = self.preemptors().answer();
            self.answer("C7", ours, verdict.into_iter().collect())
        })
    }

    fn answer_without_recording(&self, claim: &'static str) -> Option<Answer> {
        let why = self.why_unrecorded.as_ref()?;
        Some(Answer {
            claim,
            ours: "the kernel's counters name nobody".to_owned(),
            verdict: cannot_be_tested(format!("nothing was recorded: {why}")),
        })
    }

    /// An answer that holds when all verdicts do; without any, nothing was played.
    fn answer(&self, claim: &'static str, ours: String, verdicts: Vec<Verdict>) -> Answer {
        let was_played = !verdicts.is_empty();
        Answer {
            claim,
            ours: match was_played {
                true => ours,
                false => "nothing".to_owned(),
            },
            verdict: match was_played {
                true => all_of(verdicts),
                false => cannot_be_tested(STOPPED),
            },
        }
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
        FindingsTable {
            title: "preemptions and waits for the lock, by variant, all rounds together".to_owned(),
            sheet,
        }
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
        FindingsTable {
            title: "preemptions of a thread before it begins its work".to_owned(),
            sheet,
        }
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
                axis: Axis {
                    name: "switches per second of a thread's life".to_owned(),
                    measure: Measure::Plain,
                    scale: Scale::Logarithmic,
                },
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
        for answer in [all.c4(), all.c5(), all.c6()] {
            assert_eq!(answer.verdict, Verdict::Holds, "{answer:?}");
        }
    }

    #[test]
    fn a_handful_of_preemptions_says_little() {
        let all = tallies(&[
            (MutexVariant::NoLock, tally(4, 0, 1.0, 1.0)),
            (MutexVariant::Everything, tally(2, 9_000, 1.0, 0.5)),
        ]);
        assert!(matches!(all.c4().verdict, Verdict::Undecided(_)));
    }

    #[test]
    fn what_was_stopped_before_is_not_judged() {
        let none = tallies(&[]);
        for answer in [none.c1(), none.c3(), none.c4(), none.c6()] {
            assert!(
                matches!(answer.verdict, Verdict::CannotBeTested(_)),
                "{answer:?}"
            );
        }
    }
}

//! `swtch lab lock-ring`: threads that pass locks round a ring (claims E3 to E5).
//!
//! ```text
//!  locks     0   1   2   3   4   5       4 threads, 2 spare locks: thread i holds lock i, and the
//!  threads  (0) (1) (2) (3)  ·   ·       last one takes 4 and 5, then waits for 0, and has let
//!            0   1   2   ─▶  ─▶  3       thread 2 go on, which takes 3 and 4, …
//! ```
//!
//! A **hand-over** is one move: the next lock is taken, the former given back. Only the thread
//! behind wants a lock, so the order is fixed. Who keeps the CPU until it blocks makes as many
//! moves as there are spare locks: a **turn**. So k spare locks make 1/k switches a hand-over, as
//! long as nobody preempts. A preemption makes two threads movable until the play ends.
//!
//! `answers` judges the claims.

use std::fmt;

use anyhow::{Result, anyhow};
use swtch_bench::load::LoadResults;
use swtch_core::Nanos;
use swtch_core::stats::median;
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Chart, Content, Dot, Line, Measure, Scale, Style};
use swtch_report::report::{Cell, Sheet};

use super::context::{ExperimentContext, RecordingChoice};
use super::findings::{Findings, FindingsTable};
use super::load_experiment::{LoadExperiment, PlayResult, Rounds};
use super::measured::LabNumber;
use super::parameters::{ParameterValue, Parameters};
use answers::LargeRing;

mod answers;

/// The file of the experiment.
pub const FILE: &str = include_str!("../experiments/lock-ring.toml");

/// Threads in the largest ring of the article.
const ARTICLE_MAX_THREADS: u64 = 128;

/// The fewest turns of each thread in a play. With 20 a switch among 1024 threads took a sixth longer
/// than with 100, since the first turns find nothing in the caches.
const LEAST_TURNS: u64 = 50;

/// Where the threads of a ring run, and whether who is woken may preempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingPlace {
    Batch,
    Default,
    AllCpus,
}

/// A ring that is played: its threads, its spare locks, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingSetting {
    place: RingPlace,
    threads: u64,
    spare: u64,
}

/// The result of one play.
#[derive(Clone, Copy, Debug)]
struct RingPlay {
    hand_overs: f64,
    wall_ns: f64,
    cpu_ns: f64,
    voluntary: f64,
    involuntary: f64,
}

/// The plays of all rings.
struct RingPlays {
    settings: Vec<RingSetting>,
    rounds: Rounds<RingPlay>,
    /// The number of threads with which more spare locks are compared with few.
    compared_at: Option<u64>,
    /// The rings that the article could not have.
    large: Vec<LargeRing>,
}

/// Runs the experiment.
///
/// # Errors
/// A load cannot be played.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let mut experiment = LoadExperiment::open("lock-ring", FILE, parameters, context)?;
    let [mut threads, mut spare] = ["threads", "spare"].map(|name| parameters.counts(name));
    for list in [&mut threads, &mut spare] {
        list.sort_unstable();
        list.dedup();
    }
    let large = LargeRing::play_all(&mut experiment, &threads);
    // Where there is a limit to threads, the smaller rings are played.
    let refused = large.iter().filter(|ring| ring.order.is_err());
    let refused: Vec<u64> = refused.map(|ring| ring.threads).collect();
    threads.retain(|threads| !refused.contains(threads));
    let settings = settings(&threads, &spare);
    if settings.is_empty() {
        let mut whys = large.into_iter().filter_map(|ring| ring.order.err());
        return Err(whys
            .next()
            .unwrap_or_else(|| anyhow!("there is no ring to play")));
    }
    let turns = parameters.count("turns");
    let rounds = experiment.rounds(&settings, parameters.count("rounds"), |experiment, ring| {
        let played = ring.play(turns, RecordingChoice::Unwanted, experiment)?;
        Ok(played.map(|result| RingPlay::of(&result.played, ring.moves(turns))))
    })?;
    let plays = RingPlays {
        compared_at: compared_at(&threads),
        settings,
        rounds,
        large,
    };
    let mut findings = plays.findings(&experiment);
    experiment.close(&mut findings);
    Ok(findings)
}

/// The most threads of the article, or the next smaller number that is there.
fn compared_at(threads: &[u64]) -> Option<u64> {
    let largest = threads.iter().rfind(|one| **one <= ARTICLE_MAX_THREADS);
    largest.or(threads.first()).copied()
}

/// Every number of threads with one spare lock, or the fewest; and every number of spare locks with
/// one number of threads, everywhere.
fn settings(threads: &[u64], spare: &[u64]) -> Vec<RingSetting> {
    let (Some(least), Some(compared_at)) = (spare.first(), compared_at(threads)) else {
        return Vec::new();
    };
    let sizes = threads.iter().copied();
    let sizes = sizes.map(|threads| RingSetting::new(RingPlace::Batch, threads, *least));
    let mut settings: Vec<RingSetting> = sizes.collect();
    for place in RingPlace::ALL {
        let more = spare.iter().copied();
        let more = more.map(|spare| RingSetting::new(place, compared_at, spare));
        settings.extend(more.filter(|ring| place != RingPlace::Batch || ring.spare != *least));
    }
    settings
}

impl RingPlace {
    const ALL: [Self; 3] = [Self::Batch, Self::Default, Self::AllCpus];

    /// The name of its variant in the file.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Batch => "one-cpu-batch",
            Self::Default => "one-cpu-default",
            Self::AllCpus => "all-cpus",
        }
    }
}

impl fmt::Display for RingSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (threads, spare) = (self.threads, self.spare);
        write!(
            f,
            "{threads} threads, {spare} spare ({})",
            self.place.as_str()
        )
    }
}

impl RingSetting {
    const fn new(place: RingPlace, threads: u64, spare: u64) -> Self {
        Self {
            place,
            threads,
            spare,
        }
    }

    /// How many hand-overs each thread makes.
    fn moves(&self, turns: u64) -> u64 {
        (turns / self.threads.max(1)).max(LEAST_TURNS) * self.spare
    }

    fn play(
        &self,
        turns: u64,
        recording: RecordingChoice,
        experiment: &mut LoadExperiment<'_>,
    ) -> Result<Option<PlayResult>> {
        let changed = [
            ("ring-threads", self.threads),
            ("ring-spare", self.spare),
            ("moves", self.moves(turns)),
        ];
        let changed = changed.map(|(name, count)| (name, ParameterValue::Count(count)));
        experiment.play(self.place.as_str(), &changed, recording)
    }

    /// Whether it differs in its threads alone.
    fn is_like(&self, other: &Self) -> bool {
        (self.place, self.spare) == (other.place, other.spare)
    }

    /// Switches a hand-over that follow from how the ring is built; `None` where a thread may
    /// preempt, or run on another CPU.
    fn expected(&self) -> Option<f64> {
        (self.place == RingPlace::Batch).then(|| 1.0 / self.spare as f64)
    }
}

impl RingPlay {
    fn of(played: &LoadResults, moves: u64) -> Self {
        let members = &played.members;
        let began = members.iter().map(|one| one.began_ns).min().unwrap_or(0);
        let ended = members.iter().map(|one| one.ended_ns).max().unwrap_or(0);
        let sum = |value: fn(&swtch_bench::load::PlayedMember) -> u64| {
            members.iter().map(value).sum::<u64>() as f64
        };
        Self {
            hand_overs: (members.len() as u64 * moves) as f64,
            wall_ns: ended.saturating_sub(began) as f64,
            cpu_ns: sum(|one| one.cpu_time.as_ns()),
            voluntary: sum(|one| one.voluntary),
            involuntary: sum(|one| one.involuntary),
        }
    }

    const fn switches(&self) -> f64 {
        self.voluntary + self.involuntary
    }
}

/// A number of a play.
type RingValue = fn(&RingPlay) -> f64;

const HAND_OVER: RingValue = |play| play.wall_ns / play.hand_overs;
const BLOCKS: RingValue = |play| play.voluntary / play.hand_overs;
const BUSY_CPUS: RingValue = |play| play.cpu_ns / play.wall_ns;
/// CPU time and not wall time: what others took of the CPU is no price of a switch.
const PER_SWITCH: RingValue = |play| play.cpu_ns / play.switches();

impl RingPlays {
    fn index(&self, place: RingPlace, threads: u64, spare: u64) -> Option<usize> {
        let wanted = RingSetting::new(place, threads, spare);
        self.settings.iter().position(|one| *one == wanted)
    }

    /// A number of a setting over its rounds.
    fn number(&self, setting: usize, value: RingValue) -> Option<LabNumber> {
        LabNumber::of(&self.rounds.values(setting, value))
    }

    /// Switches a hand-over; on one CPU under batch, of the plays without preemptions.
    fn switches(&self, setting: usize) -> Option<f64> {
        let all = self.rounds.of(setting);
        let counted = all.filter(|play| self.is_as_built(setting, play));
        let counted = counted.map(|play| play.switches() / play.hand_overs);
        median(&counted.collect::<Vec<_>>())
    }

    /// False if threads were preempted where the ring is built so that nobody is.
    fn is_as_built(&self, setting: usize, play: &RingPlay) -> bool {
        let may_preempt = self.settings[setting].place != RingPlace::Batch;
        may_preempt || play.involuntary == 0.0
    }

    fn findings(&self, experiment: &LoadExperiment<'_>) -> Findings {
        let refused = self.large.iter().filter_map(|ring| {
            let why = ring.order.as_ref().err()?;
            Some(format!(
                "a ring of {} threads was left out: {why:#}",
                ring.threads
            ))
        });
        Findings {
            tables: vec![self.table()],
            pictures: vec![self.picture(experiment.subtitle())],
            answers: self.answers(),
            notes: refused.collect(),
            ..Findings::default()
        }
    }

    fn table(&self) -> FindingsTable {
        let mut sheet = Sheet::new("lock-ring", &COLUMNS);
        sheet.not_in_tables = &["low_ns", "high_ns"];
        let settings = self.settings.iter().enumerate();
        sheet.rows = settings
            .map(|(index, ring)| self.row(index, ring))
            .collect();
        FindingsTable {
            title: "Hand-overs of locks, and the switches that the kernel counted for them"
                .to_owned(),
            sheet,
        }
    }

    fn row(&self, index: usize, ring: &RingSetting) -> Vec<Cell> {
        let number = |value| self.number(index, value);
        let ratio = |value: Option<f64>| value.map_or(Cell::Missing, Cell::Ratio);
        let times = |value: Option<LabNumber>| {
            let ends = value.and_then(|value| value.ends());
            let all = [
                value.map(|value| value.point),
                ends.map(|ends| ends.0),
                ends.map(|ends| ends.1),
            ];
            all.map(|ns| Cell::time(ns.map(Nanos::from_rounded)))
        };
        let per_switch = ring.expected().and_then(|_| number(PER_SWITCH));
        let mut row = vec![
            Cell::text(ring.place.as_str()),
            Cell::Count(ring.threads),
            Cell::Count(ring.spare),
        ];
        row.extend(times(number(HAND_OVER)));
        row.push(ratio(self.switches(index)));
        row.push(ratio(ring.expected()));
        row.extend(times(per_switch));
        row.push(ratio(number(BUSY_CPUS).map(|one| one.point)));
        row.push(number(HAND_OVER).map_or(Cell::Missing, |one| one.rounds_cell()));
        row
    }

    fn picture(&self, subtitle: String) -> Picture {
        let axis = |name: &str, measure| Axis {
            name: name.to_owned(),
            measure,
            scale: Scale::Logarithmic,
        };
        let dot = |(index, ring): (usize, &RingSetting)| {
            let y = self.number(index, PER_SWITCH)?;
            Some(Dot {
                x: ring.threads as f64,
                y: y.point,
                interval: y.ends(),
            })
        };
        let rings = self.settings.iter().enumerate();
        let rings = rings.filter(|(_, ring)| ring.is_like(&self.settings[0]));
        Picture {
            name: "lock-ring".to_owned(),
            title: "What a switch costs in a ring of threads (one CPU, batch)".to_owned(),
            subtitle,
            explanation: "a point: median of the rounds; bars: 95 % interval of the median"
                .to_owned(),
            notes: Vec::new(),
            content: Content::Chart(Chart {
                x: axis("threads in the ring", Measure::Count),
                y: axis("CPU time of a switch", Measure::Time),
                lines: vec![Line {
                    label: "measured".to_owned(),
                    style: Style::Measured,
                    colour: None,
                    points: rings.filter_map(dot).collect(),
                }],
                marks: Vec::new(),
            }),
        }
    }
}

const COLUMNS: [&str; 13] = [
    "place",
    "threads",
    "spare",
    "hand_over_ns",
    "low_ns",
    "high_ns",
    "switches",
    "expected",
    "per_switch_ns",
    "per_switch_low_ns",
    "per_switch_high_ns",
    "busy_cpus",
    "rounds",
];

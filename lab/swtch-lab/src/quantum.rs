//! `swtch lab quantum`: how long tasks that share a CPU run before they must give way (claim A6).
//!
//! ```text
//!  asked for 3 ms     ▓▓░░▓▓░░▓▓░░▓▓░░   a turn ends at the first tick after the slice is used up
//!  asked for 10 ms    ▓▓▓▓▓▓░░░░░░▓▓▓▓
//!  tick (4 ms)        │ │ │ │ │ │ │ │
//! ```
//!
//! `turns` holds the turns of one play, `stated` what the kernel says a quantum is. What it does
//! *not* do: explain a single turn; `swtch explain` does.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use swtch_core::Nanos;
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Chart, Content, Dot, Line, Mark, Measure, Scale, Style};
use swtch_report::report::{Cell, Sheet};

use super::context::{ExperimentContext, RecordingChoice};
use super::findings::{Findings, FindingsTable};
use super::load_experiment::LoadExperiment;
use super::measured::LabNumber;
use super::parameters::{ParameterValue, Parameters};
use super::quantities::Quantities;
use stated::KernelQuanta;
use turns::{Hog, HogTurns};

mod stated;
mod turns;

/// The file of the experiment.
pub const FILE: &str = include_str!("../experiments/quantum.toml");

/// Points of a cumulative distribution.
const STEPS: usize = 60;

/// How two tasks share a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuSharing {
    /// A variant of the file.
    Variant(&'static str),
    /// Both ask for this slice.
    Slice(Duration),
}

/// Variants that are played as they are.
const VARIANTS: [&str; 8] = [
    "equal",
    "nice-0-5",
    "nice-minus-5-5",
    "batch",
    "idle",
    "other-idle",
    "rr",
    "fifo",
];

/// One way of sharing, and the turns that it led to.
struct SharingResult {
    sharing: CpuSharing,
    turns: HogTurns,
}

/// The plays of all ways of sharing, beside the quanta that the kernel states.
struct QuantumResults {
    all: Vec<SharingResult>,
    stated: KernelQuanta,
}

/// Runs the experiment.
///
/// # Errors
/// A load cannot be played.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let slices = parameters
        .times("slices")
        .into_iter()
        .map(CpuSharing::Slice);
    let sharings: Vec<CpuSharing> = VARIANTS
        .map(CpuSharing::Variant)
        .into_iter()
        .chain(slices)
        .collect();
    let mut experiment = LoadExperiment::open("quantum", FILE, parameters, context)?;
    let rounds = experiment.rounds(&sharings, 1, |experiment, sharing| {
        let result = match sharing {
            CpuSharing::Variant(variant) => {
                experiment.play(variant, &[], RecordingChoice::Wanted)?
            }
            CpuSharing::Slice(slice) => {
                let slice = [("slice", ParameterValue::Time(*slice))];
                experiment.play("slice", &slice, RecordingChoice::Wanted)?
            }
        };
        Ok(result.map(|result| HogTurns::of(&result)))
    })?;
    let all = sharings.iter().enumerate().filter_map(|(index, sharing)| {
        Some(SharingResult {
            sharing: *sharing,
            turns: rounds.of(index).next()?.clone(),
        })
    });
    let plays = QuantumResults {
        all: all.collect(),
        stated: KernelQuanta::read(),
    };
    let mut findings = plays.findings(&experiment);
    experiment.close(&mut findings);
    Ok(findings)
}

impl fmt::Display for CpuSharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variant(variant) => f.pad(variant),
            Self::Slice(slice) => f.pad(&format!("slice {slice:?}")),
        }
    }
}

impl QuantumResults {
    fn findings(&self, experiment: &LoadExperiment<'_>) -> Findings {
        let subtitle = experiment.subtitle();
        let mut findings = Findings {
            tables: vec![self.table()],
            answers: self.quantities().answers("quantum"),
            sentences: self.sentences(),
            ..Findings::default()
        };
        match experiment.why_unrecorded() {
            None => findings.pictures.extend([
                self.distributions(&subtitle, SLICES),
                self.distributions(&subtitle, CLASSES),
                self.turn_by_slice(&subtitle),
            ]),
            Some(_) => findings.notes.push(
                "without a recording a turn is a mean: CPU time over the switches that the kernel counted"
                    .to_owned(),
            ),
        }
        findings
    }

    fn of(&self, variant: &'static str) -> Option<&HogTurns> {
        let wanted = CpuSharing::Variant(variant);
        let found = self.all.iter().find(|played| played.sharing == wanted);
        found.map(|played| &played.turns)
    }

    /// Slices that were asked for with their turns, the shortest slice first.
    fn slices(&self) -> Vec<(Duration, &HogTurns)> {
        let mut slices: Vec<_> = self
            .all
            .iter()
            .filter_map(|played| match played.sharing {
                CpuSharing::Slice(slice) => Some((slice, &played.turns)),
                CpuSharing::Variant(_) => None,
            })
            .collect();
        slices.sort_by_key(|(slice, _)| *slice);
        slices
    }

    /// A slice ends at a tick, so slices that end at the same tick are one quantum.
    fn quantities(&self) -> Quantities {
        let mut all = Quantities::of_loads();
        let mut quanta: Vec<(Duration, &HogTurns)> = self.slices();
        let rate =
            |(slice, turns): &(Duration, &HogTurns)| (format!("{slice:?}"), turns.switch_rate());
        all.list("slices", quanta.iter().map(rate));
        quanta.dedup_by_key(|(slice, _)| self.stated.ticks(*slice));
        let steps = quanta
            .windows(2)
            .map(|pair| pair[1].1.switches().over(&pair[0].1.switches()));
        all.list(
            "quanta",
            steps.map(|step| (String::new(), LabNumber::of_counts(step))),
        );
        all
    }

    fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        sentences.push(self.stated.sentence());
        if let Some(turns) = self.of("fifo") {
            sentences.push(turns.one_after_the_other());
        }
        sentences
    }

    fn table(&self) -> FindingsTable {
        let mut sheet = Sheet::new("quantum", &COLUMNS);
        for SharingResult { sharing, turns } in &self.all {
            let slice = match sharing {
                CpuSharing::Slice(slice) => Some(*slice),
                CpuSharing::Variant(_) => None,
            };
            for hog in &turns.hogs {
                sheet.rows.push(row(
                    sharing,
                    hog,
                    self.stated.quantum(&hog.name, slice),
                    turns,
                ));
            }
        }
        FindingsTable::new(
            "turns of two tasks that share a CPU, while both want it",
            sheet,
        )
    }

    fn distributions(&self, subtitle: &str, which: Distributions) -> Picture {
        let chosen = self
            .all
            .iter()
            .filter(|played| (which.is_shown)(&played.sharing));
        let lines = chosen.flat_map(|played| {
            let hogs = played.turns.distinct();
            let is_one = hogs.len() == 1;
            hogs.into_iter().map(move |hog| {
                let label = match is_one {
                    true => played.sharing.to_string(),
                    false => format!("{} of {}", hog.name, played.sharing),
                };
                Line::new(label, Style::Steps, cumulative(&hog.runs_ns))
            })
        });
        let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
        Picture {
            name: which.name.to_owned(),
            title: which.title.to_owned(),
            subtitle: subtitle.to_owned(),
            explanation: "how many of the turns are no longer than that".to_owned(),
            notes: Vec::new(),
            content: Content::Chart(Chart {
                x: Axis::new("length of a turn", Measure::Time, Scale::Logarithmic),
                y: Axis::new("of all turns", Measure::Percent, Scale::Linear),
                lines,
                marks: self.tick_mark(),
            }),
        }
    }

    fn turn_by_slice(&self, subtitle: &str) -> Picture {
        let slices = self.slices();
        let measured = slices.iter().filter_map(|(slice, turns)| {
            let median = turns.median()?;
            Some(Dot {
                x: ns(*slice),
                y: median.point,
                interval: median.ends(),
            })
        });
        let ideal = slices.iter().map(|(slice, _)| Dot {
            x: ns(*slice),
            y: ns(*slice),
            interval: None,
        });
        let lines = vec![
            Line::new("as asked for", Style::Ideal, ideal),
            Line::new("median turn", Style::Measured, measured),
        ];
        Picture {
            name: "quantum".to_owned(),
            title: "The slice asked for, and the turn that came".to_owned(),
            subtitle: subtitle.to_owned(),
            explanation: "a point: median of all turns of both tasks; bars: 95 % interval"
                .to_owned(),
            notes: Vec::new(),
            content: Content::Chart(Chart {
                x: Axis::new("slice asked for", Measure::Time, Scale::Logarithmic),
                y: Axis::new("length of a turn", Measure::Time, Scale::Logarithmic),
                lines,
                marks: self.tick_mark(),
            }),
        }
    }

    fn tick_mark(&self) -> Vec<Mark> {
        let tick = self.stated.tick.map(|tick| Mark {
            at: ns(tick),
            label: "tick".to_owned(),
        });
        tick.into_iter().collect()
    }
}

/// Which distributions a picture shows.
struct Distributions {
    name: &'static str,
    title: &'static str,
    is_shown: fn(&CpuSharing) -> bool,
}

const SLICES: Distributions = Distributions {
    name: "quantum-slices",
    title: "Turns of two equal tasks, by the slice asked for",
    is_shown: |sharing| matches!(sharing, CpuSharing::Slice(_)),
};

const CLASSES: Distributions = Distributions {
    name: "quantum-classes",
    title: "Turns of two tasks, by nice value and policy",
    is_shown: |sharing| match sharing {
        CpuSharing::Variant(variant) => !matches!(*variant, "fifo" | "batch"),
        CpuSharing::Slice(_) => false,
    },
};

const COLUMNS: [&str; 12] = [
    "setting",
    "task",
    "stated_ns",
    "mean_turn_ns",
    "median_turn_ns",
    "low_ns",
    "high_ns",
    "p95_ns",
    "longest_ns",
    "turns",
    "share_pct",
    "switches_per_cpu_s",
];

fn row(sharing: &CpuSharing, hog: &Hog, stated: Option<Duration>, turns: &HogTurns) -> Vec<Cell> {
    let time = |ns: Option<f64>| Cell::time(ns.map(Nanos::from_rounded));
    let median = LabNumber::of(&hog.runs_ns);
    let ends = median.and_then(|median| median.ends());
    let rate = turns.switches().per_second();
    vec![
        Cell::text(sharing.to_string()),
        Cell::text(&hog.name),
        time(stated.map(ns)),
        time(hog.mean_ns()),
        time(median.map(|median| median.point)),
        time(ends.map(|ends| ends.0)),
        time(ends.map(|ends| ends.1)),
        time(hog.quantile(0.95)),
        time(hog.quantile(1.0)),
        Cell::Count(hog.runs_ns.len() as u64),
        hog.share
            .map_or(Cell::Missing, |share| Cell::Percent(share * 100.0)),
        rate.map_or(Cell::Missing, Cell::Ratio),
    ]
}

fn ns(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// A cumulative distribution, in percent.
fn cumulative(lengths_ns: &[f64]) -> Vec<Dot> {
    let points = (0..=STEPS).filter_map(|step| {
        let share = step as f64 / STEPS as f64;
        Some(Dot {
            x: swtch_core::stats::quantile(lengths_ns, share)?,
            y: share * 100.0,
            interval: None,
        })
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;

    fn slices(played: &[(u64, u64)]) -> QuantumResults {
        let all = played.iter().map(|(milliseconds, switches)| SharingResult {
            sharing: CpuSharing::Slice(Duration::from_millis(*milliseconds)),
            turns: HogTurns {
                ran_s: 1.0,
                switches: *switches,
                ..HogTurns::default()
            },
        });
        QuantumResults {
            all: all.collect(),
            stated: KernelQuanta::of_tick(Duration::from_millis(4)),
        }
    }

    fn verdict(played: &[(u64, u64)]) -> Verdict {
        slices(played).quantities().answer("A6").verdict
    }

    #[test]
    fn slices_that_end_at_the_same_tick_are_one_quantum() {
        let same = [(1, 250), (3, 251), (10, 83), (30, 31)];
        assert_eq!(verdict(&same), Verdict::Holds);
    }

    #[test]
    fn more_switches_with_a_longer_quantum_refute_it() {
        assert_eq!(verdict(&[(3, 100), (10, 250)]), Verdict::DoesNotHold);
        assert!(matches!(
            verdict(&[(3, 12), (10, 9)]),
            Verdict::Undecided(_)
        ));
        assert!(matches!(verdict(&[]), Verdict::CannotBeTested(_)));
    }
}

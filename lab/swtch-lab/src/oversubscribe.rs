//! `swtch lab oversubscribe`: more busy threads than CPUs (claims A1 to A5).
//!
//! ```text
//!  3 threads, 2 CPUs      0 s          1 s          2 s
//!  thread 0 on CPU 0      ▓▓  ▓▓  ▓▓  ▓▓  ▓▓  ▓▓  ▓▓   twice as long: shares CPU 0
//!  thread 1 on CPU 1      ▓▓▓▓▓▓▓▓▓▓▓▓│                the time of a single thread
//!  thread 2 on CPU 0        ▓▓  ▓▓  ▓▓  ▓▓  ▓▓  ▓▓     twice as long
//! ```
//!
//! `turns` reads from a trace how threads that share a CPU take turns.

use std::fmt;

use anyhow::Result;
use swtch_bench::load::PlayedMember;
use swtch_core::Nanos;
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Chart, Content, Dot, Lanes, Line, Mark, Measure, Scale, Style};
use swtch_report::report::{Cell, Sheet};

use super::claim::{Answer, Verdict, all_of};
use super::context::{ExperimentContext, RecordingChoice};
use super::evidence::LoadRuns;
use super::findings::{Findings, FindingsTable};
use super::load_experiment::{LoadExperiment, PlayResult, Rounds};
use super::measured::{LabNumber, SAME, STOPPED, cannot_be_tested};
use super::parameters::{ParameterValue, Parameters};
use turns::Turns;

mod priority;
mod turns;

/// The file of the experiment.
pub const FILE: &str = include_str!("../experiments/oversubscribe.toml");

/// Most settings that are played: large machines leave some numbers of threads out.
const MAX_SETTINGS: usize = 9;

/// An upper bound on what a switch costs, in ns: the price lists of this program say 0.3 µs to 1 µs
/// for a switch without a working set, and these threads have none.
const MAX_SWITCH_NS: f64 = 2_000.0;

/// A cost below this share of a run is negligible.
const NEGLIGIBLE: f64 = 0.01;

/// A setting of the experiment: how many equal threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadCount(usize);

impl fmt::Display for ThreadCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} threads", self.0)
    }
}

/// One play of equal threads.
#[derive(Debug)]
struct EqualThreadsRun {
    threads: Vec<ThreadTimes>,
    /// How threads that share a CPU took turns; `None` when it was not recorded.
    turns: Option<Turns>,
    /// What each thread did over time; `None` when it was not recorded.
    timeline: Option<Lanes>,
}

/// Times and switches of one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ThreadTimes {
    /// Number of threads on its CPU, itself included.
    on_its_cpu: usize,
    /// From the start of all threads to its end, in ns.
    time_ns: f64,
    /// From its own begin to its end, in ns.
    body_ns: f64,
    /// CPU time that it used, in ns.
    cpu_ns: f64,
    /// Switches that the kernel counted.
    switches: f64,
}

/// The runs of all settings and rounds.
struct EqualThreadsRuns {
    cpus: usize,
    settings: Vec<usize>,
    rounds: Rounds<EqualThreadsRun>,
}

/// Runs the experiment.
///
/// # Errors
/// A load cannot be played.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let mut experiment = LoadExperiment::open("oversubscribe", FILE, parameters, context)?;
    let cpus = experiment.cpus()?;
    let most = match usize::try_from(parameters.count("most"))? {
        0 => 2 * cpus + 1,
        most => most,
    };
    let settings = settings(cpus, most);
    let threads: Vec<ThreadCount> = settings.iter().copied().map(ThreadCount).collect();
    let rounds = experiment.rounds(
        &threads,
        parameters.count("rounds"),
        |experiment, threads| {
            // Turns are only read with one thread more than CPUs; the other numbers need the clock
            // only.
            let recording = match threads.0 == cpus + 1 {
                true => RecordingChoice::Wanted,
                false => RecordingChoice::Unwanted,
            };
            let result = experiment.play("equal", &threads.parameter(), recording)?;
            Ok(result.as_ref().map(EqualThreadsRun::of))
        },
    )?;
    let runs = EqualThreadsRuns {
        cpus,
        settings,
        rounds,
    };
    let mut findings = runs.findings(&experiment);
    priority::add(&mut experiment, ThreadCount(cpus + 1), &mut findings)?;
    experiment.close(&mut findings);
    Ok(findings)
}

impl ThreadCount {
    fn parameter(self) -> [(&'static str, ParameterValue); 1] {
        [("threads", ParameterValue::Count(self.0 as u64))]
    }
}

/// The numbers of threads that are played: all while they are few, else those around the number of
/// CPUs and twice it.
fn settings(cpus: usize, most: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (1..=most).collect();
    if all.len() > MAX_SETTINGS {
        let landmarks = [1, cpus / 2, cpus, cpus + 1, 3 * cpus / 2, 2 * cpus, most];
        all.retain(|threads| landmarks.contains(threads));
    }
    all
}

impl EqualThreadsRun {
    fn of(result: &PlayResult) -> Self {
        let (members, evidence) = (&result.played.members, result.evidence.as_ref());
        let threads = members.iter().map(|member| ThreadTimes {
            on_its_cpu: members.iter().filter(|one| one.cpu == member.cpu).count(),
            time_ns: member.ended_ns.saturating_sub(result.played.started_ns) as f64,
            body_ns: member.ended_ns.saturating_sub(member.began_ns) as f64,
            cpu_ns: member.cpu_time.as_ns() as f64,
            switches: (member.voluntary + member.involuntary) as f64,
        });
        Self {
            threads: threads.collect(),
            turns: evidence.map(|evidence| Turns::of(evidence, members)),
            timeline: evidence.map(|evidence| timeline(evidence, members)),
        }
    }

    fn times(&self) -> impl Iterator<Item = f64> {
        self.threads.iter().map(|thread| thread.time_ns)
    }

    fn mean(&self) -> f64 {
        self.times().sum::<f64>() / self.threads.len() as f64
    }

    /// Mean time of the threads with a CPU of their own, or of those that share one; `None` without
    /// any.
    fn mean_of(&self, kind: CpuShare) -> Option<f64> {
        let times: Vec<f64> = self
            .threads_with(kind)
            .map(|thread| thread.time_ns)
            .collect();
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }

    fn threads_with(&self, kind: CpuShare) -> impl Iterator<Item = &ThreadTimes> {
        self.threads
            .iter()
            .filter(move |thread| (thread.on_its_cpu == 1) == (kind == CpuShare::Own))
    }
}

/// Whether a thread has its CPU for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuShare {
    Own,
    Shared,
}

impl EqualThreadsRuns {
    /// Index of a number of threads among the settings.
    fn setting_index(&self, threads: usize) -> Option<usize> {
        self.settings.iter().position(|one| *one == threads)
    }

    /// `value` of each round's run over the mean time of a single thread in that round. Runs
    /// without that value are left out.
    fn over_one(
        &self,
        threads: usize,
        value: impl Fn(&EqualThreadsRun) -> Option<f64>,
    ) -> Option<LabNumber> {
        let pairs = self
            .rounds
            .pairs(self.setting_index(threads)?, self.setting_index(1)?);
        let ratios: Vec<f64> = pairs
            .filter_map(|(run, one)| Some(value(run)? / one.mean()))
            .collect();
        LabNumber::of(&ratios)
    }

    fn findings(&self, experiment: &LoadExperiment<'_>) -> Findings {
        let mut findings = Findings {
            tables: vec![self.table()],
            pictures: vec![self.picture(experiment)],
            answers: vec![
                self.a1(),
                self.a2(),
                self.a3(),
                self.a4(experiment),
                self.a5(),
            ],
            ..Findings::default()
        };
        if let Some(turns) = self.turns() {
            findings.tables.push(turns.table());
        }
        findings.pictures.extend(self.timeline(experiment));
        findings
    }

    /// The turns of all rounds with one thread more than CPUs.
    fn turns(&self) -> Option<Turns> {
        let runs = self.rounds.of(self.setting_index(self.cpus + 1)?);
        let turns = runs.filter_map(|run| run.turns.as_ref());
        turns.cloned().reduce(Turns::plus)
    }

    fn a1(&self) -> Answer {
        let slowest = |run: &EqualThreadsRun| run.times().reduce(f64::max);
        let upto = self.settings.iter().filter(|n| (2..=self.cpus).contains(n));
        let ratios: Vec<_> = upto
            .filter_map(|n| Some((n, self.over_one(*n, slowest)?)))
            .collect();
        let words: Vec<String> = ratios
            .iter()
            .map(|(n, ratio)| format!("{n} threads: {}", ratio.ratio()))
            .collect();
        let verdicts = ratios
            .iter()
            .map(|(_, ratio)| ratio.is_within(1.0 - SAME, 1.0 + SAME));
        Answer {
            claim: "A1",
            ours: format!(
                "the slowest thread over a single one, {}",
                or_nothing(&words.join("; "))
            ),
            verdict: match (self.cpus, ratios.is_empty()) {
                (1, _) => cannot_be_tested("one CPU only may be used"),
                (_, true) => cannot_be_tested(STOPPED),
                _ => all_of(verdicts),
            },
        }
    }

    fn a2(&self) -> Answer {
        let more = self.cpus + 1;
        let shared = self.over_one(more, |run| run.mean_of(CpuShare::Shared));
        let own = self.over_one(more, |run| run.mean_of(CpuShare::Own));
        let mut verdicts: Vec<Verdict> = Vec::new();
        let mut words = Vec::new();
        if let Some(shared) = shared {
            words.push(format!("those that share take {} times", shared.ratio()));
            verdicts.push(shared.is_within(2.0 * (1.0 - SAME), 2.0 * (1.0 + SAME)));
        }
        if let Some(own) = own {
            words.push(format!("the others {} times", own.ratio()));
            verdicts.push(own.is_within(1.0 - SAME, 1.0 + SAME));
        }
        Answer {
            claim: "A2",
            ours: format!(
                "{more} threads: {} the time of a single one",
                or_nothing(&words.join(", "))
            ),
            verdict: if shared.is_none() {
                cannot_be_tested(STOPPED)
            } else {
                all_of(verdicts)
            },
        }
    }

    fn a3(&self) -> Answer {
        let twice = 2 * self.cpus;
        let mean = |run: &EqualThreadsRun| Some(run.mean());
        // A thread counts as taking twice the time from nine tenths of that on.
        let late = |run: &EqualThreadsRun, one: &EqualThreadsRun| {
            let late = 2.0 * (1.0 - SAME) * one.mean();
            run.times().filter(|time| *time >= late).count() as f64 / run.threads.len() as f64
        };
        let last = self.over_one(twice, mean);
        let shares = self
            .setting_index(twice)
            .zip(self.setting_index(1))
            .and_then(|(at, one)| {
                let pairs = self.rounds.pairs(at, one);
                LabNumber::of(&pairs.map(|(run, one)| late(run, one)).collect::<Vec<_>>())
            });
        let (Some(last), Some(shares)) = (last, shares) else {
            return Answer {
                claim: "A3",
                ours: "nothing".to_owned(),
                verdict: cannot_be_tested(
                    "it was stopped before, or --most is below twice the CPUs",
                ),
            };
        };
        let beyond: Vec<usize> = self
            .settings
            .iter()
            .copied()
            .filter(|n| (self.cpus..=twice).contains(n))
            .collect();
        let grows = beyond.windows(2).filter_map(|pair| {
            let (before, after) = (self.setting_index(pair[0])?, self.setting_index(pair[1])?);
            LabNumber::of(&self.rounds.ratios(after, before, EqualThreadsRun::mean))
        });
        let grows: Vec<LabNumber> = grows.collect();
        let steps: Vec<String> = grows.iter().map(LabNumber::ratio).collect();
        let verdicts = grows
            .iter()
            .map(|step| step.is_within(1.0, f64::INFINITY))
            .chain([
                last.is_within(2.0 * (1.0 - SAME), 2.0 * (1.0 + SAME)),
                shares.is_within(0.9, 1.0),
            ]);
        Answer {
            claim: "A3",
            ours: format!(
                "from {} to {twice} threads the mean grows from step to step by {}; at {twice} it is {} \
                 times that of a single thread, and {} of the threads take twice as long",
                self.cpus,
                or_nothing(&steps.join(", ")),
                last.ratio(),
                shares.percent(),
            ),
            verdict: all_of(verdicts),
        }
    }

    fn a4(&self, experiment: &LoadExperiment<'_>) -> Answer {
        let turns = self.turns();
        let shares: Vec<f64> = self
            .setting_index(self.cpus + 1)
            .into_iter()
            .flat_map(|place| self.rounds.of(place))
            .filter_map(|run| run.turns.as_ref()?.share_of_first())
            .collect();
        let (ours, verdict) = match (turns, LabNumber::of(&shares), experiment.why_unrecorded()) {
            (_, _, Some(why)) => (
                "without a recording nobody can say why they left".to_owned(),
                cannot_be_tested(format!("nothing was recorded: {why}")),
            ),
            (Some(turns), Some(share), None) => turns.answer(&share),
            _ => ("nothing".to_owned(), cannot_be_tested(STOPPED)),
        };
        Answer {
            claim: "A4",
            ours,
            verdict,
        }
    }

    fn a5(&self) -> Answer {
        let own: Vec<&ThreadTimes> = self
            .settings
            .iter()
            .enumerate()
            .flat_map(|(place, _)| self.rounds.of(place))
            .flat_map(|run| run.threads_with(CpuShare::Own))
            .collect();
        let of = |value: &dyn Fn(&ThreadTimes) -> f64| {
            let values: Vec<f64> = own.iter().map(|thread| value(thread)).collect();
            LabNumber::of(&values)
        };
        let rate = of(&|thread| thread.switches / thread.body_ns * 1e9);
        let cost = of(&|thread| thread.switches * MAX_SWITCH_NS / thread.body_ns);
        let off = of(&|thread| (1.0 - thread.cpu_ns / thread.body_ns).max(0.0));
        let (Some(rate), Some(cost), Some(off)) = (rate, cost, off) else {
            return Answer {
                claim: "A5",
                ours: "nothing".to_owned(),
                verdict: cannot_be_tested(STOPPED),
            };
        };
        let some = rate.is_within(f64::MIN_POSITIVE, f64::INFINITY);
        Answer {
            claim: "A5",
            ours: format!(
                "a thread with a CPU of its own is switched {}; at {} each that is {} of its run; off the \
                 CPU, with all that others did then, it is {} of the time ({} runs)",
                rate.rate(),
                Nanos::from_rounded(MAX_SWITCH_NS),
                cost.percent(),
                off.percent(),
                rate.rounds.unwrap_or(0),
            ),
            verdict: all_of([some, cost.is_within(0.0, NEGLIGIBLE)]),
        }
    }

    fn table(&self) -> FindingsTable {
        let mut sheet = Sheet::new("threads", &COLUMNS);
        for (place, threads) in self.settings.iter().enumerate() {
            let mean = LabNumber::of(&self.rounds.values(place, EqualThreadsRun::mean));
            let Some(mean) = mean else { continue };
            let of = |kind| {
                let means = self.rounds.of(place).filter_map(|run| run.mean_of(kind));
                LabNumber::of(&means.collect::<Vec<_>>()).map_or(Cell::Missing, |mean| {
                    Cell::Time(Nanos::from_rounded(mean.point))
                })
            };
            let switches = |run: &EqualThreadsRun| {
                let all: f64 = run.threads.iter().map(|thread| thread.switches).sum();
                all / run.threads.len() as f64
            };
            let switches = LabNumber::of(&self.rounds.values(place, switches));
            let end = |end: Option<f64>| Cell::time(end.map(Nanos::from_rounded));
            let over_one = self.over_one(*threads, |run| Some(run.mean()));
            sheet.rows.push(vec![
                Cell::Count(*threads as u64),
                Cell::Time(Nanos::from_rounded(mean.point)),
                end(mean.ends().map(|ends| ends.0)),
                end(mean.ends().map(|ends| ends.1)),
                over_one.map_or(Cell::Missing, |ratio| Cell::Ratio(ratio.point)),
                Cell::Ratio(ideal(*threads, self.cpus)),
                of(CpuShare::Own),
                of(CpuShare::Shared),
                switches.map_or(Cell::Missing, |switches| Cell::Ratio(switches.point)),
                mean.rounds_cell(),
            ]);
        }
        sheet.notes.push(format!(
            "{}; medians of rounds, with the interval of the mean",
            swtch_output::text::counted(self.cpus as u64, "CPU")
        ));
        FindingsTable {
            title: "how long the threads took".to_owned(),
            sheet,
        }
    }

    fn picture(&self, experiment: &LoadExperiment<'_>) -> Picture {
        let one = self
            .setting_index(1)
            .map(|place| self.rounds.values(place, EqualThreadsRun::mean));
        let one = one
            .and_then(|values| LabNumber::of(&values))
            .map(|one| one.point);
        let settings = || self.settings.iter().copied().enumerate();
        let dot = |threads: usize, y: f64, interval| Dot {
            x: threads as f64,
            y,
            interval,
        };
        let means = settings().filter_map(|(place, threads)| {
            let mean = LabNumber::of(&self.rounds.values(place, EqualThreadsRun::mean))?;
            Some(dot(threads, mean.point, mean.ends()))
        });
        let singles = settings().flat_map(|(place, threads)| {
            let count = self
                .rounds
                .of(place)
                .next()
                .map_or(0, |run| run.threads.len());
            (0..count).filter_map(move |index| {
                let times = self.rounds.values(place, |run| run.threads[index].time_ns);
                Some(dot(threads, LabNumber::of(&times)?.point, None))
            })
        });
        let ideals = settings()
            .filter_map(|(_, threads)| Some(dot(threads, one? * ideal(threads, self.cpus), None)));
        let line = |label: &str, style, points| Line {
            label: label.to_owned(),
            style,
            colour: None,
            points,
        };
        let lines = vec![
            line("ideal mean", Style::Ideal, ideals.collect()),
            line("each thread", Style::Scattered, singles.collect()),
            line("mean of all", Style::Measured, means.collect()),
        ];
        Picture {
            name: "oversubscribe".to_owned(),
            title: "Time of N equal busy threads, dealt to the CPUs round robin".to_owned(),
            subtitle: experiment.subtitle(),
            explanation: "a point: median of the rounds; bars: 95 % interval of the median"
                .to_owned(),
            notes: Vec::new(),
            content: Content::Chart(Chart {
                x: Axis {
                    name: "threads".to_owned(),
                    measure: Measure::Count,
                    scale: Scale::Linear,
                },
                y: Axis {
                    name: "from the start to the end of a thread".to_owned(),
                    measure: Measure::Time,
                    scale: Scale::Linear,
                },
                lines,
                marks: vec![Mark {
                    at: self.cpus as f64,
                    label: "CPUs".to_owned(),
                }],
            }),
        }
    }

    /// The last round with one thread more than CPUs, over time.
    fn timeline(&self, experiment: &LoadExperiment<'_>) -> Option<Picture> {
        let run = self.rounds.of(self.setting_index(self.cpus + 1)?).last()?;
        let lanes = run.timeline.clone()?;
        Some(Picture {
            name: "oversubscribe-timeline".to_owned(),
            title: format!("{} threads on {} CPUs, over time", self.cpus + 1, self.cpus),
            subtitle: experiment.subtitle(),
            explanation: "from its begin to its end, as the recorder saw it in the last round"
                .to_owned(),
            notes: Vec::new(),
            content: Content::Lanes(lanes),
        })
    }
}

const COLUMNS: [&str; 10] = [
    "threads",
    "mean_ns",
    "low_ns",
    "high_ns",
    "over_one",
    "ideal",
    "own_cpu_ns",
    "shared_cpu_ns",
    "switches_per_thread",
    "rounds",
];

fn timeline(evidence: &LoadRuns, members: &[PlayedMember]) -> Lanes {
    let label = |member: &PlayedMember| match member.cpu {
        Some(cpu) => format!("thread {} on CPU {cpu}", member.index),
        None => format!("thread {}", member.index),
    };
    let labels: Vec<(usize, String)> = members.iter().map(label).enumerate().collect();
    evidence.lanes(&labels)
}

/// The ideal mean time, relative to a single thread, of threads that are dealt round robin and take
/// turns fairly: each of the k threads of a CPU takes k times as long.
fn ideal(threads: usize, cpus: usize) -> f64 {
    let (each, more) = (threads / cpus, threads % cpus);
    let sum = more * (each + 1).pow(2) + (cpus - more) * each.pow(2);
    sum as f64 / threads as f64
}

fn or_nothing(words: &str) -> &str {
    if words.is_empty() { "nothing" } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_is_one_up_to_the_cpus_and_two_at_twice_as_many() {
        assert_eq!([1, 2, 4].map(|n| ideal(n, 4)), [1.0; 3]);
        assert_eq!(ideal(8, 4), 2.0);
        // Two of five take twice as long.
        assert_eq!(ideal(5, 4), 7.0 / 5.0);
        assert_eq!(ideal(3, 1), 3.0);
    }

    #[test]
    fn large_machines_are_not_played_thread_by_thread() {
        assert_eq!(settings(2, 5), [1, 2, 3, 4, 5]);
        assert_eq!(settings(64, 129), [1, 32, 64, 65, 96, 128, 129]);
    }

    /// A run of threads, each given as the number of threads on its CPU and its time in ns.
    fn run(threads: &[(usize, f64)]) -> EqualThreadsRun {
        let took = |(on_its_cpu, time_ns): &(usize, f64)| ThreadTimes {
            on_its_cpu: *on_its_cpu,
            time_ns: *time_ns,
            body_ns: *time_ns,
            cpu_ns: 100.0,
            switches: 1.0,
        };
        EqualThreadsRun {
            threads: threads.iter().map(took).collect(),
            turns: None,
            timeline: None,
        }
    }

    fn runs(third: f64) -> EqualThreadsRuns {
        let rounds = |run: &dyn Fn() -> EqualThreadsRun| (0..6).map(|_| Some(run())).collect();
        let one = || run(&[(1, 100.0)]);
        let three = || run(&[(2, 200.0), (1, third), (2, 202.0)]);
        EqualThreadsRuns {
            cpus: 2,
            settings: vec![1, 3],
            rounds: Rounds::of_plays(vec![rounds(&one), rounds(&three)]),
        }
    }

    #[test]
    fn those_that_share_take_twice_and_the_others_do_not() {
        assert_eq!(runs(101.0).a2().verdict, Verdict::Holds);
        assert_eq!(runs(150.0).a2().verdict, Verdict::DoesNotHold);
        let ours = runs(101.0).a2().ours;
        assert!(
            ours.contains("those that share take 2.01 (2.01 … 2.01) times"),
            "{ours}"
        );
    }

    #[test]
    fn what_was_not_played_is_not_judged() {
        assert!(matches!(
            runs(101.0).a1().verdict,
            Verdict::CannotBeTested(_)
        ));
        assert!(matches!(
            runs(101.0).a3().verdict,
            Verdict::CannotBeTested(_)
        ));
    }
}

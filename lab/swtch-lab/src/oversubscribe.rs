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

use super::claims::list;
use super::context::{ExperimentContext, RecordingChoice};
use super::evidence::LoadRuns;
use super::findings::{Findings, FindingsTable};
use super::load_experiment::{LoadExperiment, PlayResult, Rounds};
use super::measured::LabNumber;
use super::parameters::{ParameterValue, Parameters};
use super::quantities::Quantities;
use turns::Turns;

mod priority;
mod turns;

/// The file of the experiment.
pub const FILE: &str = include_str!("../experiments/oversubscribe.toml");

/// Most settings that are played: large machines leave some numbers of threads out.
const MAX_SETTINGS: usize = 9;

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
            answers: self
                .quantities(experiment.why_unrecorded())
                .answers("oversubscribe"),
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

    fn quantities(&self, why_unrecorded: Option<&str>) -> Quantities {
        let mut all = Quantities::of_loads();
        all.words("cpus", self.cpus);
        all.words("crowded", self.cpus + 1);
        all.words("twice", 2 * self.cpus);
        let slowest = |run: &EqualThreadsRun| run.times().reduce(f64::max);
        let upto = self.settings.iter().filter(|n| (2..=self.cpus).contains(n));
        let upto = upto.map(|n| (format!("{n} threads"), self.over_one(*n, slowest)));
        all.list("slowest", upto);
        if self.cpus == 1 {
            all.cannot("A1", "nothing", "one CPU only may be used");
        }
        let mean_of = |kind| self.over_one(self.cpus + 1, |run| run.mean_of(kind));
        all.number("shared", mean_of(CpuShare::Shared));
        all.optional("own", mean_of(CpuShare::Own));
        self.add_growth(&mut all);
        self.add_turns(&mut all, why_unrecorded);
        self.add_own_switches(&mut all);
        all
    }

    /// What A3 asks: how the mean grows up to twice as many threads as CPUs.
    fn add_growth(&self, all: &mut Quantities) {
        let twice = 2 * self.cpus;
        if self.setting_index(twice).is_none() {
            let why = "it was stopped before, or --most is below twice the CPUs";
            all.cannot("A3", "nothing", why);
        }
        let beyond = self.settings.iter().copied();
        let beyond: Vec<usize> = beyond.filter(|n| (self.cpus..=twice).contains(n)).collect();
        let ratios = |pair: &[usize]| {
            let (before, after) = (self.setting_index(pair[0])?, self.setting_index(pair[1])?);
            LabNumber::of(&self.rounds.ratios(after, before, EqualThreadsRun::mean))
        };
        all.list(
            "steps",
            beyond.windows(2).map(|pair| (String::new(), ratios(pair))),
        );
        all.number("mean", self.over_one(twice, |run| Some(run.mean())));
        let nearly_twice = list::claim("A3").given("nearly-twice");
        let late = |(run, one): (&EqualThreadsRun, &EqualThreadsRun)| {
            let late = run
                .times()
                .filter(|time| *time >= nearly_twice * one.mean());
            late.count() as f64 / run.threads.len() as f64
        };
        if let (Some(at), Some(one)) = (self.setting_index(twice), self.setting_index(1)) {
            let late = self.rounds.pairs(at, one).map(late);
            all.number("late", LabNumber::of(&late.collect::<Vec<_>>()));
        }
    }

    /// What A4 asks.
    fn add_turns(&self, all: &mut Quantities, why_unrecorded: Option<&str>) {
        if let Some(why) = why_unrecorded {
            let ours = "without a recording nobody can say why they left";
            all.cannot("A4", ours, format!("nothing was recorded: {why}"));
        }
        let place = self.setting_index(self.cpus + 1).into_iter();
        let runs = place.flat_map(|place| self.rounds.of(place));
        let shares = runs.filter_map(|run| run.turns.as_ref()?.share_of_first());
        all.number("first", LabNumber::of(&shares.collect::<Vec<_>>()));
        if let Some(turns) = self.turns() {
            turns.add_to(all);
        }
    }

    /// What A5 asks of the threads with a CPU of their own.
    fn add_own_switches(&self, all: &mut Quantities) {
        let runs = (0..self.settings.len()).flat_map(|place| self.rounds.of(place));
        let own: Vec<&ThreadTimes> = runs
            .flat_map(|run| run.threads_with(CpuShare::Own))
            .collect();
        let of = |value: &dyn Fn(&ThreadTimes) -> f64| {
            LabNumber::of(&own.iter().map(|thread| value(thread)).collect::<Vec<_>>())
        };
        let switch_ns = list::claim("A5").given("switch-us") * 1e3;
        let per_ns = of(&|thread| thread.switches / thread.body_ns);
        all.number("switched", per_ns.map(|one| one.scaled(1e9, 0.0)));
        all.number("cost", per_ns.map(|one| one.scaled(switch_ns, 0.0)));
        let off = of(&|thread| (1.0 - thread.cpu_ns / thread.body_ns).max(0.0));
        all.number("off", off);
        all.words("runs", own.len());
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
        FindingsTable::new("how long the threads took", sheet)
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
        let lines = vec![
            Line::new("ideal mean", Style::Ideal, ideals),
            Line::new("each thread", Style::Scattered, singles),
            Line::new("mean of all", Style::Measured, means),
        ];
        Picture {
            name: "oversubscribe".to_owned(),
            title: "Time of N equal busy threads, dealt to the CPUs round robin".to_owned(),
            subtitle: experiment.subtitle(),
            explanation: "a point: median of the rounds; bars: 95 % interval of the median"
                .to_owned(),
            notes: Vec::new(),
            content: Content::Chart(Chart {
                x: Axis::new("threads", Measure::Count, Scale::Linear),
                y: Axis::new(
                    "from the start to the end of a thread",
                    Measure::Time,
                    Scale::Linear,
                ),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Answer, Verdict};

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

    fn answer(runs: &EqualThreadsRuns, claim: &str) -> Answer {
        runs.quantities(None).answer(claim)
    }

    #[test]
    fn those_that_share_take_twice_and_the_others_do_not() {
        let of_third = |third| answer(&runs(third), "A2");
        assert_eq!(of_third(101.0).verdict, Verdict::Holds);
        assert_eq!(of_third(150.0).verdict, Verdict::DoesNotHold);
        let ours = of_third(101.0).ours;
        assert!(
            ours.contains("those that share take 2.01 (2.01 … 2.01) times"),
            "{ours}"
        );
    }

    #[test]
    fn what_was_not_played_is_not_judged() {
        for claim in ["A1", "A3"] {
            let verdict = answer(&runs(101.0), claim).verdict;
            assert!(matches!(verdict, Verdict::CannotBeTested(_)), "{claim}");
        }
    }
}

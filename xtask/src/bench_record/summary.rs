//! Turns runs into numbers: each arm against the bare run of its own round, and the targets.

use serde_json::{Value, json};
use swtch_core::stats::quantile;

use super::PlacedRun;
use super::benchmark::Benchmark;
use super::tool::{Lost, Tool};

/// Median and extremes of one quantity over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub min: f64,
    /// The middle value; for an even number of values, the mean of the two in the middle.
    pub median: f64,
    pub max: f64,
}

impl Spread {
    /// The spread of these values; `None` if there are none. What is no number (a rate over no
    /// switches) is left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        let [min, middle, max] = [0.0, 0.5, 1.0].map(|at| quantile(&values, at));
        Some(Self {
            min: min?,
            median: middle?,
            max: max?,
        })
    }

    fn to_json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

/// One line of the table: a benchmark under a tool, over all rounds.
#[derive(Debug)]
pub struct ToolSummary {
    pub benchmark: Benchmark,
    pub tool: Tool,
    /// CPU time of the benchmark, as a ratio to the bare run of the same round.
    pub cpu_ratio: Option<Spread>,
    /// CPU time in ns that the tool added to the benchmark, for each switch.
    pub extra_ns_per_switch: Option<Spread>,
    /// The benchmark's switches per second, by the kernel's count.
    pub switches_per_s: Spread,
    /// CPU time of the tool itself.
    pub tool_cpu_ms: Spread,
    /// CPUs that the tool keeps busy at 100,000 switches per second.
    pub tool_cores_per_100k: Spread,
    /// Peak memory of the tool, in MB; `None` for bare runs.
    pub tool_peak_rss_mb: Option<Spread>,
    /// Size of the recording on disk per recorded switch.
    pub bytes_per_switch: Option<Spread>,
    /// Recorded switches in percent of those that the kernel counted for the benchmark; `None` if
    /// the tool records other tasks as well.
    pub recorded_pct: Option<Spread>,
    /// The losses of all rounds together.
    pub lost: Option<Lost>,
}

/// One summary for each benchmark and tool, in the order of the first round.
pub fn of(trials: &[PlacedRun]) -> Vec<ToolSummary> {
    let arms = trials.iter().filter(|trial| trial.round == 0);
    arms.map(|arm| summary(trials, arm.benchmark, arm.tool))
        .collect()
}

fn summary(trials: &[PlacedRun], benchmark: Benchmark, tool: Tool) -> ToolSummary {
    let arm: Vec<&PlacedRun> = trials
        .iter()
        .filter(|trial| trial.benchmark == benchmark && trial.tool == tool)
        .collect();
    let pairs: Vec<(&PlacedRun, &PlacedRun)> = arm
        .iter()
        .filter_map(|trial| Some((*trial, bare_of_the_same_round(trials, trial)?)))
        .collect();
    let spread =
        |value: fn(&PlacedRun) -> Option<f64>| Spread::of(arm.iter().copied().filter_map(value));
    let always = |value: fn(&PlacedRun) -> f64| {
        Spread::of(arm.iter().copied().map(value)).expect("an arm has at least one run")
    };
    ToolSummary {
        benchmark,
        tool,
        cpu_ratio: Spread::of(pairs.iter().map(|(trial, bare)| cpu_ratio(trial, bare))),
        extra_ns_per_switch: Spread::of(pairs.iter().map(|(trial, bare)| extra_ns(trial, bare))),
        switches_per_s: always(switches_per_s),
        tool_cpu_ms: always(|trial| float(trial.run.tool_cpu_ns) / 1e6),
        tool_cores_per_100k: always(tool_cores_per_100k),
        tool_peak_rss_mb: spread(|trial| Some(float(trial.run.tool_peak_rss_bytes?) / 1e6)),
        bytes_per_switch: spread(bytes_per_switch),
        recorded_pct: spread(recorded_pct),
        lost: lost(&arm),
    }
}

fn bare_of_the_same_round<'a>(trials: &'a [PlacedRun], of: &PlacedRun) -> Option<&'a PlacedRun> {
    trials.iter().find(|trial| {
        trial.tool == Tool::Bare && trial.round == of.round && trial.benchmark == of.benchmark
    })
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn float(count: u64) -> f64 {
    count as f64
}

fn cpu_ratio(trial: &PlacedRun, bare: &PlacedRun) -> f64 {
    float(trial.run.benchmark.cpu_ns) / float(bare.run.benchmark.cpu_ns)
}

fn extra_ns(trial: &PlacedRun, bare: &PlacedRun) -> f64 {
    let extra = float(trial.run.benchmark.cpu_ns) - float(bare.run.benchmark.cpu_ns);
    extra / float(trial.run.benchmark.switches)
}

fn switches_per_s(trial: &PlacedRun) -> f64 {
    let benchmark = trial.run.benchmark;
    float(benchmark.switches) / (float(benchmark.wall_ns) / 1e9)
}

/// CPUs are CPU seconds per second, so the rate cancels out: CPU seconds per 100,000 switches.
fn tool_cores_per_100k(trial: &PlacedRun) -> f64 {
    float(trial.run.tool_cpu_ns) / 1e9 / (float(trial.run.benchmark.switches) / 1e5)
}

fn bytes_per_switch(trial: &PlacedRun) -> Option<f64> {
    let recorded = trial.run.recorded?;
    (recorded.switches > 0).then(|| float(recorded.bytes) / float(recorded.switches))
}

fn recorded_pct(trial: &PlacedRun) -> Option<f64> {
    let recorded = trial
        .run
        .recorded
        .filter(|_| trial.tool.records_the_command_only())?;
    Some(100.0 * float(recorded.switches) / float(trial.run.benchmark.switches))
}

fn lost(arm: &[&PlacedRun]) -> Option<Lost> {
    let lost: Vec<Lost> = arm
        .iter()
        .filter_map(|trial| Some(trial.run.recorded?.lost))
        .collect();
    let worst = lost.iter().max_by_key(|lost| lost.count)?;
    let count = lost.iter().map(|lost| lost.count).sum();
    Some(Lost {
        count,
        unit: worst.unit,
    })
}

impl ToolSummary {
    /// The line as an entry of `summary` in the JSON file; null where a number does not apply.
    pub fn to_json(&self) -> Value {
        let spread = |spread: Option<Spread>| spread.map(Spread::to_json);
        json!({
            "benchmark": self.benchmark.to_string(),
            "tool": self.tool.to_string(),
            "cpu_ratio": spread(self.cpu_ratio),
            "extra_ns_per_switch": spread(self.extra_ns_per_switch),
            "switches_per_s": self.switches_per_s.to_json(),
            "tool_cpu_ms": self.tool_cpu_ms.to_json(),
            "tool_cores_per_100k_switches_per_s": self.tool_cores_per_100k.to_json(),
            "tool_peak_rss_mb": spread(self.tool_peak_rss_mb),
            "bytes_per_switch": spread(self.bytes_per_switch),
            "recorded_pct": spread(self.recorded_pct),
            "lost": self.lost.map(|lost| lost.count),
            "lost_unit": self.lost.map(|lost| lost.unit),
        })
    }
}

/// A target number and the measured one.
#[derive(Debug)]
pub struct TargetNumber {
    /// The quantity in words, with its benchmark.
    pub what: &'static str,
    /// The target number, and which side of it is good.
    pub bound: Bound,
    /// `None` when it was not measured.
    pub measured: Option<f64>,
}

/// Which side of a number is good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Good up to this number, inclusive.
    AtMost(f64),
    /// Good from this number on, inclusive.
    AtLeast(f64),
}

impl TargetNumber {
    /// True if the measured number is on the good side; `None` if it was not measured.
    pub fn holds(&self) -> Option<bool> {
        self.measured.map(|measured| match self.bound {
            Bound::AtMost(most) => measured <= most,
            Bound::AtLeast(least) => measured >= least,
        })
    }

    /// The target as an entry of `targets` in the JSON file.
    pub fn to_json(&self) -> Value {
        let (side, number) = match self.bound {
            Bound::AtMost(most) => ("at_most", most),
            Bound::AtLeast(least) => ("at_least", least),
        };
        json!({ "what": self.what, side: number, "measured": self.measured, "holds": self.holds() })
    }
}

/// The targets of recording: the pipe benchmark may lose 16 % of its time at 400,000 switches
/// without stacks, less than under any peer that keeps every switch. The others keep the recorder
/// small compared with what it records.
pub fn targets(summaries: &[ToolSummary]) -> Vec<TargetNumber> {
    let of = |benchmark, tool| {
        summaries
            .iter()
            .find(|one| one.benchmark == benchmark && one.tool == tool)
    };
    let pipe = of(Benchmark::Pipe, Tool::Swtch);
    let stacks = of(Benchmark::Pipe, Tool::SwtchStacks);
    let messaging = of(Benchmark::Messaging, Tool::Swtch);
    let storm = of(Benchmark::Storm, Tool::Swtch);
    let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
    let target = |what, bound, measured| TargetNumber {
        what,
        bound,
        measured,
    };
    vec![
        target(
            "pipe: CPU time, ratio to bare",
            Bound::AtMost(1.16),
            pipe.and_then(|one| median(one.cpu_ratio)),
        ),
        target(
            "pipe: CPU time with stacks, ratio to bare",
            Bound::AtMost(1.6),
            stacks.and_then(|one| median(one.cpu_ratio)),
        ),
        target(
            "pipe: bytes per switch",
            Bound::AtMost(12.0),
            pipe.and_then(|one| median(one.bytes_per_switch)),
        ),
        target(
            "messaging: bytes per switch",
            Bound::AtMost(12.0),
            messaging.and_then(|one| median(one.bytes_per_switch)),
        ),
        target(
            "storm: switches per second",
            Bound::AtLeast(1e6),
            storm.map(|one| one.switches_per_s.median),
        ),
        target(
            "storm: recorder's cores per 100,000 switches/s",
            Bound::AtMost(0.1),
            storm.map(|one| one.tool_cores_per_100k.median),
        ),
        target(
            "storm: recorder's peak memory, MB",
            Bound::AtMost(200.0),
            storm.and_then(|one| Some(one.tool_peak_rss_mb?.max)),
        ),
        target(
            "switches lost, all runs of swtch",
            Bound::AtMost(0.0),
            lost_by_swtch(summaries),
        ),
    ]
}

fn lost_by_swtch(summaries: &[ToolSummary]) -> Option<f64> {
    let ours = summaries
        .iter()
        .filter(|one| one.tool.records_the_command_only());
    ours.filter_map(|one| one.lost)
        .map(|lost| float(lost.count))
        .reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_record::measure::RunMeasurements;
    use crate::bench_record::tool::RecordingTotals;
    use crate::cputime::CpuTime;

    /// A run of the pipe benchmark: `cpu_ms` for 1,000 switches in one second.
    fn trial(round: usize, tool: Tool, cpu_ms: u64) -> PlacedRun {
        let lost = Lost {
            count: 1,
            unit: "switches",
        };
        let recorded = RecordingTotals {
            switches: 999,
            bytes: 9_990,
            lost,
        };
        let benchmark = CpuTime {
            cpu_ns: cpu_ms * 1_000_000,
            wall_ns: 1_000_000_000,
            switches: 1_000,
            peak_bytes: 0,
        };
        let run = RunMeasurements {
            benchmark,
            tool_cpu_ns: 2_000_000,
            tool_peak_rss_bytes: Some(5_000_000),
            recorded: (tool != Tool::Bare).then_some(recorded),
        };
        PlacedRun {
            round,
            benchmark: Benchmark::Pipe,
            tool,
            run,
        }
    }

    /// The machine is half as fast in round 2: ratios within a round are not affected, while the
    /// ratio of the medians over all rounds would be.
    fn slow_second_round() -> Vec<PlacedRun> {
        vec![
            trial(0, Tool::Bare, 100),
            trial(0, Tool::Swtch, 110),
            trial(1, Tool::Swtch, 240),
            trial(1, Tool::Bare, 200),
            trial(2, Tool::Bare, 100),
            trial(2, Tool::Swtch, 115),
        ]
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn arm_is_compared_with_bare_of_its_own_round() {
        let summaries = of(&slow_second_round());
        let ratio = summaries[1].cpu_ratio.unwrap();
        assert!(near(ratio.min, 1.10) && near(ratio.median, 1.15) && near(ratio.max, 1.20));
        assert!(near(summaries[0].cpu_ratio.unwrap().max, 1.0));
    }

    #[test]
    fn extra_time_is_told_for_each_switch() {
        let extra = of(&slow_second_round())[1].extra_ns_per_switch.unwrap();
        assert!(
            near(extra.median, 15_000.0) && near(extra.max, 40_000.0),
            "{extra:?}"
        );
    }

    #[test]
    fn recording_is_summed_over_rounds() {
        let swtch = &of(&slow_second_round())[1];
        assert_eq!(
            swtch.lost,
            Some(Lost {
                count: 3,
                unit: "switches"
            })
        );
        assert!(near(swtch.bytes_per_switch.unwrap().median, 10.0));
        assert!(near(swtch.recorded_pct.unwrap().median, 99.9));
        assert!(near(swtch.tool_cores_per_100k.median, 0.2));
    }

    #[test]
    fn median_of_an_even_number_lies_between() {
        let spread = Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(
            spread,
            Spread {
                min: 1.0,
                median: 2.5,
                max: 4.0
            }
        );
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn target_that_was_not_measured_neither_holds_nor_fails() {
        let summaries = of(&slow_second_round());
        let targets = targets(&summaries);
        let verdict = |what: &str| targets.iter().find(|one| one.what == what).unwrap().holds();
        assert_eq!(verdict("pipe: CPU time, ratio to bare"), Some(true));
        assert_eq!(verdict("switches lost, all runs of swtch"), Some(false));
        assert_eq!(verdict("storm: switches per second"), None);
    }
}

//! The cost of many switches (D5): very many processes against one per CPU, with the same work in
//! all.

use std::fmt;

use anyhow::Result;
use swtch_core::Nanos;
use swtch_report::report::{Cell, Sheet};

use super::jobs_result::JobsResult;
use crate::claim::{Answer, Verdict};
use crate::context::RecordingChoice;
use crate::findings::{Findings, FindingsTable};
use crate::load_experiment::{LoadExperiment, Rounds};
use crate::measured::{LabNumber, STOPPED, cannot_be_tested};
use crate::parameters::{ParameterValue, Parameters};

/// A number of processes, and the work of each.
#[derive(Clone, Copy, Debug)]
struct ProcessSet {
    processes: u64,
    work: Nanos,
}

impl fmt::Display for ProcessSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} processes of {} each", self.processes, self.work)
    }
}

/// Plays one process per CPU and very many processes, and answers D5.
///
/// # Errors
/// A load cannot be played.
pub fn add(
    experiment: &mut LoadExperiment<'_>,
    parameters: &Parameters,
    findings: &mut Findings,
) -> Result<()> {
    let (many, each) = (parameters.count("crowd"), parameters.time("crowd-work"));
    let cpus = experiment.cpus()?;
    let few = cpus as u64;
    if many <= few || experiment.was_interrupted() {
        findings.answers.push(Answer {
            claim: "D5",
            ours: "not played".to_owned(),
            verdict: match many <= few {
                true => cannot_be_tested("--crowd is no more than the CPUs"),
                false => cannot_be_tested(STOPPED),
            },
        });
        return Ok(());
    }
    let each = Nanos::from_ns(u64::try_from(each.as_nanos())?);
    let sets = [
        ProcessSet {
            processes: few,
            work: Nanos::from_ns(each.as_ns() * many / few),
        },
        ProcessSet {
            processes: many,
            work: each,
        },
    ];
    let rounds = experiment.rounds(&sets, parameters.count("rounds"), |experiment, set| {
        let changed = [
            ("processes", ParameterValue::Count(set.processes)),
            (
                "work",
                ParameterValue::Time(std::time::Duration::from_nanos(set.work.as_ns())),
            ),
        ];
        let result = experiment.play("all-cpus", &changed, RecordingChoice::Unwanted)?;
        Ok(result.map(|result| JobsResult::of(&result.played, cpus)))
    })?;
    findings.answers.push(answer(&rounds, many, few));
    findings.tables.push(table(&rounds, sets));
    Ok(())
}

/// How much throughput very many processes cost. Both do the same work, so the makespans show it.
fn answer(rounds: &Rounds<JobsResult>, many: u64, few: u64) -> Answer {
    let ratios = |value: fn(&JobsResult) -> f64| LabNumber::of(&rounds.ratios(1, 0, value));
    let speed = LabNumber::of(&rounds.ratios(0, 1, JobsResult::makespan));
    let cpu = ratios(JobsResult::cpu);
    let (Some(speed), Some(cpu)) = (speed, cpu) else {
        return Answer {
            claim: "D5",
            ours: "not played".to_owned(),
            verdict: cannot_be_tested(STOPPED),
        };
    };
    let switches = |setting| LabNumber::of(&rounds.values(setting, |jobs| jobs.switches));
    let switches = [1, 0].map(|setting| switches(setting).map_or(0.0, |number| number.point));
    let verdict = match speed.is_within(f64::NEG_INFINITY, 1.0) {
        Verdict::Undecided(_) if speed.interval.is_some() => Verdict::Undecided(
            "more and less are both possible: what is lost is less than can be resolved".to_owned(),
        ),
        verdict => verdict,
    };
    let lost = |speed: f64| 1.0 - speed;
    let lost = LabNumber {
        point: lost(speed.point),
        interval: speed
            .interval
            .map(|speed| swtch_core::stats::ConfidenceInterval {
                low: lost(speed.high),
                high: lost(speed.low),
            }),
        rounds: speed.rounds,
    };
    let more_cpu = LabNumber {
        point: cpu.point - 1.0,
        interval: cpu
            .interval
            .map(|cpu| swtch_core::stats::ConfidenceInterval {
                low: cpu.low - 1.0,
                high: cpu.high - 1.0,
            }),
        rounds: cpu.rounds,
    };
    Answer {
        claim: "D5",
        ours: format!(
            "{many} processes lose {} of the throughput of {few} with the same work; their CPU time is {} \
             more; {:.0} switches instead of {:.0}",
            lost.percent(),
            more_cpu.percent(),
            switches[0],
            switches[1],
        ),
        verdict,
    }
}

fn table(rounds: &Rounds<JobsResult>, sets: [ProcessSet; 2]) -> FindingsTable {
    let mut sheet = Sheet::new(
        "crowd",
        &[
            "processes",
            "work_ns",
            "makespan_ns",
            "low_ns",
            "high_ns",
            "cpu_ns",
            "switches",
            "fairness",
            "overhead_pct",
            "rounds",
        ],
    );
    for (setting, set) in sets.iter().enumerate() {
        let of = |value: fn(&JobsResult) -> f64| LabNumber::of(&rounds.values(setting, value));
        let Some(makespan) = of(JobsResult::makespan) else {
            continue;
        };
        let time = |ns: Option<f64>| Cell::time(ns.map(Nanos::from_rounded));
        let number = |value: fn(&JobsResult) -> f64| of(value).map(|number| number.point);
        sheet.rows.push(vec![
            Cell::Count(set.processes),
            Cell::Time(set.work),
            time(Some(makespan.point)),
            time(makespan.ends().map(|ends| ends.0)),
            time(makespan.ends().map(|ends| ends.1)),
            time(number(JobsResult::cpu)),
            number(|jobs| jobs.switches).map_or(Cell::Missing, Cell::Ratio),
            number(JobsResult::fairness).map_or(Cell::Missing, Cell::Ratio),
            number(JobsResult::overhead)
                .map_or(Cell::Missing, |share| Cell::Percent(share * 100.0)),
            makespan.rounds_cell(),
        ]);
    }
    FindingsTable {
        title: "the same work by few and by very many processes, on all CPUs".to_owned(),
        sheet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(few: [f64; 6], many: [f64; 6]) -> Rounds<JobsResult> {
        let jobs = |makespan: f64| {
            Some(JobsResult {
                turnarounds: vec![makespan],
                cpu_ns: vec![100.0],
                switches: 7.0,
                used_cpus: 1.0,
            })
        };
        Rounds::of_plays(vec![
            few.into_iter().map(jobs).collect(),
            many.into_iter().map(jobs).collect(),
        ])
    }

    #[test]
    fn a_longer_makespan_is_lost_throughput() {
        let answer = answer(&rounds([100.0; 6], [125.0; 6]), 64, 2);
        assert!(
            answer
                .ours
                .contains("64 processes lose 20.00 % (20.00 % … 20.00 %)"),
            "{}",
            answer.ours
        );
        assert_eq!(answer.verdict, Verdict::Holds);
    }

    #[test]
    fn a_loss_that_is_lost_in_the_noise_is_open() {
        let many = [99.0, 101.0, 102.0, 98.0, 101.0, 100.5];
        let answer = answer(&rounds([100.0; 6], many), 64, 2);
        assert!(matches!(answer.verdict, Verdict::Undecided(_)));
    }
}

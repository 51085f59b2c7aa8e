//! The cost of many switches (D5): very many processes against one per CPU, with the same work in
//! all.

use std::fmt;

use anyhow::Result;
use swtch_core::Nanos;
use swtch_report::report::{Cell, Sheet};

use super::jobs_result::JobsResult;
use crate::context::RecordingChoice;
use crate::findings::{Findings, FindingsTable};
use crate::load_experiment::{LoadExperiment, Rounds};
use crate::measured::LabNumber;
use crate::parameters::{ParameterValue, Parameters};
use crate::quantities::Quantities;

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
    quantities: &mut Quantities,
    findings: &mut Findings,
) -> Result<()> {
    let (many, each) = (parameters.count("crowd"), parameters.time("crowd-work"));
    let cpus = experiment.cpus()?;
    let few = cpus as u64;
    if many <= few {
        quantities.cannot("D5", "not played", "--crowd is no more than the CPUs");
    }
    if many <= few || experiment.was_interrupted() {
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
    add_loss(&rounds, many, few, quantities);
    findings.tables.push(table(&rounds, sets));
    Ok(())
}

/// How much throughput very many processes cost. Both do the same work, so the makespans show it.
fn add_loss(rounds: &Rounds<JobsResult>, many: u64, few: u64, all: &mut Quantities) {
    let speed = LabNumber::of(&rounds.ratios(0, 1, JobsResult::makespan));
    let cpu = LabNumber::of(&rounds.ratios(1, 0, JobsResult::cpu));
    all.number("speed", speed);
    all.number("lost", speed.map(|speed| speed.scaled(-1.0, 1.0)));
    all.number("more-cpu", cpu.map(|cpu| cpu.scaled(1.0, -1.0)));
    all.words("many", many);
    all.words("few", few);
    let switches = [1, 0].map(|setting| {
        let switches = LabNumber::of(&rounds.values(setting, |jobs| jobs.switches));
        switches.map_or(0.0, |number| number.point)
    });
    let words = format!("{:.0} switches instead of {:.0}", switches[0], switches[1]);
    all.words("switches", words);
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
    FindingsTable::new(
        "the same work by few and by very many processes, on all CPUs",
        sheet,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Answer, Verdict};

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

    fn answer(many: [f64; 6]) -> Answer {
        let mut all = Quantities::of_loads();
        add_loss(&rounds([100.0; 6], many), 64, 2, &mut all);
        all.answer("D5")
    }

    #[test]
    fn a_longer_makespan_is_lost_throughput() {
        let Answer { ours, verdict, .. } = answer([125.0; 6]);
        assert!(
            ours.contains("64 processes lose 20.00 % (20.00 % … 20.00 %)"),
            "{ours}"
        );
        assert_eq!(verdict, Verdict::Holds);
    }

    #[test]
    fn a_loss_that_is_lost_in_the_noise_is_open() {
        let many = [99.0, 101.0, 102.0, 98.0, 101.0, 100.5];
        assert!(matches!(answer(many).verdict, Verdict::Undecided(_)));
    }
}

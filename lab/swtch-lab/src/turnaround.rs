//! `swtch lab turnaround`: how long busy processes wait for each other (claims D1 to D6).
//!
//! ```text
//!               start                                      end
//!  job 0   ──────┼▓▓▓▓    ▓▓▓▓    ▓▓▓▓┤                     turnaround of job 0
//!  job 1   ──────┼    ▓▓▓▓    ▓▓▓▓    ▓▓▓▓┤                turnaround of job 1
//!                │◀──────── makespan ────▶│                throughput = jobs / makespan
//! ```
//!
//! `jobs_result` holds the results of one play, `curve` their course over the number of processes,
//! `crowd` compares very many processes with few, `gaps` shows what a process sees of its own
//! switches.

use std::fmt;

use anyhow::Result;

use super::context::{ExperimentContext, RecordingChoice};
use super::cpu_choice::CpuChoice;
use super::findings::Findings;
use super::load_experiment::LoadExperiment;
use super::parameters::{ParameterValue, Parameters};
use super::quantities::Quantities;
use super::smt::SmtOff;
use curve::Curves;
use jobs_result::JobsResult;

mod crowd;
mod curve;
mod gaps;
mod jobs_result;

/// The file of the experiment.
pub const FILE: &str = include_str!("../experiments/turnaround.toml");

/// Default for the most processes on one CPU, as in the textbook.
const MAX_ON_ONE_CPU: usize = 4;

/// Most settings that are played on all CPUs: large machines leave some numbers out.
const MAX_SETTINGS: usize = 8;

/// A number of processes, and the CPUs that they may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CrowdSetting {
    cpu_choice: CpuChoice,
    processes: usize,
}

/// Runs the experiment.
///
/// # Errors
/// A load cannot be played.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let smt = match parameters.flag("smt") {
        true => None,
        false => Some(SmtOff::begin()),
    };
    let why_smt_is_on = match &smt {
        Some(Err(error)) => Some(format!("{error:#}")),
        _ => None,
    };
    let mut experiment = LoadExperiment::open("turnaround", FILE, parameters, context)?;
    let cpus = experiment.cpus()?;
    let settings = settings(parameters, cpus);
    let rounds = experiment.rounds(
        &settings,
        parameters.count("rounds"),
        |experiment, setting| {
            let result = experiment.play(
                setting.variant(),
                &setting.parameter(),
                RecordingChoice::Unwanted,
            )?;
            let cpus = setting.usable_cpus(cpus);
            Ok(result.map(|result| JobsResult::of(&result.played, cpus)))
        },
    )?;
    let curves = Curves::new(cpus, settings, rounds);
    let mut findings = curves.findings(&experiment.subtitle());
    let mut quantities = Quantities::of_loads();
    curves.add_to(&mut quantities);
    crowd::add(&mut experiment, parameters, &mut quantities, &mut findings)?;
    gaps::add(&mut experiment, &mut quantities, &mut findings)?;
    findings.answers = quantities.answers("turnaround");
    experiment.close(&mut findings);
    findings
        .notes
        .extend(why_smt_is_on.map(|why| format!("SMT was to be off and is not: {why}")));
    if let Some(Ok(off)) = smt {
        findings.notes.push("SMT was off".to_owned());
        drop(off);
    }
    Ok(findings)
}

impl CrowdSetting {
    const fn variant(self) -> &'static str {
        match self.cpu_choice {
            CpuChoice::One => "one-cpu",
            CpuChoice::All => "all-cpus",
        }
    }

    fn parameter(self) -> [(&'static str, ParameterValue); 1] {
        [("processes", ParameterValue::Count(self.processes as u64))]
    }

    /// How many of the machine's `cpus` it may use.
    const fn usable_cpus(self, cpus: usize) -> usize {
        match self.cpu_choice {
            CpuChoice::One => 1,
            CpuChoice::All => cpus,
        }
    }
}

impl fmt::Display for CrowdSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = self.cpu_choice.as_str();
        write!(f, "{} processes on {cpus}", self.processes)
    }
}

fn settings(parameters: &Parameters, cpus: usize) -> Vec<CrowdSetting> {
    let most = |usual: usize| match usize::try_from(parameters.count("most")) {
        Ok(0) | Err(_) => usual,
        Ok(most) => most,
    };
    let mut settings = Vec::new();
    if parameters.flag("one-cpu") {
        let numbers = 1..=most(MAX_ON_ONE_CPU);
        settings.extend(numbers.map(|processes| CrowdSetting {
            cpu_choice: CpuChoice::One,
            processes,
        }));
    }
    if parameters.flag("all-cpus") {
        let numbers = up_to(most(2 * cpus), cpus).into_iter();
        settings.extend(numbers.map(|processes| CrowdSetting {
            cpu_choice: CpuChoice::All,
            processes,
        }));
    }
    settings
}

/// All numbers up to `most` if they are few, else those around the number of CPUs.
fn up_to(most: usize, cpus: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (1..=most).collect();
    if all.len() > MAX_SETTINGS {
        let landmarks = [
            1,
            cpus / 4,
            cpus / 2,
            3 * cpus / 4,
            cpus,
            3 * cpus / 2,
            most,
        ];
        all.retain(|processes| landmarks.contains(processes));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(one: bool, all: bool) -> Parameters {
        Parameters::default()
            .with("most", ParameterValue::Count(0))
            .with("one-cpu", ParameterValue::Flag(one))
            .with("all-cpus", ParameterValue::Flag(all))
    }

    #[test]
    fn one_cpu_goes_up_to_four_and_all_to_twice_their_number() {
        let numbers = |one, all, cpus| -> Vec<usize> {
            let settings = settings(&parameters(one, all), cpus);
            settings.iter().map(|setting| setting.processes).collect()
        };
        assert_eq!(numbers(true, false, 2), [1, 2, 3, 4]);
        assert_eq!(numbers(false, true, 3), [1, 2, 3, 4, 5, 6]);
        assert_eq!(numbers(false, true, 64), [1, 16, 32, 48, 64, 96, 128]);
    }
}

//! `swtch lab turnaround`: how long busy processes wait for each other (claims D1 to D6).
//!
//! ```text
//!               start                                      end
//!  job 0   ──────┼▓▓▓▓    ▓▓▓▓    ▓▓▓▓┤                     turnaround of job 0
//!  job 1   ──────┼    ▓▓▓▓    ▓▓▓▓    ▓▓▓▓┤                turnaround of job 1
//!                │◀──────── makespan ────▶│                throughput = jobs / makespan
//! ```
//!
//! `shift` holds the results of one play, `curve` their course over the number of processes,
//! `crowd` compares very many processes with few, `gaps` shows what a process sees of its own
//! switches.

use std::fmt;

use anyhow::Result;

use super::cpu_choice::CpuChoice;
use super::findings::Findings;
use super::parameters::{ParameterValue, Parameters};
use super::room::{ExperimentContext, RecordingChoice};
use super::smt::SmtOff;
use super::stage::LoadExperiment;
use curve::Curves;
use shift::Shift;

mod crowd;
mod curve;
mod gaps;
mod shift;

/// The file of the experiment.
pub const FILE: &str = include_str!("../../../../lab/turnaround.toml");

/// Default for the most processes on one CPU, as in the textbook.
const MOST_ON_ONE: usize = 4;

/// Most settings that are played on all CPUs: large machines leave some numbers out.
const MOST_SETTINGS: usize = 8;

/// A number of processes, and the CPUs that they may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CrowdSetting {
    place: CpuChoice,
    processes: usize,
}

/// Runs the experiment.
///
/// # Errors
/// A load cannot be played.
pub fn run(parameters: &Parameters, room: &mut ExperimentContext) -> Result<Findings> {
    let smt = match parameters.flag("smt") {
        true => None,
        false => Some(SmtOff::begin()),
    };
    let why_smt_is_on = match &smt {
        Some(Err(error)) => Some(format!("{error:#}")),
        _ => None,
    };
    let mut stage = LoadExperiment::open("turnaround", FILE, parameters, room)?;
    let cpus = stage.cpus()?;
    let settings = settings(parameters, cpus);
    let rounds = stage.rounds(&settings, parameters.count("rounds"), |stage, setting| {
        let act = stage.play(
            setting.variant(),
            &setting.parameter(),
            RecordingChoice::Unwanted,
        )?;
        let cpus = setting.cpus(cpus);
        Ok(act.map(|act| Shift::of(&act.played, cpus)))
    })?;
    let curves = Curves::new(cpus, settings, rounds);
    let mut findings = curves.findings(&stage.subtitle());
    crowd::add(&mut stage, parameters, &mut findings)?;
    gaps::add(&mut stage, &mut findings)?;
    stage.close(&mut findings);
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
        match self.place {
            CpuChoice::One => "one-cpu",
            CpuChoice::All => "all-cpus",
        }
    }

    fn parameter(self) -> [(&'static str, ParameterValue); 1] {
        [("processes", ParameterValue::Count(self.processes as u64))]
    }

    /// How many of the machine's `cpus` it may use.
    const fn cpus(self, cpus: usize) -> usize {
        match self.place {
            CpuChoice::One => 1,
            CpuChoice::All => cpus,
        }
    }
}

impl fmt::Display for CrowdSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.as_str();
        write!(f, "{} processes on {place}", self.processes)
    }
}

fn settings(parameters: &Parameters, cpus: usize) -> Vec<CrowdSetting> {
    let most = |usual: usize| match usize::try_from(parameters.count("most")) {
        Ok(0) | Err(_) => usual,
        Ok(most) => most,
    };
    let mut settings = Vec::new();
    if parameters.flag("one-cpu") {
        let numbers = 1..=most(MOST_ON_ONE);
        settings.extend(numbers.map(|processes| CrowdSetting {
            place: CpuChoice::One,
            processes,
        }));
    }
    if parameters.flag("all-cpus") {
        let numbers = up_to(most(2 * cpus), cpus).into_iter();
        settings.extend(numbers.map(|processes| CrowdSetting {
            place: CpuChoice::All,
            processes,
        }));
    }
    settings
}

/// All numbers up to `most` if they are few, else those around the number of CPUs.
fn up_to(most: usize, cpus: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (1..=most).collect();
    if all.len() > MOST_SETTINGS {
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

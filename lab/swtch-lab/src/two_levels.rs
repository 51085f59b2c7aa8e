//! `swtch lab two-levels`: a user-mode scheduler's switches beside the kernel's, for the same
//! thread (claims A7 to A9).
//!
//! ```text
//!              alone            beside a hog           alone
//!  user level  a b c a b c a b  c   a   b   c   a   b  c a b c     the scheduler counts
//!  thread      ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓  ▓▓░░▓▓░░▓▓░░▓▓░░▓▓░░▓  ▓▓▓▓▓▓▓     the kernel counts
//!  hog                            ▓▓  ▓▓  ▓▓  ▓▓  ▓▓
//! ```
//!
//! Both parts run in a child process: `scan` scans a table, by workers and by threads, and `exact`
//! makes known numbers of events. `script` holds the messages between the two processes.
//! `answers`, `show` and `lanes` make verdicts, tables and figures of the results.

use std::fmt;

use anyhow::{Result, ensure};
use swtch_core::{Nanos, cost::LatinSquare};

use super::context::{ExperimentContext, RecordingChoice};
use super::findings::Findings;
use super::load_experiment::{Disturbances, has_no_length};
use super::parameters::{ParameterValue, Parameters};
use exact::EventCounts;
use script::{HogPhase, LevelCounts, Scan, Scanned, ScannerKind, Script, ScriptResult};
use swtch_core::stats::{EventRate, dispersion};

mod answers;
mod exact;
mod lanes;
mod scan;
mod script;
mod show;

/// The file of the experiment.
pub const FILE: &str = include_str!("../experiments/two-levels.toml");

/// The verb with which this program starts itself as the child.
pub const VERB: &str = "lab-levels";

/// Runs a script; called in the child.
///
/// # Errors
/// It cannot be run.
pub fn run_script(script: Script) -> Result<ScriptResult> {
    Ok(match script {
        Script::Scan(scan) => ScriptResult::Scanned(scan::run(&scan)?),
        Script::Count => ScriptResult::Counted(exact::count_all()?),
    })
}

/// The results of all scripts so far.
#[derive(Debug, Default)]
struct TwoLevelsResults {
    workers: Vec<Scanned>,
    threads: Vec<Scanned>,
    counted: Vec<EventCounts>,
    quantum: Nanos,
}

/// Runs the experiment.
///
/// # Errors
/// A parameter makes no sense, or a script cannot be run.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let scan = scan_of(parameters)?;
    let rounds = parameters.count("rounds");
    let mut disturbances = Disturbances::default();
    let mut results = TwoLevelsResults {
        quantum: Nanos::from_ns(u64::try_from(scan.quantum.as_nanos())?),
        ..TwoLevelsResults::default()
    };
    context.progress("counting known numbers of events");
    let mut was_interrupted = !results.run(context, &Script::Count, &mut disturbances)?;
    let square = LatinSquare::new(2, u64::from(std::process::id()));
    for round in 0..usize::try_from(rounds)? {
        for arm in square.row(round) {
            let who = [ScannerKind::Workers, ScannerKind::Threads][arm];
            context.progress(&format!("round {} of {rounds}: {who}", round + 1));
            let script = Script::Scan(Scan {
                who,
                ..scan.clone()
            });
            was_interrupted |=
                was_interrupted || !results.run(context, &script, &mut disturbances)?;
        }
    }
    let mut findings = results.findings();
    if !was_interrupted && context.records() {
        context.progress("recording both levels");
        findings.pictures.extend(lanes::picture(context, &scan)?);
    }
    context.progress_done();
    disturbances.note(&mut findings);
    findings.was_interrupted = was_interrupted;
    Ok(findings)
}

fn scan_of(parameters: &Parameters) -> Result<Scan> {
    for (name, value) in parameters.all() {
        let is_none = has_no_length(value) || *value == ParameterValue::Count(0);
        ensure!(
            !is_none,
            "--{name} {value}: nothing would be done; give more than 0"
        );
    }
    let small = |name: &str, most: u64| {
        let number = parameters.count(name);
        ensure!(number <= most, "--{name} {number}: {most} at most");
        Ok(u32::try_from(number)?)
    };
    Ok(Scan {
        who: ScannerKind::Workers,
        scanners: small("workers", 1_000)?,
        megabytes: small("megabytes", 1 << 20)?,
        quantum: parameters.time("quantum"),
        phase: parameters.time("phase"),
    })
}

impl fmt::Display for ScannerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Workers => "workers on one thread",
            Self::Threads => "threads of the kernel",
        })
    }
}

impl TwoLevelsResults {
    /// Runs a script in a child and keeps its result; false when told to stop.
    fn run(
        &mut self,
        context: &ExperimentContext,
        script: &Script,
        disturbances: &mut Disturbances,
    ) -> Result<bool> {
        let Some(run) =
            context.run_script::<_, ScriptResult>(VERB, script, RecordingChoice::Unwanted)?
        else {
            return Ok(false);
        };
        match run.result {
            ScriptResult::Counted(counted) => self.counted = counted,
            ScriptResult::Scanned(scanned) => {
                disturbances.add(run.disturbance);
                match script {
                    Script::Scan(scan) if scan.who == ScannerKind::Threads => {
                        self.threads.push(scanned)
                    }
                    _ => self.workers.push(scanned),
                }
            }
        }
        Ok(true)
    }

    fn findings(&self) -> Findings {
        Findings {
            tables: vec![self.levels(), self.counters()],
            pictures: vec![self.picture()],
            sentences: self.sentences(),
            answers: self.quantities().answers("two-levels"),
            notes: self.notes(),
            ..Findings::default()
        }
    }

    fn scans(&self, who: ScannerKind) -> &[Scanned] {
        match who {
            ScannerKind::Workers => &self.workers,
            ScannerKind::Threads => &self.threads,
        }
    }

    /// The rate of a count over all windows of a phase.
    fn rate(&self, who: ScannerKind, phase: HogPhase, count: fn(&LevelCounts) -> u64) -> EventRate {
        let windows = self.scans(who).iter().flat_map(|scan| scan.of(phase));
        let windows = windows.map(|window| (count(&window.growth), window.seconds()));
        let windows: Vec<(u64, f64)> = windows.collect();
        let parts = windows
            .iter()
            .map(|(count, seconds)| (*count as f64, *seconds));
        EventRate {
            count: windows.iter().map(|(count, _)| count).sum(),
            seconds: windows.iter().map(|(_, seconds)| seconds).sum(),
            dispersion: dispersion(&parts.collect::<Vec<_>>()),
        }
    }

    /// The counts of all windows of a phase, and their seconds.
    fn sum(&self, who: ScannerKind, phase: HogPhase) -> (LevelCounts, f64) {
        let windows = self.scans(who).iter().flat_map(|scan| scan.of(phase));
        windows.fold((LevelCounts::default(), 0.0), |(sum, seconds), window| {
            (sum.plus(window.growth), seconds + window.seconds())
        })
    }

    fn runs(&self, phase: HogPhase) -> Vec<f64> {
        let scans = self.workers.iter();
        scans.flat_map(|scan| scan.runs_of(phase)).collect()
    }
}

fn mode_name(counted: &EventCounts) -> &'static str {
    match counted.in_threads {
        true => "thread mode",
        false => "fiber mode",
    }
}

#[cfg(test)]
mod tests;

//! What all experiments share: Ctrl-C, calibration, recording, and what is done when other tasks
//! disturb a play.
//!
//! ```text
//! load ─▶ play ─▶ child `swtch lab-play`, recorded or not ─▶ results, trace
//!           └─ again, twice at most, if others took CPU time from it; then it is marked
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use swtch_bench::load::{Load, LoadResults};
use swtch_capture::probe::Probe;
use swtch_capture::signals::stop_on_signals;
use swtch_host::ability;
use swtch_output::progress::ProgressLine;
use swtch_store::Trace;
use tempfile::TempDir;

use super::calibration::Calibration;

mod child;
mod disturbance;

use child::PlayOutcome;
pub use child::{lab_play, run_as_child};
use disturbance::DisturbanceCounters;

/// How many times a disturbed play is repeated at most.
const REPEATS: u32 = 2;

/// Whether a play is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingChoice {
    /// Record where the machine and the user allow it.
    Wanted,
    /// Do not record even then: recording takes some of the CPU time.
    Unwanted,
}

/// A load that was played.
#[derive(Debug)]
pub struct Play {
    /// When it began, the times and counters of its members, and notes.
    pub played: LoadResults,
    /// Its trace; `None` if it was not recorded.
    pub trace: Option<Trace>,
    /// What disturbed it in spite of the repeats, in words; `None` if nothing did.
    pub disturbance: Option<String>,
    /// Directory of the trace, which is deleted with it.
    _directory: TempDir,
}

impl Play {
    /// Notes for the reader: those of the player, and what disturbed the play.
    pub fn notes(&self) -> Vec<String> {
        let disturbance = self.disturbance.iter();
        let disturbance =
            disturbance.map(|what| format!("disturbed, each time it was played: {what}"));
        self.played
            .notes
            .iter()
            .cloned()
            .chain(disturbance)
            .collect()
    }
}

/// A script that was run in a child.
#[derive(Debug)]
pub struct ScriptRun<T> {
    /// What the child wrote.
    pub result: T,
    /// Its trace; `None` if it was not recorded.
    pub trace: Option<Trace>,
    /// What disturbed it in spite of the repeats, in words; `None` if nothing did.
    pub disturbance: Option<String>,
    /// A note on switches that the recorder lost.
    lost: Option<String>,
    /// Directory of the trace, which is deleted with it.
    _directory: TempDir,
}

/// The verb of this program that plays a load.
const LOAD_VERB: &str = "lab-play";

/// What an experiment may use: the stop flag, the calibration, the recorder.
#[derive(Debug)]
pub struct ExperimentContext {
    /// True with `--quick`: shorter, with wider intervals.
    pub is_quick: bool,
    /// Set by Ctrl-C and similar signals; what was done until then is kept.
    pub stop: Arc<AtomicBool>,
    /// Time per iteration of each kernel, measured once, so that all plays do the same work.
    pub calibration: Calibration,
    /// Why nothing is recorded; `None` if plays are recorded.
    why_unrecorded: Option<String>,
    /// Notes about this machine, each shown once.
    notes: Vec<String>,
    progress: ProgressLine,
}

impl ExperimentContext {
    /// Catches signals, and finds out whether plays can be recorded.
    ///
    /// # Errors
    /// Signals cannot be caught.
    pub fn open(is_quick: bool, recording: RecordingChoice) -> Result<Self> {
        Ok(Self {
            is_quick,
            stop: stop_on_signals()?,
            calibration: Calibration::default(),
            why_unrecorded: why_unrecorded(recording),
            notes: swtch_host::cpu_limits()
                .map(|limits| format!("a quota on CPU time is in force: cgroup {limits}"))
                .into_iter()
                .collect(),
            progress: ProgressLine::on_stderr(),
        })
    }

    /// True if a signal asked to stop.
    pub fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether plays can be recorded here.
    pub const fn records(&self) -> bool {
        self.why_unrecorded.is_none()
    }

    /// Why plays are not recorded; `None` if they are.
    pub fn why_unrecorded(&self) -> Option<&str> {
        self.why_unrecorded.as_deref()
    }

    /// Notes about this machine that concern every experiment.
    pub fn notes(&self) -> Vec<String> {
        let unrecorded = self.why_unrecorded.iter();
        let unrecorded = unrecorded.map(|why| format!("nothing was recorded: {why}"));
        self.notes.iter().cloned().chain(unrecorded).collect()
    }

    /// Shows on a terminal what is being done, in one line that the next call overwrites.
    pub fn progress(&self, what: &str) {
        self.progress
            .show(|| format!("{what} (Ctrl-C keeps what is done)"));
    }

    /// Clears the line of [`Self::progress`].
    pub fn progress_done(&self) {
        self.progress.clear();
    }

    /// Plays a load in a process of its own; `None` when it was told to stop meanwhile. A play that
    /// others disturbed is repeated, twice at most; one that remains disturbed says so.
    ///
    /// # Errors
    /// It cannot be played or recorded.
    pub fn play(&self, load: &Load, recording: RecordingChoice) -> Result<Option<Play>> {
        let Some(run) = self.run_script::<_, LoadResults>(LOAD_VERB, load, recording)? else {
            return Ok(None);
        };
        let mut played = run.result;
        played.notes.extend(run.lost);
        Ok(Some(Play {
            played,
            trace: run.trace,
            disturbance: run.disturbance,
            _directory: run._directory,
        }))
    }

    /// As [`Self::play`], for any script. The process that runs it is this program with the verb
    /// `verb`.
    ///
    /// # Errors
    /// It cannot be run or recorded.
    pub fn run_script<Script: Serialize, T: DeserializeOwned>(
        &self,
        verb: &str,
        script: &Script,
        recording: RecordingChoice,
    ) -> Result<Option<ScriptRun<T>>> {
        let mut last = None;
        for _ in 0..=REPEATS {
            if self.must_stop() {
                break;
            }
            let before = DisturbanceCounters::read();
            let Some(mut run) = self.run_script_once(verb, script, recording)? else {
                break;
            };
            run.disturbance = DisturbanceCounters::read().since(&before).disturbance();
            let is_good = run.disturbance.is_none();
            // A disturbed run is better than none, should the next one be stopped.
            last = Some(run);
            if is_good {
                break;
            }
        }
        Ok(last)
    }

    fn run_script_once<Script: Serialize, T: DeserializeOwned>(
        &self,
        verb: &str,
        script: &Script,
        recording: RecordingChoice,
    ) -> Result<Option<ScriptRun<T>>> {
        let directory = tempfile::tempdir().context("making a directory for a play")?;
        let is_recorded = recording == RecordingChoice::Wanted && self.records();
        let trace = is_recorded.then(|| directory.path().join("play.swtch"));
        match child::run(verb, script, directory.path(), trace.as_deref(), &self.stop)? {
            PlayOutcome::Stopped => Ok(None),
            PlayOutcome::Played(result) => {
                let trace = trace.map(|path| {
                    Trace::open(&path).with_context(|| format!("reading {}", path.display()))
                });
                let trace = trace.transpose()?;
                let lost = trace.as_ref().map_or(0, |trace| trace.meta().counts.lost);
                Ok(Some(ScriptRun {
                    result,
                    trace,
                    disturbance: None,
                    lost: (lost > 0)
                        .then(|| format!("the recorder lost {lost} switches of this play")),
                    _directory: directory,
                }))
            }
        }
    }
}

fn why_unrecorded(recording: RecordingChoice) -> Option<String> {
    if recording == RecordingChoice::Unwanted {
        return Some("not asked for (--no-record)".to_owned());
    }
    let obstacle = ability::obstacles(&Probe::take()).into_iter().next()?;
    let remedy = obstacle.remedies.first();
    Some(remedy.map_or(obstacle.why.clone(), |remedy| {
        format!("{} ({remedy})", obstacle.why)
    }))
}

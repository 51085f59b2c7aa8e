//! Where experiments are made: what all of them share, and one policy for what may go wrong.
//!
//! ```text
//! load ─▶ play ─▶ child `swtch lab-play`, recorded or not ─▶ played, trace
//!           └─ again, twice at most, while others take CPU time from it; then it is marked
//! ```

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use swtch_bench::load::{Load, Played};
use swtch_capture::probe::Probe;
use swtch_store::Trace;
use tempfile::TempDir;

use super::calibration::Calibration;
use crate::cost::stop_on_signals;
use crate::{doctor, host, text};

mod child;
mod disturbance;

use child::Outcome;
pub use child::{lab_play, perform};
use disturbance::Counters;

/// How often a play that others disturbed is made again.
const REPEATS: u32 = 2;

/// Whether a play is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// Where the machine and the user allow it.
    Wanted,
    /// Not even then: recording takes some of the CPU time.
    Unwanted,
}

/// A load that was played.
#[derive(Debug)]
pub struct Play {
    /// What came of it.
    pub played: Played,
    /// Its switches, when it was recorded.
    pub trace: Option<Trace>,
    /// What disturbed it, although it was played again; `None` when nothing did.
    pub disturbance: Option<String>,
    /// Holds the trace.
    _place: TempDir,
}

impl Play {
    /// What must be said of it.
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

/// A script that was played.
#[derive(Debug)]
pub struct Performed<T> {
    /// What the player left.
    pub left: T,
    /// Its switches, when it was recorded.
    pub trace: Option<Trace>,
    /// What disturbed it, although it was played again; `None` when nothing did.
    pub disturbance: Option<String>,
    /// What the recorder lost, in words.
    lost: Option<String>,
    /// Holds the trace.
    _place: TempDir,
}

/// The player of loads.
const LOADS: &str = "lab-play";

/// What an experiment may use.
#[derive(Debug)]
pub struct Room {
    /// Whether it was told to be short.
    pub is_quick: bool,
    /// Set by Ctrl-C and its like: what is done is kept.
    pub stop: Arc<AtomicBool>,
    /// How long the kernels take here: found once, so that all plays do the same.
    pub calibration: Calibration,
    /// Why nothing is recorded; `None` when it is.
    why_unrecorded: Option<String>,
    /// What must be said once about this machine.
    notes: Vec<String>,
}

impl Room {
    /// A room on this machine.
    ///
    /// # Errors
    /// Signals cannot be caught.
    pub fn open(is_quick: bool, recording: Recording) -> Result<Self> {
        Ok(Self {
            is_quick,
            stop: stop_on_signals()?,
            calibration: Calibration::default(),
            why_unrecorded: why_unrecorded(recording),
            notes: host::cpu_limits()
                .map(|limits| format!("a quota on CPU time is in force: cgroup {limits}"))
                .into_iter()
                .collect(),
        })
    }

    /// Whether it was told to stop.
    pub fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether plays can be recorded here.
    pub const fn records(&self) -> bool {
        self.why_unrecorded.is_none()
    }

    /// Why plays are not recorded; `None` when they are.
    pub fn why_unrecorded(&self) -> Option<&str> {
        self.why_unrecorded.as_deref()
    }

    /// What a reader must know about this machine, whatever is done on it.
    pub fn notes(&self) -> Vec<String> {
        let unrecorded = self.why_unrecorded.iter();
        let unrecorded = unrecorded.map(|why| format!("nothing was recorded: {why}"));
        self.notes.iter().cloned().chain(unrecorded).collect()
    }

    /// Says on a terminal what is being done.
    pub fn progress(&self, what: &str) {
        if stderr().is_terminal() {
            // Without line breaks (DECAWM): what a narrow terminal cannot show is cut off.
            talk_part!(
                "\r\x1b[K\x1b[?7l{} (Ctrl-C keeps what is done)\x1b[?7h",
                text::escaped(what)
            );
            // It is only a line of talk: a terminal that is gone ends us elsewhere.
            drop(stderr().flush());
        }
    }

    /// Takes the line of [`Self::progress`] away.
    pub fn progress_done(&self) {
        if stderr().is_terminal() {
            talk_part!("\r\x1b[K");
        }
    }

    /// Plays a load in a process of its own; `None` when it was told to stop meanwhile. One that others
    /// disturbed is played again, twice at most; one that remains disturbed says so.
    ///
    /// # Errors
    /// It cannot be played or recorded.
    pub fn play(&self, load: &Load, recording: Recording) -> Result<Option<Play>> {
        let Some(performed) = self.perform::<_, Played>(LOADS, load, recording)? else {
            return Ok(None);
        };
        let mut played = performed.left;
        played.notes.extend(performed.lost);
        Ok(Some(Play {
            played,
            trace: performed.trace,
            disturbance: performed.disturbance,
            _place: performed._place,
        }))
    }

    /// As [`Self::play`], for a script of another player: this program with the verb `player`.
    ///
    /// # Errors
    /// It cannot be played or recorded.
    pub fn perform<Script: Serialize, T: DeserializeOwned>(
        &self,
        player: &str,
        script: &Script,
        recording: Recording,
    ) -> Result<Option<Performed<T>>> {
        let mut last = None;
        for _ in 0..=REPEATS {
            if self.must_stop() {
                break;
            }
            let before = Counters::read();
            let Some(mut play) = self.perform_once(player, script, recording)? else {
                break;
            };
            play.disturbance = Counters::read().since(&before).disturbance();
            let is_good = play.disturbance.is_none();
            // One that was disturbed is better than none, when the next is not finished.
            last = Some(play);
            if is_good {
                break;
            }
        }
        Ok(last)
    }

    fn perform_once<Script: Serialize, T: DeserializeOwned>(
        &self,
        player: &str,
        script: &Script,
        recording: Recording,
    ) -> Result<Option<Performed<T>>> {
        let place = tempfile::tempdir().context("making a directory for a play")?;
        let is_recorded = recording == Recording::Wanted && self.records();
        let trace = is_recorded.then(|| place.path().join("play.swtch"));
        match child::play(player, script, place.path(), trace.as_deref(), &self.stop)? {
            Outcome::Stopped => Ok(None),
            Outcome::Played(left) => {
                let trace = trace.map(|path| {
                    Trace::open(&path).with_context(|| format!("reading {}", path.display()))
                });
                let trace = trace.transpose()?;
                let lost = trace.as_ref().map_or(0, |trace| trace.meta().counts.lost);
                Ok(Some(Performed {
                    left,
                    trace,
                    disturbance: None,
                    lost: (lost > 0)
                        .then(|| format!("the recorder lost {lost} switches of this play")),
                    _place: place,
                }))
            }
        }
    }
}

fn why_unrecorded(recording: Recording) -> Option<String> {
    if recording == Recording::Unwanted {
        return Some("not asked for (--no-record)".to_owned());
    }
    let obstacle = doctor::obstacles(&Probe::take()).into_iter().next()?;
    let remedy = obstacle.remedies.first();
    Some(remedy.map_or(obstacle.why.clone(), |remedy| {
        format!("{} ({remedy})", obstacle.why)
    }))
}

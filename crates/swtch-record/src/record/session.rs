//! A recording that runs: rounds of draining, until the command ends, the time is up or a signal comes.

use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use signal_hook::consts::SIGINT;
use swtch_capture::HeldCommand;
use swtch_capture::limits::require_cpu_time;
use swtch_output::message;
use swtch_output::progress::ProgressLine;
use swtch_output::text::escaped;

use super::command::exit_code;
use super::pause::{Pauses, StopSignals};
use super::{Backend, RecordedSoFar, megabytes};

/// Pending rows are written this often. A killed recorder loses what came since, and what lay in the
/// rings.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
/// The time after which the progress of a recording is shown again.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// The time between two checks whether any process that was asked for still runs; if none does, stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time between two looks at a command that goes on unrecorded, unless it ends before that.
const WAIT_STEP: Duration = Duration::from_millis(100);
/// The time for which the recording goes on after a signal, so that the command can end.
const GRACE: Duration = Duration::from_secs(5);

/// A recording that runs: what may end it.
#[derive(Debug)]
pub struct RecordingSession {
    /// The time after which it ends.
    pub limit: Option<Duration>,
    /// Signals that ask to stop.
    pub signals: StopSignals,
    /// The command that is recorded.
    pub command: Option<HeldCommand>,
}

/// The state by which a recording sees its end.
#[derive(Debug)]
pub struct EndOfRecording {
    start: Instant,
    /// The moment at which it was last looked whether the processes that were asked for still run.
    looked: Instant,
    targets_are_gone: bool,
    asked_to_stop: Option<Instant>,
}

impl EndOfRecording {
    /// Of a recording that began at this time.
    pub const fn new(start: Instant) -> Self {
        Self {
            start,
            looked: start,
            targets_are_gone: false,
            asked_to_stop: None,
        }
    }
}

impl RecordingSession {
    /// Runs rounds until the command has ended, the time is up, or a signal asks to stop.
    ///
    /// # Errors
    /// When the trace cannot be written any more, or was removed.
    pub(super) fn watch(&self, rounds: &mut impl Backend) -> Result<()> {
        let start = Instant::now();
        let (mut flushed, mut told) = (start, start);
        let mut end = EndOfRecording::new(start);
        let mut pauses = Pauses::new(rounds.slots_per_cpu(), start);
        loop {
            let round = rounds.round()?;
            let now = Instant::now();
            if now - flushed >= FLUSH_EVERY {
                flushed = now;
                rounds.flush()?;
            }
            if now - told >= PROGRESS_EVERY {
                told = now;
                tell_progress(now - start, rounds.so_far());
            }
            if self.is_over(&mut end, now, || rounds.targets_are_gone())? {
                return Ok(());
            }
            require_cpu_time()?;
            self.sleep(pauses.after(round, now).min(self.time_left(&end, now)))?;
        }
    }

    /// Sleeps for this long, or until a signal comes or the command ends.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn sleep(&self, pause: Duration) -> Result<()> {
        let ending = self.command.as_ref().map(HeldCommand::ending_notice);
        let slept = self.signals.sleep(pause, ending);
        slept.context("waiting for the next round")
    }

    /// Time until the recording is over whatever happens.
    pub fn time_left(&self, end: &EndOfRecording, now: Instant) -> Duration {
        let limit = self.limit.map(|limit| end.start + limit);
        let grace = end.asked_to_stop.map(|asked| asked + GRACE);
        let over = limit.into_iter().chain(grace).min();
        over.map_or(Duration::MAX, |over| over.saturating_duration_since(now))
    }

    /// Returns true if the command has ended, the time is up, or a signal asks to stop, which is passed on.
    ///
    /// # Errors
    /// When the command cannot be waited for.
    pub fn is_over(
        &self,
        end: &mut EndOfRecording,
        now: Instant,
        targets_are_gone: impl FnOnce() -> bool,
    ) -> Result<bool> {
        if now - end.looked >= LOOK_EVERY {
            end.looked = now;
            end.targets_are_gone = targets_are_gone();
        }
        if end.asked_to_stop.is_none() && self.signals.any() {
            end.asked_to_stop = Some(now);
            self.pass_signal_on();
        }
        let is_over = match &self.command {
            Some(command) => command
                .ended()
                .context("waiting for the command")?
                .is_some(),
            None => end.asked_to_stop.is_some() || end.targets_are_gone,
        };
        let limit = self.limit;
        let is_time_up = limit.is_some_and(|limit| now - end.start >= limit)
            || end.asked_to_stop.is_some_and(|asked| now - asked >= GRACE);
        Ok(is_over || is_time_up)
    }

    /// Passes a signal on to the command. Ctrl-C has reached the command from the terminal, and
    /// getting it twice might mean more to it than once.
    fn pass_signal_on(&self) {
        let signal = self.signals.last();
        match &self.command {
            Some(command) if !(signal == SIGINT && is_in_foreground()) => command.signal(signal),
            _ => {}
        }
    }

    /// Waits for the command to end, and passes the first signal on to it.
    fn wait_unrecorded(&self, command: &HeldCommand) -> io::Result<Option<ExitStatus>> {
        let mut asked_to_stop = false;
        loop {
            let ended = command.ended()?;
            if ended.is_some() {
                return Ok(ended);
            }
            if self.signals.any() && !asked_to_stop {
                asked_to_stop = true;
                self.pass_signal_on();
            }
            self.signals
                .sleep(WAIT_STEP, Some(command.ending_notice()))?;
        }
    }

    /// The exit code of the command; `None` if it still runs, as it does after a time limit.
    pub fn command_exit_code(&self, failure: Option<&anyhow::Error>) -> Option<u8> {
        let command = self.command.as_ref()?;
        let ended = match failure {
            // The recorder must not end the command: it waits for it, unrecorded.
            Some(failure) => {
                let why = format!("{failure:#}");
                message!("swtch: {}; the command goes on unrecorded", escaped(&why));
                self.wait_unrecorded(command)
            }
            None => command.ended(),
        };
        // An error of waiting has ended the recording, and was reported then.
        ended.ok().flatten().map(exit_code)
    }
}

fn tell_progress(elapsed: Duration, so_far: RecordedSoFar) {
    ProgressLine::on_stderr().show(|| {
        format!(
            "swtch: {} s, {} switches, {} lost, {:.1} MB",
            elapsed.as_secs(),
            so_far.switches,
            so_far.lost,
            megabytes(so_far.bytes),
        )
    });
}

/// True if our process group, which the command shares, gets the terminal's Ctrl-C.
fn is_in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| {
        nix::unistd::tcgetpgrp(&terminal).is_ok_and(|group| group == nix::unistd::getpgrp())
    })
}

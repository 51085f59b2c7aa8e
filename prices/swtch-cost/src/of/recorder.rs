//! The recorder of an experiment: a child, `swtch record`, whose trace lies in a directory that goes with it.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use swtch_core::Pid;
use swtch_report::opening;
use swtch_store::Trace;
use tempfile::TempDir;

/// The time for which a recorder may load its programs and attach them.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two looks whether it has begun.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time by which it records longer than it is asked for, since it begins earlier.
const SPARE: Duration = Duration::from_secs(10);

/// A recorder that runs.
pub(super) struct ProgramRecorder {
    child: Child,
    trace: PathBuf,
    /// What it says.
    said: PathBuf,
    /// `None` once the trace has it.
    directory: Option<TempDir>,
}

/// A trace in a directory that is removed with it.
pub(super) struct RecordedProgram {
    trace: Trace,
    _directory: Option<TempDir>,
}

impl std::ops::Deref for RecordedProgram {
    type Target = Trace;

    fn deref(&self) -> &Trace {
        &self.trace
    }
}

impl ProgramRecorder {
    /// Starts to record this process and those below it for so long, and returns when the recording has begun.
    ///
    /// # Errors
    /// It cannot be recorded; what the recorder said is part of the error.
    pub(super) fn start(
        pid: Pid,
        duration: Duration,
        spans: &[String],
        stop: &AtomicBool,
    ) -> Result<Self> {
        let mut directory = tempfile::Builder::new();
        directory
            .prefix("swtch-cost-")
            .permissions(fs::Permissions::from_mode(0o700));
        let directory = directory.tempdir().context("making a directory")?;
        let trace = directory.path().join("program.swtch");
        let said = directory.path().join("stderr");
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        // Its files are in a directory of ours, and not of the user who called sudo.
        command.env_remove("SUDO_UID").env_remove("SUDO_GID");
        let limit = (duration + SPARE).as_secs();
        command
            .args([
                "record",
                "--backend",
                "ebpf",
                "--no-stacks",
                "--with-parent",
            ])
            .arg(std::process::id().to_string())
            .arg("-o")
            .arg(&trace)
            .args(["-d", &limit.to_string(), "-p", &pid.to_string()]);
        for span in spans {
            command.args(["--span", span]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&said).context("making a file for what the recorder says")?);
        let child = command.spawn().context("starting the recorder")?;
        let mut recorder = Self {
            child,
            trace,
            said,
            directory: Some(directory),
        };
        recorder.wait_until_begun(stop)?;
        Ok(recorder)
    }

    /// Waits until the trace has records: these are there only when all hooks are attached.
    fn wait_until_begun(&mut self, stop: &AtomicBool) -> Result<()> {
        let began = Instant::now();
        let records = self.trace.join("records.raw");
        let has_some = || fs::metadata(&records).is_ok_and(|file| file.len() > 0);
        while !has_some() {
            if let Some(status) = self.child.try_wait().context("waiting for the recorder")? {
                bail!(
                    "the program cannot be recorded ({status}): {}",
                    self.words()
                );
            }
            if stop.load(Ordering::Relaxed) || began.elapsed() > PATIENCE {
                bail!("the recording did not begin: {}", self.words());
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn words(&self) -> String {
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        said.trim().to_owned()
    }

    /// Lets it record for so long, or until the program ends or `stop` is set, and takes its trace.
    ///
    /// # Errors
    /// As [`Self::end`].
    pub(super) fn record_for(
        mut self,
        time: Duration,
        stop: &AtomicBool,
    ) -> Result<RecordedProgram> {
        let began = Instant::now();
        while began.elapsed() < time
            && !stop.load(Ordering::Relaxed)
            && matches!(self.child.try_wait(), Ok(None))
        {
            thread::sleep(LOOK_EVERY);
        }
        self.end()
    }

    /// Ends the recording and takes its trace.
    ///
    /// # Errors
    /// The trace is not complete or cannot be read.
    pub(super) fn end(mut self) -> Result<RecordedProgram> {
        self.ask_to_end();
        let status = self.child.wait().context("waiting for the recorder")?;
        if !status.success() {
            bail!("the recorder failed ({status}): {}", self.words());
        }
        let trace = opening::open(&self.trace)?;
        Ok(RecordedProgram {
            trace,
            _directory: self.directory.take(),
        })
    }

    fn ask_to_end(&mut self) {
        // Reaped or not: a child that is not waited for keeps its number.
        if matches!(self.child.try_wait(), Ok(None))
            && let Ok(pid) = i32::try_from(self.child.id())
        {
            let sent = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
            debug_assert!(
                sent.is_ok(),
                "invariant: an unreaped child can be signalled"
            );
        }
    }
}

impl Drop for ProgramRecorder {
    /// Ends a recorder whose trace nobody wants.
    fn drop(&mut self) {
        self.ask_to_end();
        drop(self.child.wait());
    }
}

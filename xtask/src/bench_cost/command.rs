//! Runs programs for their output, with a time limit; dropping the handle ends them.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::cputime::switches_of_children;

/// Pause between two checks whether a program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A program that is interrupted gets this long before it is killed.
const TIME_TO_END: Duration = Duration::from_secs(2);

/// The output of a program that has ended.
#[derive(Clone, Debug)]
pub struct ProgramOutput {
    pub stdout: String,
    pub stderr: String,
    pub status: ExitStatus,
    /// Switches of the program and its children, as the kernel counted them.
    pub switches: u64,
}

impl ProgramOutput {
    /// Returns the answer if its exit code is one of `good`.
    ///
    /// # Errors
    /// When it is another one; the message holds the end of stderr.
    pub fn expecting(self, good: &[i32]) -> Result<Self> {
        if self.status.code().is_some_and(|code| good.contains(&code)) {
            return Ok(self);
        }
        let lines: Vec<&str> = self.stderr.lines().collect();
        let end = lines[lines.len().saturating_sub(10)..].join("\n");
        bail!("{}\n{end}", self.status)
    }
}

/// Runs programs one after the other, never two at a time: the kernel's count of switches is the
/// sum of all children that have ended meanwhile.
#[derive(Debug)]
pub struct Runner<'a> {
    interrupted: &'a AtomicBool,
    limit: Duration,
}

impl<'a> Runner<'a> {
    /// A runner whose programs may run for `limit`, or until `interrupted` is set.
    pub const fn new(interrupted: &'a AtomicBool, limit: Duration) -> Self {
        Self { interrupted, limit }
    }

    /// The time limit of each program.
    pub const fn limit(&self) -> Duration {
        self.limit
    }

    /// Runs `words` until it ends. A bad exit code is no error here.
    ///
    /// # Errors
    /// When it cannot be started, does not end in time, or on Ctrl-C.
    pub fn run(&self, words: &[String]) -> Result<ProgramOutput> {
        let room = tempfile::Builder::new().prefix("swtch-bench-").tempdir();
        let room = room.context("making a temporary directory")?;
        let before = switches_of_children()?;
        let mut running = ChildGroup::start(words, &room)?;
        let status = self.finish(&mut running).with_context(|| words.join(" "))?;
        let read = |name: &str| {
            let bytes = fs::read(room.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(ProgramOutput {
            stdout: read("stdout"),
            stderr: read("stderr"),
            status,
            switches: switches_of_children()?.saturating_sub(before),
        })
    }

    fn finish(&self, running: &mut ChildGroup) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = running.0.try_wait()? {
                return Ok(status);
            }
            ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
            let limit = self.limit;
            ensure!(start.elapsed() < limit, "not done after {limit:?}");
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// A child in a process group of its own. Dropping this ends the group.
#[derive(Debug)]
pub struct ChildGroup(Child);

impl ChildGroup {
    fn start(words: &[String], room: &TempDir) -> Result<Self> {
        let file = |name: &str| File::create(room.path().join(name));
        Self::spawn(words, file("stdout")?.into(), file("stderr")?.into())
    }

    /// Starts `words` without any output.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_silent(words: &[String]) -> Result<Self> {
        Self::spawn(words, Stdio::null(), Stdio::null())
    }

    fn spawn(words: &[String], stdout: Stdio, stderr: Stdio) -> Result<Self> {
        let (program, arguments) = words.split_first().context("no words to run")?;
        let child = Command::new(program)
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn();
        child
            .map(Self)
            .with_context(|| format!("starting {program}"))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).expect("the kernel's process ids are positive ints");
        // It fails if the group has ended meanwhile, which is what is wanted.
        let _ = killpg(Pid::from_raw(pid), signal);
    }
}

impl Drop for ChildGroup {
    /// After an error or Ctrl-C: first with SIGINT, on which `swtch` ends what it has started.
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        self.signal(Signal::SIGINT);
        let start = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && start.elapsed() < TIME_TO_END {
            thread::sleep(LOOK_EVERY);
        }
        self.signal(Signal::SIGKILL);
        drop(self.0.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::kill;

    const LIMIT: Duration = Duration::from_secs(20);

    fn words(line: &[&str]) -> Vec<String> {
        line.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn an_answer_holds_both_streams_and_the_exit_code() {
        let interrupted = AtomicBool::new(false);
        let runner = Runner::new(&interrupted, LIMIT);
        let shell = words(&["sh", "-c", "echo out; echo err >&2; exit 1"]);
        let answer = runner.run(&shell).unwrap();
        assert_eq!((&*answer.stdout, &*answer.stderr), ("out\n", "err\n"));
        assert!(answer.clone().expecting(&[0, 1]).is_ok());
        let error = answer.expecting(&[0]).unwrap_err();
        assert!(error.to_string().contains("err"), "{error}");
    }

    /// Its children end as well, since they are in its process group.
    #[test]
    fn a_program_that_takes_too_long_is_ended_with_its_children() {
        let interrupted = AtomicBool::new(false);
        let runner = Runner::new(&interrupted, Duration::from_millis(300));
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("pid");
        let script = format!("trap '' INT; sleep 60 & echo $! > {}; wait", file.display());
        let error = runner.run(&words(&["sh", "-c", &script])).unwrap_err();
        assert!(format!("{error:#}").contains("not done"), "{error:#}");
        let pid: i32 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        // It was killed, but perhaps has not run since, or its new parent has not reaped it yet.
        let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let has_ended = |stat: String| stat.is_empty() || stat.contains(") Z ");
        let deadline = Instant::now() + Duration::from_secs(10);
        while !has_ended(stat()) {
            assert!(Instant::now() < deadline, "{}", stat());
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_program_does_not_outlive_its_handle() {
        let running = ChildGroup::start_silent(&words(&["sleep", "60"])).unwrap();
        let pid = Pid::from_raw(i32::try_from(running.0.id()).unwrap());
        assert!(kill(pid, None).is_ok());
        drop(running);
        assert!(kill(pid, None).is_err());
    }

    #[test]
    fn an_interrupt_ends_the_program_at_once() {
        let interrupted = AtomicBool::new(true);
        let runner = Runner::new(&interrupted, LIMIT);
        let error = runner.run(&words(&["sleep", "60"])).unwrap_err();
        assert!(format!("{error:#}").contains("interrupted"), "{error:#}");
    }
}

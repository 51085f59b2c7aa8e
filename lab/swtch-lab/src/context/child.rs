//! The process that plays a load, or runs another script, from both sides.
//!
//! ```text
//! experiment ─ load.json ─▶ swtch record ─▶ swtch lab-play ─ played.json ─▶ experiment
//!              (or without the recorder)     └─▶ the members
//! ```
//!
//! Each play has a process of its own, because the player must have a single thread, and a recorder
//! gives its rights up for good. The experiment's process sleeps until its child ends or a signal
//! comes: if it looked again and again, it would take CPU time from the members.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};
use swtch_bench::load::Load;
use swtch_output::caller::as_caller;
use swtch_output::destination::write_whole;

/// How the child that played ended.
#[derive(Debug)]
pub enum PlayOutcome<T> {
    /// The player ended by itself, with this result.
    Played(T),
    /// It was stopped by a signal before it ended.
    Stopped,
}

/// What the player writes: the result of the script, or why it could not be played.
type PlayerResult<T> = Result<T, String>;

/// Time that a recorder has to complete its trace after it was told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Plays a load: `swtch lab-play LOAD RESULT`. The exit code is 0 even when the load could not be
/// played: the result says so.
///
/// # Errors
/// The load cannot be read, or the result not be written.
pub fn lab_play(load: &Path, result: &Path) -> Result<u8> {
    run_as_child(load, result, |load: Load| Ok(load.play()?))
}

/// The common part of all children: reads the script, runs it with `play`, and writes the result.
///
/// # Errors
/// The script cannot be read, or the result not be written.
pub fn run_as_child<Script: DeserializeOwned, T: Serialize>(
    script: &Path,
    result: &Path,
    play: impl FnOnce(Script) -> Result<T>,
) -> Result<u8> {
    // Nobody reads the result once the experiment's process is gone.
    set_pdeathsig(Signal::SIGKILL).context("asking to end with the experiment")?;
    let text = as_caller(|| Ok(fs::read(script)?));
    let text = text.with_context(|| format!("reading {}", script.display()))?;
    let script = serde_json::from_slice(&text).context("understanding what to play")?;
    let played: PlayerResult<T> = play(script).map_err(|error| format!("{error:#}"));
    let json = serde_json::to_vec(&played).context("writing what was played")?;
    write_whole(result, &json)?;
    Ok(0)
}

/// Runs a script in a child, `swtch VERB SCRIPT RESULT`, and records it to `trace` if there is
/// one. The files of script and result are made in `directory`.
///
/// # Errors
/// It cannot be played or recorded.
pub fn run<T: DeserializeOwned>(
    verb: &str,
    script: &impl Serialize,
    directory: &Path,
    trace: Option<&Path>,
    stop: &AtomicBool,
) -> Result<PlayOutcome<T>> {
    let (script_file, result) = (directory.join("load.json"), directory.join("played.json"));
    let json = serde_json::to_vec(script).context("writing a script")?;
    fs::write(&script_file, json).with_context(|| format!("writing {}", script_file.display()))?;
    let stderr_file = directory.join("stderr");
    let mut command = command(trace)?;
    command.arg(verb).arg(&script_file).arg(&result);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(File::create(&stderr_file).context("making a file for what the player says")?);
    let signals = SignalPipe::open()?;
    let mut child = command.spawn().context("starting the player")?;
    let ended = signals.wait_until_ended(&mut child, stop)?;
    if ended == ChildEnd::Stopped {
        return Ok(PlayOutcome::Stopped);
    }
    let Ok(text) = fs::read(&result) else {
        let said = fs::read_to_string(&stderr_file).unwrap_or_default();
        bail!("the player ended without a result: {}", said.trim());
    };
    let played: PlayerResult<T> =
        serde_json::from_slice(&text).context("understanding what was played")?;
    played.map(PlayOutcome::Played).map_err(anyhow::Error::msg)
}

/// The command that runs this program, recorded if there is a trace. The caller adds the verb.
fn command(trace: Option<&Path>) -> Result<Command> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(&program);
    // Its files are in a directory of ours, and not of the user who called sudo.
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    if let Some(trace) = trace {
        command
            .args(["record", "--backend", "ebpf", "--with-parent"])
            .arg(std::process::id().to_string())
            .arg("-o")
            .arg(trace)
            .arg("--");
        command.arg(&program);
    }
    Ok(command)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChildEnd {
    ByItself,
    Stopped,
}

/// Turns signals into something to poll, together with the end of a child.
struct SignalPipe {
    came: UnixStream,
    handlers: Vec<SigId>,
}

impl SignalPipe {
    fn open() -> Result<Self> {
        let (came, send) = UnixStream::pair().context("making a pair of sockets")?;
        let handlers = [SIGINT, SIGTERM, SIGHUP].map(|signal| {
            let send = send.try_clone().context("copying a socket")?;
            pipe::register(signal, send).context("catching signals")
        });
        Ok(Self {
            came,
            handlers: handlers.into_iter().collect::<Result<_>>()?,
        })
    }

    /// Waits until the child ends. When `stop` is set, ends it: SIGTERM, and SIGKILL after
    /// [`GRACE`].
    fn wait_until_ended(&self, child: &mut Child, stop: &AtomicBool) -> Result<ChildEnd> {
        // Everything that it starts inherits its stdout: the pipe ends when the last of them is
        // gone.
        let mut stdout = child.stdout.take().expect("invariant: it is piped");
        let mut kill_at: Option<Instant> = None;
        loop {
            if stop.load(Ordering::Relaxed) && kill_at.is_none() {
                kill_at = Some(Instant::now() + GRACE);
                signal(child, Signal::SIGTERM);
            }
            let time_left = kill_at.map(|moment| moment.saturating_duration_since(Instant::now()));
            if time_left.is_some_and(|left| left.is_zero()) {
                // Its own children end with it.
                signal(child, Signal::SIGKILL);
                child.wait().context("waiting for the player")?;
                return Ok(ChildEnd::Stopped);
            }
            let timeout = time_left.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            });
            // After a stop, the signal's byte is still in the pipe and would end every poll at
            // once.
            let mut waited = vec![PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            if kill_at.is_none() {
                waited.push(PollFd::new(self.came.as_fd(), PollFlags::POLLIN));
            }
            match poll(&mut waited, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("waiting for the player"),
            }
            let has_news = waited[0].any().unwrap_or(false);
            if has_news
                && stdout
                    .read(&mut [0; 512])
                    .context("reading from the player")?
                    == 0
            {
                child.wait().context("waiting for the player")?;
                return Ok(kill_at.map_or(ChildEnd::ByItself, |_| ChildEnd::Stopped));
            }
        }
    }
}

impl Drop for SignalPipe {
    fn drop(&mut self) {
        self.handlers.drain(..).for_each(|handler| {
            unregister(handler);
        });
    }
}

/// Signals a child that is not reaped yet, which works even when it has ended.
fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).expect("invariant: pids are below 2²²");
    let sent = kill(Pid::from_raw(pid), signal);
    debug_assert!(
        sent.is_ok(),
        "invariant: an unreaped child can be signalled"
    );
}

//! The flight recorder beside the agent: `swtch record --ring`, as a process of its own. It needs
//! another capture and other rights than the agent, and its end leaves the metrics as they are.
//!
//! ```text
//! agent (no rights) ◀─lines─ swtch keep-recorder ─starts─▶ swtch record --ring (gives up its rights)
//!                            (keeps its rights)  ─again, after a pause, when it ends─▶ …
//! ```
//!
//! The keeper is started before the agent gives up its rights. It keeps them, because loading programs
//! takes them, and does nothing else: it reads nothing that others wrote.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::lchown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use swtch_core::Trigger;
use swtch_output::caller::Caller;
use swtch_output::message;

use super::AgentRequest;
use super::segments::{SEGMENTS, SegmentsRequest, UNFINISHED};
use super::totals::AgentTotals;
use crate::record::{KeptSize, Target};

/// The hidden command that runs the keeper.
const VERB: &str = "keep-recorder";

/// The trace of the flight recorder, in the directory of the sink.
const RING: &str = "ring.swtch";

/// What the last run of the flight recorder has kept.
const PREVIOUS: &str = "previous.swtch";

/// What the keeper says when the flight recorder has begun, and when it has ended.
const BEGUN: &str = "begun";
const ENDED: &str = "ended";

/// The pause before it is started again, which doubles each time, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Once it has run for so long, the next pause is the first one again.
const RAN_WELL: Duration = Duration::from_secs(600);

/// What is recorded besides, and where it goes.
#[derive(Clone, Debug)]
pub struct SinkRequest {
    /// The directory of all of it.
    pub directory: PathBuf,
    /// How much the flight recorder keeps.
    pub ring: KeptSize,
    /// When it makes a dump by itself.
    pub when: Vec<Trigger>,
    /// Whether all of it is written as segments.
    pub segments: Option<SegmentsRequest>,
}

impl SinkRequest {
    /// The trace of the flight recorder.
    pub fn ring(&self) -> PathBuf {
        self.directory.join(RING)
    }
}

/// A keeper that was started. It ends with the agent.
#[derive(Debug)]
pub struct SinkRecorder {
    keeper: Child,
    says: ChildStdout,
}

impl SinkRecorder {
    /// Prepares the directory, and starts the keeper.
    ///
    /// # Errors
    /// When the directory cannot be written, or the program not be started.
    pub fn start(sink: &SinkRequest, request: &AgentRequest) -> Result<Self> {
        prepare(sink)
            .with_context(|| format!("preparing the directory {}", sink.directory.display()))?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("swtch")
            .args([VERB, "--with-parent", &std::process::id().to_string(), "--"]);
        command.args(["record", "--ring", &sink.ring.to_string(), "-o", RING]);
        match &request.top.record.target {
            Target::Cgroups(paths) => {
                for path in paths {
                    let found = path.canonicalize();
                    let found =
                        found.with_context(|| format!("finding the cgroup {}", path.display()));
                    command.arg("--cgroup").arg(found?);
                }
            }
            _ => {
                command.arg("--all");
            }
        }
        for hook in &request.top.record.with_hooks {
            command.args(["--with-hook", hook]);
        }
        for condition in &sink.when {
            command.args(["--when", &condition.to_string()]);
        }
        // Names are those in this directory, whatever becomes of its own name.
        command.current_dir(&sink.directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut keeper = command.spawn().context("starting the flight recorder")?;
        let says = keeper
            .stdout
            .take()
            .context("listening to the flight recorder")?;
        Ok(Self { keeper, says })
    }

    /// Notes from now on, in a thread of its own, whether the flight recorder runs.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen(self, totals: &Arc<Mutex<AgentTotals>>) -> Result<()> {
        let totals = Arc::clone(totals);
        let set = move |is_up: bool, was_restarted: bool| {
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.sink.recorder_is_up = is_up;
            totals.sink.recorder_restarts += u64::from(was_restarted);
        };
        let Self { mut keeper, says } = self;
        let listen = move || {
            let lines = BufReader::new(says).lines().map_while(Result::ok);
            let begun = lines.filter(|line| {
                set(line == BEGUN, false);
                line == BEGUN
            });
            begun.skip(1).for_each(|_| set(true, true));
            set(false, false);
            let end = keeper
                .wait()
                .map_or_else(|error| error.to_string(), |end| end.to_string());
            message!("swtch: what keeps the flight recorder has ended ({end}); metrics go on");
        };
        let thread = thread::Builder::new().name("swtch-recorder".to_owned());
        thread.spawn(listen).context("starting a thread")?;
        Ok(())
    }
}

/// Runs a flight recorder with these arguments again and again. Returns when nobody listens any more.
///
/// # Errors
/// When the parent has ended, or the program cannot be started.
pub fn keep(parent: u32, words: &[OsString]) -> Result<u8> {
    set_pdeathsig(Signal::SIGTERM).context("asking to end with the agent")?;
    // The parent may have ended already: then no signal arrives.
    if nix::unistd::getppid().as_raw().unsigned_abs() != parent {
        return Ok(0);
    }
    let mut pause = FIRST_PAUSE;
    loop {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("swtch").args(words);
        command.args(["--with-parent", &std::process::id().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let began = Instant::now();
        let mut recorder = command.spawn().context("starting the flight recorder")?;
        say(BEGUN)?;
        let end = recorder.wait().context("waiting for the flight recorder")?;
        say(ENDED)?;
        if began.elapsed() >= RAN_WELL {
            pause = FIRST_PAUSE;
        }
        message!(
            "swtch: the flight recorder has ended ({end}); metrics go on, and it is started again in {} s",
            pause.as_secs()
        );
        thread::sleep(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
        keep_previous(Path::new("")).context("moving what the flight recorder has kept")?;
    }
}

fn say(word: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{word}").context("telling the agent")
}

/// Makes the directories, and moves what the last run has kept out of the way: it stays for one more
/// run.
fn prepare(sink: &SinkRequest) -> io::Result<()> {
    fs::create_dir_all(sink.directory.join(SEGMENTS))?;
    keep_previous(&sink.directory)?;
    let unfinished = sink.directory.join(UNFINISHED);
    remove_if_there(&unfinished)?;
    fs::create_dir(&unfinished)?;
    give_to_caller(&[&sink.directory, &sink.directory.join(SEGMENTS), &unfinished])
}

/// Moves what a run has kept out of the way of the next one. What there was of the run before goes.
fn keep_previous(directory: &Path) -> io::Result<()> {
    let ring = directory.join(RING);
    if fs::symlink_metadata(&ring).is_ok() {
        let previous = directory.join(PREVIOUS);
        remove_if_there(&previous)?;
        fs::rename(ring, previous)?;
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The agent goes on as the user who called `sudo`, who must be able to write there. A symbolic link
/// is not followed: whoever owns the directory could give itself any file by one.
fn give_to_caller(paths: &[&Path]) -> io::Result<()> {
    let caller = Caller::of_sudo().map_err(io::Error::other)?;
    let Some(caller) = caller else {
        return Ok(());
    };
    paths.iter().try_for_each(|path| {
        let (user, group) = (caller.user.as_raw(), caller.group.as_raw());
        lchown(path, Some(user), Some(group))
    })
}

//! `swtch record`: one pipeline, from the rings to the trace.
//!
//! ```text
//! hold the command ─▶ start the finder ─▶ attach ─▶ make the trace ─▶ release it ─▶ give up rights
//!     ┌────────────────────────────────────────────────────────────────────────────────┘
//!     └▶ drain ─▶ merge ─▶ timeline ─▶ writer        (until it ends, a signal, or the time is up)
//!        user level ─▲                    └▶ finish ─▶ Parquet, meta.json
//! ```

mod command;
mod commands;
mod facts;
mod pipeline;
mod priority;
mod user_level;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use swtch_capture::signals::not_ignored;
use swtch_capture::{
    Capture, Children, Guard, HeldCommand, Kept, Scope, Settings, drop_privileges,
    empty_bounding_set, forbid_new_privileges, kernel_version, raise_priority, refuse_system_calls,
    require_proc,
};
use swtch_core::{Nanos, Pid, Timestamp};
use swtch_store::{Directory, Meta, State, Whereabouts, Writer};

use crate::FAILED;
use crate::caller::Caller;
use crate::report::{is_failure, why_empty};
use crate::text::escaped;
use command::exit_code;
use commands::Commands;
use pipeline::Pipeline;
use user_level::{Finder, UserLevel};

pub use facts::WHOLE_SYSTEM;
pub use user_level::find_schedulers;

/// What to record.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whose switches.
    pub target: Target,
    /// Where the trace goes; a name of our own in this directory when `None`.
    pub output: Option<PathBuf>,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// Take stacks of waits that blocked for at least this long.
    pub stacks: Option<Nanos>,
    /// Hooks to treat as missing.
    pub without_hooks: Vec<String>,
    /// Hooks to attach to although this kernel can crash by them.
    pub with_hooks: Vec<String>,
    /// The process that started this one, if the recording shall go on no longer than it.
    pub with_parent: Option<Pid>,
}

/// What this process does when it has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// It says what came of it.
    Tells,
    /// It measures what switches cost. A filter of system calls would be in each price: 10 to 30 ns a
    /// system call, seen on 6.18.
    MeasuresPrices,
}

/// Whose switches are recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command that is started.
    Command(Vec<OsString>),
    /// Running processes.
    Processes {
        /// Their ids.
        pids: Vec<Pid>,
        /// Whether the processes below them are recorded, too.
        children: Children,
    },
    /// A cgroup.
    Cgroup(PathBuf),
    /// Everything.
    All,
}

/// What came of it.
#[derive(Debug)]
pub struct Recorded {
    /// The trace. Its path may be one that this process must not use any more.
    pub directory: Directory,
    /// Whether there is a trace: it may have been removed while it was recorded.
    pub is_there: bool,
    /// Its facts.
    pub meta: Meta,
    /// Switches of the tasks that were asked for: what reports count.
    in_scope: u64,
    /// The exit code of the command, when there was one and it has ended.
    exit_code: Option<u8>,
}

impl Recorded {
    fn tell_counts(&self) {
        match why_empty(&self.meta, self.in_scope) {
            // Whoever reads "0 switches, 0 lost" believes it.
            Some(why) if self.is_failure() => talk!("error: {}", escaped(&why)),
            why => {
                self.tell_how_many();
                if let Some(why) = why {
                    talk!("swtch: {}", escaped(&why));
                }
                self.tell_doubts();
            }
        }
    }

    /// Whether it is empty although something switched.
    fn is_failure(&self) -> bool {
        is_failure(&self.meta, self.in_scope)
    }

    fn tell_how_many(&self) {
        let (counts, overhead) = (&self.meta.counts, &self.meta.overhead);
        let in_trace = match self.not_stored() {
            0 => format!("{} switches", self.in_scope),
            not_stored => format!("{} switches stored, {not_stored} not stored", self.stored()),
        };
        talk!(
            "swtch: {in_trace}, {} lost; recorder: {} CPU, {:.0} MB memory",
            counts.lost,
            Nanos::from_ns(overhead.recorder_cpu_ns),
            megabytes(overhead.recorder_peak_rss_bytes),
        );
        let others = counts.stored.saturating_sub(self.in_scope);
        if others > 0 && self.not_stored() == 0 {
            talk!("swtch: {others} more are those of others, which had the CPU meanwhile");
        }
    }

    /// What may be missing, and what was left out.
    fn tell_doubts(&self) {
        let counts = &self.meta.counts;
        let guard = self.meta.guard.as_ref();
        if let Some(hint) = guard.and_then(|guard| priority::hint(guard, counts.lost)) {
            talk!("swtch: {hint}");
        }
        let missed = self.meta.tree.map_or(0, |tree| tree.missed);
        if missed > 0 {
            talk!(
                "swtch: processes below those of -p may be missing: too many ended while they were \
                 looked for ({missed} not looked at)"
            );
        }
        if let Some(user) = &self.meta.user {
            talk!(
                "swtch: {} switches of user-mode schedulers, {} lost (report --by level)",
                user.stored,
                user.lost
            );
            for refusal in &user.refused {
                talk!("swtch: {}", escaped(refusal));
            }
        }
    }

    /// Switches that are in the trace.
    fn stored(&self) -> u64 {
        if self.is_there {
            self.meta.counts.stored
        } else {
            0
        }
    }

    /// Switches that were recorded and are not in the trace.
    fn not_stored(&self) -> u64 {
        let counts = &self.meta.counts;
        (counts.stored + counts.storage_failed).saturating_sub(self.stored())
    }

    /// The exit code of the command, unless it is 0 and the recording failed: then that is told.
    pub fn exit_code(&self) -> u8 {
        let own = match self.meta.state {
            State::StoppedEarly => FAILED,
            _ if self.is_failure() => FAILED,
            _ => 0,
        };
        self.exit_code.filter(|code| *code != 0).unwrap_or(own)
    }

    /// Says where the trace is, and when it is not all that was asked for.
    pub fn tell_path(&self) {
        let path = self.directory.path().to_string_lossy();
        match self.directory.whereabouts() {
            _ if !self.is_there => talk!("swtch: there is no trace"),
            Whereabouts::InPlace | Whereabouts::Removed => {
                talk!("swtch: the trace is {}", escaped(&path));
            }
            Whereabouts::Moved(to) => talk!(
                "swtch: the trace was moved while it was recorded: it is {}",
                escaped(&to.to_string_lossy())
            ),
        }
        if let Some(reason) = &self.meta.stop_reason {
            talk!("swtch: the recording stopped early: {}", escaped(reason));
            match self.stored() {
                0 => talk!("swtch: no switch of it is stored"),
                stored => {
                    talk!("swtch: the {stored} switches that were stored before are in the trace")
                }
            }
        }
    }
}

/// Records and says what came of it; the command's exit code.
///
/// # Errors
/// As [`run`].
pub fn run_and_tell(request: &Request) -> Result<u8> {
    let recorded = run(request, Afterwards::Tells)?;
    recorded.tell_counts();
    recorded.tell_path();
    Ok(recorded.exit_code())
}

/// How long a round waits for the next, at most: 50 wake-ups a second of our own.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// And at least.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Records that a ring should gather between two rounds: 340 kB, which stays in a core's cache.
const RECORDS_A_ROUND: u64 = 2_000;
/// Pending rows become a batch on disk this often, so that a kill loses no more.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Processes that were asked for are looked for this often: when all have ended, so do we.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the command may take to end after a signal was passed on to it.
const GRACE: Duration = Duration::from_secs(5);
/// Names of our own that may be taken before we give up.
const MOST_OF_A_NAME: u32 = 1_000;

/// Records until the command ends, the time is up or a signal comes.
///
/// # Errors
/// When the capture cannot start or the trace cannot be made. Once recording, a full disk ends the
/// recording and not the command; the trace says so.
pub fn run(request: &Request, afterwards: Afterwards) -> Result<Recorded> {
    require_proc()?;
    let arch = facts::arch()?;
    let caller = Caller::of_sudo()?;
    let mut command = match &request.target {
        Target::Command(words) => Some(HeldCommand::start(words)?),
        _ => None,
    };
    let signals = Signals::catch()?;
    let settings = settings(request, command.as_ref());
    // It inherits a right that we drop, and shall not inherit our priority. What starting it takes is
    // over before the first switch is recorded.
    let finder = Finder::start().context("starting to look for user-mode schedulers")?;
    let mut capture = Capture::start(&settings, arch)?;
    let mut meta = facts::at_start(request, &capture);
    let writer = make_trace(request, &meta)?;
    let user_level = UserLevel::new(finder, capture.streams());
    let mut pipeline = Pipeline::new(arch, writer, user_level, request.stacks.is_some());
    let heir = caller.filter(|caller| inherits(caller, &pipeline));
    let guard = start_guard(&capture, heir.is_some())?;
    let guarded_by = guard.priority();
    raise_priority();
    // While there are still the rights to remove the trace. From here on the command runs, and there
    // is something to record: the trace is never removed any more.
    if let Some(Err(error)) = command.as_mut().map(HeldCommand::release) {
        pipeline.discard()?;
        return Err(error.into());
    }
    let confined = give_up_rights(
        request,
        heir.as_ref(),
        command.as_ref(),
        &mut pipeline,
        afterwards,
    );
    let directory = pipeline.directory().clone();
    let session = Session {
        request,
        signals,
        command,
    };
    let ending = confined.and_then(|()| session.watch(&mut capture, &mut pipeline));
    facts::at_end(&mut meta, &mut capture);
    capture.detach();
    meta.guard = Some(priority::guard_in_trace(guarded_by, guard.end()));
    let exit_code = session.command_exit_code(ending.as_ref().err());
    let finished = finish(pipeline, &mut capture, &mut meta, ending);
    Ok(Recorded {
        directory,
        is_there: finished.is_there,
        meta,
        in_scope: finished.in_scope,
        exit_code,
    })
}

/// Starts what keeps this thread from being starved, while there is the right to a real-time priority.
/// With a caller, the whole process becomes one of that user later, and the guard with it.
fn start_guard(capture: &Capture, will_change_user: bool) -> Result<Guard> {
    let kept = Kept {
        change_user: will_change_user,
        ..Kept::default()
    };
    let guard = capture
        .guard(kept)
        .context("starting to guard the recorder")?;
    if let Some(warning) = priority::warning(guard.priority()) {
        talk!("swtch: {}", escaped(&warning));
    }
    Ok(guard)
}

/// Makes the trace at the path that was asked for, or at one of our own that is not taken.
fn make_trace(request: &Request, meta: &Meta) -> Result<Writer, swtch_store::Error> {
    if let Some(path) = &request.output {
        return Writer::create(path, meta);
    }
    let mut nth = 1;
    loop {
        match Writer::create(&facts::default_path(&request.target, nth), meta) {
            Err(swtch_store::Error::Exists { .. }) if nth < MOST_OF_A_NAME => nth += 1,
            made => return made,
        }
    }
}

/// Gives the trace to who called sudo. A file system without owners keeps it root's, and then the
/// recorder stays root, too: nobody else could write to it.
fn inherits(caller: &Caller, pipeline: &Pipeline) -> bool {
    let (user, group) = (caller.user.as_raw(), caller.group.as_raw());
    match pipeline.give_to(user, group) {
        Ok(()) => true,
        Err(error) => {
            let why = format!("{:#}", anyhow::Error::from(error));
            talk!("swtch: the trace stays root's: {}", escaped(&why));
            false
        }
    }
}

/// From here on the recorder has no right that it does not need, and gets none back.
fn give_up_rights(
    request: &Request,
    heir: Option<&Caller>,
    command: Option<&HeldCommand>,
    pipeline: &mut Pipeline,
    afterwards: Afterwards,
) -> Result<()> {
    empty_bounding_set();
    if let Some(caller) = heir {
        caller.become_it()?;
    }
    let kept = Kept {
        rings: true,
        look_at_processes: request.stacks.is_some(),
        // As root it could read the programs whose symbols it looks up.
        open_files_of_others: heir.is_some() && request.stacks.is_some(),
        // The command may be root's, or one that changes its user.
        signal_others: command.is_some(),
        change_user: false,
    };
    if let Some(command) = command {
        command.give_up_rights()?;
    }
    pipeline.read_commands(Commands::start()?);
    drop_privileges(kept, kernel_version())?;
    forbid_new_privileges()?;
    if afterwards == Afterwards::Tells {
        refuse_system_calls()?;
    }
    if let Some(parent) = request.with_parent {
        end_with(parent)?;
    }
    Ok(())
}

/// Has the kernel send SIGTERM when the parent ends. It forgets that when privileges are dropped (prctl(2)),
/// so it comes after that.
fn end_with(parent: Pid) -> Result<()> {
    set_pdeathsig(Signal::SIGTERM).context("asking to end with the parent")?;
    // The command runs by now, and the parent may have ended meanwhile: then no signal comes any more.
    if nix::unistd::getppid().as_raw().unsigned_abs() != parent.get() {
        raise(Signal::SIGTERM).context("ending with the parent")?;
    }
    Ok(())
}

fn settings(request: &Request, command: Option<&HeldCommand>) -> Settings {
    let scope = match (&request.target, command) {
        (Target::Command(_), Some(command)) => Scope::Processes {
            pids: vec![command.pid()],
            children: Children::Recorded,
        },
        (Target::Processes { pids, children }, _) => Scope::Processes {
            pids: pids.clone(),
            children: *children,
        },
        (Target::Cgroup(path), _) => Scope::Cgroup(path.clone()),
        _ => Scope::All,
    };
    let cpus = facts::possible_cpus();
    Settings {
        stacks: request.stacks,
        without_hooks: request.without_hooks.clone(),
        with_hooks: request.with_hooks.clone(),
        ..Settings::new(scope, cpus)
    }
}

/// The pause that would have gathered the wanted number of records; none when far more came.
fn next_pause(last: Duration, gathered: u64) -> Duration {
    if gathered > 8 * RECORDS_A_ROUND {
        return Duration::ZERO;
    }
    let last = last.max(SHORTEST_PAUSE);
    let wanted = last.mul_f64(as_ratio(RECORDS_A_ROUND, gathered.max(1)));
    wanted.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of small counts")]
fn as_ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

struct Session<'a> {
    request: &'a Request,
    signals: Signals,
    command: Option<HeldCommand>,
}

impl Session<'_> {
    /// Runs the rounds until the command has ended, the time is up, or a person asks.
    ///
    /// # Errors
    /// When the trace takes no more, or was removed.
    fn watch(&self, capture: &mut Capture, pipeline: &mut Pipeline) -> Result<()> {
        let start = Instant::now();
        let (mut flushed, mut looked, mut told) = (start, start, start);
        let mut targets_are_gone = false;
        let mut asked_to_stop: Option<Instant> = None;
        let mut pause = LONGEST_PAUSE;
        loop {
            let most_in_a_ring = pipeline.round(capture)?;
            let now = Instant::now();
            if now - flushed >= FLUSH_EVERY {
                flushed = now;
                pipeline.flush(capture)?;
            }
            if now - looked >= LOOK_EVERY {
                looked = now;
                targets_are_gone = capture.targets_are_gone();
            }
            if now - told >= PROGRESS_EVERY {
                told = now;
                self.tell_progress(now - start, capture, pipeline);
            }
            if asked_to_stop.is_none() && self.signals.any() {
                asked_to_stop = Some(now);
                self.pass_signal_on();
            }
            let is_over = match &self.command {
                Some(command) => command
                    .ended()
                    .context("waiting for the command")?
                    .is_some(),
                None => asked_to_stop.is_some() || targets_are_gone,
            };
            let is_time_up = self
                .request
                .duration
                .is_some_and(|limit| now - start >= limit)
                || asked_to_stop.is_some_and(|asked| now - asked >= GRACE);
            if is_over || is_time_up {
                return Ok(());
            }
            pause = next_pause(pause, most_in_a_ring);
            thread::sleep(pause);
        }
    }

    /// Ctrl-C reaches the command from the terminal, and twice might mean more to it than once; a
    /// signal to us alone is passed on.
    fn pass_signal_on(&self) {
        let signal = self.signals.last();
        match &self.command {
            Some(command) if !(signal == SIGINT && is_in_foreground()) => command.signal(signal),
            _ => {}
        }
    }

    fn tell_progress(&self, elapsed: Duration, capture: &Capture, pipeline: &Pipeline) {
        let mut stderr = std::io::stderr();
        if !stderr.is_terminal() {
            return;
        }
        let counters = capture.counters();
        // A terminal that is gone is no reason to stop recording.
        let _ = write!(
            stderr,
            "\r\x1b[Kswtch: {} s, {} switches, {} lost, {:.1} MB",
            elapsed.as_secs(),
            pipeline.in_scope(),
            counters.lost,
            megabytes(pipeline.bytes_written()),
        );
    }

    /// Waits for the command's end, and passes signals on to it.
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
            thread::sleep(LONGEST_PAUSE);
        }
    }

    /// How the command ended. After a time limit it goes on, and has no exit code.
    fn command_exit_code(&self, failure: Option<&anyhow::Error>) -> Option<u8> {
        let command = self.command.as_ref()?;
        let ended = match failure {
            // The command is not ours to end: wait for it, unrecorded.
            Some(failure) => {
                let why = format!("{failure:#}");
                talk!("swtch: {}; the command goes on unrecorded", escaped(&why));
                self.wait_unrecorded(command)
            }
            None => command.ended(),
        };
        // That the kernel does not tell has ended the recording, and was said.
        ended.ok().flatten().map(exit_code)
    }
}

/// What [`finish`] left.
struct Finished {
    /// Switches of the tasks that were asked for.
    in_scope: u64,
    is_there: bool,
}

/// Puts the trace in its final form. A disk that takes no more is no error of ours: what is there
/// stays readable, and the facts say so.
fn finish(
    mut pipeline: Pipeline,
    capture: &mut Capture,
    meta: &mut Meta,
    recorded: Result<()>,
) -> Finished {
    let end = Timestamp::from_ns(meta.end_ns);
    // Even after a failure: what is left must be counted.
    let ended = pipeline.end(capture, end);
    match recorded.and(ended.map_err(Into::into)) {
        Ok(()) => meta.state = State::Finished,
        Err(error) => stop_early(meta, error),
    }
    facts::complete(meta, capture, &pipeline);
    let in_scope = pipeline.in_scope();
    let mut progress = Progress::new("finishing");
    let finished = pipeline.finish(meta, &mut |done, all| progress.tell(done, all));
    progress.clear();
    let is_there = !matches!(finished, Err(swtch_store::Error::Removed { .. }));
    if let Err(error) = finished {
        stop_early(meta, error.into());
    }
    Finished { in_scope, is_there }
}

/// The first reason counts: the others follow from it.
fn stop_early(meta: &mut Meta, error: anyhow::Error) {
    meta.state = State::StoppedEarly;
    meta.stop_reason.get_or_insert_with(|| format!("{error:#}"));
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Signals that end a recording properly. What was ignored when we were started stays so: that is what
/// `nohup` and the background jobs of scripts are for.
struct Signals(Arc<AtomicUsize>);

impl Signals {
    fn catch() -> Result<Self> {
        let last = Arc::new(AtomicUsize::new(0));
        for signal in not_ignored(&[SIGINT, SIGTERM, SIGHUP]) {
            let number = usize::try_from(signal).unwrap_or(0);
            signal_hook::flag::register_usize(signal, Arc::clone(&last), number)
                .context("catching signals")?;
        }
        Ok(Self(last))
    }

    fn last(&self) -> i32 {
        i32::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn any(&self) -> bool {
        self.last() != 0
    }
}

/// Whether our process group, which the command shares, is the one that a terminal sends Ctrl-C to.
fn is_in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| {
        nix::unistd::tcgetpgrp(&terminal).is_ok_and(|group| group == nix::unistd::getpgrp())
    })
}

/// A line on the terminal that is written over: nothing where nobody watches.
struct Progress {
    what: &'static str,
    is_shown: bool,
    last: Instant,
}

impl Progress {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            is_shown: std::io::stderr().is_terminal(),
            last: Instant::now(),
        }
    }

    fn tell(&mut self, done: u64, all: u64) {
        if self.is_shown && self.last.elapsed() >= Duration::from_millis(200) {
            self.last = Instant::now();
            talk_part!("\r\x1b[Kswtch: {} {done} of {all} rows", self.what);
        }
    }

    fn clear(&self) {
        if self.is_shown {
            talk_part!("\r\x1b[K");
        }
    }
}

//! `swtch record`: one pipeline, from the rings to the trace.
//!
//! ```text
//! hold the command ─▶ start the finder ─▶ attach ─▶ make the trace ─▶ release it ─▶ give up rights
//!     ┌────────────────────────────────────────────────────────────────────────────────┘
//!     └▶ drain ─bytes─▶ records.raw                 (until it ends, a signal, or the time is up)
//!           └▶ decode ─▶ merge ─▶ timeline ─▶ Parquet, meta.json                   (after the end)
//! ```

mod command;
mod commands;
pub mod facts;
mod lasting;
mod pause;
mod perf;
mod pipeline;
mod priority;
mod quotas;
mod ring;
mod summary;
pub mod user_level;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use signal_hook::consts::SIGINT;
use swtch_capture::limits::{limit_behind, require_cpu_time};
use swtch_capture::{
    Capture, Children, Guard, HeldCommand, KeptPrivileges, RecordingScope, Settings,
    drop_privileges, empty_bounding_set, forbid_new_privileges, kernel_version, raise_priority,
    refuse_system_calls, require_proc,
};
use swtch_core::{Nanos, Pid};
use swtch_output::caller::{Caller, as_caller};
use swtch_output::exit_code::FAILED;
use swtch_output::message;
use swtch_output::progress::ProgressLine;
use swtch_output::text::escaped;
use swtch_report::report::{is_failure, lost_in_words, untraced_in_words, why_empty};
use swtch_store::{Directory, DirectoryState, Meta, RecordingState, Writer};

use command::exit_code;
use commands::Commands;
use pause::{DrainRound, Pauses};
use pipeline::{Pipeline, RowsToMake};
use ring::DumpRequests;
use user_level::{Finder, UserLevel};

pub use pause::StopSignals;
pub use ring::{DumpAnswer, DumpAsk, KeptSize, MOST_ASK_BYTES, RingRequest, SOCKET};
pub use summary::{SummaryRequest, summarise};
pub use user_level::find_schedulers;

/// The settings of one recording.
#[derive(Clone, Debug)]
pub struct RecordRequest {
    /// What is recorded.
    pub target: Target,
    /// The path of the trace; `None` picks a name with the date in the current directory.
    pub output: Option<PathBuf>,
    /// Stop after this time, measured from the first round of draining; `None` sets no limit.
    pub duration: Option<Duration>,
    /// Record the stacks of waits that blocked for at least this long; `None` records no stacks.
    pub stacks: Option<Nanos>,
    /// Memory for the rings of all CPUs, in bytes; `None` for the default.
    pub buffer: Option<u64>,
    /// By what switches are recorded.
    pub backend: BackendChoice,
    /// How much of its end is kept; `None` if all of the recording is.
    pub ring: Option<RingRequest>,
    /// Hooks to treat as missing.
    pub without_hooks: Vec<String>,
    /// Hooks to attach to even if eBPF on them can crash this kernel.
    pub with_hooks: Vec<String>,
    /// The process that started this one, if the recording must end with it.
    pub with_parent: Option<Pid>,
}

/// By what switches are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendChoice {
    /// The one that tells most of those that are allowed here.
    Auto,
    /// eBPF programs: every reason, waker and preemptor. Takes root.
    Ebpf,
    /// Perf events of own processes: when threads leave and come back, and whether they could have run on.
    Perf,
    /// The counters in /proc of own processes: how many switches, and no trace (explain only).
    Proc,
}

impl RecordRequest {
    /// Whether a recording without root can take the place of one that is refused. Stacks and rings
    /// cannot be had there, and who asks for them wants no trace without.
    const fn may_go_without_root(&self) -> bool {
        matches!(self.backend, BackendChoice::Auto)
            && self.stacks.is_none()
            && self.ring.is_none()
            && matches!(self.target, Target::Command(_) | Target::Processes { .. })
    }
}

/// What this process does after it has recorded, which decides whether it filters system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRecording {
    /// It only reports what was recorded, under a filter of system calls.
    Tells,
    /// It measures what switches cost, without a filter of system calls: the filter would be part
    /// of each price, 10 to 30 ns a system call (seen on 6.18).
    MeasuresPrices,
}

/// What is recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command, which the recorder starts.
    Command(Vec<OsString>),
    /// Processes that are running already.
    Processes {
        /// Their ids.
        pids: Vec<Pid>,
        /// Whether the processes below them are recorded, too.
        children: Children,
    },
    /// The tasks of cgroups, given by their directories.
    Cgroups(Vec<PathBuf>),
    /// All tasks of the machine.
    All,
}

/// The result of a recording.
#[derive(Debug)]
pub struct RecordingResult {
    /// The trace. Its path may not be usable for this process any more.
    pub directory: Directory,
    /// False if the trace was removed while it was recorded.
    pub is_there: bool,
    /// The facts that were written to `meta.json`.
    pub meta: Meta,
    /// Switches of the tasks that were asked for, which is what reports count.
    in_scope: u64,
    /// The exit code of the command; `None` if there was no command, or it still runs.
    exit_code: Option<u8>,
}

impl RecordingResult {
    fn tell_counts(&self) {
        match why_empty(&self.meta, self.in_scope) {
            // An empty trace must not end with "0 switches, 0 lost", which reads like an answer. One that
            // stopped early says below why it did.
            Some(why) if self.is_failure() && !self.has_stopped_early() => {
                message!("error: {}", escaped(&why));
            }
            Some(why) if !self.has_stopped_early() => {
                self.tell_how_many();
                message!("swtch: {}", escaped(&why));
                self.tell_doubts();
            }
            _ => {
                self.tell_how_many();
                self.tell_doubts();
            }
        }
    }

    fn has_stopped_early(&self) -> bool {
        self.meta.state == RecordingState::StoppedEarly
    }

    /// True if no switch in scope was stored because of a failure, such as lost records.
    fn is_failure(&self) -> bool {
        is_failure(&self.meta, self.in_scope)
    }

    fn tell_how_many(&self) {
        let (counts, overhead) = (&self.meta.counts, &self.meta.overhead);
        let in_trace = match self.not_stored() {
            0 => format!("{} switches", self.in_scope),
            not_stored => format!("{} switches stored, {not_stored} not stored", self.stored()),
        };
        message!(
            "swtch: {in_trace}, {}; recorder: {} CPU, {:.0} MB memory{}",
            lost_in_words(counts.lost, counts.untraced),
            Nanos::from_ns(overhead.recorder_cpu_ns),
            megabytes(overhead.recorder_peak_rss_bytes),
            overhead
                .in_kernel()
                .map_or_else(String::new, |cost| format!(", {cost}")),
        );
        if let Some(ring) = &self.meta.ring {
            let since = |start_ns| Nanos::from_ns(self.meta.end_ns.saturating_sub(start_ns));
            message!(
                "swtch: these are of the last {}, which the ring kept; in {} there were {} switches, {}",
                since(self.meta.start_ns),
                since(ring.began_ns),
                ring.switches,
                lost_in_words(ring.lost, ring.untraced)
            );
        }
        let others = counts.stored.saturating_sub(self.in_scope);
        if others > 0 && self.not_stored() == 0 {
            message!("swtch: {others} more are those of others, which had the CPU meanwhile");
        }
    }

    /// Reports what may be missing, and what was left out.
    fn tell_doubts(&self) {
        let counts = &self.meta.counts;
        let guard = self.meta.guard.as_ref();
        if let Some(untraced) = untraced_in_words(counts.untraced, counts.untraced_in_scope) {
            message!("swtch: {untraced}");
        }
        if let Some(hint) = guard.and_then(|guard| priority::hint(guard, counts.lost)) {
            message!("swtch: {hint}");
        }
        let missed = self.meta.tree.map_or(0, |tree| tree.missed);
        if missed > 0 {
            message!(
                "swtch: processes below those of -p may be missing: too many ended while they were \
                 looked for ({missed} not looked at)"
            );
        }
        if let Some(user) = &self.meta.user {
            message!(
                "swtch: {} switches of user-mode schedulers, {} lost (report --by level)",
                user.stored,
                user.lost
            );
            for refusal in &user.refused {
                message!("swtch: {}", escaped(refusal));
            }
        }
    }

    fn stored(&self) -> u64 {
        if self.is_there {
            self.meta.counts.stored
        } else {
            0
        }
    }

    /// Switches that were recorded but did not reach the trace.
    fn not_stored(&self) -> u64 {
        let counts = &self.meta.counts;
        (counts.stored + counts.storage_failed).saturating_sub(self.stored())
    }

    /// The exit code of the command if it is not 0; otherwise 2 if the recording failed, or 0.
    pub fn exit_code(&self) -> u8 {
        let own = match self.has_stopped_early() || self.is_failure() {
            true => FAILED,
            false => 0,
        };
        self.exit_code.filter(|code| *code != 0).unwrap_or(own)
    }

    /// Reports where the trace is, and why it does not hold all that was asked for.
    pub fn tell_path(&self) {
        let path = self.directory.path().to_string_lossy();
        match self.directory.state() {
            _ if !self.is_there => message!("swtch: there is no trace"),
            DirectoryState::InPlace | DirectoryState::Removed => {
                message!("swtch: the trace is {}", escaped(&path));
            }
            DirectoryState::Moved(to) => message!(
                "swtch: the trace was moved while it was recorded: it is {}",
                escaped(&to.to_string_lossy())
            ),
        }
        if let Some(reason) = &self.meta.stop_reason {
            message!("swtch: the recording stopped early: {}", escaped(reason));
            match self.stored() {
                0 => message!("swtch: no switch of it is stored"),
                stored => {
                    message!(
                        "swtch: the {stored} switches that were stored before are in the trace"
                    )
                }
            }
        }
    }
}

/// Records, reports the result, and returns the command's exit code.
///
/// # Errors
/// As [`run`].
pub fn run_and_tell(request: &RecordRequest) -> Result<u8> {
    let recorded = run(request, AfterRecording::Tells)?;
    recorded.tell_counts();
    recorded.tell_path();
    Ok(recorded.exit_code())
}

/// Pending rows are written this often. A killed recorder loses what came since, and what lay in the
/// rings.
const FLUSH_EVERY: Duration = Duration::from_millis(500);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// How often the progress of the final form of the trace is shown.
const FINISHING_EVERY: Duration = Duration::from_millis(200);
/// How often to check whether any process that was asked for still runs; if none does, stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often a command that goes on unrecorded is looked at, unless it ends before that.
const WAIT_STEP: Duration = Duration::from_millis(100);
/// How long the recording goes on after a signal, so that the command can end.
const GRACE: Duration = Duration::from_secs(5);
/// Names that are tried for a trace without `-o` before the recorder gives up.
const MOST_OF_A_NAME: u32 = 1_000;

/// Records until the command ends, the time is up or a signal comes.
///
/// # Errors
/// When the capture cannot start or the trace cannot be made. Once recording, a full disk ends the
/// recording and not the command; the trace says so.
pub fn run(request: &RecordRequest, afterwards: AfterRecording) -> Result<RecordingResult> {
    require_proc()?;
    let refusal = match request.backend {
        BackendChoice::Perf => return perf::run(request, None),
        BackendChoice::Proc => bail!(
            "the counters in /proc tell how many switches there were, and not when: they make no trace. Use \
             swtch explain --backend proc"
        ),
        BackendChoice::Auto | BackendChoice::Ebpf => match run_ebpf(request, afterwards) {
            Err(error) if request.may_go_without_root() && is_refused(&error) => error,
            result => return result,
        },
    };
    // The first refusal names the way to more; the second comes of fewer rights.
    match perf::run(request, Some(&refusal)) {
        Err(error) if is_refused(&error) => {
            message!("swtch: {}", escaped(&format!("{error:#}")));
            if let Some(advice) = capture_advice(&error) {
                message!("  {}", escaped(advice));
            }
            Err(refusal)
        }
        result => result,
    }
}

/// What the user can do about an error of a capture; `None` for other errors.
pub fn capture_advice(error: &anyhow::Error) -> Option<&'static str> {
    let of_capture = error.downcast_ref::<swtch_capture::Error>();
    of_capture.and_then(swtch_capture::Error::advice)
}

/// True if the kernel refused to record; false if the request was wrong, or a resource limit is too low: it can
/// be raised, and what may be recorded in another way is not what was asked for.
pub fn is_refused(error: &anyhow::Error) -> bool {
    use swtch_capture::Error;
    let is_refusal = matches!(
        error.downcast_ref::<Error>(),
        Some(
            Error::NotPermitted(_)
                | Error::NoBtf(_)
                | Error::MissingHook(_)
                | Error::KernelTooOld(_)
                | Error::Load(_)
                | Error::Refused { .. }
                | Error::PidNamespace
                | Error::PerfRefused(_)
                | Error::NoProc
        )
    );
    is_refusal && limit_behind(&format!("{error:#}")).is_none()
}

/// Records by eBPF programs.
fn run_ebpf(request: &RecordRequest, afterwards: AfterRecording) -> Result<RecordingResult> {
    let arch = facts::arch()?;
    let caller = Caller::of_sudo()?;
    let mut command = match &request.target {
        Target::Command(words) => Some(HeldCommand::start(words)?),
        _ => None,
    };
    let mut dumps = request.ring.as_ref().map(DumpRequests::catch).transpose()?;
    let signals = StopSignals::catch()?;
    let settings = Settings {
        lasting_waits: true,
        ..settings(request, command.as_ref())?
    };
    // The finder inherits a right that we drop later, and must not inherit our priority. The
    // switches that starting it causes are over before recording begins.
    let finder = Finder::start().context("starting to look for user-mode schedulers")?;
    let mut capture = Capture::start(&settings, arch)?;
    let mut meta = facts::at_start(request, capture.started(), facts::hooks(&capture));
    let writer = as_caller(|| Ok(make_trace(request, &meta)?))?;
    let user_level = UserLevel::new(finder, capture.streams());
    let with_stacks = request.stacks.is_some();
    let mut pipeline = Pipeline::new(arch, writer, user_level, with_stacks, capture.naming());
    let guard = start_guard(&capture, caller.is_some())?;
    let guarded_by = guard.priority();
    raise_priority();
    // The command is released while we still may remove the trace. From here on it runs and there
    // is something to record, so the trace is never removed any more.
    if let Some(Err(error)) = command.as_mut().map(HeldCommand::release) {
        as_caller(|| Ok(pipeline.discard()?))?;
        return Err(error.into());
    }
    let confined = give_up_rights(
        request,
        caller.as_ref(),
        command.as_ref(),
        afterwards,
        || {
            pipeline.read_commands(Commands::start()?);
            Ok(())
        },
    );
    let directory = pipeline.directory().clone();
    let session = RecordingSession {
        request,
        signals,
        command,
    };
    let ending = confined.and_then(|()| {
        if let Some(ring) = &request.ring {
            pipeline.keep_last_part(ring, &meta, &capture)?;
            dumps.iter_mut().for_each(|dumps| dumps.listen(&directory));
        }
        session.watch(&mut EbpfRounds {
            capture: &mut capture,
            pipeline: &mut pipeline,
            dumps: dumps.as_mut(),
        })
    });
    drop(dumps);
    facts::at_end(&mut meta, &mut capture);
    capture.detach();
    meta.guard = Some(priority::guard_in_trace(guarded_by, guard.end()));
    let exit_code = session.command_exit_code(ending.as_ref().err());
    let finished = finish(pipeline, &mut capture, &mut meta, ending);
    Ok(RecordingResult {
        directory,
        is_there: finished.is_there,
        meta,
        in_scope: finished.in_scope,
        exit_code,
    })
}

/// Starts the guard that keeps this thread from being starved, while there is the right to a
/// real-time priority. If the process changes its user later, the guard changes with it.
fn start_guard(capture: &Capture, will_change_user: bool) -> Result<Guard> {
    let kept = KeptPrivileges {
        change_user: will_change_user,
        ..KeptPrivileges::default()
    };
    let guard = capture
        .guard(kept)
        .context("starting to guard the recorder")?;
    if let Some(warning) = priority::warning(guard.priority()) {
        message!("swtch: {}", escaped(&warning));
    }
    Ok(guard)
}

/// Creates the trace at the path that was asked for, or at a name of ours that is not taken.
fn make_trace(request: &RecordRequest, meta: &Meta) -> Result<Writer, swtch_store::Error> {
    if let Some(path) = &request.output {
        return Writer::create_for_records(path, meta, pipeline::RECORDS);
    }
    under_free_name(|nth| {
        let path = facts::default_path(&request.target, nth);
        Writer::create_for_records(&path, meta, pipeline::RECORDS)
    })
}

/// Makes something under the first of its names that is not taken; `make` gets its number.
fn under_free_name<T>(
    mut make: impl FnMut(u32) -> Result<T, swtch_store::Error>,
) -> Result<T, swtch_store::Error> {
    let mut nth = 1;
    loop {
        match make(nth) {
            Err(swtch_store::Error::Exists { .. }) if nth < MOST_OF_A_NAME => nth += 1,
            made => return made,
        }
    }
}

/// Drops every right that recording does not need, so that none can be regained. `start_helpers`
/// is called while the last of them are there.
///
/// # Errors
/// When the system refuses.
pub fn give_up_rights(
    request: &RecordRequest,
    caller: Option<&Caller>,
    command: Option<&HeldCommand>,
    afterwards: AfterRecording,
    start_helpers: impl FnOnce() -> Result<()>,
) -> Result<()> {
    empty_bounding_set();
    if let Some(caller) = caller {
        caller.switch_to_user()?;
    }
    let kept = KeptPrivileges {
        rings: true,
        look_at_processes: request.stacks.is_some(),
        // Root would be allowed to read the programs whose symbols are looked up; this user is not.
        open_files_of_others: caller.is_some() && request.stacks.is_some(),
        // The command may run as root, or change its user.
        signal_others: command.is_some(),
        change_user: false,
    };
    if let Some(command) = command {
        command.give_up_rights()?;
    }
    start_helpers()?;
    drop_privileges(kept, kernel_version())?;
    forbid_new_privileges()?;
    if afterwards == AfterRecording::Tells {
        refuse_system_calls()?;
    }
    if let Some(parent) = request.with_parent {
        end_with(parent)?;
    }
    Ok(())
}

/// Asks the kernel for SIGTERM when the parent ends. Dropping privileges clears that (prctl(2)), so
/// this comes after it.
fn end_with(parent: Pid) -> Result<()> {
    set_pdeathsig(Signal::SIGTERM).context("asking to end with the parent")?;
    // The command runs by now, and the parent may have ended already: then no signal arrives.
    if nix::unistd::getppid().as_raw().unsigned_abs() != parent.get() {
        raise(Signal::SIGTERM).context("ending with the parent")?;
    }
    Ok(())
}

/// Whose switches are recorded.
fn scope_of(request: &RecordRequest, command: Option<&HeldCommand>) -> RecordingScope {
    match (&request.target, command) {
        (Target::Command(_), Some(command)) => RecordingScope::Processes {
            pids: vec![command.pid()],
            children: Children::Recorded,
        },
        (Target::Processes { pids, children }, _) => RecordingScope::Processes {
            pids: pids.clone(),
            children: *children,
        },
        (Target::Cgroups(paths), _) => RecordingScope::Cgroups(paths.clone()),
        _ => RecordingScope::All,
    }
}

/// The settings of a capture of what was asked for.
///
/// # Errors
/// When the buffer is too small.
pub fn settings(request: &RecordRequest, command: Option<&HeldCommand>) -> Result<Settings> {
    let scope = scope_of(request, command);
    let cpus = facts::possible_cpus();
    let mut settings = Settings {
        stacks: request.stacks,
        without_hooks: request.without_hooks.clone(),
        with_hooks: request.with_hooks.clone(),
        ..Settings::new(scope, cpus)
    };
    if let Some(bytes) = request.buffer {
        settings.set_buffer(bytes, cpus).context("--buffer")?;
    }
    Ok(settings)
}

struct RecordingSession<'a> {
    request: &'a RecordRequest,
    signals: StopSignals,
    command: Option<HeldCommand>,
}

/// What a recording must know to see its end.
struct EndOfRecording {
    start: Instant,
    /// When it was last looked whether the processes that were asked for still run.
    looked: Instant,
    targets_are_gone: bool,
    asked_to_stop: Option<Instant>,
}

impl EndOfRecording {
    const fn new(start: Instant) -> Self {
        Self {
            start,
            looked: start,
            targets_are_gone: false,
            asked_to_stop: None,
        }
    }
}

/// How much a recording holds.
#[derive(Clone, Copy, Debug)]
struct RecordedSoFar {
    switches: u64,
    lost: u64,
    bytes: u64,
}

/// What a recording does again and again, whatever tells it of switches.
trait DrainRounds {
    /// Number of records that a ring has room for.
    fn slots_per_cpu(&self) -> u64;

    /// Empties the rings once.
    fn round(&mut self) -> Result<DrainRound>;

    /// Writes pending records to disk, with the gaps since the last call.
    fn flush(&mut self) -> Result<()>;

    fn so_far(&self) -> RecordedSoFar;

    /// Whether none of the processes that were asked for runs any more.
    fn targets_are_gone(&self) -> bool;
}

/// The rounds of a recording by eBPF programs.
struct EbpfRounds<'a> {
    capture: &'a mut Capture,
    pipeline: &'a mut Pipeline,
    /// Of a ring.
    dumps: Option<&'a mut DumpRequests>,
}

impl DrainRounds for EbpfRounds<'_> {
    fn slots_per_cpu(&self) -> u64 {
        self.capture.slots_per_cpu()
    }

    fn round(&mut self) -> Result<DrainRound> {
        let round = self.pipeline.round(self.capture)?;
        if let Some(dumps) = &mut self.dumps {
            dumps.serve(self.pipeline, self.capture)?;
        }
        Ok(round)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.pipeline.flush(self.capture)?)
    }

    fn so_far(&self) -> RecordedSoFar {
        RecordedSoFar {
            switches: self.pipeline.taken(),
            lost: self.capture.counters().lost,
            bytes: self.pipeline.bytes_written(),
        }
    }

    fn targets_are_gone(&self) -> bool {
        self.capture.targets_are_gone()
    }
}

impl RecordingSession<'_> {
    /// Runs rounds until the command has ended, the time is up, or a signal asks to stop.
    ///
    /// # Errors
    /// When the trace cannot be written any more, or was removed.
    fn watch(&self, rounds: &mut impl DrainRounds) -> Result<()> {
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
    fn sleep(&self, pause: Duration) -> Result<()> {
        let ending = self.command.as_ref().map(HeldCommand::ending_notice);
        let slept = self.signals.sleep(pause, ending);
        slept.context("waiting for the next round")
    }

    /// Time until the recording is over whatever happens.
    fn time_left(&self, end: &EndOfRecording, now: Instant) -> Duration {
        let limit = self.request.duration.map(|limit| end.start + limit);
        let grace = end.asked_to_stop.map(|asked| asked + GRACE);
        let over = limit.into_iter().chain(grace).min();
        over.map_or(Duration::MAX, |over| over.saturating_duration_since(now))
    }

    /// Whether the command has ended, the time is up, or a signal asks to stop, which is passed on.
    fn is_over(
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
        let limit = self.request.duration;
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
    fn command_exit_code(&self, failure: Option<&anyhow::Error>) -> Option<u8> {
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

/// The state of the trace after [`finish`].
struct Finished {
    /// Switches of the tasks that were asked for.
    in_scope: u64,
    is_there: bool,
}

/// Writes the final form of the trace. A full disk is not an error here: what was written stays
/// readable, and `meta.json` says that the recording stopped early.
fn finish(
    mut pipeline: Pipeline,
    capture: &mut Capture,
    meta: &mut Meta,
    recorded: Result<()>,
) -> Finished {
    // Also after a failure, so that what is left in the rings is counted.
    let ended = pipeline.end(capture);
    match recorded.and(ended.map_err(Into::into)) {
        Ok(()) => meta.state = RecordingState::Finished,
        Err(error) => stop_early(meta, error),
    }
    facts::complete(meta, capture, &mut pipeline);
    pipeline.narrow_to_kept(meta, capture);
    let (writer, rows) = pipeline.into_rows();
    make_rows(writer, rows, meta)
}

/// Makes the rows of the finished trace, and shows how far it has come.
fn make_rows(writer: Writer, rows: RowsToMake, meta: &mut Meta) -> Finished {
    let progress = ProgressLine::on_stderr();
    let mut told = Instant::now();
    let (in_scope, finished) = rows.make(writer, meta, &mut |done, all| {
        if told.elapsed() >= FINISHING_EVERY {
            told = Instant::now();
            progress.show(|| format!("swtch: finishing {done} of {all} rows"));
        }
    });
    progress.clear();
    let is_there = !matches!(finished, Err(swtch_store::Error::Removed { .. }));
    if let Err(error) = finished {
        stop_early(meta, error.into());
    }
    Finished { in_scope, is_there }
}

/// Keeps the first reason, since later ones follow from it.
fn stop_early(meta: &mut Meta, error: anyhow::Error) {
    meta.state = RecordingState::StoppedEarly;
    meta.stop_reason.get_or_insert_with(|| {
        let why = format!("{error:#}");
        match limit_behind(&why) {
            Some(limit) => format!("{why}; {limit}"),
            None => why,
        }
    });
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// True if our process group, which the command shares, gets the terminal's Ctrl-C.
fn is_in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| {
        nix::unistd::tcgetpgrp(&terminal).is_ok_and(|group| group == nix::unistd::getpgrp())
    })
}

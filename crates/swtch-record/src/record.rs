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
mod context_finder;
mod ebpf;
pub mod facts;
mod lasting;
mod named_stacks;
mod outside_looks;
mod pause;
mod perf;
mod pipeline;
mod priority;
mod quotas;
mod recorded_spans;
mod request;
mod result;
mod rights;
mod ring;
mod session;
pub mod user_level;

use std::time::{Duration, Instant};

use anyhow::Result;
use swtch_capture::limits::limit_behind;
use swtch_capture::{HeldCommand, raise_priority, require_proc};
use swtch_output::caller::{Caller, as_caller};
use swtch_output::message;
use swtch_output::progress::ProgressLine;
use swtch_output::text::escaped;
use swtch_store::{Directory, Error, Meta, RecordingState, Writer};

use ebpf::EbpfRecording;
use pause::DrainRound;
use perf::PerfRecording;
use pipeline::RowsToMake;

pub use context_finder::find_contexts;
pub use ebpf::open_as_caller;
pub use pause::StopSignals;
pub use request::{AfterRecording, CaptureRequest, RecordRequest, StackBudget, Target, TraceBy};
pub use result::RecordingResult;
pub use rights::{WorkAhead, end_with};
pub use ring::{DumpAnswer, DumpAsk, KeptSize, MOST_ASK_BYTES, RingRequest, SOCKET};
pub use session::{EndOfRecording, PROGRESS_EVERY, RecordingSession};
pub use user_level::find_schedulers;

/// The time after which the progress of the trace's final form is shown again.
const FINISHING_EVERY: Duration = Duration::from_millis(200);
/// Names that are tried for a trace without `-o` before the recorder gives up.
const MOST_OF_A_NAME: u32 = 1_000;

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

/// Records until the command ends, the time is up or a signal comes.
///
/// # Errors
/// When the capture cannot start or the trace cannot be made. Once recording, a full disk ends the
/// recording and not the command; the trace says so.
pub fn run(request: &RecordRequest, afterwards: AfterRecording) -> Result<RecordingResult> {
    require_proc()?;
    let caller = Caller::of_sudo()?;
    let run = RecordingRun {
        request,
        afterwards,
        caller: caller.as_ref(),
    };
    let by_ebpf = || run.record(|command| EbpfRecording::start(request, command, caller.is_some()));
    let by_perf = |refusal: Option<&anyhow::Error>| {
        run.record(|command| PerfRecording::start(request, command, refusal))
    };
    let refusal = match (&request.by, request.capture.target.is_of_tasks()) {
        (TraceBy::Perf { .. }, _) => return by_perf(None),
        (TraceBy::Auto { .. }, true) => match by_ebpf() {
            Err(error) if is_refused(&error) => error,
            result => return result,
        },
        (TraceBy::Auto { .. } | TraceBy::Ebpf { .. } | TraceBy::Ring(_), _) => return by_ebpf(),
    };
    // The first refusal names the way to more; the second comes of fewer rights.
    match by_perf(Some(&refusal)) {
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

/// Returns what the user can do about an error of a capture; `None` for other errors.
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

/// A source of switches, which keeps what it is told. There are two: eBPF programs and perf events.
///
/// ```text
/// start (by each in its own way) ─▶ release the command, or discard ─▶ start_helpers ─▶ begin
///     ┌───────────────────────────────────────────────────────────────────────────────────┘
///     └▶ round, flush, round, … ─▶ detach ─▶ take_rest ─▶ into_rows
/// ```
trait Backend: Sized {
    /// Removes the trace: nothing was recorded.
    fn discard(self) -> Result<(), Error>;

    /// The directory of the trace.
    fn directory(&self) -> &Directory;

    /// Starts what takes rights that are given up next.
    fn start_helpers(&mut self) -> Result<()> {
        Ok(())
    }

    /// Called once, before the first round, when all rights are given up.
    fn begin(&mut self, _meta: &Meta) -> Result<()> {
        Ok(())
    }

    /// Number of records that a ring has room for.
    fn slots_per_cpu(&self) -> u64;

    /// Empties the rings once.
    fn round(&mut self) -> Result<DrainRound>;

    /// Writes pending records to disk, with the gaps since the last call.
    fn flush(&mut self) -> Result<(), Error>;

    fn so_far(&self) -> RecordedSoFar;

    /// Returns true if none of the processes that were asked for runs any more.
    fn targets_are_gone(&self) -> bool;

    /// Reads the facts that are known when a recording is about to end, and ends it.
    fn detach(&mut self, meta: &mut Meta);

    /// Takes what is left in the rings, also after a failure, so that it is counted.
    fn take_rest(&mut self) -> Result<()>;

    /// Adds what was counted. Returns the trace, and what is left to do: its rows.
    fn into_rows(self, meta: &mut Meta) -> (Writer, RowsToMake);
}

/// The amount that a recording holds.
#[derive(Clone, Copy, Debug)]
struct RecordedSoFar {
    switches: u64,
    lost: u64,
    bytes: u64,
}

/// One recording, whatever tells of switches.
struct RecordingRun<'a> {
    request: &'a RecordRequest,
    afterwards: AfterRecording,
    /// The user who called sudo.
    caller: Option<&'a Caller>,
}

impl RecordingRun<'_> {
    /// Records from the start of the command to the trace in its final form.
    fn record<B: Backend>(
        &self,
        start: impl FnOnce(Option<&HeldCommand>) -> Result<(B, Meta)>,
    ) -> Result<RecordingResult> {
        let mut command = self.request.capture.target.hold()?;
        let signals = StopSignals::catch()?;
        // On a machine where many threads want to run, loading takes seconds without it. The command was forked before.
        raise_priority();
        let (mut backend, mut meta) = start(command.as_ref())?;
        // The command is released while we still may remove the trace. From here on it runs and there
        // is something to record, so the trace is never removed any more.
        if let Some(Err(error)) = command.as_mut().map(HeldCommand::release) {
            as_caller(|| Ok(backend.discard()?))?;
            return Err(error.into());
        }
        let confined = self.confine(&mut backend, command.as_ref());
        let directory = backend.directory().clone();
        let session = RecordingSession {
            limit: self.request.duration,
            signals,
            command,
        };
        let ending = confined
            .and_then(|()| backend.begin(&meta))
            .and_then(|()| session.watch(&mut backend));
        backend.detach(&mut meta);
        let exit_code = session.command_exit_code(ending.as_ref().err());
        let finished = finish(backend, &mut meta, ending);
        Ok(RecordingResult {
            directory,
            is_there: finished.is_there,
            meta,
            in_scope: finished.in_scope,
            exit_code,
        })
    }

    fn confine(&self, backend: &mut impl Backend, command: Option<&HeldCommand>) -> Result<()> {
        let ahead = WorkAhead {
            caller: self.caller,
            command,
            names_functions: false,
            afterwards: self.afterwards,
        };
        ahead.give_up_rights(|| backend.start_helpers())?;
        self.request.with_parent.map_or(Ok(()), end_with)
    }
}

/// Creates the trace at the path that was asked for, or at a name of ours that is not taken.
fn make_trace(request: &RecordRequest, meta: &Meta) -> Result<Writer, swtch_store::Error> {
    if let Some(path) = &request.output {
        return Writer::create_for_records(path, meta, pipeline::RECORDS);
    }
    under_free_name(|nth| {
        let path = facts::default_path(&request.capture.target, nth);
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

/// The state of the trace after [`finish`].
struct Finished {
    /// Switches of the tasks that were asked for.
    in_scope: u64,
    is_there: bool,
}

/// Writes the final form of the trace. A full disk is not an error here: what was written stays
/// readable, and `meta.json` says that the recording stopped early.
fn finish(mut backend: impl Backend, meta: &mut Meta, recorded: Result<()>) -> Finished {
    let rest = backend.take_rest();
    match recorded.and(rest) {
        Ok(()) => meta.state = RecordingState::Finished,
        Err(error) => stop_early(meta, error),
    }
    let (writer, rows) = backend.into_rows(meta);
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

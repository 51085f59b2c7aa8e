//! `swtch record` without root: own processes, by perf events.
//!
//! ```text
//! hold the command ─▶ open events ─▶ make the trace ─▶ release it
//!     ┌──────────────────────────────────────────────────┘
//!     └▶ rings ─bytes─▶ records.raw ─▶ …      (then as every recording: see `pipeline`)
//! ```
//!
//! The kernel tells less than eBPF programs find out, so the trace says by what it was made. There
//! are no stacks, no user-mode schedulers, and no guard: a priority takes rights.

use anyhow::{Context as _, Result};
use swtch_capture::{HeldCommand, PerfBatch, PerfCapture, process_cpu_ns, raise_priority};
use swtch_output::caller::{Caller, as_caller};
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_store::{
    Counts, Error, Hooks, Meta, Overhead, RecordingBackend, RecordingState, StreamKind, Writer,
};

use super::pause::{DrainRound, StopSignals};
use super::pipeline::RowsToMake;
use super::{
    AfterRecording, DrainRounds, RecordRequest, RecordedSoFar, RecordingResult, RecordingSession,
    Target, capture_advice, facts, give_up_rights, make_rows, make_trace, scope_of, stop_early,
};

/// Records until the command ends, the time is up or a signal comes. `refusal` is why eBPF programs
/// cannot do it; `None` if perf events were asked for.
///
/// # Errors
/// When the kernel does not allow it, or the trace cannot be made.
pub fn run(request: &RecordRequest, refusal: Option<&anyhow::Error>) -> Result<RecordingResult> {
    anyhow::ensure!(
        request.stacks.is_none(),
        "perf events tell no stacks of waits: leave out --stacks, or record as root"
    );
    let arch = facts::arch()?;
    let caller = Caller::of_sudo()?;
    let mut command = match &request.target {
        Target::Command(words) => Some(HeldCommand::start(words)?),
        _ => None,
    };
    let signals = StopSignals::catch()?;
    let capture = PerfCapture::start(&scope_of(request, command.as_ref()))?;
    if let Some(refusal) = refusal {
        tell_why(refusal);
    }
    let mut meta = Meta {
        backend: RecordingBackend::Perf,
        ..facts::at_start(request, capture.started(), Hooks::default())
    };
    let mut trace = PerfTrace {
        writer: as_caller(|| Ok(make_trace(request, &meta)?))?,
        capture,
        taken: 0,
    };
    raise_priority();
    if let Some(Err(error)) = command.as_mut().map(HeldCommand::release) {
        as_caller(|| Ok(trace.writer.discard()?))?;
        return Err(error.into());
    }
    let (caller, afterwards) = (caller.as_ref(), AfterRecording::Tells);
    let confined = give_up_rights(request, caller, command.as_ref(), afterwards, || Ok(()));
    let directory = trace.writer.directory().clone();
    let session = RecordingSession {
        request,
        signals,
        command,
    };
    let ending = confined.and_then(|()| session.watch(&mut trace));
    facts::load_at_end(&mut meta);
    meta.end_ns = swtch_capture::monotonic_ns();
    trace.capture.detach();
    let exit_code = session.command_exit_code(ending.as_ref().err());
    let finished = trace.finish(arch, &mut meta, ending);
    Ok(RecordingResult {
        directory,
        is_there: finished.is_there,
        meta,
        in_scope: finished.in_scope,
        exit_code,
    })
}

/// Says what is recorded in place of what was refused, and how to get that.
fn tell_why(refusal: &anyhow::Error) {
    message!("swtch: no eBPF here: {}", escaped(&format!("{refusal:#}")));
    message!(
        "swtch: by perf events, how often and how long own threads wait is recorded, and only whether they \
         blocked or were preempted: not on what, who woke them, or who took the CPU"
    );
    if let Some(advice) = capture_advice(refusal) {
        message!("swtch: for all of it, {}", escaped(advice));
    }
}

/// A recording by perf events, and its trace.
struct PerfTrace {
    capture: PerfCapture,
    writer: Writer,
    /// Number of switch-outs so far.
    taken: u64,
}

impl PerfTrace {
    /// Copies what the rings hold. Returns the number of records in the fullest one. After an error
    /// the rings are emptied all the same.
    fn take(&mut self) -> Result<u64, Error> {
        let Self {
            capture, writer, ..
        } = self;
        let mut written = Ok(());
        let (switches, most) = capture.take(|batch| {
            let copied = keep(writer, &batch);
            if written.is_ok() {
                written = copied;
            }
        });
        self.taken += switches;
        written.map(|()| most)
    }

    /// Writes the final form of the trace, as `record::finish` does.
    fn finish(
        mut self,
        arch: swtch_core::Arch,
        meta: &mut Meta,
        recorded: Result<()>,
    ) -> super::Finished {
        let taken = self.take().map(drop).map_err(Into::into);
        let counted = self.capture.count_losses_at_end();
        let counted = counted.context("reading how many records the kernel has lost");
        let flushed = taken.and(counted).and_then(|()| self.flush());
        match recorded.and(flushed.context("writing the trace")) {
            Ok(()) => meta.state = RecordingState::Finished,
            Err(error) => stop_early(meta, error),
        }
        meta.counts = Counts {
            switches_seen: self.taken + self.capture.lost(),
            lost: self.capture.lost(),
            ..Counts::default()
        };
        meta.overhead = Overhead {
            recorder_cpu_ns: process_cpu_ns(),
            recorder_peak_rss_bytes: facts::peak_memory_bytes("self"),
            ..Overhead::default()
        };
        let rows = RowsToMake {
            arch,
            taken: self.taken,
            dropped: 0,
        };
        make_rows(self.writer, rows, meta)
    }
}

impl DrainRounds for PerfTrace {
    fn slots_per_cpu(&self) -> u64 {
        self.capture.slots_per_cpu()
    }

    /// The rings have room for 8,000 switches of a CPU only, so each round is followed by another soon.
    fn round(&mut self) -> Result<DrainRound> {
        Ok(DrainRound {
            most_in_a_ring: self.take()?,
            is_urgent: true,
        })
    }

    fn flush(&mut self) -> Result<()> {
        for gap in self.capture.take_gaps() {
            self.writer.push_gap(&gap)?;
        }
        self.writer.flush()?;
        Ok(self.writer.check_that_it_is_there()?)
    }

    fn so_far(&self) -> RecordedSoFar {
        RecordedSoFar {
            switches: self.taken,
            lost: self.capture.lost(),
            bytes: self.writer.bytes_written(),
        }
    }

    fn targets_are_gone(&self) -> bool {
        self.capture.targets_are_gone()
    }
}

fn keep(writer: &mut Writer, batch: &PerfBatch<'_>) -> Result<(), Error> {
    let kind = match batch.are_switch_outs {
        true => StreamKind::PerfSwitchOuts,
        false => StreamKind::PerfOthers,
    };
    writer.record(kind, batch.ring, batch.count, batch.bytes)
}

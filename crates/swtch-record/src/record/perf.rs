//! `swtch record` without root: own processes, by perf events.
//!
//! ```text
//! hold the command ─▶ open events ─▶ make the trace ─▶ release it
//!     ┌──────────────────────────────────────────────────┘
//!     └▶ rings ─bytes─▶ records.raw ─▶ …      (then as every recording: see `pipeline`)
//! ```
//!
//! The kernel tells less than eBPF programs find out, so the trace says by what it was made. User-mode
//! schedulers are not recorded. There is no guard, because a real-time priority takes rights. Stacks of blocked
//! threads are read as far as this user may trace them.

use anyhow::{Context as _, Result};
use swtch_capture::{
    HeldCommand, PerfBatch, PerfCapture, RecordingScope, monotonic_ns, process_cpu_ns,
};
use swtch_core::Arch;
use swtch_output::caller::as_caller;
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_store::{Counts, Directory, Error, Meta, Overhead, RecordingBackend, StreamKind, Writer};

use super::outside_looks::OutsideLooks;
use super::pause::DrainRound;
use super::pipeline::RowsToMake;
use super::request::StackBudget;
use super::{Backend, RecordRequest, RecordedSoFar, capture_advice, facts, make_trace};

/// Says what is recorded in place of what was refused, and how to get that.
fn tell_why(refusal: &anyhow::Error) {
    message!("swtch: no eBPF here: {}", escaped(&format!("{refusal:#}")));
    message!(
        "swtch: recording by perf events instead: how often and how long the threads wait, and whether they \
         blocked or were preempted; not what they waited for, who woke them, or who took the CPU"
    );
    if let Some(advice) = capture_advice(refusal) {
        message!("swtch: for all of it, {}", escaped(advice));
    }
}

/// A recording by perf events, and its trace.
pub(super) struct PerfRecording {
    arch: Arch,
    capture: PerfCapture,
    writer: Writer,
    scope: RecordingScope,
    /// What looks may cost; `None` if no stacks are read.
    budget: Option<StackBudget>,
    /// `None` before the first round.
    looks: Option<OutsideLooks>,
    /// Number of switch-outs so far.
    taken: u64,
}

impl PerfRecording {
    /// Opens the events and makes the trace. `refusal` is why eBPF programs cannot do it; `None` if perf
    /// events were asked for.
    ///
    /// # Errors
    /// When the kernel does not allow it, or the trace cannot be made.
    pub fn start(
        request: &RecordRequest,
        command: Option<&HeldCommand>,
        refusal: Option<&anyhow::Error>,
    ) -> Result<(Self, Meta)> {
        let arch = facts::arch()?;
        let scope = request.capture.scope(command);
        let capture = PerfCapture::start(&scope)?;
        let budget = request.by.stacks();
        if let Some(refusal) = refusal {
            tell_why(refusal);
        }
        let meta = Meta {
            backend: RecordingBackend::Perf,
            stacks: budget.map(|_| StackBudget::settings()),
            ..facts::at_start(&request.capture.target, capture.started())
        };
        let recording = Self {
            arch,
            writer: as_caller(|| Ok(make_trace(request, &meta)?))?,
            capture,
            scope,
            budget,
            looks: None,
            taken: 0,
        };
        Ok((recording, meta))
    }

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
        written?;
        if let Some(looks) = &self.looks {
            looks.keep(&mut self.writer)?;
        }
        Ok(most)
    }

    /// Ends the looks at stacks, and says what there is to say of them.
    fn end_looks(&mut self) -> Result<()> {
        let Some(mut looks) = self.looks.take() else {
            return Ok(());
        };
        if let Some(words) = looks.end(&mut self.writer)? {
            message!("swtch: {}", escaped(&words));
        }
        Ok(())
    }
}

impl Backend for PerfRecording {
    fn discard(self) -> Result<(), Error> {
        self.writer.discard()
    }

    fn directory(&self) -> &Directory {
        self.writer.directory()
    }

    fn begin(&mut self, _meta: &Meta) -> Result<()> {
        let begin = |budget| OutsideLooks::begin(self.scope.clone(), budget);
        self.looks = self
            .budget
            .map(begin)
            .transpose()
            .context("starting to look at stacks")?;
        Ok(())
    }

    fn slots_per_cpu(&self) -> u64 {
        self.capture.slots_per_cpu()
    }

    /// Every round is urgent, so that the next one follows soon: a ring has room for 8,000 switches only.
    fn round(&mut self) -> Result<DrainRound> {
        Ok(DrainRound {
            most_in_a_ring: self.take()?,
            is_urgent: true,
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        for gap in self.capture.take_gaps() {
            self.writer.push_gap(&gap)?;
        }
        self.writer.flush()?;
        self.writer.check_that_it_is_there()
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

    fn detach(&mut self, meta: &mut Meta) {
        facts::load_at_end(meta);
        meta.end_ns = monotonic_ns();
        self.capture.detach();
    }

    fn take_rest(&mut self) -> Result<()> {
        let taken = self.take().context("writing the trace").map(drop);
        let counted = self.capture.count_losses_at_end();
        let counted = counted.context("reading how many records the kernel has lost");
        let stacks = self.end_looks().context("ending the looks at stacks");
        let flushed = self.flush().context("writing the trace");
        taken.and(counted).and(stacks).and(flushed)
    }

    fn into_rows(self, meta: &mut Meta) -> (Writer, RowsToMake) {
        // Both are in switch-outs. The lost ones are an estimate, which the true number does not exceed.
        let lost = self.capture.lost();
        meta.counts = Counts {
            switches_seen: self.taken + lost,
            lost,
            ..Counts::default()
        };
        meta.overhead = Overhead {
            recorder_cpu_ns: process_cpu_ns(),
            recorder_peak_rss_bytes: facts::peak_memory_bytes("self"),
            ..Overhead::default()
        };
        let rows = RowsToMake {
            arch: self.arch,
            taken: self.taken,
            dropped: 0,
            at_end: Vec::new(),
        };
        (self.writer, rows)
    }
}

/// Writes the records of a ring to the file of their kind.
fn keep(writer: &mut Writer, batch: &PerfBatch<'_>) -> Result<(), Error> {
    let kind = match batch.are_switch_outs {
        true => StreamKind::PerfSwitchOuts,
        false => StreamKind::PerfOthers,
    };
    writer.record(kind, batch.ring, batch.count, batch.bytes)
}

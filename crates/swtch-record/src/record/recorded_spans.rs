//! Spans of threads, from the kernel to the trace.

use swtch_capture::{FoundSpan, SpanCapture};
use swtch_core::{Pid, Tid, Timestamp, UntoldSpans};
use swtch_output::message;
use swtch_output::text::{counted, escaped};
use swtch_store::{Error, SpanRow, Writer};

/// The spans that a recording takes.
pub struct RecordedSpans {
    capture: SpanCapture,
    /// The number of those that were taken.
    taken: u64,
    /// True once they could not be read.
    has_failed: bool,
}

impl RecordedSpans {
    /// None yet.
    pub const fn new(capture: SpanCapture) -> Self {
        Self {
            capture,
            taken: 0,
            has_failed: false,
        }
    }

    /// No more begin or end.
    pub fn detach(&mut self) {
        self.capture.detach();
    }

    /// Writes those that have ended since the last call. Recording goes on without them if they cannot be read.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn take(&mut self, writer: &mut Writer) -> Result<(), Error> {
        if self.has_failed {
            return Ok(());
        }
        match self.capture.take() {
            Ok(spans) => {
                self.taken += u64::try_from(spans.len()).unwrap_or(u64::MAX);
                let mut rows = spans.iter().filter_map(|span| self.row_of(span));
                rows.try_for_each(|row| writer.push_span(&row))
            }
            Err(error) => {
                self.has_failed = true;
                let why = format!("{:#}", anyhow::Error::from(error));
                message!("swtch: spans are not read any more: {}", escaped(&why));
                Ok(())
            }
        }
    }

    fn row_of(&self, span: &FoundSpan) -> Option<SpanRow> {
        Some(SpanRow {
            begin: Timestamp::from_ns(span.begin_ns),
            end: Timestamp::from_ns(span.end_ns),
            pid: Pid::new(span.pid),
            tid: Tid::new(span.tid),
            name: self.capture.names().get(span.kind)?.clone(),
        })
    }

    /// Those that are not in the trace.
    pub fn untold(&self) -> UntoldSpans {
        self.capture.untold()
    }

    /// Says how many there were, and what is missing.
    pub fn tell(&self) {
        let mut told = format!(
            "{} of all processes that run these files",
            counted(self.taken, "span")
        );
        for (count, why) in self.untold().reasons() {
            told += &format!("; {count} more {why}");
        }
        if self.taken == 0 {
            told += ": no thread has come to both places in time";
        }
        message!("swtch: {told}");
    }
}

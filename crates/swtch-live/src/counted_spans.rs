//! Spans between places of programs that are counted in passing, beside switches that are counted in the kernel.

use anyhow::{Context as _, Result};
use swtch_capture::{Capture, Settings, SpanCapture, SpanChoice};
use swtch_core::{Distribution, Nanos, UntoldSpans};
use swtch_output::message;
use swtch_output::text::counted;
use swtch_record::record::open_as_caller;

/// Spans between places of programs, by their kind.
pub struct CountedSpans {
    capture: Option<SpanCapture>,
    of_kinds: Vec<(String, Distribution)>,
}

impl CountedSpans {
    /// Attaches the probes that were asked for, if switches can be counted with these settings.
    ///
    /// # Errors
    /// When a place is not found, or the kernel allows no probe there.
    pub fn attach(choices: &[SpanChoice], settings: &Settings) -> Result<Self> {
        let capture = match choices.is_empty() {
            true => None,
            false => {
                Capture::check(settings)?;
                Some(SpanCapture::attach(choices, open_as_caller)?)
            }
        };
        let kinds = capture.as_ref().map_or(&[][..], SpanCapture::names);
        let none = |kind: &String| (kind.clone(), Distribution::default());
        Ok(Self {
            of_kinds: kinds.iter().map(none).collect(),
            capture,
        })
    }

    /// Counts those that have ended since the last call.
    ///
    /// # Errors
    /// When the ring cannot be read.
    pub fn take(&mut self) -> Result<()> {
        let Some(capture) = &mut self.capture else {
            return Ok(());
        };
        for span in capture.take().context("reading the spans")? {
            if let Some((_, lengths)) = self.of_kinds.get_mut(span.kind) {
                lengths.record(Nanos::from_ns(span.end_ns.saturating_sub(span.begin_ns)));
            }
        }
        Ok(())
    }

    /// From now on spans are counted.
    pub fn begin(&mut self) {
        self.capture.iter_mut().for_each(SpanCapture::begin);
    }

    /// No more begin or end is seen.
    pub fn end(&mut self) {
        self.capture.iter_mut().for_each(SpanCapture::end);
    }

    /// Takes the probes away, counts the last ones, and says what is missing.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn finish(&mut self) -> Result<()> {
        self.capture.iter_mut().for_each(SpanCapture::detach);
        self.take()?;
        self.tell_missing();
        Ok(())
    }

    /// Says how many spans are not counted, and why.
    pub fn tell_missing(&self) {
        let untold = self.capture.as_ref().map(SpanCapture::untold);
        for (count, why) in untold.iter().flat_map(UntoldSpans::reasons) {
            message!("swtch: {} more {why}", counted(count, "span"));
        }
    }

    /// How long those took that were counted, by their kind. What is counted from now on is told the next time.
    pub fn take_counted(&mut self) -> Vec<(String, Distribution)> {
        let none = |(kind, _): &(String, Distribution)| (kind.clone(), Distribution::default());
        let empty = self.of_kinds.iter().map(none).collect();
        std::mem::replace(&mut self.of_kinds, empty)
    }
}

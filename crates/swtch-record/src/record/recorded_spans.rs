//! Spans of threads, from the kernel to the trace.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use rustc_hash::FxHashSet;
use swtch_capture::{
    CONTEXT_VARIABLE as VARIABLE, ContextCapture, FoundContext, FoundSpan, LookedUsers,
    SpanCapture, SpanChoice,
};
use swtch_core::{Pid, Tid, Timestamp, UntoldSpans};
use swtch_output::message;
use swtch_output::text::{counted, escaped};
use swtch_store::{Error, SpanRow, Writer};

use super::context_finder::ContextFinder;
use crate::helper::HelperProcess;

/// How stretches with a published context are called.
const OF_CONTEXTS: &str = "otel trace";

/// The spans that a recording takes.
pub struct RecordedSpans {
    places: Option<SpanCapture>,
    contexts: Option<ContextsInTrace>,
    /// The number of spans between places that were taken.
    taken: u64,
    /// True once they could not be read.
    has_failed: bool,
}

/// The contexts that programs publish, and the processes that do.
pub struct ContextsInTrace {
    capture: ContextCapture,
    finder: ContextFinder,
    /// The processes that were found.
    processes: FxHashSet<Pid>,
    /// The number of stretches that were taken.
    taken: u64,
}

impl ContextsInTrace {
    /// Attaches the reader, if contexts are among what was asked for.
    ///
    /// # Errors
    /// When the kernel refuses it, or no process can be started.
    pub fn attach(
        choices: &[SpanChoice],
        users: impl Fn() -> anyhow::Result<LookedUsers>,
    ) -> anyhow::Result<Option<Self>> {
        if !choices.contains(&SpanChoice::Contexts) {
            return Ok(None);
        }
        let finder = ContextFinder::start();
        Ok(Some(Self {
            finder: finder.context("starting to look for processes that publish contexts")?,
            capture: ContextCapture::attach(users()?)?,
            processes: FxHashSet::default(),
            taken: 0,
        }))
    }

    fn take(&mut self) -> anyhow::Result<Vec<FoundContext>> {
        let changes = self.finder.changes().unwrap_or_else(|why| {
            let why = why.to_string();
            let what = "further processes that publish contexts are not found any more";
            message!("swtch: {what}: {}", escaped(&why));
            Vec::new()
        });
        for change in changes {
            let is_first = change.place.is_some() && self.processes.insert(change.pid);
            if let Err(error) = self.capture.follow(change)
                && is_first
            {
                let why = format!("{:#}", anyhow::Error::from(error));
                let what = "the contexts of one more process are not read";
                message!("swtch: {what}: {}", escaped(&why));
            }
        }
        let found = self.capture.take()?;
        self.taken += found.len() as u64;
        Ok(found)
    }
}

impl RecordedSpans {
    /// Takes the probes away.
    pub fn detach(&mut self) {
        self.places.iter_mut().for_each(SpanCapture::detach);
    }

    /// Attaches what was asked for; `None` if that is nothing.
    ///
    /// # Errors
    /// When a place is not found, or the kernel allows no probe there.
    pub fn attach(
        choices: &[SpanChoice],
        contexts: Option<ContextsInTrace>,
        open: impl Fn(&Path) -> io::Result<File>,
    ) -> Result<Option<Self>, swtch_capture::Error> {
        let has_places = choices.iter().any(|one| *one != SpanChoice::Contexts);
        let places = has_places.then(|| SpanCapture::attach(choices, open));
        Ok((!choices.is_empty()).then_some(Self {
            places: places.transpose()?,
            contexts,
            taken: 0,
            has_failed: false,
        }))
    }

    /// From now on, when switches are recorded, spans are taken.
    pub fn begin(&mut self) {
        self.places.iter_mut().for_each(SpanCapture::begin);
    }

    /// No more begin or end is seen.
    pub fn end(&mut self) {
        self.places.iter_mut().for_each(SpanCapture::end);
        if let Some(contexts) = &mut self.contexts {
            contexts.capture.detach();
        }
    }

    /// Writes those that have ended since the last call. Recording goes on without them if they cannot be read.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn take(&mut self, writer: &mut Writer) -> Result<(), Error> {
        if self.has_failed {
            return Ok(());
        }
        let mut rows = Vec::new();
        let read = self.read(&mut rows);
        rows.iter().try_for_each(|row| writer.push_span(row))?;
        match read {
            Ok(()) => Ok(()),
            Err(error) => {
                self.has_failed = true;
                let why = format!("{error:#}");
                message!("swtch: spans are not read any more: {}", escaped(&why));
                Ok(())
            }
        }
    }

    fn read(&mut self, rows: &mut Vec<SpanRow>) -> anyhow::Result<()> {
        if let Some(capture) = &mut self.places {
            let spans = capture.take()?;
            let named = spans
                .iter()
                .filter_map(|span| row_of(span, capture.names()));
            rows.extend(named);
            self.taken += spans.len() as u64;
        }
        if let Some(contexts) = &mut self.contexts {
            rows.extend(contexts.take()?.iter().map(row_of_context));
        }
        Ok(())
    }

    /// Those that are not in the trace.
    pub fn untold(&self) -> UntoldSpans {
        let places = self.places.as_ref();
        let mut untold = places.map_or_else(UntoldSpans::default, SpanCapture::untold);
        let contexts = self.contexts.as_ref();
        untold.lost += contexts.map_or(0, |contexts| contexts.capture.lost());
        untold
    }

    /// The process that looks for those that publish contexts.
    pub fn helper(&self) -> Option<&HelperProcess> {
        Some(self.contexts.as_ref()?.finder.process())
    }

    /// Says how many there were, and what is missing.
    pub fn tell(&self) {
        let mut told = Vec::new();
        if self.places.is_some() {
            let spans = counted(self.taken, "span");
            let why = match self.taken {
                0 => ": no thread has come to both places in time",
                _ => "",
            };
            told.push(format!(
                "{spans} of all processes that run these files{why}"
            ));
        }
        if let Some(contexts) = &self.contexts {
            let processes = contexts.processes.len() as u64;
            let why = match (processes, contexts.taken) {
                (0, _) => ": no process had the variable, or it may not be looked into",
                (_, 0) => ": none had set it when a thread left its CPU",
                _ => "",
            };
            told.push(format!(
                "{} with ids that programs publish, of {} with {VARIABLE}{why}",
                counted(contexts.taken, "stretch"),
                counted(processes, "process")
            ));
            let unread = contexts.capture.unread();
            if unread > 0 {
                let times = counted(unread, "time");
                told.push(format!("{times} the memory with the ids was not there"));
            }
        }
        for (count, why) in self.untold().reasons() {
            told.push(format!("{count} more {why}"));
        }
        message!("swtch: {}", told.join("; "));
    }
}

fn row_of(span: &FoundSpan, names: &[String]) -> Option<SpanRow> {
    Some(SpanRow {
        begin: Timestamp::from_ns(span.begin_ns),
        end: Timestamp::from_ns(span.end_ns),
        pid: Pid::new(span.pid),
        tid: Tid::new(span.tid),
        name: names.get(span.kind)?.clone(),
        ..SpanRow::default()
    })
}

fn row_of_context(context: &FoundContext) -> SpanRow {
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    SpanRow {
        begin: Timestamp::from_ns(context.begin_ns),
        end: Timestamp::from_ns(context.end_ns),
        pid: Pid::new(context.pid),
        tid: Tid::new(context.tid),
        name: OF_CONTEXTS.to_owned(),
        trace_id: Some(digits(&context.trace_id)),
        span_id: Some(digits(&context.span_id)),
    }
}

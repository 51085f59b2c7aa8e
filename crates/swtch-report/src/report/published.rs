//! Traces that programs publish (`--span otel`): a request, with all threads that had its id, and all that they did meanwhile.
//!
//! ```text
//!   thread 1   ├─ trace A ─┤          ├─ trace A ─┤
//!   thread 2        ├─ trace B ─┤├─ trace A ─┤          A is as long as its three stretches together
//! ```

use rustc_hash::FxHashMap;
use swtch_core::{ProgramSpan, TaskKey, TurnSums};

use super::slow_spans::{SlowSpan, SlowestSpans};

/// The most traces that are told apart. A program may make up ids; the stretches of further ones are left out.
const MOST_TRACES: usize = 4_000_000;

/// The traces, by their numbers.
#[derive(Debug, Default)]
pub struct PublishedTraces {
    numbers: FxHashMap<Box<str>, u32>,
    traces: Vec<PublishedTrace>,
    /// By kind and thread in which they began, after [`Self::finish`].
    sums: FxHashMap<(usize, TaskKey), TurnSums>,
}

/// One trace.
#[derive(Debug)]
struct PublishedTrace {
    id: Box<str>,
    kind: usize,
    /// The thread in which it began.
    task: TaskKey,
    /// From its begin on, as long as its stretches together.
    span: ProgramSpan,
    /// Stretches that no row has told yet.
    left: u32,
    /// The stretches that rows have told.
    told: Option<SlowSpan>,
}

impl PublishedTraces {
    /// Says that a trace has this stretch, of a thread, and returns its number.
    pub fn announce(
        &mut self,
        id: &str,
        (kind, task): (usize, TaskKey),
        stretch: &ProgramSpan,
    ) -> Option<u32> {
        if let Some(number) = self.numbers.get(id) {
            let trace = &mut self.traces[*number as usize];
            if stretch.begin < trace.span.begin {
                (trace.task, trace.span) = (task, trace.span.moved_to(stretch.begin));
            }
            trace.span.end = trace.span.end.after(stretch.length());
            trace.left += 1;
            return Some(*number);
        }
        let number = u32::try_from(self.traces.len()).ok();
        let number = number.filter(|_| self.traces.len() < MOST_TRACES)?;
        self.numbers.insert(id.into(), number);
        self.traces.push(PublishedTrace {
            id: id.into(),
            kind,
            task,
            span: *stretch,
            left: 1,
            told: None,
        });
        Some(number)
    }

    /// Adds a stretch of which rows have told all.
    pub fn add(&mut self, stretch: SlowSpan) {
        let Some(number) = stretch.trace() else {
            return;
        };
        let trace = &mut self.traces[number as usize];
        trace.left = trace.left.saturating_sub(1);
        match &mut trace.told {
            Some(told) => told.merge(stretch),
            none => *none = Some(stretch),
        }
    }

    /// Adds the traces of which all stretches are known whole to the slowest spans.
    pub fn finish(&mut self, slowest: &mut SlowestSpans) {
        for trace in &mut self.traces {
            let sums = self.sums.entry((trace.kind, trace.task)).or_default();
            match trace.told.take().filter(|_| trace.left == 0) {
                Some(mut told) => {
                    told.be_one(trace.span);
                    sums.add(
                        trace.task,
                        trace.span.begin,
                        trace.span.length(),
                        told.parts(),
                    );
                    slowest.push(trace.kind, told);
                }
                None => sums.broken += 1,
            }
        }
    }

    /// Returns true if spans of this kind are stretches of traces.
    pub fn have(&self, kind: usize) -> bool {
        // All that are published are of one kind.
        self.traces.first().is_some_and(|trace| trace.kind == kind)
    }

    /// The sums, by kind and thread.
    pub fn sums(&self) -> impl Iterator<Item = (usize, TaskKey, &TurnSums)> {
        let sums = self.sums.iter();
        sums.map(|((kind, task), sums)| (*kind, *task, sums))
    }

    /// Each trace as one span of the thread in which it began, with its kind.
    pub fn whole(&self) -> impl Iterator<Item = (TaskKey, usize, &ProgramSpan)> {
        let traces = self.traces.iter();
        traces.map(|trace| (trace.task, trace.kind, &trace.span))
    }

    /// The id of the trace with this number.
    pub fn id(&self, number: u32) -> Option<&str> {
        Some(&self.traces.get(number as usize)?.id)
    }
}

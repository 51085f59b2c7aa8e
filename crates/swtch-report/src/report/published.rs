//! Traces that programs publish (`--span otel`): a request, with all threads that had its id, and all that they did meanwhile.
//!
//! ```text
//!   thread 1   ├─ trace A ─┤          ├─ trace A ─┤
//!   thread 2        ├─ trace B ─┤├─ trace A ─┤          A is as long as its three stretches together
//! ```

use std::sync::Arc;

use rustc_hash::FxHashMap;
use swtch_core::{ProgramSpan, TaskKey, TurnSums};

use super::slow_spans::{SlowSpan, SlowestSpans};

/// The most traces that are told apart. A program may make up ids; the stretches of further ones are left out.
const MOST_TRACES: usize = 1_000_000;

/// The traces, by their numbers.
#[derive(Debug, Default)]
pub struct PublishedTraces {
    numbers: FxHashMap<Arc<str>, u32>,
    traces: Vec<PublishedTrace>,
    /// The kinds of spans of which they are.
    kinds: Vec<usize>,
    /// Stretches of traces beyond [`MOST_TRACES`].
    left_out: u64,
    /// By kind and thread in which they began, after [`Self::finish`].
    sums: FxHashMap<(usize, TaskKey), TurnSums>,
}

/// One trace.
#[derive(Debug)]
struct PublishedTrace {
    id: Arc<str>,
    /// `None` if it has no stretch that counts.
    whole: Option<WholeTrace>,
    /// Stretches that no row has told yet.
    left: u32,
    /// The stretches that rows have told.
    told: Option<SlowSpan>,
}

/// A trace as one span.
#[derive(Clone, Copy, Debug)]
struct WholeTrace {
    kind: usize,
    /// The thread in which it began.
    task: TaskKey,
    /// From its begin on, as long as its stretches together.
    span: ProgramSpan,
}

impl PublishedTraces {
    /// The number of the trace with this id; `None` if there are too many.
    pub fn number(&mut self, id: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(id) {
            return Some(*number);
        }
        let number = u32::try_from(self.traces.len()).ok();
        let Some(number) = number.filter(|_| self.traces.len() < MOST_TRACES) else {
            self.left_out += 1;
            return None;
        };
        let id: Arc<str> = id.into();
        self.numbers.insert(Arc::clone(&id), number);
        self.traces.push(PublishedTrace {
            id,
            whole: None,
            left: 0,
            told: None,
        });
        Some(number)
    }

    /// Says that a trace has this stretch of a thread, whose spans are of this kind.
    pub fn announce(&mut self, kind: usize, task: TaskKey, stretch: &ProgramSpan) {
        let Some(trace) = stretch
            .trace
            .and_then(|number| self.traces.get_mut(number as usize))
        else {
            return;
        };
        trace.left += 1;
        let Some(whole) = &mut trace.whole else {
            let span = *stretch;
            trace.whole = Some(WholeTrace { kind, task, span });
            if !self.kinds.contains(&kind) {
                self.kinds.push(kind);
            }
            return;
        };
        if stretch.begin < whole.span.begin {
            (whole.task, whole.span) = (task, whole.span.moved_to(stretch.begin));
        }
        whole.span.end = whole.span.end.after(stretch.length());
    }

    /// Adds a stretch of which rows have told all.
    pub fn add(&mut self, stretch: SlowSpan) {
        let Some(trace) = stretch
            .trace()
            .and_then(|number| self.traces.get_mut(number as usize))
        else {
            return;
        };
        trace.left = trace.left.saturating_sub(1);
        match &mut trace.told {
            Some(told) => told.merge(stretch),
            none => *none = Some(stretch),
        }
    }

    /// Adds the traces of which all stretches are known whole to the slowest spans. To be called once.
    pub fn finish(&mut self, slowest: &mut SlowestSpans) {
        for trace in &mut self.traces {
            let Some(WholeTrace { kind, task, span }) = trace.whole else {
                continue;
            };
            let sums = self.sums.entry((kind, task)).or_default();
            match trace.told.take().filter(|_| trace.left == 0) {
                Some(mut told) => {
                    told.be_one(span);
                    sums.add(task, span.begin, span.length(), told.parts());
                    slowest.push(kind, told);
                }
                None => sums.broken += 1,
            }
        }
    }

    /// Returns true if spans of this kind are stretches of traces.
    pub fn have(&self, kind: usize) -> bool {
        self.kinds.contains(&kind)
    }

    /// The sums, by kind and thread.
    pub fn sums(&self) -> impl Iterator<Item = (usize, TaskKey, &TurnSums)> {
        let sums = self.sums.iter();
        sums.map(|((kind, task), sums)| (*kind, *task, sums))
    }

    /// Each trace as one span of the thread in which it began, with its kind.
    pub fn whole(&self) -> impl Iterator<Item = (TaskKey, usize, &ProgramSpan)> {
        let traces = self.traces.iter();
        let whole = traces.filter_map(|trace| trace.whole.as_ref());
        whole.map(|whole| (whole.task, whole.kind, &whole.span))
    }

    /// The id of the trace with this number.
    pub fn id(&self, number: u32) -> Option<&str> {
        Some(&self.traces.get(number as usize)?.id)
    }

    /// The number of stretches that were left out, because there are too many traces.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use swtch_core::{Nanos, Timestamp, TurnSum};

    use super::*;
    use crate::report::slow_spans::SpanWaits;

    const ONE: TaskKey = TaskKey::new(1);
    const OTHER: TaskKey = TaskKey::new(2);

    fn stretch(trace: u32, begin: u64, end: u64) -> ProgramSpan {
        ProgramSpan {
            begin: Timestamp::from_ns(begin),
            end: Timestamp::from_ns(end),
            trace: Some(trace),
        }
    }

    /// A stretch in which the thread ran.
    fn ran(task: usize, span: ProgramSpan) -> SlowSpan {
        let parts = TurnSum {
            turns: 1,
            switches: 1,
            ran: span.length(),
            ..TurnSum::default()
        };
        SlowSpan::new(task, span, parts, SpanWaits::default())
    }

    #[test]
    fn a_trace_is_as_long_as_its_stretches_in_all_threads_together() {
        let mut traces = PublishedTraces::default();
        let number = traces.number("a").unwrap();
        assert_eq!(traces.number("a"), Some(number));
        // The stretch that began first comes last.
        let stretches = [(OTHER, 300, 350), (ONE, 100, 200)];
        let spans = stretches.map(|(task, begin, end)| (task, stretch(number, begin, end)));
        spans
            .iter()
            .for_each(|(task, span)| traces.announce(7, *task, span));
        spans.iter().for_each(|(_, span)| traces.add(ran(1, *span)));
        traces.finish(&mut SlowestSpans::default());
        let (kind, task, sums) = traces.sums().next().unwrap();
        assert_eq!((kind, task, sums.count(), sums.broken), (7, ONE, 1, 0));
        let (all, _) = sums.slowest(1.0);
        assert_eq!(
            (all.turns, all.switches, all.ran),
            (1, 2, Nanos::from_ns(150))
        );
        let whole: Vec<_> = traces.whole().collect();
        assert_eq!(whole.len(), 1);
        assert_eq!((whole[0].0, whole[0].1), (ONE, 7));
        assert_eq!(
            (whole[0].2.begin, whole[0].2.end),
            (Timestamp::from_ns(100), Timestamp::from_ns(250))
        );
        assert!(traces.have(7) && !traces.have(0));
        assert_eq!(traces.id(number), Some("a"));
    }

    #[test]
    fn a_trace_of_which_a_stretch_is_not_known_whole_is_not_either() {
        let mut traces = PublishedTraces::default();
        let number = traces.number("a").unwrap();
        for (begin, end) in [(100, 200), (300, 350)] {
            traces.announce(0, ONE, &stretch(number, begin, end));
        }
        traces.add(ran(1, stretch(number, 100, 200)));
        traces.finish(&mut SlowestSpans::default());
        let (_, _, sums) = traces.sums().next().unwrap();
        assert_eq!((sums.count(), sums.broken), (0, 1));
    }

    /// A program may make up as many ids as it likes.
    #[test]
    fn of_too_many_traces_the_stretches_are_counted() {
        let mut traces = PublishedTraces::default();
        for number in 0..MOST_TRACES + 3 {
            traces.number(&number.to_string());
        }
        assert_eq!((traces.traces.len(), traces.left_out()), (MOST_TRACES, 3));
        assert!(traces.number("7").is_some());
    }
}

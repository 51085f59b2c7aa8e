//! The spans of each thread ([`swtch_core::spans`]), by the program and by their kind.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use swtch_core::{
    Category, Open, Pid, ProgramSpan, SpanEvent, Switch, TaskKey, ThreadSpans, Tid, Timestamp,
    TurnSums,
};
use swtch_output::sheet::Sheet;
use swtch_output::text::counted;
use swtch_store::SpanRow;

use super::names::Names;
use super::programs::Programs;
use super::published::PublishedTraces;
use super::slow_spans::{RowOfSpan, SlowSpan, SlowestSpans, SpanNames, SpanWaits};
use super::stack::Symbols;
use super::turns::ProgramTurns;
use super::waker::Waker;

/// What a statement of `PostgreSQL` executes is a part of it, where it is not a statement of its own.
const PART: &str = "execute";
const WHOLE: &str = "query";

/// The most kinds that are told apart. A recording has as many as were asked for.
const MOST_KINDS: usize = 256;

/// The spans of each thread, by its index.
#[derive(Debug, Default)]
pub struct SpansByThread {
    threads: FxHashMap<usize, SpanThread>,
    kinds: Vec<String>,
    traces: PublishedTraces,
    slowest: SlowestSpans,
}

/// The spans of one thread.
#[derive(Debug, Default)]
struct SpanThread {
    kinds: Vec<SpansOfKind>,
    /// The task that has the CPU since it last left, if it had not left to wait.
    taker: Option<TaskKey>,
}

/// The spans of one kind of one thread.
#[derive(Debug)]
struct SpansOfKind {
    /// The place of the kind in [`SpansByThread::kinds`].
    kind: usize,
    spans: ThreadSpans,
    /// The longest waits of the span that is open.
    waits: SpanWaits,
}

impl SpansOfKind {
    /// Takes what a row tells of a span of the task with this index.
    fn take(
        waits: &mut SpanWaits,
        (traces, slowest): (&mut PublishedTraces, &mut SlowestSpans),
        (kind, task): (usize, usize),
        row: &RowOfSpan,
        event: SpanEvent<'_>,
    ) {
        match event {
            SpanEvent::Piece(piece, length) => waits.add(piece, length, row),
            SpanEvent::Ended(span, sum) => {
                let waits = std::mem::take(waits);
                let whole = sum.map(|sum| SlowSpan::new(task, span, sum.clone(), waits));
                match (span.trace, whole) {
                    (Some(_), Some(piece)) => traces.add(piece),
                    (None, Some(span)) => slowest.push(kind, span),
                    (_, None) => {}
                }
            }
        }
    }
}

/// Spans on their way from a trace.
#[derive(Debug)]
pub struct ReadSpans {
    /// The thread that had an id last, and its key.
    ids: FxHashMap<(Pid, Tid), (usize, TaskKey)>,
    spans: FxHashMap<(usize, usize), (TaskKey, Vec<ProgramSpan>)>,
    kinds: Vec<String>,
    traces: PublishedTraces,
}

impl ReadSpans {
    /// None yet, of the threads that are taken.
    pub fn new(names: &Names, takes: impl Fn(usize) -> bool) -> Self {
        let keys = names.keys().filter(|(_, task)| takes(*task));
        let ids = keys.filter_map(|(key, task)| {
            let pid = names.process_of(task).pid?;
            Some(((pid, names.thread(task).tid?), (task, key)))
        });
        Self {
            ids: ids.collect(),
            spans: FxHashMap::default(),
            kinds: Vec::new(),
            traces: PublishedTraces::default(),
        }
    }

    /// Adds one, if its thread is taken.
    pub fn add(&mut self, row: &SpanRow) {
        let Some((task, key)) = self.ids.get(&(row.pid, row.tid)) else {
            return;
        };
        let known = self.kinds.iter().position(|kind| *kind == row.name);
        let kind = known.unwrap_or(self.kinds.len());
        if kind >= MOST_KINDS {
            return;
        }
        if known.is_none() {
            self.kinds.push(row.name.clone());
        }
        let (_, spans) = self
            .spans
            .entry((*task, kind))
            .or_insert_with(|| (*key, Vec::new()));
        let mut span = ProgramSpan {
            begin: row.begin,
            end: row.end,
            trace: None,
        };
        if let Some(trace) = &row.trace_id {
            let Some(number) = self.traces.number(trace) else {
                return;
            };
            span.trace = Some(number);
        }
        spans.push(span);
    }

    /// All of them.
    pub fn by_thread(mut self) -> SpansByThread {
        let kind = |name| self.kinds.iter().position(|kind| kind == name);
        if let (Some(part), Some(whole)) = (kind(PART), kind(WHOLE)) {
            self.leave_out_parts(part, whole);
        }
        self.spans.retain(|_, (_, spans)| !spans.is_empty());
        let mut threads: FxHashMap<usize, SpanThread> = FxHashMap::default();
        for ((task, kind), (key, spans)) in self.spans {
            let of_thread = threads.entry(task).or_default();
            let spans = ThreadSpans::new(key, spans);
            for span in spans.outermost() {
                self.traces.announce(kind, key, span);
            }
            of_thread.kinds.push(SpansOfKind {
                kind,
                spans,
                waits: SpanWaits::default(),
            });
        }
        SpansByThread {
            threads,
            kinds: self.kinds,
            traces: self.traces,
            slowest: SlowestSpans::default(),
        }
    }

    /// Leaves spans of one kind out that are within those of another.
    fn leave_out_parts(&mut self, part: usize, whole: usize) {
        let keys = self.spans.keys().filter(|(_, kind)| *kind == whole);
        let tasks: Vec<_> = keys.map(|(task, _)| *task).collect();
        for task in tasks {
            let both = [&(task, whole), &(task, part)];
            let [Some((_, wholes)), Some((_, parts))] = self.spans.get_disjoint_mut(both) else {
                continue;
            };
            wholes.sort_unstable_by_key(|span| span.begin);
            parts.retain(|part| {
                let later = wholes.partition_point(|span| span.begin <= part.begin);
                let around = later.checked_sub(1).map(|before| wholes[before]);
                around.is_none_or(|around| around.end < part.end)
            });
        }
    }
}

impl SpansByThread {
    /// The spans of each kind of each thread that are not within others of the kind, one after the other.
    pub fn each(&self) -> impl Iterator<Item = (TaskKey, &str, &[ProgramSpan])> {
        let kinds = self.threads.values().flat_map(|thread| &thread.kinds);
        kinds.map(|SpansOfKind { kind, spans, .. }| {
            let name = self.kinds[*kind].as_str();
            (spans.task(), name, spans.outermost())
        })
    }

    /// The id of a published trace.
    pub fn trace_id(&self, trace: u32) -> Option<&str> {
        self.traces.id(trace)
    }

    /// As [`Self::each`], but of published traces each is one, as long as its stretches together.
    pub fn each_whole(&self) -> impl Iterator<Item = (TaskKey, &str, &[ProgramSpan])> {
        let kinds = self.threads.values().flat_map(|thread| &thread.kinds);
        let of_places = kinds.filter(|of_kind| !self.traces.have(of_kind.kind));
        let of_places = of_places.map(|of_kind| {
            let task = of_kind.spans.task();
            (task, of_kind.kind, of_kind.spans.outermost())
        });
        let whole = self.traces.whole();
        let whole = whole.map(|(task, kind, span)| (task, kind, std::slice::from_ref(span)));
        let all = of_places.chain(whole);
        all.map(|(task, kind, spans)| (task, self.kinds[kind].as_str(), spans))
    }

    /// Adds a row of the task with this index.
    pub fn add(&mut self, row: &Switch, task: usize, names: &Names) {
        let Some(thread) = self.threads.get_mut(&task) else {
            return;
        };
        let told = RowOfSpan {
            stacks: (row.wait.stacks.user, row.wait.stacks.kernel),
            waker: Waker::of(row, names),
            taker: thread.taker.take(),
        };
        let (traces, slowest) = (&mut self.traces, &mut self.slowest);
        for SpansOfKind { kind, spans, waits } in &mut thread.kinds {
            let of = (*kind, task);
            spans.add(row, &mut |event| {
                SpansOfKind::take(waits, (&mut *traces, &mut *slowest), of, &told, event);
            });
        }
        let could_run_on = row.rule.reason.category() == Category::Preemption;
        thread.taker = row.next_task.filter(|next| could_run_on && !next.is_idle());
    }

    /// Adds what was open of a task at the end of the trace: the wait before its run, and then that.
    pub fn add_open(&mut self, open: &Open, task: usize) {
        let Some(thread) = self.threads.get_mut(&task) else {
            return;
        };
        let told = RowOfSpan {
            taker: thread.taker,
            ..RowOfSpan::default()
        };
        let (traces, slowest) = (&mut self.traces, &mut self.slowest);
        for SpansOfKind { kind, spans, waits } in &mut thread.kinds {
            let of = (*kind, task);
            spans.add_open(open, &mut |event| {
                SpansOfKind::take(waits, (&mut *traces, &mut *slowest), of, &told, event);
            });
        }
    }

    /// To be called once, after all rows: the traces that programs have published are spans, too.
    pub fn finish(&mut self) {
        self.traces.finish(&mut self.slowest);
    }

    /// The spans of each kind that took longest.
    #[cfg(test)]
    pub const fn slowest(&self) -> &SlowestSpans {
        &self.slowest
    }

    /// The spans that took longest, of all kinds.
    pub fn sheet(&self, names: &Names, symbols: &Symbols, start: Timestamp) -> Sheet {
        let kinds = self.threads.values().flat_map(|thread| &thread.kinds);
        let (mut count, mut broken) = (0, 0);
        for of_kind in kinds.filter(|of_kind| !self.traces.have(of_kind.kind)) {
            let sums = of_kind.spans.sums();
            count += sums.count();
            broken += sums.broken;
        }
        for (_, _, sums) in self.traces.sums() {
            count += sums.count();
            broken += sums.broken;
        }
        let told = SpanNames {
            names,
            symbols,
            kinds: &self.kinds,
            traces: &self.traces,
            start,
        };
        let mut sheet = self.slowest.sheet(&told, (count, broken));
        let left_out = self.traces.left_out();
        if left_out > 0 {
            sheet.notes.push(format!(
                "{} of further traces left out: there are too many",
                counted(left_out, "stretch")
            ));
        }
        sheet
    }

    /// The spans of each program, by their kind, the most first.
    pub fn by_program(
        &self,
        names: &Names,
        programs: &Programs,
        symbols: Option<&Symbols>,
    ) -> Vec<ProgramTurns> {
        let mut by_program: BTreeMap<(&str, usize), (TurnSums, u64)> = BTreeMap::new();
        let label_of = |task: usize| programs.label(names.thread(task).process);
        for (task, thread) in &self.threads {
            let kinds = thread.kinds.iter();
            for of_kind in kinds.filter(|of_kind| !self.traces.have(of_kind.kind)) {
                let key = (label_of(*task), of_kind.kind);
                let (sums, nested) = by_program.entry(key).or_default();
                sums.merge(&of_kind.spans.sums());
                *nested += of_kind.spans.nested();
            }
        }
        for (kind, task, sums) in self.traces.sums() {
            let key = (label_of(names.index(task)), kind);
            by_program.entry(key).or_default().0.merge(sums);
        }
        let told = by_program
            .into_iter()
            .map(|((label, kind), (sums, nested))| {
                let program = |task| label_of(task);
                let slow = |count| {
                    let is_its = |task| label_of(task) == label;
                    let told = (names, symbols);
                    self.slowest.causes(kind, count, is_its, &program, told)
                };
                ProgramTurns::of_spans((&self.kinds[kind], label), (sums, nested), names, slow)
            });
        let mut told: Vec<_> = told.collect();
        told.sort_by_key(|program| Reverse(program.count()));
        told
    }
}

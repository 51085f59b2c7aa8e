//! The spans of each thread ([`swtch_core::spans`]), by the program and by their kind.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use swtch_core::{Open, Pid, ProgramSpan, Switch, TaskKey, ThreadSpans, Tid, TurnSums};
use swtch_store::SpanRow;

use super::names::Names;
use super::programs::Programs;
use super::turns::ProgramTurns;

/// What a statement of `PostgreSQL` executes is a part of it, where it is not a statement of its own.
const PART: &str = "execute";
const WHOLE: &str = "query";

/// The most kinds that are told apart. A recording has as many as were asked for.
const MOST_KINDS: usize = 256;

/// The spans of each thread, by its index.
#[derive(Debug, Default)]
pub struct SpansByThread {
    /// Of each kind, by its place in `kinds`.
    threads: FxHashMap<usize, Vec<(usize, ThreadSpans)>>,
    kinds: Vec<String>,
}

/// Spans on their way from a trace.
#[derive(Debug)]
pub struct ReadSpans {
    /// The thread that had an id last, and its key.
    ids: FxHashMap<(Pid, Tid), (usize, TaskKey)>,
    spans: FxHashMap<(usize, usize), (TaskKey, Vec<ProgramSpan>)>,
    kinds: Vec<String>,
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
        spans.push(ProgramSpan {
            begin: row.begin,
            end: row.end,
        });
    }

    /// All of them.
    pub fn by_thread(mut self) -> SpansByThread {
        let kind = |name| self.kinds.iter().position(|kind| kind == name);
        if let (Some(part), Some(whole)) = (kind(PART), kind(WHOLE)) {
            self.leave_out_parts(part, whole);
        }
        self.spans.retain(|_, (_, spans)| !spans.is_empty());
        let mut threads: FxHashMap<usize, Vec<_>> = FxHashMap::default();
        for ((task, kind), (key, spans)) in self.spans {
            let of_thread = threads.entry(task).or_default();
            of_thread.push((kind, ThreadSpans::new(key, spans)));
        }
        SpansByThread {
            threads,
            kinds: self.kinds,
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
    /// Adds a row of the task with this index.
    pub fn add(&mut self, row: &Switch, task: usize) {
        for (_, spans) in self.threads.get_mut(&task).into_iter().flatten() {
            spans.add(row);
        }
    }

    /// Adds what was open of a task at the end of the trace: the wait before its run, and then that.
    pub fn add_open(&mut self, open: &Open, task: usize) {
        for (_, spans) in self.threads.get_mut(&task).into_iter().flatten() {
            spans.add_open(open);
        }
    }

    /// The spans of each program, by their kind, the most first.
    pub fn by_program(&self, names: &Names, programs: &Programs) -> Vec<ProgramTurns> {
        let mut by_program: BTreeMap<(&str, usize), (TurnSums, u64)> = BTreeMap::new();
        for (task, threads) in &self.threads {
            let label = programs.label(names.thread(*task).process);
            for (kind, spans) in threads {
                let (sums, nested) = by_program.entry((label, *kind)).or_default();
                sums.merge(&spans.sums());
                *nested += spans.nested();
            }
        }
        let told = by_program
            .into_iter()
            .filter_map(|((label, kind), (sums, nested))| {
                let kind = self.kinds.get(kind)?;
                Some(ProgramTurns::of_spans(kind, label, sums, nested, names))
            });
        let mut told: Vec<_> = told.collect();
        told.sort_by_key(|program| Reverse(program.count()));
        told
    }
}

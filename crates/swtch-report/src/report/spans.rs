//! The spans of each thread ([`swtch_core::spans`]), by the program and by their kind.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use swtch_core::{Pid, ProgramSpan, Switch, ThreadSpans, Tid, Timestamp, TurnSums};
use swtch_store::SpanRow;

use super::names::Names;
use super::programs::Programs;
use super::turns::ProgramTurns;

/// The spans of each thread, by its index.
#[derive(Debug, Default)]
pub struct SpansByThread {
    threads: FxHashMap<usize, ThreadSpans>,
    kinds: Vec<String>,
}

/// Spans on their way from a trace.
#[derive(Debug)]
pub struct ReadSpans<'n> {
    names: &'n Names,
    /// The thread that had an id last.
    ids: FxHashMap<(Pid, Tid), usize>,
    spans: FxHashMap<usize, Vec<ProgramSpan>>,
    kinds: Vec<String>,
}

impl<'n> ReadSpans<'n> {
    /// None yet, of the threads that are taken.
    pub fn new(names: &'n Names, takes: impl Fn(usize) -> bool) -> Self {
        let tasks = (0..names.thread_count()).filter(|task| takes(*task));
        let ids = tasks.filter_map(|task| {
            let pid = names.process_of(task).pid?;
            Some(((pid, names.thread(task).tid?), task))
        });
        Self {
            names,
            ids: ids.collect(),
            spans: FxHashMap::default(),
            kinds: Vec::new(),
        }
    }

    /// Adds one, if its thread is taken.
    pub fn add(&mut self, row: &SpanRow) {
        let Some(task) = self.ids.get(&(row.pid, row.tid)) else {
            return;
        };
        let known = self.kinds.iter().position(|kind| *kind == row.name);
        let kind = known.unwrap_or_else(|| {
            self.kinds.push(row.name.clone());
            self.kinds.len() - 1
        });
        self.spans.entry(*task).or_default().push(ProgramSpan {
            begin: row.begin,
            end: row.end,
            kind: u32::try_from(kind).unwrap_or(u32::MAX),
        });
    }

    /// All of them.
    pub fn by_thread(self) -> SpansByThread {
        let threads = self.spans.into_iter().map(|(task, spans)| {
            let key = self.names.key_of(task);
            (task, ThreadSpans::new(key, spans))
        });
        SpansByThread {
            threads: threads.collect(),
            kinds: self.kinds,
        }
    }
}

impl SpansByThread {
    /// Adds a row of the task with this index.
    pub fn add(&mut self, row: &Switch, task: usize) {
        if let Some(thread) = self.threads.get_mut(&task) {
            thread.add(row);
        }
    }

    /// Adds the run of a task that had not ended with the trace.
    pub fn add_run(&mut self, task: usize, from: Timestamp, to: Timestamp) {
        if let Some(thread) = self.threads.get_mut(&task) {
            thread.add_run(from, to);
        }
    }

    /// The spans of each program, by their kind.
    pub fn by_program(&self, names: &Names, programs: &Programs) -> Vec<ProgramTurns> {
        let mut by_program: BTreeMap<(&str, u32), TurnSums> = BTreeMap::new();
        for (task, thread) in &self.threads {
            let label = programs.label(names.thread(*task).process);
            for (kind, sums) in thread.sums() {
                let program = by_program.entry((label, kind)).or_default();
                program.merge(&sums);
            }
        }
        let told = by_program.into_iter().filter_map(|((label, kind), sums)| {
            let kind = self.kinds.get(usize::try_from(kind).ok()?)?;
            ProgramTurns::of_spans(kind, label, sums, names)
        });
        let mut told: Vec<_> = told.collect();
        told.sort_by_key(|program| Reverse(program.count()));
        told
    }
}

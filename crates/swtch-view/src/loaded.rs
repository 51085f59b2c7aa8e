//! A trace loaded for the page: opened, with its names and its rows at hand.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use swtch_core::{Coverage, Level, Open, TaskKey, Timestamp};
use swtch_report::opening::{self, LIST_OF_FILES};
use swtch_report::report::{self, Filter, Names, Symbols, takes_task};
use swtch_report::stamp::Stamp;
use swtch_store::{Completeness, RecordingState, Trace};

use super::facts::{self, TaskLifetime};
use super::query::Span;
use super::row_ids::RowIds;
use super::search::{self, WaitsByStack};
use super::timeline::kept::{self, RowsSource, UnnamedFile};
use super::timeline::{LevelTimelines, TableRow, Track};

/// A recorder writes every second, if there is anything to write. After this long without a write,
/// either it has ended or the recorded tasks sleep; the page goes on asking, but less often.
const SILENT: Duration = Duration::from_secs(10);

/// Identifies a state of a trace by the list of its files, which is written last.
pub fn stamp_of(trace: &Path) -> Option<Stamp> {
    Stamp::of(&trace.join(LIST_OF_FILES))
}

/// One state of a trace. A trace that is still being recorded is read again into a new value.
#[derive(Debug)]
pub struct Loaded {
    /// Number of the reading, which grows with each one.
    pub generation: u32,
    /// The open trace, for what is not in memory.
    pub trace: Trace,
    /// Names of its tasks, cgroups and stacks.
    pub names: Names,
    /// The rows of both levels.
    pub levels: LevelTimelines,
    /// The source of the rows.
    pub source: RowsSource,
    /// The file with the rows, when it is to be kept for the next time.
    pub unnamed: Option<UnnamedFile>,
    /// Numbers by which the page knows the rows, by level.
    ids: [RowIds; Level::ALL.len()],
    /// The state of the trace that was read.
    stamp: Option<Stamp>,
    /// Waits and runs that were open when the trace ended.
    opens: FxHashMap<TaskKey, Open>,
    /// Tasks that are threads of the kernel.
    pub kernel_threads: FxHashSet<TaskKey>,
    /// The begin and end of tasks.
    pub lives: FxHashMap<TaskKey, TaskLifetime>,
    /// True if the capture was asked for every task that it names.
    pub everything_in_scope: bool,
    // The fields below are computed when they are first asked for.
    facts: OnceLock<Value>,
    threads: OnceLock<Value>,
    symbols: OnceLock<Symbols>,
    waits_by_stack: OnceLock<WaitsByStack>,
}

impl Loaded {
    /// Reads a trace.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path, generation: u32) -> Result<Self> {
        Self::read_with(path, generation, kept::MOST_IN_MEMORY)
    }

    /// Reads a trace, with its rows in memory if there are at most `most`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_with(path: &Path, generation: u32, most: u64) -> Result<Self> {
        // Taken before the trace is read, so that what is written meanwhile causes another reading.
        let stamp = stamp_of(path);
        let trace = opening::open(path)?;
        let mut tasks = trace.tasks().context("reading the tasks of the trace")?;
        tasks.sort_by_key(|event| event.ts);
        let commands = trace.commands();
        let commands = commands.context("reading the command lines of the trace")?;
        let start = Timestamp::from_ns(trace.meta().start_ns);
        let (levels, source, unnamed) =
            kept::open(path, &trace, start, most).context("reading the switches of the trace")?;
        let opens = trace.opens().context("reading the open waits")?;
        Ok(Self {
            generation,
            stamp,
            ids: Default::default(),
            names: Names::with_commands(&tasks, &commands),
            levels,
            source,
            unnamed,
            opens: opens.into_iter().map(|open| (open.task, open)).collect(),
            kernel_threads: tasks
                .iter()
                .filter(|event| event.is_kthread)
                .map(|event| event.task)
                .collect(),
            lives: facts::lives_of(&tasks),
            everything_in_scope: tasks.iter().all(|event| event.in_scope),
            facts: OnceLock::new(),
            threads: OnceLock::new(),
            symbols: OnceLock::new(),
            waits_by_stack: OnceLock::new(),
            trace,
        })
    }

    /// Reads the trace again. Rows keep the numbers by which the page knows them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_again(&self, path: &Path) -> Result<Self> {
        let now = Self::read(path, self.generation + 1)?;
        let ids = std::array::from_fn(|index| {
            let level = Level::ALL[index];
            self.ids(level)
                .after_growth(self.levels.of(level), now.levels.of(level))
        });
        Ok(Self { ids, ..now })
    }

    /// The numbers of a level's rows.
    pub const fn ids(&self, level: Level) -> &RowIds {
        &self.ids[level.index()]
    }

    /// The number by which the page knows a row.
    pub fn id(&self, level: Level, row: usize) -> u32 {
        self.ids(level).id(row)
    }

    /// Returns the number of the row at the kernel's level that ended at this moment and is of this
    /// task; `None` if there is none.
    pub fn id_ended(&self, task: TaskKey, ended_ns: u64) -> Option<u32> {
        let row = self.levels.os.row_ended(task, ended_ns)?;
        Some(self.id(Level::Os, row))
    }

    /// The row that the page knows by a number.
    pub fn row(&self, level: Level, id: u32) -> Option<usize> {
        let row = self.ids(level).row(id)?;
        (row < self.levels.of(level).rows().len()).then_some(row)
    }

    /// A moment in ns since the start of the trace.
    pub fn since_start(&self, moment: Timestamp) -> u64 {
        moment.as_ns().saturating_sub(self.trace.meta().start_ns)
    }

    /// A moment of the page (ns since the start of the trace) on the trace clock.
    pub fn moment(&self, ns: u64) -> Timestamp {
        Timestamp::from_ns(self.trace.meta().start_ns.saturating_add(ns))
    }

    /// Returns the length of the trace: to its end or, if that is not recorded, to its last row.
    pub fn duration_ns(&self) -> u64 {
        let meta = self.trace.meta();
        match meta.end_ns {
            0 => self.levels.end_ns,
            end => end.saturating_sub(meta.start_ns).max(self.levels.end_ns),
        }
    }

    /// Returns which tasks' runs have rows.
    pub fn coverage(&self) -> Coverage {
        report::coverage(self.trace.meta(), self.everything_in_scope)
    }

    /// The wait or run of a task that was open when the capture ended.
    pub fn open(&self, task: TaskKey) -> Option<&Open> {
        self.opens.get(&task)
    }

    /// Returns the tracks of the kernel's level whose tasks a report with this filter counts.
    pub fn tracks(&self, filter: &Filter) -> Vec<Track> {
        let takes = |track: &&Track| takes_task(filter, &self.names, self.names.index(track.task));
        let tracks = self.levels.os.tracks().iter();
        tracks.filter(takes).copied().collect()
    }

    /// Calls `each` with the rows of some tasks of the kernel's level that ended in a span.
    pub fn each_row(&self, tracks: &[Track], span: Span, mut each: impl FnMut(&TableRow)) {
        let rows = self.levels.os.rows();
        for track in tracks {
            rows.each(self.ended_in(track, span), |_, row| each(row));
        }
    }

    /// Returns true if any row of some tasks of the kernel's level ended in a span.
    pub fn has_rows(&self, tracks: &[Track], span: Span) -> bool {
        tracks
            .iter()
            .any(|track| !self.ended_in(track, span).is_empty())
    }

    /// Returns the rows of a track that ended in a span.
    fn ended_in(&self, track: &Track, span: Span) -> Range<usize> {
        let rows = self.levels.os.rows();
        let first = rows.partition(track.rows(), |ended| ended < span.from_ns);
        let last = rows.partition(track.rows(), |ended| ended < span.to_ns);
        // A span may end before it begins. Without `max` the range would be reversed.
        track.first + first..track.first + last.max(first)
    }

    /// The answer to `api/threads`, made once.
    pub fn threads(&self) -> &Value {
        self.threads.get_or_init(|| facts::of_threads(self))
    }

    /// The facts of this reading, made once.
    pub fn facts(&self) -> Result<&Value> {
        once(&self.facts, || facts::of_reading(self))
    }

    /// Stacks and frames of the trace, read once.
    pub fn symbols(&self) -> Result<&Symbols> {
        once(&self.symbols, || {
            let stacks = self.trace.stacks().context("reading the stacks")?;
            let frames = self.trace.frames().context("reading the frames")?;
            Ok(Symbols::new(stacks, &frames).recorded_by(self.trace.meta().stacks))
        })
    }

    /// Waits by stack, computed once.
    pub fn waits_by_stack(&self) -> Result<&WaitsByStack> {
        once(&self.waits_by_stack, || search::waits_by_stack(self))
    }

    /// The state of the trace that was read.
    pub const fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// Returns true if the recorder wrote within the last `SILENT`.
    pub fn is_fresh(&self) -> bool {
        let age = self.stamp.and_then(Stamp::age);
        age.is_some_and(|age| age < SILENT)
    }

    /// Returns true if the recorder may still be writing.
    pub fn is_growing(&self) -> bool {
        // A recorder that ends writes the facts first, and the list of the final files some
        // milliseconds later. In between, the facts say that the trace is finished, although it is
        // not.
        let may_write = match self.trace.meta().state {
            RecordingState::Recording => true,
            _ => self.is_fresh(),
        };
        may_write && self.trace.completeness() != Completeness::Finished
    }
}

/// Computes a value when it is first asked for. An error is not kept.
fn once<T>(kept: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = kept.get() {
        return Ok(value);
    }
    let value = make()?;
    Ok(kept.get_or_init(|| value))
}

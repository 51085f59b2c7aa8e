//! One trace opened for one question: the names of its tasks, which rows count, and the head of the
//! report.

use std::ops::ControlFlow;
use std::rc::Rc;

use anyhow::{Context, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::{Arch, CgroupId, Coverage, Level, Nanos, Open, Switch, Timestamp};
use swtch_store::{
    Columns, Completeness, Meta, PieceReader, RecordingBackend, RecordingState, Trace,
};

use super::filter::{CountedParts, Filter, GivenUp, Selection};
use super::followed::{FollowedRequest, matched_id};
use super::group::reason_of_open;
use super::head::{ReportedSwitches, TraceHead, told_length};
use super::names::Names;
use super::spans::{ReadSpans, SpansByThread};
use super::stack::Symbols;
use super::workers::WorkerTimes;

/// A trace opened with one filter.
#[derive(Debug)]
pub struct FilteredTrace<'t> {
    trace: &'t Trace,
    head: TraceHead,
    names: Rc<Names>,
    filter: Filter,
    selection: Rc<Selection>,
    coverage: Coverage,
}

/// Called for each row, with the index of its task and what of it counts.
pub type RowVisitor<'a> = &'a mut dyn FnMut(&Switch, usize, CountedParts);

/// Rows that follow each other in time.
#[derive(Clone, Copy, Debug)]
pub struct CountedRows<'p> {
    rows: &'p [Switch],
    /// For each row, the index of its task, and what of it counts.
    parts: &'p [(usize, CountedParts)],
}

impl<'p> CountedRows<'p> {
    /// Each row, with the index of its task and what of it counts.
    pub fn iter(self) -> impl Iterator<Item = (&'p Switch, usize, CountedParts)> {
        let parts = self.parts.iter();
        let rows = self.rows.iter().zip(parts);
        rows.map(|(row, (task, counted))| (row, *task, *counted))
    }
}

/// Called for some thousand rows at a time, one of several for one scan. What counts by large tables
/// goes over such a piece in a loop of its own: then the processor fetches the entries of several
/// rows at once.
pub type PieceVisitor<'a> = Box<dyn FnMut(CountedRows<'_>) + Send + 'a>;

impl<'t> FilteredTrace<'t> {
    /// Reads everything but the rows.
    ///
    /// # Errors
    ///
    /// [`super::EmptySpan`] if no switch can lie in the span that was asked for, or the trace
    /// cannot be read.
    pub fn open(trace: &'t Trace, filter: &Filter) -> Result<Self> {
        let meta = trace.meta();
        filter.check_span(told_length(meta))?;
        let mut tasks = trace.tasks().context("reading the tasks of the trace")?;
        tasks.sort_by_key(|event| event.ts);
        let commands = trace
            .commands()
            .context("reading the command lines of the trace")?;
        let names = Names::with_commands(&tasks, &commands);
        let start = Timestamp::from_ns(meta.start_ns);
        let request = filter.only_span.as_deref();
        let request = request.map(|id| FollowedRequest::find(trace, &names, id));
        let selection = Selection::new(filter, &names, start).following(request.transpose()?);
        Ok(Self {
            trace,
            head: TraceHead {
                path: trace.path().to_owned(),
                meta: meta.clone(),
                rows: trace.row_count(),
                filter: filter.to_words(),
                min_wait: filter.min_wait.clone(),
                incomplete: incomplete(trace),
                gaps: trace.gaps().context("reading the gaps of the trace")?,
                duration: Nanos::ZERO,
            },
            names: Rc::new(names),
            filter: filter.clone(),
            selection: Rc::new(selection),
            coverage: coverage(meta, tasks.iter().all(|event| event.in_scope)),
        })
    }

    /// Returns what is known of the trace apart from its rows.
    pub const fn head(&self) -> &TraceHead {
        &self.head
    }

    /// The filter.
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The names of the tasks.
    pub fn names(&self) -> Rc<Names> {
        Rc::clone(&self.names)
    }

    /// Returns the selection of the rows that count.
    pub fn selection(&self) -> Rc<Selection> {
        Rc::clone(&self.selection)
    }

    /// Returns when the part of the recording began that is read; `None` if a file does not tell.
    pub fn began(&self) -> Option<Timestamp> {
        let start = self.head().began()?;
        Some(self.selection.from().max(start))
    }

    /// Returns which tasks' runs are in the trace.
    pub const fn coverage(&self) -> Coverage {
        self.coverage
    }

    /// The architecture, if the names of its system calls are known.
    pub fn arch(&self) -> Option<Arch> {
        Arch::from_machine(&self.head.meta.host.machine)
    }

    /// Hands out the rows of the kernel's level in the span that was asked for.
    pub fn scan(&mut self, columns: Columns, each: RowVisitor<'_>) -> Result<ReportedSwitches> {
        let (from, to) = (self.selection.from(), self.selection.to());
        let span = self.selection.is_of_a_span().then_some((from, to));
        self.scan_span(columns, span, &[Level::Os], &mut of_rows(each), Vec::new())
    }

    /// As [`Self::scan`], but with the rows of user-mode schedulers, too.
    pub fn scan_levels(
        &mut self,
        columns: Columns,
        each: RowVisitor<'_>,
    ) -> Result<ReportedSwitches> {
        let (from, to) = (self.selection.from(), self.selection.to());
        let span = self.selection.is_of_a_span().then_some((from, to));
        let each = &mut of_rows(each);
        self.scan_span(columns | Columns::LEVEL, span, Level::ALL, each, Vec::new())
    }

    /// As [`Self::scan`], but from the first row of the trace: rows before the span do not count,
    /// but what follows may depend on them.
    pub fn scan_from_start(
        &mut self,
        columns: Columns,
        each: RowVisitor<'_>,
    ) -> Result<ReportedSwitches> {
        self.scan_from_start_with(columns, &mut of_rows(each), Vec::new())
    }

    /// As [`Self::scan_from_start`], for several visitors: each gets every row, in order of time.
    /// `first` is called on this thread, each of `further` on a thread of its own.
    pub fn scan_from_start_with(
        &mut self,
        columns: Columns,
        first: &mut dyn FnMut(CountedRows<'_>),
        further: Vec<PieceVisitor<'_>>,
    ) -> Result<ReportedSwitches> {
        let to = self.selection.to();
        let is_cut = to < Timestamp::from_ns(u64::MAX);
        let span = is_cut.then_some((Timestamp::default(), to));
        let ts = if self.selection.is_of_a_span() {
            Columns::TS
        } else {
            Columns::NONE
        };
        self.scan_span(columns | ts, span, &[Level::Os], first, further)
    }

    fn scan_span(
        &mut self,
        columns: Columns,
        span: Option<(Timestamp, Timestamp)>,
        levels: &[Level],
        first: &mut dyn FnMut(CountedRows<'_>),
        further: Vec<PieceVisitor<'_>>,
    ) -> Result<ReportedSwitches> {
        let (names, selection, asker) = (&*self.names, &*self.selection, &self.filter.asker);
        let mut rows = ReportedSwitches::default();
        let mut last = Timestamp::default();
        let ends_untold = told_length(&self.head.meta).is_none();
        let ts = if ends_untold {
            Columns::TS
        } else {
            Columns::NONE
        };
        let columns = columns | Columns::TASK | ts | selection.columns();
        let mut parts = Vec::new();
        let mut take = |piece: &[Switch]| {
            if asker.is_gone() {
                return ControlFlow::Break(());
            }
            let counted = counted_rows(piece, names, selection, &mut parts);
            for (row, task, counted) in counted.iter() {
                if row.level == Level::Os {
                    rows.counted += u64::from(counted.switch);
                    rows.out_of_scope += u64::from(!selection.is_in_scope(task));
                }
                last = row.ts;
            }
            first(counted);
            ControlFlow::Continue(())
        };
        let further = further.into_iter().map(|mut visit| -> PieceReader<'_> {
            let mut parts = Vec::new();
            Box::new(move |piece| visit(counted_rows(piece, names, selection, &mut parts)))
        });
        let scanned = self
            .trace
            .scan_together(levels, columns, span, &mut take, further.collect());
        scanned.context("reading the switches of the trace")?;
        if asker.is_gone() {
            return Err(GivenUp.into());
        }
        if ends_untold {
            let start = Timestamp::from_ns(self.head.meta.start_ns);
            let length = self.last_moment(last)?.since(start);
            self.head.duration = length.unwrap_or(Nanos::ZERO);
            self.filter.check_span(Some(self.head.duration))?;
        }
        Ok(rows)
    }

    /// The moment of the last row. After a scan of a span, which saw rows up to `seen`, the rest of
    /// the trace is read for it.
    fn last_moment(&self, seen: Timestamp) -> Result<Timestamp> {
        let mut last = seen;
        if self.selection.is_of_a_span() {
            let rest = (seen, Timestamp::from_ns(u64::MAX));
            let mut take = |row: &Switch| last = row.ts;
            let scanned = self.trace.scan(Columns::TS, Some(rest), &mut take);
            scanned.context("reading the switches of the trace")?;
        }
        Ok(last)
    }

    /// Waits that count and were open when the trace ended.
    pub fn opens(&self) -> Result<Vec<Open>> {
        let mut opens = self.trace.opens().context("reading the open waits")?;
        opens.retain(|open| {
            let task = self.names.index(open.task);
            let (since, lasted) = (open.since, Some(open.lasted));
            let counts = |reason| self.selection.counts_open(reason, task, since, lasted);
            reason_of_open(open).is_some_and(counts)
        });
        Ok(opens)
    }

    /// The runs that were open when the trace ended, of whatever tasks; none for a span that ends before.
    pub fn open_runs(&self) -> Result<Vec<Open>> {
        let mut opens = self.trace.opens().context("reading the open runs")?;
        let is_to_the_end = self.selection.to() == Timestamp::from_ns(u64::MAX);
        opens.retain(|open| is_to_the_end && open.reason.is_none() && !open.task.is_idle());
        Ok(opens)
    }

    /// The spans of the threads that were asked for, in the span of time.
    pub fn spans(&self) -> Result<SpansByThread> {
        let mut spans = ReadSpans::new(&self.names, |task| self.selection.takes_task(task));
        let (from, to) = (self.selection.from(), self.selection.to());
        let read = self.trace.each_span(&mut |row| {
            let id = self.filter.only_span.as_deref();
            let is_asked = id.is_none_or(|id| matched_id(row, id).is_some());
            if is_asked && from <= row.begin && row.end < to {
                spans.add(row);
            }
        });
        read.context("reading the spans")?;
        Ok(spans.by_thread())
    }

    /// What looks saw of goroutines, in the span and of the processes that were asked for.
    pub fn worker_times(&self) -> Result<WorkerTimes> {
        let tasks = 0..self.names.thread_count();
        let taken = tasks.filter(|task| self.selection.takes_task(*task));
        let taken: FxHashSet<_> = taken.map(|task| self.names.process_of(task).pid).collect();
        let (from, to) = (self.selection.from(), self.selection.to());
        let mut times = WorkerTimes::default();
        let read = self.trace.each_worker(&mut |row| {
            if from <= row.ts && row.ts < to && taken.contains(&Some(row.pid)) {
                times.add(row);
            }
        });
        read.context("reading the goroutines")?;
        Ok(times)
    }

    /// Paths of the cgroups, by id.
    pub fn cgroups(&self) -> Result<FxHashMap<CgroupId, String>> {
        let rows = self.trace.cgroups().context("reading the cgroups")?;
        Ok(rows.into_iter().map(|row| (row.cgroup, row.path)).collect())
    }

    /// The functions of the recorded stacks.
    ///
    /// # Errors
    /// When the stacks or their frames cannot be read.
    pub fn symbols(&self) -> Result<Symbols> {
        let stacks = self.trace.stacks().context("reading the stacks")?;
        let frames = self.trace.frames().context("reading the frames")?;
        Ok(Symbols::new(stacks, &frames).recorded_by(self.head.meta.stacks))
    }
}

/// Returns what of each row counts; the memory of `parts` is used for that.
pub fn counted_rows<'p>(
    rows: &'p [Switch],
    names: &Names,
    selection: &Selection,
    parts: &'p mut Vec<(usize, CountedParts)>,
) -> CountedRows<'p> {
    parts.clear();
    parts.extend(rows.iter().map(|row| {
        let task = names.index(row.task);
        (task, selection.counts(row, task))
    }));
    CountedRows { rows, parts }
}

/// A visitor that is called for each row.
fn of_rows(each: RowVisitor<'_>) -> impl FnMut(CountedRows<'_>) {
    move |rows| {
        for (row, task, counted) in rows.iter() {
            each(row, task, counted);
        }
    }
}

/// Tells whether the runs of all tasks have rows, which needs that nothing was filtered away and everything is in
/// scope. Of a recording that did not end as it was asked to, this is not known. Perf events tell of the recorded
/// processes only, and so it is not known when a CPU was idle.
pub fn coverage(meta: &Meta, is_all_in_scope: bool) -> Coverage {
    let is_all =
        meta.state == RecordingState::Finished && meta.counts.filtered == 0 && is_all_in_scope;
    match (is_all, meta.backend) {
        (_, RecordingBackend::Perf) => Coverage::OwnTasks,
        (true, RecordingBackend::Ebpf) => Coverage::EveryTask,
        (false, RecordingBackend::Ebpf) => Coverage::RecordedTasks,
    }
}

/// Says why not all of a trace can be read; `None` for a finished one.
fn incomplete(trace: &Trace) -> Option<String> {
    match trace.completeness() {
        Completeness::Finished => None,
        Completeness::Unfinished {
            why,
            unreadable_bytes: 0,
        } => Some(format!("unfinished: {why}")),
        Completeness::Unfinished {
            why,
            unreadable_bytes,
        } => {
            let bytes = swtch_output::text::counted(unreadable_bytes, "byte");
            Some(format!("unfinished: {why} ({bytes} left out)"))
        }
        other => Some(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{head, row};
    use crate::report::{EmptySpan, Moment};
    use swtch_core::Reason;
    use swtch_store::Writer;

    /// A trace of a recorder that was killed: rows at 1, 2 and 3 ms, and no end.
    fn cut() -> (Trace, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let mut meta = head().meta;
        (meta.state, meta.end_ns) = (RecordingState::Recording, 0);
        let mut writer = Writer::create(&path, &meta).unwrap();
        for ms in 1..=3 {
            let ts = Timestamp::from_ns(meta.start_ns + ms * 1_000_000);
            let row = row(1, Reason::Pipe);
            writer.push_switch(&Switch { ts, ..row }).unwrap();
        }
        writer.flush().unwrap();
        (Trace::open(&path).unwrap(), dir)
    }

    /// It ends with its last row, whichever span is asked for, and a span after that row is
    /// refused.
    #[test]
    fn a_cut_recording_is_as_long_as_its_rows_reach() {
        let (trace, _dir) = cut();
        let scanned = |since: Option<&str>, until: Option<&str>| {
            let moment = |words: &str| words.parse::<Moment>().unwrap();
            let filter = Filter {
                since: since.map(moment),
                until: until.map(moment),
                ..Filter::default()
            };
            let mut filtered = FilteredTrace::open(&trace, &filter).unwrap();
            let rows = filtered.scan(Columns::NONE, &mut |_, _, _| ())?;
            Ok::<_, anyhow::Error>((rows.counted, filtered.head().duration()))
        };
        let length = Nanos::from_ns(3_000_000);
        for (since, until, rows) in [
            (None, None, 3),
            (None, Some("1500us"), 1),
            (Some("1500us"), None, 2),
            (Some("1500us"), Some("1600us"), 0),
            (Some("3ms"), None, 1),
        ] {
            assert_eq!(
                scanned(since, until).unwrap(),
                (rows, length),
                "{since:?} {until:?}"
            );
        }
        let refusal = scanned(Some("4ms"), None).unwrap_err();
        assert!(refusal.is::<EmptySpan>(), "{refusal}");
    }

    /// The asker leaves while the first rows are read: the others are not, and there is no answer.
    #[test]
    fn an_answer_that_nobody_waits_for_is_not_made() {
        let (trace, _dir) = cut();
        let filter = Filter::default();
        let mut filtered = FilteredTrace::open(&trace, &filter).unwrap();
        let mut seen = 0;
        let refusal = filtered.scan(Columns::NONE, &mut |_, _, _| {
            seen += 1;
            filter.asker.leave();
        });
        assert!(refusal.unwrap_err().is::<GivenUp>());
        assert_eq!(seen, 3, "what was read already is one piece");
        let mut filtered = FilteredTrace::open(&trace, &filter).unwrap();
        let refusal = filtered.scan(Columns::NONE, &mut |_, _, _| seen += 1);
        assert!(refusal.unwrap_err().is::<GivenUp>());
        assert_eq!(seen, 3);
    }

    /// If runs of other tasks have no row, a CPU that looks idle may have run them.
    #[test]
    fn only_a_finished_recording_of_everybody_holds_every_run() {
        let mut meta = head().meta;
        meta.counts.filtered = 0;
        assert_eq!(coverage(&meta, true), Coverage::EveryTask);
        assert_eq!(coverage(&meta, false), Coverage::RecordedTasks);
        meta.counts.filtered = 2;
        assert_eq!(coverage(&meta, true), Coverage::RecordedTasks);
        (meta.counts.filtered, meta.state) = (0, RecordingState::Recording);
        assert_eq!(coverage(&meta, true), Coverage::RecordedTasks);
    }
}

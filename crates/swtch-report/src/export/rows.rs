//! The rows that an export takes, and the names of their tasks. The choice is that of a report with
//! the same filter, so that the sums are the same.

use std::rc::Rc;

use anyhow::{Context as _, Result};
use rustc_hash::FxHashMap;
use swtch_core::{
    Arch, CgroupId, Coverage, Frame, Gap, Level, StackKind, Switch, TaskKey, Timestamp,
};
use swtch_store::{Columns, Meta, Trace, WaitTypeRow};

use crate::report::{Filter, FilteredTrace, Names, Selection, SpansByThread, Symbols};

/// A trace that is read for an export, with a filter.
pub struct ExportRows<'t> {
    trace: &'t Trace,
    filtered: FilteredTrace<'t>,
    /// As the filter, but for all reasons: when a task runs and waits does not depend on the
    /// reason.
    of_all_reasons: Selection,
    is_of_all_tasks: bool,
}

/// Numbers of frames by stack, and the frames.
pub struct ExportedStacks {
    /// Numbers of frames, the innermost first.
    pub stacks: FxHashMap<(StackKind, u32), Vec<u32>>,
    /// Each frame by its number.
    pub frames: FxHashMap<u32, Frame>,
}

/// The parts of a row that the filter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedParts {
    /// The switch-out and the run that it ended: what a report counts as a switch.
    pub switch: bool,
    /// The wait before the run: what a report counts as a wait.
    pub wait: bool,
    /// True if the row is one of the tasks and of the time that were asked for, whatever its reason. Other rows are of
    /// tasks that the capture was not asked for, which had the CPU meanwhile.
    pub asked: bool,
}

pub type ExportRowVisitor<'a> = &'a mut dyn FnMut(&Switch, ExportedParts) -> Result<()>;

impl<'t> ExportRows<'t> {
    /// The rows that `filter` takes.
    pub fn open(trace: &'t Trace, filter: &Filter) -> Result<Self> {
        let filtered = FilteredTrace::open(trace, filter)?;
        let start = Timestamp::from_ns(trace.meta().start_ns);
        let of_all_reasons = Filter {
            reasons: Vec::new(),
            ..filter.clone()
        };
        Ok(Self {
            trace,
            of_all_reasons: Selection::new(&of_all_reasons, &filtered.names(), start),
            filtered,
            is_of_all_tasks: filter.pids.is_empty() && filter.comms.is_empty(),
        })
    }

    /// Hands out the rows of both levels, in order of time, until `each` fails.
    pub fn scan(&mut self, each: ExportRowVisitor<'_>) -> Result<()> {
        self.scan_columns(Columns::all(), each)
    }

    /// As [`Self::scan`], with these columns. Only `asked` of [`ExportedParts`] is reliable then.
    pub fn scan_columns(&mut self, columns: Columns, each: ExportRowVisitor<'_>) -> Result<()> {
        let (all, is_of_all_tasks) = (&self.of_all_reasons, self.is_of_all_tasks);
        let in_time = |row: &Switch| all.from() <= row.ts && row.ts < all.to();
        let mut outcome = Ok(());
        self.filtered
            .scan_levels(columns, &mut |row, task, counted| {
                let is_other = is_of_all_tasks && !all.is_in_scope(task) && in_time(row);
                let taken = ExportedParts {
                    switch: counted.switch,
                    wait: counted.wait,
                    asked: all.counts(row, task).switch,
                };
                if outcome.is_ok() && (taken.asked || is_other) {
                    outcome = each(row, taken);
                }
            })?;
        outcome
    }

    pub fn names(&self) -> Rc<Names> {
        self.filtered.names()
    }

    /// Prints on stderr what of the recording is not in the rows, because no format has a place for
    /// it that its readers would show. To be called after all rows were scanned.
    pub fn tell_missing(&self) {
        self.filtered.head().tell_missing();
    }

    /// Facts of the trace: host, scope, counts.
    pub const fn meta(&self) -> &Meta {
        &self.filtered.head().meta
    }

    /// The architecture, if the names of its system calls are known.
    pub fn arch(&self) -> Option<Arch> {
        self.filtered.arch()
    }

    /// Returns true if every run on the machine is among the rows.
    pub fn are_all(&self) -> bool {
        self.is_of_all_tasks && self.filtered.coverage() == Coverage::EveryTask
    }

    /// Returns true if rows of this task are taken.
    pub fn takes_task(&self, task: TaskKey) -> bool {
        let names = self.filtered.names();
        self.of_all_reasons.takes_task(names.index(task))
    }

    /// Returns true if a wait that began with this row, and is open at the end, counts.
    pub fn takes_open(&self, left: &Switch) -> bool {
        let task = self.filtered.names().index(left.task);
        let selection = self.filtered.selection();
        let end = Timestamp::from_ns(self.meta().end_ns);
        selection.counts_open(left.rule.reason, task, left.ts, end.since(left.ts))
    }

    /// Gaps in the recording, at both levels.
    pub fn gaps(&self) -> Result<Vec<Gap>> {
        let mut gaps = Vec::new();
        for level in Level::ALL {
            let lost = self.trace.gaps_of(*level);
            gaps.extend(lost.context("reading the gaps of the trace")?);
        }
        Ok(gaps)
    }

    /// The spans of the threads and the time that were asked for.
    pub fn spans(&self) -> Result<SpansByThread> {
        self.filtered.spans()
    }

    /// Names of the wait types of user-mode schedulers.
    pub fn wait_types(&self) -> Result<Vec<WaitTypeRow>> {
        self.trace.wait_types().context("reading the wait types")
    }

    /// Paths of the cgroups, by id.
    pub fn cgroups(&self) -> Result<FxHashMap<CgroupId, String>> {
        self.filtered.cgroups()
    }

    /// The stacks and their frames.
    pub fn stacks(&self) -> Result<ExportedStacks> {
        let stacks = self.trace.stacks().context("reading the stacks")?;
        let frames = self.trace.frames().context("reading the frames")?;
        let stacks = stacks
            .into_iter()
            .map(|row| ((row.kind, row.id), row.frames));
        Ok(ExportedStacks {
            stacks: stacks.collect(),
            frames: frames.into_iter().map(|frame| (frame.id, frame)).collect(),
        })
    }

    pub fn symbols(&self) -> Result<Symbols> {
        self.filtered.symbols()
    }
}

//! From events to the rows of a trace: the part of the way that a recording and an import share.
//!
//! ```text
//!  events, in order of time ─▶ timeline ─rows─▶ writer
//!                                          └─▶ what the trace must still say of them: the paths of
//!                                              their cgroups
//! ```
//!
//! The rows of other tables (gaps, command lines, paths, stacks) come from elsewhere, and go to the
//! [`Writer`] directly. What this does *not* do: put events in order, or look anything up.

use std::collections::HashSet;

use swtch_core::timeline::TraceRow;
use swtch_core::{
    CgroupId, Event, Level, Switch, SyscallTable, TaskAtEnd, TaskEvent, TaskKey, Timeline,
    Timestamp,
};

use crate::error::Error;
use crate::meta::Meta;
use crate::writer::Writer;

/// Turns events into rows, and writes them.
#[derive(Debug)]
pub struct EventWriter {
    timeline: Timeline,
    rows: RowWriter,
}

/// Writes rows, and notes what the trace must still say of them.
#[derive(Debug)]
struct RowWriter {
    writer: Writer,
    failure: Option<Error>,
    os_rows: u64,
    user_rows: u64,
    tasks: TraceTasks,
    cgroups: TraceCgroups,
}

/// The facts known of each task, by its key.
///
/// Switches of tasks that were not asked for are recorded while a task in scope waits for their
/// CPU; reports leave them out of every count. If such a task comes into scope later, its rows are
/// counted after all, because a report counts a task as a whole.
#[derive(Debug, Default)]
struct TraceTasks {
    known: Vec<TraceTask>,
    rows_of_others: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct TraceTask {
    is_in_scope: bool,
    /// Number of rows while it was not in scope.
    rows: u64,
}

/// The cgroups that rows have named.
#[derive(Debug, Default)]
struct TraceCgroups {
    known: HashSet<CgroupId>,
    /// The cgroups that have come since the caller asked last.
    fresh: HashSet<CgroupId>,
    /// The cgroup of the row before: most rows need no look into the set.
    last: Option<CgroupId>,
}

impl EventWriter {
    /// Writes to `writer`, and resolves numbers of system calls by `calls`.
    pub fn new(writer: Writer, calls: SyscallTable) -> Self {
        Self {
            timeline: Timeline::new(calls),
            rows: RowWriter {
                writer,
                failure: None,
                os_rows: 0,
                user_rows: 0,
                tasks: TraceTasks::default(),
                cgroups: TraceCgroups::default(),
            },
        }
    }

    /// Takes the next event. After a failure ([`Self::check`]) further events are still taken, so
    /// that they are counted.
    pub fn push(&mut self, event: Event) {
        let rows = &mut self.rows;
        self.timeline.push(event, |row| rows.add(&row));
    }

    /// Checks whether all rows could be written. A failure is reported once.
    ///
    /// # Errors
    ///
    /// As [`Writer::flush`], the first error since the last call.
    pub fn check(&mut self) -> Result<(), Error> {
        self.rows.failure.take().map_or(Ok(()), Err)
    }

    /// Adds the waits and runs that are open at `end`, after the last event; `known` is of tasks that ran
    /// or could run then.
    ///
    /// # Errors
    ///
    /// As [`Writer::flush`].
    pub fn end(&mut self, end: Timestamp, known: &[TaskAtEnd]) -> Result<(), Error> {
        for open in self.timeline.open_at(end, known) {
            self.rows.writer.push_open(&open)?;
        }
        Ok(())
    }

    /// Completes the facts about the trace, once all rows were flushed: sets the counts of rows, and
    /// adds to `user.unnamed`, so it is called once.
    pub fn complete(&self, meta: &mut Meta) {
        let writer = &self.rows.writer;
        let counts = &mut meta.counts;
        counts.stored = writer.switches_written();
        let not_written = writer.records_not_written();
        counts.storage_failed =
            self.rows.os_rows - writer.switches_written() + not_written.switches;
        counts.unnamed = self.timeline.unnamed();
        counts.uncaught = self.timeline.uncaught();
        if let Some(user) = &mut meta.user {
            user.stored = writer.user_switches_written();
            user.storage_failed =
                self.rows.user_rows - writer.user_switches_written() + not_written.user_events;
            user.unnamed += self.timeline.unnamed_user();
        }
        meta.overhead.bytes = writer.bytes_written();
    }

    /// Ends the copy of another trace, as [`Writer::finish_copy`] does.
    ///
    /// # Errors
    ///
    /// As [`Writer::finish_copy`].
    pub fn finish_copy(self, meta: &Meta) -> Result<(), Error> {
        self.rows.writer.finish_copy(meta)
    }

    /// Turns the streams into a finished trace, as [`Writer::finish`] does.
    ///
    /// # Errors
    ///
    /// As [`Writer::finish`].
    pub fn finish(self, meta: &Meta, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        self.rows.writer.finish(meta, progress)
    }

    /// Switches of the kernel, of tasks that were asked for.
    pub const fn in_scope(&self) -> u64 {
        self.rows.os_rows - self.rows.tasks.rows_of_others
    }

    /// The cgroups that rows have named for the first time since the last call.
    pub fn take_new_cgroups(&mut self) -> HashSet<CgroupId> {
        std::mem::take(&mut self.rows.cgroups.fresh)
    }

    /// The writer, for what is known of the trace on disk.
    pub const fn writer(&self) -> &Writer {
        &self.rows.writer
    }

    /// The writer, for rows that come from elsewhere than from events.
    pub const fn writer_mut(&mut self) -> &mut Writer {
        &mut self.rows.writer
    }

    /// The writer alone: no further event is taken.
    pub fn into_writer(self) -> Writer {
        self.rows.writer
    }
}

impl RowWriter {
    fn add(&mut self, row: &TraceRow) {
        let written = match row {
            TraceRow::Switch(switch) => self.add_switch(switch),
            TraceRow::Task(task) => self.add_task(task),
        };
        if let Err(error) = written {
            self.failure.get_or_insert(error);
        }
    }

    fn add_switch(&mut self, switch: &Switch) -> Result<(), Error> {
        self.cgroups.add(switch.cgroup);
        match switch.level {
            Level::Os => {
                self.os_rows += 1;
                self.tasks.add_row(switch.task);
            }
            Level::User => self.user_rows += 1,
        }
        self.writer.push_switch(switch)
    }

    fn add_task(&mut self, task: &TaskEvent) -> Result<(), Error> {
        self.cgroups.add(task.cgroup);
        self.tasks.add(task);
        self.writer.push_task(task)
    }
}

impl TraceTasks {
    fn add(&mut self, event: &TaskEvent) {
        let task = self.known(event.task);
        if event.in_scope && !task.is_in_scope {
            task.is_in_scope = true;
            let rows = task.rows;
            self.rows_of_others -= rows;
        }
    }

    fn add_row(&mut self, task: TaskKey) {
        let task = self.known(task);
        if !task.is_in_scope {
            task.rows += 1;
            self.rows_of_others += 1;
        }
    }

    fn known(&mut self, task: TaskKey) -> &mut TraceTask {
        let index = index(task);
        if index >= self.known.len() {
            self.known.resize(index + 1, TraceTask::default());
        }
        &mut self.known[index]
    }
}

impl TraceCgroups {
    fn add(&mut self, cgroup: CgroupId) {
        if self.last.replace(cgroup) != Some(cgroup) && self.known.insert(cgroup) {
            self.fresh.insert(cgroup);
        }
    }
}

fn index(task: TaskKey) -> usize {
    usize::try_from(task.get()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use swtch_core::{
        Arch, Class, CpuId, Evidence, Nanos, Pid, SwitchEvent, TaskEventKind, Tid, WaitEvidence,
    };

    use super::*;

    fn seen(key: u32, in_scope: bool) -> TaskEvent {
        TaskEvent {
            ts: Timestamp::from_ns(1),
            kind: TaskEventKind::Seen,
            task: TaskKey::new(key),
            tid: Tid::new(10 * key),
            pid: Pid::new(10 * key),
            parent_pid: Pid::new(1),
            started_ns: 0,
            comm: b"a".to_vec(),
            cgroup: CgroupId::new(1),
            class: Class::Fair,
            prio: 120,
            is_kthread: false,
            in_scope,
            voluntary_switches: 0,
            involuntary_switches: 0,
        }
    }

    /// The last line of a recording must agree with the first lines of its reports.
    #[test]
    fn rows_count_for_a_task_that_comes_into_scope_later_too() {
        let key = TaskKey::new;
        let mut tasks = TraceTasks::default();
        tasks.add(&seen(1, true));
        tasks.add_row(key(1));
        tasks.add(&seen(2, false));
        tasks.add_row(key(2));
        tasks.add_row(key(2));
        tasks.add_row(key(3));
        assert_eq!(tasks.rows_of_others, 3);
        tasks.add(&seen(2, true));
        tasks.add(&seen(2, true));
        tasks.add_row(key(2));
        assert_eq!(tasks.rows_of_others, 1);
    }

    /// A path is looked up once, while the cgroup is likely to exist.
    #[test]
    fn a_cgroup_is_new_once() {
        let mut cgroups = TraceCgroups::default();
        for id in [4, 4, 7, 4] {
            cgroups.add(CgroupId::new(id));
        }
        let fresh = std::mem::take(&mut cgroups.fresh);
        assert_eq!(fresh, HashSet::from([4, 7].map(CgroupId::new)));
        cgroups.add(CgroupId::new(7));
        assert!(cgroups.fresh.is_empty());
    }

    fn left(key: u32) -> Event {
        Event::Switch(SwitchEvent {
            ts: Timestamp::from_ns(90),
            cpu: CpuId::new(0),
            task: Some(TaskKey::new(key)),
            next_task: Some(TaskKey::IDLE),
            run_start: Some(Timestamp::from_ns(50)),
            charged: None,
            irq: Nanos::ZERO,
            evidence: Evidence::RUNNABLE,
            cgroup: CgroupId::new(1),
            user_word: None,
            wait: WaitEvidence::default(),
            kernel_count: 1,
            in_scope: true,
        })
    }

    #[test]
    fn rows_are_counted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.swtch");
        let writer = Writer::create(&path, &Meta::default()).unwrap();
        let mut events = EventWriter::new(writer, SyscallTable::of(Arch::X86_64));
        events.push(Event::Task(seen(1, true)));
        events.push(Event::Task(seen(2, false)));
        events.push(left(1));
        events.push(left(2));
        events.check().unwrap();
        assert_eq!(events.in_scope(), 1);
        events.writer_mut().flush().unwrap();
        let mut meta = Meta::default();
        events.complete(&mut meta);
        assert_eq!((meta.counts.stored, meta.counts.storage_failed), (2, 0));
    }
}

//! The pipeline of a recording: drain the rings, merge, build the timeline, write. Each record
//! passes each stage once.

use rustc_hash::FxHashMap;
use rustc_hash::FxHashSet;
use swtch_capture::{Capture, CapturedStackKind, Drained, Stacks};
use swtch_core::merge::Merge;
use swtch_core::timeline::TraceRow;
use swtch_core::{
    Arch, CgroupId, Event, Level, Pid, Switch, SyscallTable, TaskEvent, TaskEventKind, TaskKey,
    Timeline, Timestamp,
};
use swtch_store::{Directory, Error, FrameRow, Meta, StackRow, UserCounts, Writer};

use super::commands::Commands;
use super::facts;
use super::user_level::{Finder, RingsRead, UserLevel};

/// All stages between the rings and the disk.
pub struct Pipeline {
    merge: Merge,
    user_level: UserLevel,
    commands: Commands,
    rest: PipelineTotals,
    unreadable: u64,
}

/// The stages after the merge.
struct PipelineTotals {
    timeline: Timeline,
    writer: Writer,
    stacks: Option<StackKeeper>,
    cgroups: FxHashSet<CgroupId>,
    unnamed_cgroups: FxHashSet<CgroupId>,
    failure: Option<Error>,
    last_cgroup: Option<CgroupId>,
    taken: u64,
    user_taken: u64,
    scope: InScope,
}

/// Splits the kernel's switches by whether the task was asked for. Switches of other tasks are
/// recorded while a task in scope waits for their CPU; reports leave them out of every count.
#[derive(Debug, Default)]
struct InScope {
    tasks: FxHashSet<TaskKey>,
    /// Rows of each task that is not in scope. If the task comes into scope later, its rows are
    /// counted after all, because a report counts a task as a whole.
    of_others: FxHashMap<TaskKey, u64>,
    rows_of_others: u64,
}

/// Symbols of user stacks are looked up in the process, so the process of each task is kept.
struct StackKeeper {
    stacks: Stacks,
    pids: FxHashMap<TaskKey, Pid>,
    wanted: Vec<(CapturedStackKind, u32, Option<TaskKey>)>,
}

impl Pipeline {
    /// A new pipeline that ends in `writer`.
    pub fn new(arch: Arch, writer: Writer, user_level: UserLevel, with_stacks: bool) -> Self {
        let stacks = with_stacks.then(|| {
            let stacks = Stacks::new();
            stacks.read_kernel_symbols();
            StackKeeper {
                stacks,
                pids: FxHashMap::default(),
                wanted: Vec::new(),
            }
        });
        Self {
            merge: Merge::default(),
            user_level,
            commands: Commands::default(),
            rest: PipelineTotals {
                timeline: Timeline::new(SyscallTable::of(arch)),
                writer,
                stacks,
                cgroups: FxHashSet::default(),
                unnamed_cgroups: FxHashSet::default(),
                failure: None,
                last_cgroup: None,
                taken: 0,
                user_taken: 0,
                scope: InScope::default(),
            },
            unreadable: 0,
        }
    }

    /// From now on command lines are read, too.
    pub fn read_commands(&mut self, commands: Commands) {
        self.commands = commands;
    }

    /// Empties the rings once; returns how many records the fullest of them held.
    pub fn round(&mut self, capture: &mut Capture) -> Result<u64, Error> {
        let drained = self.drain(capture);
        // Read after the kernel's rings, so that everything before their horizon is in these as
        // well.
        let brought = self.drain_user_level();
        self.watch_user_level(capture);
        let rest = &mut self.rest;
        let horizon = drained.horizon.min(brought.horizon);
        self.merge.take_until(horizon, |event| rest.take(event));
        self.rest.look_stacks_up(capture);
        let most = drained.most_in_a_ring.max(brought.most_in_a_ring);
        self.rest.failure.take().map_or(Ok(most), Err)
    }

    /// Writes pending rows to disk, with the gaps since the last call.
    pub fn flush(&mut self, capture: &Capture) -> Result<(), Error> {
        for command in self.commands.take() {
            self.rest.writer.push_command(&command)?;
        }
        for gap in capture.take_gaps() {
            self.rest.writer.push_gap(&gap)?;
        }
        for gap in self.user_level.take_gaps() {
            self.rest.writer.push_gap(&gap)?;
        }
        for wait_type in self.user_level.take_wait_types() {
            self.rest.writer.push_wait_type(&wait_type)?;
        }
        self.rest.name_cgroups()?;
        self.rest.write_stacks()?;
        self.rest.writer.flush()?;
        self.rest.writer.check_that_it_is_there()
    }

    /// Takes the records that are left after the probes were detached, and closes open waits.
    ///
    /// # Errors
    /// When the disk is full, now or since an earlier call; the records that are left are counted
    /// then.
    pub fn end(&mut self, capture: &mut Capture, end: Timestamp) -> Result<(), Error> {
        while self.drain(capture).switches > 0 {}
        self.drain_user_level();
        let rest = &mut self.rest;
        self.merge.take_all(|event| rest.take(event));
        self.rest.look_stacks_up(capture);
        self.rest.failure.take().map_or(Ok(()), Err)?;
        for open in self.rest.timeline.open_waits(end) {
            self.rest.writer.push_open(&open)?;
        }
        for command in self.commands.end() {
            self.rest.writer.push_command(&command)?;
        }
        self.flush(capture)?;
        self.rest.write_frames()
    }

    /// Turns the streams into a finished trace.
    pub fn finish(self, meta: &Meta, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        self.rest.writer.finish(meta, progress)
    }

    /// The directory of the trace.
    pub const fn directory(&self) -> &Directory {
        self.rest.writer.directory()
    }

    /// Gives the trace to another user.
    pub fn give_to(&self, user: u32, group: u32) -> Result<(), Error> {
        self.rest.writer.give_to(user, group)
    }

    /// Bytes on disk so far.
    pub fn bytes_written(&self) -> u64 {
        self.rest.writer.bytes_written()
    }

    /// Removes the trace: nothing was recorded.
    pub fn discard(self) -> Result<(), Error> {
        self.rest.writer.discard()
    }

    /// Counts of the switches of user-mode schedulers; `None` if there was no such scheduler.
    pub fn user_counts(&self) -> Option<UserCounts> {
        let counts = self.user_level.counts()?;
        let stored = self.rest.writer.user_switches_written();
        Some(UserCounts {
            stored,
            unnamed: counts.unnamed + self.rest.timeline.unnamed_user(),
            storage_failed: self.rest.user_taken - stored,
            ..counts
        })
    }

    /// The process that looks for user-mode schedulers.
    pub const fn finder(&self) -> &Finder {
        self.user_level.finder()
    }

    /// Switches of tasks that were asked for, as far as they have passed the timeline.
    pub const fn in_scope(&self) -> u64 {
        self.rest.taken - self.rest.scope.rows_of_others
    }

    /// Rows of the kernel's switches that are on disk.
    pub const fn stored(&self) -> u64 {
        self.rest.writer.switches_written()
    }

    /// Records that arrived after a later one had been merged.
    pub const fn late(&self) -> u64 {
        self.merge.late()
    }

    /// Rows of the kernel's switches that could not be written. Valid once [`Self::end`] has
    /// flushed.
    pub const fn rows_failed(&self) -> u64 {
        self.rest.taken - self.stored()
    }

    /// The timeline, for the counts that it keeps.
    pub const fn timeline(&self) -> &Timeline {
        &self.rest.timeline
    }

    /// Records of the rings that could not be decoded.
    pub const fn unreadable(&self) -> u64 {
        self.unreadable
    }

    fn drain(&mut self, capture: &mut Capture) -> Drained {
        let Self {
            merge,
            user_level,
            commands,
            ..
        } = self;
        let drained = capture.drain(|ring, event| {
            if let Event::Task(task) = &event {
                user_level.meet(task);
                commands.meet(task);
            }
            merge.push(ring, event);
        });
        self.unreadable = drained.unreadable;
        drained
    }

    fn drain_user_level(&mut self) -> RingsRead {
        let merge = &mut self.merge;
        self.user_level
            .drain(|stream, event| merge.push(stream, event))
    }

    /// If the kernel side has no room for more threads, their switches lack a worker; recording
    /// goes on.
    fn watch_user_level(&mut self, capture: &mut Capture) {
        if let Err(error) = self.user_level.look(capture) {
            self.user_level
                .refuse(Some(format!("{:#}", anyhow::Error::from(error))));
        }
    }
}

impl InScope {
    fn add_task(&mut self, task: TaskKey) {
        if self.tasks.insert(task) {
            self.rows_of_others -= self.of_others.remove(&task).unwrap_or(0);
        }
    }

    fn add_row(&mut self, task: TaskKey) {
        if !self.tasks.contains(&task) {
            *self.of_others.entry(task).or_default() += 1;
            self.rows_of_others += 1;
        }
    }
}

impl PipelineTotals {
    /// After a failure, further events are still taken, so that they are counted.
    fn take(&mut self, event: Event) {
        let result = match self.timeline.push(event) {
            Some(TraceRow::Switch(switch)) => self.take_switch(&switch),
            Some(TraceRow::Task(task)) => self.take_task(&task),
            None => Ok(()),
        };
        self.note(result);
        for row in self.timeline.take_placed() {
            let result = self.take_switch(&row);
            self.note(result);
        }
    }

    fn note(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    fn meet_cgroup(&mut self, cgroup: CgroupId) {
        if self.cgroups.insert(cgroup) {
            self.unnamed_cgroups.insert(cgroup);
        }
    }

    /// Looks up new cgroups at every flush, since a short-lived one is gone at the end.
    fn name_cgroups(&mut self) -> Result<(), Error> {
        if self.unnamed_cgroups.is_empty() {
            return Ok(());
        }
        for (cgroup, path) in facts::cgroup_paths(&self.unnamed_cgroups) {
            self.writer.push_cgroup(cgroup, &path)?;
        }
        self.unnamed_cgroups.clear();
        Ok(())
    }

    fn take_switch(&mut self, switch: &Switch) -> Result<(), Error> {
        if self.last_cgroup != Some(switch.cgroup) {
            self.last_cgroup = Some(switch.cgroup);
            self.meet_cgroup(switch.cgroup);
        }
        match switch.level {
            Level::Os => {
                self.taken += 1;
                self.scope.add_row(switch.task);
            }
            Level::User => self.user_taken += 1,
        }
        if let Some(keeper) = &mut self.stacks {
            let wait = &switch.wait;
            let (own, waker) = (Some(switch.task), wait.waker);
            let stacks = [
                (CapturedStackKind::Kernel, wait.kernel_stack, own),
                (CapturedStackKind::User, wait.user_stack, own),
                (CapturedStackKind::Kernel, wait.waker_kernel_stack, waker),
                (CapturedStackKind::User, wait.waker_user_stack, waker),
            ];
            let wanted = stacks.into_iter();
            let wanted = wanted.filter_map(|(kind, id, task)| Some((kind, id?, task)));
            keeper.wanted.extend(wanted);
        }
        self.writer.push_switch(switch)
    }

    fn take_task(&mut self, task: &TaskEvent) -> Result<(), Error> {
        self.meet_cgroup(task.cgroup);
        if task.in_scope {
            self.scope.add_task(task.task);
        }
        if let Some(keeper) = &mut self.stacks
            && task.kind != TaskEventKind::Exit
        {
            keeper.pids.insert(task.task, task.pid);
        }
        self.writer.push_task(task)
    }

    fn look_stacks_up(&mut self, capture: &Capture) {
        let Some(keeper) = &mut self.stacks else {
            return;
        };
        for (kind, id, task) in keeper.wanted.drain(..) {
            let pid = task.and_then(|task| keeper.pids.get(&task).copied());
            keeper.stacks.meet(capture, kind, id, pid);
        }
    }

    fn write_stacks(&mut self) -> Result<(), Error> {
        let Some(keeper) = &mut self.stacks else {
            return Ok(());
        };
        for stack in keeper.stacks.take_fresh() {
            let kind = match stack.kind {
                CapturedStackKind::Kernel => swtch_store::StackKind::Kernel,
                CapturedStackKind::User => swtch_store::StackKind::User,
            };
            let row = StackRow {
                stack: stack.id,
                kind,
                pid: stack.pid,
                frames: stack.frames,
            };
            self.writer.push_stack(&row)?;
        }
        Ok(())
    }

    fn write_frames(&mut self) -> Result<(), Error> {
        let Some(keeper) = self.stacks.take() else {
            return Ok(());
        };
        for frame in keeper.stacks.named_frames() {
            self.writer.push_frame(&FrameRow {
                frame: frame.id,
                address: frame.address,
                symbol: frame.symbol,
                module: frame.module,
                offset: frame.offset,
                file: frame.file,
                line: frame.line,
            })?;
        }
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last line of a recording must agree with the first lines of its reports.
    #[test]
    fn rows_count_for_a_task_that_comes_into_scope_later_too() {
        let key = TaskKey::new;
        let mut scope = InScope::default();
        scope.add_task(key(1));
        scope.add_row(key(1));
        scope.add_row(key(2));
        scope.add_row(key(2));
        scope.add_row(key(3));
        assert_eq!(scope.rows_of_others, 3);
        scope.add_task(key(2));
        scope.add_task(key(2));
        scope.add_row(key(2));
        assert_eq!(scope.rows_of_others, 1);
    }
}

//! The pipeline of a recording: drain the rings, merge, build the timeline, write. Each record
//! passes each stage once.

use swtch_capture::{Capture, Drained, Stacks};
use swtch_core::merge::Merge;
use swtch_core::{Arch, Event, SyscallTable, Timestamp};
use swtch_store::{Directory, Error, EventWriter, Meta, Writer};

use super::commands::Commands;
use super::facts;
use super::user_level::{Finder, UserLevel};

/// All stages between the rings and the disk.
pub struct Pipeline {
    merge: Merge,
    user_level: UserLevel,
    commands: Commands,
    /// `None` if no stacks are recorded.
    stacks: Option<Stacks>,
    events: EventWriter,
}

impl Pipeline {
    /// A new pipeline that ends in `writer`.
    pub fn new(arch: Arch, writer: Writer, user_level: UserLevel, with_stacks: bool) -> Self {
        let stacks = with_stacks.then(Stacks::new);
        if let Some(stacks) = &stacks {
            stacks.read_kernel_symbols();
        }
        Self {
            merge: Merge::default(),
            user_level,
            commands: Commands::default(),
            stacks,
            events: EventWriter::new(writer, SyscallTable::of(arch)),
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
        let drained = drained.and(self.drain_user_level());
        self.watch_user_level(capture);
        let events = &mut self.events;
        self.merge
            .take_until(drained.horizon, |event| events.push(event));
        self.look_stacks_up(capture);
        self.events.check()?;
        Ok(drained.most_in_a_ring)
    }

    /// Writes pending rows to disk, with the gaps since the last call.
    pub fn flush(&mut self, capture: &Capture) -> Result<(), Error> {
        let writer = self.events.writer_mut();
        for command in self.commands.take() {
            writer.push_command(&command)?;
        }
        for gap in capture.take_gaps().chain(self.user_level.take_gaps()) {
            writer.push_gap(&gap)?;
        }
        for wait_type in self.user_level.take_wait_types() {
            writer.push_wait_type(&wait_type)?;
        }
        // New cgroups are looked up at every flush, since a short-lived one is gone at the end.
        let new_cgroups = self.events.take_new_cgroups();
        let writer = self.events.writer_mut();
        if !new_cgroups.is_empty() {
            for (cgroup, path) in facts::cgroup_paths(&new_cgroups) {
                writer.push_cgroup(cgroup, &path)?;
            }
        }
        for stack in self.stacks.iter_mut().flat_map(Stacks::take_fresh) {
            writer.push_stack(&stack)?;
        }
        writer.flush()?;
        writer.check_that_it_is_there()
    }

    /// Takes the records that are left after the probes were detached, and closes open waits.
    ///
    /// # Errors
    /// When the disk is full, now or since an earlier call; the records that are left are counted
    /// then.
    pub fn end(&mut self, capture: &mut Capture, end: Timestamp) -> Result<(), Error> {
        while self.drain(capture).switches > 0 {}
        self.user_level.open_rings();
        self.drain_user_level();
        let events = &mut self.events;
        self.merge.take_all(|event| events.push(event));
        self.look_stacks_up(capture);
        self.events.check()?;
        self.events.end(end)?;
        for command in self.commands.end() {
            self.events.writer_mut().push_command(&command)?;
        }
        self.flush(capture)?;
        self.write_frames()
    }

    /// Adds what the stages after the rings know to the facts about the trace. Valid once
    /// [`Self::end`] has flushed.
    pub fn complete(&self, meta: &mut Meta) {
        meta.counts.late = self.merge.late();
        meta.user = self.user_level.counts();
        self.events.complete(meta);
    }

    /// Turns the streams into a finished trace.
    pub fn finish(self, meta: &Meta, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        self.events.finish(meta, progress)
    }

    /// The directory of the trace.
    pub const fn directory(&self) -> &Directory {
        self.events.writer().directory()
    }

    /// Gives the trace to another user.
    pub fn give_to(&self, user: u32, group: u32) -> Result<(), Error> {
        self.events.writer().give_to(user, group)
    }

    /// Bytes on disk so far.
    pub const fn bytes_written(&self) -> u64 {
        self.events.writer().bytes_written()
    }

    /// Removes the trace: nothing was recorded.
    pub fn discard(self) -> Result<(), Error> {
        self.events.into_writer().discard()
    }

    /// The process that looks for user-mode schedulers.
    pub const fn finder(&self) -> &Finder {
        self.user_level.finder()
    }

    /// Switches of tasks that were asked for, as far as they have passed the timeline.
    pub const fn in_scope(&self) -> u64 {
        self.events.in_scope()
    }

    fn drain(&mut self, capture: &mut Capture) -> Drained {
        let Self {
            merge,
            user_level,
            commands,
            ..
        } = self;
        capture.drain(|ring, event| {
            if let Event::Task(task) = &event {
                user_level.meet(task);
                commands.meet(task);
            }
            merge.push(ring, event);
        })
    }

    fn drain_user_level(&mut self) -> Drained {
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

    fn look_stacks_up(&mut self, capture: &Capture) {
        let Some(stacks) = &mut self.stacks else {
            return;
        };
        for (kind, number, pid) in self.events.take_named_stacks() {
            stacks.meet(capture, kind, number, pid);
        }
    }

    fn write_frames(&mut self) -> Result<(), Error> {
        let Some(stacks) = self.stacks.take() else {
            return Ok(());
        };
        let writer = self.events.writer_mut();
        for frame in stacks.named_frames() {
            writer.push_frame(&frame)?;
        }
        writer.flush()
    }
}

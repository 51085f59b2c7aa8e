//! The pipeline of a recording. While it records, bytes are copied from the rings to the trace, and
//! only that is looked at which would be gone later. Rows are made after the end.
//!
//! ```text
//! while it records   rings ─bytes─▶ records.raw
//!                      └ task records, cgroups: what to look up before it is gone
//! after the end      records.raw ─▶ decode ─▶ merge ─▶ timeline ─▶ tables
//! ```

use std::path::PathBuf;

use rustc_hash::FxHashSet;
use swtch_capture::probe::NamingHierarchy;
use swtch_capture::{Capture, Drained, RawRecords};
use swtch_core::{
    Arch, CgroupId, Event, LookEvent, LookedTask, SyscallTable, TaskAtEnd, TaskEvent,
    TaskEventKind, Timestamp, UntoldSpans,
};
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_report::replay::{copy_rows, replay, see_what_was_kept};
use swtch_store::{
    Directory, Error, EventWriter, Meta, QuotaFacts, StreamKind, UserCounts, Writer, encode_look,
    encode_user_event,
};
use swtch_wire::{RawKind, WIRE_VERSION, cgroups_of, decode_tasks};

use super::commands::Commands;
use super::named_stacks::{LooksGo, StacksToName};
use super::pause::DrainRound;
use super::quotas::RecordedCgroups;
use super::recorded_spans::RecordedSpans;
use super::ring::{
    DumpCause, DumpPart, Firing, FlightRing, RingRequest, RingTotals, SegmentCounts,
};
use super::user_level::UserLevel;
use crate::helper::HelperProcess;

/// Version of the records that a recording keeps.
pub const RECORDS: u32 = WIRE_VERSION;

/// All stages between the rings and the disk.
pub(crate) struct Pipeline {
    arch: Arch,
    user_level: UserLevel,
    commands: Commands,
    cgroups: NewCgroups,
    recorded_cgroups: RecordedCgroups,
    /// `None` if no stacks are read.
    stacks: Option<StacksToName>,
    /// `None` if no spans are asked for.
    spans: Option<RecordedSpans>,
    /// Of a ring, its newest segment.
    writer: Writer,
    /// `None` if all of the recording is kept.
    ring: Option<FlightRing>,
    /// Number of switches that were taken from the rings.
    taken: u64,
    /// Bytes of one event of a user-mode scheduler.
    event: Vec<u8>,
    /// True if a task in scope was started in the last round.
    has_met_starts: bool,
    /// The tasks that ran, or could run, at the end.
    at_end: Vec<TaskAtEnd>,
}

impl Pipeline {
    /// A new pipeline that ends in `writer`, which was created for records.
    pub fn new(
        arch: Arch,
        writer: Writer,
        user_level: UserLevel,
        stacks: Option<StacksToName>,
        naming: NamingHierarchy,
    ) -> Self {
        Self {
            arch,
            user_level,
            commands: Commands::default(),
            cgroups: NewCgroups::default(),
            recorded_cgroups: RecordedCgroups::of(naming),
            stacks,
            spans: None,
            writer,
            ring: None,
            taken: 0,
            event: Vec::new(),
            has_met_starts: false,
            at_end: Vec::new(),
        }
    }

    /// From now on command lines are read, too.
    pub fn read_commands(&mut self, commands: Commands) {
        self.commands = commands;
    }

    /// From now on these spans are taken, too.
    pub fn take_spans(&mut self, spans: Option<RecordedSpans>) {
        self.spans = spans;
    }

    /// No more begin or end of a span is seen.
    pub fn end_spans(&mut self) {
        self.spans.iter_mut().for_each(RecordedSpans::end);
    }

    /// Takes away what sees spans.
    pub fn detach_spans(&mut self) {
        self.spans.iter_mut().for_each(RecordedSpans::detach);
    }

    /// Spans that are not in the trace; `None` if none were asked for.
    pub fn untold_spans(&self) -> Option<UntoldSpans> {
        self.spans.as_ref().map(RecordedSpans::untold)
    }

    /// From now on only the last part is kept.
    pub fn keep_last_part(
        &mut self,
        request: &RingRequest,
        meta: &Meta,
        capture: &Capture,
    ) -> Result<(), Error> {
        let ring = FlightRing::begin(request, &mut self.writer, meta, self.arch, capture)?;
        self.ring = Some(ring);
        Ok(())
    }

    /// Empties the rings once.
    pub fn round(&mut self, capture: &mut Capture) -> Result<DrainRound, Error> {
        self.has_met_starts = false;
        let kernel = self.drain(capture);
        let user = self.drain_user_level();
        self.watch_user_level(capture);
        let looks = self.take_looks(LooksGo::On);
        let spans = self.write_spans();
        let drained = match kernel.and_then(|kernel| {
            looks?;
            spans?;
            Ok(kernel.and(user?))
        }) {
            Ok(drained) => drained,
            Err(error) => {
                self.go_on_after(error, capture)?;
                Drained::default()
            }
        };
        Ok(DrainRound {
            most_in_a_ring: drained.most_in_a_ring,
            is_urgent: self.has_met_starts || self.user_level.is_watching(),
        })
    }

    /// Writes pending records and rows to disk, with the gaps since the last call.
    pub fn flush(&mut self, capture: &Capture) -> Result<(), Error> {
        match self.flush_all(capture) {
            Err(error) => self.go_on_after(error, capture),
            flushed => flushed,
        }
    }

    /// A ring that has no space on disk drops its oldest part, and goes on.
    ///
    /// # Errors
    /// The error, if it is another one, or if there is nothing to drop.
    fn go_on_after(&mut self, error: Error, capture: &Capture) -> Result<(), Error> {
        let Some(ring) = self.ring.as_mut().filter(|_| error.is_full_disk()) else {
            return Err(error);
        };
        if !ring.make_room(&self.writer)? {
            return Err(error);
        }
        let why = format!("{:#}", anyhow::Error::from(error));
        message!(
            "swtch: {}; the ring goes on without its oldest part",
            escaped(&why)
        );
        self.rotate(capture)
    }

    fn flush_all(&mut self, capture: &Capture) -> Result<(), Error> {
        let Self { writer, ring, .. } = self;
        for command in self.commands.take() {
            writer.push_command(&command)?;
            ring.iter_mut().for_each(|ring| ring.keep_command(&command));
        }
        for gap in capture.take_gaps().chain(self.user_level.take_gaps()) {
            writer.push_gap(&gap)?;
        }
        for wait_type in self.user_level.take_wait_types() {
            writer.push_wait_type(&wait_type)?;
            ring.iter_mut()
                .for_each(|ring| ring.keep_wait_type(&wait_type));
        }
        // New cgroups are looked up at every flush, since a short-lived one is gone at the end.
        let mut new_cgroups = self.cgroups.take();
        if let Some(ring) = ring {
            for (cgroup, path) in ring.take_known_paths(&mut new_cgroups) {
                writer.push_cgroup(cgroup, &path)?;
            }
        }
        if !new_cgroups.is_empty() {
            for (cgroup, path) in self.recorded_cgroups.paths_of(&new_cgroups) {
                writer.push_cgroup(cgroup, &path)?;
                ring.iter_mut()
                    .for_each(|ring| ring.keep_cgroup(cgroup, &path));
            }
        }
        self.recorded_cgroups.look();
        writer.flush()?;
        match ring {
            None => writer.check_that_it_is_there(),
            Some(ring) => {
                ring.check_that_it_is_there()?;
                match ring.is_due(writer.bytes_written()) {
                    true => self.rotate(capture),
                    false => Ok(()),
                }
            }
        }
    }

    /// Begins the next segment of the ring.
    fn rotate(&mut self, capture: &Capture) -> Result<(), Error> {
        if self.ring.is_none() {
            return Ok(());
        }
        let counts = SegmentCounts {
            user: self.user_counts(),
            quotas: self.quotas(),
        };
        let totals = self.totals(capture);
        if let Some(ring) = &mut self.ring {
            let was_told = |cgroup| self.cgroups.known.contains(&cgroup);
            self.writer = ring.rotate(&self.writer, was_told, capture, counts, totals)?;
            self.cgroups.known.clear();
        }
        Ok(())
    }

    /// The first condition for a dump that held since the last call.
    pub fn take_firing(&mut self) -> Option<Firing> {
        self.ring.as_mut()?.take_firing()
    }

    /// Makes a dump of the ring. Returns its path, or why it could not be made.
    ///
    /// # Errors
    /// When the recording cannot go on.
    pub fn dump(
        &mut self,
        capture: &Capture,
        cause: &DumpCause,
        part: DumpPart,
    ) -> Result<Result<PathBuf, String>, Error> {
        let totals = self.totals(capture);
        self.flush(capture)?;
        self.rotate(capture)?;
        let Some(ring) = &mut self.ring else {
            return Ok(Err("this recording keeps all, and needs no dump".to_owned()));
        };
        let dumped = ring.dump(cause, part, totals);
        Ok(dumped.map_err(|error| format!("{:#}", anyhow::Error::from(error))))
    }

    /// The quotas of the cgroups that were met, and how often they were used up.
    pub fn quotas(&mut self) -> Vec<QuotaFacts> {
        self.recorded_cgroups.quotas()
    }

    fn totals(&self, capture: &Capture) -> RingTotals {
        let counters = capture.counters();
        RingTotals {
            switches: self.taken,
            lost: counters.lost,
            untraced: counters.untraced,
        }
    }

    /// Makes the facts those of the part that was kept, if that is not all.
    pub fn narrow_to_kept(&self, meta: &mut Meta, capture: &Capture) {
        if let Some(ring) = &self.ring {
            ring.narrow_to_kept(meta, self.totals(capture));
        }
    }

    /// Takes the records that are left after the probes were detached.
    ///
    /// # Errors
    /// When the disk is full, now or since an earlier call; the records that are left are counted
    /// then.
    pub fn end(&mut self, capture: &mut Capture) -> Result<(), Error> {
        let mut written = Ok(());
        loop {
            match self.drain(capture) {
                Ok(drained) if drained.switches == 0 => break,
                Ok(_) => {}
                Err(error) if written.is_ok() => written = Err(error),
                // The rings are emptied all the same, so that what is left is counted.
                Err(_) if capture.is_drained() => break,
                Err(_) => {}
            }
        }
        self.user_level.open_rings();
        let user = self.drain_user_level();
        let looks = self.take_looks(LooksGo::ToTheirEnd);
        let spans = self.write_spans();
        self.spans.iter().for_each(RecordedSpans::tell);
        if let Some(stacks) = &self.stacks {
            stacks
                .not_read()
                .for_each(|words| message!("swtch: {words}"));
        }
        written?;
        user?;
        looks?;
        spans?;
        for command in self.commands.end() {
            self.writer.push_command(&command)?;
        }
        self.flush(capture)?;
        self.write_stacks()
    }

    /// Notes who ran, or could run, when the recording ended.
    pub fn note_at_end(&mut self, tasks: Vec<TaskAtEnd>) {
        self.at_end = tasks;
    }

    /// The trace, and what is left to do: its rows.
    pub fn into_rows(self) -> (Writer, RowsToMake) {
        let rows = RowsToMake {
            arch: self.arch,
            taken: self.taken,
            dropped: self.ring.as_ref().map_or(0, FlightRing::dropped),
            at_end: self.at_end,
        };
        let whole = match self.ring {
            Some(ring) => ring.into_whole(),
            None => self.writer,
        };
        (whole, rows)
    }

    /// The directory of the trace.
    pub const fn directory(&self) -> &Directory {
        match &self.ring {
            Some(ring) => ring.whole().directory(),
            None => self.writer.directory(),
        }
    }

    /// Bytes on disk so far.
    pub const fn bytes_written(&self) -> u64 {
        self.writer.bytes_written()
    }

    /// Removes the trace: nothing was recorded.
    pub fn discard(self) -> Result<(), Error> {
        self.writer.discard()
    }

    /// The processes that help: those that look for user-mode schedulers and published contexts, and the one that
    /// reads stacks.
    pub fn helpers(&self) -> impl Iterator<Item = &HelperProcess> {
        let finder = self.user_level.finder().process();
        let reader = self.stacks.as_ref().and_then(StacksToName::reader);
        let contexts = self.spans.as_ref().and_then(RecordedSpans::helper);
        [Some(finder), reader, contexts].into_iter().flatten()
    }

    /// Number of switches that were taken from the rings.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns what became of the switches of user-mode schedulers; `None` if there is none.
    pub fn user_counts(&self) -> Option<UserCounts> {
        self.user_level.counts()
    }

    /// Copies the records from the rings. After an error the rings are emptied all the same.
    fn drain(&mut self, capture: &mut Capture) -> Result<Drained, Error> {
        let mut written = Ok(());
        let drained = capture.take(|raw| {
            self.notice(&raw);
            let kind = match raw.kind {
                RawKind::Switches => StreamKind::Switches,
                RawKind::Tasks => StreamKind::Tasks,
            };
            let copied = self.writer.record(kind, raw.ring, raw.count, raw.bytes);
            if written.is_ok() {
                written = copied;
            }
        });
        self.taken += drained.switches;
        written.map(|()| drained)
    }

    /// Notes what these records name that must be looked up while it exists.
    fn notice(&mut self, raw: &RawRecords<'_>) {
        match raw.kind {
            RawKind::Tasks => {
                if let Some(ring) = &mut self.ring {
                    ring.meet_tasks(raw.bytes);
                }
                for task in decode_tasks(raw.bytes) {
                    if let Some(ring) = &mut self.ring {
                        ring.meet(&task);
                    }
                    self.has_met_starts |= is_start(&task);
                    self.user_level.meet(&task);
                    self.commands.meet(&task);
                    self.cgroups.add(task.cgroup);
                }
            }
            RawKind::Switches => {
                for cgroup in cgroups_of(raw.bytes) {
                    self.cgroups.add(cgroup);
                }
                if let Some(ring) = &mut self.ring {
                    ring.look(raw.bytes, raw.count);
                }
            }
        }
    }

    fn drain_user_level(&mut self) -> Result<Drained, Error> {
        let Self {
            user_level,
            writer,
            event: bytes,
            ..
        } = self;
        let mut written = Ok(());
        let drained = user_level.drain(|stream, event| {
            let Event::User(event) = event else {
                unreachable!("a user-mode scheduler has no other events")
            };
            bytes.clear();
            encode_user_event(&event, bytes);
            let copied = writer.record(StreamKind::UserEvents, stream, 1, bytes);
            if written.is_ok() {
                written = copied;
            }
        });
        written.map(|()| drained)
    }

    /// Keeps where threads were seen to wait. Without the process that reads stacks recording goes on.
    fn take_looks(&mut self, when: LooksGo) -> Result<(), Error> {
        let Some(stacks) = &mut self.stacks else {
            return Ok(());
        };
        let (mut waiters, mut wakers) = (Vec::new(), Vec::new());
        let taken = stacks.take_looks(when, |look| match look.whose {
            LookedTask::Waiter { .. } => waiters.push(look),
            LookedTask::Waker => wakers.push(look),
        });
        if let Err(error) = taken {
            message!(
                "swtch: stacks are not read any more: {}",
                escaped(&error.to_string())
            );
        }
        for row in stacks.take_workers() {
            self.writer.push_worker(&row)?;
        }
        // Wakers ended waits before the look that takes their copies. Each stream is in the order of time.
        for (stream, mut looks) in [(0, waiters), (1, wakers)] {
            looks.sort_by_key(|look: &LookEvent| look.ts);
            let mut bytes = Vec::new();
            looks.iter().for_each(|look| encode_look(look, &mut bytes));
            let count = u64::try_from(looks.len()).unwrap_or(u64::MAX);
            if count > 0 {
                self.writer
                    .record(StreamKind::Looks, stream, count, &bytes)?;
            }
        }
        Ok(())
    }

    fn write_spans(&mut self) -> Result<(), Error> {
        let (spans, writer) = (&mut self.spans, &mut self.writer);
        spans.as_mut().map_or(Ok(()), |spans| spans.take(writer))
    }

    /// If the kernel side has no room for more threads, their switches lack a worker; recording
    /// goes on.
    fn watch_user_level(&mut self, capture: &mut Capture) {
        if let Err(error) = self.user_level.look(capture) {
            self.user_level
                .refuse(Some(format!("{:#}", anyhow::Error::from(error))));
        }
    }

    fn write_stacks(&mut self) -> Result<(), Error> {
        let Some(stacks) = &mut self.stacks else {
            return Ok(());
        };
        let (stacks, frames) = stacks.named();
        for stack in &stacks {
            self.writer.push_stack(stack)?;
        }
        for frame in &frames {
            self.writer.push_frame(frame)?;
        }
        self.writer.flush()
    }
}

/// The rows of a recording that has ended.
#[derive(Clone, Debug)]
pub struct RowsToMake {
    pub arch: Arch,
    /// Number of switches that were taken from the rings.
    pub taken: u64,
    /// Number of them that a ring dropped because the disk was full.
    pub dropped: u64,
    /// The tasks that ran, or could run, at the end.
    pub at_end: Vec<TaskAtEnd>,
}

impl RowsToMake {
    /// Makes the rows of the finished trace, and completes the facts about it. Returns how many
    /// switches are of tasks that were asked for. If the trace cannot be finished, what was flushed
    /// stays in it, and the error is returned with that number, as far as it is known.
    pub fn make(
        self,
        writer: Writer,
        meta: &mut Meta,
        progress: &mut dyn FnMut(u64, u64),
    ) -> (u64, Result<(), Error>) {
        let not_written = writer.records_not_written();
        meta.counts.stored = self.taken.saturating_sub(not_written.switches);
        meta.counts.storage_failed = not_written.switches;
        let mut events = match begin_rows(writer) {
            Ok(writer) => EventWriter::new(writer, SyscallTable::of(self.arch)),
            Err(error) => return (self.taken, Err(error)),
        };
        let recorded = events.writer().to_trace();
        let replayed = recorded.and_then(|trace| match trace.records() {
            Some(records) => {
                if records.is_of_ring() {
                    copy_rows(&trace, events.writer_mut())?;
                }
                replay(records, &mut events, progress)
            }
            None => unreachable!("the trace was created for records"),
        });
        let ended = replayed.and_then(|replayed| {
            meta.counts.lost += replayed.unreadable;
            meta.counts.late = replayed.late;
            let seen = meta.counts.switches_seen;
            meta.counts.switches_seen = seen.saturating_sub(replayed.twice);
            events.end(Timestamp::from_ns(meta.end_ns), &self.at_end)
        });
        let in_scope = events.in_scope();
        events.complete(meta);
        meta.counts.storage_failed += self.dropped;
        if meta.ring.is_some() {
            see_what_was_kept(&mut meta.counts);
        }
        (in_scope, ended.and_then(|()| events.finish(meta, progress)))
    }
}

/// Returns true if a recorded program begins here, or a thread of it: its command line may be gone soon, and it may
/// start a user-mode scheduler.
fn is_start(task: &TaskEvent) -> bool {
    let is_start = matches!(
        task.kind,
        TaskEventKind::Fork | TaskEventKind::Exec | TaskEventKind::Rename
    );
    is_start && task.in_scope && !task.is_kthread
}

fn begin_rows(mut writer: Writer) -> Result<Writer, Error> {
    writer.check_that_it_is_there()?;
    writer.begin_final()?;
    Ok(writer)
}

/// The cgroups that records name.
#[derive(Debug, Default)]
struct NewCgroups {
    known: FxHashSet<CgroupId>,
    /// Those that have come since the caller asked last.
    fresh: FxHashSet<CgroupId>,
}

impl NewCgroups {
    fn add(&mut self, cgroup: CgroupId) {
        if self.known.insert(cgroup) {
            self.fresh.insert(cgroup);
        }
    }

    fn take(&mut self) -> FxHashSet<CgroupId> {
        std::mem::take(&mut self.fresh)
    }
}

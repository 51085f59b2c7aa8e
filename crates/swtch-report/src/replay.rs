//! Makes rows of the records that a recording kept: after its end, or for somebody who asks for a
//! recording that was cut off.
//!
//! ```text
//! records.raw ─a stream a ring─▶ decode ─Event─▶ merge ─▶ timeline ─rows─▶ tables in final form
//! ```
//!
//! Blocks are decoded as the merge comes to them, so memory holds one block of each stream.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context as _, Result};
use swtch_capture::{RawKind, WIRE_VERSION, decode_records};
use swtch_core::merge::Merge;
use swtch_core::{Arch, Event, SyscallTable, Timestamp};
use swtch_store::{
    Error, EventWriter, RecordFile, RecordStream, StreamKind, Trace, UserEventDecoder, Writer,
};

/// How often progress is reported, in events.
const PROGRESS_EVERY: u64 = 1 << 16;

/// The kernel side numbers tasks one after the other, and what reads them has tables by number. A
/// larger number than there can be tasks is damage, and would ask for a table of gigabytes: there is
/// not more than one task for each byte of records (a record has more than ten), besides this many
/// whose records were lost.
const MOST_UNSEEN_TASKS: u64 = 1 << 20;

/// What was seen of records besides their events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// Number of records that could not be understood. No row holds what they said.
    pub unreadable: u64,
    /// Number of events that came after a later one.
    pub late: u64,
}

/// Makes rows of all records. `progress` gets the number of events done, and of all switches.
///
/// # Errors
/// When the records cannot be read, or another version of the program wrote them. Rows of those
/// before have been made.
pub fn replay(
    records: &RecordFile,
    events: &mut EventWriter,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Replayed, Error> {
    records.require_wire(WIRE_VERSION)?;
    let trouble = Rc::new(RefCell::new(ReplayTrouble::default()));
    let most_tasks = MOST_UNSEEN_TASKS.saturating_add(records.size());
    let streams = records.streams();
    let streams = streams
        .into_iter()
        .map(|stream| EventStream::new(stream, most_tasks, &trouble));
    let mut merge = Merge::new(streams);
    let mut done = 0;
    for event in merge.by_ref() {
        events.push(event);
        done += 1;
        if done % PROGRESS_EVERY == 0 {
            progress(done, records.switches());
        }
    }
    let late = merge.late();
    let mut trouble = trouble.borrow_mut();
    match trouble.failure.take() {
        Some(error) => Err(error),
        None => Ok(Replayed {
            unreadable: trouble.unreadable,
            late,
        }),
    }
}

/// What went wrong in any of the streams.
#[derive(Debug, Default)]
struct ReplayTrouble {
    unreadable: u64,
    /// The first error of reading.
    failure: Option<Error>,
}

/// The events of one stream of records.
struct EventStream {
    stream: RecordStream,
    next_block: usize,
    block: std::vec::IntoIter<Event>,
    user_events: UserEventDecoder,
    /// Numbers of tasks are below it.
    most_tasks: u64,
    trouble: Rc<RefCell<ReplayTrouble>>,
}

impl EventStream {
    fn new(stream: RecordStream, most_tasks: u64, trouble: &Rc<RefCell<ReplayTrouble>>) -> Self {
        Self {
            stream,
            next_block: 0,
            block: Vec::new().into_iter(),
            user_events: UserEventDecoder::default(),
            most_tasks,
            trouble: Rc::clone(trouble),
        }
    }

    /// Decodes the next block; false if there is none, or if it cannot be read.
    fn read_block(&mut self) -> bool {
        if self.next_block >= self.stream.blocks() {
            return false;
        }
        let mut trouble = self.trouble.borrow_mut();
        let bytes = match self.stream.block(self.next_block) {
            Ok(bytes) => bytes,
            Err(error) => {
                trouble.failure.get_or_insert(error);
                return false;
            }
        };
        self.next_block += 1;
        let mut events = Vec::new();
        trouble.unreadable += match self.stream.kind() {
            StreamKind::Switches => {
                decode_records(RawKind::Switches, &bytes, |event| events.push(event))
            }
            StreamKind::Tasks => decode_records(RawKind::Tasks, &bytes, |event| events.push(event)),
            StreamKind::UserEvents => self
                .user_events
                .decode(&bytes, |event| events.push(Event::User(event))),
        };
        let decoded = events.len();
        events.retain(|event| is_of_tasks_below(event, self.most_tasks));
        trouble.unreadable += u64::try_from(decoded - events.len()).unwrap_or(u64::MAX);
        self.block = events.into_iter();
        true
    }
}

/// Whether the tasks that an event is about have numbers below this one.
fn is_of_tasks_below(event: &Event, most: u64) -> bool {
    let tasks = match event {
        Event::Switch(switch) => [switch.task, switch.next_task],
        Event::Task(task) => [Some(task.task), None],
        Event::User(_) => [None, None],
    };
    let mut tasks = tasks.into_iter().flatten();
    tasks.all(|task| u64::from(task.get()) < most)
}

impl Iterator for EventStream {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.block.next() {
                return Some(event);
            }
            if !self.read_block() {
                return None;
            }
        }
    }
}

/// The rows of a recording that was not finished: a copy in its final form, whose files have no
/// names any more when this returns. The recording is left as it is.
///
/// # Errors
/// As [`replay`]; when the directory for temporary files has no space for the copy.
pub fn replayed(recorded: &Trace, records: &RecordFile) -> Result<Trace> {
    let place = tempfile::Builder::new().prefix("swtch-").tempdir();
    let place = place.context("making a directory for the rows of an unfinished recording")?;
    let path = place.path().join("copy.swtch");
    let copy = copied(recorded, records, &path);
    copy.with_context(|| format!("decoding an unfinished recording into {}", path.display()))
}

fn copied(recorded: &Trace, records: &RecordFile, path: &std::path::Path) -> Result<Trace> {
    let mut meta = recorded.meta().clone();
    let arch = Arch::from_machine(&meta.host.machine);
    let arch =
        arch.with_context(|| format!("the system calls of {} are unknown", meta.host.machine))?;
    let mut writer = Writer::create(path, &meta)?;
    copy_rows(recorded, &mut writer)?;
    writer.begin_final()?;
    let mut events = EventWriter::new(writer, SyscallTable::of(arch));
    let replayed = replay(records, &mut events, &mut |_, _| ())?;
    if meta.end_ns > 0 {
        events.end(Timestamp::from_ns(meta.end_ns))?;
    }
    meta.counts.late += replayed.late;
    events.finish_copy(&meta)?;
    Ok(Trace::open(path)?.as_copy_of(recorded))
}

/// Copies the tables that do not come of records.
fn copy_rows(recorded: &Trace, writer: &mut Writer) -> Result<(), Error> {
    for level in swtch_core::Level::ALL {
        for gap in recorded.gaps_of(*level)? {
            writer.push_gap(&gap)?;
        }
    }
    for row in recorded.cgroups()? {
        writer.push_cgroup(row.cgroup, &row.path)?;
    }
    for stack in recorded.stacks()? {
        writer.push_stack(&stack)?;
    }
    for frame in recorded.frames()? {
        writer.push_frame(&frame)?;
    }
    for wait_type in recorded.wait_types()? {
        writer.push_wait_type(&wait_type)?;
    }
    for command in recorded.commands()? {
        writer.push_command(&command)?;
    }
    Ok(())
}

//! Makes rows of the records that a recording kept: after its end, or for somebody who asks for a
//! recording that was cut off.
//!
//! ```text
//! records.raw ─a stream a ring─▶ decode ─Event─▶ merge ─▶ timeline ─rows─▶ tables in final form
//!     of perf ─a stream a ring─▶ decode ─PerfRecord─▶ merge ─▶ threads ─Event─▶ timeline ─▶ …
//! ```
//!
//! Blocks are decoded as the merge comes to them, so memory holds one block of each stream.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::Hash;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result};
use rustc_hash::FxHashMap;
use swtch_core::merge::Merge;
use swtch_core::{Arch, Event, RULES_VERSION, SyscallTable, TaskKey, Timestamp};
use swtch_store::{
    Counts, Error, EventWriter, Meta, RecordFile, RecordStream, RecordingState, StreamKind, Trace,
    UserEventDecoder, Writer, decode_looks,
};
use swtch_wire::{
    PerfRecord, PerfThreads, READABLE_WIRES, RawKind, decode_perf_records, decode_records,
};

/// The number of events after which progress is reported.
const PROGRESS_EVERY: u64 = 1 << 16;

/// The kernel side numbers tasks one after the other, and what reads them has tables by number. A
/// larger number than there can be tasks is damage, and would ask for a table of gigabytes: there is
/// not more than one task for each byte of records (a record has more than ten), besides this many
/// whose records were lost.
const MOST_UNSEEN_TASKS: u64 = 1 << 20;

/// Counts of records that could not be understood, and of events that came late.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// Number of records that could not be understood. No row holds what they said.
    pub unreadable: u64,
    /// Number of events that came after a later one.
    pub late: u64,
    /// Number of records of switches that were there a second time ([`PerfThreads::twice`]).
    pub twice: u64,
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
    records.require_wire(READABLE_WIRES)?;
    let trouble = Rc::new(RefCell::new(ReplayTrouble::default()));
    let is_of_perf = |stream: &RecordStream| stream.kind().is_of_perf();
    let (of_perf, streams): (Vec<_>, Vec<_>) = records.streams().into_iter().partition(is_of_perf);
    let mut progress = ReplayProgress {
        done: 0,
        switches: records.switches(),
        tell: progress,
    };
    let most_tasks = MOST_UNSEEN_TASKS.saturating_add(records.size());
    let new_numbers = records.is_of_ring().then(NewTaskNumbers::default);
    let mut merge = Merge::new(streams.into_iter().map(|stream| {
        let decode = event_decoder(stream.kind(), most_tasks, new_numbers.clone());
        DecodedStream::new(stream, decode, &trouble)
    }));
    for event in merge.by_ref() {
        events.push(event);
        progress.step();
    }
    // A recording is made by one backend, so one of the two has no stream.
    let mut perf_merge = Merge::new(of_perf.into_iter().map(|stream| {
        let decode = |bytes: &[u8], records: &mut Vec<PerfRecord>| {
            decode_perf_records(bytes, |record| records.push(record))
        };
        DecodedStream::new(stream, decode, &trouble)
    }));
    let mut threads = PerfThreads::default();
    for record in perf_merge.by_ref() {
        threads.push(&record, |event| events.push(event));
        progress.step();
    }
    let late = merge.late() + perf_merge.late();
    let mut trouble = trouble.borrow_mut();
    match trouble.failure.take() {
        Some(error) => Err(error),
        None => Ok(Replayed {
            unreadable: trouble.unreadable,
            late,
            twice: threads.twice(),
        }),
    }
}

/// Trouble met in any of the streams.
#[derive(Debug, Default)]
struct ReplayTrouble {
    unreadable: u64,
    /// The first error of reading.
    failure: Option<Error>,
}

/// Tells how far it has come.
struct ReplayProgress<'a> {
    done: u64,
    /// Number of switches in all.
    switches: u64,
    tell: &'a mut dyn FnMut(u64, u64),
}

impl ReplayProgress<'_> {
    fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(PROGRESS_EVERY) {
            (self.tell)(self.done, self.switches);
        }
    }
}

/// One stream of records, decoded block by block.
struct DecodedStream<T, D> {
    stream: RecordStream,
    next_block: usize,
    block: std::vec::IntoIter<T>,
    /// Length of the longest block so far.
    most_in_block: usize,
    /// Appends what a block says, and returns how many records could not be understood.
    decode: D,
    trouble: Rc<RefCell<ReplayTrouble>>,
}

impl<T, D: FnMut(&[u8], &mut Vec<T>) -> u64> DecodedStream<T, D> {
    fn new(stream: RecordStream, decode: D, trouble: &Rc<RefCell<ReplayTrouble>>) -> Self {
        Self {
            stream,
            next_block: 0,
            block: Vec::new().into_iter(),
            most_in_block: 0,
            decode,
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
        // Blocks hold about as many as each other.
        let mut decoded = Vec::with_capacity(self.most_in_block);
        trouble.unreadable += (self.decode)(&bytes, &mut decoded);
        self.most_in_block = self.most_in_block.max(decoded.len());
        self.block = decoded.into_iter();
        true
    }
}

impl<T, D: FnMut(&[u8], &mut Vec<T>) -> u64> Iterator for DecodedStream<T, D> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(item) = self.block.next() {
                return Some(item);
            }
            if !self.read_block() {
                return None;
            }
        }
    }
}

/// Numbers of tasks for the last part of a recording. The kernel side counts tasks from the start,
/// which may be days ago; what reads them has tables by number.
#[derive(Clone, Debug, Default)]
struct NewTaskNumbers(Rc<RefCell<FxHashMap<TaskKey, TaskKey>>>);

impl NewTaskNumbers {
    fn give_to(&self, event: &mut Event) {
        let mut given = self.0.borrow_mut();
        event.for_each_task(|task| {
            if *task == TaskKey::IDLE {
                return;
            }
            // From 1 on: 0 is idle.
            let next = u32::try_from(given.len() + 1).unwrap_or(TaskKey::WIRE_UNKNOWN);
            *task = *given.entry(*task).or_insert(TaskKey::new(next));
        });
    }
}

/// Decodes the records of the eBPF programs, or of a user-mode scheduler. Tasks have numbers below
/// `most_tasks`, those that they are given here if there are some.
fn event_decoder(
    kind: StreamKind,
    most_tasks: u64,
    new_numbers: Option<NewTaskNumbers>,
) -> impl FnMut(&[u8], &mut Vec<Event>) -> u64 {
    let mut user_events = UserEventDecoder::default();
    move |bytes, events| {
        let unreadable = match kind {
            StreamKind::UserEvents => {
                user_events.decode(bytes, |event| events.push(Event::User(event)))
            }
            StreamKind::Looks => decode_looks(bytes, |look| events.push(Event::Look(look))),
            StreamKind::Switches => {
                decode_records(RawKind::Switches, bytes, |event| events.push(event))
            }
            _ => decode_records(RawKind::Tasks, bytes, |event| events.push(event)),
        };
        if let Some(numbers) = &new_numbers {
            events.iter_mut().for_each(|event| numbers.give_to(event));
        }
        let decoded = events.len();
        events.retain(|event| is_of_tasks_below(event, most_tasks));
        unreadable + u64::try_from(decoded - events.len()).unwrap_or(u64::MAX)
    }
}

/// Returns true if the tasks that an event is about have numbers below this one.
fn is_of_tasks_below(event: &Event, most: u64) -> bool {
    let tasks = match event {
        Event::Switch(switch) => [switch.task, switch.next_task],
        Event::Task(task) => [Some(task.task), None],
        Event::Look(look) => [Some(look.task), None],
        Event::User(_) => [None, None],
    };
    let mut tasks = tasks.into_iter().flatten();
    tasks.all(|task| u64::from(task.get()) < most)
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
    let copy = written(recorded, records, recorded.meta().clone(), &path);
    copy.with_context(|| format!("decoding an unfinished recording into {}", path.display()))
}

/// As [`replayed`], as a trace at this path and with these facts, which the counts of its rows complete.
///
/// # Errors
/// As [`replayed`]; when the path is taken. Nothing is left there then.
pub fn written(
    recorded: &Trace,
    records: &RecordFile,
    mut meta: Meta,
    path: &Path,
) -> Result<Trace> {
    let arch = Arch::from_machine(&meta.host.machine);
    let arch =
        arch.with_context(|| format!("the system calls of {} are unknown", meta.host.machine))?;
    // The reasons are decided now, whichever program recorded it.
    meta.rules_version = RULES_VERSION;
    let writer = Writer::create(path, &meta)?;
    let directory = writer.directory().clone();
    let filled = fill(writer, recorded, records, SyscallTable::of(arch), &mut meta);
    if let Err(error) = filled {
        // It was just created. The first error is the one to report.
        let _ = directory.remove();
        return Err(error);
    }
    Ok(Trace::open_in(&directory)?.as_copy_of(recorded))
}

fn fill(
    mut writer: Writer,
    recorded: &Trace,
    records: &RecordFile,
    calls: SyscallTable,
    meta: &mut Meta,
) -> Result<()> {
    copy_rows(recorded, &mut writer)?;
    writer.begin_final()?;
    let mut events = EventWriter::new(writer, calls);
    let replayed = replay(records, &mut events, &mut |_, _| ())?;
    if meta.end_ns > 0 {
        events.end(Timestamp::from_ns(meta.end_ns), &[])?;
    }
    meta.counts.late += replayed.late;
    // A recorder that was killed has counted nothing in its facts, as a segment of a ring has not.
    if records.is_of_ring() || recorded.meta().state == RecordingState::Recording {
        let not_written = meta.counts.storage_failed;
        events.complete(meta);
        meta.counts.storage_failed += not_written;
        see_what_was_kept(&mut meta.counts);
    }
    Ok(events.finish_copy(meta)?)
}

/// Completes the counts of the last part of a recording, once its rows are counted. What the kernel
/// side had seen when that part began is not known to the switch, as records were on their way.
pub const fn see_what_was_kept(counts: &mut Counts) {
    counts.switches_seen =
        counts.stored + counts.filtered + counts.lost + counts.unnamed + counts.storage_failed;
}

/// Copies the tables that do not come of records. The segments of a ring may say the same several
/// times.
///
/// # Errors
/// When they cannot be read or written.
pub fn copy_rows(recorded: &Trace, writer: &mut Writer) -> Result<(), Error> {
    for level in swtch_core::Level::ALL {
        for gap in recorded.gaps_of(*level)? {
            writer.push_gap(&gap)?;
        }
    }
    for row in once_each(recorded.cgroups()?, |row| row.cgroup) {
        writer.push_cgroup(row.cgroup, &row.path)?;
    }
    for stack in recorded.stacks()? {
        writer.push_stack(&stack)?;
    }
    for frame in recorded.frames()? {
        writer.push_frame(&frame)?;
    }
    for wait_type in once_each(recorded.wait_types()?, |row| {
        (row.wait_type, row.name.clone())
    }) {
        writer.push_wait_type(&wait_type)?;
    }
    for command in once_each(recorded.commands()?, |row| (row.ts, row.pid)) {
        writer.push_command(&command)?;
    }
    push_each(
        |take| recorded.each_worker(take),
        |row| writer.push_worker(row),
    )?;
    push_each(|take| recorded.each_span(take), |row| writer.push_span(row))
}

/// Writes the rows that one hands over, until one cannot be written.
fn push_each<R>(
    each: impl FnOnce(&mut dyn FnMut(&R)) -> Result<(), Error>,
    mut push: impl FnMut(&R) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut pushed = Ok(());
    each(&mut |row| {
        if pushed.is_ok() {
            pushed = push(row);
        }
    })?;
    pushed
}

/// The first of the rows of each key.
fn once_each<T, K: Eq + Hash>(rows: Vec<T>, key: impl Fn(&T) -> K) -> impl Iterator<Item = T> {
    let mut met = HashSet::new();
    rows.into_iter().filter(move |row| met.insert(key(row)))
}

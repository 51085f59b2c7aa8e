//! A trace being read: finished, unfinished, or still growing.
//!
//! `checksums.csv` says which files belong to it. The contents are fixed when the trace is opened:
//! a recorder that goes on or finishes changes nothing for a reader at work.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use swtch_core::{Frame, Gap, Level, Open, Reason, Stack, Switch, TaskEvent, Timestamp};

use crate::checksums::{CHECKSUMS, Checksums};
use crate::directory::Directory;
use crate::error::Error;
use crate::finish::tables_of;
use crate::meta::{META, Meta, RecordingState};
use crate::order::{TIME, TimeOrder};
use crate::parquet_table::ParquetTable;
use crate::records::RecordFile;
use crate::rows::{CgroupRow, CommandRow, SpanRow, WaitTypeRow, WaitingWorkersRow};
use crate::scan::{self, Batches, PieceReader};
use crate::schema::{self, Columns, Table};
use crate::segments;
use crate::stream_table::StreamTable;
use crate::verdict::{JUDGED_AS_TODAY, JudgedWaits};

/// The number of times that opening is tried when the recorder finishes the trace at that moment.
const TRIES: usize = 3;

/// The longest list of checksums: some 40 bytes for each batch that was written, so ten million
/// batches.
const MOST_LIST_BYTES: u64 = 400 << 20;

/// The longest `meta.json`: a command line has at most 6 MB (execve(2)), and JSON may take 6 bytes
/// for one.
const MOST_META_BYTES: u64 = 40 << 20;

/// The completeness of a trace: whether it holds everything that its recorder stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completeness {
    /// It does. [`Meta::state`] says whether the recording ended as requested.
    Finished,
    /// Only rows that had been flushed can be read.
    Unfinished {
        /// The reason why it is unfinished, in words.
        why: String,
        /// Number of bytes that are torn, damaged or missing, and were left out.
        unreadable_bytes: u64,
    },
}

/// A trace that is open for reading.
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    meta: Meta,
    files: Files,
    /// Set for a copy: completeness and size of the trace that its rows come from.
    copied: Option<(Completeness, u64)>,
    /// In place of those in the files.
    named: Option<(Vec<Stack>, Vec<Frame>)>,
}

#[derive(Debug)]
enum Files {
    Finished(Vec<(&'static str, ParquetTable)>),
    Recorded {
        tables: Vec<(&'static str, StreamTable)>,
        order: TimeOrder,
        user_rows: u64,
        /// Of a recording that was not finished, in place of `switch`, `task` and `open`.
        records: Option<RecordFile>,
        /// Of a ring: recordings that follow one another. Their records are `records`.
        segments: Vec<Trace>,
    },
}

impl Trace {
    /// Opens the trace at `path`.
    ///
    /// # Errors
    ///
    /// [`Error::NotATrace`] when the path is not a trace; [`Error::Damaged`] when a file is not as
    /// it was written (an unfinished trace is read up to there instead, see
    /// [`Self::completeness`]); [`Error::Read`] when a file is missing or may not be read;
    /// [`Error::NotDecoded`] when it is a recording that was not finished, see
    /// [`Self::open_recorded`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_in(&directory(path)?)
    }

    /// As [`Self::open`], also for a recording that was not finished: its tables `switch`, `task`
    /// and `open` are empty, and [`Self::records`] holds what they come of.
    ///
    /// # Errors
    ///
    /// As [`Self::open`], without [`Error::NotDecoded`]; [`Error::OtherRecords`] when another
    /// version of the program has written the records.
    pub fn open_recorded(path: &Path) -> Result<Self, Error> {
        Self::open_recorded_in(&directory(path)?)
    }

    /// Opens the trace in a directory that is already open: that of a [`Writer`](crate::Writer),
    /// whose path this process may no longer be allowed to use.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_in(dir: &Directory) -> Result<Self, Error> {
        let trace = Self::open_recorded_in(dir)?;
        match trace.records() {
            None => Ok(trace),
            Some(_) => Err(Error::NotDecoded {
                path: dir.path().to_owned(),
            }),
        }
    }

    /// As [`Self::open_recorded`], in a directory that is already open.
    ///
    /// # Errors
    ///
    /// As [`Self::open_recorded`].
    pub fn open_recorded_in(dir: &Directory) -> Result<Self, Error> {
        Self::open_with(dir, segments::open_all)
    }

    /// Opens a segment of a ring, which has no segments itself.
    pub(crate) fn open_segment_in(dir: &Directory) -> Result<Self, Error> {
        Self::open_with(dir, |_| Ok(Vec::new()))
    }

    fn open_with(
        dir: &Directory,
        segments_of: impl Fn(&Directory) -> Result<Vec<Self>, Error>,
    ) -> Result<Self, Error> {
        let mut tries = 1;
        loop {
            let list = read_file(dir, CHECKSUMS, MOST_LIST_BYTES)?;
            match Self::open_listed(dir, &Checksums::parse(&list), &segments_of) {
                // The recorder may have put other files in place since the list was read.
                Err(_) if tries < TRIES && read_file(dir, CHECKSUMS, MOST_LIST_BYTES)? != list => {
                    tries += 1
                }
                opened => return opened,
            }
        }
    }

    fn open_listed(
        dir: &Directory,
        list: &Checksums,
        segments_of: impl Fn(&Directory) -> Result<Vec<Self>, Error>,
    ) -> Result<Self, Error> {
        let mut meta = read_meta(dir, list)?;
        let files = if list.is_of_finished_trace() {
            Files::finished(dir, list, &meta)?
        } else {
            let segments = segments_of(dir)?;
            if meta.state == RecordingState::Recording
                && let Some(first) = segments.first()
            {
                // Those before it are gone.
                meta.start_ns = first.meta.start_ns;
                meta.ring.clone_from(&first.meta.ring);
            }
            Files::recorded(dir, list, &meta, segments)?
        };
        Ok(Self {
            path: dir.path().to_owned(),
            meta,
            files,
            copied: None,
            named: None,
        })
    }

    /// The records of a recording that was not finished; `None` for any other trace.
    pub const fn records(&self) -> Option<&RecordFile> {
        match &self.files {
            Files::Recorded { records, .. } => records.as_ref(),
            Files::Finished(_) => None,
        }
    }

    /// This trace as a copy of `original`, made of its records: it has its path, and is as complete
    /// as that.
    #[must_use]
    pub fn as_copy_of(self, original: &Self) -> Self {
        Self {
            path: original.path.clone(),
            copied: Some((original.completeness(), original.bytes())),
            ..self
        }
    }

    /// The facts about the trace from `meta.json`.
    pub const fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The path by which the trace was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the trace holds everything that its recorder stored.
    pub fn completeness(&self) -> Completeness {
        if let Some((completeness, _)) = &self.copied {
            return completeness.clone();
        }
        let Files::Recorded {
            tables,
            records,
            segments,
            ..
        } = &self.files
        else {
            return Completeness::Finished;
        };
        let of_records = records.as_ref().map_or(0, RecordFile::unreadable_bytes);
        let tables = tables
            .iter()
            .map(|(name, table)| (*name, table.unreadable_bytes()));
        let unreadable: Vec<_> = tables.chain([("records.raw", of_records)]).collect();
        let torn = unreadable.iter().filter(|(_, bytes)| *bytes > 0);
        let torn: Vec<_> = torn.map(|(name, _)| *name).collect();
        let is_of_ring =
            !segments.is_empty() || records.as_ref().is_some_and(RecordFile::is_of_ring);
        if self.meta.state == RecordingState::Finished && is_of_ring && torn.is_empty() {
            // A dump and a sealed segment are complete as they are.
            return Completeness::Finished;
        }
        let bytes = unreadable.iter().map(|(_, bytes)| *bytes);
        let mut why = match self.meta.state {
            RecordingState::Recording => {
                "the recording goes on, or its recorder was killed".to_owned()
            }
            RecordingState::Finished | RecordingState::StoppedEarly => {
                "the recorder ended before the trace was in its final form".to_owned()
            }
        };
        if !torn.is_empty() {
            why += &format!("; the end of {} cannot be read", torn.join(", "));
        }
        Completeness::Unfinished {
            why,
            // A crafted list can name a chunk at the end of 64 bits.
            unreadable_bytes: bytes.fold(0, u64::saturating_add),
        }
    }

    /// Number of rows of `switch` at level `os`.
    pub fn row_count(&self) -> u64 {
        let all = match &self.files {
            Files::Finished(tables) => named(tables, schema::SWITCH.name).rows(),
            Files::Recorded { order, .. } => order.rows,
        };
        all.saturating_sub(self.user_row_count())
    }

    /// Number of rows of `switch` at level `user`.
    pub fn user_row_count(&self) -> u64 {
        match &self.files {
            Files::Finished(_) => self.meta.user.as_ref().map_or(0, |user| user.stored),
            Files::Recorded { user_rows, .. } => *user_rows,
        }
    }

    /// Size of all tables on disk, in bytes.
    pub fn bytes(&self) -> u64 {
        if let Some((_, bytes)) = self.copied {
            return bytes;
        }
        match &self.files {
            Files::Finished(tables) => tables.iter().map(|table| table.1.size()).sum(),
            Files::Recorded {
                tables, records, ..
            } => {
                let of_records = records.as_ref().map_or(0, RecordFile::size);
                tables.iter().map(|table| table.1.size()).sum::<u64>() + of_records
            }
        }
    }

    /// Calls `row` for each switch of the kernel, in order of time. Only `columns` are decoded; the
    /// other fields hold their "not known" value. With a `span`, only rows from its first moment to
    /// its second are read, both included.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`], [`Error::Decode`] or [`Error::NewerWord`] at the batch concerned; rows
    /// before it have already been passed to `row`.
    pub fn scan(
        &self,
        columns: Columns,
        span: Option<(Timestamp, Timestamp)>,
        row: &mut dyn FnMut(&Switch),
    ) -> Result<(), Error> {
        let first = &mut |rows: &[Switch]| every_row(rows, &mut *row);
        self.scan_together(&[Level::Os], columns, span, first, Vec::new())
    }

    /// As [`Self::scan`], with the switches of user-mode schedulers among them. [`Switch::level`],
    /// which is in [`Columns::LEVEL`], says which level a row is of.
    ///
    /// # Errors
    ///
    /// As [`Self::scan`].
    pub fn scan_levels(
        &self,
        columns: Columns,
        span: Option<(Timestamp, Timestamp)>,
        row: &mut dyn FnMut(&Switch),
    ) -> Result<(), Error> {
        let first = &mut |rows: &[Switch]| every_row(rows, &mut *row);
        self.scan_together(Level::ALL, columns, span, first, Vec::new())
    }

    /// As [`Self::scan`], with the rows of these levels and for several readers: one pass over the
    /// trace hands every row to each of them, in order of time, many rows at a time. `first` is
    /// called on this thread, each of `further` on a thread of its own. The pass ends early when `first`
    /// breaks.
    ///
    /// # Errors
    ///
    /// As [`Self::scan`].
    pub fn scan_together(
        &self,
        levels: &[Level],
        columns: Columns,
        span: Option<(Timestamp, Timestamp)>,
        first: &mut dyn FnMut(&[Switch]) -> ControlFlow<()>,
        further: Vec<PieceReader<'_>>,
    ) -> Result<(), Error> {
        let mut columns = columns;
        if span.is_some() {
            columns = columns | Columns::TS;
        }
        let mut judged = self.judges_otherwise().then(JudgedWaits::default);
        if judged.is_some() {
            columns = needed_to_judge(columns);
        }
        let has_others = levels.len() < Level::ALL.len() && self.user_row_count() > 0;
        if has_others {
            columns = columns | Columns::LEVEL;
        }
        let is_in_span = |switch: &Switch| {
            span.is_none_or(|(since, until)| since <= switch.ts && switch.ts <= until)
        };
        let is_of_levels = |switch: &Switch| !has_others || levels.contains(&switch.level);
        let make = |batch: &RecordBatch, rows: &mut Vec<Switch>| {
            self.decode(&schema::SWITCH, batch, rows)?;
            if let Some(judged) = &mut judged {
                judged.judge(rows);
            }
            if span.is_some() || has_others {
                rows.retain(|row| is_in_span(row) && is_of_levels(row));
            }
            Ok(())
        };
        scan::scan(|| self.switch_batches(columns, span), make, first, further)
    }

    /// Returns true if the rules of today give another reason to rows of this trace.
    const fn judges_otherwise(&self) -> bool {
        self.meta.rules_version < JUDGED_AS_TODAY
    }

    fn switch_batches(
        &self,
        columns: Columns,
        span: Option<(Timestamp, Timestamp)>,
    ) -> Result<Batches<'_>, Error> {
        let mut names: Vec<_> = columns.names().collect();
        match &self.files {
            Files::Finished(tables) => {
                let table = named(tables, schema::SWITCH.name);
                Ok(Box::new(table.batches(Some(&names), span)))
            }
            Files::Recorded { tables, order, .. } => {
                if !columns.has(Columns::TS) {
                    names.push(TIME);
                }
                let table = named(tables, schema::SWITCH.name);
                let batches = table.batches(Some(&names))?;
                Ok(Box::new(order.apply(table.path(), batches)))
            }
        }
    }

    /// Identities of tasks, in the order in which they were recorded.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`], [`Error::Decode`] or [`Error::NewerWord`].
    pub fn tasks(&self) -> Result<Vec<TaskEvent>, Error> {
        self.rows(&schema::TASK)
    }

    /// Times and CPUs in which switches of the kernel were lost.
    ///
    /// # Errors
    ///
    /// As [`Self::tasks`].
    pub fn gaps(&self) -> Result<Vec<Gap>, Error> {
        self.gaps_of(Level::Os)
    }

    /// Times and CPUs in which records of one level were lost.
    ///
    /// # Errors
    ///
    /// As [`Self::tasks`].
    pub fn gaps_of(&self, level: Level) -> Result<Vec<Gap>, Error> {
        let mut gaps = self.rows(&schema::GAP)?;
        gaps.retain(|gap| gap.level == level);
        Ok(gaps)
    }

    /// Names of wait types of user-mode schedulers.
    ///
    /// # Errors
    ///
    /// As [`Self::tasks`].
    pub fn wait_types(&self) -> Result<Vec<WaitTypeRow>, Error> {
        self.rows(&schema::WAIT_TYPE)
    }

    /// Waits and runs that were still open when the capture ended.
    ///
    /// # Errors
    ///
    /// As [`Self::tasks`].
    pub fn opens(&self) -> Result<Vec<Open>, Error> {
        let mut opens = self.rows(&schema::OPEN)?;
        let is_of_slice = |open: &Open| open.reason == Some(Reason::Slice);
        if self.judges_otherwise() && opens.iter().any(is_of_slice) {
            let mut judged = JudgedWaits::default();
            self.scan(Columns::OFF_REASON, None, &mut |row| {
                judged.judge(&mut [*row]);
            })?;
            for open in opens.iter_mut().filter(|open| is_of_slice(open)) {
                open.reason = judged.left(open.task).or(open.reason);
            }
        }
        Ok(opens)
    }

    /// Paths of the cgroups that tasks were in.
    ///
    /// # Errors
    ///
    /// As [`Self::tasks`].
    pub fn cgroups(&self) -> Result<Vec<CgroupRow>, Error> {
        self.rows(&schema::CGROUP)
    }

    /// Command lines of processes, in the order in which they were read. Older traces have none.
    ///
    /// # Errors
    ///
    /// As [`Self::tasks`].
    pub fn commands(&self) -> Result<Vec<CommandRow>, Error> {
        self.rows(&schema::COMMAND)
    }

    /// Hands over the workers of runtimes' schedulers, by where they waited at each look. Of a long recording they are
    /// many.
    ///
    /// # Errors
    ///
    /// As [`Self::tasks`].
    pub fn each_worker(&self, take: &mut dyn FnMut(&WaitingWorkersRow)) -> Result<(), Error> {
        self.take_rows(&schema::WORKER, &mut |rows| {
            rows.iter().for_each(&mut *take)
        })
    }

    /// Hands over the spans of threads, about in the order in which they ended. Of a long recording they are many.
    ///
    /// # Errors
    ///
    /// As [`Self::tasks`].
    pub fn each_span(&self, take: &mut dyn FnMut(&SpanRow)) -> Result<(), Error> {
        self.take_rows(&schema::SPAN, &mut |rows| {
            rows.iter().for_each(&mut *take);
        })
    }

    /// All distinct stacks of the trace.
    ///
    /// # Errors
    ///
    /// As [`Self::tasks`].
    pub fn stacks(&self) -> Result<Vec<Stack>, Error> {
        match &self.named {
            Some((stacks, _)) => Ok(stacks.clone()),
            None => self.rows(&schema::STACK),
        }
    }

    /// All distinct frames of the stacks.
    ///
    /// # Errors
    ///
    /// As [`Self::tasks`].
    pub fn frames(&self) -> Result<Vec<Frame>, Error> {
        match &self.named {
            Some((_, frames)) => Ok(frames.clone()),
            None => self.rows(&schema::FRAME),
        }
    }

    /// Shows other stacks and frames than those in the files: the same places with more names. The files stay.
    pub fn show_named(&mut self, stacks: Vec<Stack>, frames: Vec<Frame>) {
        self.named = Some((stacks, frames));
    }

    fn rows<R: Clone>(&self, table: &'static Table<R>) -> Result<Vec<R>, Error> {
        let mut all = Vec::new();
        self.take_rows(table, &mut |rows| all.append(rows))?;
        Ok(all)
    }

    /// Hands over the rows of a table, some at a time.
    fn take_rows<R: Clone>(
        &self,
        table: &'static Table<R>,
        take: &mut dyn FnMut(&mut Vec<R>),
    ) -> Result<(), Error> {
        let batches: Batches<'_> = match &self.files {
            Files::Finished(tables) => match find(tables, table.name) {
                Some(table) => Box::new(table.batches(None, None)),
                None => Box::new(std::iter::empty()),
            },
            Files::Recorded { tables, .. } => match find(tables, table.name) {
                Some(table) => table.batches(None)?,
                None => Box::new(std::iter::empty()),
            },
        };
        let mut rows = Vec::new();
        for batch in batches {
            self.decode(table, &batch?, &mut rows)?;
            take(&mut rows);
            rows.clear();
        }
        if let Files::Recorded { segments, .. } = &self.files {
            for segment in segments {
                take(&mut segment.rows(table)?);
            }
        }
        Ok(())
    }

    fn decode<R: Clone>(
        &self,
        table: &'static Table<R>,
        batch: &RecordBatch,
        rows: &mut Vec<R>,
    ) -> Result<(), Error> {
        decode_batch(&self.path.join(table.name), table, batch, rows)
    }
}

impl Files {
    fn finished(dir: &Directory, list: &Checksums, meta: &Meta) -> Result<Self, Error> {
        if list.odd_lines > 0 {
            let what = "not every line can be understood";
            return Err(Error::damaged(&dir.path().join(CHECKSUMS), what));
        }
        let open = |name| Ok((name, ParquetTable::open(dir, name, list)?));
        let tables: Result<_, Error> = tables_of(meta.format_version).map(open).collect();
        Ok(Self::Finished(tables?))
    }

    fn recorded(
        dir: &Directory,
        list: &Checksums,
        meta: &Meta,
        segments: Vec<Trace>,
    ) -> Result<Self, Error> {
        let open = |name| Ok((name, StreamTable::open(dir, name, list)?));
        let tables: Result<Vec<_>, Error> = tables_of(meta.format_version).map(open).collect();
        let tables = tables?;
        // A recorder that was killed at its very start may not have created all streams. In a later
        // state, missing streams mean that the list of a finished trace was cut.
        if meta.state != RecordingState::Recording
            && tables.iter().any(|table| table.1.is_missing())
        {
            let what = "it lists neither the streams nor the final files";
            return Err(Error::damaged(&dir.path().join(CHECKSUMS), what));
        }
        let switch = named(&tables, schema::SWITCH.name);
        let order = TimeOrder::of(switch.path(), switch.batches(Some(&[TIME]))?)?;
        let user_rows = user_rows(switch)?;
        let records = match RecordFile::chained(segments.iter().filter_map(Trace::records)) {
            Some(chain) => Some(chain),
            None => {
                let records = RecordFile::open(dir, list)?;
                // A ring has no records but those of its segments, so they are those of one of them.
                records.map(|records| records.of_ring_if(meta.ring.is_some()))
            }
        };
        Ok(Self::Recorded {
            tables,
            order,
            user_rows,
            records,
            segments,
        })
    }
}

/// Number of rows of level `user` in a stream.
fn user_rows(switch: &StreamTable) -> Result<u64, Error> {
    let level: Vec<_> = Columns::LEVEL.names().collect();
    let (mut rows, mut count) = (Vec::new(), 0);
    for batch in switch.batches(Some(&level))? {
        decode_batch(switch.path(), &schema::SWITCH, &batch?, &mut rows)?;
        count += rows.iter().filter(|row| row.level == Level::User).count();
    }
    Ok(u64::try_from(count).expect("a length fits 64 bits"))
}

/// Fills `rows` with the rows of `batch`. Rows of an earlier batch may still be in it: each column
/// overwrites its field, and a field without a column is blank in all of them.
/// With what must be read besides, where the rules of today judge otherwise.
fn needed_to_judge(mut columns: Columns) -> Columns {
    if columns.has(Columns::REASON) {
        columns = columns | Columns::RULE;
    }
    if columns.has(Columns::OFF_REASON) {
        columns = columns | Columns::RULE | Columns::TASK | Columns::LEVEL;
    }
    columns
}

fn decode_batch<R: Clone>(
    path: &Path,
    table: &'static Table<R>,
    batch: &RecordBatch,
    rows: &mut Vec<R>,
) -> Result<(), Error> {
    rows.resize(batch.num_rows(), (table.blank)());
    let decoded = table.decode(batch, rows);
    decoded.map_err(|(column, mismatch)| Error::column(path, column, mismatch))
}

fn named<'a, T>(tables: &'a [(&'static str, T)], name: &str) -> &'a T {
    find(tables, name).expect("every table of the schema is opened")
}

/// The table with this name; `None` if the trace is older than the table.
fn find<'a, T>(tables: &'a [(&'static str, T)], name: &str) -> Option<&'a T> {
    let found = tables.iter().find(|table| table.0 == name);
    found.map(|table| &table.1)
}

fn read_file(dir: &Directory, name: &'static str, most_bytes: u64) -> Result<Vec<u8>, Error> {
    dir.read_file(name, most_bytes)
        .map_err(|source| match source.kind() {
            ErrorKind::NotFound => not_a_trace(dir.path(), name),
            _ => Error::read(&dir.path().join(name), source),
        })
}

fn directory(path: &Path) -> Result<Directory, Error> {
    Directory::open(path).map_err(|source| match source.kind() {
        ErrorKind::NotADirectory => not_a_trace(path, CHECKSUMS),
        _ => Error::read(path, source),
    })
}

fn not_a_trace(path: &Path, missing: &'static str) -> Error {
    Error::NotATrace {
        path: path.to_owned(),
        missing,
    }
}

/// The facts. Their checksum must be one of those listed: while a trace is being finished there are
/// two versions.
fn read_meta(dir: &Directory, list: &Checksums) -> Result<Meta, Error> {
    let json = read_file(dir, META, MOST_META_BYTES)?;
    let path = dir.path().join(META);
    if !list.of_file(META).any(|chunk| chunk.is_of(&json)) {
        let what = "it is not as checksums.csv says it was written";
        return Err(Error::damaged(&path, what));
    }
    Meta::from_json(&path, &json)
}

/// Hands out all of these rows, and goes on.
fn every_row(rows: &[Switch], row: &mut dyn FnMut(&Switch)) -> ControlFlow<()> {
    rows.iter().for_each(row);
    ControlFlow::Continue(())
}

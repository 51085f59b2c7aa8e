//! Writes a trace while it is being recorded.
//!
//! Rows wait in memory until a batch is full or [`Writer::flush`] is called, which the recorder
//! does at least every second. A batch is written first and its line in `checksums.csv` after it,
//! so a kill between the two loses that batch and cannot make a wrong one valid.
//!
//! A recording keeps records instead of rows of `switch`, `task` and `open` ([`Writer::record`]):
//! these tables are written in their final form when it has ended ([`Writer::begin_final`]).
//!
//! After a write has failed, the writer accepts no more rows: rows after a hole would look as if
//! there were no hole. Rows stored before stay, and can still be finished.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use swtch_core::{CgroupId, Frame, Gap, Level, Open, Stack, Switch, TaskEvent};

use crate::checksums::{CHECKSUMS, Checksums, Chunk};
use crate::directory::{Directory, DirectoryState};
use crate::draft;
use crate::error::Error;
use crate::final_tables::FinalTables;
use crate::finish;
use crate::meta::{META, Meta, RecordingState};
use crate::records::{RECORDS, RecordCounts, RecordsWriter, StreamKind};
use crate::rows::{CgroupRow, CommandRow, SpanRow, WaitTypeRow, WaitingWorkersRow};
use crate::schema::{self, Table};
use crate::stream_table::StreamTableWriter;
use crate::trace::Trace;

/// Writes a trace while it is being recorded.
#[derive(Debug)]
pub struct Writer {
    log: Log,
    switches: StreamTableWriter<Switch>,
    tasks: StreamTableWriter<TaskEvent>,
    gaps: StreamTableWriter<Gap>,
    opens: StreamTableWriter<Open>,
    cgroups: StreamTableWriter<CgroupRow>,
    stacks: StreamTableWriter<Stack>,
    frames: StreamTableWriter<Frame>,
    wait_types: StreamTableWriter<WaitTypeRow>,
    commands: StreamTableWriter<CommandRow>,
    workers: StreamTableWriter<WaitingWorkersRow>,
    spans: StreamTableWriter<SpanRow>,
    user_pending: u64,
    user_written: u64,
    /// `None` where rows come, and not records.
    records: Option<RecordsWriter>,
    /// The tables of events, once they are written in their final form.
    final_tables: Option<FinalTables>,
}

/// A chunk of records is written when it holds this many bytes.
const CHUNK_BYTES: usize = 1 << 20;

impl Writer {
    /// Creates the directory `path` and an empty trace in it.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] when the path is taken; [`Error::Write`] when the directory or a file
    /// cannot be created, and then nothing is left behind.
    pub fn create(path: &Path, meta: &Meta) -> Result<Self, Error> {
        Self::create_with(path, |dir| Self::fill(dir, meta))
    }

    /// As [`Self::create`], in a directory that is open.
    pub(crate) fn create_in(above: &Directory, name: &str, meta: &Meta) -> Result<Self, Error> {
        Self::create_in_with(above, name, |dir| Self::fill(dir, meta))
    }

    /// As [`Self::create`], for a recording that keeps records, of which `wire` is the version.
    ///
    /// # Errors
    ///
    /// As [`Self::create`].
    pub fn create_for_records(path: &Path, meta: &Meta, wire: u32) -> Result<Self, Error> {
        Self::create_with(path, |dir| Self::fill_for_records(dir, meta, wire))
    }

    /// As [`Self::create_for_records`], in a directory that is open.
    pub(crate) fn create_for_records_in(
        above: &Directory,
        name: &str,
        meta: &Meta,
        wire: u32,
    ) -> Result<Self, Error> {
        Self::create_in_with(above, name, |dir| Self::fill_for_records(dir, meta, wire))
    }

    fn fill_for_records(dir: &Directory, meta: &Meta, wire: u32) -> Result<Self, Error> {
        let mut writer = Self::fill(dir, meta)?;
        let (records, header) = RecordsWriter::create(dir, wire)?;
        writer.log.add(RECORDS, header)?;
        writer.records = Some(records);
        Ok(writer)
    }

    fn create_in_with(
        above: &Directory,
        name: &str,
        fill: impl FnOnce(&Directory) -> Result<Self, Error>,
    ) -> Result<Self, Error> {
        let created = fill(&above.make_in(name)?);
        if created.is_err() {
            // As in `create_with`.
            let _ = above.remove_in(name);
        }
        created
    }

    fn create_with(
        path: &Path,
        fill: impl FnOnce(&Directory) -> Result<Self, Error>,
    ) -> Result<Self, Error> {
        let dir = Directory::make(path)?;
        let created = fill(&dir);
        if created.is_err() {
            // It was just created and is empty. The first error is the one to report.
            let _ = dir.remove();
        }
        created
    }

    fn fill(dir: &Directory, meta: &Meta) -> Result<Self, Error> {
        let mut log = Log::create(dir, meta)?;
        Ok(Self {
            switches: log.begin(&schema::SWITCH)?,
            tasks: log.begin(&schema::TASK)?,
            gaps: log.begin(&schema::GAP)?,
            opens: log.begin(&schema::OPEN)?,
            cgroups: log.begin(&schema::CGROUP)?,
            stacks: log.begin(&schema::STACK)?,
            frames: log.begin(&schema::FRAME)?,
            wait_types: log.begin(&schema::WAIT_TYPE)?,
            commands: log.begin(&schema::COMMAND)?,
            workers: log.begin(&schema::WORKER)?,
            spans: log.begin(&schema::SPAN)?,
            user_pending: 0,
            user_written: 0,
            records: None,
            final_tables: None,
            log,
        })
    }

    /// Adds whole records of a stream, as their source wrote them and in order of time.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when these records made a chunk full.
    ///
    /// # Panics
    ///
    /// When the trace was not created for records.
    pub fn record(
        &mut self,
        kind: StreamKind,
        stream: usize,
        count: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let records = self.records.as_mut().expect("created for records");
        if self.log.has_failed {
            records.drop_records(kind, count);
            return self.log.check();
        }
        records.push(kind, stream, count, bytes);
        if records.packed_bytes() >= CHUNK_BYTES {
            // With all streams in it: a switch without the record that names its task says little.
            let written = records.write_pending();
            self.log.add_chunk(RECORDS, written)?;
        }
        Ok(())
    }

    /// From now on, rows of `switch`, `task` and `open` are written in their final form. They must
    /// come of the records, which stay until [`Self::finish`]: should this program be killed, or a
    /// write fail, they are still the trace.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] when a thread cannot be started.
    pub fn begin_final(&mut self) -> Result<(), Error> {
        self.final_tables = Some(FinalTables::begin(&self.log.dir)?);
        Ok(())
    }

    /// Number of records that could not be written. Right once all was flushed.
    pub fn records_not_written(&self) -> RecordCounts {
        let records = self.records.as_ref();
        records.map_or_else(RecordCounts::default, RecordsWriter::not_written)
    }

    /// Adds a row to the table `switch`.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_switch(&mut self, row: &Switch) -> Result<(), Error> {
        if let Some(tables) = &mut self.final_tables {
            tables.push_switch(row);
            return Ok(());
        }
        self.user_pending += u64::from(row.level == Level::User);
        let pushed = self.log.push(&mut self.switches, *row);
        self.settle_user_rows(pushed.is_ok());
        pushed
    }

    /// Counts the pending rows of level `user` as written, or drops them from the count.
    fn settle_user_rows(&mut self, is_written: bool) {
        if self.switches.pending_rows() == 0 {
            let pending = std::mem::take(&mut self.user_pending);
            self.user_written += if is_written { pending } else { 0 };
        }
    }

    /// Adds a change of a task's identity.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_task(&mut self, row: &TaskEvent) -> Result<(), Error> {
        if let Some(tables) = &mut self.final_tables {
            tables.push_task(row);
            return Ok(());
        }
        self.log.push(&mut self.tasks, row.clone())
    }

    /// Adds a gap in which records were lost.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_gap(&mut self, row: &Gap) -> Result<(), Error> {
        self.log.push(&mut self.gaps, *row)
    }

    /// Adds a wait or run that is open at the end.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_open(&mut self, row: &Open) -> Result<(), Error> {
        if let Some(tables) = &mut self.final_tables {
            tables.push_open(row);
            return Ok(());
        }
        self.log.push(&mut self.opens, *row)
    }

    /// Adds the path of a cgroup.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_cgroup(&mut self, cgroup: CgroupId, path: &str) -> Result<(), Error> {
        let path = path.to_owned();
        self.log.push(&mut self.cgroups, CgroupRow { cgroup, path })
    }

    /// Adds a stack, whose frames are added apart from it.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_stack(&mut self, row: &Stack) -> Result<(), Error> {
        self.log.push(&mut self.stacks, row.clone())
    }

    /// Adds a frame, which stacks name by number.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_frame(&mut self, row: &Frame) -> Result<(), Error> {
        self.log.push(&mut self.frames, row.clone())
    }

    /// Adds the name of a wait type.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_wait_type(&mut self, row: &WaitTypeRow) -> Result<(), Error> {
        self.log.push(&mut self.wait_types, row.clone())
    }

    /// Adds the command line of a process.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_command(&mut self, row: &CommandRow) -> Result<(), Error> {
        self.log.push(&mut self.commands, row.clone())
    }

    /// Adds workers of a runtime's scheduler.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_worker(&mut self, row: &WaitingWorkersRow) -> Result<(), Error> {
        self.log.push(&mut self.workers, row.clone())
    }

    /// Adds a span of a thread.
    ///
    /// # Errors
    ///
    /// As [`Self::flush`], when this row made a batch full.
    pub fn push_span(&mut self, row: &SpanRow) -> Result<(), Error> {
        self.log.push(&mut self.spans, row.clone())
    }

    /// Writes all pending rows. After that, they survive the end of this process.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] when the system accepts no more data (a full disk); [`Error::Stopped`] when
    /// that happened before.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.log.check()?;
        if let Some(records) = &mut self.records {
            let written = records.write_pending();
            self.log.add_chunk(RECORDS, written)?;
        }
        self.log.flush(&mut self.tasks)?;
        let flushed = self.log.flush(&mut self.switches);
        self.settle_user_rows(flushed.is_ok());
        flushed?;
        self.log.flush(&mut self.gaps)?;
        self.log.flush(&mut self.opens)?;
        self.log.flush(&mut self.cgroups)?;
        self.log.flush(&mut self.stacks)?;
        self.log.flush(&mut self.frames)?;
        self.log.flush(&mut self.wait_types)?;
        self.log.flush(&mut self.commands)?;
        self.log.flush(&mut self.workers)?;
        self.log.flush(&mut self.spans)
    }

    /// The directory of the trace.
    pub const fn directory(&self) -> &Directory {
        &self.log.dir
    }

    /// Checks whether the trace was removed meanwhile. Without this check a recorder would write to
    /// the end into files that no longer have a name. If it was removed, no more rows are accepted.
    ///
    /// # Errors
    ///
    /// [`Error::Removed`] when the directory or the list of its files was removed.
    pub fn check_that_it_is_there(&mut self) -> Result<(), Error> {
        let there = self.log.check_that_it_is_there();
        self.log.has_failed |= there.is_err();
        there
    }

    /// Number of bytes written so far.
    pub const fn bytes_written(&self) -> u64 {
        self.log.bytes_written
    }

    /// Number of kernel switches written so far, which a reader would find.
    pub fn switches_written(&self) -> u64 {
        match &self.final_tables {
            Some(tables) => tables.os_rows(),
            None => self.switches.rows_written() - self.user_written,
        }
    }

    /// Number of switches of user-mode schedulers written so far.
    pub fn user_switches_written(&self) -> u64 {
        let tables = self.final_tables.as_ref();
        tables.map_or(self.user_written, FinalTables::user_rows)
    }

    /// Removes the trace, for a recording that failed.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] when the system cannot remove it.
    pub fn discard(self) -> Result<(), Error> {
        let dir = &self.log.dir;
        dir.remove().map_err(|err| Error::write(dir.path(), err))
    }

    /// Opens the trace as it was recorded so far, to read its records.
    ///
    /// # Errors
    ///
    /// As [`Trace::open_recorded`].
    pub fn to_trace(&self) -> Result<Trace, Error> {
        Trace::open_recorded_in(&self.log.dir)
    }

    /// Ends the recording: writes pending rows and turns the streams into Parquet. `progress` gets
    /// the number of rows done and of all rows.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] when there is no space for the final files. The trace then stays as it was
    /// recorded, and readable. [`Error::Removed`] when it was removed, and then nothing is written.
    pub fn finish(mut self, meta: &Meta, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        self.log.check_that_it_is_there()?;
        if self.log.check().is_ok() {
            self.flush()?;
        }
        let mut meta = meta.clone();
        if meta.state == RecordingState::Recording {
            meta.state = RecordingState::Finished;
        }
        self.finish_as(&meta, progress)
    }

    /// Ends a trace that stays as it was recorded: nothing is left to do but its facts. It is a segment
    /// of a ring, or a dump, whose rows are those of its segments.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] when there is no space for them. The facts are the old ones then.
    pub fn seal(&self, meta: &Meta) -> Result<(), Error> {
        let json = meta.to_json(&self.log.dir.path().join(META))?;
        finish::put_facts(&self.log.dir, &self.log.checksums, &json)
    }

    /// As [`Self::finish`], for a trace of the rows of another one, whose state it keeps.
    ///
    /// # Errors
    ///
    /// As [`Self::finish`].
    pub fn finish_copy(mut self, meta: &Meta) -> Result<(), Error> {
        self.flush()?;
        self.finish_as(meta, &mut |_, _| ())
    }

    fn finish_as(self, meta: &Meta, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
        let mut meta = meta.clone();
        if self.user_switches_written() > 0 {
            meta.user.get_or_insert_default().stored = self.user_switches_written();
        }
        let tables = self.final_tables.map(FinalTables::end);
        finish::finish(&self.log.dir, &self.log.checksums, &meta, tables, progress)
    }
}

/// The list of what was written, in memory and in `checksums.csv`.
#[derive(Debug)]
struct Log {
    dir: Directory,
    file: File,
    checksums: Checksums,
    bytes_written: u64,
    has_failed: bool,
}

impl Log {
    fn create(dir: &Directory, meta: &Meta) -> Result<Self, Error> {
        let mut meta = meta.clone();
        meta.state = RecordingState::Recording;
        let json = meta.to_json(&dir.path().join(META))?;
        let mut checksums = Checksums::default();
        checksums.add(META, Chunk::of(0, &json));
        let csv = checksums.to_csv();
        // The list makes the directory a trace, so a reader that finds it must find what it lists.
        draft::replace(dir, META, &json)?;
        draft::replace(dir, CHECKSUMS, csv.as_bytes())?;
        let file = dir.append_to_file(CHECKSUMS);
        Ok(Self {
            dir: dir.clone(),
            file: file.map_err(|err| Error::write(&dir.path().join(CHECKSUMS), err))?,
            checksums,
            bytes_written: length(json.len()) + length(csv.len()),
            has_failed: false,
        })
    }

    fn begin<R>(&mut self, table: &'static Table<R>) -> Result<StreamTableWriter<R>, Error> {
        let (stream, chunk) = StreamTableWriter::create(&self.dir, table)?;
        self.add(&stream.name(), chunk)?;
        Ok(stream)
    }

    fn check_that_it_is_there(&self) -> Result<(), Error> {
        let list_is_gone = || self.file.metadata().is_ok_and(|list| list.nlink() == 0);
        if self.dir.state() == DirectoryState::Removed || list_is_gone() {
            return Err(Error::Removed {
                path: self.dir.path().to_owned(),
            });
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        if self.has_failed {
            return Err(Error::Stopped {
                path: self.dir.path().to_owned(),
            });
        }
        Ok(())
    }

    fn push<R>(&mut self, stream: &mut StreamTableWriter<R>, row: R) -> Result<(), Error> {
        self.check()?;
        if stream.push(row) {
            self.flush(stream)?;
        }
        Ok(())
    }

    fn flush<R>(&mut self, stream: &mut StreamTableWriter<R>) -> Result<(), Error> {
        if stream.pending_rows() == 0 {
            return Ok(());
        }
        let written = stream.write_pending();
        let written = written.and_then(|chunk| self.add(&stream.name(), chunk));
        if written.is_err() {
            self.has_failed = true;
        }
        written
    }

    /// Lists a chunk, if there was one to write.
    fn add_chunk(
        &mut self,
        file: &str,
        written: Result<Option<Chunk>, Error>,
    ) -> Result<(), Error> {
        let added = match written {
            Ok(None) => Ok(()),
            Ok(Some(chunk)) => self.add(file, chunk),
            Err(err) => Err(err),
        };
        self.has_failed |= added.is_err();
        added
    }

    fn add(&mut self, file: &str, chunk: Chunk) -> Result<(), Error> {
        let line = chunk.line(file);
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|err| Error::write(&self.dir.path().join(CHECKSUMS), err))?;
        self.checksums.add(file, chunk);
        self.bytes_written += chunk.length + length(line.len());
        Ok(())
    }
}

fn length(count: usize) -> u64 {
    u64::try_from(count).expect("a length fits 64 bits")
}

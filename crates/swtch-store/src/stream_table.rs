//! A table while it is recorded: one Arrow IPC stream.
//!
//! Each batch is encoded in memory and written to the file at once, so no data stays in the process
//! after a flush. The kernel's page cache survives the death of the recorder. A power cut loses
//! what the kernel had not yet written, because a flush does not call `fsync`.
//!
//! The first chunk holds the schema and all word lists; later chunks need no other.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};
use parquet::file::reader::Length;

use crate::checked_file::{CheckedFile, CheckedReader};
use crate::checksums::{Checksums, Chunk};
use crate::contain::{ContainedIter, contained};
use crate::directory::Directory;
use crate::error::Error;
use crate::schema::Table;

/// Number of rows in a full batch. Rows wait in memory until the batch is full or flushed.
const BATCH_ROWS: usize = 8192;

/// File name of a table's stream.
pub(crate) fn stream_name(table: &str) -> String {
    format!("{table}.arrows")
}

/// A table that is being recorded.
pub(crate) struct StreamTableWriter<R: 'static> {
    table: &'static Table<R>,
    schema: SchemaRef,
    path: PathBuf,
    file: File,
    encoder: StreamWriter<Vec<u8>>,
    pending: Vec<R>,
    size: u64,
    rows_written: u64,
}

impl<R> fmt::Debug for StreamTableWriter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamTableWriter")
            .field("path", &self.path)
            .field("pending_rows", &self.pending_rows())
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl<R> StreamTableWriter<R> {
    /// Creates the stream's file with the schema and the word lists, which are the first chunk.
    pub(crate) fn create(
        dir: &Directory,
        table: &'static Table<R>,
    ) -> Result<(Self, Chunk), Error> {
        let name = stream_name(table.name);
        let path = dir.path().join(&name);
        let file = dir.create_file(&name);
        let file = file.map_err(|err| Error::write(&path, err))?;
        let schema = table.arrow();
        let encoder = StreamWriter::try_new(Vec::new(), &schema);
        let encoder = encoder.map_err(|err| Error::encode(&path, err))?;
        let mut stream = Self {
            table,
            schema,
            path,
            file,
            encoder,
            pending: Vec::new(),
            size: 0,
            rows_written: 0,
        };
        let first = stream.write_pending()?;
        Ok((stream, first))
    }

    /// File name of the stream.
    pub(crate) fn name(&self) -> String {
        stream_name(self.table.name)
    }

    /// Adds a row to the pending ones; true if they make a full batch.
    pub(crate) fn push(&mut self, row: R) -> bool {
        self.pending.push(row);
        self.pending.len() >= BATCH_ROWS
    }

    pub(crate) fn pending_rows(&self) -> usize {
        self.pending.len()
    }

    /// Number of rows in the file.
    pub(crate) const fn rows_written(&self) -> u64 {
        self.rows_written
    }

    /// Writes the pending rows as one batch. They are dropped even if the write fails.
    pub(crate) fn write_pending(&mut self) -> Result<Chunk, Error> {
        let rows = u64::try_from(self.pending.len()).expect("a length fits 64 bits");
        let batch = self.table.encode(&self.schema, &self.pending);
        self.pending.clear();
        let encoded = self.encoder.write(&batch);
        encoded.map_err(|err| Error::encode(&self.path, err))?;
        let bytes = self.encoder.get_mut();
        let chunk = Chunk::of(self.size, bytes);
        let written = self.file.write_all(bytes);
        bytes.clear();
        if let Err(err) = written {
            self.cut_torn_end();
            return Err(Error::write(&self.path, err));
        }
        self.size = chunk.end();
        self.rows_written += rows;
        Ok(chunk)
    }

    /// Frees the space of a half-written batch on a full disk: the finished trace, which is a tenth
    /// as large, often fits there.
    fn cut_torn_end(&self) {
        // If it cannot be cut, a reader ignores it.
        let _ = self.file.set_len(self.size);
    }
}

/// The batches of a stream.
pub(crate) type StreamBatches = Box<dyn Iterator<Item = Result<RecordBatch, Error>> + Send>;

/// A table that was or is being recorded: the intact part of its stream.
#[derive(Debug)]
pub(crate) struct StreamTable {
    file: Option<CheckedFile>,
}

impl StreamTable {
    /// Opens the stream of a table. A stream that was never begun is an empty table.
    pub(crate) fn open(dir: &Directory, table: &str, list: &Checksums) -> Result<Self, Error> {
        let name = stream_name(table);
        let is_listed = list.of_file(&name).next().is_some();
        let file = match CheckedFile::open(dir, &name, list) {
            Ok(file) => Some(file.intact_prefix()?),
            Err(Error::Read { source, .. })
                if source.kind() == ErrorKind::NotFound && !is_listed =>
            {
                None
            }
            Err(err) => return Err(err),
        };
        Ok(Self { file })
    }

    /// Returns true if the stream was never begun.
    pub(crate) const fn is_missing(&self) -> bool {
        self.file.is_none()
    }

    /// Size of the part that can be read, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.file.as_ref().map_or(0, Length::len)
    }

    /// Path of the stream; empty if it was never begun.
    pub(crate) fn path(&self) -> &Path {
        self.file.as_ref().map_or(Path::new(""), CheckedFile::path)
    }

    /// Number of bytes at its end that are torn or damaged.
    pub(crate) fn unreadable_bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, CheckedFile::unreadable_bytes)
    }

    /// The batches as they were written, with only these `columns` (`None`: all).
    pub(crate) fn batches(&self, columns: Option<&[&str]>) -> Result<StreamBatches, Error> {
        let Some(file) = self.file.as_ref().filter(|file| file.len() > 0) else {
            return Ok(Box::new(std::iter::empty()));
        };
        let reader = contained(|| StreamReader::try_new(file.reader_at(0), None));
        let reader = reader.map_err(|panic| file.explain(panic))?;
        let reader = reader.map_err(|err| file.explain(err))?;
        let project = projection(&reader, columns);
        let batches = reader.map(move |batch| batch.and_then(&project));
        let file = file.clone();
        Ok(Box::new(ContainedIter::new(batches).map(move |batch| {
            let batch = batch.map_err(|panic| file.explain(panic))?;
            batch.map_err(|err| file.explain(err))
        })))
    }
}

type Project = Box<dyn Fn(RecordBatch) -> Result<RecordBatch, ArrowError> + Send>;

/// Keeps the chosen columns of a batch. Columns that an older trace lacks are left out.
fn projection(reader: &StreamReader<CheckedReader>, columns: Option<&[&str]>) -> Project {
    let Some(columns) = columns else {
        return Box::new(Ok);
    };
    let schema = reader.schema();
    let places = columns.iter().filter_map(|name| schema.index_of(name).ok());
    let places: Vec<usize> = places.collect();
    Box::new(move |batch| batch.project(&places))
}

//! A table that is written in its final form at once, as rows come: what a recording does with its
//! records after the end.
//!
//! ```text
//! push ─▶ pending rows ─a batch─▶ thread ─▶ draft of TABLE.parquet
//! ```
//!
//! Compression takes most of the time, so a thread of its own does it. A failed write does not stop
//! who pushes rows, since they are counted; [`FinalTable::end`] reports it.

use std::fmt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::checksums::Chunk;
use crate::contain::contained;
use crate::directory::Directory;
use crate::error::Error;
use crate::parquet_table;
use crate::schema::Table;

/// Number of rows in a batch.
const BATCH_ROWS: usize = 8192;

/// Batches that wait for the thread.
const BATCHES_AHEAD: usize = 4;

/// A table of a finished trace, while its rows come.
pub(crate) struct FinalTable<R: 'static> {
    table: &'static Table<R>,
    schema: SchemaRef,
    /// The rows of the next batch, and after them those of the one that follows.
    pending: Vec<R>,
    /// Takes batches, and `None` after the last one. It is gone once the thread has failed.
    sender: Option<SyncSender<Option<RecordBatch>>>,
    thread: JoinHandle<Result<Vec<Chunk>, Error>>,
}

impl<R> fmt::Debug for FinalTable<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FinalTable")
            .field("table", &self.table.name)
            .finish_non_exhaustive()
    }
}

impl<R> FinalTable<R> {
    /// Begins the file of a table, under `name`.
    pub(crate) fn begin(
        dir: &Directory,
        table: &'static Table<R>,
        name: &str,
    ) -> Result<Self, Error> {
        let schema = table.arrow();
        let (sender, receiver) = sync_channel::<Option<RecordBatch>>(BATCHES_AHEAD);
        let write = {
            let (dir, schema, name) = (dir.clone(), schema.clone(), name.to_owned());
            move || {
                let batches = std::iter::from_fn(|| match receiver.recv() {
                    Ok(batch) => batch.map(Ok),
                    // Whoever pushes rows has given up: the file must not get its name.
                    Err(_) => Some(Err(Error::Stopped {
                        path: dir.path().to_owned(),
                    })),
                });
                // An encoder panics when there is no memory for it.
                let written =
                    contained(|| parquet_table::write_table(&dir, &name, schema, batches, |_| ()));
                written.unwrap_or_else(|panic| Err(Error::encode(&dir.path().join(name), panic)))
            }
        };
        let thread = thread::Builder::new()
            .name(format!("swtch-{}", table.name))
            .spawn(write)
            .map_err(|err| Error::write(&dir.path().join(table.name), err))?;
        Ok(Self {
            table,
            schema,
            pending: Vec::with_capacity(2 * BATCH_ROWS),
            sender: Some(sender),
            thread,
        })
    }

    /// Adds a row after all others.
    pub(crate) fn push(&mut self, row: R) {
        self.insert(self.pending.len(), row);
    }

    /// The last rows, which are not passed on yet: a row can be put between them.
    pub(crate) fn pending(&self) -> &[R] {
        &self.pending
    }

    /// Adds a row before the pending one at `place`.
    pub(crate) fn insert(&mut self, place: usize, row: R) {
        self.pending.insert(place, row);
        if self.pending.len() >= 2 * BATCH_ROWS {
            self.send(BATCH_ROWS);
        }
    }

    fn send(&mut self, rows: usize) {
        let batch = self.table.encode(&self.schema, &self.pending[..rows]);
        self.pending.drain(..rows);
        self.pass_on(Some(batch));
    }

    fn pass_on(&mut self, batch: Option<RecordBatch>) {
        // The thread has ended early if it failed; `end` says why.
        if self
            .sender
            .as_ref()
            .is_some_and(|to| to.send(batch).is_err())
        {
            self.sender = None;
        }
    }

    /// Writes what is pending, and gives the file its name. Returns the checksums of its parts.
    pub(crate) fn end(mut self) -> Result<Vec<Chunk>, Error> {
        while !self.pending.is_empty() {
            self.send(self.pending.len().min(BATCH_ROWS));
        }
        self.pass_on(None);
        match self.thread.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

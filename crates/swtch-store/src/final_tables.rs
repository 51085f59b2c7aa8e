//! The tables that come of events, written in their final form: `switch`, `task` and `open`.
//!
//! Rows of `switch` come in order of time, but for a few: a switch of a user-mode scheduler waits up
//! to a second until the CPU of its thread is known. A row that is a little late is put in its place
//! among those that are not passed on yet. One that is later than that is kept aside, and the table
//! is written once more with it: both passes are in order, and memory holds only the late rows.

use swtch_core::{Level, Open, Switch, TaskEvent};

use crate::checksums::{Checksums, Chunk};
use crate::directory::Directory;
use crate::error::Error;
use crate::final_table::FinalTable;
use crate::parquet_table::{ParquetTable, parquet_name};
use crate::schema;

/// Name under which `switch` is written when rows of it were too late.
const WITH_LATE_ROWS: &str = "switch.again";

/// The tables that events become.
#[derive(Debug)]
pub(crate) struct FinalTables {
    dir: Directory,
    switches: FinalTable<Switch>,
    tasks: FinalTable<TaskEvent>,
    opens: FinalTable<Open>,
    late: Vec<Switch>,
    os_rows: u64,
    user_rows: u64,
}

impl FinalTables {
    pub(crate) fn begin(dir: &Directory) -> Result<Self, Error> {
        Ok(Self {
            switches: FinalTable::begin(dir, &schema::SWITCH, schema::SWITCH.name)?,
            tasks: FinalTable::begin(dir, &schema::TASK, schema::TASK.name)?,
            opens: FinalTable::begin(dir, &schema::OPEN, schema::OPEN.name)?,
            dir: dir.clone(),
            late: Vec::new(),
            os_rows: 0,
            user_rows: 0,
        })
    }

    pub(crate) fn push_switch(&mut self, row: &Switch) {
        match row.level {
            Level::Os => self.os_rows += 1,
            Level::User => self.user_rows += 1,
        }
        let pending = self.switches.pending();
        match pending.last() {
            Some(last) if row.ts < last.ts => {
                let place = pending.partition_point(|earlier| earlier.ts <= row.ts);
                // Rows before the first pending one may be written already.
                if place == 0 {
                    self.late.push(*row);
                } else {
                    self.switches.insert(place, *row);
                }
            }
            _ => self.switches.push(*row),
        }
    }

    pub(crate) fn push_task(&mut self, row: &TaskEvent) {
        self.tasks.push(row.clone());
    }

    pub(crate) fn push_open(&mut self, row: &Open) {
        self.opens.push(*row);
    }

    /// Rows of `switch` at level `os` so far.
    pub(crate) const fn os_rows(&self) -> u64 {
        self.os_rows
    }

    /// Rows of `switch` at level `user` so far.
    pub(crate) const fn user_rows(&self) -> u64 {
        self.user_rows
    }

    /// Ends the files. Returns the checksums of the parts of each table.
    pub(crate) fn end(self) -> Result<Vec<(&'static str, Vec<Chunk>)>, Error> {
        let mut late = self.late;
        let mut switches = self.switches.end()?;
        if !late.is_empty() {
            late.sort_by_key(|row| row.ts);
            switches = with_late_rows(&self.dir, &switches, &late)?;
        }
        Ok(vec![
            (schema::SWITCH.name, switches),
            (schema::TASK.name, self.tasks.end()?),
            (schema::OPEN.name, self.opens.end()?),
        ])
    }
}

/// Writes `switch` again, with `late` rows at their places.
fn with_late_rows(dir: &Directory, chunks: &[Chunk], late: &[Switch]) -> Result<Vec<Chunk>, Error> {
    let (name, again) = (
        parquet_name(schema::SWITCH.name),
        parquet_name(WITH_LATE_ROWS),
    );
    let mut list = Checksums::default();
    for chunk in chunks {
        list.add(&name, *chunk);
    }
    let written = ParquetTable::open(dir, schema::SWITCH.name, &list)?;
    let mut table = FinalTable::begin(dir, &schema::SWITCH, WITH_LATE_ROWS)?;
    let mut late = late.iter().peekable();
    let mut rows = Vec::new();
    for batch in written.batches(None, None) {
        let batch = batch?;
        rows.resize(batch.num_rows(), (schema::SWITCH.blank)());
        let decoded = schema::SWITCH.decode(&batch, &mut rows);
        let path = dir.path().join(&name);
        decoded.map_err(|(column, mismatch)| Error::column(&path, column, mismatch))?;
        for row in &rows {
            while let Some(earlier) = late.next_if(|late| late.ts < row.ts) {
                table.push(*earlier);
            }
            table.push(*row);
        }
    }
    late.for_each(|row| table.push(*row));
    let chunks = table.end()?;
    let renamed = dir.rename_file(&again, &name);
    renamed.map_err(|err| Error::write(&dir.path().join(&name), err))?;
    Ok(chunks)
}

//! Turns the streams of a recording into the Parquet files of a finished trace.
//!
//! A kill at any moment leaves a trace that can be read: the streams stay until everything else is
//! on the disk, and one rename decides which files belong to the trace.
//!
//! ```text
//! 1  switch.parquet, …   written beside the streams, each under its name when whole
//! 2  checksums.csv       still lists the streams, and both the old and the new meta.json
//! 3  meta.json           the new one
//! 4  checksums.csv       lists the Parquet files: from here on the trace is finished
//! 5  switch.arrows, …    removed, and records.raw or segments/
//! ```

use arrow_schema::SchemaRef;

use crate::checksums::{CHECKSUMS, Checksums, Chunk};
use crate::directory::Directory;
use crate::draft;
use crate::error::Error;
use crate::meta::{META, Meta};
use crate::order::TimeOrder;
use crate::parquet_table;
use crate::records::RECORDS;
use crate::schema;
use crate::segments;
use crate::stream_table::{StreamTable, stream_name};

/// Tables in their final form, each with the checksums of its parts.
pub(crate) type FinalChunks = Vec<(&'static str, Vec<Chunk>)>;

/// Finishes the trace in `dir` whose streams are listed in `recorded`. The tables in `written` are
/// in their final form already, or could not be written.
pub(crate) fn finish(
    dir: &Directory,
    recorded: &Checksums,
    meta: &Meta,
    written: Option<Result<FinalChunks, Error>>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let json = meta.to_json(&dir.path().join(META))?;
    let mut finished = Checksums::default();
    finished.add(META, Chunk::of(0, &json));
    let written = written.unwrap_or_else(|| Ok(Vec::new()));
    let all =
        written.and_then(|tables| write_tables(dir, recorded, tables, &mut finished, progress));
    if let Err(err) = all {
        // The facts are small and may fit where the tables do not: they say why the recording
        // ended.
        let _ = put_facts(dir, recorded, &json);
        return Err(err);
    }
    dir.sync()?;
    put_facts(dir, recorded, &json)?;
    draft::replace(dir, CHECKSUMS, finished.to_csv().as_bytes())?;
    dir.sync()?;
    remove_streams(dir, recorded)
}

fn write_tables(
    dir: &Directory,
    recorded: &Checksums,
    written: FinalChunks,
    finished: &mut Checksums,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    for (table, schema) in tables() {
        if let Some((_, chunks)) = written.iter().find(|(name, _)| *name == table) {
            for chunk in chunks {
                finished.add(&parquet_table::parquet_name(table), *chunk);
            }
            continue;
        }
        let stream = StreamTable::open(dir, table, recorded)?;
        for chunk in write_parquet(dir, table, schema, &stream, progress)? {
            finished.add(&parquet_table::parquet_name(table), chunk);
        }
    }
    Ok(())
}

/// Replaces the facts of a trace that still consists of its streams.
pub(crate) fn put_facts(dir: &Directory, recorded: &Checksums, json: &[u8]) -> Result<(), Error> {
    let mut both = recorded.clone();
    both.add(META, Chunk::of(0, json));
    draft::replace(dir, CHECKSUMS, both.to_csv().as_bytes())?;
    draft::replace(dir, META, json)?;
    dir.sync()
}

/// Name and schema of every table, in the order of `docs/SCHEMA.md`.
pub(crate) fn tables() -> [(&'static str, SchemaRef); 11] {
    [
        (schema::SWITCH.name, schema::SWITCH.arrow()),
        (schema::TASK.name, schema::TASK.arrow()),
        (schema::GAP.name, schema::GAP.arrow()),
        (schema::OPEN.name, schema::OPEN.arrow()),
        (schema::CGROUP.name, schema::CGROUP.arrow()),
        (schema::STACK.name, schema::STACK.arrow()),
        (schema::FRAME.name, schema::FRAME.arrow()),
        (schema::WAIT_TYPE.name, schema::WAIT_TYPE.arrow()),
        (schema::COMMAND.name, schema::COMMAND.arrow()),
        (schema::WORKER.name, schema::WORKER.arrow()),
        (schema::SPAN.name, schema::SPAN.arrow()),
    ]
}

/// Names of the tables that a trace of this format version has; older traces lack later ones.
pub(crate) fn tables_of(format_version: u32) -> impl Iterator<Item = &'static str> {
    let since = |name: &str| match name {
        _ if name == schema::WAIT_TYPE.name => 2,
        _ if name == schema::COMMAND.name => 4,
        _ if name == schema::WORKER.name => 8,
        _ if name == schema::SPAN.name => 9,
        _ => 1,
    };
    let is_there = move |name: &str| format_version >= since(name);
    tables()
        .into_iter()
        .map(|table| table.0)
        .filter(move |name| is_there(name))
}

/// Writes one table as Parquet. Only `switch` is sorted by time, and only its rows are reported as
/// progress.
fn write_parquet(
    dir: &Directory,
    table: &str,
    schema: SchemaRef,
    stream: &StreamTable,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Chunk>, Error> {
    let batches = stream.batches(None)?;
    if table != schema::SWITCH.name {
        return parquet_table::write_table(dir, table, schema, batches, |_| ());
    }
    let order = TimeOrder::of(stream.path(), stream.batches(Some(&["ts_ns"]))?)?;
    let batches = order.apply(stream.path(), batches);
    let mut done = 0;
    parquet_table::write_table(dir, table, schema, batches, |rows| {
        done += u64::try_from(rows).expect("a length fits 64 bits");
        progress(done, order.rows);
    })
}

fn remove_streams(dir: &Directory, recorded: &Checksums) -> Result<(), Error> {
    let records = recorded.of_file(RECORDS).next().map(|_| RECORDS.to_owned());
    let streams = tables().into_iter().map(|(table, _)| stream_name(table));
    for name in streams.chain(records) {
        let removed = dir.remove_file(&name);
        removed.map_err(|err| Error::write(&dir.path().join(&name), err))?;
    }
    segments::remove_all(dir)
}

//! Records of a recording that was cut off: whatever is done to their file, a reader returns the
//! records of each stream, a prefix of them that is announced as such, or a clear error.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Others, at_times, rows, said};
use swtch_store::{Completeness, Error, Meta, RecordingState, StreamKind, Trace, Writer};
use tempfile::TempDir;

const WIRE: u32 = 7;

/// Records of 8 bytes: what they say is nothing to the store.
const RECORD: usize = 8;

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.swtch");
    (dir, path)
}

fn record_bytes(stream: usize, numbers: std::ops::Range<u64>) -> Vec<u8> {
    numbers
        .flat_map(|number| (number << 8 | stream as u64).to_le_bytes())
        .collect()
}

/// Three streams, in five flushes.
fn recorded(path: &Path) -> Writer {
    let mut writer = Writer::create_for_records(path, &Meta::default(), WIRE).unwrap();
    Others::sample().push_to(&mut writer).unwrap();
    for flush in 0..5 {
        for (stream, kind) in [
            (0, StreamKind::Switches),
            (1, StreamKind::Switches),
            (2, StreamKind::Tasks),
        ] {
            let bytes = record_bytes(stream, 10 * flush..10 * flush + 10);
            writer.record(kind, stream, 10, &bytes).unwrap();
        }
        writer.flush().unwrap();
    }
    writer
}

/// The bytes of each stream.
fn read(path: &Path) -> Result<(Vec<Vec<u8>>, bool), Error> {
    let trace = Trace::open_recorded(path)?;
    let is_announced = match trace.completeness() {
        Completeness::Unfinished {
            unreadable_bytes, ..
        } => unreadable_bytes > 0,
        _ => false,
    };
    let Some(records) = trace.records() else {
        return Ok((Vec::new(), is_announced));
    };
    records.require_wire(WIRE..=WIRE)?;
    let mut streams = Vec::new();
    for stream in records.streams() {
        let mut bytes = Vec::new();
        for block in 0..stream.blocks() {
            bytes.extend(stream.block(block)?);
        }
        streams.push(bytes);
    }
    Ok((streams, is_announced))
}

fn whole() -> Vec<Vec<u8>> {
    (0..3).map(|stream| record_bytes(stream, 0..50)).collect()
}

#[test]
fn records_survive_their_file() {
    let (_dir, path) = place();
    drop(recorded(&path));
    assert_eq!(read(&path).unwrap(), (whole(), false));
    let trace = Trace::open_recorded(&path).unwrap();
    assert_eq!(trace.records().unwrap().switches(), 100);
    assert_eq!(Others::of(&trace).unwrap().stacks, Others::sample().stacks);
}

/// A ring that was full is taken at once; a reader must not have to decode all of that at once.
#[test]
fn what_comes_at_once_is_kept_in_several_blocks() {
    let (_dir, path) = place();
    let mut writer = Writer::create_for_records(&path, &Meta::default(), WIRE).unwrap();
    let bytes = record_bytes(1, 0..100_000);
    writer
        .record(StreamKind::Switches, 1, 100_000, &bytes)
        .unwrap();
    writer.flush().unwrap();
    assert_eq!(writer.records_not_written().switches, 0);
    assert_eq!(read(&path).unwrap(), (vec![bytes], false));
    let trace = Trace::open_recorded(&path).unwrap();
    let records = trace.records().unwrap();
    assert_eq!(records.switches(), 100_000);
    let blocks = records.streams()[0].blocks();
    assert!(blocks > 3, "{blocks} blocks");
}

/// A reader that does not decode records must not take the trace for an empty one.
#[test]
fn a_trace_of_records_is_not_taken_for_one_of_rows() {
    let (_dir, path) = place();
    drop(recorded(&path));
    let error = Trace::open(&path).unwrap_err();
    assert!(matches!(error, Error::NotDecoded { .. }), "{error}");
    assert!(error.advice().is_some());
}

#[test]
fn records_of_another_version_are_refused_with_what_to_do() {
    let (_dir, path) = place();
    drop(recorded(&path));
    let trace = Trace::open_recorded(&path).unwrap();
    let records = trace.records().unwrap();
    records.require_wire(WIRE - 1..=WIRE + 1).unwrap();
    records.require_wire(1..=WIRE - 1).unwrap_err();
    let error = records.require_wire(WIRE + 1..=WIRE + 2).unwrap_err();
    assert!(
        error.to_string().contains("records of version 7"),
        "{error}"
    );
    assert!(
        error
            .advice()
            .unwrap()
            .contains("the swtch that recorded it")
    );
}

/// Cut at every byte of the file of records and of the list: every class of bytes is in it.
#[test]
fn a_cut_anywhere_leaves_a_prefix_that_is_announced() {
    let (_dir, path) = place();
    drop(recorded(&path));
    for name in ["records.raw", "checksums.csv"] {
        let file = path.join(name);
        let bytes = fs::read(&file).unwrap();
        let mut most = 0;
        for cut in 0..bytes.len() {
            fs::write(&file, &bytes[..cut]).unwrap();
            most = most.max(assert_prefix(&path, &format!("{name} cut at {cut}")));
        }
        assert!(most >= 4 * 10 * RECORD, "{name}: {most} bytes at most");
        fs::write(&file, &bytes).unwrap();
    }
    assert_eq!(read(&path).unwrap(), (whole(), false));
}

#[test]
fn a_flipped_bit_anywhere_leaves_a_prefix_that_is_announced() {
    let (_dir, path) = place();
    drop(recorded(&path));
    let file = path.join("records.raw");
    let bytes = fs::read(&file).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        fs::write(&file, &damaged).unwrap();
        assert_prefix(&path, &format!("byte {at} flipped"));
    }
}

/// Checks a damaged trace, and returns how many bytes of its first stream can be read.
fn assert_prefix(path: &Path, what: &str) -> usize {
    let Ok((streams, is_announced)) = read(path) else {
        return 0;
    };
    let expected = whole();
    for (read, written) in streams.iter().zip(&expected) {
        assert!(written.starts_with(read), "{what}: other records");
    }
    assert!(
        is_announced || streams == expected,
        "{what}: nothing says so"
    );
    streams.first().map_or(0, Vec::len)
}

/// A recorder that is killed while it makes rows leaves its records; one that ends removes them.
#[test]
fn records_stay_until_the_rows_are_in_place() {
    let (_dir, path) = place();
    let mut writer = recorded(&path);
    writer.begin_final().unwrap();
    let switches = at_times(&[3, 1, 2]);
    switches
        .iter()
        .for_each(|row| writer.push_switch(row).unwrap());
    assert_eq!(read(&path).unwrap(), (whole(), false));
    writer.finish(&Meta::default(), &mut |_, _| ()).unwrap();
    assert!(!path.join("records.raw").exists());
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.meta().state, RecordingState::Finished);
    let times: Vec<_> = rows(&trace)
        .unwrap()
        .iter()
        .map(|row| row.ts.as_ns())
        .collect();
    assert_eq!(times, [1, 2, 3]);
}

/// Rows of user-mode schedulers may come a second late: more rows than wait in memory.
#[test]
fn rows_are_in_order_of_time_however_late_they_come() {
    let (_dir, path) = place();
    let mut writer = recorded(&path);
    writer.begin_final().unwrap();
    let mut times: Vec<u64> = (0..40_000).map(|ns| 2 * ns + 10).collect();
    times.extend([5, 31_001, 77]);
    times.extend((0..20_000).map(|ns| 2 * ns + 100_000));
    times.push(139_000);
    let switches = at_times(&times);
    switches
        .iter()
        .for_each(|row| writer.push_switch(row).unwrap());
    assert_eq!(writer.switches_written(), 60_004);
    writer.finish(&Meta::default(), &mut |_, _| ()).unwrap();
    let read = rows(&Trace::open(&path).unwrap()).unwrap();
    let mut expected = switches;
    expected.sort_by_key(|row| row.ts);
    assert_eq!(read.len(), expected.len());
    assert!(read.iter().map(said).eq(expected.iter().map(said)));
    assert!(!path.join("switch.again.parquet").exists());
}

//! Damaged files and failures: whatever is done to a trace's files, its reader returns the true
//! rows, a prefix of them that is announced as such, or a clear error. Never a panic, never other
//! numbers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{End, Others, messaging, odd_switch, record, rows, said};
use swtch_core::Switch;
use swtch_store::{Completeness, Error, Meta, Trace, Writer};
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.swtch");
    (dir, path)
}

fn switches() -> Vec<Switch> {
    let mut switches: Vec<_> = messaging(9).take(59).collect();
    switches.push(odd_switch(1 << 60));
    switches
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// Checks a trace whose files were changed: it must be a true prefix or an error.
fn assert_true_prefix_or_error(path: &Path, what: &str) {
    let Ok(trace) = Trace::open(path) else {
        return;
    };
    let is_announced = match trace.completeness() {
        Completeness::Unfinished {
            unreadable_bytes, ..
        } => unreadable_bytes > 0,
        _ => false,
    };
    if let Ok(read) = rows(&trace) {
        let written = switches();
        assert!(
            read.len() <= written.len(),
            "{what}: rows came from nowhere"
        );
        assert!(
            read.len() == written.len() || is_announced,
            "{what}: rows are missing and nothing says so"
        );
        let same = read
            .iter()
            .zip(&written)
            .all(|(read, written)| said(read) == said(written));
        assert!(same, "{what}: other numbers");
    }
    if let Ok(others) = Others::of(&trace) {
        assert!(
            others == Others::sample() || is_announced,
            "{what}: other tables differ and nothing says so"
        );
        assert!(is_prefix(&others, &Others::sample()), "{what}: other rows");
    }
}

fn is_prefix(read: &Others, written: &Others) -> bool {
    written.tasks.starts_with(&read.tasks)
        && written.gaps.starts_with(&read.gaps)
        && written.opens.starts_with(&read.opens)
        && written.cgroups.starts_with(&read.cgroups)
        && written.stacks.starts_with(&read.stacks)
        && written.frames.starts_with(&read.frames)
}

/// Positions to try in a file: all in a small one, a dense sample with both ends in a large one.
fn positions(length: usize) -> impl Iterator<Item = usize> {
    let step = (length / 150).max(1);
    (0..length).filter(move |at| at % step == 0 || *at < 64 || at + 64 >= length)
}

fn change_each_file(end: End, change: impl Fn(&[u8], usize) -> Vec<u8>) {
    let (_dir, path) = place();
    record(&path, &switches(), 25, end);
    for file in files(&path) {
        let whole = fs::read(&file).unwrap();
        for at in positions(whole.len()) {
            fs::write(&file, change(&whole, at)).unwrap();
            assert_true_prefix_or_error(&path, &format!("{} at {at}", file.display()));
        }
        fs::write(&file, &whole).unwrap();
    }
    let trace = Trace::open(&path).expect("it is whole again");
    assert_eq!(rows(&trace).unwrap().len(), switches().len());
}

#[test]
fn a_finished_trace_cut_anywhere_is_an_error_or_whole() {
    change_each_file(End::Finished, |whole, at| whole[..at].to_vec());
}

#[test]
fn an_unfinished_trace_cut_anywhere_is_an_error_or_a_prefix() {
    change_each_file(End::Killed, |whole, at| whole[..at].to_vec());
}

#[test]
fn a_finished_trace_with_a_flipped_byte_is_an_error_or_whole() {
    change_each_file(End::Finished, |whole, at| flipped(whole, at, 0xff));
    change_each_file(End::Finished, |whole, at| flipped(whole, at, 1));
}

#[test]
fn an_unfinished_trace_with_a_flipped_byte_is_an_error_or_a_prefix() {
    change_each_file(End::Killed, |whole, at| flipped(whole, at, 0xff));
    change_each_file(End::Killed, |whole, at| flipped(whole, at, 1));
}

fn flipped(whole: &[u8], at: usize, bits: u8) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    bytes[at] ^= bits;
    bytes
}

#[test]
fn a_flipped_byte_in_a_table_is_called_damage() {
    let (_dir, path) = place();
    record(&path, &switches(), 25, End::Finished);
    let file = path.join("switch.parquet");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, flipped(&whole, whole.len() / 2, 4)).unwrap();
    let error = Trace::open(&path)
        .and_then(|trace| rows(&trace))
        .unwrap_err();
    assert!(
        matches!(&error, Error::Damaged { path, .. } if *path == file),
        "{error:?}"
    );
    assert!(error.advice().is_some());
}

/// The state that `kill -9` in the middle of a write leaves.
#[test]
fn a_torn_batch_costs_that_batch_alone() {
    let (_dir, path) = place();
    record(&path, &switches(), 25, End::Killed);
    let file = path.join("switch.arrows");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.row_count(), 50);
    assert_eq!(rows(&trace).unwrap().len(), 50);
    let Completeness::Unfinished { why, .. } = trace.completeness() else {
        panic!("a batch is torn");
    };
    assert!(why.ends_with("the end of switch cannot be read"), "{why}");
}

#[test]
fn a_missing_file_is_an_error() {
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        record(&path, &switches(), 25, end);
        for file in files(&path) {
            let whole = fs::read(&file).unwrap();
            fs::remove_file(&file).unwrap();
            let error = Trace::open(&path).expect_err(&file.display().to_string());
            assert!(error.advice().is_some(), "{error:?}");
            fs::write(&file, whole).unwrap();
        }
    }
}

/// A kill during `finish` leaves the trace readable. The states in between are made of files from
/// before and after.
#[test]
fn a_kill_while_finishing_leaves_a_readable_trace() {
    let (_dir, path) = place();
    record(&path, &switches(), 25, End::Killed);
    let (_after_dir, after) = place();
    record(&after, &switches(), 25, End::Finished);
    let is_readable = |step: &str| {
        let trace = Trace::open(&path).expect(step);
        assert_eq!(rows(&trace).expect(step).len(), switches().len(), "{step}");
        trace.completeness()
    };
    fs::write(path.join("switch.parquet.tmp"), b"PAR1 half").unwrap();
    is_readable("a half-written table");
    for file in files(&after) {
        let name = file.file_name().unwrap().to_owned();
        if file
            .extension()
            .is_some_and(|extension| extension == "parquet")
        {
            fs::copy(&file, path.join(name)).unwrap();
            is_readable("some tables are final");
        }
    }
    let meta_line = fs::read_to_string(after.join("checksums.csv")).unwrap();
    let meta_line = meta_line
        .lines()
        .find(|line| line.starts_with("meta.json"))
        .unwrap();
    let mut list = fs::read_to_string(path.join("checksums.csv")).unwrap();
    list += &format!("{meta_line}\n");
    fs::write(path.join("checksums.csv"), list).unwrap();
    is_readable("both versions of meta.json are listed");
    fs::copy(after.join("meta.json"), path.join("meta.json")).unwrap();
    let Completeness::Unfinished { why, .. } = is_readable("the new meta.json is in place") else {
        panic!("the list still names the streams");
    };
    assert_eq!(
        why,
        "the recorder ended before the trace was in its final form"
    );
    fs::copy(after.join("checksums.csv"), path.join("checksums.csv")).unwrap();
    assert_eq!(
        is_readable("the list names the tables"),
        Completeness::Finished
    );
    fs::remove_file(path.join("switch.arrows")).unwrap();
    assert_eq!(is_readable("some streams are gone"), Completeness::Finished);
}

#[test]
fn an_existing_path_is_never_overwritten() {
    let (_dir, path) = place();
    record(&path, &switches(), 25, End::Finished);
    let error = Writer::create(&path, &Meta::default()).unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error:?}");
    assert!(error.advice().is_some());
    assert_eq!(
        rows(&Trace::open(&path).unwrap()).unwrap().len(),
        switches().len()
    );
}

#[test]
fn a_path_that_cannot_be_made_is_an_error_with_advice() {
    for path in ["/proc/t.swtch", "/nowhere/at/all/t.swtch"] {
        let error = Writer::create(Path::new(path), &Meta::default()).unwrap_err();
        assert!(matches!(error, Error::Write { .. }), "{error:?}");
        assert!(error.advice().is_some(), "{error:?}");
    }
}

#[test]
fn what_is_no_trace_is_called_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"PAR1").unwrap();
    for path in [dir.path(), &file] {
        let error = Trace::open(path).unwrap_err();
        assert!(matches!(error, Error::NotATrace { .. }), "{error:?}");
    }
    let error = Trace::open(&dir.path().join("nothing")).unwrap_err();
    assert!(matches!(error, Error::Read { .. }), "{error:?}");
}

/// A small file system, unmounted at the end.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        assert!(mount.arg(dir.path()).status().unwrap().success());
        Self(dir)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
#[ignore = "root: mounts a small tmpfs"]
fn a_full_disk_is_reported_and_what_was_flushed_stays_readable() {
    let disk = SmallDisk::mount("2m");
    let path = disk.0.path().join("t.swtch");
    let mut writer = Writer::create(&path, &Meta::default()).unwrap();
    let mut flushed = 0;
    let error = loop {
        let mut rows = messaging(flushed).take(500);
        let pushed = rows.try_for_each(|row| writer.push_switch(&row));
        let result = pushed.and_then(|()| writer.flush());
        match result {
            Ok(()) => flushed += 500,
            Err(error) => break error,
        }
    };
    let Error::Write { source, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(source.kind(), ErrorKind::StorageFull);
    assert!(error.advice().unwrap().contains("free some space"));
    let error = writer.push_switch(&odd_switch(1)).unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }));
    assert_eq!(writer.switches_written(), flushed);
    let error = writer.finish(&Meta::default(), &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, Error::Write { .. }), "{error:?}");
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.row_count(), flushed);
    assert_eq!(rows(&trace).unwrap().len() as u64, flushed);
    assert!(
        files(&path)
            .iter()
            .all(|file| file.extension().unwrap() != "tmp")
    );
}

/// Makes the list of checksums match the files as they are.
fn write_checksums(path: &Path) {
    let mut list = "file,offset,length,crc32\n".to_owned();
    for file in files(path) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name == "checksums.csv" {
            continue;
        }
        let bytes = fs::read(&file).unwrap();
        let crc32 = crc32fast::hash(&bytes);
        list += &format!("{name},0,{},{crc32:08x}\n", bytes.len());
    }
    fs::write(path.join("checksums.csv"), list).unwrap();
}

/// Checksums show that bytes are as they were written, not who wrote them. The decoder of Arrow
/// panics at a buffer that lies outside of its message, which one flipped bit can cause.
#[test]
fn a_crafted_trace_with_right_checksums_is_an_error_and_no_panic() {
    for (end, step) in [(End::Killed, 31), (End::Finished, 101)] {
        let (_dir, path) = place();
        record(&path, &switches(), 20, end);
        let (mut errors, mut contained) = (0, 0);
        for file in files(&path) {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            if !name.ends_with(".arrows") && !name.ends_with(".parquet") {
                continue;
            }
            let whole = fs::read(&file).unwrap();
            for at in (0..whole.len()).step_by(step) {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << (at % 8);
                fs::write(&file, &bytes).unwrap();
                write_checksums(&path);
                let read = Trace::open(&path).and_then(|trace| {
                    rows(&trace)?;
                    Others::of(&trace)
                });
                if let Err(error) = read {
                    errors += 1;
                    let said = format!("{error}: {:?}", std::error::Error::source(&error));
                    contained += u32::from(said.contains("Panicked"));
                }
            }
            fs::write(&file, &whole).unwrap();
        }
        println!("{end:?}: {errors} errors, {contained} of them panics of the decoder");
        assert!(errors > 0);
        assert!(
            end == End::Finished || contained > 0,
            "nothing was contained"
        );
    }
}

/// Reading a trace must never wait for a writer.
#[test]
fn a_fifo_in_place_of_a_file_is_an_error_at_once() {
    let (_dir, path) = place();
    record(&path, &switches(), 20, End::Killed);
    for file in files(&path) {
        let whole = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let made = Command::new("mkfifo").arg(&file).status().unwrap();
        assert!(made.success());
        let error = Trace::open(&path).unwrap_err();
        let Error::Read { source, .. } = &error else {
            panic!("{error}");
        };
        assert!(source.to_string().contains("a FIFO"), "{source}");
        fs::remove_file(&file).unwrap();
        fs::write(&file, whole).unwrap();
    }
}

/// The kernel keeps 15 bytes of a name.
#[test]
fn a_name_that_no_kernel_gives_is_refused_with_the_limit() {
    let (_dir, path) = place();
    let mut writer = Writer::create(&path, &Meta::default()).unwrap();
    writer.push_task(&common::task_named(&[b'n'; 300])).unwrap();
    writer.finish(&Meta::default(), &mut |_, _| ()).unwrap();
    let error = Trace::open(&path).unwrap().tasks().unwrap_err().to_string();
    assert!(error.contains("300 bytes, and 256 is the limit"), "{error}");
}

//! Files in both modes, by both drivers, on one scheduler and on two.

mod io_ways;

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use io_ways::in_all_ways;
use swtch_fiber::fs::{self, File, OpenOptions};
use swtch_fiber::spawn;

/// A path of its own, which is removed at the end.
struct TempPath(PathBuf);

impl TempPath {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("swtch-fiber-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        // Not every test has created its file.
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// All that was written must be read back, at the same offset.
#[test]
fn what_was_written_is_read_back() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let place = TempPath::new();
                let options = OpenOptions::new().read(true).write(true).create_new(true);
                let mut file = options.open(&place.0).expect("there is none yet");
                assert_eq!(file.write_at(b"world", 6).expect("room"), 5);
                assert_eq!(file.write_at(b"hello ", 0).expect("room"), 6);
                file.sync_data().expect("a disk");
                file.sync_all().expect("a disk");
                let mut all = String::new();
                file.read_to_string(&mut all).expect("text");
                assert_eq!(all, "hello world");
                file.seek(SeekFrom::Start(6)).expect("within the file");
                file.write_all(b"there").expect("room");
                let mut end = [0; 16];
                assert_eq!(file.read_at(&mut end, 6).expect("readable"), 5);
                assert_eq!(&end[..5], b"there");
                assert_eq!(file.read_at(&mut end, 11).expect("the end"), 0);
                assert_eq!(file.metadata().expect("open").len(), 11);
            })
            .expect("no panic");
    });
}

/// A file larger than any buffer, by many workers at once.
#[test]
fn workers_write_parts_of_one_file() {
    const PART: usize = 1 << 18;
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let place = TempPath::new();
                let file = std::sync::Arc::new(File::create(&place.0).expect("a directory"));
                let writers: Vec<_> = (0..8_u8)
                    .map(|part| {
                        let file = file.clone();
                        spawn(move || {
                            let data = vec![part; PART];
                            let mut done = 0;
                            while done < PART {
                                let at = u64::from(part) * PART as u64 + done as u64;
                                done += file.write_at(&data[done..], at).expect("room");
                            }
                        })
                        .expect("in a runtime")
                    })
                    .collect();
                for writer in writers {
                    writer.join().expect("no panic");
                }
                let read = fs::read(&place.0).expect("it is there");
                assert_eq!(read.len(), 8 * PART);
                assert!((0..8 * PART).all(|at| usize::from(read[at]) == at / PART));
            })
            .expect("no panic");
    });
}

/// The convenience functions, and files whose length is not known.
#[test]
fn whole_files_are_read_and_written() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let place = TempPath::new();
                fs::write(&place.0, "first and longer").expect("a directory");
                fs::write(&place.0, "second").expect("a directory");
                assert_eq!(fs::read(&place.0).expect("written"), b"second");
                let status = fs::read("/proc/self/status").expect("Linux");
                assert!(status.starts_with(b"Name:"));
            })
            .expect("no panic");
    });
}

/// Errors must be the kernel's own.
#[test]
fn errors_are_those_of_the_kernel() {
    in_all_ways(|runtime| {
        runtime
            .run(|| {
                let none = File::open("/there/is/no/such/file").expect_err("there is none");
                assert_eq!(none.raw_os_error(), Some(libc::ENOENT));
                let full = OpenOptions::new().write(true).open("/dev/full");
                let full = full
                    .expect("Linux")
                    .write_all(b"x")
                    .expect_err("it is full");
                assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
                let directory = File::open("/").expect("it can be opened");
                let unreadable = directory.read_at(&mut [0; 8], 0).expect_err("a directory");
                assert_eq!(unreadable.raw_os_error(), Some(libc::EISDIR));
                let nothing = OpenOptions::new().open("/dev/null").expect_err("no access");
                assert_eq!(nothing.kind(), ErrorKind::InvalidInput);
            })
            .expect("no panic");
    });
}

/// Threads that are not workers can use files as usual.
#[test]
fn threads_outside_use_files() {
    let place = TempPath::new();
    fs::write(&place.0, "outside").expect("a directory");
    assert_eq!(fs::read(&place.0).expect("written"), b"outside");
}

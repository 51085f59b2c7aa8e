//! Files of perf: built from complete records, damaged, then imported.

use std::fs;
use std::path::{Path, PathBuf};

use swtch_report::import::{self, ImportRequest};

use fastrand::Rng;

use super::{FuzzSubject, mutate};

/// This file is shared with the tests of the command line, which use other parts of it.
#[path = "../../tests/it/forged.rs"]
#[allow(dead_code, reason = "the tests of the command line use the rest")]
mod forged;

use forged::{AUXTRACE, Forged, compressed, lost, lost_samples, record, switch};

/// Types of records of the kernel (below 64) and of perf: `MMAP`, `COMM`, `EXIT`, `THROTTLE`,
/// `FORK` and so on.
const KINDS: [u32; 14] = [1, 3, 4, 5, 7, 9, 10, 12, 14, 16, 64, 68, 79, AUXTRACE];

/// The paths of the file under test and of the trace made from it.
#[derive(Debug)]
pub struct PerfFiles {
    file: PathBuf,
    trace: PathBuf,
}

impl PerfFiles {
    /// Both paths are in this directory.
    pub fn new(directory: &Path) -> Self {
        Self {
            file: directory.join("perf.data"),
            trace: directory.join("t.swtch"),
        }
    }
}

impl FuzzSubject for PerfFiles {
    fn draw(&mut self, random: &mut Rng) -> Vec<u8> {
        let count = random.usize(..12);
        let records: Vec<_> = (0..count).map(|_| any_record(random)).collect();
        let mut bytes = Forged::new(&records).bytes;
        if random.u32(..4) > 0 {
            mutate::bytes(random, &mut bytes);
        }
        bytes
    }

    fn run(&mut self, input: &[u8]) {
        let _ = fs::remove_dir_all(&self.trace);
        fs::write(&self.file, input).expect("a scratch file");
        let request = ImportRequest {
            file: self.file.clone(),
            output: Some(self.trace.clone()),
        };
        let _ = import::run(&request);
    }
}

/// A complete record with arbitrary contents.
fn any_record(random: &mut Rng) -> Vec<u8> {
    match random.u32(..8) {
        0 => lost(random.u64(..) >> random.u32(..64)),
        1 => lost_samples(random.u64(..) >> random.u32(..64)),
        2 => {
            let count = random.usize(1..4);
            let inner: Vec<_> = (0..count).map(|_| any_record(random)).collect();
            let mut inner = inner.concat();
            if random.u32(..3) == 0 {
                mutate::bytes(random, &mut inner);
            }
            compressed(&inner)
        }
        // Data that becomes very large when it is decompressed.
        3 if random.u32(..64) == 0 => compressed(&vec![0; 64 << 20]),
        3..=5 => {
            let mut bytes = switch(15_000 + random.u64(..4_000), random.bool());
            if random.bool() {
                // Only behind the head of the record, so that its length stays right.
                let at = random.usize(8..bytes.len());
                bytes[at] ^= random.u8(1..);
            }
            bytes
        }
        _ => {
            let kind = KINDS[random.usize(..KINDS.len())];
            let words: Vec<_> = (0..random.usize(..8))
                .map(|_| random.u64(..) >> random.u32(..64))
                .collect();
            record(kind, &words)
        }
    }
}

//! Files to import: of perf (as a file and as a pipe), text of ftrace, packets of Perfetto; built from complete records,
//! damaged, packed, then imported.

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
        let mut bytes = match random.u32(..6) {
            0 => (0..random.usize(1..40))
                .flat_map(|_| line(random))
                .collect(),
            1 => (0..random.usize(1..20))
                .flat_map(|_| packet(random))
                .collect(),
            kind => {
                let count = random.usize(..12);
                let records: Vec<_> = (0..count).map(|_| any_record(random)).collect();
                let forged = Forged::new(&records);
                match kind {
                    2 => forged.to_pipe(),
                    _ => forged.bytes,
                }
            }
        };
        if random.u32(..4) > 0 {
            mutate::bytes(random, &mut bytes);
        }
        match random.u32(..8) {
            0 => zstd::encode_all(&bytes[..], 1).expect("it is in memory"),
            _ => bytes,
        }
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

/// A line of ftrace's text, in one of its forms.
fn line(random: &mut Rng) -> Vec<u8> {
    let (tid, other, cpu) = (random.u32(..4), random.u32(..4), random.u32(..3));
    let time = format!("{}.{:06}", random.u32(..2), random.u32(..999_999));
    let fields = match random.u32(..4) {
        0 => format!("sched_switch: a:{tid} [120] S ==> b:{other} [0]"),
        1 => format!("sched_waking: comm=a pid={other} prio=120 target_cpu={cpu:03}"),
        2 => return format!("CPU:{cpu} [LOST {} EVENTS]\n", random.u64(..)).into_bytes(),
        _ => format!(
            "sched_switch: prev_comm=a prev_pid={tid} prev_prio=120 prev_state=R+ ==> next_comm=b next_pid={other} \
             next_prio=120"
        ),
    };
    format!("  a-{tid}  [{cpu:03}] d..2. {time}: {fields}\n").into_bytes()
}

/// A packet of Perfetto with one bundle, whose fields have arbitrary numbers.
fn packet(random: &mut Rng) -> Vec<u8> {
    let field = |number: u8, body: &[u8]| {
        [
            &[
                number << 3 | 2,
                u8::try_from(body.len()).expect("it is short"),
            ],
            body,
        ]
        .concat()
    };
    let column = |random: &mut Rng| (0..3).map(|_| random.u8(..128)).collect::<Vec<_>>();
    let inner = match random.bool() {
        // Compact sched: eleven columns, and a name.
        true => {
            let columns = (1..=12).filter(|number| *number != 5);
            let columns: Vec<_> = columns
                .flat_map(|number| field(number, &column(random)))
                .collect();
            field(4, &[columns, field(5, b"a")].concat())
        }
        // An event: its moment, and a switch with the thread that leaves and the one that comes.
        false => {
            let switch = [
                2 << 3,
                random.u8(..4),
                4 << 3,
                random.u8(..128),
                6 << 3,
                random.u8(..4),
            ];
            let event = [vec![1 << 3, random.u8(..128)], field(4, &switch)].concat();
            field(2, &event)
        }
    };
    let lost = [3 << 3, u8::from(random.u32(..8) == 0)];
    field(
        1,
        &field(1, &[&[1 << 3, random.u8(..3)], &lost[..], &inner].concat()),
    )
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

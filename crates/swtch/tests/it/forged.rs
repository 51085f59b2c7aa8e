//! A perf.data of 2 kB, built byte by byte as perf writes it, for what perf itself cannot be made
//! to write: losses that are reported twice, and damage at a known place.
//!
//! ```text
//! head 104 │ attrs 80 │ data: records │ table: place, size │ tracing data, command line, events
//! ```

/// The parts of the file, in this order: `HEADER_TRACING_DATA`, `HEADER_CMDLINE`,
/// `HEADER_EVENT_DESC`.
const FEATURES: u64 = 1 << 1 | 1 << 11 | 1 << 12;
/// `TID | TIME | CPU | RAW` of `PERF_SAMPLE_…`.
const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 10;
/// `sample_id_all`: every record ends with thread, time and CPU.
const SAMPLE_ID_ALL: u64 = 1 << 18;
const LOST: u32 = 2;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
/// Type of a record that holds compressed records.
const COMPRESSED: u32 = 81;
/// Type of a record for hardware traces, which is followed by data outside of its length.
pub const AUXTRACE: u32 = 71;

const SCHED_SWITCH: &str = "name: sched_switch\nID: 300\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
    \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
    \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
    \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
    \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
    \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
    \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n";

/// The bytes of a file, and where its parts are.
#[derive(Clone, Debug)]
pub struct Forged {
    pub bytes: Vec<u8>,
    /// Offset of the table of parts, which has the offset and the size of each part, 8 bytes each.
    pub table: usize,
    pub command: usize,
    pub events: usize,
}

impl Forged {
    /// A file with `records` between two halves of the switches of thread 7 and idle on CPU 0.
    pub fn new(records: &[Vec<u8>]) -> Self {
        let half = |from: u64| (0..4).map(move |at| switch(from + at * 1_000, at % 2 == 0));
        let records = [
            half(10_000).collect(),
            records.to_vec(),
            half(20_000).collect(),
        ];
        let data = records.concat().concat();
        let parts = [tracing_data(), command(), event_desc()];
        let table = 104 + 80 + data.len();
        let mut at = table + 16 * parts.len();
        let mut places = Vec::new();
        let mut table_bytes = Vec::new();
        for part in &parts {
            places.push(at);
            table_bytes.extend([long(at), long(part.len())].concat());
            at += part.len();
        }
        let head = [104, 80, 104, 80, 184, data.len(), 0, 0].map(long).concat();
        let flags = [FEATURES, 0, 0, 0].map(u64::to_le_bytes).concat();
        let attrs = [attr(), long(0), long(0)].concat();
        let before = [&b"PERFILE2"[..], &head, &flags, &attrs, &data, &table_bytes];
        Self {
            bytes: [before.concat(), parts.concat()].concat(),
            table,
            command: places[1],
            events: places[2],
        }
    }

    /// What perf would have written into a pipe.
    pub fn to_pipe(&self) -> Vec<u8> {
        let data = &self.bytes[184..self.table];
        let feature = |number: usize, part: &[u8]| {
            let size = u16::try_from(16 + part.len()).unwrap();
            let head = [&80_u32.to_le_bytes()[..], &[0, 0], &size.to_le_bytes()].concat();
            [&head, &long(number)[..], part].concat()
        };
        let tracing = tracing_data();
        let size = u64::try_from(tracing.len()).unwrap();
        [
            [&b"PERFILE2"[..], &long(16)].concat(),
            feature(11, &command()),
            feature(12, &event_desc()),
            record(66, &[size]),
            tracing,
            data.to_vec(),
        ]
        .concat()
    }

    /// The same file with other bytes at one place.
    pub fn with(&self, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut all = self.bytes.clone();
        all[at..at + bytes.len()].copy_from_slice(bytes);
        all
    }
}

/// A record `PERF_RECORD_LOST` for this many events.
pub fn lost(count: u64) -> Vec<u8> {
    record(LOST, &[0, count, 7 | 7 << 32, 15_000, 0])
}

/// A record `PERF_RECORD_LOST_SAMPLES` for this many samples.
pub fn lost_samples(count: u64) -> Vec<u8> {
    record(LOST_SAMPLES, &[count, 7 | 7 << 32, 15_500, 0])
}

/// A record of any type: its header, then these words.
pub fn record(kind: u32, words: &[u64]) -> Vec<u8> {
    let size = u16::try_from(8 + 8 * words.len()).unwrap();
    let mut bytes = [&kind.to_le_bytes()[..], &[0, 0], &size.to_le_bytes()].concat();
    words
        .iter()
        .for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes
}

/// A record `PERF_RECORD_COMPRESSED` (`perf record -z`) with these records. Its length need not be
/// a multiple of 8.
pub fn compressed(records: &[u8]) -> Vec<u8> {
    let body = zstd::encode_all(records, 1).unwrap();
    let size = u16::try_from(8 + body.len()).unwrap();
    [
        &COMPRESSED.to_le_bytes()[..],
        &[0, 0],
        &size.to_le_bytes(),
        &body,
    ]
    .concat()
}

/// A switch from idle to thread 7 (`comes`), or from thread 7 to idle.
pub fn switch(ns: u64, comes: bool) -> Vec<u8> {
    let (idle, task) = ((&b"swapper/0"[..], 0_u32), (&b"forged"[..], 7));
    let (prev, next) = if comes { (idle, task) } else { (task, idle) };
    let mut raw = [&300_u16.to_le_bytes()[..], &[0; 6]].concat();
    for (side, state) in [(prev, Some(1_u64)), (next, None)] {
        let mut comm = [0; 16];
        comm[..side.0.len()].copy_from_slice(side.0);
        raw.extend(comm);
        raw.extend([side.1.to_le_bytes(), 120_u32.to_le_bytes()].concat());
        raw.extend(state.map(u64::to_le_bytes).into_iter().flatten());
    }
    // The raw bytes and their length field together fill whole words.
    let raw = [&68_u32.to_le_bytes()[..], &raw, &[0; 4]].concat();
    let raw = raw
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let thread = u64::from(prev.1) << 32 | u64::from(prev.1);
    let words: Vec<_> = [thread, ns, 0].into_iter().chain(raw).collect();
    record(SAMPLE, &words)
}

/// `struct perf_event_attr` in its first version: a tracepoint.
fn attr() -> Vec<u8> {
    let kind = [2_u32.to_le_bytes(), 64_u32.to_le_bytes()].concat();
    let words = [300, 1, SAMPLE_TYPE, 0, SAMPLE_ID_ALL, 0, 0];
    [kind, words.map(u64::to_le_bytes).concat()].concat()
}

fn tracing_data() -> Vec<u8> {
    let mut bytes = b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0".to_vec();
    for name in [&b"header_page\0"[..], b"header_event\0"] {
        bytes.extend([name, &long(0)].concat());
    }
    bytes.extend([0_u32, 1].map(u32::to_le_bytes).concat());
    bytes.extend([&b"sched\0"[..], &1_u32.to_le_bytes()].concat());
    bytes.extend([&long(SCHED_SWITCH.len())[..], SCHED_SWITCH.as_bytes()].concat());
    bytes
}

fn command() -> Vec<u8> {
    let count = 1_u32.to_le_bytes();
    [&count[..], &8_u32.to_le_bytes(), b"perf\0\0\0\0"].concat()
}

fn event_desc() -> Vec<u8> {
    let numbers = |numbers: [u32; 2]| numbers.map(u32::to_le_bytes).concat();
    let name = b"sched:sched_switch\0\0\0\0\0\0";
    [
        &numbers([1, 64])[..],
        &attr(),
        &numbers([1, 24]),
        name,
        &long(9),
    ]
    .concat()
}

fn long(number: usize) -> Vec<u8> {
    (number as u64).to_le_bytes().to_vec()
}

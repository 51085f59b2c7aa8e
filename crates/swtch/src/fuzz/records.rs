//! Recordings that go on or were cut off: their records are damaged, then replayed, reported, drawn
//! and exported.
//!
//! ```text
//! records.raw   a line of JSON │ head │ packed records │ head │ packed records │ …
//!                                └ 7 numbers of 32 bits, the last is the CRC-32 of what is packed
//! ```
//!
//! Records are private to `swtch-capture`, so they are made without knowing their fields: how long
//! one is and by which number it begins is found by asking the decoder. What follows are the moment
//! and numbers, most of them small, as words of closed lists are.

use std::path::Path;

use fastrand::Rng;
use swtch_core::{LookEvent, LookedTask, Nanos, StackNumbers, TaskKey, Timestamp};
use swtch_fixtures::meta;
use swtch_report::opening;
use swtch_store::{Columns, Meta, RecordingState, StreamKind, TraceHost, Writer, encode_look};
use swtch_wire::{READABLE_WIRES, RawKind, decode_records};

use super::archive::Archive;
use super::trace::{Traces, put, taken};
use super::{FuzzSubject, mutate};

/// The file of records.
pub const RECORDS: &str = "records.raw";

/// Bytes of the head of a block; its sixth number is the stored length, its seventh the CRC-32.
const HEAD_BYTES: usize = 28;

/// Numbers of an event of a user-mode scheduler, of 8 bytes each.
const NUMBERS_OF_EVENT: usize = 11;

/// Recordings to draw, and the paths for the one under test.
#[derive(Debug)]
pub struct Recordings {
    traces: Traces,
    switches: RecordLayout,
    tasks: RecordLayout,
}

impl Recordings {
    pub fn new(directory: &Path) -> Self {
        Self {
            traces: Traces::recorded(directory),
            switches: RecordLayout::find(RawKind::Switches),
            tasks: RecordLayout::find(RawKind::Tasks),
        }
    }

    /// A recording of made-up records.
    fn recorded(&self, random: &mut Rng) -> Archive {
        let path = self.traces.path.with_extension("raw");
        let host = TraceHost {
            machine: ["x86_64", "aarch64"][random.usize(..2)].to_owned(),
            ..meta().host
        };
        let meta = Meta {
            state: RecordingState::Recording,
            host,
            ..meta()
        };
        let wire = random.u32(READABLE_WIRES);
        let made = Writer::create_for_records(&path, &meta, wire);
        let mut writer = made.expect("a scratch directory");
        let mut moment = meta.start_ns;
        let most = if random.u32(..50) == 0 { 2_000 } else { 40 };
        for _ in 0..random.u32(1..=most) {
            let (kind, layout) = match random.u32(..9) {
                0..=4 => (StreamKind::Switches, &self.switches),
                5 | 6 => (StreamKind::Tasks, &self.tasks),
                7 => {
                    let bytes = look(random, &mut moment);
                    pushed(&mut writer, StreamKind::Looks, 0, 1, &bytes);
                    continue;
                }
                _ => {
                    let bytes = user_event(random, &mut moment);
                    pushed(&mut writer, StreamKind::UserEvents, 8, 1, &bytes);
                    continue;
                }
            };
            let count = random.u64(1..4);
            let bytes: Vec<u8> = (0..count)
                .flat_map(|_| layout.record(random, &mut moment))
                .collect();
            let stream = random.usize(..2) + 2 * usize::from(kind == StreamKind::Tasks);
            pushed(&mut writer, kind, stream, count, &bytes);
            if random.u32(..16) == 0 {
                writer.flush().expect("a scratch file");
            }
        }
        writer.flush().expect("a scratch file");
        drop(writer);
        taken(&path)
    }
}

fn pushed(writer: &mut Writer, kind: StreamKind, stream: usize, count: u64, bytes: &[u8]) {
    let written = writer.record(kind, stream, count, bytes);
    written.expect("a scratch file");
}

impl FuzzSubject for Recordings {
    fn draw(&mut self, random: &mut Rng) -> Vec<u8> {
        let mut archive = self.recorded(random);
        // Whole files of odd records reach the most code, so half of them stay as they are.
        if random.bool() {
            let place = archive.files.iter().position(|file| file.0 == RECORDS);
            let (_, bytes) = &mut archive.files[place.expect("it was recorded")];
            mutate::bytes(random, bytes);
            if random.u32(..4) > 0 {
                repair(bytes);
            }
        }
        archive.to_bytes()
    }

    fn run(&mut self, input: &[u8]) {
        put(&Archive::from_bytes(input), &self.traces.path);
        let Ok(trace) = opening::open(&self.traces.path) else {
            return;
        };
        let mut rows = 0_u64;
        let _ = trace.scan_levels(Columns::all(), None, &mut |_| rows += 1);
        let mut choice = Rng::with_seed(u64::from(crc32fast::hash(input)));
        self.traces.look(&trace, &mut choice);
    }
}

/// Makes the checksums of blocks match the damaged bytes, up to the first head that is none.
fn repair(bytes: &mut [u8]) {
    let mut at = header_length(bytes);
    while let Some(head) = bytes.get(at..at + HEAD_BYTES) {
        let stored = u32::from_le_bytes(head[20..24].try_into().expect("4 bytes"));
        let begin = at + HEAD_BYTES;
        let end = begin.saturating_add(usize::try_from(stored).unwrap_or(usize::MAX));
        let Some(packed) = bytes.get(begin..end) else {
            return;
        };
        let crc32 = crc32fast::hash(packed).to_le_bytes();
        bytes[at + 24..begin].copy_from_slice(&crc32);
        at = end;
    }
}

/// Bytes of the line before the blocks.
pub fn header_length(bytes: &[u8]) -> usize {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.map_or(bytes.len(), |end| end + 1)
}

/// The layout of the records of one kind, as far as making some needs it.
#[derive(Clone, Copy, Debug)]
struct RecordLayout {
    width: usize,
    /// The number by which each record of this kind begins.
    first: u8,
}

impl RecordLayout {
    /// Asks the decoder, which counts the records that it cannot understand.
    fn find(kind: RawKind) -> Self {
        let decoded = |bytes: &[u8]| {
            let mut events = 0;
            let unreadable = decode_records(kind, bytes, |_| events += 1);
            (events, unreadable)
        };
        let widths = (8..1024).step_by(8);
        let width = widths
            .into_iter()
            .find(|width| decoded(&vec![0; width + 1]).1 == 2);
        let width = width.expect("a record has less than 1024 bytes");
        let begins = |first: &u8| {
            let mut record = vec![0; width];
            record[0] = *first;
            decoded(&record).0 == 1
        };
        let first = (0..=u8::MAX).find(begins);
        Self {
            width,
            first: first.expect("a record of zeros can be understood"),
        }
    }

    /// A record at a moment after the last one.
    fn record(self, random: &mut Rng, moment: &mut u64) -> Vec<u8> {
        let mut record = vec![0; self.width];
        for word in record[16..].chunks_exact_mut(8) {
            let number = match random.u32(..32) {
                0..=7 => moment.saturating_sub(random.u64(..5_000)),
                8..=15 => random.u64(..8) | random.u64(..8) << 32,
                16..=19 => u64::from_le_bytes(std::array::from_fn(|_| random.u8(..3))),
                20 => mutate::number(random),
                _ => 0,
            };
            word.copy_from_slice(&number.to_le_bytes());
        }
        record[0] = self.first;
        record[4] = random.u8(..4);
        record[8..16].copy_from_slice(&next_moment(random, moment).to_le_bytes());
        record
    }
}

/// Most moments are a little later than the last one; some are anywhere.
fn next_moment(random: &mut Rng, moment: &mut u64) -> u64 {
    *moment += random.u64(..2_000);
    match random.u32(..64) {
        0 => mutate::number(random),
        1 => moment.saturating_sub(random.u64(..2_000_000_000)),
        _ => *moment,
    }
}

fn user_event(random: &mut Rng, moment: &mut u64) -> Vec<u8> {
    let mut numbers = [0; NUMBERS_OF_EVENT];
    for number in &mut numbers {
        *number = match random.u32(..8) {
            0..=3 => random.u64(..4),
            4 | 5 => moment.saturating_sub(random.u64(..5_000)),
            6 => u64::MAX,
            _ => mutate::number(random),
        };
    }
    numbers[0] = next_moment(random, moment);
    let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
    // A name of a wait type, which the last number says is there.
    for number in [random.u64(..4), 5] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(b"MUTEX");
    bytes
}

/// A look at a task, mostly one of those that the other records name.
fn look(random: &mut Rng, moment: &mut u64) -> Vec<u8> {
    let ts = next_moment(random, moment);
    let mut bytes = Vec::new();
    encode_look(
        &LookEvent {
            ts: Timestamp::from_ns(ts),
            task: TaskKey::new(random.u32(..4)),
            out: Timestamp::from_ns(ts.saturating_sub(random.u64(..5_000))),
            whose: match random.bool() {
                true => LookedTask::Waker,
                false => LookedTask::Waiter {
                    between: Nanos::from_ns(mutate::number(random)),
                    holder: random.bool().then(|| random.u32(..4)),
                },
            },
            stacks: StackNumbers {
                kernel: random.bool().then(|| random.u32(..4)),
                user: random.bool().then(|| random.u32(..4)),
            },
        },
        &mut bytes,
    );
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording that is refused when it is opened tests nothing but the opening.
    #[test]
    fn enough_damaged_recordings_can_still_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut recordings = Recordings::new(dir.path());
        let (mut opened, mut with_rows) = (0, 0);
        for seed in 0..100 {
            let input = recordings.draw(&mut Rng::with_seed(seed));
            put(&Archive::from_bytes(&input), &recordings.traces.path);
            if let Ok(trace) = opening::open(&recordings.traces.path) {
                let mut rows = 0_u64;
                let scanned = trace.scan_levels(Columns::all(), None, &mut |_| rows += 1);
                opened += 1;
                with_rows += u32::from(scanned.is_ok() && rows > 0);
            }
        }
        assert!(opened > 40 && with_rows > 30, "{opened} {with_rows} of 100");
    }
}

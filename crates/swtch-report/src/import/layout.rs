//! Checks that the parts of perf's file lie within its length, before the crate that reads it
//! trusts them: a length in a damaged file can ask for more memory than any machine has, and that
//! error cannot be caught.
//!
//! ```text
//! head (104 bytes) ─▶ attrs, event types
//!                  └▶ data: records ─▶ table: one place per feature ─▶ event desc, cmdline, …
//! ```
//!
//! The layout is described in `tools/perf/Documentation/perf.data-file-format.txt` (v6.12). The
//! contents of records are not checked here, except of the kind that has a length of its own behind
//! it, and of those that are compressed.

use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom};

use anyhow::{Context as _, Result, bail};
use linux_perf_data::Feature;
use linux_perf_event_reader::Endianness;

use super::compressed::{RecordState, WaitingBytes};
use super::cursor::Cursor;

/// Size of `struct perf_file_header`; perf itself refuses any other.
pub const HEAD_BYTES: u64 = 104;
/// From `PERF_ATTR_SIZE_VER0` to a page, at most 64 kB: the kernel takes no attributes outside of
/// these.
const ATTR_BYTES: std::ops::RangeInclusive<u64> = 64..=65536;
/// Limit for all features; descriptions of all tracepoints and symbols of a kernel take some 20 MB.
pub const MOST_FEATURE_BYTES: u64 = 256 << 20;
/// Limit for one buffer of a hardware trace: perf maps 4 MB for it unless told otherwise.
pub const MOST_AUXTRACE_BYTES: u64 = 1 << 30;
/// The record type `PERF_RECORD_AUXTRACE`, and the size of a record's head.
const AUXTRACE: u32 = 71;
const RECORD_HEAD_BYTES: u16 = 8;
/// The record type `PERF_RECORD_FINISHED_ROUND`, which ends a round.
const FINISHED_ROUND: u32 = 68;
/// The record type `PERF_RECORD_COMPRESSED`, whose whole body is compressed.
const COMPRESSED: u32 = 81;
/// The record type `PERF_RECORD_COMPRESSED2` (from v6.16), which says how much of its body is
/// compressed; the rest is padding.
const COMPRESSED2: u32 = 83;

/// A part of the file.
#[derive(Clone, Copy, Debug)]
struct FilePart {
    offset: u64,
    size: u64,
}

/// Checks the whole file, and rewinds it to its start.
///
/// # Errors
/// When the file is cut, damaged, or of another format.
pub fn check(file: &mut File) -> Result<()> {
    let length = file.metadata()?.len();
    let mut reader = BufReader::new(&mut *file);
    let head = FileHeader::read(&mut reader, length)?;
    for (feature, part) in head.features(&mut reader, length)? {
        if feature == Feature::EVENT_DESC || feature == Feature::CMDLINE {
            let bytes = part.read(&mut reader)?;
            let cursor = Cursor::new(&bytes, head.endian);
            let (is_sound, what) = match feature {
                Feature::CMDLINE => (check_command(cursor), "command line"),
                _ => (check_events(cursor), "description of the events"),
            };
            is_sound.with_context(|| format!("it is damaged: its {what} does not add up"))?;
        }
    }
    check_records(&mut reader, &head, length)?;
    file.rewind()?;
    Ok(())
}

struct FileHeader {
    endian: Endianness,
    data: FilePart,
    /// One bit for each of 256 features.
    flags: [u64; 4],
}

impl FileHeader {
    fn read(reader: &mut BufReader<&mut File>, length: u64) -> Result<Self> {
        let mut bytes = Vec::new();
        reader.take(HEAD_BYTES).read_to_end(&mut bytes)?;
        let endian = match bytes.first() {
            Some(b'P') => Endianness::LittleEndian,
            _ => Endianness::BigEndian,
        };
        let cut = "it is cut short: perf was killed, or the file not copied whole (what perf record -o - writes can be \
                   read as far as it goes)";
        let mut cursor = Cursor::new(bytes.get(8..).context(cut)?, endian);
        let head_bytes = cursor.long().context(cut)?;
        let mut numbers = [0; 11];
        for number in &mut numbers {
            *number = cursor.long().context(cut)?;
        }
        let [attr_bytes, places @ .., first, second, third, fourth] = numbers;
        if head_bytes != HEAD_BYTES || !ATTR_BYTES.contains(&attr_bytes) {
            bail!("it is damaged: its head has sizes that perf does not write");
        }
        let part = |at: usize| FilePart {
            offset: places[at],
            size: places[at + 1],
        };
        let (attrs, data, types) = (part(0), part(2), part(4));
        attrs.check("its list of events", length)?;
        types.check("its list of event names", length)?;
        data.check("its data", length)?;
        if data.size == 0 {
            bail!("there is no data in it: perf was killed before it wrote its end");
        }
        Ok(Self {
            endian,
            data,
            flags: [first, second, third, fourth],
        })
    }

    /// Reads the table of features, which follows the data.
    fn features(
        &self,
        reader: &mut BufReader<&mut File>,
        length: u64,
    ) -> Result<Vec<(Feature, FilePart)>> {
        let bits = (0..256_u32).filter(|bit| {
            let word = usize::try_from(bit / 64).ok();
            word.is_some_and(|word| self.flags[word] >> (bit % 64) & 1 == 1)
        });
        let features: Vec<_> = bits.map(Feature).collect();
        if !features.contains(&Feature::EVENT_DESC) {
            bail!("it does not describe its events: perf was killed before it wrote its end");
        }
        let table = FilePart {
            offset: self.data.offset + self.data.size,
            size: features.len() as u64 * 16,
        };
        table.check("its table of parts", length)?;
        let bytes = table.read(reader)?;
        let mut cursor = Cursor::new(&bytes, self.endian);
        let mut left = MOST_FEATURE_BYTES;
        let mut parts = Vec::new();
        for feature in features {
            let (offset, size) = cursor.long().zip(cursor.long()).unwrap_or_default();
            let part = FilePart { offset, size };
            part.check(&format!("its part {feature}"), length)?;
            left = left
                .checked_sub(size)
                .context("it is damaged: the parts that describe it would take more than 256 MB")?;
            parts.push((feature, part));
        }
        Ok(parts)
    }
}

impl FilePart {
    fn check(self, what: &str, length: u64) -> Result<()> {
        let end = self.offset.checked_add(self.size);
        match end {
            Some(end) if end <= length => Ok(()),
            Some(end) => bail!(
                "it is cut short or damaged: {what} would end at byte {end}, and there are {length}"
            ),
            None => bail!("it is damaged: {what} would end nowhere"),
        }
    }

    fn read(self, reader: &mut BufReader<&mut File>) -> Result<Vec<u8>> {
        reader.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        reader.take(self.size).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// `HEADER_EVENT_DESC`: the number of events, and the size of their attributes. Then for each
/// event: attributes, number of its ids, name, and ids.
fn check_events(mut cursor: Cursor<'_>) -> Option<()> {
    let events = cursor.count()?;
    let attr_bytes = usize::try_from(cursor.count()?).ok()?;
    for _ in 0..events {
        cursor.take(attr_bytes)?;
        let ids = usize::try_from(cursor.count()?).ok()?;
        let name_bytes = usize::try_from(cursor.count()?).ok()?;
        cursor.take(name_bytes)?;
        cursor.take(ids.checked_mul(8)?)?;
    }
    ATTR_BYTES.contains(&(attr_bytes as u64)).then_some(())
}

/// `HEADER_CMDLINE`: the number of words, and each word with its length.
fn check_command(mut cursor: Cursor<'_>) -> Option<()> {
    let words = usize::try_from(cursor.count()?).ok()?;
    (words <= cursor.left() / 4).then_some(())
}

/// The compressed part of a `PERF_RECORD_COMPRESSED2`.
fn content_of_second_kind(body: &[u8], endian: Endianness) -> Option<&[u8]> {
    let length = Cursor::new(body, endian).long()?;
    body.get(8..)?.get(..usize::try_from(length).ok()?)
}

/// Goes from record to record. A torn record ends the walk without an error: the reader will report
/// it, and keep what was before.
fn check_records(reader: &mut BufReader<&mut File>, head: &FileHeader, length: u64) -> Result<()> {
    let (data, endian) = (head.data, head.endian);
    reader.seek(SeekFrom::Start(data.offset))?;
    let mut waiting = WaitingBytes::new(length)?;
    let mut left = data.size;
    let mut bytes = [0; 16];
    while left >= u64::from(RECORD_HEAD_BYTES) {
        let (head, length) = bytes.split_at_mut(usize::from(RECORD_HEAD_BYTES));
        reader.read_exact(head)?;
        let mut cursor = Cursor::new(head, endian);
        let (kind, size) = (cursor.count(), cursor.take(2).and_then(|_| cursor.short()));
        let Some(body) = size.and_then(|size| size.checked_sub(RECORD_HEAD_BYTES)) else {
            return Ok(());
        };
        let mut skipped = u64::from(body);
        let Some(behind) = left.checked_sub(u64::from(RECORD_HEAD_BYTES) + skipped) else {
            return Ok(());
        };
        left = behind;
        match kind {
            Some(FINISHED_ROUND) => waiting.end_round(),
            Some(COMPRESSED | COMPRESSED2) => {
                let mut record = vec![0; usize::from(body)];
                reader.read_exact(&mut record)?;
                skipped = 0;
                let content = match kind {
                    Some(COMPRESSED) => Some(&record[..]),
                    _ => content_of_second_kind(&record, endian),
                };
                match content.map(|content| waiting.add(content)).transpose()? {
                    Some(RecordState::Sound) => {}
                    Some(RecordState::Damaged) | None => return Ok(()),
                }
            }
            _ => {}
        }
        if kind == Some(AUXTRACE) && body >= 8 {
            reader.read_exact(length)?;
            let trace = Cursor::new(length, endian).long().unwrap_or(u64::MAX);
            if trace > left.min(MOST_AUXTRACE_BYTES) {
                bail!("it is damaged: a hardware trace in it would be longer than its data");
            }
            left -= trace;
            skipped = skipped - 8 + trace;
        }
        reader.seek_relative(i64::try_from(skipped)?)?;
    }
    Ok(())
}

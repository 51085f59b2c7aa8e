//! Makes a file of what perf wrote into a pipe (`perf record -o -`), as `perf inject` does, so that there is one way to
//! check and read it.
//!
//! ```text
//! pipe: head 16 │ attrs, features, tracing data as records │ records …
//! file: head 104 │ records … │ table of features │ features, tracing data
//! ```
//!
//! The attributes are also in the feature `EVENT_DESC`, so their records are dropped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek as _, SeekFrom, Write as _};

use anyhow::{Context as _, Result};
use linux_perf_data::Feature;
use linux_perf_event_reader::Endianness;

use super::cursor::Cursor;
use super::layout::{HEAD_BYTES, MOST_AUXTRACE_BYTES, MOST_FEATURE_BYTES};

/// Size of the attributes that the head names; nothing reads them there.
const ATTR_BYTES: u64 = 144;
/// The record types `PERF_RECORD_HEADER_ATTR`, `…_TRACING_DATA` and `…_FEATURE`.
const HEADER_ATTR: u32 = 64;
const TRACING_DATA: u32 = 66;
const HEADER_FEATURE: u32 = 80;

/// Type of a record with a hardware trace behind it.
const AUXTRACE: u32 = 71;
const RECORD_HEAD_BYTES: usize = 8;

/// What came through a pipe, as a file.
#[derive(Debug)]
pub struct PipedFile {
    /// A file without a name, at its start.
    pub file: File,
    /// True if the last record was torn.
    pub is_cut: bool,
}

/// Writes the file.
///
/// # Errors
/// When the parts that describe the events are damaged, or the file cannot be written.
pub fn to_file(pipe: File) -> Result<PipedFile> {
    let mut pipe = BufReader::new(pipe);
    let mut head = [0; 16];
    pipe.read_exact(&mut head)?;
    let endian = match head.first() {
        Some(b'P') => Endianness::LittleEndian,
        _ => Endianness::BigEndian,
    };
    let file = tempfile::tempfile().context("making a temporary file")?;
    let mut file = BufWriter::new(file);
    file.seek(SeekFrom::Start(HEAD_BYTES))?;
    let (features, is_cut) = copy_records(&mut pipe, &mut file, endian)?;
    let data_bytes = file.stream_position()? - HEAD_BYTES;
    let flags = features.write(&mut file, endian)?;
    file.rewind()?;
    file.write_all(&head[..8])?;
    let places = [
        HEAD_BYTES, ATTR_BYTES, HEAD_BYTES, 0, HEAD_BYTES, data_bytes, 0, 0,
    ];
    for number in places.into_iter().chain(flags) {
        file.write_all(&long(number, endian))?;
    }
    let mut file = file
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(PipedFile { file, is_cut })
}

/// Copies the records that a file has, too. Returns the parts that have a place of their own there, and whether the last
/// record is torn.
fn copy_records(
    mut pipe: &mut BufReader<File>,
    file: &mut BufWriter<File>,
    endian: Endianness,
) -> Result<(Features, bool)> {
    let mut features = Features::default();
    loop {
        let record = match next_record(pipe, endian)? {
            PipeRecord::Whole(record) => record,
            PipeRecord::Torn => return Ok((features, true)),
            PipeRecord::None => return Ok((features, false)),
        };
        let body = record.bytes.get(RECORD_HEAD_BYTES..).unwrap_or_default();
        let mut cursor = Cursor::new(body, endian);
        match record.kind {
            HEADER_ATTR => {}
            HEADER_FEATURE => {
                let feature = cursor
                    .long()
                    .and_then(|feature| u32::try_from(feature).ok());
                let feature = feature.context("it is damaged: a part has no number")?;
                features.add(Feature(feature), body.get(8..).unwrap_or_default())?;
            }
            TRACING_DATA => {
                // One byte more than the limit is refused below.
                let size = u64::from(cursor.count().unwrap_or(0)).min(MOST_FEATURE_BYTES + 1);
                let mut bytes = Vec::new();
                (&mut pipe).take(size).read_to_end(&mut bytes)?;
                features.add(Feature::TRACING_DATA, &bytes)?;
            }
            AUXTRACE => {
                file.write_all(&record.bytes)?;
                let size = cursor.long().unwrap_or(0);
                anyhow::ensure!(
                    size <= MOST_AUXTRACE_BYTES,
                    "it is damaged: a hardware trace of {size} bytes"
                );
                std::io::copy(&mut (&mut pipe).take(size), file)?;
            }
            _ => file.write_all(&record.bytes)?,
        }
    }
}

struct WholeRecord {
    kind: u32,
    bytes: Vec<u8>,
}

enum PipeRecord {
    Whole(WholeRecord),
    Torn,
    None,
}

fn next_record(pipe: &mut BufReader<File>, endian: Endianness) -> Result<PipeRecord> {
    let mut bytes = Vec::new();
    pipe.take(RECORD_HEAD_BYTES as u64)
        .read_to_end(&mut bytes)?;
    let mut cursor = Cursor::new(&bytes, endian);
    let head = cursor
        .count()
        .zip(cursor.take(2).and_then(|_| cursor.short()));
    let Some((kind, size)) = head else {
        return Ok(match bytes.is_empty() {
            true => PipeRecord::None,
            false => PipeRecord::Torn,
        });
    };
    let Some(body) = usize::from(size).checked_sub(RECORD_HEAD_BYTES) else {
        return Ok(PipeRecord::Torn);
    };
    pipe.take(body as u64).read_to_end(&mut bytes)?;
    Ok(match bytes.len() == usize::from(size) {
        true => PipeRecord::Whole(WholeRecord { kind, bytes }),
        false => PipeRecord::Torn,
    })
}

/// The parts of a file that are no records, by number.
#[derive(Debug, Default)]
struct Features {
    parts: BTreeMap<u32, Vec<u8>>,
    bytes: u64,
}

impl Features {
    fn add(&mut self, Feature(number): Feature, part: &[u8]) -> Result<()> {
        self.bytes += part.len() as u64;
        anyhow::ensure!(
            number < 256 && self.bytes <= MOST_FEATURE_BYTES,
            "it is damaged: the parts that describe it would take more than 256 MB, or have no place"
        );
        self.parts.insert(number, part.to_vec());
        Ok(())
    }

    /// Writes the table and the parts behind it; returns the bits of the parts that are there.
    fn write(&self, file: &mut BufWriter<File>, endian: Endianness) -> Result<[u64; 4]> {
        let mut flags = [0; 4];
        let mut offset = file.stream_position()? + 16 * self.parts.len() as u64;
        for (number, part) in &self.parts {
            flags[*number as usize / 64] |= 1 << (number % 64);
            let size = part.len() as u64;
            file.write_all(&[long(offset, endian), long(size, endian)].concat())?;
            offset += size;
        }
        for part in self.parts.values() {
            file.write_all(part)?;
        }
        Ok(flags)
    }
}

fn long(number: u64, endian: Endianness) -> [u8; 8] {
    match endian {
        Endianness::LittleEndian => number.to_le_bytes(),
        Endianness::BigEndian => number.to_be_bytes(),
    }
}

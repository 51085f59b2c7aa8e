//! `records.raw`: the records of a recording as their source wrote them, while it goes on.
//!
//! A recorder that keeps up must do little for each switch. So it copies bytes: this file holds
//! them, packed, and what they say is decoded after the end, or when somebody asks for a trace
//! that was cut off. Then the file is removed.
//!
//! ```text
//! header      one line of JSON: version of this layout and of the records, order of bytes
//! block       head, records of one stream, packed        ┐ written by one flush, with one
//! block       head, records of another stream …          ┘ line in checksums.csv
//! ```
//!
//! A stream is what one ring held, in order of time. Each block has a checksum of its own, so that
//! one stream can be read without the others; the list says where the file ends. This file is
//! private to the program that wrote it: another version of the records is refused.
//!
//! What this does *not* do: know what a record says.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::checked_file::CheckedFile;
use crate::checksums::{Checksums, Chunk};
use crate::directory::Directory;
use crate::error::Error;
use crate::packing::{WordPacking, can_pack};

/// Name of the file.
pub(crate) const RECORDS: &str = "records.raw";

/// Version of the layout of this file: header, heads of blocks, compression, looks.
const LAYOUT: u32 = 2;

/// A block ends once it holds this many packed bytes, or when it is flushed. A reader has one of
/// each stream in memory.
const BLOCK_BYTES: usize = 32 << 10;

/// The longest block that is read. A writer makes blocks of [`BLOCK_BYTES`] and what one reading
/// of a ring adds to that.
const MOST_BLOCK_BYTES: usize = 64 << 20;

const MOST_HEADER_BYTES: usize = 4096;

/// Bytes of the head of a block.
const HEAD_BYTES: usize = 28;

/// The kinds of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Records of switches, as the kernel side wrote them.
    Switches,
    /// Records of tasks, as the kernel side wrote them.
    Tasks,
    /// Events of a user-mode scheduler ([`crate::encode_user_event`]).
    UserEvents,
    /// Switch-outs that were recorded without root, by perf events.
    PerfSwitchOuts,
    /// Everything else that such a recording has: starts of runs, names, losses.
    PerfOthers,
    /// Records of the tasks that lived when the segment of a ring began, of which records before may
    /// be gone. It is read of the first segment only.
    LivingTasks,
    /// Looks at tasks that wait ([`crate::encode_look`]).
    Looks,
}

impl StreamKind {
    const ALL: [Self; 7] = [
        Self::Switches,
        Self::Tasks,
        Self::UserEvents,
        Self::PerfSwitchOuts,
        Self::PerfOthers,
        Self::LivingTasks,
        Self::Looks,
    ];

    /// Returns true if its records come of perf events, and not of eBPF programs.
    pub const fn is_of_perf(self) -> bool {
        matches!(self, Self::PerfSwitchOuts | Self::PerfOthers)
    }

    /// Returns true if each of its records is a switch of the kernel.
    const fn are_switches(self) -> bool {
        matches!(self, Self::Switches | Self::PerfSwitchOuts)
    }

    fn of_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// The first line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordsHeader {
    /// [`LAYOUT`].
    layout: u32,
    /// Version of the records in the streams.
    wire: u32,
    /// `little` or `big`.
    byte_order: String,
}

impl RecordsHeader {
    fn of_this_machine(wire: u32) -> Self {
        let byte_order = if cfg!(target_endian = "little") {
            "little"
        } else {
            "big"
        };
        Self {
            layout: LAYOUT,
            wire,
            byte_order: byte_order.to_owned(),
        }
    }
}

/// The head of a block, before its packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockHead {
    kind: StreamKind,
    stream: u32,
    records: u32,
    /// Length of each record; 0 for records that are not packed.
    width: u32,
    /// Length of the records.
    length: u32,
    /// Length of what they were packed to.
    stored: u32,
    /// Checksum of the packed bytes.
    crc32: u32,
}

impl BlockHead {
    fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let words = [
            self.kind as u32,
            self.stream,
            self.records,
            self.width,
            self.length,
            self.stored,
            self.crc32,
        ];
        let mut bytes = [0; HEAD_BYTES];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None` where the bytes are no head.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let bytes = bytes.get(4 * index..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes))
        };
        Some(Self {
            kind: StreamKind::of_number(word(0)?)?,
            stream: word(1)?,
            records: word(2)?,
            width: word(3)?,
            length: word(4)?,
            stored: word(5)?,
            crc32: word(6)?,
        })
    }
}

/// Writes the file while it is recorded.
pub(crate) struct RecordsWriter {
    path: PathBuf,
    file: File,
    streams: Vec<PendingStream>,
    /// Blocks that have ended and are not written yet.
    blocks: Vec<u8>,
    /// Number of records that are not in the file: they wait, or could not be written.
    pending: RecordCounts,
    size: u64,
}

impl std::fmt::Debug for RecordsWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordsWriter")
            .field("path", &self.path)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// Number of records of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Switches of the kernel.
    pub switches: u64,
    /// Events of user-mode schedulers.
    pub user_events: u64,
}

impl RecordCounts {
    fn add(&mut self, kind: StreamKind, records: u64) {
        match kind {
            StreamKind::Switches | StreamKind::PerfSwitchOuts => self.switches += records,
            StreamKind::UserEvents => self.user_events += records,
            StreamKind::Tasks
            | StreamKind::PerfOthers
            | StreamKind::LivingTasks
            | StreamKind::Looks => {}
        }
    }
}

/// The next block of a stream.
#[derive(Debug)]
struct PendingStream {
    kind: StreamKind,
    records: u32,
    width: usize,
    length: usize,
    packing: WordPacking,
    packed: Vec<u8>,
}

impl PendingStream {
    const fn new(kind: StreamKind, width: usize) -> Self {
        Self {
            kind,
            records: 0,
            width,
            length: 0,
            packing: WordPacking::new(),
            packed: Vec::new(),
        }
    }

    fn push(&mut self, records: u32, bytes: &[u8]) {
        self.records += records;
        self.length += bytes.len();
        match self.width {
            0 => self.packed.extend_from_slice(bytes),
            width => self.packing.pack(width, bytes, &mut self.packed),
        }
    }

    /// Moves the block to the end of `blocks`.
    fn end_block(&mut self, stream: usize, blocks: &mut Vec<u8>) {
        let to_u32 = |length: usize| u32::try_from(length).expect("a block is far below 4 GB");
        let head = BlockHead {
            kind: self.kind,
            stream: to_u32(stream),
            records: self.records,
            width: to_u32(self.width),
            length: to_u32(self.length),
            stored: to_u32(self.packed.len()),
            crc32: crc32fast::hash(&self.packed),
        };
        blocks.extend_from_slice(&head.to_bytes());
        blocks.extend_from_slice(&self.packed);
        self.packed.clear();
        self.packing = WordPacking::new();
        (self.records, self.length) = (0, 0);
    }
}

impl RecordsWriter {
    /// Creates the file; its header is the first chunk.
    pub(crate) fn create(dir: &Directory, wire: u32) -> Result<(Self, Chunk), Error> {
        let path = dir.path().join(RECORDS);
        let created = || {
            let mut line = serde_json::to_vec(&RecordsHeader::of_this_machine(wire))?;
            line.push(b'\n');
            let mut file = dir.create_file(RECORDS)?;
            file.write_all(&line)?;
            Ok((file, Chunk::of(0, &line)))
        };
        let created: io::Result<_> = created();
        let (file, chunk) = created.map_err(|err| Error::write(&path, err))?;
        let writer = Self {
            path,
            file,
            streams: Vec::new(),
            blocks: Vec::new(),
            pending: RecordCounts::default(),
            size: chunk.end(),
        };
        Ok((writer, chunk))
    }

    /// Adds whole records at the end of a stream.
    pub(crate) fn push(&mut self, kind: StreamKind, stream: usize, records: u64, bytes: &[u8]) {
        let count = u32::try_from(records).expect("one reading of a ring");
        let width = width_of(kind, count, bytes);
        while stream >= self.streams.len() {
            self.streams.push(PendingStream::new(kind, 0));
        }
        let Self {
            streams, blocks, ..
        } = self;
        let pending = &mut streams[stream];
        if pending.records > 0 && (pending.kind, pending.width) != (kind, width) {
            pending.end_block(stream, blocks);
        }
        (pending.kind, pending.width) = (kind, width);
        // A reader decodes a block as a whole, so what a full ring held becomes several.
        let (piece, in_piece) = match width {
            0 => (bytes.len(), count),
            width => pieces(width),
        };
        let mut left = count;
        for bytes in bytes.chunks(piece.max(1)) {
            pending.push(left.min(in_piece), bytes);
            left = left.saturating_sub(in_piece);
            if pending.packed.len() >= BLOCK_BYTES {
                pending.end_block(stream, blocks);
            }
        }
        self.pending.add(kind, records);
    }

    /// Number of bytes in blocks that have ended and wait to be written.
    pub(crate) const fn packed_bytes(&self) -> usize {
        self.blocks.len()
    }

    /// Counts records that are dropped, because an earlier write has failed.
    pub(crate) fn drop_records(&mut self, kind: StreamKind, records: u64) {
        self.pending.add(kind, records);
    }

    /// Number of records that could not be written. Right once all was flushed.
    pub(crate) const fn not_written(&self) -> RecordCounts {
        self.pending
    }

    /// Writes what is pending. After a failure it is dropped, and stays counted as not written.
    pub(crate) fn write_pending(&mut self) -> Result<Option<Chunk>, Error> {
        for (stream, pending) in self.streams.iter_mut().enumerate() {
            if pending.records > 0 {
                pending.end_block(stream, &mut self.blocks);
            }
        }
        self.write_packed()
    }

    /// Number of records in blocks that have not ended.
    fn gathered(&self) -> RecordCounts {
        let mut counts = RecordCounts::default();
        for stream in &self.streams {
            counts.add(stream.kind, u64::from(stream.records));
        }
        counts
    }

    /// Writes the blocks that have ended.
    fn write_packed(&mut self) -> Result<Option<Chunk>, Error> {
        if self.blocks.is_empty() {
            return Ok(None);
        }
        let chunk = Chunk::of(self.size, &self.blocks);
        let written = self.file.write_all(&self.blocks);
        self.blocks.clear();
        if let Err(err) = written {
            // Frees the space of a half-written chunk on a full disk: the finished trace often fits
            // there. If it cannot be cut, a reader ignores it.
            let _ = self.file.set_len(self.size);
            return Err(Error::write(&self.path, err));
        }
        self.size = chunk.end();
        self.pending = self.gathered();
        Ok(Some(chunk))
    }
}

/// Bytes and number of the records of this width that are packed before the length of the block is
/// looked at.
fn pieces(width: usize) -> (usize, u32) {
    let records = (BLOCK_BYTES / width).max(1);
    (records * width, u32::try_from(records).expect("a few"))
}

/// The length of each of these records; 0 if they cannot be packed.
fn width_of(kind: StreamKind, count: u32, bytes: &[u8]) -> usize {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let width = bytes.len() / count.max(1);
    // Events of user-mode schedulers have different lengths.
    let is_one = kind != StreamKind::UserEvents && width * count == bytes.len();
    if is_one && can_pack(width) { width } else { 0 }
}

/// The records of an unfinished trace.
#[derive(Clone, Debug)]
pub struct RecordFile {
    /// One, or one of each segment.
    parts: Vec<RecordPart>,
    /// The streams, by number and kind.
    streams: BTreeMap<(u32, u32), RecordStream>,
    switches: u64,
    /// True if the records are those of segments (or of one), before which there may have been others.
    is_of_ring: bool,
}

/// A file of records, and the version of its records.
#[derive(Clone, Debug)]
struct RecordPart {
    file: CheckedFile,
    wire: u32,
}

impl RecordFile {
    /// Opens the file up to its last chunk that is listed and whole; `None` if the trace has no
    /// such file.
    pub(crate) fn open(dir: &Directory, list: &Checksums) -> Result<Option<Self>, Error> {
        let is_listed = list.of_file(RECORDS).next().is_some();
        let file = match CheckedFile::open(dir, RECORDS, list) {
            Ok(file) => file.intact_prefix()?,
            Err(Error::Read { source, .. })
                if source.kind() == io::ErrorKind::NotFound && !is_listed =>
            {
                return Ok(None);
            }
            Err(err) => return Err(err),
        };
        let mut records = Self {
            parts: Vec::new(),
            streams: BTreeMap::new(),
            switches: 0,
            is_of_ring: false,
        };
        let mut chunks = file.chunks().to_vec().into_iter();
        let wire = match chunks.next() {
            Some(first) => read_header(&file, first)?,
            None => 0,
        };
        for chunk in chunks {
            records.list_blocks(&file, chunk)?;
        }
        records.parts.push(RecordPart { file, wire });
        Ok(Some(records))
    }

    /// The records of segments that follow one another; `None` if there is no segment.
    pub(crate) fn chained<'a>(segments: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let mut segments = segments.filter(|segment| !segment.streams.is_empty());
        let mut chain = segments.next()?.clone();
        chain.is_of_ring = true;
        for segment in segments {
            chain.parts.extend_from_slice(&segment.parts);
            chain.switches += segment.switches;
            for (key, stream) in &segment.streams {
                match chain.streams.get_mut(key) {
                    _ if stream.kind == StreamKind::LivingTasks => {}
                    Some(before) => before.blocks.extend_from_slice(&stream.blocks),
                    None => drop(chain.streams.insert(*key, stream.clone())),
                }
            }
        }
        Some(chain)
    }

    /// Marks the records of a segment that is read by itself.
    #[must_use]
    pub(crate) fn of_ring_if(self, is_of_ring: bool) -> Self {
        Self { is_of_ring, ..self }
    }

    /// Returns true if it holds a part of a recording: earlier records are gone, and with them the first tasks.
    pub const fn is_of_ring(&self) -> bool {
        self.is_of_ring
    }

    /// Notes where the blocks of a chunk are.
    fn list_blocks(&mut self, file: &CheckedFile, chunk: Chunk) -> Result<(), Error> {
        let odd_block = |offset: u64| {
            let what = format!("there is no block of records at byte {offset}");
            Error::damaged(file.path(), what)
        };
        let mut offset = chunk.offset;
        while offset < chunk.end() {
            let mut bytes = [0; HEAD_BYTES];
            let head_end = offset + HEAD_BYTES as u64;
            if head_end > chunk.end() {
                return Err(odd_block(offset));
            }
            file.read_exact_at(offset, &mut bytes)?;
            let head = BlockHead::of_bytes(&bytes);
            let head = head.ok_or_else(|| odd_block(offset))?;
            let end = head_end + u64::from(head.stored);
            let is_read = usize::try_from(head.length).is_ok_and(|len| len <= MOST_BLOCK_BYTES)
                && usize::try_from(head.stored).is_ok_and(|len| len <= MOST_BLOCK_BYTES);
            if end > chunk.end() || !is_read {
                return Err(odd_block(offset));
            }
            let stream = self.streams.entry((head.stream, head.kind as u32));
            let stream = stream.or_insert_with(|| RecordStream {
                kind: head.kind,
                blocks: Vec::new(),
            });
            stream.blocks.push((file.clone(), head_end, head));
            if head.kind.are_switches() {
                self.switches += u64::from(head.records);
            }
            offset = end;
        }
        Ok(())
    }

    /// Checks that the records are those that this program understands.
    ///
    /// # Errors
    ///
    /// [`Error::OtherRecords`] if a version of the program wrote them whose records are none of these.
    pub fn require_wire(&self, wires: RangeInclusive<u32>) -> Result<(), Error> {
        let other = self.parts.iter().find(|part| !wires.contains(&part.wire));
        match other.filter(|_| !self.streams.is_empty()) {
            None => Ok(()),
            Some(part) => Err(Error::OtherRecords {
                path: part.file.path().to_owned(),
                what: format!(
                    "records of version {}, and this swtch reads versions {} to {}",
                    part.wire,
                    wires.start(),
                    wires.end()
                ),
            }),
        }
    }

    /// The streams, in order of their numbers.
    pub fn streams(&self) -> Vec<RecordStream> {
        self.streams.values().cloned().collect()
    }

    /// Number of switches in the streams of the kernel.
    pub const fn switches(&self) -> u64 {
        self.switches
    }

    /// Number of bytes that are torn, damaged or missing.
    pub(crate) fn unreadable_bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|part| part.file.unreadable_bytes());
        parts.fold(0, u64::saturating_add)
    }

    /// Size of the part that can be read, in bytes.
    pub fn size(&self) -> u64 {
        let files = self.parts.iter().map(|part| &part.file);
        files.map(parquet::file::reader::Length::len).sum()
    }
}

/// The version of the records in the file.
fn read_header(file: &CheckedFile, chunk: Chunk) -> Result<u32, Error> {
    let length = usize::try_from(chunk.length).unwrap_or(usize::MAX);
    if length > MOST_HEADER_BYTES {
        return Err(Error::damaged(file.path(), "its header is too long"));
    }
    let mut line = vec![0; length];
    file.read_exact_at(chunk.offset, &mut line)?;
    let header: RecordsHeader = serde_json::from_slice(&line)
        .map_err(|err| Error::damaged(file.path(), format!("its header: {err}")))?;
    let here = RecordsHeader::of_this_machine(header.wire);
    if header != here {
        return Err(Error::OtherRecords {
            path: file.path().to_owned(),
            what: format!(
                "layout {} and {}-endian numbers, and this swtch reads layout {} and {}-endian \
                 ones",
                header.layout, header.byte_order, here.layout, here.byte_order
            ),
        });
    }
    Ok(header.wire)
}

/// The records of one ring, in order of time.
#[derive(Clone, Debug)]
pub struct RecordStream {
    kind: StreamKind,
    /// The file of each, where its packed bytes begin there, and its head.
    blocks: Vec<(CheckedFile, u64, BlockHead)>,
}

impl RecordStream {
    /// Returns the kind of its records.
    pub const fn kind(&self) -> StreamKind {
        self.kind
    }

    /// Number of its blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The records of a block, of which [`Self::blocks`] says the number.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], or [`Error::Damaged`] if the bytes are not as they were written.
    pub fn block(&self, index: usize) -> Result<Vec<u8>, Error> {
        let (file, offset, head) = &self.blocks[index];
        let length = |length: u32| usize::try_from(length).expect("checked when it was listed");
        let mut packed = vec![0; length(head.stored)];
        file.read_exact_at(*offset, &mut packed)?;
        let damaged = |what: &str| {
            let what = format!("the block of records at byte {offset} {what}");
            Error::damaged(file.path(), what)
        };
        if crc32fast::hash(&packed) != head.crc32 {
            return Err(damaged("is not as it was written"));
        }
        let (width, count) = (length(head.width), length(head.records));
        let bytes = match width {
            0 => Some(packed),
            _ if can_pack(width) && width * count == length(head.length) => {
                WordPacking::unpack(width, count, &packed)
            }
            _ => None,
        };
        let bytes = bytes.filter(|bytes| bytes.len() == length(head.length));
        bytes.ok_or_else(|| damaged("does not hold what it says"))
    }
}

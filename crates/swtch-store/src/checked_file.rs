//! A file whose bytes are checked before they are used.
//!
//! Both decoders read through this: the Arrow stream reader from start to end, the Parquet reader
//! at any position. Each read fetches whole chunks, compares their checksums, and only then returns
//! the bytes that were requested.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::checksums::{Checksums, Chunk};
use crate::directory::Directory;
use crate::error::Error;

/// The largest chunk that is read, because a chunk is in memory as a whole. Chunks of a finished
/// file have 64 KiB; one of a stream holds at most 8192 rows, and this is 128 KiB for each of them.
/// No writer makes a larger one, but a sparse file can have any length.
const MOST_CHUNK_BYTES: usize = 1 << 30;

/// The longest chunk that is kept after it was checked: as long as those of a finished file are.
const MOST_RECENT_BYTES: u64 = 64 << 10;

/// Chunks that are kept: one for each column of `switch`, and some for the next ones. At most 4 MB.
const MOST_RECENT: usize = 64;

/// A file and the checksums of its parts. Clones share the file.
#[derive(Clone, Debug)]
pub(crate) struct CheckedFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: File,
    /// Size of the file, or the end of the listed chunks if that is larger.
    extent: u64,
    /// The chunks without holes, from the start of the file.
    chunks: Vec<Chunk>,
    /// Set when bytes differ from what was written: decoders pass errors on as text only.
    damage: OnceLock<String>,
    /// Chunks that were checked lately, the latest last. The pages of a column lie in a row, and
    /// each is read in two steps, header and body, while the pages of the other columns are read in
    /// between: without this each chunk of a finished file would be read and checked several times.
    recent: Mutex<VecDeque<(usize, Bytes)>>,
}

impl CheckedFile {
    /// Opens `dir/name`. Bytes that are not listed, or listed after a hole, are not used.
    pub(crate) fn open(dir: &Directory, name: &str, list: &Checksums) -> Result<Self, Error> {
        let path = dir.path().join(name);
        let open = || {
            let file = dir.open_file(name)?;
            let size = file.metadata()?.len();
            Ok((file, size))
        };
        let (file, size) = open().map_err(|err| Error::read(&path, err))?;
        let mut chunks = Vec::new();
        let (mut end, mut extent) = (0, size);
        let mut has_hole = false;
        for chunk in list.of_file(name) {
            extent = extent.max(chunk.end());
            has_hole |= chunk.offset != end || chunk.length == 0 || chunk.end() > size;
            if !has_hole {
                end = chunk.end();
                chunks.push(chunk);
            }
        }
        Ok(Self::new(path, file, extent, chunks))
    }

    fn new(path: PathBuf, file: File, extent: u64, chunks: Vec<Chunk>) -> Self {
        Self(Arc::new(Inner {
            path,
            file,
            extent,
            chunks,
            damage: OnceLock::new(),
            recent: Mutex::default(),
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// The parts that have a checksum, in order.
    pub(crate) fn chunks(&self) -> &[Chunk] {
        &self.0.chunks
    }

    /// Reads bytes without comparing a checksum, for who has one of them.
    pub(crate) fn read_exact_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let read = self.0.file.read_exact_at(bytes, offset);
        read.map_err(|err| Error::read(self.path(), err))
    }

    /// Number of bytes that exist or should exist, but have no valid checksum.
    pub(crate) fn unreadable_bytes(&self) -> u64 {
        self.0.extent - self.len()
    }

    /// The file up to the first chunk that is damaged.
    pub(crate) fn intact_prefix(self) -> Result<Self, Error> {
        let mut intact = 0;
        for index in 0..self.0.chunks.len() {
            match self.chunk(index) {
                Ok(_) => intact += 1,
                Err(Error::Damaged { .. }) => break,
                Err(err) => return Err(err),
            }
        }
        let file = self
            .0
            .file
            .try_clone()
            .map_err(|err| Error::read(self.path(), err))?;
        let chunks = self.0.chunks[..intact].to_vec();
        Ok(Self::new(self.0.path.clone(), file, self.0.extent, chunks))
    }

    /// The error of a decoder, or the damage behind it.
    pub(crate) fn explain(
        &self,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        match self.0.damage.get() {
            Some(what) => Error::damaged(self.path(), what.clone()),
            None => Error::decode(self.path(), error),
        }
    }

    /// A reader of the bytes from `offset` on.
    pub(crate) fn reader_at(&self, offset: u64) -> CheckedReader {
        CheckedReader {
            file: self.clone(),
            next: offset,
            ahead: Bytes::new(),
        }
    }

    fn chunk(&self, index: usize) -> Result<Bytes, Error> {
        if self.0.chunks[index].length > MOST_RECENT_BYTES {
            return self.checked_chunk(index);
        }
        if let Some(bytes) = self.recent_chunk(index) {
            return Ok(bytes);
        }
        let bytes = self.checked_chunk(index)?;
        let mut recent = self.recent();
        if recent.len() >= MOST_RECENT {
            recent.pop_front();
        }
        recent.push_back((index, bytes.clone()));
        Ok(bytes)
    }

    fn recent_chunk(&self, index: usize) -> Option<Bytes> {
        let recent = self.recent();
        let found = recent.iter().rev().find(|chunk| chunk.0 == index);
        found.map(|chunk| chunk.1.clone())
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<(usize, Bytes)>> {
        // The list holds whole chunks only, so one left by a panicking thread is sound.
        self.0.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn checked_chunk(&self, index: usize) -> Result<Bytes, Error> {
        let chunk = self.0.chunks[index];
        let length = usize::try_from(chunk.length)
            .ok()
            .filter(|length| *length <= MOST_CHUNK_BYTES)
            .ok_or_else(|| Error::damaged(self.path(), "checksums.csv names a chunk above 1 GB"))?;
        let mut bytes = vec![0; length];
        self.0
            .file
            .read_exact_at(&mut bytes, chunk.offset)
            .map_err(|err| Error::read(self.path(), err))?;
        if chunk.is_of(&bytes) {
            return Ok(bytes.into());
        }
        let what = format!(
            "its bytes {} to {} are not as they were written",
            chunk.offset,
            chunk.end()
        );
        // The first damage found is the one to report.
        let what = self.0.damage.get_or_init(|| what);
        Err(Error::damaged(self.path(), what.clone()))
    }

    /// The bytes from `offset` to the end of its chunk; empty at the end of the file.
    fn rest_of_chunk(&self, offset: u64) -> Result<Bytes, Error> {
        if offset >= self.len() {
            return Ok(Bytes::new());
        }
        let index = self.0.chunks.partition_point(|chunk| chunk.end() <= offset);
        let bytes = self.chunk(index)?;
        let skip = usize::try_from(offset - self.0.chunks[index].offset)
            .expect("less than the length of a chunk in memory");
        Ok(bytes.slice(skip..))
    }
}

impl Length for CheckedFile {
    /// Length of the part with checksums, which is all that readers see.
    fn len(&self) -> u64 {
        self.0.chunks.last().map_or(0, Chunk::end)
    }
}

impl ChunkReader for CheckedFile {
    type T = CheckedReader;

    fn get_read(&self, start: u64) -> Result<CheckedReader, ParquetError> {
        Ok(self.reader_at(start))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let first = self.rest_of_chunk(start).map_err(external)?;
        if first.len() >= length {
            return Ok(first.slice(..length));
        }
        let end = start.saturating_add(u64::try_from(length).map_err(external)?);
        if end > self.len() {
            return Err(ParquetError::EOF(format!("the file ends before {end}")));
        }
        let mut bytes = vec![0; length];
        let mut reader = self.reader_at(start);
        reader.ahead = first;
        reader.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

fn external(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ParquetError {
    ParquetError::External(error.into())
}

/// Reads a [`CheckedFile`] in order of its bytes.
#[derive(Debug)]
pub(crate) struct CheckedReader {
    file: CheckedFile,
    /// Offset in the file of the first byte of `ahead`.
    next: u64,
    /// Bytes that are checked but not yet returned.
    ahead: Bytes,
}

impl Read for CheckedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            let rest = self.file.rest_of_chunk(self.next);
            self.ahead = rest.map_err(io::Error::other)?;
        }
        let count = buffer.len().min(self.ahead.len());
        buffer[..count].copy_from_slice(&self.ahead.split_to(count));
        self.next += u64::try_from(count).expect("a length fits 64 bits");
        Ok(count)
    }
}

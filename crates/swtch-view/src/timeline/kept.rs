//! The rows of a large trace in a file, and that file beside the trace for the next time.
//!
//! ```text
//!  NAME.swtch.view      rows │ workers' rows │ runs by CPU │ index │ trailer
//!  index: tracks, sums, moments of blocks …, which are in memory while the trace is open
//! ```
//!
//! The file has no name while it is filled, so nothing is left of it when the process is killed; it
//! gets its name at once, when all of it is on the disk. It belongs to one state of the trace: the
//! trailer holds a number that is made of the trace's list of checksums. Another state, another
//! version of this program, another owner or a damaged index, and it is made again.
//!
//! It is reached through the descriptor of the directory, with the rights of the user who called `sudo`.
//! Root keeps none in a directory of somebody else, who could put other files in its place.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::hash::Hasher as _;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHasher;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, linkat, openat, renameat, unlinkat};
use swtch_core::{CpuId, Reason, TaskKey, Timestamp};
use swtch_output::caller::{RightsOfCaller, user_of_files};
use swtch_report::opening::LIST_OF_FILES;
use swtch_store::{Completeness, Trace, input};

use super::bins::StateSums;
use super::cpus::{CpuLane, CpuRuns, RUN_WORDS};
use super::table::{LongLengths, ROW_WORDS, RowTable};
use super::word_file::{WordFile, WordPlace};
use super::{LevelRows, LevelTimelines, TimelineError, Track, TrackTimes};

/// With more rows than this they go to a file: so many take 560 MB of memory.
pub const MOST_IN_MEMORY: u64 = 16_000_000;

const MAGIC: u64 = u64::from_le_bytes(*b"swtchvw1");

/// Version of what is in the file. It grows with every change of the layout or of a meaning.
const LAYOUT: u64 = 1;

/// Words of the trailer: magic, identity, byte of the index, its words, their sum.
const TRAILER: usize = 5;

const WORD_BYTES: usize = size_of::<u64>();
const WORD: u64 = WORD_BYTES as u64;

/// The longest list of checksums that is read, as in `swtch-store`.
const MOST_LIST_BYTES: u64 = 400 << 20;

/// Words of the index that are read at once.
const READ_AT_ONCE: usize = 1 << 16;

/// The source of a trace's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowsSource {
    /// They were read from the trace and are in memory.
    Memory,
    /// They were read from the trace and are in a file of so many bytes, which can be kept there.
    Made(u64, Option<PathBuf>),
    /// They were in a file that an earlier opening had kept.
    Kept(PathBuf),
}

/// The timelines of a trace at `path` that began at `start`, in memory if it has at most `most`
/// rows; with their source, and the file that is to be kept.
///
/// # Errors
/// When the trace cannot be read, or there is no room for the file.
pub fn open(
    path: &Path,
    trace: &Trace,
    start: Timestamp,
    most: u64,
) -> Result<(LevelTimelines, RowsSource, Option<UnnamedFile>), TimelineError> {
    if trace.row_count().saturating_add(trace.user_row_count()) <= most {
        let levels = LevelTimelines::read(trace, start)?;
        return Ok((levels, RowsSource::Memory, None));
    }
    let _rights = RightsOfCaller::take().map_err(io::Error::other)?;
    let kept = KeptPlace::of(path, trace);
    if let Some(place) = &kept
        && let Some(levels) = reopened(place)
    {
        return Ok((levels, RowsSource::Kept(place.path()), None));
    }
    let beside = kept.as_ref().map(KeptPlace::directory_through_proc);
    let (file, levels, kept) = match beside.map(|dir| read_into_file(&dir, trace, start)) {
        Some(Ok((file, levels))) => (file, levels, kept),
        Some(Err(TimelineError::Trace(error))) => return Err(error.into()),
        // Nothing may be written there, or the disk is full.
        Some(Err(TimelineError::File(_))) | None => {
            let (file, levels) = read_into_file(&folder_for_large_files(), trace, start)?;
            (file, levels, None)
        }
    };
    let identity = kept.as_ref().map_or(0, |place| place.identity);
    let bytes = write_index(&file, &levels, identity)?;
    let path = kept.as_ref().map(KeptPlace::path);
    let unnamed = kept.map(|place| UnnamedFile { file, place });
    Ok((levels, RowsSource::Made(bytes, path), unnamed))
}

/// Reads a trace, with its rows in a file in `dir` that has no name.
fn read_into_file(
    dir: &Path,
    trace: &Trace,
    start: Timestamp,
) -> Result<(Arc<File>, LevelTimelines), TimelineError> {
    let file = tempfile::tempfile_in(dir)?;
    // Rows of a trace are as private as the trace may be.
    file.set_permissions(Permissions::from_mode(0o600))?;
    let file = Arc::new(file);
    let levels = LevelTimelines::read_into(trace, start, Some(&file))?;
    Ok((file, levels))
}

/// A finished file without a name.
#[derive(Debug)]
pub struct UnnamedFile {
    file: Arc<File>,
    place: KeptPlace,
}

impl UnnamedFile {
    /// Waits until the file is on the disk, and gives it its name.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn keep(&self) -> io::Result<()> {
        let _rights = RightsOfCaller::take().map_err(io::Error::other)?;
        self.file.sync_data()?;
        let KeptPlace {
            directory, name, ..
        } = &self.place;
        // Only a rename replaces an older file at once.
        let mut new = name.clone();
        // A name of its own: another viewer may be about to keep what it has prepared.
        let descriptor = self.file.as_raw_fd();
        new.push(format!(".{}-{descriptor}.new", std::process::id()));
        let own = format!("/proc/self/fd/{descriptor}");
        linkat(CWD, own, directory, &new, AtFlags::SYMLINK_FOLLOW)?;
        renameat(directory, &new, directory, name).inspect_err(|_| {
            let _ = unlinkat(directory, &new, AtFlags::empty());
        })?;
        Ok(())
    }
}

/// The place where the file of a trace is kept.
#[derive(Debug)]
struct KeptPlace {
    /// The directory in which the trace lies.
    directory: OwnedFd,
    /// Its path when it was opened.
    shown: PathBuf,
    name: OsString,
    /// The state of the trace that the file is of.
    identity: u64,
}

impl KeptPlace {
    /// `None` if the file cannot be kept: the trace is unfinished or was converted, or this is root and
    /// the directory is somebody else's.
    fn of(path: &Path, trace: &Trace) -> Option<Self> {
        if trace.completeness() != Completeness::Finished {
            return None;
        }
        let path = path.canonicalize().ok()?;
        let shown = path.parent()?.to_owned();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, &shown, flags, Mode::empty()).ok()?;
        let user = user_of_files();
        if user.is_root() && fstat(&directory).ok()?.st_uid != user.as_raw() {
            return None;
        }
        let list = input::read(&path.join(LIST_OF_FILES), MOST_LIST_BYTES).ok()?;
        let mut hasher = FxHasher::default();
        hasher.write_u64(LAYOUT);
        // Rows hold reasons as numbers.
        for word in Reason::ALL.iter().map(|reason| reason.as_str()) {
            hasher.write(word.as_bytes());
        }
        hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
        hasher.write(&list);
        let mut name = path.file_name()?.to_owned();
        name.push(".view");
        Some(Self {
            directory,
            shown,
            name,
            identity: hasher.finish(),
        })
    }

    fn path(&self) -> PathBuf {
        self.shown.join(&self.name)
    }

    /// A path that leads to the directory in this process, wherever it is moved.
    fn directory_through_proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }
}

/// The folder for a file that is large and not kept: `/tmp` may be in memory.
fn folder_for_large_files() -> PathBuf {
    let large = Path::new("/var/tmp");
    match std::env::var_os("TMPDIR") {
        None if large.is_dir() => large.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// The timelines of a file that was kept; `None` if there is none that can be believed. One of
/// another state of the trace is removed.
fn reopened(place: &KeptPlace) -> Option<LevelTimelines> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&place.directory, &place.name, flags, Mode::empty()).ok()?);
    // What somebody else can write is not believed.
    let facts = file.metadata().ok()?;
    let is_own = facts.uid() == user_of_files().as_raw() && facts.mode() & 0o022 == 0;
    if !facts.is_file() || !is_own {
        return None;
    }
    let trailer = trailer_of(&file, facts.len())?;
    let [MAGIC, found, offset, words, sum] = trailer else {
        return None;
    };
    if found != place.identity {
        let _ = unlinkat(&place.directory, &place.name, AtFlags::empty());
        return None;
    }
    let is_whole =
        offset.checked_add(words.checked_mul(WORD)?)? + TRAILER as u64 * WORD == facts.len();
    if !is_whole {
        return None;
    }
    (&file).seek(SeekFrom::Start(offset)).ok()?;
    let file = Arc::new(file);
    let mut index = IndexReader {
        from: BufReader::with_capacity(1 << 20, &*file),
        left: words,
        hasher: FxHasher::default(),
    };
    let end_ns = index.word()?;
    let levels = LevelTimelines {
        os: index.level(&file)?,
        user: index.level(&file)?,
        end_ns,
    };
    (index.left == 0 && index.hasher.finish() == sum).then_some(levels)
}

fn trailer_of(mut file: &File, length: u64) -> Option<[u64; TRAILER]> {
    let begin = length.checked_sub(TRAILER as u64 * WORD)?;
    file.seek(SeekFrom::Start(begin)).ok()?;
    let mut trailer = [0; TRAILER];
    for word in &mut trailer {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes).ok()?;
        *word = u64::from_le_bytes(bytes);
    }
    Some(trailer)
}

/// Appends the index and the trailer, and returns the size of the file.
fn write_index(file: &File, levels: &LevelTimelines, identity: u64) -> io::Result<u64> {
    let parts = [&levels.os, &levels.user];
    let rows = parts.iter().filter_map(|level| level.rows.file());
    let runs = parts.iter().filter_map(|level| match &level.runs {
        CpuRuns::File(file) => Some(file),
        CpuRuns::Memory(_) => None,
    });
    let ends = rows.chain(runs).map(|file| file.place().end());
    let offset = ends.max().unwrap_or(0).next_multiple_of(WORD);
    let mut to = file;
    to.seek(SeekFrom::Start(offset))?;
    let mut index = IndexWriter {
        to: BufWriter::with_capacity(1 << 20, to),
        words: 0,
        hasher: FxHasher::default(),
    };
    index.word(levels.end_ns)?;
    parts.iter().try_for_each(|level| index.level(level))?;
    let (words, sum) = (index.words, index.hasher.finish());
    for word in [MAGIC, identity, offset, words, sum] {
        index.word(word)?;
    }
    index.to.flush()?;
    Ok(offset + (words + TRAILER as u64) * WORD)
}

struct IndexWriter<W: Write> {
    to: BufWriter<W>,
    words: u64,
    hasher: FxHasher,
}

impl<W: Write> IndexWriter<W> {
    fn word(&mut self, word: u64) -> io::Result<()> {
        self.words += 1;
        self.hasher.write_u64(word);
        self.to.write_all(&word.to_le_bytes())
    }

    fn count(&mut self, count: usize) -> io::Result<()> {
        self.word(count as u64)
    }

    fn all(&mut self, words: &[u64]) -> io::Result<()> {
        words.iter().try_for_each(|word| self.word(*word))
    }

    fn level(&mut self, level: &LevelRows) -> io::Result<()> {
        self.count(level.tracks.len())?;
        for (track, times) in level.tracks.iter().zip(&level.times) {
            self.word(track.task.get().into())?;
            self.count(track.first)?;
            self.count(track.len)?;
            self.all(&[times.ran_ns, times.blocked_ns, times.runq_ns])?;
        }
        self.file(level.rows.file())?;
        for long in level.rows.long() {
            self.count(long.len())?;
            for (row, ns) in long {
                self.all(&[(*row).into(), *ns])?;
            }
        }
        self.count(level.sums.before().len())?;
        for (state, sums) in level.sums.before() {
            self.word((*state).into())?;
            self.all(sums)?;
        }
        self.count(level.cpus.len())?;
        for lane in &level.cpus {
            self.word(lane.cpu.get().into())?;
            self.count(lane.len())?;
            self.all(lane.busy_before())?;
        }
        match &level.runs {
            CpuRuns::File(file) => self.file(Some(file)),
            CpuRuns::Memory(_) => self.file(None),
        }
    }

    fn file(&mut self, file: Option<&WordFile>) -> io::Result<()> {
        let file = file.ok_or_else(|| io::Error::other("the rows are in memory"))?;
        self.word(file.place().offset)?;
        self.count(file.place().records)?;
        self.all(file.firsts())
    }
}

struct IndexReader<R: Read> {
    from: BufReader<R>,
    /// Words that are left.
    left: u64,
    hasher: FxHasher,
}

impl<R: Read> IndexReader<R> {
    fn word(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let mut bytes = [0; 8];
        self.from.read_exact(&mut bytes).ok()?;
        let word = u64::from_le_bytes(bytes);
        self.hasher.write_u64(word);
        Some(word)
    }

    /// A number of things, each of which takes words that are left.
    fn count(&mut self) -> Option<usize> {
        let count = self.word()?;
        usize::try_from(count).ok()
    }

    fn all(&mut self, words: usize) -> Option<Vec<u64>> {
        // A damaged number must not take all memory.
        self.left = self.left.checked_sub(words as u64)?;
        let mut all = Vec::with_capacity(words);
        let mut bytes = vec![0; words.min(READ_AT_ONCE) * WORD_BYTES];
        while all.len() < words {
            let now = (words - all.len()).min(READ_AT_ONCE);
            let bytes = &mut bytes[..now * WORD_BYTES];
            self.from.read_exact(bytes).ok()?;
            let read = bytes.chunks_exact(WORD_BYTES);
            all.extend(read.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))));
        }
        all.iter().for_each(|word| self.hasher.write_u64(*word));
        Some(all)
    }

    fn level(&mut self, file: &Arc<File>) -> Option<LevelRows> {
        let count = self.count()?;
        let (mut tracks, mut times) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let task = TaskKey::new(u32::try_from(self.word()?).ok()?);
            let (first, len) = (self.count()?, self.count()?);
            tracks.push(Track { task, first, len });
            let [ran_ns, blocked_ns, runq_ns] = [self.word()?, self.word()?, self.word()?];
            times.push(TrackTimes {
                ran_ns,
                blocked_ns,
                runq_ns,
            });
        }
        let rows = self.file(file, ROW_WORDS)?;
        let mut long = LongLengths::default();
        for long in &mut long {
            for _ in 0..self.count()? {
                let row = u32::try_from(self.word()?).ok()?;
                long.insert(row, self.word()?);
            }
        }
        let blocks = StateSums::blocks_of(&tracks);
        let mut before = Vec::new();
        for _ in 0..self.count()? {
            let state = u8::try_from(self.word()?).ok()?;
            before.push((state, self.all(blocks)?));
        }
        let (mut cpus, mut first) = (Vec::new(), 0);
        for _ in 0..self.count()? {
            let cpu = CpuId::new(u16::try_from(self.word()?).ok()?);
            let len = self.count()?;
            let busy = self.all(CpuLane::sums_of(len))?;
            cpus.push(CpuLane::kept(cpu, first, len, busy));
            first += len;
        }
        let runs = CpuRuns::File(self.file(file, RUN_WORDS)?);
        let places = tracks.iter().zip(0..);
        Some(LevelRows {
            by_task: places.map(|(track, place)| (track.task, place)).collect(),
            rows: RowTable::of_file(rows, long),
            sums: StateSums::kept(&tracks, before),
            tracks,
            times,
            cpus,
            runs,
        })
    }

    fn file(&mut self, file: &Arc<File>, width: usize) -> Option<WordFile> {
        let (offset, records) = (self.word()?, self.count()?);
        let place = WordPlace {
            offset,
            records,
            width,
        };
        let firsts = self.all(place.blocks())?;
        Some(WordFile::new(Arc::clone(file), place, firsts))
    }
}

#[cfg(test)]
mod tests;

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

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();
const WORD: u64 = WORD_BYTES as u64;

/// The longest list of checksums that is read, as in `swtch-store`.
const MOST_LIST_BYTES: u64 = 400 << 20;

/// Words of the index that are read at once.
const READ_AT_ONCE: usize = 1 << 16;

/// Where the rows of a trace came from.
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

/// Where the file of a trace is kept.
#[derive(Debug)]
struct KeptPlace {
    /// The directory in which the trace lies.
    directory: OwnedFd,
    /// Its path when it was opened.
    shown: PathBuf,
    name: OsString,
    /// Which state of the trace the file is of.
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
mod tests {
    use super::*;
    use crate::lanes::{LaneId, Window};
    use crate::{Loaded, Span, chain, curves, lanes, states};
    use serde_json::{Value, json};
    use std::fs;
    use std::os::unix::fs::symlink;
    use swtch_core::{Level, Nanos, Switch};
    use swtch_fixtures::{after, meta, row, seen, woken_by};
    use swtch_store::Writer;
    use tempfile::TempDir;

    const START: u64 = 1_000_000_000;

    /// Threads that take turns on three CPUs, with waits of every kind, some of them longer than a
    /// word holds, and workers of a user-mode scheduler on one of them.
    fn drawn(dir: &Path, rows: u64, seed: u64) -> PathBuf {
        let path = dir.join("t.swtch");
        let _ = fs::remove_dir_all(&path);
        let mut meta = meta();
        meta.end_ns = 0;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut all = Vec::new();
        let reasons = [Reason::Futex, Reason::Pipe, Reason::Slice, Reason::Sleep];
        for cpu in 0..3_u16 {
            let (mut now, mut left) = (START, [None; 5]);
            for number in 0..rows / 3 {
                let place = random.usize(0..5);
                let task = u32::from(cpu) * 5 + u32::try_from(place).unwrap() + 1;
                let pause = random.u64(0..3_000);
                let ran = match number % 400 {
                    7 => 5_000_000_000,
                    _ => random.u64(1_000..40_000),
                };
                now += pause + ran;
                let reason = reasons[random.usize(0..reasons.len())];
                let mut this = match left[place].replace((now, reason)) {
                    None => row(task, reason),
                    Some((since, reason_before)) => {
                        let off = now - ran - since;
                        let runq = random.u64(0..=off);
                        after(row(task, reason), reason_before, off - runq, runq)
                    }
                };
                if random.bool() {
                    this = woken_by(this, random.u32(1..16));
                }
                this.ran = (number % 50 != 3).then_some(Nanos::from_ns(ran));
                this.ts = Timestamp::from_ns(now);
                this.cpu = CpuId::new(cpu * 2);
                let is_worker = cpu == 0 && place == 0;
                all.extend(is_worker.then_some(Switch {
                    level: Level::User,
                    user_task: Some(number),
                    ..this
                }));
                all.push(this);
            }
        }
        all.sort_by_key(|row| row.ts);
        let workers = all.iter().filter(|row| row.level == Level::User).count();
        meta.user = Some(swtch_store::UserCounts {
            stored: workers as u64,
            ..Default::default()
        });
        let mut writer = Writer::create(&path, &meta).unwrap();
        for task in 1..16 {
            writer
                .push_task(&seen(task, 10, 10 + task, "server"))
                .unwrap();
        }
        all.iter().for_each(|row| writer.push_switch(row).unwrap());
        writer.finish(&meta, &mut |_, _| ()).unwrap();
        path
    }

    /// What the page can ask: pictures near and far of every lane, numbers, chains.
    fn answers(loaded: &Loaded) -> (Vec<Vec<u8>>, Vec<Value>) {
        let whole = loaded.duration_ns() + 1;
        let mut lanes: Vec<LaneId> = (1..16)
            .map(|task| LaneId::Thread(TaskKey::new(task)))
            .collect();
        lanes.push(LaneId::Workers(TaskKey::new(1)));
        lanes.extend([0, 2, 3, 4].map(|cpu| LaneId::Cpu(CpuId::new(cpu))));
        let spans = [
            (0, whole),
            (whole / 3, whole / 2),
            (whole / 2, whole / 2 + 3_000_000),
            (whole - 5_000_000, whole + 10),
        ];
        let spans = spans.map(|(from_ns, to_ns)| Span { from_ns, to_ns });
        let mut pictures = Vec::new();
        let mut numbers = vec![loaded.threads().clone(), loaded.facts().unwrap().clone()];
        for span in spans {
            for px in [3, 100, 1300] {
                pictures.push(lanes::answer(loaded, &Window { span, px }, &lanes));
            }
            numbers.push(curves::rate(loaded, span, 77));
            for of in ["ran", "off", "blocked", "runq"] {
                numbers.push(curves::distribution(loaded, span, of, None).unwrap());
            }
            for task in [1, 7, 15] {
                let task = TaskKey::new(task);
                numbers.push(states::states(loaded, task, span));
                numbers.push(chain::critical(loaded, task, span));
            }
        }
        let rows = loaded.levels.os.rows().len();
        for row in [0, 1, rows / 2, rows - 1] {
            numbers.push(chain::chain(loaded, row));
            let detail = crate::detail::of_row(loaded, Level::Os, row, None);
            numbers.push(detail.unwrap());
        }
        numbers.push(json!(loaded.levels.end_ns));
        (pictures, numbers)
    }

    fn opened(path: &Path) -> Loaded {
        let loaded = Loaded::read_with(path, 1, 10).unwrap();
        if let Some(unnamed) = &loaded.unnamed {
            unnamed.keep().unwrap();
        }
        loaded
    }

    fn is_reused(path: &Path) -> bool {
        match opened(path).source {
            RowsSource::Kept(_) => true,
            RowsSource::Made(_, Some(_)) => false,
            other => panic!("it is large enough for a file that is kept: {other:?}"),
        }
    }

    fn drawn_dir() -> (TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = drawn(dir.path(), 9_000, 3);
        let file = dir.path().canonicalize().unwrap().join("t.swtch.view");
        (dir, path, file)
    }

    /// Wherever the rows lie, every answer has the same bytes.
    #[test]
    fn rows_in_a_file_give_the_answers_of_rows_in_memory() {
        let (_dir, path, file) = drawn_dir();
        let memory = Loaded::read(&path, 1).unwrap();
        assert_eq!(memory.source, RowsSource::Memory);
        assert!(
            !memory
                .levels
                .os
                .rows()
                .long()
                .iter()
                .all(|long| long.is_empty())
        );
        let expected = answers(&memory);
        let made = opened(&path);
        assert!(matches!(made.source, RowsSource::Made(_, Some(_))));
        assert!(answers(&made) == expected, "made");
        let kept = opened(&path);
        assert_eq!(kept.source, RowsSource::Kept(file));
        assert!(answers(&kept) == expected, "kept");
    }

    /// A trace of the same name and length that holds something else.
    #[test]
    fn what_was_kept_of_another_trace_is_dropped() {
        let (dir, path, _) = drawn_dir();
        assert!(!is_reused(&path));
        assert!(is_reused(&path));
        drawn(dir.path(), 9_000, 4);
        assert!(!is_reused(&path));
        let memory = Loaded::read(&path, 1).unwrap();
        assert!(answers(&opened(&path)) == answers(&memory));
    }

    #[test]
    fn a_damaged_file_is_made_again() {
        let (_dir, path, file) = drawn_dir();
        assert!(!is_reused(&path));
        let whole = fs::read(&file).unwrap();
        let cut = |bytes: &[u8]| bytes[..bytes.len() - 9].to_vec();
        let turned = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let at = bytes.len() - 100;
            bytes[at] ^= 1;
            bytes
        };
        for damaged in [cut(&whole), turned(&whole), Vec::new(), vec![0; 40]] {
            fs::write(&file, damaged).unwrap();
            assert!(!is_reused(&path));
            assert!(is_reused(&path));
        }
    }

    /// Others must not be able to choose what is shown.
    #[test]
    fn a_file_that_others_can_write_is_not_believed() {
        let (dir, path, file) = drawn_dir();
        assert!(!is_reused(&path));
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it is as private as it can be");
        fs::set_permissions(&file, Permissions::from_mode(0o620)).unwrap();
        assert!(!is_reused(&path));
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert!(!is_reused(&path));
        assert!(is_reused(&path), "the link was replaced");
    }

    /// Two viewers of one trace prepare it at the same time, and each keeps its own: neither takes what the
    /// other is about to rename.
    #[test]
    fn what_another_viewer_is_about_to_keep_is_left_to_it() {
        let (dir, path, file) = drawn_dir();
        let [one, other] = [(); 2].map(|()| Loaded::read_with(&path, 1, 10).unwrap());
        let of_another = file.with_file_name("t.swtch.view.new");
        fs::write(&of_another, "of another").unwrap();
        for loaded in [&one, &other] {
            loaded.unnamed.as_ref().unwrap().keep().unwrap();
        }
        assert_eq!(fs::read(&of_another).unwrap(), b"of another");
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 3, "the trace, what was kept, and what is another's");
        assert!(is_reused(&path));
        assert!(answers(&one) == answers(&other));
    }

    /// Whoever may rename the directory could put another one, or a link, where it was.
    #[test]
    fn a_file_is_kept_in_the_directory_in_which_the_trace_was() {
        let above = tempfile::tempdir().unwrap();
        let at = |name: &str| above.path().join(name);
        for dir in ["here", "there"] {
            fs::create_dir(at(dir)).unwrap();
        }
        let path = drawn(&at("here"), 9_000, 3);
        for name in ["t.swtch.view", "t.swtch.view.new"] {
            fs::write(at("there").join(name), "mine").unwrap();
        }
        let loaded = Loaded::read_with(&path, 1, 10).unwrap();
        fs::rename(at("here"), at("moved")).unwrap();
        symlink("there", at("here")).unwrap();
        loaded.unnamed.as_ref().unwrap().keep().unwrap();
        assert!(at("moved/t.swtch.view").is_file());
        for name in ["t.swtch.view", "t.swtch.view.new"] {
            assert_eq!(fs::read(at("there").join(name)).unwrap(), b"mine");
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn root_keeps_and_believes_nothing_in_a_directory_of_somebody_else() {
        let (dir, path, file) = drawn_dir();
        assert!(!is_reused(&path));
        let kept = fs::read(&file).unwrap();
        std::os::unix::fs::chown(dir.path(), Some(65534), None).unwrap();
        let loaded = Loaded::read_with(&path, 1, 10).unwrap();
        assert!(matches!(loaded.source, RowsSource::Made(_, None)));
        assert!(loaded.unnamed.is_none());
        assert_eq!(fs::read(&file).unwrap(), kept, "it is left as it is");
    }

    /// Nothing is left beside the trace when it is not kept.
    #[test]
    fn a_file_that_is_not_kept_leaves_nothing() {
        let (dir, path, _) = drawn_dir();
        drop(Loaded::read_with(&path, 1, 10).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

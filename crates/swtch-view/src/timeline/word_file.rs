//! Records of 32-bit words in a file, for a trace that is too large for memory.
//!
//! All records have the same number of words, and the first two are a moment. Records of one group (a
//! thread, a CPU) are adjacent and in order of time:
//!
//! ```text
//!  group    A    A    A  │  B    B  │  C …
//!  record  [moment:2, words …]                    little-endian
//!  firsts   the moment of every 128th record, in memory: where to read is known without reading
//! ```
//!
//! A block of 128 records is read at once, and blocks that were read last are kept, up to a limit.
//! The file is this process's own or was checked when it was opened ([`super::kept`]); if the disk
//! fails under it, the answer that needs it fails.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

/// Records that are read at once.
const BLOCK: usize = 128;

/// Blocks that are kept in memory: 57 MB of rows.
const MOST_BLOCKS: usize = 16 * 1024;

/// Records that are read at once when many are wanted, one after the other.
const SWEEP: usize = 64 * BLOCK;

/// Bytes of records that wait to be written.
const MOST_WAITING: usize = 64 << 20;

/// Bytes of a word.
const WORD: usize = 4;

/// The moment of a record.
pub fn moment_of(record: &[u32]) -> u64 {
    u64::from(record[0]) | u64::from(record[1]) << 32
}

/// A moment as the first two words of a record.
pub fn moment_words(ns: u64) -> [u32; 2] {
    let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits");
    [half(ns), half(ns >> 32)]
}

/// The place of the records in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordPlace {
    /// The byte at which the first record begins.
    pub offset: u64,
    pub records: usize,
    /// Words of a record.
    pub width: usize,
}

impl WordPlace {
    /// The byte after the last record.
    pub const fn end(&self) -> u64 {
        self.at(self.records)
    }

    const fn at(&self, record: usize) -> u64 {
        self.offset + (record * self.width * WORD) as u64
    }

    /// Returns the number of blocks.
    pub const fn blocks(&self) -> usize {
        self.records.div_ceil(BLOCK)
    }
}

/// Records that can be read.
#[derive(Debug)]
pub struct WordFile {
    file: Arc<File>,
    place: WordPlace,
    /// The moment of the first record of each block.
    firsts: Vec<u64>,
    read: Mutex<FxHashMap<usize, Arc<[u32]>>>,
}

impl WordFile {
    /// The records of a file, with the moment of the first record of each block.
    pub fn new(file: Arc<File>, place: WordPlace, firsts: Vec<u64>) -> Self {
        Self {
            file,
            place,
            firsts,
            read: Mutex::default(),
        }
    }

    pub const fn place(&self) -> WordPlace {
        self.place
    }

    pub fn firsts(&self) -> &[u64] {
        &self.firsts
    }

    /// Calls `with` with the words of a record.
    pub fn with<R>(&self, record: usize, with: impl FnOnce(&[u32]) -> R) -> R {
        let block = self.block(record / BLOCK);
        let begin = record % BLOCK * self.place.width;
        with(&block[begin..begin + self.place.width])
    }

    /// Calls `each` with the words of every record of a range, in order.
    pub fn each(&self, records: Range<usize>, mut each: impl FnMut(usize, &[u32])) {
        // Many records are not kept: they would take the place of those that are asked for again.
        let is_sweep = records.len() > SWEEP;
        let mut next = records.start;
        while next < records.end {
            let (first, words) = match is_sweep {
                true => {
                    let end = (next + SWEEP).min(records.end);
                    (next, self.read(next..end))
                }
                false => (next / BLOCK * BLOCK, self.block(next / BLOCK)),
            };
            let count = words.len() / self.place.width;
            let end = (first + count).min(records.end);
            let skipped = (next - first) * self.place.width;
            let numbered = (next..end).zip(words[skipped..].chunks_exact(self.place.width));
            numbered.for_each(|(record, words)| each(record, words));
            next = end;
        }
    }

    /// Returns how many records at the begin of a range have a moment that `is_before` takes. The range is in order of
    /// time.
    pub fn partition(&self, records: Range<usize>, is_before: impl Fn(u64) -> bool) -> usize {
        if records.is_empty() {
            return 0;
        }
        // Blocks whose first record lies in the range.
        let (from, to) = (records.start.div_ceil(BLOCK), records.end.div_ceil(BLOCK));
        let firsts = self.firsts.get(from..to).unwrap_or_default();
        let block = from + firsts.partition_point(|first| is_before(*first));
        // The record that is looked for lies in the block before.
        let begin = (block * BLOCK).saturating_sub(BLOCK).max(records.start);
        let end = (block * BLOCK).min(records.end);
        if begin >= end {
            return begin - records.start;
        }
        let words = self.block(begin / BLOCK);
        let width = self.place.width;
        let first = begin / BLOCK * BLOCK;
        let (mut low, mut high) = (begin, end);
        while low < high {
            let middle = low.midpoint(high);
            match is_before(moment_of(&words[(middle - first) * width..])) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low - records.start
    }

    fn block(&self, number: usize) -> Arc<[u32]> {
        let kept = || self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = kept().get(&number) {
            return Arc::clone(block);
        }
        let end = ((number + 1) * BLOCK).min(self.place.records);
        let block = self.read(number * BLOCK..end);
        let mut kept = kept();
        if kept.len() >= MOST_BLOCKS {
            kept.clear();
        }
        kept.insert(number, Arc::clone(&block));
        block
    }

    fn read(&self, records: Range<usize>) -> Arc<[u32]> {
        let mut bytes = vec![0; records.len() * self.place.width * WORD];
        self.file
            .read_exact_at(&mut bytes, self.place.at(records.start))
            .expect("rows that were written can be read");
        let words = bytes.chunks_exact(WORD);
        words
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect()
    }
}

/// Records on their way to a file. Those of one group wait until a few have come together, so that
/// they are written at once.
#[derive(Debug)]
pub struct WordSpool {
    file: Arc<File>,
    place: WordPlace,
    groups: Vec<WaitingRecords>,
    /// Bytes of a group that wait at most.
    most: usize,
    firsts: Vec<u64>,
    /// The first error: nothing is written after it.
    failed: Option<io::Error>,
}

#[derive(Clone, Debug)]
struct WaitingRecords {
    /// Number of the record that comes next.
    next: usize,
    bytes: Vec<u8>,
}

impl WordSpool {
    /// `begins` holds the number of the first record of each group.
    pub fn new(file: Arc<File>, place: WordPlace, begins: impl Iterator<Item = usize>) -> Self {
        let groups: Vec<_> = begins
            .map(|next| WaitingRecords {
                next,
                bytes: Vec::new(),
            })
            .collect();
        let bytes = place.width * WORD;
        let records = MOST_WAITING / groups.len().max(1) / bytes;
        Self {
            file,
            place,
            groups,
            most: records.clamp(8, 32 * BLOCK) * bytes,
            firsts: vec![0; place.blocks()],
            failed: None,
        }
    }

    /// Adds the next record of a group.
    pub fn push(&mut self, group: usize, record: &[u32]) {
        let waiting = &mut self.groups[group];
        if waiting.next.is_multiple_of(BLOCK) {
            self.firsts[waiting.next / BLOCK] = moment_of(record);
        }
        waiting.next += 1;
        let bytes = record.iter().flat_map(|word| word.to_le_bytes());
        waiting.bytes.extend(bytes);
        if waiting.bytes.len() >= self.most {
            self.write(group);
        }
    }

    fn write(&mut self, group: usize) {
        let waiting = &mut self.groups[group];
        let records = waiting.bytes.len() / (self.place.width * WORD);
        if self.failed.is_none() {
            let at = self.place.at(waiting.next - records);
            self.failed = self.file.write_all_at(&waiting.bytes, at).err();
        }
        waiting.bytes.clear();
    }

    /// Writes what still waits.
    ///
    /// # Errors
    /// When a record could not be written.
    pub fn finish(mut self) -> io::Result<WordFile> {
        for group in 0..self.groups.len() {
            self.write(group);
        }
        match self.failed {
            Some(error) => Err(error),
            None => Ok(WordFile::new(self.file, self.place, self.firsts)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of uneven lengths, whose records come mixed.
    fn written(lengths: &[usize]) -> (WordFile, Vec<[u32; 3]>) {
        let mut random = fastrand::Rng::with_seed(5);
        let begins = lengths.iter().scan(0, |next, length| {
            *next += length;
            Some(*next - length)
        });
        let begins: Vec<usize> = begins.collect();
        let records: usize = lengths.iter().sum();
        let place = WordPlace {
            offset: 12,
            records,
            width: 3,
        };
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut spool = WordSpool::new(file, place, begins.iter().copied());
        spool.most = 36;
        let mut expected = vec![[0; 3]; records];
        let mut next = begins.clone();
        let mut now = 1 << 32;
        for number in 0..records {
            let open = |group: &usize| next[*group] < begins[*group] + lengths[*group];
            let groups: Vec<_> = (0..lengths.len()).filter(open).collect();
            let group = groups[random.usize(0..groups.len())];
            now += random.u64(0..1 << 20);
            let [low, high] = moment_words(now);
            let record = [low, high, u32::try_from(number).unwrap()];
            spool.push(group, &record);
            expected[next[group]] = record;
            next[group] += 1;
        }
        (spool.finish().unwrap(), expected)
    }

    #[test]
    fn records_come_back_as_they_were_written() {
        let (file, expected) = written(&[1000, 1, 0, 127, 9000]);
        for record in [0, 1, 127, 128, 999, 1000, 1001, 10_127] {
            file.with(record, |words| assert_eq!(words, expected[record]));
        }
        for range in [0..0, 5..6, 100..300, 900..1200, 0..10_128, 10_000..10_128] {
            let mut seen = Vec::new();
            file.each(range.clone(), |record, words| {
                seen.push((record, words.to_vec()));
            });
            let there = range.map(|record| (record, expected[record].to_vec()));
            assert_eq!(seen, there.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_moment_is_found_as_by_looking_at_every_record() {
        let lengths = [1000, 1, 0, 127, 2000];
        let (file, expected) = written(&lengths);
        let mut first = 0;
        for length in lengths {
            let moments: Vec<u64> = expected[first..first + length]
                .iter()
                .map(|record| moment_of(record))
                .collect();
            let edges = moments
                .iter()
                .flat_map(|moment| [moment - 1, *moment, moment + 1]);
            for edge in edges.chain([0, u64::MAX]) {
                let found = file.partition(first..first + length, |moment| moment < edge);
                assert_eq!(found, moments.partition_point(|moment| *moment < edge));
                let half = length / 2;
                let found = file.partition(first + half..first + length, |moment| moment <= edge);
                let there = moments[half..].partition_point(|moment| *moment <= edge);
                assert_eq!(found, there);
            }
            first += length;
        }
    }

    /// More blocks than are kept: the answers stay right.
    #[test]
    fn blocks_that_are_not_kept_are_read_again() {
        let (file, expected) = written(&[3000]);
        for round in 0..3 {
            for record in (0..3000).step_by(77) {
                file.with(record, |words| {
                    assert_eq!(words, expected[record], "{round}")
                });
            }
            file.read.lock().unwrap().clear();
        }
    }
}

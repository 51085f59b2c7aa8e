//! The rows as a table: seven words each, in memory or in a file.
//!
//! ```text
//!  word   0, 1     2     3     4      5     6
//!         ended    ran   off   runq   who   cpu:16 │ why:8 │ off why:8
//! ```
//!
//! Lengths have 32 bits; the few beyond 4.3 s are in a map, by row. A row is read whole: what is
//! drawn of it needs most of its words, and they lie side by side.

use std::ops::Range;

use rustc_hash::FxHashMap;
use swtch_core::{Level, Nanos, Reason, Switch, TaskKey, WakerKind};

use super::pieces::RowPieces;
use super::word_file::{WordFile, WordSpool, moment_of, moment_words};

/// Words of a row.
pub const ROW_WORDS: usize = 7;

/// In place of a length: look in the map; a row without an entry there has no known length.
pub const LONG: u32 = u32::MAX;

/// There was no switch-out before (a new task), or it was not recorded.
const NO_REASON: u8 = 31;

/// No task woke it, or none is known.
const NO_WAKER: u32 = u32::MAX;

/// The lengths of a row, in the order of their words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLength {
    /// Of the run, which ended with the row.
    Ran = 0,
    /// Off-CPU time before the run.
    Off = 1,
    /// Run-queue time before the run.
    Runq = 2,
}

/// Lengths that do not fit a word, by row.
pub type LongLengths = [FxHashMap<u32, u64>; 3];

/// The rows of one level.
#[derive(Debug)]
pub struct RowTable {
    words: TableWords,
    long: LongLengths,
}

#[derive(Debug)]
enum TableWords {
    Memory(Vec<u32>),
    File(WordFile),
}

/// One row; [`Switch`] says what the fields mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// The moment of the switch-out, in ns since the start of the trace.
    pub ended_ns: u64,
    /// Length of the run, which ended at `ended_ns`.
    pub ran: Option<u64>,
    /// Off-CPU time before the run.
    pub off: Option<u64>,
    /// Run-queue time before the run.
    pub runq: Option<u64>,
    /// Number of the CPU that it ran on.
    pub cpu: u16,
    /// The reason why the run ended.
    pub reason: Reason,
    /// The reason of the switch-out before the wait; `None` for a new task, or if it is not known.
    pub off_reason: Option<Reason>,
    /// Level os: the task that woke it; level user: the lower 32 bits of the worker's number.
    who: u32,
}

impl TableRow {
    /// The task that woke it; `None` for an interrupt, or if the wakeup was not seen.
    pub fn waker(&self) -> Option<TaskKey> {
        Some(self.who)
            .filter(|waker| *waker != NO_WAKER)
            .map(TaskKey::new)
    }

    /// The lower 32 bits of the worker's number, for rows of the level user.
    pub const fn worker(&self) -> u32 {
        self.who
    }

    /// The pieces of the row: blocked, in the run queue, running.
    pub fn pieces(&self) -> RowPieces {
        RowPieces::new(
            self.ended_ns,
            self.ran,
            self.off,
            self.runq,
            self.off_reason,
        )
    }
}

impl Default for RowTable {
    fn default() -> Self {
        Self {
            words: TableWords::Memory(Vec::new()),
            long: LongLengths::default(),
        }
    }
}

impl RowTable {
    /// The table of rows in a file.
    pub const fn of_file(file: WordFile, long: LongLengths) -> Self {
        Self {
            words: TableWords::File(file),
            long,
        }
    }

    /// The file that the rows are in; `None` if they are in memory.
    pub const fn file(&self) -> Option<&WordFile> {
        match &self.words {
            TableWords::Memory(_) => None,
            TableWords::File(file) => Some(file),
        }
    }

    pub const fn long(&self) -> &LongLengths {
        &self.long
    }

    pub fn len(&self) -> usize {
        match &self.words {
            TableWords::Memory(words) => words.len() / ROW_WORDS,
            TableWords::File(file) => file.place().records,
        }
    }

    /// One row.
    pub fn row(&self, row: usize) -> TableRow {
        match &self.words {
            TableWords::Memory(words) => self.decoded(row, words_of(words, row)),
            TableWords::File(file) => file.with(row, |words| self.decoded(row, words)),
        }
    }

    /// Returns when a row ended, in ns since the start of the trace.
    pub fn ended_ns(&self, row: usize) -> u64 {
        match &self.words {
            TableWords::Memory(words) => moment_of(words_of(words, row)),
            TableWords::File(file) => file.with(row, moment_of),
        }
    }

    /// The pieces of a row.
    pub fn pieces(&self, row: usize) -> RowPieces {
        self.row(row).pieces()
    }

    /// Calls `each` with every row of a range, in order.
    pub fn each(&self, rows: Range<usize>, mut each: impl FnMut(usize, &TableRow)) {
        match &self.words {
            TableWords::Memory(words) => {
                for row in rows {
                    each(row, &self.decoded(row, words_of(words, row)));
                }
            }
            TableWords::File(file) => file.each(rows, |row, words| {
                each(row, &self.decoded(row, words));
            }),
        }
    }

    /// Returns how many rows at the begin of a range ended at moments that `is_before` takes. The range is in order of
    /// time.
    pub fn partition(&self, rows: Range<usize>, is_before: impl Fn(u64) -> bool) -> usize {
        let words = match &self.words {
            TableWords::File(file) => return file.partition(rows, is_before),
            TableWords::Memory(words) => words,
        };
        let (mut low, mut high) = (rows.start, rows.end);
        while low < high {
            let middle = low.midpoint(high);
            match is_before(moment_of(words_of(words, middle))) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low - rows.start
    }

    /// A length from its word.
    pub fn length(&self, row: usize, of: RowLength, word: u32) -> Option<u64> {
        match word {
            LONG => self.long[of as usize].get(&narrow(row)).copied(),
            short => Some(u64::from(short)),
        }
    }

    fn decoded(&self, row: usize, words: &[u32]) -> TableRow {
        let [cpu_low, cpu_high, why, off_why] = words[6].to_le_bytes();
        TableRow {
            ended_ns: moment_of(words),
            ran: self.length(row, RowLength::Ran, words[2]),
            off: self.length(row, RowLength::Off, words[3]),
            runq: self.length(row, RowLength::Runq, words[4]),
            cpu: u16::from_le_bytes([cpu_low, cpu_high]),
            reason: reason_of(why).unwrap_or(Reason::Unknown),
            off_reason: reason_of(off_why),
            who: words[5],
        }
    }
}

/// A table that is being filled.
#[derive(Debug)]
pub struct RowTableBuilder {
    words: FilledWords,
    long: LongLengths,
}

#[derive(Debug)]
pub enum FilledWords {
    Memory(Vec<u32>),
    File(WordSpool),
}

impl RowTableBuilder {
    pub fn new(words: FilledWords) -> Self {
        Self {
            words,
            long: LongLengths::default(),
        }
    }

    /// A table of so many rows in memory.
    pub fn in_memory(rows: usize) -> FilledWords {
        FilledWords::Memory(vec![0; rows * ROW_WORDS])
    }

    /// Sets a row, which is the next one of its track, and returns it as it will be read.
    pub fn set(&mut self, track: usize, number: usize, row: &Switch, ended_ns: u64) -> TableRow {
        let [ended_low, ended_high] = moment_words(ended_ns);
        let ran = self.word(number, RowLength::Ran, row.ran);
        let mut words = [ended_low, ended_high, ran, LONG, LONG, NO_WAKER, 0];
        let [cpu_low, cpu_high] = row.cpu.get().to_le_bytes();
        let (why, mut off_why) = (reason_byte(Some(row.rule.reason)), NO_REASON);
        // The wait of a user-mode row is the worker's, and lanes are of threads.
        if row.level == Level::User {
            words[5] = row.user_task.map_or(NO_WAKER, lower_bits);
        } else {
            words[3] = self.word(number, RowLength::Off, row.wait.off);
            words[4] = self.word(number, RowLength::Runq, row.wait.runq);
            off_why = reason_byte(row.wait.reason);
            let wakeup = &row.wait.wakeup;
            let is_task = wakeup.kind.is_some_and(WakerKind::is_task);
            if let Some(waker) = wakeup.waker.filter(|_| is_task) {
                words[5] = waker.get();
            }
        }
        words[6] = u32::from_le_bytes([cpu_low, cpu_high, why, off_why]);
        match &mut self.words {
            FilledWords::Memory(all) => {
                all[number * ROW_WORDS..(number + 1) * ROW_WORDS].copy_from_slice(&words);
            }
            FilledWords::File(spool) => spool.push(track, &words),
        }
        let is_os = row.level == Level::Os;
        let length = |length: Option<Nanos>| length.map(Nanos::as_ns);
        TableRow {
            ended_ns,
            ran: length(row.ran),
            off: length(row.wait.off).filter(|_| is_os),
            runq: length(row.wait.runq).filter(|_| is_os),
            cpu: row.cpu.get(),
            reason: row.rule.reason,
            off_reason: row.wait.reason.filter(|_| is_os),
            who: words[5],
        }
    }

    fn word(&mut self, number: usize, of: RowLength, length: Option<Nanos>) -> u32 {
        let Some(ns) = length.map(Nanos::as_ns) else {
            return LONG;
        };
        match u32::try_from(ns) {
            Ok(short) if short != LONG => short,
            _ => {
                self.long[of as usize].insert(narrow(number), ns);
                LONG
            }
        }
    }

    /// The table.
    ///
    /// # Errors
    /// When a row could not be written to the file.
    pub fn finish(self) -> std::io::Result<RowTable> {
        let words = match self.words {
            FilledWords::Memory(words) => TableWords::Memory(words),
            FilledWords::File(spool) => TableWords::File(spool.finish()?),
        };
        Ok(RowTable {
            words,
            long: self.long,
        })
    }
}

fn words_of(words: &[u32], row: usize) -> &[u32] {
    &words[row * ROW_WORDS..(row + 1) * ROW_WORDS]
}

/// A row as its number is stored.
pub fn narrow(row: usize) -> u32 {
    u32::try_from(row).expect("rows are counted with 32 bits")
}

fn reason_byte(reason: Option<Reason>) -> u8 {
    reason.map_or(NO_REASON, |reason| {
        u8::try_from(reason.index()).expect("fewer than 31 reasons")
    })
}

fn reason_of(byte: u8) -> Option<Reason> {
    Reason::ALL.get(usize::from(byte)).copied()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the upper bits are not shown"
)]
const fn lower_bits(worker: u64) -> u32 {
    worker as u32
}

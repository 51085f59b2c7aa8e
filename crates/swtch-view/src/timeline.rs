//! All of a trace that a picture needs: about 35 bytes per switch, in memory or in a file.
//!
//! Rows of one task are adjacent and in order of time. So the pieces of a lane are a range of the
//! table, and a moment is found by binary search:
//!
//! ```text
//!  row          0    1    2  │  3    4  │  5 …       number of a row: what the page asks about
//!  task         A    A    A  │  B    B  │  C …       `tracks`: (task, first row, rows)
//!  ended_ns    10   40   90  │ 20   70  │
//!  ran, off, runq, cpu, why …                        seven words a row: `table`
//!
//!        off − runq      runq         ran
//!      ├── blocked ──┼─ run queue ─┼── runs ──┤ ended_ns       the three pieces of a row
//! ```
//!
//! What a person asks about one piece (evidence, stacks) is read from the trace on demand.
//!
//! [`bins`] adds sums for every 128 rows, so that a picture of a day costs as much as a picture of
//! a second. The table of a trace that is too large for memory lies in a file ([`word_file`]);
//! then only the sums and one moment of every 128 rows are in memory, about 1.5 bytes per switch.
//! [`kept`] is how such a file is found again. Both are read by the same code.

mod bins;
mod cpus;
pub mod kept;
mod pieces;
mod table;
mod word_file;

use std::fs::File;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use swtch_core::{Level, Switch, TaskKey, Timestamp};
use swtch_store::{Columns, Trace};

use bins::StateSumsBuilder;
pub use bins::{StateSums, StateTimes};
pub use cpus::CpuLane;
use cpus::{CpuLanesBuilder, CpuRuns, RUN_WORDS, RowsByCpu};
pub use pieces::{NO_ROW, NOBODY, Piece, RowPieces, ThreadState};
use table::{FilledWords, ROW_WORDS, RowTableBuilder};
pub use table::{RowTable, TableRow};
use word_file::{WordPlace, WordSpool};

/// Columns that are read of each row.
const READ: Columns = Columns::TS
    .and(Columns::CPU)
    .and(Columns::TASK)
    .and(Columns::RAN)
    .and(Columns::REASON)
    .and(Columns::OFF_REASON)
    .and(Columns::OFF)
    .and(Columns::RUNQ)
    .and(Columns::WAKER)
    .and(Columns::USER_TASK)
    .and(Columns::LEVEL);

/// The rows of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    pub task: TaskKey,
    /// Number of its first row in the columns.
    pub first: usize,
    pub len: usize,
}

impl Track {
    /// The numbers of its rows, as a range.
    pub const fn rows(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.len
    }
}

/// The sums of the rows of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackTimes {
    /// Time that it ran.
    pub ran_ns: u64,
    /// Blocked time, as reports count it: only where both lengths of a wait are known.
    pub blocked_ns: u64,
    /// Time in run queues.
    pub runq_ns: u64,
}

impl TrackTimes {
    fn add(&mut self, row: &TableRow) {
        // A crafted trace can have any lengths.
        let add = |sum: &mut u64, ns: Option<u64>| *sum = sum.saturating_add(ns.unwrap_or(0));
        add(&mut self.ran_ns, row.ran);
        add(&mut self.runq_ns, row.runq);
        let blocked = row
            .runq
            .map(|runq| row.off.unwrap_or(runq).saturating_sub(runq));
        add(&mut self.blocked_ns, blocked);
    }
}

/// The rows of one level.
#[derive(Debug, Default)]
pub struct LevelRows {
    tracks: Vec<Track>,
    times: Vec<TrackTimes>,
    by_task: FxHashMap<TaskKey, usize>,
    rows: RowTable,
    sums: StateSums,
    /// Level os only: CPUs have no lanes of user-mode workers.
    cpus: Vec<CpuLane>,
    runs: CpuRuns,
}

/// Both levels of a trace.
#[derive(Debug, Default)]
pub struct LevelTimelines {
    /// Switches of the kernel, by thread.
    pub os: LevelRows,
    /// Switches of user-mode schedulers, by the thread on which they ran.
    pub user: LevelRows,
    /// The latest end of any row, in ns since the start of the trace.
    pub end_ns: u64,
}

/// The reason why the rows cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    #[error(transparent)]
    Trace(#[from] swtch_store::Error),
    /// The file for the rows cannot be written.
    #[error(
        "its rows need a file of 45 bytes a switch, which cannot be written (TMPDIR names another folder): {0}"
    )]
    File(#[from] std::io::Error),
}

impl LevelTimelines {
    /// Reads a trace that began at `start` into memory.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn read(trace: &Trace, start: Timestamp) -> Result<Self, TimelineError> {
        Self::read_into(trace, start, None)
    }

    /// Reads a trace that began at `start`, with its rows in `file`, or else in memory.
    ///
    /// # Errors
    /// When the trace cannot be read or the file cannot be written.
    pub fn read_into(
        trace: &Trace,
        start: Timestamp,
        file: Option<&Arc<File>>,
    ) -> Result<Self, TimelineError> {
        let mut tracks = [Tracks::default(), Tracks::default()];
        let mut on_cpu = RowsByCpu::new();
        let columns = Columns::TASK | Columns::LEVEL | Columns::CPU;
        trace.scan_levels(columns, None, &mut |row| {
            tracks[row.level.index()].count(row.task);
            if row.level == Level::Os {
                let cpu = usize::from(row.cpu.get());
                if cpu >= on_cpu.len() {
                    on_cpu.resize(cpu + 1, 0);
                }
                on_cpu[cpu] += 1;
            }
        })?;
        let mut offset = 0;
        let [os, user] = tracks;
        let mut fills = [
            os.into_placer(&on_cpu, file, &mut offset),
            user.into_placer(&RowsByCpu::new(), file, &mut offset),
        ];
        let mut end_ns = 0;
        trace.scan_levels(READ, None, &mut |row| {
            let ended_ns = row.ts.as_ns().saturating_sub(start.as_ns());
            end_ns = end_ns.max(ended_ns);
            fills[row.level.index()].take(row, ended_ns);
        })?;
        let [os, user] = fills.map(RowPlacer::finish);
        let (os, user) = (os?, user?);
        Ok(Self { os, user, end_ns })
    }

    /// The rows of a level.
    pub const fn of(&self, level: Level) -> &LevelRows {
        match level {
            Level::Os => &self.os,
            Level::User => &self.user,
        }
    }
}

impl LevelRows {
    /// Tasks, in the order of their first row.
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// The rows of a task.
    pub fn track(&self, task: TaskKey) -> Option<Track> {
        self.by_task.get(&task).map(|place| self.tracks[*place])
    }

    /// The task of a row.
    pub fn track_of(&self, row: usize) -> Option<Track> {
        let after = self.tracks.partition_point(|track| track.first <= row);
        let track = *self.tracks.get(after.checked_sub(1)?)?;
        track.rows().contains(&row).then_some(track)
    }

    /// Returns the sums of the rows of a task.
    pub fn times(&self, task: TaskKey) -> TrackTimes {
        let place = self.by_task.get(&task);
        place.map_or_else(TrackTimes::default, |place| self.times[*place])
    }

    pub const fn rows(&self) -> &RowTable {
        &self.rows
    }

    const fn runs(&self) -> &CpuRuns {
        &self.runs
    }

    /// CPUs that have rows, in order.
    pub fn cpus(&self) -> &[CpuLane] {
        &self.cpus
    }

    /// Rows of a task that may lie between two moments: from the first that ends after `from_ns`,
    /// up to and including the first that ends at or after `to_ns`.
    pub fn rows_between(&self, track: Track, from_ns: u64, to_ns: u64) -> std::ops::Range<usize> {
        let rows = track.rows();
        let first = self.rows.partition(rows.clone(), |ended| ended <= from_ns);
        let rest = rows.start + first..rows.end;
        // The row that ends after the span may begin inside it; no later row can.
        let inside = self.rows.partition(rest, |ended| ended < to_ns);
        let last = (first + inside + 1).min(track.len);
        track.first + first..track.first + last
    }

    /// The row of a task that ended at a moment.
    pub fn row_ended(&self, task: TaskKey, ended_ns: u64) -> Option<usize> {
        let track = self.track(task)?;
        let before = self.rows.partition(track.rows(), |ended| ended < ended_ns);
        let row = track.first + before;
        (before < track.len && self.rows.ended_ns(row) == ended_ns).then_some(row)
    }

    /// Returns when the last row of a task ended, of those that ended at or before a moment.
    pub fn last_ended(&self, task: TaskKey, by_ns: u64) -> Option<u64> {
        let track = self.track(task)?;
        let after = self.rows.partition(track.rows(), |ended| ended <= by_ns);
        Some(self.rows.ended_ns(track.first + after.checked_sub(1)?))
    }

    /// The row of a task in whose wait or run a moment lies.
    pub fn row_at(&self, task: TaskKey, at_ns: u64) -> Option<usize> {
        let track = self.track(task)?;
        let row = self.rows_between(track, at_ns, at_ns + 1).next()?;
        let begins = self.rows.pieces(row).first_ns()?;
        (begins <= at_ns).then_some(row)
    }
}

/// The first pass, which counts rows by task.
#[derive(Debug, Default)]
struct Tracks {
    by_task: FxHashMap<TaskKey, usize>,
    tracks: Vec<Track>,
    /// The track found last, kept because rows come in bursts of one task.
    recent: Option<(TaskKey, usize)>,
}

impl Tracks {
    fn count(&mut self, task: TaskKey) {
        let place = match self.recent {
            Some((recent, place)) if recent == task => place,
            _ => *self.by_task.entry(task).or_insert_with(|| {
                self.tracks.push(Track {
                    task,
                    first: 0,
                    len: 0,
                });
                self.tracks.len() - 1
            }),
        };
        self.recent = Some((task, place));
        self.tracks[place].len += 1;
    }

    /// Returns what places the rows that were counted: in `file` from `offset` on, which moves on to its end, or in
    /// memory.
    fn into_placer(
        mut self,
        on_cpu: &RowsByCpu,
        file: Option<&Arc<File>>,
        offset: &mut u64,
    ) -> RowPlacer {
        let mut rows = 0;
        for track in &mut self.tracks {
            track.first = rows;
            rows += track.len;
        }
        let mut spool = |width, records, begins: &mut dyn Iterator<Item = usize>| {
            let place = WordPlace {
                offset: *offset,
                records,
                width,
            };
            *offset = place.end();
            file.map(|file| WordSpool::new(Arc::clone(file), place, begins))
        };
        let begins = &mut self.tracks.iter().map(|track| track.first);
        let words = match spool(ROW_WORDS, rows, begins) {
            Some(spool) => FilledWords::File(spool),
            None => RowTableBuilder::in_memory(rows),
        };
        let runs = on_cpu.iter().sum();
        let lanes = CpuLanesBuilder::new(on_cpu, |begins| spool(RUN_WORDS, runs, begins));
        RowPlacer {
            placed: vec![0; self.tracks.len()],
            times: vec![TrackTimes::default(); self.tracks.len()],
            rows: RowTableBuilder::new(words),
            sums: StateSumsBuilder::new(&self.tracks),
            lanes,
            tracks: self.tracks,
            by_task: self.by_task,
        }
    }
}

/// The second pass, which writes each row to its position in the table.
#[derive(Debug)]
struct RowPlacer {
    by_task: FxHashMap<TaskKey, usize>,
    tracks: Vec<Track>,
    /// Rows of each task so far.
    placed: Vec<usize>,
    times: Vec<TrackTimes>,
    rows: RowTableBuilder,
    sums: StateSumsBuilder,
    lanes: CpuLanesBuilder,
}

impl RowPlacer {
    fn take(&mut self, row: &Switch, ended_ns: u64) {
        let Some(&track) = self.by_task.get(&row.task) else {
            return;
        };
        let place = self.placed[track];
        // A trace that grows between the passes has rows that were not counted. The next reading
        // gets them.
        if place >= self.tracks[track].len {
            return;
        }
        self.placed[track] += 1;
        let number = self.tracks[track].first + place;
        let placed = self.rows.set(track, number, row, ended_ns);
        self.times[track].add(&placed);
        self.sums.add(track, place, &placed.pieces());
        self.lanes.push(number, &placed);
    }

    fn finish(mut self) -> std::io::Result<LevelRows> {
        for (track, placed) in self.tracks.iter_mut().zip(&self.placed) {
            track.len = *placed;
        }
        let (cpus, runs) = self.lanes.finish()?;
        Ok(LevelRows {
            by_task: self.by_task,
            tracks: self.tracks,
            times: self.times,
            rows: self.rows.finish()?,
            sums: self.sums.finish(),
            cpus,
            runs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_core::{Nanos, Reason};
    use swtch_fixtures::{after, meta, row};
    use swtch_store::Writer;

    const START: u64 = 1_000_000_000;

    /// Two tasks that alternate on a CPU: each runs 3 to 30 µs, and waits for a futex meanwhile.
    fn levels(rows: u64) -> LevelTimelines {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let meta = meta();
        let mut writer = Writer::create(&path, &meta).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let (mut now, mut left) = (START, [START; 3]);
        for number in 0..rows {
            let task = if number % 2 == 0 { 1 } else { 2 };
            let ran = random.u64(3_000..30_000);
            let since = now - left[task as usize];
            let runq = random.u64(0..=since);
            let mut row = after(row(task, Reason::Futex), Reason::Futex, since - runq, runq);
            row.ran = Some(Nanos::from_ns(ran));
            now += ran;
            row.ts = Timestamp::from_ns(now);
            left[task as usize] = now;
            writer.push_switch(&row).unwrap();
        }
        writer.finish(&meta, &mut |_, _| ()).unwrap();
        let trace = Trace::open(&path).unwrap();
        LevelTimelines::read(&trace, Timestamp::from_ns(START)).unwrap()
    }

    fn shares(timeline: &LevelRows, track: Track, from_ns: u64, to_ns: u64) -> Vec<(u8, u64)> {
        let mut shares = StateTimes::default();
        timeline.add_shares(track, from_ns, to_ns, &mut shares);
        let mut all = Vec::new();
        shares.drain(|state, ns| all.push((state.number(), ns)));
        all
    }

    /// However a span is cut into bins, with sums of whole blocks or row by row, no time is lost or
    /// counted twice.
    #[test]
    fn shares_of_bins_sum_to_the_shares_of_the_span() {
        let levels = levels(5_000);
        let os = &levels.os;
        for track in os.tracks() {
            let mut by_row = std::collections::BTreeMap::<u8, u64>::new();
            for row in track.rows() {
                let add = |from, to, state: ThreadState| {
                    *by_row.entry(state.number()).or_default() += to - from
                };
                os.rows().row(row).pieces().each(add);
            }
            let by_row: Vec<_> = by_row.into_iter().collect();
            assert_eq!(shares(os, *track, 0, levels.end_ns + 1), by_row);
            for bins in [1, 2, 3, 7, 50, 1000, 20_000] {
                let edge = |bin: u64| (levels.end_ns + 1) * bin / bins;
                let mut summed = std::collections::BTreeMap::<u8, u64>::new();
                for bin in 0..bins {
                    for (state, ns) in shares(os, *track, edge(bin), edge(bin + 1)) {
                        assert!(ns <= edge(bin + 1) - edge(bin), "a bin is not overfull");
                        *summed.entry(state).or_default() += ns;
                    }
                }
                assert_eq!(
                    summed.into_iter().collect::<Vec<_>>(),
                    by_row,
                    "{bins} bins"
                );
            }
        }
    }

    #[test]
    fn busy_time_of_a_cpu_is_that_of_its_runs() {
        let levels = levels(3_000);
        let os = &levels.os;
        let [cpu] = os.cpus() else { panic!("one CPU") };
        let runs: u64 = (0..os.rows().len())
            .filter_map(|row| os.rows().row(row).ran)
            .sum();
        assert_eq!(cpu.busy_between(os, 0, levels.end_ns + 1), runs);
        for cut in [1, 100_000, 12_345_678, levels.end_ns] {
            let parts = cpu.busy_between(os, 0, cut) + cpu.busy_between(os, cut, levels.end_ns + 1);
            assert_eq!(parts, runs, "cut at {cut}");
        }
    }

    /// A click on a moment finds the row whose wait or run contains it.
    #[test]
    fn a_moment_has_one_row() {
        let levels = levels(600);
        let os = &levels.os;
        let track = os.tracks()[0];
        for row in track.rows() {
            let pieces = os.rows().pieces(row);
            let first = pieces.first_ns().unwrap();
            for moment in [first, (first + pieces.run_to_ns) / 2, pieces.run_to_ns - 1] {
                assert_eq!(os.row_at(track.task, moment), Some(row), "{moment}");
            }
            assert_eq!(os.row_ended(track.task, pieces.run_to_ns), Some(row));
            assert_eq!(os.track_of(row), Some(track));
        }
        assert_eq!(os.row_at(track.task, levels.end_ns + 1), None);
    }

    #[test]
    fn a_trace_without_switches_has_no_lanes() {
        let levels = levels(0);
        assert!(levels.os.tracks().is_empty() && levels.os.cpus().is_empty());
        assert_eq!((levels.end_ns, levels.os.track_of(0)), (0, None));
    }
}

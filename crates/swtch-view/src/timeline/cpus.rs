//! The same rows by CPU: which task had it.
//!
//! In memory, a lane holds the numbers of its rows. In a file it has records of its own, because
//! the rows of a CPU are of many tasks and lie far apart:
//!
//! ```text
//!  word   0, 1     2     3
//!         ended    ran   row
//! ```

use std::ops::Range;

use swtch_core::CpuId;

use super::LevelRows;
use super::pieces::{Piece, ThreadState};
use super::table::{LONG, RowLength, RowTable, TableRow, narrow};
use super::word_file::{WordFile, WordSpool, moment_of, moment_words};

/// Runs between two sums of busy time.
const BLOCK: usize = 128;

/// Words of a run in a file.
pub const RUN_WORDS: usize = 4;

/// The runs of one CPU, in order of time.
#[derive(Debug)]
pub struct CpuLane {
    pub cpu: CpuId,
    /// Number of its first run among those of all CPUs.
    first: usize,
    len: usize,
    /// Busy time of all runs before every [`BLOCK`]th run and of all, in ns.
    busy_before: Vec<u64>,
}

/// The runs of all CPUs, by CPU.
#[derive(Debug)]
pub enum CpuRuns {
    /// The numbers of their rows.
    Memory(Vec<u32>),
    File(WordFile),
}

impl Default for CpuRuns {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

#[derive(Clone, Copy, Debug)]
struct LaneRun {
    ended_ns: u64,
    ran: Option<u64>,
    row: u32,
}

impl LaneRun {
    fn begin_ns(&self) -> Option<u64> {
        Some(self.ended_ns.saturating_sub(self.ran?))
    }
}

impl CpuRuns {
    fn run(&self, rows: &RowTable, place: usize) -> LaneRun {
        match self {
            Self::Memory(all) => in_memory(rows, all[place]),
            Self::File(file) => file.with(place, |words| of_words(rows, words)),
        }
    }

    fn each(&self, rows: &RowTable, places: Range<usize>, mut each: impl FnMut(LaneRun)) {
        match self {
            Self::Memory(all) => all[places]
                .iter()
                .for_each(|row| each(in_memory(rows, *row))),
            Self::File(file) => file.each(places, |_, words| each(of_words(rows, words))),
        }
    }

    fn partition(
        &self,
        rows: &RowTable,
        places: Range<usize>,
        is_before: impl Fn(u64) -> bool,
    ) -> usize {
        match self {
            Self::Memory(all) => {
                all[places].partition_point(|row| is_before(rows.ended_ns(index(*row))))
            }
            Self::File(file) => file.partition(places, is_before),
        }
    }
}

fn in_memory(rows: &RowTable, row: u32) -> LaneRun {
    let TableRow { ended_ns, ran, .. } = rows.row(index(row));
    LaneRun { ended_ns, ran, row }
}

fn of_words(rows: &RowTable, words: &[u32]) -> LaneRun {
    let row = words[3];
    LaneRun {
        ended_ns: moment_of(words),
        ran: rows.length(index(row), RowLength::Ran, words[2]),
        row,
    }
}

/// Lanes that are being filled.
#[derive(Debug)]
pub struct CpuLanesBuilder {
    lanes: Vec<CpuLane>,
    /// Index of each CPU's lane, by the number of the CPU.
    places: Vec<Option<usize>>,
    /// Runs and busy time of each lane so far.
    so_far: Vec<(usize, u64)>,
    runs: FilledRuns,
}

#[derive(Debug)]
enum FilledRuns {
    Memory(Vec<u32>),
    File(WordSpool),
}

/// Number of rows of each CPU, by its number.
pub type RowsByCpu = Vec<usize>;

impl CpuLanesBuilder {
    /// Lanes for CPUs that have so many rows, with the runs in memory or, if `spool` makes one for
    /// the numbers of their first runs, in a file.
    pub fn new(
        rows: &RowsByCpu,
        spool: impl FnOnce(&mut dyn Iterator<Item = usize>) -> Option<WordSpool>,
    ) -> Self {
        let (mut lanes, mut places, mut first) = (Vec::new(), Vec::new(), 0);
        for (cpu, len) in (0..=u16::MAX).zip(rows) {
            places.push((*len > 0).then_some(lanes.len()));
            if *len > 0 {
                lanes.push(CpuLane {
                    cpu: CpuId::new(cpu),
                    first,
                    len: *len,
                    busy_before: Vec::new(),
                });
            }
            first += len;
        }
        let runs = match spool(&mut lanes.iter().map(|lane| lane.first)) {
            None => FilledRuns::Memory(vec![0; first]),
            Some(spool) => FilledRuns::File(spool),
        };
        Self {
            so_far: vec![(0, 0); lanes.len()],
            lanes,
            places,
            runs,
        }
    }

    /// Adds the next run of a CPU. A row that was not counted before is left out.
    pub fn push(&mut self, number: usize, row: &TableRow) {
        let place = self.places.get(usize::from(row.cpu)).copied().flatten();
        let Some(place) = place else { return };
        let (lane, (len, busy_ns)) = (&mut self.lanes[place], &mut self.so_far[place]);
        if *len == lane.len {
            return;
        }
        if len.is_multiple_of(BLOCK) {
            lane.busy_before.push(*busy_ns);
        }
        match &mut self.runs {
            FilledRuns::Memory(rows) => rows[lane.first + *len] = narrow(number),
            FilledRuns::File(spool) => {
                let [low, high] = moment_words(row.ended_ns);
                let ran = row.ran.and_then(|ran| u32::try_from(ran).ok());
                spool.push(place, &[low, high, ran.unwrap_or(LONG), narrow(number)]);
            }
        }
        *len += 1;
        // A crafted trace can have any lengths.
        *busy_ns = busy_ns.saturating_add(row.ran.unwrap_or(0));
    }

    /// The lanes by number of the CPU, and their runs.
    ///
    /// # Errors
    /// When a run could not be written to the file.
    pub fn finish(mut self) -> std::io::Result<(Vec<CpuLane>, CpuRuns)> {
        for (lane, (len, busy_ns)) in self.lanes.iter_mut().zip(self.so_far) {
            lane.len = len;
            lane.busy_before.push(busy_ns);
        }
        let runs = match self.runs {
            FilledRuns::Memory(rows) => CpuRuns::Memory(rows),
            FilledRuns::File(spool) => CpuRuns::File(spool.finish()?),
        };
        Ok((self.lanes, runs))
    }
}

impl CpuLane {
    /// A lane that was kept: its first run, its runs, and the sums of busy time.
    pub(super) const fn kept(cpu: CpuId, first: usize, len: usize, busy_before: Vec<u64>) -> Self {
        Self {
            cpu,
            first,
            len,
            busy_before,
        }
    }

    /// Returns the number of sums that a lane of so many runs has.
    pub(super) const fn sums_of(len: usize) -> usize {
        len.div_ceil(BLOCK) + 1
    }

    pub(super) fn busy_before(&self) -> &[u64] {
        &self.busy_before
    }

    /// Number of runs on this CPU.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Positions, in the order of time, of the runs that may lie between two moments.
    pub fn places_between(&self, timeline: &LevelRows, from_ns: u64, to_ns: u64) -> Range<usize> {
        let (rows, runs) = (timeline.rows(), timeline.runs());
        let end = self.first + self.len;
        let first = runs.partition(rows, self.first..end, |ended| ended <= from_ns);
        let inside = runs.partition(rows, self.first + first..end, |ended| ended < to_ns);
        first..(first + inside + 1).min(self.len)
    }

    /// From the end of the last run before a span to the end of the first run after it.
    pub fn span_around(
        &self,
        timeline: &LevelRows,
        from_ns: u64,
        to_ns: u64,
    ) -> Option<(u64, u64)> {
        let places = self.places_between(timeline, from_ns, to_ns);
        let (rows, runs) = (timeline.rows(), timeline.runs());
        let ended =
            |place: usize| (place < self.len).then(|| runs.run(rows, self.first + place).ended_ns);
        let last = places.end.min(self.len.checked_sub(1)?);
        Some((ended(places.start.saturating_sub(1))?, ended(last)?))
    }

    /// Time between two moments in which a task ran on this CPU.
    pub fn busy_between(&self, timeline: &LevelRows, from_ns: u64, to_ns: u64) -> u64 {
        let places = self.places_between(timeline, from_ns, to_ns);
        let clipped = |places: Range<usize>| -> u64 {
            let mut busy = 0_u64;
            self.each(timeline, places, |run| {
                if let Some(from) = run.begin_ns() {
                    let clipped = run.ended_ns.min(to_ns).saturating_sub(from.max(from_ns));
                    busy = busy.saturating_add(clipped);
                }
            });
            busy
        };
        let first = (places.start + 1).div_ceil(BLOCK);
        let last = places.end.saturating_sub(1) / BLOCK;
        if first >= last {
            return clipped(places);
        }
        clipped(places.start..first * BLOCK)
            .saturating_add(self.busy_before[last] - self.busy_before[first])
            .saturating_add(clipped(last * BLOCK..places.end))
    }

    /// The runs between two moments.
    pub fn pieces(&self, timeline: &LevelRows, from_ns: u64, to_ns: u64) -> Vec<Piece> {
        let places = self.places_between(timeline, from_ns, to_ns);
        let mut pieces = Vec::with_capacity(places.len());
        self.each(timeline, places, |run| {
            let track = timeline.track_of(index(run.row));
            let Some((from_ns, track)) = run.begin_ns().zip(track) else {
                return;
            };
            if from_ns < to_ns && from_ns < run.ended_ns {
                pieces.push(Piece {
                    from_ns,
                    to_ns: run.ended_ns,
                    row: run.row,
                    who: track.task.get(),
                    state: ThreadState::Running,
                });
            }
        });
        pieces
    }

    fn each(&self, timeline: &LevelRows, places: Range<usize>, each: impl FnMut(LaneRun)) {
        let places = self.first + places.start..self.first + places.end;
        timeline.runs().each(timeline.rows(), places, each);
    }
}

fn index(row: u32) -> usize {
    usize::try_from(row).expect("at least 32-bit addresses")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged trace can name the CPU with the last number.
    #[test]
    fn the_cpu_with_the_last_number_has_a_lane() {
        let mut rows = vec![0; 1 << 16];
        rows[usize::from(u16::MAX)] = 3;
        let lanes = CpuLanesBuilder::new(&rows, |_| None).lanes;
        let lanes: Vec<_> = lanes.iter().map(|lane| (lane.cpu, lane.len)).collect();
        assert_eq!(lanes, [(CpuId::new(u16::MAX), 3)]);
    }
}

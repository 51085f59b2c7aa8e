//! The same rows by CPU: which task had it.

use swtch_core::{CpuId, Switch};

use super::pieces::{Piece, ThreadState};
use super::{LevelRows, RowColumns};

/// Runs between two sums of busy time.
const BLOCK: usize = 128;

/// The runs of one CPU, in order of time.
#[derive(Debug)]
pub struct CpuLane {
    pub cpu: CpuId,
    /// Numbers of the rows whose runs were on this CPU.
    rows: Vec<u32>,
    /// Busy time of all runs before every [`BLOCK`]th run, in ns.
    busy_before: Vec<u64>,
    /// Busy time of all runs that were added, in ns.
    busy_ns: u64,
}

impl CpuLane {
    pub(super) const fn new(cpu: CpuId) -> Self {
        Self {
            cpu,
            rows: Vec::new(),
            busy_before: Vec::new(),
            busy_ns: 0,
        }
    }

    pub(super) fn push(&mut self, number: usize, row: &Switch) {
        if self.rows.len().is_multiple_of(BLOCK) {
            self.busy_before.push(self.busy_ns);
        }
        // A crafted trace can have any lengths.
        let ran_ns = row.ran.map_or(0, swtch_core::Nanos::as_ns);
        self.busy_ns = self.busy_ns.saturating_add(ran_ns);
        self.rows
            .push(u32::try_from(number).expect("fewer rows than 32 bits count"));
    }

    pub(super) fn sum_up(&mut self) {
        self.rows.shrink_to_fit();
        self.busy_before.push(self.busy_ns);
    }

    /// Number of runs on this CPU.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Positions, in the order of time, of the runs that may lie between two moments.
    pub fn places_between(
        &self,
        rows: &RowColumns,
        from_ns: u64,
        to_ns: u64,
    ) -> std::ops::Range<usize> {
        let ended = |row: &u32| rows.ended_ns[index(*row)];
        let first = self.rows.partition_point(|row| ended(row) <= from_ns);
        let inside = self.rows[first..].partition_point(|row| ended(row) < to_ns);
        first..(first + inside + 1).min(self.rows.len())
    }

    /// From the end of the last run before a span to the end of the first run after it.
    pub fn span_around(&self, rows: &RowColumns, from_ns: u64, to_ns: u64) -> Option<(u64, u64)> {
        let places = self.places_between(rows, from_ns, to_ns);
        let ended = |place: usize| Some(rows.ended_ns[index(*self.rows.get(place)?)]);
        let last = places.end.min(self.rows.len().checked_sub(1)?);
        Some((ended(places.start.saturating_sub(1))?, ended(last)?))
    }

    /// Time between two moments in which a task ran on this CPU.
    pub fn busy_between(&self, timeline: &LevelRows, from_ns: u64, to_ns: u64) -> u64 {
        let rows = timeline.rows();
        let places = self.places_between(rows, from_ns, to_ns);
        let clipped = |places: std::ops::Range<usize>| -> u64 {
            let runs = self.rows[places].iter().filter_map(|row| {
                let pieces = rows.pieces(index(*row));
                let from = pieces.run_from_ns?.max(from_ns);
                Some(pieces.run_to_ns.min(to_ns).saturating_sub(from))
            });
            runs.fold(0, u64::saturating_add)
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
        let rows = timeline.rows();
        let places = self.places_between(rows, from_ns, to_ns);
        let runs = self.rows[places].iter().filter_map(|row| {
            let pieces = rows.pieces(index(*row));
            Some(Piece {
                from_ns: pieces.run_from_ns?,
                to_ns: pieces.run_to_ns,
                row: *row,
                who: timeline.track_of(index(*row))?.task.get(),
                state: ThreadState::Running,
            })
        });
        runs.filter(|piece| piece.from_ns < to_ns && piece.from_ns < piece.to_ns)
            .collect()
    }
}

fn index(row: u32) -> usize {
    usize::try_from(row).expect("at least 32-bit addresses")
}

//! Shares of time by state: what a pixel shows if many pieces lie in it.
//!
//! The shares are exact, not sampled. For each task, sums up to every 128th row are kept, so a bin
//! costs at most the rows at its two edges, no matter how many lie between:
//!
//! ```text
//!  rows   ···│────────128────────│────────128────────│───···
//!  bin          ├── row by row ──┤   sums   ├── row by row ──┤
//! ```

use std::cmp::{max, min};

use super::columns::RowColumns;
use super::pieces::ThreadState;
use super::{LevelRows, Track};

/// Rows between two sums. If all 71 states occur, 8 bytes for each every 128 rows are 4.4 bytes a
/// row.
const BLOCK: usize = 128;

/// Sums of time by state, for the states that occur.
#[derive(Debug, Default)]
pub struct StateSums {
    /// Column of each state, by its number; and the state of each column.
    column: Vec<u8>,
    states: Vec<u8>,
    /// `states.len()` sums for every block of every track: the time of all rows of the track
    /// before the block.
    before: Vec<u64>,
    /// Where each track's sums begin, in blocks.
    first_block: Vec<usize>,
}

/// Time of each state, by the state's number.
#[derive(Clone, Debug)]
pub struct StateTimes {
    ns: [u64; ThreadState::NUMBERS],
    /// Numbers of states whose time is not zero.
    used: Vec<u8>,
}

impl Default for StateTimes {
    fn default() -> Self {
        Self {
            ns: [0; ThreadState::NUMBERS],
            used: Vec::new(),
        }
    }
}

impl StateTimes {
    fn add(&mut self, number: u8, ns: u64) {
        if ns == 0 {
            return;
        }
        let sum = &mut self.ns[usize::from(number)];
        if *sum == 0 {
            self.used.push(number);
        }
        *sum += ns;
    }

    /// Hands out states and times, in order of the states' numbers, and resets all times to zero.
    pub fn drain(&mut self, mut each: impl FnMut(ThreadState, u64)) {
        self.used.sort_unstable();
        for number in self.used.drain(..) {
            let state =
                ThreadState::of_number(number).expect("it was a state's number when it was added");
            each(state, std::mem::take(&mut self.ns[usize::from(number)]));
        }
    }
}

impl StateSums {
    pub(super) fn new(tracks: &[Track], rows: &RowColumns) -> Self {
        let states = states_of(rows);
        let mut column = vec![u8::MAX; ThreadState::NUMBERS];
        for (place, state) in (0..).zip(&states) {
            column[usize::from(*state)] = place;
        }
        let mut sums = Self {
            column,
            before: Vec::with_capacity(blocks_of(tracks) * states.len()),
            states,
            first_block: Vec::with_capacity(tracks.len()),
        };
        let mut running = vec![0_u64; sums.states.len()];
        for track in tracks {
            sums.first_block.push(sums.before.len() / sums.width());
            running.fill(0);
            for (place, row) in track.rows().enumerate() {
                if place % BLOCK == 0 {
                    sums.before.extend_from_slice(&running);
                }
                rows.pieces(row).each(|from, to, state| {
                    let column = sums.column[usize::from(state.number())];
                    running[usize::from(column)] += to - from;
                });
            }
        }
        sums
    }

    fn width(&self) -> usize {
        self.states.len().max(1)
    }

    fn block(&self, track: usize, block: usize) -> &[u64] {
        let at = (self.first_block[track] + block) * self.width();
        &self.before[at..at + self.states.len()]
    }

    /// Adds the time in the whole blocks `first..last` of a track.
    fn add_blocks(&self, track: usize, first: usize, last: usize, shares: &mut StateTimes) {
        let (before, after) = (self.block(track, first), self.block(track, last));
        for ((state, before), after) in self.states.iter().zip(before).zip(after) {
            shares.add(*state, after - before);
        }
    }
}

impl LevelRows {
    /// Adds the time of each state of a task between two moments.
    pub fn add_shares(&self, track: Track, from_ns: u64, to_ns: u64, shares: &mut StateTimes) {
        let rows = self.rows_between(track, from_ns, to_ns);
        let add_clipped = |rows: std::ops::Range<usize>, shares: &mut StateTimes| {
            for row in rows {
                self.rows.pieces(row).each(|from, to, state| {
                    let clipped = min(to, to_ns).saturating_sub(max(from, from_ns));
                    shares.add(state.number(), clipped);
                });
            }
        };
        // A block lies inside the span if a row of the span comes before it, and another after it.
        let (start, end) = (rows.start - track.first, rows.end - track.first);
        let (first, last) = ((start + 1).div_ceil(BLOCK), end.saturating_sub(1) / BLOCK);
        if first >= last {
            return add_clipped(rows, shares);
        }
        let place = self.by_task[&track.task];
        add_clipped(rows.start..track.first + first * BLOCK, shares);
        self.sums.add_blocks(place, first, last, shares);
        add_clipped(track.first + last * BLOCK..rows.end, shares);
    }
}

fn blocks_of(tracks: &[Track]) -> usize {
    tracks.iter().map(|track| track.len.div_ceil(BLOCK)).sum()
}

/// The states that occur in the rows, by number.
fn states_of(rows: &RowColumns) -> Vec<u8> {
    let mut seen = [false; ThreadState::NUMBERS];
    for row in 0..rows.len() {
        rows.pieces(row)
            .each(|_, _, state| seen[usize::from(state.number())] = true);
    }
    (0..)
        .zip(seen)
        .filter(|one| one.1)
        .map(|one| one.0)
        .collect()
}

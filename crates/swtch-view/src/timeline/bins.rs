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

use super::pieces::{RowPieces, ThreadState};
use super::{LevelRows, Track};

/// Rows between two sums. If all 71 states occur, 8 bytes for each every 128 rows are 4.4 bytes a
/// row; a trace with ten has 0.6.
const BLOCK: usize = 128;

/// Sums of time by state, for the states that occur.
#[derive(Debug, Default)]
pub struct StateSums {
    /// The states that occur, by number, and for each of them: the time of all rows of a track
    /// before every block of the track.
    before: Vec<(u8, Vec<u64>)>,
    /// The block at which each track's sums begin.
    first_block: Vec<usize>,
}

/// Sums that grow with each row.
#[derive(Debug)]
pub struct StateSumsBuilder {
    sums: StateSums,
    /// Place of each state in `sums.before`, by its number.
    places: [Option<u8>; ThreadState::NUMBERS],
    /// The time of the rows so far, by track and by the place of the state.
    running: Vec<Vec<u64>>,
    blocks: usize,
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

impl StateSumsBuilder {
    /// No time yet, for tracks of these lengths.
    pub(super) fn new(tracks: &[Track]) -> Self {
        let first_block = tracks.iter().scan(0, |next, track| {
            let first = *next;
            *next += track.len.div_ceil(BLOCK);
            Some(first)
        });
        Self {
            sums: StateSums {
                before: Vec::new(),
                first_block: first_block.collect(),
            },
            places: [None; ThreadState::NUMBERS],
            running: vec![Vec::new(); tracks.len()],
            blocks: tracks.iter().map(|track| track.len.div_ceil(BLOCK)).sum(),
        }
    }

    /// Adds the next row of a track, which is the track's row `place`.
    pub(super) fn add(&mut self, track: usize, place: usize, pieces: &RowPieces) {
        let Self {
            sums,
            places,
            running,
            blocks,
        } = self;
        let running = &mut running[track];
        if place.is_multiple_of(BLOCK) {
            let block = sums.first_block[track] + place / BLOCK;
            for ((_, before), sum) in sums.before.iter_mut().zip(running.iter()) {
                before[block] = *sum;
            }
        }
        pieces.each(|from, to, state| {
            let number = state.number();
            let place = *places[usize::from(number)].get_or_insert_with(|| {
                sums.before.push((number, vec![0; *blocks]));
                u8::try_from(sums.before.len() - 1).expect("fewer states than numbers")
            });
            let place = usize::from(place);
            if place >= running.len() {
                running.resize(place + 1, 0);
            }
            running[place] = running[place].saturating_add(to - from);
        });
    }

    pub(super) fn finish(self) -> StateSums {
        self.sums
    }
}

impl StateSums {
    /// Sums that were kept, for these tracks.
    pub(super) fn kept(tracks: &[Track], before: Vec<(u8, Vec<u64>)>) -> Self {
        Self {
            before,
            ..StateSumsBuilder::new(tracks).sums
        }
    }

    /// The states that occur and their sums, to be kept.
    pub(super) fn before(&self) -> &[(u8, Vec<u64>)] {
        &self.before
    }

    /// Returns the number of sums of each state.
    pub(super) fn blocks_of(tracks: &[Track]) -> usize {
        StateSumsBuilder::new(tracks).blocks
    }

    /// Adds the time in the whole blocks `first..last` of a track.
    fn add_blocks(&self, track: usize, first: usize, last: usize, shares: &mut StateTimes) {
        let begin = self.first_block[track];
        for (state, before) in &self.before {
            shares.add(*state, before[begin + last] - before[begin + first]);
        }
    }
}

impl LevelRows {
    /// Adds the time of each state of a task between two moments.
    pub fn add_shares(&self, track: Track, from_ns: u64, to_ns: u64, shares: &mut StateTimes) {
        let rows = self.rows_between(track, from_ns, to_ns);
        let add_clipped = |rows: std::ops::Range<usize>, shares: &mut StateTimes| {
            self.rows.each(rows, |_, row| {
                row.pieces().each(|from, to, state| {
                    let clipped = min(to, to_ns).saturating_sub(max(from, from_ns));
                    shares.add(state.number(), clipped);
                });
            });
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

//! `api/lanes`: what is drawn of some lanes between two moments, reduced to the pixels of the page.
//!
//! ```text
//! u32 magic │ u32 lanes │ u32 generation │ u32 px │ f64 from │ f64 to          little-endian
//! per lane:   u32 form (0 nothing, 1 exact, 2 binned) │ u32 n
//!   exact     f64 from[n] │ f64 to[n] │ u32 row[n] │ u32 who[n] │ u8 state[n] │ zeros up to 8
//!   binned    u32 [n] = bin << 16 | state << 8 | share (1 … 255 of the bin)   │ zeros up to 8
//! ```
//!
//! A lane is exact while it has at most two rows per pixel, of up to three pieces each. The page
//! reads this in `web/src/api/lanes.ts`.

use std::fmt;
use std::str::FromStr;

use swtch_core::{CpuId, Level, Open, TaskKey};

use super::loaded::Loaded;
use super::query::Span;
use super::row_ids::RowIds;
use super::timeline::{LevelRows, NO_ROW, NOBODY, Piece, StateTimes, ThreadState};

const MAGIC: u32 = 0x4c57_5331;

/// The most pixels in one answer: the number of a bin has 16 bits.
pub const MOST_PX: u32 = 8192;

/// The most lanes in one answer.
pub const MOST_LANES: usize = 1024;

/// Most rows per pixel for an exact lane.
const EXACT_ROWS_PER_PX: usize = 2;

/// A lane of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneId {
    /// A thread by its task key: `t12`.
    Thread(TaskKey),
    /// The workers of a user-mode scheduler that ran on a thread: `u12`.
    Workers(TaskKey),
    /// A CPU by its number: `c0`.
    Cpu(CpuId),
}

impl FromStr for LaneId {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let refusal =
            || format!("`{word}` is no lane: give t12 (task), u12 (its workers), c0 (CPU)");
        let (kind, number) = word.split_at_checked(1).ok_or_else(refusal)?;
        let task = || number.parse().map(TaskKey::new).map_err(|_| refusal());
        match kind {
            "t" => Ok(Self::Thread(task()?)),
            "u" => Ok(Self::Workers(task()?)),
            "c" => Ok(Self::Cpu(CpuId::new(
                number.parse().map_err(|_| refusal())?,
            ))),
            _ => Err(refusal()),
        }
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(task) => write!(f, "t{task}"),
            Self::Workers(task) => write!(f, "u{task}"),
            Self::Cpu(cpu) => write!(f, "c{cpu}"),
        }
    }
}

/// The part of the picture that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The part of the trace.
    pub span: Span,
    /// The number of bins into which it is cut.
    pub px: u32,
}

impl Window {
    /// Returns when a bin begins. The last bin ends at `bin(px)`.
    fn bin(&self, number: u32) -> u64 {
        self.span.edge(number, self.px)
    }
}

/// The lanes in the layout that is described at the head of this file.
pub fn answer(loaded: &Loaded, window: &Window, lanes: &[LaneId]) -> Vec<u8> {
    let mut bytes = ByteBuffer::default();
    bytes.u32(MAGIC);
    bytes.u32(length(lanes.len()));
    bytes.u32(loaded.generation);
    bytes.u32(window.px);
    bytes.moment(window.span.from_ns);
    bytes.moment(window.span.to_ns);
    for lane in lanes {
        put_lane(loaded, window, *lane, &mut bytes);
    }
    bytes.0
}

fn put_lane(loaded: &Loaded, window: &Window, lane: LaneId, bytes: &mut ByteBuffer) {
    match lane {
        LaneId::Thread(task) => put_thread(loaded, &loaded.levels.os, task, window, bytes),
        LaneId::Workers(task) => {
            put_thread(loaded, loaded.levels.of(Level::User), task, window, bytes)
        }
        LaneId::Cpu(cpu) => put_cpu(loaded, cpu, window, bytes),
    }
}

fn put_thread(
    loaded: &Loaded,
    timeline: &LevelRows,
    task: TaskKey,
    window: &Window,
    bytes: &mut ByteBuffer,
) {
    let is_os = std::ptr::eq(timeline, &raw const loaded.levels.os);
    let ids = loaded.ids(if is_os { Level::Os } else { Level::User });
    let open = loaded
        .open(task)
        .filter(|_| is_os)
        .map(|open| open_piece(loaded, open));
    let open =
        open.filter(|piece| piece.from_ns < window.span.to_ns && piece.to_ns > window.span.from_ns);
    let Some(track) = timeline.track(task) else {
        return put_exact(&Vec::from_iter(open), ids, bytes);
    };
    let rows = timeline.rows_between(track, window.span.from_ns, window.span.to_ns);
    if rows.len() > window.px as usize * EXACT_ROWS_PER_PX {
        let mut bins = Vec::new();
        let mut shares = StateTimes::default();
        for bin in 0..window.px {
            let (from_ns, to_ns) = (window.bin(bin), window.bin(bin + 1));
            timeline.add_shares(track, from_ns, to_ns, &mut shares);
            shares.drain(|state, ns| bins.extend(packed(bin, state, ns, to_ns - from_ns)));
            // A wait or run that was open when the trace ended has no row.
            bins.extend(open.and_then(|piece| {
                let ns = piece
                    .to_ns
                    .min(to_ns)
                    .saturating_sub(piece.from_ns.max(from_ns));
                packed(bin, piece.state, ns, to_ns - from_ns)
            }));
        }
        return put_binned(&bins, bytes);
    }
    let table = timeline.rows();
    let mut pieces = Vec::with_capacity(rows.len() * 2);
    table.each(rows, |number, row| {
        row.pieces().each(|from_ns, to_ns, state| {
            if from_ns >= window.span.to_ns || to_ns <= window.span.from_ns {
                return;
            }
            let who = match (state, is_os) {
                (ThreadState::Running, true) => u32::from(row.cpu),
                (ThreadState::Running, false) => row.worker(),
                _ => NOBODY,
            };
            pieces.push(Piece {
                from_ns,
                to_ns,
                row: length(number),
                who,
                state,
            });
        });
    });
    pieces.extend(open);
    put_exact(&pieces, ids, bytes);
}

fn put_cpu(loaded: &Loaded, cpu: CpuId, window: &Window, bytes: &mut ByteBuffer) {
    let (timeline, ids) = (&loaded.levels.os, loaded.ids(Level::Os));
    let Some(lane) = timeline.cpus().iter().find(|lane| lane.cpu == cpu) else {
        return put_exact(&[], ids, bytes);
    };
    let places = lane.places_between(timeline, window.span.from_ns, window.span.to_ns);
    if places.len() <= window.px as usize * EXACT_ROWS_PER_PX {
        return put_exact(
            &lane.pieces(timeline, window.span.from_ns, window.span.to_ns),
            ids,
            bytes,
        );
    }
    let bins = (0..window.px).filter_map(|bin| {
        let (from_ns, to_ns) = (window.bin(bin), window.bin(bin + 1));
        let busy = lane.busy_between(timeline, from_ns, to_ns);
        packed(bin, ThreadState::Running, busy, to_ns - from_ns)
    });
    put_binned(&bins.collect::<Vec<_>>(), bytes);
}

/// The piece for a wait or run that was open when the capture ended.
pub fn open_piece(loaded: &Loaded, open: &Open) -> Piece {
    let from_ns = loaded.since_start(open.since);
    Piece {
        from_ns,
        to_ns: from_ns.saturating_add(open.lasted.as_ns()),
        row: NO_ROW,
        who: NOBODY,
        state: open
            .reason
            .map_or(ThreadState::Running, |reason| match reason.category() {
                swtch_core::Category::Preemption | swtch_core::Category::Yield => {
                    ThreadState::InQueue(Some(reason))
                }
                _ => ThreadState::Blocked(reason),
            }),
    }
}

/// An entry of a bin, with the share in 255ths of the bin; `None` for a state without time.
fn packed(bin: u32, state: ThreadState, ns: u64, bin_ns: u64) -> Option<u32> {
    let share = (u128::from(ns) * 255 + u128::from(bin_ns) / 2) / u128::from(bin_ns.max(1));
    // Even the shortest piece is shown, so that a lane with pieces does not look empty.
    let share = u32::try_from(share.clamp(1, 255)).expect("at most 255");
    (ns > 0).then_some(bin << 16 | u32::from(state.number()) << 8 | share)
}

fn put_exact(pieces: &[Piece], ids: &RowIds, bytes: &mut ByteBuffer) {
    bytes.u32(u32::from(!pieces.is_empty()));
    bytes.u32(length(pieces.len()));
    pieces.iter().for_each(|piece| bytes.moment(piece.from_ns));
    pieces.iter().for_each(|piece| bytes.moment(piece.to_ns));
    let ids = pieces.iter().map(|piece| match piece.row {
        NO_ROW => NO_ROW,
        row => ids.id(row as usize),
    });
    ids.for_each(|id| bytes.u32(id));
    pieces.iter().for_each(|piece| bytes.u32(piece.who));
    bytes
        .0
        .extend(pieces.iter().map(|piece| piece.state.number()));
    bytes.fill_up();
}

fn put_binned(bins: &[u32], bytes: &mut ByteBuffer) {
    bytes.u32(if bins.is_empty() { 0 } else { 2 });
    bytes.u32(length(bins.len()));
    bins.iter().for_each(|bin| bytes.u32(*bin));
    bytes.fill_up();
}

#[derive(Default)]
struct ByteBuffer(Vec<u8>);

impl ByteBuffer {
    fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    fn moment(&mut self, ns: u64) {
        self.0.extend_from_slice(&(ns as f64).to_le_bytes());
    }

    /// The page reads 8-byte numbers in place, which needs addresses that are multiples of 8.
    fn fill_up(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }
}

fn length(number: usize) -> u32 {
    u32::try_from(number).expect("rows and lanes are counted with 32 bits")
}

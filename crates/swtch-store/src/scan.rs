//! Brings the rows of `switch` from a file to those who read them.
//!
//! ```text
//! file ─▶ Arrow batches ─▶ pieces of rows ─┬▶ first reader (the caller's thread)
//!         (one thread)     (one thread)    └▶ further readers (a thread each)
//! ```
//!
//! Most of what is asked about a trace needs all rows in order of time, so the work is divided by
//! what is done with a row, and not by time: one pass feeds every reader, and each reader gets every
//! row. Queues between the threads are short, and a piece that everybody has read is filled again,
//! so memory does not grow with the trace.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::thread::Scope;

use arrow_array::RecordBatch;
use swtch_core::Switch;

use crate::error::Error;

/// Batches that are decoded ahead of the one of which rows are made.
const BATCHES_AHEAD: usize = 4;

/// Pieces that are made ahead of the one that a reader has.
const PIECES_AHEAD: usize = 8;

/// Rows of a piece: 360 kB. A piece is written column by column and read row by row, and that is
/// fast while it fits the cache of one CPU.
const PIECE_ROWS: usize = 1024;

/// A further reader of rows, which runs on a thread of its own.
pub type PieceReader<'r> = Box<dyn FnMut(&[Switch]) + Send + 'r>;

/// Decoded batches of a file, in order of time.
pub(crate) type Batches<'a> = Box<dyn Iterator<Item = Result<RecordBatch, Error>> + Send + 'a>;

/// Rows that all readers share.
type Piece = Arc<Vec<Switch>>;

/// Decodes the batches that `open` returns, makes rows of each part of a batch with `make`, and
/// hands them to all readers, until the first reader wants no more.
///
/// # Errors
///
/// Of `open`, of a batch or of `make`: the first. What came before it has been read by then.
pub(crate) fn scan<'a>(
    open: impl FnOnce() -> Result<Batches<'a>, Error> + Send,
    make: impl FnMut(&RecordBatch, &mut Vec<Switch>) -> Result<(), Error> + Send,
    first: &mut dyn FnMut(&[Switch]) -> ControlFlow<()>,
    further: Vec<PieceReader<'_>>,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let (decoded, batches) = sync_channel(BATCHES_AHEAD);
        scope.spawn(move || send_batches(open, &decoded));
        let (used, free) = channel();
        let mut outlets: Vec<_> = further
            .into_iter()
            .map(|reader| start_reader(scope, reader, used.clone()))
            .collect();
        let (outlet, pieces) = sync_channel(PIECES_AHEAD);
        outlets.push(outlet);
        let spare = used.clone();
        let maker = scope.spawn(move || make_pieces(&batches, make, &outlets, &free, &spare));
        for piece in &pieces {
            if first(&piece).is_break() {
                break;
            }
            give_back(piece, &used);
        }
        // Whoever makes pieces ends when nobody takes them.
        drop(pieces);
        match maker.join() {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn send_batches<'a>(
    open: impl FnOnce() -> Result<Batches<'a>, Error>,
    decoded: &SyncSender<Result<RecordBatch, Error>>,
) {
    let batches = open().unwrap_or_else(|error| Box::new(std::iter::once(Err(error))));
    for batch in batches {
        // The receiver is gone when a batch before this one could not be read.
        if decoded.send(batch).is_err() {
            return;
        }
    }
}

fn start_reader<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    mut reader: PieceReader<'env>,
    used: Sender<Vec<Switch>>,
) -> SyncSender<Piece> {
    let (outlet, pieces) = sync_channel::<Piece>(PIECES_AHEAD);
    scope.spawn(move || {
        for piece in pieces {
            reader(&piece);
            give_back(piece, &used);
        }
    });
    outlet
}

fn make_pieces(
    batches: &Receiver<Result<RecordBatch, Error>>,
    mut make: impl FnMut(&RecordBatch, &mut Vec<Switch>) -> Result<(), Error>,
    outlets: &[SyncSender<Piece>],
    free: &Receiver<Vec<Switch>>,
    used: &Sender<Vec<Switch>>,
) -> Result<(), Error> {
    for batch in batches {
        let batch = batch?;
        for begin in (0..batch.num_rows()).step_by(PIECE_ROWS) {
            let length = PIECE_ROWS.min(batch.num_rows() - begin);
            let mut rows = free.try_recv().unwrap_or_default();
            make(&batch.slice(begin, length), &mut rows)?;
            let piece = Arc::new(rows);
            for outlet in outlets {
                // A further reader is gone only when it panicked, and the scope passes that on. The
                // first one is gone when it wants no more.
                if outlet.send(Arc::clone(&piece)).is_err() {
                    return Ok(());
                }
            }
            give_back(piece, used);
        }
    }
    Ok(())
}

/// Whoever has a piece last returns its memory.
fn give_back(piece: Piece, used: &Sender<Vec<Switch>>) {
    if let Some(rows) = Arc::into_inner(piece) {
        // Nobody makes pieces any more when this fails, and the memory is freed.
        let _ = used.send(rows);
    }
}

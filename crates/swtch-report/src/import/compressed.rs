//! Computes how much memory the compressed records of a file (`perf record -z`) would take, before the crate that reads
//! them decompresses them.
//!
//! That crate keeps all records until the next `PERF_RECORD_FINISHED_ROUND` in memory, to sort
//! them by time. For an uncompressed file this is at most the file's size. But a compressed record
//! of 64 kB can hold 2 GB. So each is first decompressed piece by piece, only to learn its length.

use anyhow::{Result, bail};
use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

/// Bytes that may wait for the end of a round, in a file of any size. perf ends a round each time
/// that it has emptied its rings: 512 kB for each CPU unless `-m` says otherwise.
const MOST_BYTES: u64 = 256 << 20;

/// The limit for larger files is this many times their size; `perf sched record -z` comes to about 7. So a large file may
/// take much memory. A limit that does not grow would refuse recordings that perf has made.
const MOST_RATIO: u64 = 16;

/// The most bytes that are decompressed at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Counts the bytes that wait for the end of a round.
pub struct WaitingBytes {
    decoder: Decoder<'static>,
    piece: Vec<u8>,
    /// Bytes that wait now.
    waiting: u64,
    /// The most that may wait.
    limit: u64,
}

/// Whether a record can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// It can.
    Sound,
    /// It cannot, and reading the file ends there.
    Damaged,
}

impl WaitingBytes {
    /// An empty round, for a file of this length.
    ///
    /// # Errors
    /// When no decoder can be made.
    pub fn new(file_bytes: u64) -> Result<Self> {
        Ok(Self {
            decoder: Decoder::new()?,
            piece: vec![0; PIECE_BYTES],
            waiting: 0,
            limit: MOST_BYTES.max(file_bytes.saturating_mul(MOST_RATIO)),
        })
    }

    /// Starts the next round: nothing waits any more.
    pub fn end_round(&mut self) {
        self.waiting = 0;
    }

    /// Adds a compressed record. All compressed records of a file are one zstd stream.
    ///
    /// # Errors
    /// When more bytes would wait than in any recording of perf.
    pub fn add(&mut self, record: &[u8]) -> Result<RecordState> {
        let mut input = InBuffer::around(record);
        loop {
            let mut output = OutBuffer::around(&mut self.piece[..]);
            if self.decoder.run(&mut input, &mut output).is_err() {
                return Ok(RecordState::Damaged);
            }
            let length = output.pos();
            self.waiting += length as u64;
            if self.waiting > self.limit {
                bail!(
                    "it is damaged: its compressed records hold more than {} MB in one round, which perf never writes",
                    self.limit / 1_000_000
                );
            }
            if length < PIECE_BYTES && input.pos() == record.len() {
                return Ok(RecordState::Sound);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(bytes: usize) -> Vec<u8> {
        zstd::encode_all(&vec![7; bytes][..], 1).unwrap()
    }

    #[test]
    fn rounds_of_a_recording_pass() {
        let mut waiting = WaitingBytes::new(1 << 20).unwrap();
        for _ in 0..8 {
            let added = waiting.add(&packed(100 << 20)).unwrap();
            assert_eq!(added, RecordState::Sound);
            waiting.end_round();
        }
    }

    /// A record of less than 60 kB becomes 300 MB.
    #[test]
    fn a_small_record_that_holds_very_much_is_refused() {
        let mut waiting = WaitingBytes::new(1 << 20).unwrap();
        let record = packed(300 << 20);
        assert!(record.len() < 60_000, "{}", record.len());
        let refused = waiting.add(&record).unwrap_err().to_string();
        assert!(refused.contains("268 MB"), "{refused}");
    }

    #[test]
    fn what_is_no_zstd_is_left_to_the_reader() {
        let mut waiting = WaitingBytes::new(1 << 20).unwrap();
        assert_eq!(waiting.add(&[7; 100]).unwrap(), RecordState::Damaged);
    }
}

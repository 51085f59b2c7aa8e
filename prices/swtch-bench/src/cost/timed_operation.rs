//! Operations that are timed in blocks of many repetitions. An arm has one to three of them,
//! numbered from 0.

use swtch_core::units::Nanos;

use super::work::LiveRegisters;
use crate::error::Error;
use crate::outcome::SwitchCounts;

/// An operation that can be timed in blocks. It lives in the process that performs it, and is
/// called repeatedly, with blocks of others in between.
pub(crate) trait TimedOperation {
    /// Performs about `operations` operations; the returned timing has the exact number.
    ///
    /// Warming up, after others had the CPU, is done first and is not timed.
    fn block(&mut self, operations: u64) -> Result<Timing, Error>;
}

/// The measurement of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Number of operations that were timed.
    pub(crate) operations: u64,
    /// Wall time of all operations together.
    pub(crate) elapsed: Nanos,
    /// Switches that the kernel counted for all participating tasks.
    pub(crate) counted: SwitchCounts,
    /// Number of operations over which they were counted: the timed ones, and more where reading
    /// the counters of many tasks would be part of the time.
    pub(crate) counted_over: u64,
    /// Registers that were live at the hand-overs, for work that reads them; else `None`.
    pub(crate) live: Option<LiveRegisters>,
}

/// Number of words that a [`Timing`] takes in shared memory.
pub(super) const TIMING_WORDS: usize = 7;

impl Timing {
    /// Encodes the timing for shared memory.
    pub(super) fn to_words(self) -> [u64; TIMING_WORDS] {
        let [always, ever] = LiveRegisters::to_pair(self.live);
        [
            self.operations,
            self.elapsed.as_ns(),
            self.counted.voluntary,
            self.counted.involuntary,
            self.counted_over,
            always,
            ever,
        ]
    }

    /// Decodes the words of [`Self::to_words`].
    pub(super) fn from_words(words: [u64; TIMING_WORDS]) -> Self {
        let [
            operations,
            elapsed_ns,
            voluntary,
            involuntary,
            counted_over,
            live @ ..,
        ] = words;
        Self {
            operations,
            elapsed: Nanos::from_ns(elapsed_ns),
            counted: SwitchCounts {
                voluntary,
                involuntary,
            },
            counted_over,
            live: LiveRegisters::from_pair(live),
        }
    }
}

/// Times `work`, which performs `operations` operations on the calling thread alone, and reads that
/// thread's counters of switches before and after.
pub(crate) fn timed(
    operations: u64,
    work: impl FnOnce() -> Result<(), Error>,
) -> Result<Timing, Error> {
    let before = crate::workers::own_switches()?;
    let start = crate::clock::raw();
    work()?;
    let end = crate::clock::raw();
    Ok(Timing {
        operations,
        elapsed: end.since(start).unwrap_or_default(),
        counted: crate::workers::own_switches()?.since(before),
        counted_over: operations,
        live: None,
    })
}

//! What is timed: an operation that is done many times in a block.

use swtch_core::units::Nanos;

use super::work::LiveRegisters;
use crate::error::Error;
use crate::outcome::Counted;

/// An operation that can be timed in blocks. It lives in the process that does it, and is called
/// again and again, with the blocks of other acts in between.
pub(crate) trait Act {
    /// Does the operation about `operations` times; the block says how often.
    ///
    /// What is needed to be warm after others had the CPU is done before, untimed.
    fn block(&mut self, operations: u64) -> Result<Timing, Error>;
}

/// One block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timing {
    /// How many operations were timed.
    pub(crate) operations: u64,
    /// Wall time of all operations together.
    pub(crate) elapsed: Nanos,
    /// Switches that the kernel counted for all tasks that took part.
    pub(crate) counted: Counted,
    /// Over how many operations they were counted: the timed ones, and more where reading the counters
    /// of many tasks would be part of the time.
    pub(crate) counted_over: u64,
    /// Registers that were live at the hand-overs of these operations, where the work looks at them.
    pub(crate) live: Option<LiveRegisters>,
}

/// For acts of a single task: times `work`, which does `operations`, and reads the kernel's counters
/// around it.
pub(crate) fn timed(
    operations: u64,
    work: impl FnOnce() -> Result<(), Error>,
) -> Result<Timing, Error> {
    let before = crate::cast::own_switches()?;
    let start = crate::clock::raw();
    work()?;
    let end = crate::clock::raw();
    Ok(Timing {
        operations,
        elapsed: end.since(start).unwrap_or_default(),
        counted: crate::cast::own_switches()?.since(before),
        counted_over: operations,
        live: None,
    })
}

//! Stalls: a scheduler that ought to run workers and makes no progress.
//!
//! The runtime's monitor shows each scheduler's progress to a watch every few ms. When it has not
//! moved for half of the threshold (25 ms, settable), the scheduler's thread is looked at; after the
//! whole threshold it is looked at again, and the difference says why (`verdict`):
//!
//! ```text
//! progress moves ──┬──────────────┬──────────────┬──▶ time
//!                  0              ½              1 threshold
//!               a run begins   sample         sample, verdict, backtrace, report
//! ```
//!
//! So half of the threshold is what a verdict rests on, and the look costs nothing for runs that
//! are shorter. Each stall is reported once, at most five a minute, on a thread of its own: the
//! monitor must go on ending quanta while names are looked up and the callback runs.
//!
//! What this does *not* do: stop or end anything. A stall is the program's, and only its author can
//! say whether it matters.

mod backtrace;
mod capture;
mod deadlock;
mod evidence;
mod holder;
mod memory;
pub(crate) mod outside;
pub(crate) mod places;
pub(crate) mod records;
mod report;
mod unwind;
mod verdict;
pub(crate) mod waits;
mod watch;

pub use backtrace::Backtrace;
pub use deadlock::{Blocker, Deadlock, HasTo, Waiting};
pub use evidence::Call;
#[doc(hidden)]
pub use holder::waited_at;
pub use report::{Holder, Offender, Stall};
pub(crate) use report::{Reporter, write};
pub(crate) use verdict::Duty;
pub use verdict::{Numbers, Verdict};
pub(crate) use watch::Watch;

//! Stalls: a scheduler that should be running workers makes no progress.
//!
//! The runtime's monitor shows each scheduler's progress to a watch every few ms. When it has not
//! changed for half of the threshold (25 ms, settable), a sample of the scheduler's thread is
//! taken. After the whole threshold a second one is taken, and the difference gives the reason
//! (`verdict`):
//!
//! ```text
//! progress moves ──┬──────────────┬──────────────┬──▶ time
//!                  0              ½              1 threshold
//!               a run begins   sample         sample, verdict, backtrace, report
//! ```
//!
//! So a verdict covers half of the threshold, and runs that are shorter than that cost nothing.
//! Each stall is reported once, at most five a minute, on a thread of its own: the monitor must go
//! on ending quanta while names are looked up and the callback runs.
//!
//! What this does *not* do: stop or end anything. A stall is caused by the program, and only its
//! author can tell whether it matters.

mod backtrace;
mod capture;
mod deadlock;
mod evidence;
mod holder;
mod memory;
pub(crate) mod outside;
pub(crate) mod records;
mod report;
mod unwind;
mod verdict;
pub(crate) mod waits;
mod watch;

pub use backtrace::Backtrace;
pub use deadlock::{BlockedOn, Blocker, Deadlock, WaitingWorker};
pub use evidence::Call;
#[doc(hidden)]
pub use holder::waited_at;
pub use report::{LockHolder, Stall, StalledWorker};
pub(crate) use report::{Reporter, Reporting, write};
pub(crate) use verdict::SchedulerDuty;
pub use verdict::{Numbers, StallVerdict};
pub(crate) use watch::ProgressWatch;

//! Reads the counters of user-mode schedulers (those of `swtch-fiber`) in another process, without
//! stopping it or asking it.
//!
//! ```text
//! /proc/PID/fd ─find─▶ memory file ─check─▶ Page ─┬─ snapshot ─▶ rows: schedulers, workers, tasks,
//!                                                 │              threads, waits
//!                                                 ├─ ring      ─▶ switches, and the number lost
//!                                                 └─ lease     ◀─ "go on writing switches"
//! ```
//!
//! The target always writes its page ([`layout`]); an observer maps the same
//! memory. Nothing in that memory is trusted: offsets and sizes are checked once, when the page is
//! opened, and kept; indices are checked at each use. A page with false contents can show wrong
//! numbers, but cannot make an observer read elsewhere or panic. The mapping stays readable when
//! the target dies: [`Page::has_ended`] tells that.
//!
//! Reading needs no privilege for processes of one's own; for others, `CAP_SYS_PTRACE`.
//!
//! ```no_run
//! use swtch_observe::{Error, Page};
//!
//! # fn main() -> Result<(), Error> {
//! let page = Page::of_process(4711)?;
//! let snapshot = page.snapshot()?;
//! for scheduler in &snapshot.schedulers {
//!     println!("{} {}", scheduler.scheduler_id, scheduler.context_switches_count);
//! }
//! # Ok(())
//! # }
//! ```

pub mod clock;
mod error;
mod find;
pub mod layout;
mod lease;
mod mapping;
pub mod names;
mod page;
mod ring;
mod rows;
mod snapshot;
mod target_clock;
#[cfg(test)]
mod test_page;
mod threads;

pub use error::Error;
pub use layout::RUN_BITS;
pub use lease::Lease;
pub use page::Page;
pub use ring::{Read, RingPosition, UserSwitch};
pub use rows::{
    Consistency, CurrentWait, EventKind, IoDriver, Mode, SchedulerRow, TaskRow, ThreadKind,
    ThreadRow, WaitStatistics, WorkerRow, WorkerState,
};
pub use snapshot::Snapshot;
pub use target_clock::Clock;
pub use threads::{Tids, pid_in_namespace};

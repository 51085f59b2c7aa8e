//! Makes context switches on purpose: workloads whose number and reason of switches follow from how
//! they are built.
//!
//! A recorder is right when it finds in a trace what the construction says must be there. So each
//! workload is a small play:
//!
//! ```text
//!  Stage            one CPU, SCHED_BATCH: who wakes another keeps the CPU until it blocks itself
//!    └─ cast        named threads and processes; each reads its own kernel counters when done
//!         └─ Outcome   per thread: what the kernel counted, and what each reason must come to
//!                └─ misses(rows of a trace)      nothing when the trace is right
//! ```
//!
//! Counts of blocks are exact by construction, whatever else the machine does: where a bystander
//! can spoil one, it has to preempt one of the cast, and the kernel counts that. Counts of
//! preemptions are bounded from below. A workload belongs into a process of its own with a single
//! thread: it moves the main thread to one CPU and forks.
//!
//! What this crate does *not* do: look at a trace, or need clang. Few workloads need root
//! ([`Needs`]). `unsafe` stands here because the scheduler's calls have no safe form; each wrapper
//! is in the file of its idea.

#![cfg_attr(not(test), deny(clippy::print_stderr))]

pub mod arch;
mod cast;
mod clock;
mod coroutine_switch;
pub mod cost;
mod cpu;
mod cpu_group;
mod error;
mod limits;
pub mod load;
mod needs;
mod outcome;
mod process;
mod scratch;
mod shared;
mod shared_page;
mod signals_held;
mod token;
mod workload;

pub use error::Error;
pub use needs::Needs;
pub use outcome::{Amount, BYSTANDERS, Counted, Expect, Outcome, Tally, ThreadId, ThreadOutcome};
pub use workload::{Workload, workload_named, workloads};

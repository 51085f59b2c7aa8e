//! Makes context switches on purpose: workloads in which the number and the reason of the switches
//! follow from the construction.
//!
//! A recorder is right if a trace of a workload contains what the construction demands. Each
//! workload has these parts:
//!
//! ```text
//!  Stage            one CPU, SCHED_BATCH: a task that wakes another keeps the CPU until it blocks
//!    └─ workers     named threads and processes; each reads its own kernel counters when done
//!         └─ Outcome   per thread: what the kernel counted, and bounds for each reason
//!                └─ misses(rows of a trace)      empty when the trace is right
//! ```
//!
//! Counts of blocks are exact by construction, whatever else the machine does: to spare a block, a
//! bystander has to preempt a worker, and the kernel counts that. Counts of preemptions are bounded
//! from below. A workload needs a process of its own with a single thread, because it moves the
//! main thread to one CPU and forks.
//!
//! What this crate does *not* do: read a trace, or need clang. Few workloads need root ([`Needs`]).
//! The crate uses `unsafe` because the scheduler's calls have no safe form; each wrapper is in the
//! file of its topic.

#![cfg_attr(not(test), deny(clippy::print_stderr))]

pub mod arch;
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
mod workers;
mod workload;

pub use error::Error;
pub use needs::Needs;
pub use outcome::{
    BYSTANDERS, Expect, ExpectedRows, ReasonTally, SwitchCounts, ThreadId, ThreadOutcome,
    WorkloadOutcome,
};
pub use workload::{Workload, workload_named, workloads};

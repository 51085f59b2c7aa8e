//! Makes context switches on purpose: workloads in which the number and the reason of the switches
//! follow from the construction.
//!
//! A recorder is right if a trace of a workload contains what the construction demands. Most
//! workloads have these parts:
//!
//! ```text
//!  CpuPolicyGuard       one CPU, SCHED_BATCH: a task that wakes another runs on until it blocks
//!    └─ workers         named threads and processes; each reads its kernel counters when done
//!         └─ WorkloadOutcome   per thread: what the kernel counted, and bounds for each reason
//!              └─ misses(rows of a trace)   empty when the trace is right
//! ```
//!
//! How often a worker blocks follows from the construction. A *bystander*, a task that does not
//! belong to the workload, can make a block unnecessary if it preempts a worker; the kernel counts
//! such preemptions, and the bounds allow for them. Counts of preemptions are mostly bounded from
//! below. A workload needs a process of its own with a single thread, because it moves the main
//! thread to one CPU and forks.
//!
//! Beside the workloads, [`cost`] measures what switches cost, and [`load`] runs loads that are
//! described as data.
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
mod futex;
mod limits;
pub mod load;
mod lock;
mod needs;
mod needs_check;
mod outcome;
mod process;
mod scratch;
mod shared;
mod signals_held;
mod token;
mod workers;
mod workload;

pub use error::Error;
pub use needs::Needs;
pub use outcome::{
    BYSTANDERS, Expect, ExpectedRows, ReasonTally, SleepCounts, SwitchCounts, ThreadId,
    ThreadOutcome, WorkloadOutcome,
};
pub use workload::{Workload, workload_named, workloads};

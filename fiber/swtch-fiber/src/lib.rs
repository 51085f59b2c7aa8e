//! A user-mode scheduler whose switches can be seen, counted and compared with the kernel's.
//!
//! Databases and runtimes schedule their own *workers* on top of the kernel's threads; SQL Server's
//! SQLOS is the classic, and the model of this crate. A switch between two workers and a switch
//! between two threads are different events, counted in different places. Here both can be seen
//! side by side: every counter lies in a page that another process may read without stopping this
//! one, and the worker that runs is published in a word that a recorder reads when the kernel
//! switches.
//!
//! ```
//! use swtch_fiber::{Runtime, spawn, yield_now};
//!
//! let runtime = Runtime::builder().schedulers(1).build()?;
//! let sum = runtime.run(|| {
//!     let workers: Vec<_> = (0..3)
//!         .map(|number| {
//!             spawn(move || {
//!                 yield_now(); // the others run
//!                 number
//!             })
//!             .expect("inside of a runtime")
//!         })
//!         .collect();
//!     workers.into_iter().map(|worker| worker.join().expect("no panic")).sum::<i32>()
//! })?;
//! assert_eq!(sum, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Words
//!
//! A **task** is a closure that was spawned. A **worker** runs it, one task at a time, from
//! beginning to end. A **scheduler** runs its workers, one at a time; it takes the next one only
//! when the present one yields, waits, leaves for a preemptive section, or ends. A worker that has
//! started stays with its scheduler and its OS thread, so values that are not `Send` may live across
//! a yield; only the body of a preemptive section may run on another thread ([`preemptive()`]).
//! Locks, channels and events that block the worker and not its thread are in [`sync`],
//! which also explains why a guard of `std::sync` must not be held over a yield. A **quantum** is
//! how long a worker may run before [`check_quantum`] yields for it.

#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod affinity;
mod arch;
mod atomics;
mod baton;
mod counters;
mod error;
mod fiber;
mod fork;
pub mod fs;
mod futex;
mod helper_pool;
mod interrupted;
mod io;
mod last_words;
mod monitor;
pub mod net;
mod page;
mod pair;
mod park;
mod preemptive;
mod probes;
mod request;
mod runtime;
mod scheduler;
mod scope;
mod stack;
pub mod stall;
mod switch;
pub mod sync;
mod task;
mod time;
mod wait_type;
mod yielding;

pub use swtch_observe as observe;

pub use counters::{SchedulerCounters, WaitCounters, WorkerCounters};
pub use error::{Error, JoinError, Panic, StackError};
pub use preemptive::preemptive;
pub use request::Request;
pub use runtime::{Builder, Runtime};
pub use scheduler::Mode;
pub use scheduler::driver::Io;
pub use scope::{Scope, ScopedJoinHandle, scope};
pub use task::{JoinHandle, TaskBuilder, spawn};
pub use time::{Elapsed, Interval, sleep, sleep_until, timeout};
pub use wait_type::WaitType;
pub use yielding::{check_quantum, yield_now};

/// For this crate's own tests and benchmarks: anything here may change at any time.
#[doc(hidden)]
pub mod internals {
    pub use crate::interrupted::Marker;
    pub use crate::probes::{Arguments, switch};
    pub use crate::stack::{
        DEFAULT_STACK_SIZE, Guards, PooledStack, SMALLEST_STACK_SIZE, StackPool, overflow,
    };
    pub use crate::stall::waited_at;
}

/// Makes `cargo test` run the example of the folder's README, as it runs those of the docs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

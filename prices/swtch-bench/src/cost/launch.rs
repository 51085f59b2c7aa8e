//! Launches: tasks that are started, do nothing, and end.
//!
//! ```text
//! parent  t₀ ─ call ─ … ─ waits ────────────────── joined
//! child                 first instruction: t₁ ─ ends
//! ```
//!
//! The child first reads the clock, into memory that both share. A program that is executed anew
//! cannot do that, so for it only the time until the join is known. The switches are those of
//! parent and children, from getrusage(2); the last switch of a task that ends is not included.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use swtch_core::units::{Nanos, Timestamp};

use super::timed_operation::{TimedOperation, Timing};
use crate::clock;
use crate::error::{Error, checked};
use crate::outcome::SwitchCounts;
use crate::shared::Shared;

mod ballast;
mod calls;

use ballast::Ballast;
use calls::SmallStack;

/// The call that starts a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Launcher {
    /// A thread of the C library, by `std::thread`.
    Thread,
    /// `clone` of a thread on an existing, warm stack: what a thread costs the kernel.
    BareThread,
    /// `fork` of the C library.
    Fork,
    /// `clone3` of a process, without the work that the C library does around a fork.
    Clone3,
    /// `clone` with the flags of `vfork` (`CLONE_VM`, `CLONE_VFORK`). The child has a stack of its
    /// own, since a Rust function cannot return twice.
    Vfork,
    /// `posix_spawn` of the first program `true` in `PATH`.
    PosixSpawn,
}

/// The event at which the time of a launch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchEnd {
    /// The child executes its first instruction.
    FirstInstruction,
    /// The child has ended, and its parent has waited for it.
    Joined,
}

impl Launcher {
    /// All variants, in the order of their declaration.
    pub const ALL: &'static [Self] = &[
        Self::Thread,
        Self::BareThread,
        Self::Fork,
        Self::Clone3,
        Self::Vfork,
        Self::PosixSpawn,
    ];

    /// Prepares launches from this process, which first touches `ballast_mib` MiB of extra memory.
    pub(super) fn timed_operation(
        self,
        until: LaunchEnd,
        ballast_mib: u32,
    ) -> Result<Box<dyn TimedOperation>, Error> {
        if (self, until) == (Self::PosixSpawn, LaunchEnd::FirstInstruction) {
            return Err(Error::Senseless(
                "a program started anew cannot tell when it began; only when it was joined",
            ));
        }
        let stamp = StartStamp(Shared::new()?);
        let launch: Launching = match self {
            Self::Thread => Box::new(calls::run_std_thread),
            Self::BareThread => {
                let (mut stack, alive) = (SmallStack::new(), Shared::new()?);
                Box::new(move |stamp| calls::run_bare_thread(stamp, &mut stack, &alive))
            }
            Self::Fork => Box::new(calls::run_fork),
            Self::Clone3 => Box::new(calls::run_clone3),
            Self::Vfork => {
                let mut stack = SmallStack::new();
                Box::new(move |stamp| calls::run_vfork(stamp, &mut stack))
            }
            Self::PosixSpawn => {
                let program = calls::program_in_path("true")?;
                Box::new(move |_| calls::run_posix_spawn(&program))
            }
        };
        Ok(Box::new(Launch {
            launch,
            stamp,
            until,
            _ballast: Ballast::new(ballast_mib)?,
        }))
    }
}

/// Starts a task and waits for its end.
type Launching = Box<dyn FnMut(&StartStamp) -> Result<(), Error>>;

struct Launch {
    launch: Launching,
    stamp: StartStamp,
    until: LaunchEnd,
    _ballast: Ballast,
}

impl TimedOperation for Launch {
    /// One operation is one launch.
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        (self.launch)(&self.stamp)?;
        let before = switches_of_family()?;
        let mut elapsed = 0;
        for _ in 0..operations {
            elapsed += self.once()?.as_ns();
        }
        Ok(Timing {
            live: None,
            operations,
            counted_over: operations,
            elapsed: Nanos::from_ns(elapsed),
            counted: switches_of_family()?.since(before),
        })
    }
}

impl Launch {
    fn once(&mut self) -> Result<Nanos, Error> {
        let start = clock::raw();
        (self.launch)(&self.stamp)?;
        let end = match self.until {
            LaunchEnd::FirstInstruction => self.stamp.moment(),
            LaunchEnd::Joined => clock::raw(),
        };
        Ok(end.since(start).unwrap_or_default())
    }
}

/// Memory where the child stores the time of its first instruction.
struct StartStamp(Shared<AtomicU64>);

impl StartStamp {
    /// Stores the current time for the parent.
    fn record(&self) {
        self.0.store(clock::raw().as_ns(), Ordering::Release);
    }

    fn moment(&self) -> Timestamp {
        Timestamp::from_ns(self.0.load(Ordering::Acquire))
    }
}

/// Switches of all threads of this process, dead or alive, and of all children that were waited
/// for.
fn switches_of_family() -> Result<SwitchCounts, Error> {
    Ok(switches_of(libc::RUSAGE_SELF)?.plus(switches_of(libc::RUSAGE_CHILDREN)?))
}

fn switches_of(who: c_int) -> Result<SwitchCounts, Error> {
    // SAFETY: an all-zero rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is ours to be written to.
    checked("getrusage", unsafe { libc::getrusage(who, &mut usage) })?;
    Ok(SwitchCounts {
        voluntary: usage.ru_nvcsw.unsigned_abs(),
        involuntary: usage.ru_nivcsw.unsigned_abs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_of(how: Launcher, until: LaunchEnd) -> Nanos {
        let mut launch = how.timed_operation(until, 1).unwrap();
        let timing = launch.block(3).unwrap();
        assert_eq!(timing.operations, 3);
        timing.elapsed
    }

    #[test]
    fn every_launcher_starts_a_task_that_is_joined() {
        for how in Launcher::ALL {
            assert!(
                time_of(*how, LaunchEnd::Joined) > Nanos::from_ns(0),
                "{how:?}"
            );
        }
    }

    /// The time lies between the call and the join.
    #[test]
    fn first_instruction_is_told_by_the_child() {
        for how in Launcher::ALL {
            if *how != Launcher::PosixSpawn {
                let told = time_of(*how, LaunchEnd::FirstInstruction);
                let told = told.as_ns();
                assert!((1..1_000_000_000).contains(&told), "{how:?} {told}");
            }
        }
    }

    #[test]
    fn program_cannot_tell_when_it_began() {
        let refused = Launcher::PosixSpawn.timed_operation(LaunchEnd::FirstInstruction, 0);
        assert!(matches!(refused.err(), Some(Error::Senseless(_))));
    }
}

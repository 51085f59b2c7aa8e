//! Everything that can be timed, as plain data, and how a leader's timed operations are made of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::coroutine::Coroutine;
use super::goroutine;
use super::launch::{LaunchEnd, Launcher};
use super::ring;
use super::ring_spec::RingSpec;
use super::timed_operation::TimedOperation;
use super::uncontended::Uncontended;
use super::yardstick::Yardstick;
use crate::error::Error;

/// One arm: a leader process with one to three timed operations. Their numbers are those of
/// [`super::Sample::timed_operation`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "arm")]
#[non_exhaustive]
pub enum ArmSpec {
    /// Tasks that hand a turn round. Number 0 is the ring. Number 1 is its hot baseline: the leader
    /// alone makes the same calls on a private object. Number 2, if there is another work, is the
    /// ring with that work.
    Ring(RingSpec),
    /// A lock or channel used by one task alone. A single timed operation.
    Uncontended {
        /// The lock or channel that is used.
        what: Uncontended,
    },
    /// An operation without a switch, to compare with.
    Yardstick {
        /// The operation that is repeated.
        yardstick: Yardstick,
    },
    /// A task that is started and ends immediately. A single timed operation.
    Launch {
        /// The call that starts the task.
        how: Launcher,
        /// The event at which the time ends.
        until: LaunchEnd,
        /// Memory that the parent has touched before, in MiB: a fork copies its page tables.
        ballast_mib: u32,
    },
    /// Switches in user mode. Number 0 is the bare switch, number 1 the switch among other work,
    /// number 2 that work without switches.
    Coroutine {
        /// The implementation of the switch.
        which: Coroutine,
    },
    /// Two goroutines that pass a turn to and fro. A single timed operation; slow to start.
    Goroutine,
}

impl ArmSpec {
    /// Creates the timed operations. Call it in the leader process, which will perform them.
    pub(super) fn timed_operations(&self) -> Result<Vec<Box<dyn TimedOperation>>, Error> {
        match self {
            Self::Ring(spec) => ring::timed_operations(spec),
            Self::Uncontended { what } => Ok(vec![what.timed_operation()?]),
            Self::Yardstick { yardstick } => Ok(vec![yardstick.timed_operation()]),
            Self::Launch {
                how,
                until,
                ballast_mib,
            } => Ok(vec![how.timed_operation(*until, *ballast_mib)?]),
            Self::Coroutine { which } => which.timed_operations(),
            Self::Goroutine => Ok(vec![goroutine::timed_operation()?]),
        }
    }

    /// Generous upper limit for the time that [`Self::timed_operations`] takes.
    pub(super) const fn start_limit(&self) -> Duration {
        match self {
            // A compiler may first have to build its own library.
            Self::Goroutine => Duration::from_secs(180),
            _ => Duration::from_secs(20),
        }
    }

    /// Number of timed operations that the arm has.
    pub fn timed_operation_count(&self) -> usize {
        match self {
            Self::Ring(spec) => 1 + spec.works().count(),
            Self::Uncontended { .. }
            | Self::Yardstick { .. }
            | Self::Launch { .. }
            | Self::Goroutine => 1,
            Self::Coroutine { .. } => Coroutine::TIMED_OPERATIONS,
        }
    }
}

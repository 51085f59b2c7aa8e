//! Everything that can be timed, as plain data, and how a leader's timed operations are made of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use swtch_core::cost::{Members, Place, Policy, Primitive};

use super::act::TimedOperation;
use super::coroutine::Coroutine;
use super::groups::RingCgroups;
use super::launch::{LaunchEnd, Launcher};
use super::lock_ring::{self, LockRingSpec};
use super::mitigation::MitigationSpec;
use super::ring;
use super::runtime::LanguageRuntime;
use super::uncontended::Uncontended;
use super::work::WorkSpec;
use super::yardstick::Yardstick;
use crate::error::Error;

/// One arm: a leader process with one to three timed operations. Their numbers are those of
/// [`super::Sample::act`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "arm")]
#[non_exhaustive]
pub enum ArmSpec {
    /// Tasks that hand a turn round. Number 0 is the ring. Number 1 is its hot baseline: the leader
    /// alone makes the same calls on a private object. Number 2, if there is another work, is the
    /// ring with that work.
    Ring(RingSpec),
    /// Threads in a ring of locks. Number 0 is the ring. Number 1 is its hot baseline: the leader
    /// alone takes and releases a lock.
    LockRing(LockRingSpec),
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
    /// Two tasks of another language's runtime that pass a turn to and fro. A single timed
    /// operation; slow to start.
    Runtime {
        /// The language and its kind of task.
        which: LanguageRuntime,
    },
}

/// A ring of tasks that hand a turn round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RingSpec {
    /// The object by which the turn is handed on.
    pub primitive: Primitive,
    /// Whether the members are threads or processes.
    pub members: Members,
    /// Number of members: two or more.
    pub count: u32,
    /// The scheduling policy of all members.
    pub policy: Policy,
    /// How the CPUs are related. It only labels the ring; [`Self::cpus`] decides where members run.
    pub place: Place,
    /// CPU of the leader, and CPU of all others; `None` leaves all of them free.
    pub cpus: Option<(u32, u32)>,
    /// What each member does while it has the turn.
    pub work: WorkSpec,
    /// Another work that the same members do in blocks of their own (number 2 of the arm). So two
    /// similar works can be compared without the noise of memory placement.
    #[serde(default)]
    pub against: Option<WorkSpec>,
    /// Mitigation that members have requested from the kernel, if any.
    #[serde(default)]
    pub mitigation: Option<MitigationSpec>,
    /// The cgroups that the members are in.
    #[serde(default)]
    pub groups: RingCgroups,
}

impl RingSpec {
    /// A pair on one CPU without any work: the plain switch.
    pub const fn pair(primitive: Primitive, members: Members, policy: Policy, cpu: u32) -> Self {
        Self {
            primitive,
            members,
            count: 2,
            policy,
            place: Place::SameCpu,
            cpus: Some((cpu, cpu)),
            work: WorkSpec::Nothing,
            against: None,
            mitigation: None,
            groups: RingCgroups::Inherited,
        }
    }

    /// The works of the members, one or two.
    pub(super) fn works(&self) -> impl Iterator<Item = WorkSpec> + use<> {
        [Some(self.work), self.against].into_iter().flatten()
    }
}

impl ArmSpec {
    /// Creates the timed operations. Call it in the leader process, which will perform them.
    pub(crate) fn acts(&self) -> Result<Vec<Box<dyn TimedOperation>>, Error> {
        match self {
            Self::Ring(spec) => ring::acts(spec),
            Self::LockRing(spec) => lock_ring::acts(spec),
            Self::Uncontended { what } => Ok(vec![what.act()?]),
            Self::Yardstick { yardstick } => Ok(vec![yardstick.act()]),
            Self::Launch {
                how,
                until,
                ballast_mib,
            } => Ok(vec![how.act(*until, *ballast_mib)?]),
            Self::Coroutine { which } => which.acts(),
            Self::Runtime { which } => Ok(vec![which.act()?]),
        }
    }

    /// Generous upper limit for the time that [`Self::acts`] takes.
    pub(crate) const fn start_limit(&self) -> Duration {
        match self {
            // A compiler may first have to build its own library.
            Self::Runtime { .. } => Duration::from_secs(180),
            _ => Duration::from_secs(20),
        }
    }

    /// Number of timed operations that the arm has.
    pub fn act_count(&self) -> usize {
        match self {
            Self::Ring(spec) => 1 + spec.works().count(),
            Self::LockRing(_) => 2,
            Self::Uncontended { .. }
            | Self::Yardstick { .. }
            | Self::Launch { .. }
            | Self::Runtime { .. } => 1,
            Self::Coroutine { .. } => Coroutine::ACTS,
        }
    }
}

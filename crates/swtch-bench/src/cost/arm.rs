//! What can be timed, as plain data, and how each becomes the acts of a leader.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use swtch_core::cost::{Members, Place, Policy, Primitive};

use super::act::Act;
use super::coroutine::Coroutine;
use super::groups::Groups;
use super::launch::{Launcher, Until};
use super::lock_ring::{self, LockRingSpec};
use super::mitigation::MitigationSpec;
use super::ring;
use super::runtime::Runtime;
use super::uncontended::Uncontended;
use super::work::WorkSpec;
use super::yardstick::Yardstick;
use crate::error::Error;

/// One arm: a leader process with one act or two.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "arm")]
#[non_exhaustive]
pub enum ArmSpec {
    /// Tasks that hand a turn round. Act 0 is the ring, act 1 its hot baseline: the same calls on a
    /// private object, by the leader alone; act 2 is the ring with its other work, if it has one.
    Ring(RingSpec),
    /// Tasks that stand in a ring of locks. Act 0 is the ring, act 1 its hot baseline: a lock taken and
    /// given back by the leader alone.
    LockRing(LockRingSpec),
    /// What tasks meet by, used by one task alone. A single act.
    Uncontended {
        /// What.
        what: Uncontended,
    },
    /// An operation without a switch, to compare with.
    Yardstick {
        /// Which one.
        yardstick: Yardstick,
    },
    /// A task that is started and ends at once. A single act.
    Launch {
        /// By which call.
        how: Launcher,
        /// What ends the time.
        until: Until,
        /// Memory that the parent has touched before, in MiB: a fork copies its page tables.
        ballast_mib: u32,
    },
    /// Switches in user mode. Act 0 is bare, act 1 in situ, act 2 the work of act 1 without them.
    Coroutine {
        /// Whose.
        which: Coroutine,
    },
    /// Tasks of another language's runtime that hand a turn to and fro; a single act. Slow to start.
    Runtime {
        /// Which one.
        which: Runtime,
    },
}

/// A ring of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RingSpec {
    /// With what the turn is handed on.
    pub primitive: Primitive,
    /// Threads or processes.
    pub members: Members,
    /// How many.
    pub count: u32,
    /// The scheduling policy of all members.
    pub policy: Policy,
    /// What the CPUs have to do with one another. Only a name here; [`Self::cpus`] decides.
    pub place: Place,
    /// CPU of the leader and of all others; `None` leaves them free.
    pub cpus: Option<(u32, u32)>,
    /// What each member does when it has the turn.
    pub work: WorkSpec,
    /// Another work that the same members do in blocks of their own (act 2): works that differ by
    /// little are compared without the noise of where memory lies.
    #[serde(default)]
    pub against: Option<WorkSpec>,
    /// What members have asked the kernel to protect them from.
    #[serde(default)]
    pub mitigation: Option<MitigationSpec>,
    /// In which cgroups they are.
    #[serde(default)]
    pub groups: Groups,
}

impl RingSpec {
    /// A pair on one CPU that works nothing: the plain switch.
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
            groups: Groups::Inherited,
        }
    }

    /// Its works, one or two.
    pub(super) fn works(&self) -> impl Iterator<Item = WorkSpec> + use<> {
        [Some(self.work), self.against].into_iter().flatten()
    }
}

impl ArmSpec {
    /// The acts, made in the leader that will do them.
    pub(crate) fn acts(&self) -> Result<Vec<Box<dyn Act>>, Error> {
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

    /// How long it may take until the acts are made, by far.
    pub(crate) const fn start_limit(&self) -> Duration {
        match self {
            // A compiler may have to build its own library first.
            Self::Runtime { .. } => Duration::from_secs(180),
            _ => Duration::from_secs(20),
        }
    }

    /// How many acts it has.
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

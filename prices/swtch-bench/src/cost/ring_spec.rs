//! A ring as plain data: its members, how they hand the turn on, where they run, and their work.

use serde::{Deserialize, Serialize};
use swtch_core::cost::{Members, Place, Policy, Primitive};

use super::groups::RingCgroups;
use super::mitigation::MitigationSpec;
use super::work::WorkSpec;

/// A ring of tasks that hand a turn round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RingSpec {
    /// The object by which the turn is handed on.
    pub primitive: Primitive,
    /// Says whether the members are threads or processes.
    pub members: Members,
    /// Number of members: two or more.
    pub count: u32,
    /// The scheduling policy of all members.
    pub policy: Policy,
    /// The relation of the CPUs. It only labels the ring; [`Self::cpus`] decides where members run.
    pub place: Place,
    /// CPU of the leader, and CPU of all others; `None` leaves all of them free.
    pub cpus: Option<(u32, u32)>,
    /// The work of each member while it has the turn.
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

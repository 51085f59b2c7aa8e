//! A ring of tasks that hand a turn round, and its hot baseline.
//!
//! ```text
//! leader ──turn──▶ peer 1 ──turn──▶ peer 2 ──turn──▶ leader …       one lap = `count` hops
//!
//!         start    warm laps   counted and timed laps   cool laps    done
//! leader  ──┤ pass, take … ├─R₀─t₀── pass, take … ──t₁─R₁┤ … ├──────wait
//! peer      ┤ take, pass … ├─R₀───── take, pass … ─────R₁┤ … ├─ done
//! ```
//!
//! Every member reads its own counters (`getrusage(RUSAGE_THREAD)`, R₀ and R₁) around the same
//! number of laps, so that the sum of their switches belongs to exactly the timed hops. Start and
//! end are signalled over separate futex words: the primitive carries nothing but the turn.
//!
//! A ring may have two works, each in blocks of its own: the same members and memory, and only the
//! work differs. Two identical rings differ by about 1 % because of memory placement; two identical
//! works of one ring do not.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::control_block::ControlBlock;
use super::follower::Follower;
use super::groups::CgroupFiles;
use super::placement::adopt_cpu_and_policy;
use super::relay::{Relay, relay};
use super::ring_spec::RingSpec;
use super::timed_operation::{TimedOperation, Timing, timed};
use super::work::{LiveRegisters, SharedWorkMemory, Work, WorkSpec};
use crate::clock;
use crate::error::Error;
use crate::outcome::SwitchCounts;
use crate::workers::own_switches;

/// The ring, its hot baseline, and the ring with its other work if there is one.
pub(super) fn timed_operations(spec: &RingSpec) -> Result<Vec<Box<dyn TimedOperation>>, Error> {
    let resources = RingResources::make(spec)?;
    resources.take_place(spec, 0)?;
    let alone = RingBaseline {
        relay: Arc::clone(&resources.relay),
        work: spec.work.prepare(0, &resources.shared[0])?,
    };
    let ring = Rc::new(RefCell::new(RunningRing::start(spec, resources)?));
    let with = |work| RingWith {
        ring: Rc::clone(&ring),
        work,
    };
    let mut operations: Vec<Box<dyn TimedOperation>> = vec![Box::new(with(0)), Box::new(alone)];
    if spec.against.is_some() {
        operations.push(Box::new(with(1)));
    }
    Ok(operations)
}

/// The resources that the leader creates before any peer starts, and shares with all of them.
#[derive(Clone)]
struct RingResources {
    relay: Arc<dyn Relay>,
    /// One for each peer, the first of which is member 1.
    controls: Arc<Vec<PeerControl>>,
    cgroup_files: CgroupFiles,
    /// The memory that members share, one entry for each work.
    shared: Vec<SharedWorkMemory>,
}

impl RingResources {
    fn make(spec: &RingSpec) -> Result<Self, Error> {
        let controls = (1..spec.count).map(|_| PeerControl::new());
        Ok(Self {
            relay: relay(spec)?,
            controls: Arc::new(controls.collect::<Result<_, _>>()?),
            cgroup_files: spec.groups.open(spec.members)?,
            shared: spec
                .works()
                .map(WorkSpec::prepare_shared)
                .collect::<Result<_, _>>()?,
        })
    }

    /// The works of the calling member.
    fn prepare(&self, spec: &RingSpec, member: usize) -> Result<Vec<Box<dyn Work>>, Error> {
        let works = spec.works().zip(&self.shared);
        works
            .map(|(work, shared)| work.prepare(member, shared))
            .collect()
    }

    /// Moves the calling member to its cgroup and CPU, and sets mitigation and policy.
    fn take_place(&self, spec: &RingSpec, member: usize) -> Result<(), Error> {
        self.cgroup_files.enter(member)?;
        if let Some(mitigation) = spec.mitigation {
            mitigation.apply(member)?;
        }
        adopt_cpu_and_policy(spec, member)
    }
}

/// Untimed laps before the timed ones. Two suffice for a pair with a small working set. Longer
/// blocks get more, so that a larger working set is warm again after the other arms used the
/// caches.
const fn warm_laps(laps: u64) -> u64 {
    2 + laps / 16
}

/// Interval between checks that a peer that starts is still alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Laps after the counted ones, so that no member is alone during the last of them: a lone
/// `sched_yield` does not switch.
const COOL_LAPS: u64 = 4;

/// The block that the leader and a peer share: the order is the laps of a block and the index of its work, the result
/// what the peer counted over the timed laps, voluntary and involuntary switches and live registers.
type PeerControl = ControlBlock<2, 4>;

/// A ring whose peers have started, as its leader holds it. Dropping it ends the peers and waits
/// for them.
struct RunningRing {
    resources: RingResources,
    peers: Vec<Follower>,
    works: Vec<Box<dyn Work>>,
}

/// Blocks of a ring with one of its works.
struct RingWith {
    ring: Rc<RefCell<RunningRing>>,
    work: usize,
}

impl TimedOperation for RingWith {
    /// One operation is one hop.
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        self.ring.borrow_mut().block(self.work, operations)
    }
}

impl RunningRing {
    fn start(spec: &RingSpec, resources: RingResources) -> Result<Self, Error> {
        let mut ring = Self {
            peers: Vec::new(),
            works: resources.prepare(spec, 0)?,
            resources,
        };
        for me in 1..spec.count as usize {
            let (spec, resources) = (spec.clone(), ring.resources.clone());
            let members = spec.members;
            let follow = move || {
                resources.take_place(&spec, me)?;
                let works = resources.prepare(&spec, me)?;
                resources.relay.enter(me)?;
                follow(me, works, &*resources.relay, &resources.controls[me - 1])
            };
            ring.peers.push(Follower::start(members, follow)?);
        }
        ring.resources.relay.enter(0)?;
        ring.await_peers()?;
        Ok(ring)
    }

    /// Waits until all peers are ready. A peer that fails meanwhile has already reported why.
    fn await_peers(&mut self) -> Result<(), Error> {
        for (control, peer) in self.resources.controls.iter().zip(&mut self.peers) {
            let check = || peer.check();
            control.wait_for_result_and_check(CHECK_INTERVAL, Duration::MAX, check)?;
        }
        Ok(())
    }

    fn lead(&mut self, work: usize, laps: u64) -> Result<(), Error> {
        let work = &mut *self.works[work];
        for _ in 0..laps {
            self.resources.relay.lead(work)?;
        }
        Ok(())
    }

    /// Waits until the peers are done, and adds what they counted and saw to the leader's values.
    fn with_peers(
        &self,
        leader: (SwitchCounts, Option<LiveRegisters>),
    ) -> Result<(SwitchCounts, Option<LiveRegisters>), Error> {
        let mut controls = self.resources.controls.iter();
        controls.try_fold(leader, |(counted, live), control| {
            let [voluntary, involuntary, seen @ ..] = control.wait_for_result()?;
            let of_peer = SwitchCounts {
                voluntary,
                involuntary,
            };
            let seen = LiveRegisters::from_pair(seen);
            Ok((counted.plus(of_peer), LiveRegisters::of_both(live, seen)))
        })
    }

    fn block(&mut self, work: usize, operations: u64) -> Result<Timing, Error> {
        let laps = self.laps_of(operations);
        let mut controls = self.resources.controls.iter();
        controls.try_for_each(|control| control.order([laps, work as u64]))?;
        self.lead(work, warm_laps(laps))?;
        self.works[work].take_live();
        let before = own_switches()?;
        let start = clock::raw();
        self.lead(work, laps)?;
        let end = clock::raw();
        let own = (own_switches()?.since(before), self.works[work].take_live());
        self.lead(work, COOL_LAPS)?;
        let (counted, live) = self.with_peers(own)?;
        let operations = laps * self.members();
        Ok(Timing {
            operations,
            counted_over: operations,
            elapsed: end.since(start).unwrap_or_default(),
            counted,
            live,
        })
    }

    const fn members(&self) -> u64 {
        self.peers.len() as u64 + 1
    }

    fn laps_of(&self, operations: u64) -> u64 {
        (operations / self.members()).max(1)
    }
}

/// The loop of a peer until it is asked to end.
fn follow(
    me: usize,
    mut works: Vec<Box<dyn Work>>,
    relay: &dyn Relay,
    control: &PeerControl,
) -> Result<(), Error> {
    let follow =
        |laps: u64, work: &mut dyn Work| (0..laps).try_for_each(|_| relay.follow(me, work));
    control.serve([0; 4], |[laps, work]| {
        let work = usize::try_from(work).expect("invariant: the leader counts works in usize");
        let work = &mut *works[work];
        follow(warm_laps(laps), work)?;
        work.take_live();
        let before = own_switches()?;
        follow(laps, work)?;
        let counted = own_switches()?.since(before);
        let [always, ever] = LiveRegisters::to_pair(work.take_live());
        follow(COOL_LAPS, work)?;
        Ok([counted.voluntary, counted.involuntary, always, ever])
    })
}

impl Drop for RunningRing {
    fn drop(&mut self) {
        let mut controls = self.resources.controls.iter();
        let ended = controls.try_for_each(ControlBlock::ask_to_end);
        let ended = ended.and_then(|()| self.peers.iter_mut().try_for_each(Follower::finish));
        debug_assert!(
            ended.is_ok(),
            "invariant: peers that wait can be asked to end"
        );
    }
}

/// The calls and the work of a hop, done by the leader alone.
struct RingBaseline {
    relay: Arc<dyn Relay>,
    work: Box<dyn Work>,
}

impl TimedOperation for RingBaseline {
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        let mut repeat = |times: u64| {
            (0..times).try_for_each(|_| {
                self.relay.hand_over_alone()?;
                self.work.run();
                Ok(())
            })
        };
        repeat(warm_laps(operations))?;
        timed(operations, || repeat(operations))
    }
}

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
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use swtch_core::cost::{Members, Policy};

use super::act::{TimedOperation, Timing, timed};
use super::arm::RingSpec;
use super::groups::CgroupFiles;
use super::leader;
use super::relay::{Relay, relay};
use super::work::{LiveRegisters, SharedWorkMemory, Work, WorkSpec};
use crate::error::Error;
use crate::outcome::SwitchCounts;
use crate::process::ForkedChild;
use crate::shared::Shared;
use crate::token::{SharedFutex, Token};
use crate::workers::own_switches;
use crate::{clock, cpu};

/// The ring, its hot baseline, and the ring with its other work if there is one.
pub(super) fn acts(spec: &RingSpec) -> Result<Vec<Box<dyn TimedOperation>>, Error> {
    let setting = RingResources::make(spec)?;
    setting.take_place(spec, 0)?;
    let alone = RingBaseline {
        relay: Arc::clone(&setting.relay),
        work: spec.work.prepare(0, &setting.common[0])?,
    };
    let ring = Rc::new(RefCell::new(RunningRing::start(spec, setting)?));
    let doing = |work| RingWith {
        ring: Rc::clone(&ring),
        work,
    };
    let mut acts: Vec<Box<dyn TimedOperation>> = vec![Box::new(doing(0)), Box::new(alone)];
    if spec.against.is_some() {
        acts.push(Box::new(doing(1)));
    }
    Ok(acts)
}

/// What the leader creates before any peer starts, and shares with all of them.
#[derive(Clone)]
struct RingResources {
    relay: Arc<dyn Relay>,
    control: Arc<RingControl>,
    cgroup_files: CgroupFiles,
    /// The memory that members share, one entry for each work.
    common: Vec<SharedWorkMemory>,
}

impl RingResources {
    fn make(spec: &RingSpec) -> Result<Self, Error> {
        Ok(Self {
            relay: relay(spec)?,
            control: Arc::new(RingControl::new(spec.count)?),
            cgroup_files: spec.groups.open(spec.members)?,
            common: spec
                .works()
                .map(WorkSpec::prepare_common)
                .collect::<Result<_, _>>()?,
        })
    }

    /// The works of the calling member.
    fn prepare(&self, spec: &RingSpec, member: usize) -> Result<Vec<Box<dyn Work>>, Error> {
        let works = spec.works().zip(&self.common);
        works
            .map(|(work, common)| work.prepare(member, common))
            .collect()
    }

    /// Moves the calling member to its cgroup and CPU, and sets mitigation and policy.
    fn take_place(&self, spec: &RingSpec, member: usize) -> Result<(), Error> {
        self.cgroup_files.enter(member)?;
        if let Some(mitigation) = spec.mitigation {
            mitigation.apply(member)?;
        }
        take_cpu(spec, member)
    }
}

/// Sets CPU and policy of the calling member.
pub(super) fn take_cpu(spec: &RingSpec, member: usize) -> Result<(), Error> {
    match spec.cpus {
        Some((leader, _)) if member == 0 => cpu::move_to(0, leader as usize)?,
        Some((_, others)) => cpu::move_to(0, others as usize)?,
        None => cpu::move_to_all()?,
    }
    adopt(spec.policy)
}

/// Makes `policy` the policy of the calling thread.
pub(super) fn adopt(policy: Policy) -> Result<(), Error> {
    match policy {
        Policy::Default => cpu::Policy::Other,
        Policy::Batch => cpu::Policy::Batch,
        Policy::Fifo => {
            cpu::bound_real_time(cpu::LONGEST_REAL_TIME_RUN)?;
            cpu::Policy::Fifo
        }
    }
    .adopt()
}

/// Untimed laps before the timed ones. Two suffice for a pair with a small working set. Longer
/// blocks get more, so that a larger working set is warm again after the other arms used the
/// caches.
const fn warm_laps(laps: u64) -> u64 {
    2 + laps / 16
}

/// Interval between checks that an awaited peer is still alive.
const LOOK: Duration = Duration::from_millis(20);

/// How long a peer may take to end after it was asked to.
const LIMIT: Duration = Duration::from_secs(2);

/// Laps after the counted ones, so that no member is alone during the last of them: a lone
/// `sched_yield` does not switch.
const COOL_LAPS: u64 = 4;

/// Shared memory through which the leader and its peers exchange orders and results.
struct RingControl {
    /// Laps of the next block; 0 asks the peers to end.
    laps: Shared<AtomicU64>,
    /// Index of the work of the next block.
    work: Shared<AtomicUsize>,
    /// One token per peer: it may start.
    start: Vec<SharedFutex>,
    /// One token per peer: it is ready for the first block, or has finished all laps.
    done: Vec<SharedFutex>,
    /// Per peer, over the timed laps: voluntary and involuntary switches, and live registers.
    counted: Vec<Shared<[AtomicU64; 4]>>,
}

impl RingControl {
    fn new(count: u32) -> Result<Self, Error> {
        let words = || {
            (0..count)
                .map(|_| SharedFutex::new())
                .collect::<Result<_, _>>()
        };
        Ok(Self {
            laps: Shared::new()?,
            work: Shared::new()?,
            start: words()?,
            done: words()?,
            counted: (0..count)
                .map(|_| Shared::new())
                .collect::<Result<_, _>>()?,
        })
    }
}

/// A ring whose peers have started, as its leader holds it. Dropping it ends the peers and waits
/// for them.
struct RunningRing {
    setting: RingResources,
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
    fn start(spec: &RingSpec, setting: RingResources) -> Result<Self, Error> {
        let mut ring = Self {
            peers: Vec::new(),
            works: setting.prepare(spec, 0)?,
            setting,
        };
        for me in 1..spec.count as usize {
            let (spec, setting) = (spec.clone(), ring.setting.clone());
            let members = spec.members;
            let follow = move || {
                setting.take_place(&spec, me)?;
                let works = setting.prepare(&spec, me)?;
                setting.relay.enter(me)?;
                follow(me, works, &*setting.relay, &setting.control)
            };
            ring.peers.push(Follower::start(members, follow)?);
        }
        ring.setting.relay.enter(0)?;
        ring.await_peers()?;
        Ok(ring)
    }

    /// Waits until all peers are ready. A peer that fails meanwhile has already reported why.
    fn await_peers(&mut self) -> Result<(), Error> {
        let ready = self.setting.control.done.iter().skip(1);
        for (ready, peer) in ready.zip(&mut self.peers) {
            while !ready.take_within(LOOK)? {
                peer.check()?;
            }
        }
        Ok(())
    }

    fn lead(&mut self, work: usize, laps: u64) -> Result<(), Error> {
        let work = &mut *self.works[work];
        for _ in 0..laps {
            self.setting.relay.lead(work)?;
        }
        Ok(())
    }

    /// Starts a block in all peers, or asks them to end when `laps` is 0.
    fn start_peers(&self, laps: u64) -> Result<(), Error> {
        self.setting.control.laps.store(laps, Ordering::Release);
        self.setting
            .control
            .start
            .iter()
            .skip(1)
            .try_for_each(Token::pass)
    }

    /// Adds what the peers counted and saw to the leader's values.
    fn with_peers(
        &self,
        leader: (SwitchCounts, Option<LiveRegisters>),
    ) -> (SwitchCounts, Option<LiveRegisters>) {
        let peers = self.setting.control.counted.iter().skip(1);
        peers.fold(leader, |(counted, live), peer| {
            let [voluntary, involuntary, seen @ ..] =
                peer.each_ref().map(|slot| slot.load(Ordering::Acquire));
            let of_peer = SwitchCounts {
                voluntary,
                involuntary,
            };
            let seen = LiveRegisters::from_pair(seen);
            (counted.plus(of_peer), LiveRegisters::of_both(live, seen))
        })
    }
}

impl RunningRing {
    fn block(&mut self, work: usize, operations: u64) -> Result<Timing, Error> {
        let laps = self.laps_of(operations);
        self.setting.control.work.store(work, Ordering::Release);
        self.start_peers(laps)?;
        self.lead(work, warm_laps(laps))?;
        self.works[work].take_live();
        let before = own_switches()?;
        let start = clock::raw();
        self.lead(work, laps)?;
        let end = clock::raw();
        let own = (own_switches()?.since(before), self.works[work].take_live());
        self.lead(work, COOL_LAPS)?;
        let done = &self.setting.control.done;
        done.iter().skip(1).try_for_each(Token::take)?;
        let (counted, live) = self.with_peers(own);
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
    control: &RingControl,
) -> Result<(), Error> {
    let follow =
        |laps: u64, work: &mut dyn Work| (0..laps).try_for_each(|_| relay.follow(me, work));
    loop {
        control.done[me].pass()?;
        control.start[me].take()?;
        let laps = control.laps.load(Ordering::Acquire);
        if laps == 0 {
            return Ok(());
        }
        let work = &mut *works[control.work.load(Ordering::Acquire)];
        follow(warm_laps(laps), work)?;
        work.take_live();
        let before = own_switches()?;
        follow(laps, work)?;
        let counted = own_switches()?.since(before);
        let [always, ever] = LiveRegisters::to_pair(work.take_live());
        follow(COOL_LAPS, work)?;
        let left = [counted.voluntary, counted.involuntary, always, ever];
        for (slot, value) in control.counted[me].iter().zip(left) {
            slot.store(value, Ordering::Release);
        }
    }
}

/// A peer: a member that is not the leader.
pub(super) enum Follower {
    Thread(Option<JoinHandle<()>>),
    Process(ForkedChild),
}

impl Follower {
    /// Starts a peer. A peer that fails reports why ([`leader::fail`]) and ends its process, which
    /// for a thread is the leader's: otherwise the other members would wait for it forever.
    pub(super) fn start(
        members: Members,
        follow: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Result<Self, Error> {
        match members {
            Members::Threads => {
                let follow = move || follow().unwrap_or_else(|error| leader::fail(&error));
                let builder = Builder::new().stack_size(256 * 1024);
                let handle = builder.spawn(follow).map_err(Error::calling("clone"))?;
                Ok(Self::Thread(Some(handle)))
            }
            Members::Processes => {
                let follow = || follow().inspect_err(|error| leader::fail(error));
                ForkedChild::fork(follow).map(Self::Process)
            }
        }
    }

    /// Fails if the peer has ended. A thread that fails ends the leader itself.
    fn check(&mut self) -> Result<(), Error> {
        let ended = match self {
            Self::Thread(_) => None,
            Self::Process(child) => child.ended()?,
        };
        ended.map_or(Ok(()), |status| {
            Err(Error::ProcessFailed {
                name: "peer".to_owned(),
                status,
            })
        })
    }

    /// Waits until the peer has ended.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match self {
            Self::Thread(handle) => match handle.take().map(JoinHandle::join) {
                Some(Err(_panic)) => Err(Error::Panicked {
                    name: "peer".to_owned(),
                }),
                _ => Ok(()),
            },
            Self::Process(child) => {
                // A peer that has failed is reaped already, which is no error here.
                child.wait_at_most(LIMIT);
                Ok(())
            }
        }
    }
}

impl Drop for RunningRing {
    fn drop(&mut self) {
        let left = self.start_peers(0);
        let left = left.and_then(|()| self.peers.iter_mut().try_for_each(Follower::finish));
        debug_assert!(left.is_ok(), "invariant: peers that wait can be let go");
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
                self.relay.alone()?;
                self.work.run();
                Ok(())
            })
        };
        repeat(warm_laps(operations))?;
        timed(operations, || repeat(operations))
    }
}

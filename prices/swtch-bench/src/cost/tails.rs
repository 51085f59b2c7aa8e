//! Tails: how long single hops take, rather than how long they take on average.
//!
//! ```text
//! member     … stamp, pass ─┐                       a hop: from the stamp before the turn is
//!                           └─ kernel ─┐            passed to the stamp after it is taken
//! the next                             └ take, stamp, keep the length, stamp, pass …
//! ```
//!
//! Both stamps are readings of `CLOCK_MONOTONIC_RAW` in user mode (vDSO), and one reading is part
//! of every length. The two together cost a few per cent of a hop, so tails are measured in a mode
//! of their own: the blocks of [`super::Plan`] have no clock inside, and their means are never
//! mixed with these lengths. Everything else that happens between the stamps (an interrupt, another
//! task, a hypervisor that took the CPU) is in the length too; that is what tails consist of.
//!
//! The stamps are a [`Work`] of the members, so every primitive that passes a turn can be measured.
//! Lengths go to shared memory, one word per hop; the caller reads them between blocks, into a
//! [`Distribution`] per member.

use std::io::{ErrorKind, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use swtch_core::Distribution;
use swtch_core::cost::Primitive;
use swtch_core::units::{Nanos, Timestamp};

use super::control_block::ControlBlock;
use super::follower::Follower;
use super::message;
use super::placement::adopt_cpu_and_policy;
use super::relay::{Relay, relay};
use super::ring_spec::RingSpec;
use super::work::Work;
use crate::clock;
use crate::error::Error;
use crate::process::ForkedChild;
use crate::shared::Shared;

/// Most laps of a block. Those of a pair take 4 s when each hop waits for a tick (4 ms) behind
/// another task, and 1 ms when none does.
const LAPS: usize = 512;

/// Kept laps of the first block. Each later block has twice or half as many as the one before, so
/// that a block takes about [`BLOCK`].
const FIRST_LAPS: usize = 64;

/// Approximate length of a block. Even a ring whose members each wait for a tick behind other tasks
/// (4 ms a hop) must soon notice a request to stop.
const BLOCK: Duration = Duration::from_millis(50);

/// No new block begins after this time, so a busy machine yields fewer hops.
const MOST_TIME: Duration = Duration::from_secs(2);

/// First laps of a block, not kept: other tasks used caches and predictors before.
const WARM_LAPS: usize = 16;

/// Last laps of a block, not kept: some members have finished already.
const COOL_LAPS: usize = 4;

/// Pairs of clock readings whose median is the cost of one reading.
const CLOCK_READS: usize = 1001;

/// Interval between checks of a block that is not done.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Far longer than any block takes; a ring that exceeds it is stuck.
const LIMIT: Duration = Duration::from_secs(20);

/// Marks a hop without a length: the stamp at its end is earlier than the one at its start, because
/// the clocks of two CPUs disagree.
const BACKWARDS: u64 = u64::MAX;

/// Lengths of single hops, for each member of a ring.
#[derive(Clone, Debug, Default)]
pub struct Tails {
    by_member: Vec<Distribution>,
    clock: Nanos,
    backwards: u64,
}

impl Tails {
    /// For each member, the leader first: the lengths of the hops that ended at it.
    pub fn by_member(&self) -> &[Distribution] {
        &self.by_member
    }

    /// The hops of all members together.
    pub fn all(&self) -> Distribution {
        let mut all = Distribution::default();
        self.by_member.iter().for_each(|one| all.merge(one));
        all
    }

    /// Cost of one clock reading: the median of pairs of readings back to back. Each length
    /// includes one reading.
    pub const fn clock(&self) -> Nanos {
        self.clock
    }

    /// Hops without a length, because the clocks of two CPUs disagreed by more than the hop.
    pub const fn backwards(&self) -> u64 {
        self.backwards
    }

    /// Adds the hops of another measurement of the same ring. The cost of a clock reading becomes
    /// that of `other`.
    pub fn merge(&mut self, other: &Self) {
        let members = self.by_member.len().max(other.by_member.len());
        self.by_member.resize_with(members, Distribution::default);
        for (own, others) in self.by_member.iter_mut().zip(&other.by_member) {
            own.merge(others);
        }
        self.clock = other.clock;
        self.backwards += other.backwards;
    }

    fn count(&self) -> u64 {
        let kept: u64 = self.by_member.iter().map(Distribution::count).sum();
        kept + self.backwards
    }

    fn record(&mut self, member: usize, length: u64) {
        if length == BACKWARDS {
            self.backwards += 1;
        } else {
            self.by_member[member].record(Nanos::from_ns(length));
        }
    }
}

/// Measures about `hops` single hops of a ring, in a process tree of its own; fewer if they take
/// more than two seconds. [`RingSpec::work`] is not done, because the members stamp instead, and
/// mitigations and cgroups are not applied.
///
/// Call it in a process that has no other thread. `stop` is checked between blocks; what was
/// measured until then is returned.
///
/// # Errors
///
/// A process cannot be created, a member of the ring fails, or the primitive passes no turn (a ring
/// of locks, `sched_yield`).
pub fn tails(spec: &RingSpec, hops: u64, stop: &AtomicBool) -> Result<Tails, Error> {
    if !passes_a_turn(spec.primitive) {
        return Err(Error::Senseless(
            "there is no turn that one member passes to another, so there are no single hops",
        ));
    }
    let (mut members, clock) = RingMembers::start(spec)?;
    let mut tails = Tails {
        by_member: vec![Distribution::default(); members.memory.lengths.len()],
        clock,
        backwards: 0,
    };
    let start = Instant::now();
    let mut most = FIRST_LAPS;
    while tails.count() < hops && start.elapsed() < MOST_TIME && !stop.load(Ordering::Relaxed) {
        let kept = (hops - tails.count()).div_ceil(u64::from(spec.count));
        let kept = usize::try_from(kept).unwrap_or(LAPS).min(most);
        let before = Instant::now();
        members.block(WARM_LAPS + kept + COOL_LAPS, &mut tails)?;
        most = if before.elapsed() > BLOCK {
            most / 2
        } else {
            most * 2
        };
        most = most.clamp(1, LAPS - WARM_LAPS - COOL_LAPS);
    }
    Ok(tails)
}

/// Returns true if one member passes the turn to another, so that there is a hop between them. Members that take the
/// next lock of a ring, or that yield, do not.
pub const fn passes_a_turn(primitive: Primitive) -> bool {
    !matches!(primitive, Primitive::MutexRing | Primitive::Yield)
}

/// The memory that the caller, the leader and its peers share.
struct TailsMemory {
    /// The caller orders blocks of so many laps. The leader's result is the cost of one clock
    /// reading, in ns.
    leader: ControlBlock<1, 1>,
    /// The leader passes the orders on. There is one for each peer, the first of which is member 1.
    peers: Vec<ControlBlock<1, 0>>,
    /// The stamp taken before the turn was last passed, in ns.
    passed: Shared<AtomicU64>,
    /// For each member, the leader first: lengths in ns of the hops of this block that ended at it,
    /// by lap.
    lengths: Vec<Shared<[AtomicU64; LAPS]>>,
}

impl TailsMemory {
    fn new(count: u32) -> Result<Self, Error> {
        let peers = (1..count).map(|_| ControlBlock::new());
        let lengths = (0..count).map(|_| Shared::new());
        Ok(Self {
            leader: ControlBlock::new()?,
            peers: peers.collect::<Result<_, _>>()?,
            passed: Shared::new()?,
            lengths: lengths.collect::<Result<_, _>>()?,
        })
    }

    fn stamps(&self, member: usize) -> Stamps<'_> {
        Stamps {
            passed: &self.passed,
            lengths: &self.lengths[member],
            lap: 0,
        }
    }
}

/// The work of a member while it has the turn: it reads the clock twice and keeps the length of the
/// hop that has just ended.
struct Stamps<'memory> {
    passed: &'memory AtomicU64,
    lengths: &'memory [AtomicU64; LAPS],
    lap: usize,
}

impl Work for Stamps<'_> {
    fn run(&mut self) {
        let taken = clock::raw();
        let passed = Timestamp::from_ns(self.passed.load(Ordering::Acquire));
        let length = taken.since(passed).map_or(BACKWARDS, Nanos::as_ns);
        self.lengths[self.lap % LAPS].store(length, Ordering::Relaxed);
        self.lap += 1;
        self.passed.store(clock::raw().as_ns(), Ordering::Release);
    }
}

/// The caller's handle of all members of a ring. Dropping it ends them and waits for the leader.
struct RingMembers {
    memory: Arc<TailsMemory>,
    leader: ForkedChild,
    messages: UnixStream,
}

impl RingMembers {
    /// Starts the leader in a process of its own. Returns when all members are ready, with the cost
    /// of one clock reading.
    fn start(spec: &RingSpec) -> Result<(Self, Nanos), Error> {
        let memory = Arc::new(TailsMemory::new(spec.count)?);
        let (messages, to) = UnixStream::pair().map_err(Error::calling("socketpair"))?;
        let unblocked = messages.set_nonblocking(true);
        unblocked.map_err(Error::calling("fcntl"))?;
        let leader = ForkedChild::fork(|| {
            message::set_members_fd(to.as_raw_fd());
            lead(spec, &memory).inspect_err(|error| message::fail(error))
        })?;
        let mut members = Self {
            memory,
            leader,
            messages,
        };
        let [clock_ns] = members.wait_for_result()?;
        Ok((members, Nanos::from_ns(clock_ns)))
    }

    /// Runs a block and keeps its lengths.
    fn block(&mut self, laps: usize, tails: &mut Tails) -> Result<(), Error> {
        self.memory.leader.order([laps as u64])?;
        self.wait_for_result()?;
        for (member, lengths) in self.memory.lengths.iter().enumerate() {
            for length in &lengths[WARM_LAPS..laps - COOL_LAPS] {
                tails.record(member, length.load(Ordering::Acquire));
            }
        }
        Ok(())
    }

    fn wait_for_result(&mut self) -> Result<[u64; 1], Error> {
        let Self {
            memory,
            leader,
            messages,
        } = self;
        let check = || {
            // A member that fails writes the reason before it ends.
            let ended = leader.try_wait()?;
            if let Some(why) = failure(messages) {
                return Err(Error::Member(why));
            }
            ended.map_or(Ok(()), |status| {
                Err(Error::ProcessFailed {
                    name: "leader".to_owned(),
                    status,
                })
            })
        };
        memory
            .leader
            .wait_for_result_and_check(CHECK_INTERVAL, LIMIT, check)
    }
}

/// The reason that a member wrote before it ended ([`message::fail`]); `None` if there is none.
fn failure(messages: &mut UnixStream) -> Option<String> {
    let mut lines = Vec::new();
    match messages.read_to_end(&mut lines) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Some(error.to_string()),
        // What was written so far has been read.
        _ => message::first_failure(&lines),
    }
}

impl Drop for RingMembers {
    fn drop(&mut self) {
        // A leader that is stuck or dead cannot end by itself; dropping `leader` kills it.
        if self.memory.leader.ask_to_end().is_ok() {
            self.leader.wait_at_most(Duration::from_secs(2));
        }
    }
}

/// The leader: starts the peers, and measures blocks until it is asked to end.
fn lead(spec: &RingSpec, memory: &Arc<TailsMemory>) -> Result<(), Error> {
    let relay = relay(spec)?;
    adopt_cpu_and_policy(spec, 0)?;
    let mut peers = start_peers(spec, memory, &relay)?;
    relay.enter(0)?;
    let wait_for_peers = || {
        let mut peers = memory.peers.iter();
        peers.try_for_each(|peer| peer.wait_for_result().map(drop))
    };
    wait_for_peers()?;
    let clock_ns = clock_ns();
    memory.leader.serve([clock_ns], |[laps]| {
        memory
            .peers
            .iter()
            .try_for_each(|peer| peer.order([laps]))?;
        let mut stamps = memory.stamps(0);
        (0..laps).try_for_each(|_| relay.lead(&mut stamps))?;
        wait_for_peers()?;
        Ok([clock_ns])
    })?;
    memory.peers.iter().try_for_each(ControlBlock::ask_to_end)?;
    peers.iter_mut().try_for_each(Follower::finish)
}

/// Starts all peers. Each is ready when it is on its CPU and has entered the relay.
fn start_peers(
    spec: &RingSpec,
    memory: &Arc<TailsMemory>,
    relay: &Arc<dyn Relay>,
) -> Result<Vec<Follower>, Error> {
    let start = |me: usize| {
        let (spec, memory, relay) = (spec.clone(), Arc::clone(memory), Arc::clone(relay));
        Follower::start(spec.members, move || follow(&spec, me, &memory, &*relay))
    };
    (1..memory.lengths.len()).map(start).collect()
}

/// A peer: follows the leader's blocks until it is asked to end.
fn follow(
    spec: &RingSpec,
    me: usize,
    memory: &TailsMemory,
    relay: &dyn Relay,
) -> Result<(), Error> {
    adopt_cpu_and_policy(spec, me)?;
    relay.enter(me)?;
    memory.peers[me - 1].serve([], |[laps]| {
        let mut stamps = memory.stamps(me);
        (0..laps).try_for_each(|_| relay.follow(me, &mut stamps))?;
        Ok([])
    })
}

/// Cost of one clock reading, in ns.
fn clock_ns() -> u64 {
    let mut lengths = [(); CLOCK_READS].map(|()| {
        let first = clock::raw();
        clock::raw().since(first).unwrap_or_default().as_ns()
    });
    lengths.sort_unstable();
    lengths[CLOCK_READS / 2]
}

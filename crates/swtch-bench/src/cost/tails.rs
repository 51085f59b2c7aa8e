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

use super::arm::RingSpec;
use super::leader;
use super::relay::{Relay, relay};
use super::ring::{Follower, take_cpu};
use super::work::Work;
use crate::clock;
use crate::error::Error;
use crate::process::ForkedChild;
use crate::shared::Shared;
use crate::token::{SharedFutex, Token};

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
const LOOK: Duration = Duration::from_millis(250);

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
    let mut workers = RingMembers::start(spec)?;
    let mut tails = Tails {
        by_member: vec![Distribution::default(); workers.control.members.len()],
        clock: Nanos::from_ns(workers.control.clock.load(Ordering::Acquire)),
        backwards: 0,
    };
    let start = Instant::now();
    let mut most = FIRST_LAPS;
    while tails.count() < hops && start.elapsed() < MOST_TIME && !stop.load(Ordering::Relaxed) {
        let kept = (hops - tails.count()).div_ceil(u64::from(spec.count));
        let kept = usize::try_from(kept).unwrap_or(LAPS).min(most);
        let before = Instant::now();
        workers.block(WARM_LAPS + kept + COOL_LAPS, &mut tails)?;
        most = if before.elapsed() > BLOCK {
            most / 2
        } else {
            most * 2
        };
        most = most.clamp(1, LAPS - WARM_LAPS - COOL_LAPS);
    }
    Ok(tails)
}

/// Whether one member passes the turn to another, so that there is a hop between them. Members that
/// take the next lock of a ring, or that yield, do not.
pub const fn passes_a_turn(primitive: Primitive) -> bool {
    !matches!(primitive, Primitive::MutexRing | Primitive::Yield)
}

/// Shared memory through which the caller, the leader and its peers exchange orders and results.
struct TailsControl {
    /// One token: the leader may start a block.
    order: SharedFutex,
    /// Laps of the next block; 0 asks the members to end.
    laps: Shared<AtomicU64>,
    /// One token: all members are ready for the first block, or the block is done.
    done: SharedFutex,
    /// Cost of one clock reading, in ns.
    clock: Shared<AtomicU64>,
    /// The stamp taken before the turn was last passed, in ns.
    passed: Shared<AtomicU64>,
    /// One entry for each member, the leader first.
    members: Vec<MemberSlot>,
}

/// The part of the shared memory that belongs to one member.
struct MemberSlot {
    start: SharedFutex,
    done: SharedFutex,
    /// Lengths in ns of the hops of this block that ended at this member, by lap.
    lengths: Shared<[AtomicU64; LAPS]>,
}

impl TailsControl {
    fn new(count: u32) -> Result<Self, Error> {
        let place = |_| {
            Ok(MemberSlot {
                start: SharedFutex::new()?,
                done: SharedFutex::new()?,
                lengths: Shared::new()?,
            })
        };
        Ok(Self {
            order: SharedFutex::new()?,
            laps: Shared::new()?,
            done: SharedFutex::new()?,
            clock: Shared::new()?,
            passed: Shared::new()?,
            members: (0..count).map(place).collect::<Result<_, _>>()?,
        })
    }

    fn peers(&self) -> impl Iterator<Item = &MemberSlot> {
        self.members.iter().skip(1)
    }

    fn laps(&self) -> u64 {
        self.laps.load(Ordering::Acquire)
    }

    fn stamps(&self, member: usize) -> Stamps<'_> {
        Stamps {
            passed: &self.passed,
            lengths: &self.members[member].lengths,
            lap: 0,
        }
    }
}

/// The work of a member while it has the turn: it reads the clock twice and keeps the length of the
/// hop that has just ended.
struct Stamps<'desk> {
    passed: &'desk AtomicU64,
    lengths: &'desk [AtomicU64; LAPS],
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
    control: Arc<TailsControl>,
    leader: ForkedChild,
    complaints: UnixStream,
}

impl RingMembers {
    /// Starts the leader in a process of its own. Returns when all members are ready.
    fn start(spec: &RingSpec) -> Result<Self, Error> {
        let control = Arc::new(TailsControl::new(spec.count)?);
        let (complaints, to) = UnixStream::pair().map_err(Error::calling("socketpair"))?;
        let unblocked = complaints.set_nonblocking(true);
        unblocked.map_err(Error::calling("fcntl"))?;
        let leader = ForkedChild::fork(|| {
            leader::set_error_fd(to.as_raw_fd());
            lead(spec, &control).inspect_err(|error| leader::fail(error))
        })?;
        let mut workers = Self {
            control,
            leader,
            complaints,
        };
        workers.await_done()?;
        Ok(workers)
    }

    /// Runs a block and keeps its lengths.
    fn block(&mut self, laps: usize, tails: &mut Tails) -> Result<(), Error> {
        self.order(laps)?;
        self.await_done()?;
        for (member, place) in self.control.members.iter().enumerate() {
            for length in &place.lengths[WARM_LAPS..laps - COOL_LAPS] {
                tails.record(member, length.load(Ordering::Acquire));
            }
        }
        Ok(())
    }

    fn order(&self, laps: usize) -> Result<(), Error> {
        self.control.laps.store(laps as u64, Ordering::Release);
        self.control.order.pass()
    }

    fn await_done(&mut self) -> Result<(), Error> {
        let mut waited = Duration::ZERO;
        while !self.control.done.take_within(LOOK)? {
            waited += LOOK;
            // A member that fails writes the reason before it ends.
            let ended = self.leader.ended()?;
            if let Some(why) = self.complaint() {
                return Err(Error::Member(why));
            }
            if let Some(status) = ended {
                return Err(Error::ProcessFailed {
                    name: "leader".to_owned(),
                    status,
                });
            }
            if waited >= LIMIT {
                return Err(Error::Stuck { limit: LIMIT });
            }
        }
        Ok(())
    }

    /// The error that a member wrote before it ended ([`leader::fail`]); `None` if there is none.
    fn complaint(&mut self) -> Option<String> {
        let mut words = [0; 1024];
        match self.complaints.read(&mut words) {
            Ok(0) => None,
            Ok(length) => {
                let words = String::from_utf8_lossy(&words[..length]);
                let line = words.lines().next().unwrap_or_default();
                Some(line.strip_prefix("failed ").unwrap_or(line).to_owned())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => Some(error.to_string()),
        }
    }
}

impl Drop for RingMembers {
    fn drop(&mut self) {
        // A leader that is stuck or dead cannot end by itself; dropping `leader` kills it.
        if self.order(0).is_ok() {
            self.leader.wait_at_most(Duration::from_secs(2));
        }
    }
}

/// The loop of the leader until it is asked to end.
fn lead(spec: &RingSpec, control: &Arc<TailsControl>) -> Result<(), Error> {
    let relay = relay(spec)?;
    take_cpu(spec, 0)?;
    let mut peers = start_peers(spec, control, &relay)?;
    relay.enter(0)?;
    control.peers().try_for_each(|peer| peer.done.take())?;
    control.clock.store(clock_ns(), Ordering::Release);
    loop {
        control.done.pass()?;
        control.order.take()?;
        control.peers().try_for_each(|peer| peer.start.pass())?;
        let laps = control.laps();
        if laps == 0 {
            return peers.iter_mut().try_for_each(Follower::finish);
        }
        let mut stamps = control.stamps(0);
        (0..laps).try_for_each(|_| relay.lead(&mut stamps))?;
        control.peers().try_for_each(|peer| peer.done.take())?;
    }
}

/// Starts all peers. Each passes `done` when it is on its CPU and has entered the relay.
fn start_peers(
    spec: &RingSpec,
    control: &Arc<TailsControl>,
    relay: &Arc<dyn Relay>,
) -> Result<Vec<Follower>, Error> {
    let start = |me: usize| {
        let (spec, control, relay) = (spec.clone(), Arc::clone(control), Arc::clone(relay));
        Follower::start(spec.members, move || follow(&spec, me, &control, &*relay))
    };
    (1..control.members.len()).map(start).collect()
}

/// The loop of a peer until it is asked to end.
fn follow(
    spec: &RingSpec,
    me: usize,
    control: &TailsControl,
    relay: &dyn Relay,
) -> Result<(), Error> {
    take_cpu(spec, me)?;
    relay.enter(me)?;
    let place = &control.members[me];
    loop {
        place.done.pass()?;
        place.start.take()?;
        let laps = control.laps();
        if laps == 0 {
            return Ok(());
        }
        let mut stamps = control.stamps(me);
        (0..laps).try_for_each(|_| relay.follow(me, &mut stamps))?;
    }
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

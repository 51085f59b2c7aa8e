//! Threads in a ring of locks, each of which holds one, takes the next and gives the last one back
//! (E. Bradford, "Runtime: Context switching", 2002).
//!
//! ```text
//!  locks     0   1   2   3   4   5        4 threads, 2 spare locks: thread i holds lock i, the leader is
//!  threads  (0) (1) (2) (L)  ·   ·        the last; it takes 4 and 5, then waits for 0
//!            0   1   2   ─▶  ─▶  L        and has let thread 2 go on, which takes 3 and 4, and so on
//! ```
//!
//! A **hand-over** is one move: the next lock taken, the last one given back. Each lock has at most one
//! thread that waits for it, the one behind, so the order is fixed by construction. A thread that keeps
//! the CPU until it blocks moves as often as there are spare locks and then blocks: a **turn**. So with k
//! spare locks the kernel switches 1/k times per hand-over, where who is woken does not preempt its waker
//! (`SCHED_BATCH` on one CPU). When every thread has had a turn, that is a **lap**.
//!
//! ```text
//!           start      one turn      warm turns     timed turns     done
//! leader  ──┤ R ─ turn ─ R₀ ─ turn, turn … ─ t₀ ─ turn, turn … ─ t₁ ─ R₁ ┤ waits
//! others    ┤ R ─ turn ─ R₀ ─ turn, turn … ────── turn, turn … ────── R₁ ┤ the last one tells
//! ```
//!
//! All make the same number of moves between R₀ and R₁ (`getrusage(RUSAGE_THREAD)`): their switches are
//! those of exactly these moves, which are the timed ones and the warm ones. Each thread reads R₀ before
//! the leader's t₀ and R₁ after its t₁, so that reading a thousand counters is not in the time. On one
//! CPU the others have made exactly as many moves as the leader between t₀ and t₁, each its turns after
//! the leader's. On several CPUs a thread may be up to k moves ahead of another: there the number of
//! timed moves may be off by one lap.
//!
//! Who is preempted within a turn (the kernel counts it) makes two turns of it, and from then on two
//! threads can move, until the block ends: with several spare locks one preemption spoils all that comes
//! after it, and blocks must be short. So where nobody should be preempted, involuntary switches are
//! counted from the start of the block (R), and a block that has any says nothing about such a ring.
//!
//! What it does *not* do: start processes. The order is watched in runs of their own ([`observe`]).

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use swtch_core::cost::{Members, Policy};

use super::act::{Act, Timing, timed};
use super::lock::{BareWord, ConditionLock, LibraryMutex, Lock, LockKind};
use super::ring::{self, Peer};
use crate::cast::own_switches;
use crate::error::Error;
use crate::outcome::Counted;
use crate::token::{Futex, Token, private_wait_while, private_wake};
use crate::{clock, cpu};

mod observed;
mod order;

pub use observed::{Observed, observe};
pub use order::{HandOver, Violation, order_violation};

/// Threads in a ring of locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockRingSpec {
    /// How the locks are built.
    pub lock: LockKind,
    /// Threads: two or more.
    pub count: u32,
    /// Locks beyond one a thread: one or more.
    pub spare: u32,
    /// The scheduling policy of all threads.
    pub policy: Policy,
    /// The CPU of all threads; `None` leaves them free.
    pub cpu: Option<u32>,
}

impl LockRingSpec {
    /// Locks in the ring.
    pub const fn locks(&self) -> u64 {
        self.count as u64 + self.spare as u64
    }

    /// Whether a turn is one switch by construction: on one CPU, where who is woken does not preempt.
    pub fn is_exact(&self) -> bool {
        self.policy != Policy::Default && self.cpu.is_some()
    }

    /// Moves of a lap.
    const fn lap(&self) -> u64 {
        self.count as u64 * self.spare as u64
    }

    fn check(&self) -> Result<(), Error> {
        match (self.count, self.spare) {
            (0 | 1, _) => Err(Error::Senseless("a ring of locks has two threads or more")),
            (_, 0) => Err(Error::Senseless(
                "without a spare lock nobody in the ring can move: give one or more",
            )),
            _ => self.check_maps(),
        }
    }

    /// Refuses more threads than there can be memory maps for: one that finds none for its signals ends the
    /// process.
    fn check_maps(&self) -> Result<(), Error> {
        /// A stack, another for signals (Rust's own), and a guard page below each.
        const MAPS_OF_A_THREAD: u64 = 4;
        let path = "/proc/sys/vm/max_map_count";
        let needed = u64::from(self.count) * MAPS_OF_A_THREAD;
        // Where the file cannot be read, the kernel says no by itself.
        let allowed = fs::read_to_string(path).ok();
        let allowed = allowed.and_then(|text| text.trim().parse::<u64>().ok());
        match allowed {
            Some(allowed) if needed > allowed => Err(Error::NotHere(format!(
                "{} threads take {needed} memory maps, and the kernel allows {allowed} ({path})",
                self.count
            ))),
            _ => Ok(()),
        }
    }

    /// Moves the calling thread where all belong: those that it starts inherit both.
    fn take_place(&self) -> Result<(), Error> {
        match self.cpu {
            Some(cpu) => cpu::move_to(0, cpu as usize)?,
            None => cpu::move_to_all()?,
        }
        ring::adopt(self.policy)
    }
}

/// The ring, and its hot baseline.
pub(super) fn acts(spec: &LockRingSpec) -> Result<Vec<Box<dyn Act>>, Error> {
    spec.check()?;
    match spec.lock {
        LockKind::Mutex => acts_with::<LibraryMutex>(spec),
        LockKind::Futex => acts_with::<BareWord>(spec),
        LockKind::Condvar => acts_with::<ConditionLock>(spec),
    }
}

fn acts_with<L: Lock>(spec: &LockRingSpec) -> Result<Vec<Box<dyn Act>>, Error> {
    spec.take_place()?;
    let alone = Alone(L::default());
    let ring = LockRing::<L, _>::start(spec, |_, _| {})?;
    Ok(vec![Box::new(ring), Box::new(alone)])
}

/// Fewest timed turns of each thread in a block: no more, so that a block of a thousand threads is as
/// short as it can be.
const LEAST_TURNS: u64 = 2;

/// Turns after which all threads have started and stand in their places.
const FIRST_TURNS: u64 = 1;

/// Turns between these and the timed ones, counted: the ring must be warm again after other arms had the
/// caches.
const fn warm_turns(turns: u64) -> u64 {
    1 + turns / 16
}

/// What all threads of a ring see.
struct Setting<L, W> {
    spec: LockRingSpec,
    locks: Vec<L>,
    /// Hears of every move: the thread, and the lock that it has just taken.
    witness: W,
    /// Grows when a block begins; the threads wait for that.
    block: AtomicU32,
    /// Turns of the block; 0 means that it is over.
    turns: AtomicU64,
    /// Threads that are not there yet, or have not done their turns.
    absent: AtomicUsize,
    /// The last of them tells the leader.
    all_there: Futex,
    /// Switches of all threads but the leader over the counted turns.
    voluntary: AtomicU64,
    /// The same over the whole block.
    involuntary: AtomicU64,
}

impl<L: Lock, W: Fn(usize, usize)> Setting<L, W> {
    fn new(spec: &LockRingSpec, witness: W) -> Self {
        Self {
            locks: (0..spec.locks()).map(|_| L::default()).collect(),
            witness,
            block: AtomicU32::new(0),
            turns: AtomicU64::new(0),
            absent: AtomicUsize::new(spec.count as usize - 1),
            all_there: Futex::default(),
            voluntary: AtomicU64::new(0),
            involuntary: AtomicU64::new(0),
            spec: spec.clone(),
        }
    }

    /// Lets all threads begin a block, or leave when `turns` is 0.
    fn begin(&self, turns: u64) -> Result<(), Error> {
        let others = self.spec.count as usize - 1;
        self.absent.store(others, Ordering::Relaxed);
        self.voluntary.store(0, Ordering::Relaxed);
        self.involuntary.store(0, Ordering::Relaxed);
        self.turns.store(turns, Ordering::Relaxed);
        self.block.fetch_add(1, Ordering::Release);
        private_wake(&self.block, self.spec.count)
    }

    /// Says that the calling thread is done, and waits for the next block after number `seen`.
    fn await_block(&self, seen: u32) -> Result<u64, Error> {
        if self.absent.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_there.pass()?;
        }
        while self.block.load(Ordering::Acquire) == seen {
            private_wait_while(&self.block, seen)?;
        }
        Ok(self.turns.load(Ordering::Relaxed))
    }

    /// What a thread does until it is let go.
    fn follow(&self, me: usize) -> Result<(), Error> {
        let mut stand = self.enter(me)?;
        for block in 0.. {
            let turns = self.await_block(block)?;
            if turns == 0 {
                break;
            }
            let at_start = own_switches()?;
            self.go_on(&mut stand, FIRST_TURNS)?;
            let before = own_switches()?;
            self.go_on(&mut stand, warm_turns(turns) + turns)?;
            let after = own_switches()?;
            let voluntary = after.since(before).voluntary;
            let involuntary = self.involuntary_of(at_start, before, after);
            self.voluntary.fetch_add(voluntary, Ordering::Relaxed);
            self.involuntary.fetch_add(involuntary, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What of a thread's involuntary switches is told: those of the counted turns where they are part of
    /// the ring, those of the whole block where any disturbs it.
    fn involuntary_of(&self, at_start: Counted, before: Counted, after: Counted) -> u64 {
        let since = match self.spec.is_exact() {
            true => at_start,
            false => before,
        };
        after.since(since).involuntary
    }

    /// Takes thread number `me`'s first lock.
    fn enter(&self, me: usize) -> Result<Stand, Error> {
        self.locks[me].lock()?;
        Ok(Stand { me, held: me })
    }

    /// The moves of so many turns.
    fn go_on(&self, stand: &mut Stand, turns: u64) -> Result<(), Error> {
        for _ in 0..turns * u64::from(self.spec.spare) {
            let next = match stand.held + 1 {
                end if end == self.locks.len() => 0,
                next => next,
            };
            self.locks[next].lock()?;
            (self.witness)(stand.me, next);
            self.locks[stand.held].unlock()?;
            stand.held = next;
        }
        Ok(())
    }
}

/// Where a thread stands.
struct Stand {
    me: usize,
    held: usize,
}

/// The leader's side of a ring. Dropping it lets the others go and waits for them.
struct LockRing<L: Lock, W: Fn(usize, usize)> {
    setting: Arc<Setting<L, W>>,
    stand: Stand,
    others: Vec<Peer>,
}

impl<L: Lock, W: Fn(usize, usize) + Send + Sync + 'static> LockRing<L, W> {
    fn start(spec: &LockRingSpec, witness: W) -> Result<Self, Error> {
        let setting = Arc::new(Setting::new(spec, witness));
        let first = spec.count as usize - 1;
        let mut ring = Self {
            stand: setting.enter(first)?,
            others: Vec::new(),
            setting,
        };
        for me in 0..first {
            let setting = Arc::clone(&ring.setting);
            let follow = move || setting.follow(me);
            ring.others.push(Peer::start(Members::Threads, follow)?);
        }
        ring.setting.all_there.take()?;
        Ok(ring)
    }
}

impl<L: Lock, W: Fn(usize, usize)> LockRing<L, W> {
    /// A block of so many timed turns.
    fn turns(&mut self, turns: u64) -> Result<Timing, Error> {
        let setting = &*self.setting;
        setting.begin(turns)?;
        let at_start = own_switches()?;
        setting.go_on(&mut self.stand, FIRST_TURNS)?;
        let before = own_switches()?;
        setting.go_on(&mut self.stand, warm_turns(turns))?;
        let start = clock::raw();
        setting.go_on(&mut self.stand, turns)?;
        let end = clock::raw();
        let after = own_switches()?;
        setting.all_there.take()?;
        let others = [&setting.voluntary, &setting.involuntary];
        let [voluntary, involuntary] = others.map(|sum| sum.load(Ordering::Relaxed));
        Ok(Timing {
            operations: turns * setting.spec.lap(),
            elapsed: end.since(start).unwrap_or_default(),
            counted: Counted {
                voluntary: voluntary + after.since(before).voluntary,
                involuntary: involuntary + setting.involuntary_of(at_start, before, after),
            },
            counted_over: (warm_turns(turns) + turns) * setting.spec.lap(),
            live: None,
        })
    }
}

impl<L: Lock, W: Fn(usize, usize)> Act for LockRing<L, W> {
    /// An operation is a hand-over.
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        let turns = operations / self.setting.spec.lap();
        self.turns(turns.max(LEAST_TURNS))
    }
}

impl<L: Lock, W: Fn(usize, usize)> Drop for LockRing<L, W> {
    fn drop(&mut self) {
        let left = self.setting.begin(0);
        let left = left.and_then(|()| self.others.iter_mut().try_for_each(Peer::finish));
        debug_assert!(left.is_ok(), "invariant: threads that wait can be let go");
    }
}

/// The calls of a hand-over by the leader alone, on a lock that nobody else knows.
struct Alone<L>(L);

impl<L: Lock> Act for Alone<L> {
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        let repeat = |times: u64| {
            (0..times).try_for_each(|_| {
                self.0.lock()?;
                self.0.unlock()
            })
        };
        repeat(warm_turns(operations))?;
        timed(operations, || repeat(operations))
    }
}

//! Threads in a ring of locks: each holds one lock, takes the next and releases the former (E.
//! Bradford, "Runtime: Context switching", 2002).
//!
//! ```text
//!  locks     0   1   2   3   4   5       4 threads, 2 spare locks: thread i holds lock i, and the
//!  threads  (0) (1) (2) (L)  ·   ·       leader is the last; it takes 4 and 5, then waits for 0
//!            0   1   2   ─▶  ─▶  L       and has let thread 2 go on, which takes 3 and 4, …
//! ```
//!
//! A **hand-over** is one move: the next lock is taken, the former released. At most one thread
//! waits for a lock, the one behind its holder, so the order is fixed by construction. A thread
//! that keeps the CPU until it blocks makes as many moves as there are spare locks and then blocks:
//! a **turn**. So with k spare locks the kernel switches 1/k times per hand-over, provided that a
//! woken thread does not preempt its waker (`SCHED_BATCH` on one CPU). One turn of every thread is
//! a **lap**.
//!
//! ```text
//!           start      one turn      warm turns     timed turns     done
//! leader  ──┤ R ─ turn ─ R₀ ─ turn, turn … ─ t₀ ─ turn, turn … ─ t₁ ─ R₁ ┤ waits
//! others    ┤ R ─ turn ─ R₀ ─ turn, turn … ────── turn, turn … ────── R₁ ┤ the last one tells
//! ```
//!
//! All threads make the same number of moves between R₀ and R₁ (`getrusage(RUSAGE_THREAD)`), so the
//! counted switches are those of exactly these moves: the timed ones and the warm ones. Each thread
//! reads R₀ before the leader's t₀ and R₁ after its t₁, so that reading a thousand counters is not
//! part of the time. On one CPU the others make exactly as many moves as the leader between t₀ and
//! t₁, each thread its turns after the leader's. On several CPUs a thread may be up to k moves
//! ahead of another, and the number of timed moves may be off by one lap.
//!
//! A preemption within a turn (the kernel counts it) splits the turn in two, and from then on two
//! threads can move until the block ends. With several spare locks one preemption thus spoils the
//! rest of the block, so blocks must be short. Where no preemption should happen, involuntary
//! switches are counted from the start of the block (R), and a block that has any is not evidence
//! about the ring.
//!
//! The threads of a ring run in the process of their leader. Separate runs log every move
//! ([`observe`]), so that the order of moves can be checked ([`order_violation`]).

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use swtch_core::cost::{Members, Policy};

use super::follower::Follower;
use super::placement::adopt_policy;
use super::timed_operation::{TimedOperation, Timing, timed};
use crate::error::Error;
use crate::futex::{self, PrivateScope};
use crate::lock::{ConditionLock, FutexLock, Lock, OwnCacheLine, PthreadMutex};
use crate::outcome::SwitchCounts;
use crate::token::{FutexToken, Token};
use crate::workers::own_switches;
use crate::{clock, cpu};

mod lock_kind;
mod observed;
mod order;

pub use lock_kind::LockKind;
pub use observed::{Observed, observe};
pub use order::{HandOver, Violation, order_violation};

/// A ring of locks: its threads, locks and placement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockRingSpec {
    /// How the locks are built.
    pub lock: LockKind,
    /// Number of threads: two or more.
    pub count: u32,
    /// Number of locks beyond one per thread: one or more.
    pub spare: u32,
    /// The scheduling policy of all threads.
    pub policy: Policy,
    /// The CPU of all threads; `None` leaves them free.
    pub cpu: Option<u32>,
}

impl LockRingSpec {
    /// Number of locks in the ring.
    pub const fn locks(&self) -> u64 {
        self.count as u64 + self.spare as u64
    }

    /// Whether a turn is one switch by construction: on one CPU, under a policy where a woken
    /// thread does not preempt its waker.
    pub fn is_exact(&self) -> bool {
        self.policy != Policy::Default && self.cpu.is_some()
    }

    /// Number of moves in a lap.
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

    /// Refuses more threads than the kernel's limit of memory maps allows: a thread that cannot map
    /// its signal stack aborts the process.
    fn check_maps(&self) -> Result<(), Error> {
        /// A stack, another for signals (Rust's own), and a guard page below each.
        const MAPS_OF_A_THREAD: u64 = 4;
        let path = "/proc/sys/vm/max_map_count";
        let needed = u64::from(self.count) * MAPS_OF_A_THREAD;
        // If the file cannot be read, the kernel itself refuses too many threads.
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

    /// Sets CPU and policy of the calling thread; the threads that it starts inherit both.
    fn take_place(&self) -> Result<(), Error> {
        match self.cpu {
            Some(cpu) => cpu::move_to(0, cpu as usize)?,
            None => cpu::unpin()?,
        }
        adopt_policy(self.policy)
    }
}

/// The ring, and its hot baseline.
pub(super) fn timed_operations(spec: &LockRingSpec) -> Result<Vec<Box<dyn TimedOperation>>, Error> {
    spec.check()?;
    match spec.lock {
        LockKind::Mutex => timed_operations_with::<PthreadMutex>(spec),
        LockKind::Futex => timed_operations_with::<FutexLock<PrivateScope>>(spec),
        LockKind::Condvar => timed_operations_with::<ConditionLock>(spec),
    }
}

fn timed_operations_with<L: Lock + Default + 'static>(
    spec: &LockRingSpec,
) -> Result<Vec<Box<dyn TimedOperation>>, Error> {
    spec.take_place()?;
    let alone = LockRingBaseline(OwnCacheLine::<L>::default());
    let ring = LockRing::<L, _>::start(spec, |_, _| {})?;
    Ok(vec![Box::new(ring), Box::new(alone)])
}

/// Minimum of timed turns of each thread in a block. It is small, so that a block of a thousand
/// threads is as short as possible.
const LEAST_TURNS: u64 = 2;

/// First turns of a block. After them, all threads have started and move in the order of the ring.
const FIRST_TURNS: u64 = 1;

/// Turns between the first and the timed ones, counted but not timed: the ring must be warm again
/// after other arms used the caches.
const fn warm_turns(turns: u64) -> u64 {
    1 + turns / 16
}

/// State that all threads of a ring share.
struct LockRingState<L, W> {
    spec: LockRingSpec,
    /// Neighbours are used right after each other.
    locks: Vec<OwnCacheLine<L>>,
    /// Called at every move with the thread and the lock that it has just taken.
    witness: W,
    /// Incremented when a block begins; the threads wait for that.
    block: AtomicU32,
    /// Turns of the block; 0 asks the threads to end.
    turns: AtomicU64,
    /// Threads that have not arrived yet, or have not finished their turns.
    absent: AtomicUsize,
    /// The last of these threads passes this token to the leader.
    all_there: FutexToken<PrivateScope>,
    /// Voluntary switches of all threads but the leader, over the counted turns.
    voluntary: AtomicU64,
    /// Involuntary switches of the same threads; see `involuntary_of` for the interval.
    involuntary: AtomicU64,
}

impl<L: Lock + Default, W> LockRingState<L, W> {
    fn new(spec: &LockRingSpec, witness: W) -> Self {
        Self {
            locks: (0..spec.locks()).map(|_| OwnCacheLine::default()).collect(),
            witness,
            block: AtomicU32::new(0),
            turns: AtomicU64::new(0),
            absent: AtomicUsize::new(spec.count as usize - 1),
            all_there: FutexToken::default(),
            voluntary: AtomicU64::new(0),
            involuntary: AtomicU64::new(0),
            spec: spec.clone(),
        }
    }
}

impl<L: Lock, W: Fn(usize, usize)> LockRingState<L, W> {
    /// Starts a block for all threads, or asks them to end when `turns` is 0.
    fn begin(&self, turns: u64) -> Result<(), Error> {
        let others = self.spec.count as usize - 1;
        self.absent.store(others, Ordering::Relaxed);
        self.voluntary.store(0, Ordering::Relaxed);
        self.involuntary.store(0, Ordering::Relaxed);
        self.turns.store(turns, Ordering::Relaxed);
        self.block.fetch_add(1, Ordering::Release);
        futex::wake::<PrivateScope>(&self.block, self.spec.count)
    }

    /// Reports that the calling thread is done, and waits for the block after number `seen`.
    fn await_block(&self, seen: u32) -> Result<u64, Error> {
        if self.absent.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_there.pass()?;
        }
        while self.block.load(Ordering::Acquire) == seen {
            futex::wait_while::<PrivateScope>(&self.block, seen)?;
        }
        Ok(self.turns.load(Ordering::Relaxed))
    }

    /// The loop of a thread until it is asked to end.
    fn follow(&self, me: usize) -> Result<(), Error> {
        let mut position = self.enter(me)?;
        for block in 0.. {
            let turns = self.await_block(block)?;
            if turns == 0 {
                break;
            }
            let at_start = own_switches()?;
            self.go_on(&mut position, FIRST_TURNS)?;
            let before = own_switches()?;
            self.go_on(&mut position, warm_turns(turns) + turns)?;
            let after = own_switches()?;
            let voluntary = after.since(before).voluntary;
            let involuntary = self.involuntary_of(at_start, before, after);
            self.voluntary.fetch_add(voluntary, Ordering::Relaxed);
            self.involuntary.fetch_add(involuntary, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The involuntary switches of a thread that are reported. Where no preemption should happen
    /// ([`LockRingSpec::is_exact`]), they are those of the whole block, since any of them disturbs
    /// it; elsewhere those of the counted turns.
    fn involuntary_of(
        &self,
        at_start: SwitchCounts,
        before: SwitchCounts,
        after: SwitchCounts,
    ) -> u64 {
        let since = match self.spec.is_exact() {
            true => at_start,
            false => before,
        };
        after.since(since).involuntary
    }

    /// Takes the first lock of thread number `me`.
    fn enter(&self, me: usize) -> Result<Position, Error> {
        self.locks[me].lock()?;
        Ok(Position { me, held: me })
    }

    /// Makes the moves of `turns` turns.
    fn go_on(&self, position: &mut Position, turns: u64) -> Result<(), Error> {
        for _ in 0..turns * u64::from(self.spec.spare) {
            let next = match position.held + 1 {
                end if end == self.locks.len() => 0,
                next => next,
            };
            self.locks[next].lock()?;
            (self.witness)(position.me, next);
            self.locks[position.held].unlock()?;
            position.held = next;
        }
        Ok(())
    }
}

/// Position of a thread: its number, and the lock that it holds.
struct Position {
    me: usize,
    held: usize,
}

/// A ring whose threads have started, as its leader holds it. Dropping it ends the other threads
/// and waits for them.
struct LockRing<L: Lock, W: Fn(usize, usize)> {
    state: Arc<LockRingState<L, W>>,
    position: Position,
    others: Vec<Follower>,
}

impl<L: Lock + Default + 'static, W: Fn(usize, usize) + Send + Sync + 'static> LockRing<L, W> {
    fn start(spec: &LockRingSpec, witness: W) -> Result<Self, Error> {
        let state = Arc::new(LockRingState::new(spec, witness));
        let first = spec.count as usize - 1;
        let mut ring = Self {
            position: state.enter(first)?,
            others: Vec::new(),
            state,
        };
        for me in 0..first {
            let state = Arc::clone(&ring.state);
            let follow = move || state.follow(me);
            ring.others.push(Follower::start(Members::Threads, follow)?);
        }
        ring.state.all_there.take()?;
        Ok(ring)
    }
}

impl<L: Lock, W: Fn(usize, usize)> LockRing<L, W> {
    /// Runs a block of `turns` timed turns.
    fn turns(&mut self, turns: u64) -> Result<Timing, Error> {
        let state = &*self.state;
        state.begin(turns)?;
        let at_start = own_switches()?;
        state.go_on(&mut self.position, FIRST_TURNS)?;
        let before = own_switches()?;
        state.go_on(&mut self.position, warm_turns(turns))?;
        let start = clock::raw();
        state.go_on(&mut self.position, turns)?;
        let end = clock::raw();
        let after = own_switches()?;
        state.all_there.take()?;
        let others = [&state.voluntary, &state.involuntary];
        let [voluntary, involuntary] = others.map(|sum| sum.load(Ordering::Relaxed));
        Ok(Timing {
            operations: turns * state.spec.lap(),
            elapsed: end.since(start).unwrap_or_default(),
            counted: SwitchCounts {
                voluntary: voluntary + after.since(before).voluntary,
                involuntary: involuntary + state.involuntary_of(at_start, before, after),
            },
            counted_over: (warm_turns(turns) + turns) * state.spec.lap(),
            live: None,
        })
    }
}

impl<L: Lock, W: Fn(usize, usize)> TimedOperation for LockRing<L, W> {
    /// One operation is one hand-over.
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        let turns = operations / self.state.spec.lap();
        self.turns(turns.max(LEAST_TURNS))
    }
}

impl<L: Lock, W: Fn(usize, usize)> Drop for LockRing<L, W> {
    fn drop(&mut self) {
        let ended = self.state.begin(0);
        let ended = ended.and_then(|()| self.others.iter_mut().try_for_each(Follower::finish));
        debug_assert!(
            ended.is_ok(),
            "invariant: threads that wait can be asked to end"
        );
    }
}

/// The lock calls of a hand-over, made by the leader alone on a lock of its own.
struct LockRingBaseline<L>(OwnCacheLine<L>);

impl<L: Lock> TimedOperation for LockRingBaseline<L> {
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

//! Switches that the kernel does not see: between stacks in user mode, and between tasks of an
//! executor.
//!
//! ```text
//! 0  bare      caller ⇄ one coroutine that does nothing
//! 1  in situ   caller ⇄ 64 coroutines in a shuffled order; each touches its own memory
//! 2  at home   the same touching, by 64 calls from one stack
//! ```
//!
//! An operation is one switch: a turn of a coroutine takes two (there and back), a turn of a task
//! one. Number 2 counts as many operations as number 1 for the same memory accesses, so that the
//! difference is per switch. The difference includes one effect of the stacks: they begin at page
//! boundaries, so their lines compete for the same few sets of the cache, as those of most runtimes
//! do.

use serde::{Deserialize, Serialize};

use super::timed_operation::{TimedOperation, Timing, timed};
use crate::error::Error;

mod assembly;
mod corosensei;
mod patch;
mod stack;
mod tasks;
mod ucontext;

use self::corosensei::Corosensei;
use assembly::{AssemblyCoroutine, CalleeSavedAndFloatControl, CalleeSavedOnly};
use patch::Patch;
use tasks::Tasks;
use ucontext::Ucontext;

/// Number of coroutines in the ring of number 1, and of their memories in number 2.
const RING: usize = 64;

/// The implementation that performs the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Coroutine {
    /// Our own assembly: a function that saves the callee-saved registers and nothing else.
    Registers,
    /// As [`Self::Registers`], but with the floating-point control words too (x86-64: MXCSR and
    /// x87; `AArch64`: FPCR).
    RegistersAndFloatControl,
    /// The crate `corosensei`, whose switch is inlined: it saves only those registers that are in
    /// use at that point.
    Corosensei,
    /// `swapcontext` of the C library, which saves the signal mask too: one system call per switch.
    Ucontext,
    /// Stackless: tasks of a single-threaded executor, built on `std` only ([`std::task::Wake`]). A
    /// switch is a wakeup and a poll; the stack stays the same.
    AsyncTask,
}

impl Coroutine {
    /// All variants, in the order of their declaration.
    pub const ALL: &'static [Self] = &[
        Self::Registers,
        Self::RegistersAndFloatControl,
        Self::Corosensei,
        Self::Ucontext,
        Self::AsyncTask,
    ];

    /// The three timed operations: bare, in situ, at home.
    pub(super) fn timed_operations(self) -> Result<Vec<Box<dyn TimedOperation>>, Error> {
        match self {
            Self::Registers => timed_operations_of::<AssemblyCoroutine<CalleeSavedOnly>>(),
            Self::RegistersAndFloatControl => {
                timed_operations_of::<AssemblyCoroutine<CalleeSavedAndFloatControl>>()
            }
            Self::Corosensei => timed_operations_of::<Corosensei>(),
            Self::Ucontext => timed_operations_of::<Ucontext>(),
            Self::AsyncTask => Ok(timed_operations_of_tasks()),
        }
    }

    /// Number of timed operations that [`Self::timed_operations`] makes.
    pub(super) const TIMED_OPERATIONS: usize = 3;
}

/// A coroutine with a stack of its own.
trait Stackful: Sized + 'static {
    /// Creates a coroutine and gives it its first turn.
    fn start(body: CoroutineBody) -> Result<Self, Error>;

    /// Gives it a turn: switches there and back.
    fn resume(&mut self);
}

/// The work of a coroutine.
#[derive(Clone, Copy, Debug)]
enum CoroutineBody {
    /// Only gives the turn back.
    Nothing,
    /// Touches its own memory first. The number is the seed of that memory.
    Patch(u64),
}

impl CoroutineBody {
    /// Repeats the work for ever, on the caller's stack.
    fn run(self, mut suspend: impl FnMut()) -> ! {
        match self {
            Self::Nothing => loop {
                suspend();
            },
            Self::Patch(seed) => {
                let mut patch = Patch::new(seed);
                loop {
                    patch.touch();
                    suspend();
                }
            }
        }
    }
}

/// Switches per turn of a coroutine: to it and back.
const THERE_AND_BACK: u64 = 2;

fn timed_operations_of<S: Stackful>() -> Result<Vec<Box<dyn TimedOperation>>, Error> {
    let mut one = S::start(CoroutineBody::Nothing)?;
    let mut ring = (0..RING as u64)
        .map(|seed| S::start(CoroutineBody::Patch(seed)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut order = VisitOrder::new();
    let bare = move |turns| (0..turns).for_each(|_| one.resume());
    let in_situ = move |turns| (0..turns).for_each(|_| ring[order.next()].resume());
    Ok(vec![
        RepeatedTurns::boxed(THERE_AND_BACK, bare),
        RepeatedTurns::boxed(THERE_AND_BACK, in_situ),
        at_home(THERE_AND_BACK),
    ])
}

fn timed_operations_of_tasks() -> Vec<Box<dyn TimedOperation>> {
    let mut pair = Tasks::new(&[CoroutineBody::Nothing; 2]);
    let bodies: Vec<_> = (0..RING as u64).map(CoroutineBody::Patch).collect();
    let mut ring = Tasks::new(&bodies);
    vec![
        RepeatedTurns::boxed(1, move |turns| (0..turns).for_each(|_| pair.poll_next())),
        RepeatedTurns::boxed(1, move |turns| (0..turns).for_each(|_| ring.poll_next())),
        at_home(1),
    ]
}

/// The work of a ring of coroutines, without the coroutines.
fn at_home(switches: u64) -> Box<dyn TimedOperation> {
    let mut patches: Vec<_> = (0..RING as u64).map(Patch::new).collect();
    let mut order = VisitOrder::new();
    let touch = move |turns| (0..turns).for_each(|_| patches[order.next()].touch());
    RepeatedTurns::boxed(switches, touch)
}

/// Visits all members of a ring in an order that looks random.
struct VisitOrder(usize);

impl VisitOrder {
    const fn new() -> Self {
        Self(0)
    }

    /// A linear congruential step, whose period is the whole ring (Hull and Dobell, 1962).
    const fn next(&mut self) -> usize {
        self.0 = (self.0 * 5 + 3) % RING;
        self.0
    }
}

/// A timed operation that consists of turns, with a fixed number of switches each.
struct RepeatedTurns<F> {
    switches: u64,
    turns: F,
}

impl<F: FnMut(u64) + 'static> RepeatedTurns<F> {
    fn boxed(switches: u64, turns: F) -> Box<dyn TimedOperation> {
        Box::new(Self { switches, turns })
    }
}

impl<F: FnMut(u64)> TimedOperation for RepeatedTurns<F> {
    /// One operation is one switch.
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        let turns = (operations / self.switches).max(1);
        (self.turns)(RING as u64 + turns / 16);
        timed(turns * self.switches, || {
            (self.turns)(turns);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing that is timed makes the thread sleep, and each block has the requested number of
    /// operations. One block of five without a sleep is enough: a page fault waits while another
    /// test of this process changes the memory map, and that is no switch of ours.
    #[test]
    fn coroutine_switches_without_the_kernel() {
        for which in Coroutine::ALL {
            let mut operations = which.timed_operations().unwrap();
            assert_eq!(operations.len(), Coroutine::TIMED_OPERATIONS);
            for operation in &mut operations {
                let slept = (0..5).map(|_| {
                    let timing = operation.block(10_000).unwrap();
                    assert_eq!(timing.operations, 10_000, "{which:?}");
                    timing.counted.voluntary
                });
                assert_eq!(slept.min(), Some(0), "{which:?}");
            }
        }
    }

    /// Callee-saved registers and stack values of the caller survive each switch.
    fn keeps_its_values<S: Stackful>() {
        let mut ring: Vec<_> = (0..RING as u64)
            .map(|seed| S::start(CoroutineBody::Patch(seed)).unwrap())
            .collect();
        let values = |seed: u64| (seed * 3, f64::from(u32::try_from(seed).unwrap()) * 0.5);
        for seed in 0..10_000_u64 {
            let (whole, half) = std::hint::black_box(values(seed));
            let member = usize::try_from(seed).unwrap() % RING;
            ring[member].resume();
            assert_eq!((whole, half), values(seed));
        }
    }

    #[test]
    fn caller_keeps_its_values_across_switches() {
        keeps_its_values::<AssemblyCoroutine<CalleeSavedOnly>>();
        keeps_its_values::<AssemblyCoroutine<CalleeSavedAndFloatControl>>();
        keeps_its_values::<Corosensei>();
        keeps_its_values::<Ucontext>();
    }

    #[test]
    fn order_meets_every_member() {
        let mut order = VisitOrder::new();
        let mut met: Vec<_> = (0..RING).map(|_| order.next()).collect();
        met.sort_unstable();
        assert_eq!(met, (0..RING).collect::<Vec<_>>());
    }
}

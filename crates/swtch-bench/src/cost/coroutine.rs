//! Switches that the kernel knows nothing of: from stack to stack in user mode, and from task to task
//! of an executor.
//!
//! ```text
//! act 0  bare      caller ⇄ one coroutine that does nothing
//! act 1  in situ   caller ⇄ 64 coroutines in a shuffled order; each touches its own lines of memory
//! act 2  at home   the same touching, by 64 calls from one stack
//! ```
//!
//! An operation is one switch: there are two between two turns of a caller, and one between two
//! tasks. Act 2 counts as many operations as act 1 with the same touching, so that the difference is
//! per switch. It holds that stacks begin at pages, so that their lines compete for the same few
//! places of the cache, as those of most runtimes do.

use serde::{Deserialize, Serialize};

use super::act::{Act, Timing, timed};
use crate::error::Error;

mod corosensei;
mod patch;
mod registers;
mod stack;
mod tasks;
mod ucontext;

use self::corosensei::Corosensei;
use patch::Patch;
use registers::{FloatControl, Plain, Registers};
use tasks::Tasks;
use ucontext::Ucontext;

/// Coroutines in the ring of acts 1 and 2.
const RING: usize = 64;

/// What switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Coroutine {
    /// Ours, in assembly: a function that saves the registers that a called function has to keep, and
    /// nothing else.
    Registers,
    /// Ours, and the control words of floating point too (x86-64: MXCSR and x87; `AArch64`: FPCR).
    RegistersAndFloatControl,
    /// The crate `corosensei`, whose switch is put in line: of the registers, only those are saved that
    /// are in use there.
    Corosensei,
    /// `swapcontext` of the C library, which saves the signal mask too: a system call a switch.
    Ucontext,
    /// Stackless: tasks of an executor of one thread, in `std` words only ([`std::task::Wake`]). A
    /// switch is a wake-up and a poll; no stack is changed.
    AsyncTask,
}

impl Coroutine {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Registers,
        Self::RegistersAndFloatControl,
        Self::Corosensei,
        Self::Ucontext,
        Self::AsyncTask,
    ];

    /// Bare, in situ, at home.
    pub(crate) fn acts(self) -> Result<Vec<Box<dyn Act>>, Error> {
        match self {
            Self::Registers => acts_of::<Registers<Plain>>(),
            Self::RegistersAndFloatControl => acts_of::<Registers<FloatControl>>(),
            Self::Corosensei => acts_of::<Corosensei>(),
            Self::Ucontext => acts_of::<Ucontext>(),
            Self::AsyncTask => Ok(acts_of_tasks()),
        }
    }

    /// How many acts [`Self::acts`] makes.
    pub(crate) const ACTS: usize = 3;
}

/// A stack that does something, a turn at a time.
trait Stackful: Sized + 'static {
    /// One that has had its first turn.
    fn start(body: Body) -> Result<Self, Error>;

    /// Gives it a turn: there and back.
    fn resume(&mut self);
}

/// What a coroutine does.
#[derive(Clone, Copy, Debug)]
enum Body {
    /// Nothing but to give the turn back.
    Nothing,
    /// Touches its own memory before that. The number tells it from others.
    Patch(u64),
}

impl Body {
    /// Does it for ever, on the stack of the caller.
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

/// Switches between a caller and what it resumes.
const THERE_AND_BACK: u64 = 2;

fn acts_of<S: Stackful>() -> Result<Vec<Box<dyn Act>>, Error> {
    let mut one = S::start(Body::Nothing)?;
    let mut ring = (0..RING as u64)
        .map(|seed| S::start(Body::Patch(seed)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut order = Order::new();
    let bare = move |turns| (0..turns).for_each(|_| one.resume());
    let in_situ = move |turns| (0..turns).for_each(|_| ring[order.next()].resume());
    Ok(vec![
        Turns::act(THERE_AND_BACK, bare),
        Turns::act(THERE_AND_BACK, in_situ),
        at_home(THERE_AND_BACK),
    ])
}

fn acts_of_tasks() -> Vec<Box<dyn Act>> {
    let mut pair = Tasks::new(&[Body::Nothing; 2]);
    let bodies: Vec<_> = (0..RING as u64).map(Body::Patch).collect();
    let mut ring = Tasks::new(&bodies);
    vec![
        Turns::act(1, move |turns| (0..turns).for_each(|_| pair.poll_next())),
        Turns::act(1, move |turns| (0..turns).for_each(|_| ring.poll_next())),
        at_home(1),
    ]
}

/// What a ring of coroutines does, without them.
fn at_home(switches: u64) -> Box<dyn Act> {
    let mut patches: Vec<_> = (0..RING as u64).map(Patch::new).collect();
    let mut order = Order::new();
    let touch = move |turns| (0..turns).for_each(|_| patches[order.next()].touch());
    Turns::act(switches, touch)
}

/// Goes through all members of a ring in an order that looks like none.
struct Order(usize);

impl Order {
    const fn new() -> Self {
        Self(0)
    }

    /// A linear congruential step, whose period is the whole ring (Hull and Dobell, 1962).
    const fn next(&mut self) -> usize {
        self.0 = (self.0 * 5 + 3) % RING;
        self.0
    }
}

/// An act of turns, each of them so many switches.
struct Turns<F> {
    switches: u64,
    turns: F,
}

impl<F: FnMut(u64) + 'static> Turns<F> {
    fn act(switches: u64, turns: F) -> Box<dyn Act> {
        Box::new(Self { switches, turns })
    }
}

impl<F: FnMut(u64)> Act for Turns<F> {
    /// An operation is a switch.
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

    /// No act blocks, and each does what it is asked for.
    #[test]
    fn coroutine_switches_without_the_kernel() {
        for which in Coroutine::ALL {
            let mut acts = which.acts().unwrap();
            assert_eq!(acts.len(), Coroutine::ACTS);
            for act in &mut acts {
                let timing = act.block(10_000).unwrap();
                assert_eq!(timing.operations, 10_000, "{which:?}");
                assert_eq!(timing.counted.voluntary, 0, "{which:?}");
            }
        }
    }

    /// What a function keeps, and what it has on its stack, is there after each switch.
    fn keeps_its_values<S: Stackful>() {
        let mut ring: Vec<_> = (0..RING as u64)
            .map(|seed| S::start(Body::Patch(seed)).unwrap())
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
        keeps_its_values::<Registers<Plain>>();
        keeps_its_values::<Registers<FloatControl>>();
        keeps_its_values::<Corosensei>();
        keeps_its_values::<Ucontext>();
    }

    #[test]
    fn order_meets_every_member() {
        let mut order = Order::new();
        let mut met: Vec<_> = (0..RING).map(|_| order.next()).collect();
        met.sort_unstable();
        assert_eq!(met, (0..RING).collect::<Vec<_>>());
    }
}

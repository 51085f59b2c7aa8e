//! What a switch costs one program: a randomised experiment, from drawn moments to prices.
//!
//! An injector draws moments at which the program runs, and at each of them, by lot, what is done to it. The response is
//! the CPU time of the unit of work that holds the moment. Which units are met does not depend on the lot (long ones are
//! met more often, under every lot alike), so the difference of two means is what one act costs, and not a correlation.
//!
//! ```text
//!   moments       n        s           t           n = nothing, s = switch, t = a switch to a task that touches memory
//!   the program  ─┴─ unit ─┴──┤   ├────┴── unit ──┤
//!                             blocked              │◀─ the CPU time of its runs, without those of the injector
//! ```
//!
//! # What is subtracted from what
//!
//! - A switch needs an interrupt, which costs microseconds in a virtual machine and is not the switch: the price of a
//!   switch is `switch - interrupt`.
//! - While an injector walks through memory, work piles up, and a server that finds more of it does more before it blocks.
//!   That is no cost. So there is a *hold* for each walk, which takes the CPU as long and touches nothing, and what the
//!   memory costs is `touch - hold`.
//! - An act comes some microseconds after its moment was drawn, and the unit may have ended by then. Whether it has does
//!   not depend on the act: so units count only if they are open when the act comes, and for lots without an act, when one
//!   would have come that takes as long as the last.
//! - A few units are many times as long as all others (garbage collections; a hypervisor that gives the CPU to others
//!   without saying so), and hide what an act costs. So means are trimmed: they are those of the middle three fifths.
//!
//! Sources: Neyman 1923 (the variance of a difference under randomisation); Yuen 1974, "The two-sample trimmed t for
//! unequal population variances"; Lin 2013, "Agnostic notes on regression adjustments" (what is known before the moment
//! may be adjusted for).

use std::fmt;

mod estimate;
#[cfg(test)]
mod tests;
mod units;

pub use estimate::{EffectOfAct, InjectionEstimates, PriceForProgram, TooFewMoments, resolution};
pub use units::{UnitBounds, UnitResponse, UnitsAtMoments};

use crate::ids::CpuId;
use crate::units::Timestamp;

/// How much of its own memory an injected task touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TouchedMemory {
    /// 64 KiB.
    Small,
    /// 512 KiB.
    Medium,
    /// 2 MiB.
    Large,
}

impl TouchedMemory {
    /// All of them, in rising order.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// Its size in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small => 64 << 10,
            Self::Medium => 512 << 10,
            Self::Large => 2 << 20,
        }
    }
}

/// What is done at a drawn moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Injection {
    /// Nothing; the moment is only noted.
    Nothing,
    /// A task on another CPU wakes up and touches nothing: it should cost the program nothing.
    Elsewhere,
    /// The CPU is interrupted by another one, and nobody is woken.
    Interrupt,
    /// A task takes the CPU, touches nothing, and sleeps again.
    Switch,
    /// A task takes the CPU and touches so much of its own memory.
    Touch(TouchedMemory),
    /// A task takes the CPU for as long as one that touches so much, and touches nothing.
    Hold(TouchedMemory),
}

impl Injection {
    /// The lots in the urn: what others are compared with is in it more than once.
    pub const LOTS: [Self; 13] = {
        use TouchedMemory::{Large, Medium, Small};
        [
            Self::Nothing,
            Self::Nothing,
            Self::Elsewhere,
            Self::Interrupt,
            Self::Interrupt,
            Self::Switch,
            Self::Switch,
            Self::Touch(Small),
            Self::Hold(Small),
            Self::Touch(Medium),
            Self::Hold(Medium),
            Self::Touch(Large),
            Self::Hold(Large),
        ]
    };

    /// Returns true if a task takes the program's CPU.
    pub const fn takes_the_cpu(self) -> bool {
        matches!(self, Self::Switch | Self::Touch(_) | Self::Hold(_))
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = |memory: &TouchedMemory| memory.bytes() >> 10;
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Elsewhere => f.write_str("a task on another CPU"),
            Self::Interrupt => f.write_str("an interrupt"),
            Self::Switch => f.write_str("a switch"),
            Self::Touch(memory) => write!(f, "a switch that touches {} KiB", kib(memory)),
            Self::Hold(memory) => write!(f, "a switch as long as one of {} KiB", kib(memory)),
        }
    }
}

/// A moment that was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InjectedMoment {
    /// The moment, before anything was done.
    pub at: Timestamp,
    /// The CPU on which a thread of the program ran shortly before.
    pub cpu: CpuId,
    /// What was drawn.
    pub injection: Injection,
    /// When the injected task had the CPU, or the interrupt had come; `None` where neither is known.
    pub began: Option<Timestamp>,
}

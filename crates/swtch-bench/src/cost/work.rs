//! What a member does each time it has the turn, before it hands it on: nothing for the direct
//! cost, and memory, branches or registers for what a switch costs afterwards.
//!
//! Work is done last, right before the calls of the hand-over, so that what it leaves in registers
//! and caches is what the kernel finds. The hot baseline does the same work without a switch. What a
//! work costs by itself is therefore no matter; each file says which two works are compared.

use serde::{Deserialize, Serialize};

use crate::arch;
use crate::error::Error;

mod branches;
mod delay;
mod mapping;
mod pages;
mod random;
mod registers;
mod strided;
mod walk;
mod working_set;

pub use self::branches::Patterns;
use self::mapping::Mapping;
pub use self::mapping::PageSize;
pub use self::registers::{Ending, LiveRegisters};
pub use self::working_set::{Order, Sharing};

/// Work of one member.
pub(crate) trait Work {
    /// Does it once.
    fn run(&mut self);

    /// Which registers were live at the hand-overs since this was last asked; `None` for work that
    /// does not look, or where the CPU cannot tell.
    fn take_live(&mut self) -> Option<LiveRegisters> {
        None
    }
}

/// Which work, as plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "work")]
#[non_exhaustive]
pub enum WorkSpec {
    /// None.
    #[default]
    Nothing,
    /// Leaves register state for the kernel to save, or the same instructions without.
    Registers {
        /// Which.
        registers: arch::Registers,
        /// What is done last.
        ending: Ending,
    },
    /// Walks over memory once.
    WorkingSet {
        /// How much; whole lines of 64 bytes, in pages of 4 KiB.
        bytes: u64,
        /// In which order.
        order: Order,
        /// Whose memory.
        sharing: Sharing,
    },
    /// Reads one line every so many bytes, in an order that the CPU cannot guess.
    Strided {
        /// How far the lines reach, all of it the member's own.
        bytes: u64,
        /// From one line to the next, in bytes: whole lines of 64.
        stride: u64,
    },
    /// Reads one line of each page.
    Pages {
        /// How many pages of 4 KiB, or as many places that far apart in large pages.
        pages: u32,
        /// What the memory is made of.
        size: PageSize,
    },
    /// Takes branches that depend on data.
    Branches {
        /// How many.
        count: u32,
        /// Whose data.
        patterns: Patterns,
    },
    /// Uses time and nothing else: a delay of known length, to see that it is found.
    Delay {
        /// Dependent multiplications, about a nanosecond each.
        loops: u32,
    },
}

/// What all members of a ring work on, made before any of them starts, so that processes share it
/// too. Nothing for most work.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    memory: Option<std::sync::Arc<Mapping>>,
}

impl WorkSpec {
    /// Prepares what members share.
    pub(crate) fn prepare_common(self) -> Result<Common, Error> {
        let memory = match self {
            Self::WorkingSet {
                bytes,
                order,
                sharing: Sharing::Shared,
            } => Some(working_set::shared(bytes, order)?),
            _ => None,
        };
        Ok(Common { memory })
    }

    /// Prepares it for member number `member` of a ring, in that member itself: memory is its own.
    pub(crate) fn prepare(self, member: usize, common: &Common) -> Result<Box<dyn Work>, Error> {
        Ok(match self {
            Self::Nothing => Box::new(Nothing),
            Self::Registers { registers, ending } => {
                Box::new(registers::Touch::new(registers, ending)?)
            }
            Self::WorkingSet { bytes, order, .. } => match &common.memory {
                Some(memory) => Box::new(working_set::walk_shared(memory, bytes)),
                None => Box::new(working_set::private(bytes, order, member)?),
            },
            Self::Strided { bytes, stride } => Box::new(strided::walk(bytes, stride, member)?),
            Self::Pages { pages, size } => Box::new(pages::walk(pages, size, member)?),
            Self::Branches { count, patterns } => {
                Box::new(branches::Branches::new(count, patterns, member))
            }
            Self::Delay { loops } => Box::new(delay::Delay::new(loops)),
        })
    }
}

struct Nothing;

impl Work for Nothing {
    fn run(&mut self) {}
}

//! The work of a member each time it has the turn, before it hands the turn on: none for the direct
//! cost; memory, branches or registers for the cost that a switch causes afterwards.
//!
//! Work runs right before the calls of the hand-over, so that the kernel finds what it leaves in
//! registers and caches. The hot baseline does the same work without a switch. So the cost of the
//! work itself does not matter; the file of each kind says which two are compared.

use serde::{Deserialize, Serialize};

use crate::arch;
use crate::error::Error;

mod branches;
mod delay;
mod mapping;
mod pages;
pub(super) mod random;
mod registers;
mod strided;
mod walk;
mod working_set;

pub use self::branches::PatternSharing;
use self::mapping::Mapping;
pub use self::mapping::PageSize;
pub use self::registers::{LiveRegisters, RegisterEnding};
pub use self::working_set::{MemorySharing, Order};

/// Work of one member of a ring.
pub(crate) trait Work {
    /// Does the work once, for one turn.
    fn run(&mut self);

    /// Registers that were live at the hand-overs since the last call; `None` for work that does
    /// not read them, or if the CPU cannot report them.
    fn take_live(&mut self) -> Option<LiveRegisters> {
        None
    }
}

/// The kind of work, as plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "work")]
#[non_exhaustive]
pub enum WorkSpec {
    /// No work: the turn is handed on at once.
    #[default]
    Nothing,
    /// Leaves register state live, or executes the same instructions and leaves none.
    Registers {
        /// The register state that is touched.
        registers: arch::ExtendedRegisters,
        /// Says what the last instructions do: touch or clear.
        ending: RegisterEnding,
    },
    /// Walks through memory once per turn.
    WorkingSet {
        /// Bytes of memory: whole lines of 64 bytes, in pages of 4 KiB.
        bytes: u64,
        /// The order in which lines are read.
        order: Order,
        /// Says whether members share the memory.
        sharing: MemorySharing,
    },
    /// Reads one line every `stride` bytes, in an order that the CPU cannot predict.
    Strided {
        /// Size in bytes of the memory that the lines are spread over; each member has its own.
        bytes: u64,
        /// Distance from one line to the next in bytes: a multiple of 64.
        stride: u64,
    },
    /// Reads one line of each page.
    Pages {
        /// Number of pages of 4 KiB; in huge pages, number of stretches of 4 KiB.
        pages: u32,
        /// Page size of the memory.
        size: PageSize,
    },
    /// Executes branches that depend on data.
    Branches {
        /// Number of branches per turn.
        count: u32,
        /// Says whether members share the data that the branches depend on.
        patterns: PatternSharing,
    },
    /// Takes a known time and does nothing else, to check that the measurement finds it.
    Delay {
        /// Number of dependent multiplications, about a nanosecond each.
        loops: u32,
    },
}

/// Memory that all members of a ring work on, created before any of them starts, so that processes
/// share it too. Most kinds of work have none.
#[derive(Clone, Debug)]
pub(crate) struct SharedWorkMemory {
    memory: Option<std::sync::Arc<Mapping>>,
}

impl WorkSpec {
    /// Creates what the members share.
    pub(crate) fn prepare_shared(self) -> Result<SharedWorkMemory, Error> {
        let memory = match self {
            Self::WorkingSet {
                bytes,
                order,
                sharing: MemorySharing::Shared,
            } => Some(working_set::shared(bytes, order)?),
            _ => None,
        };
        Ok(SharedWorkMemory { memory })
    }

    /// Creates the work of member number `member`. Call it in that member itself, which owns the
    /// memory.
    pub(crate) fn prepare(
        self,
        member: usize,
        shared: &SharedWorkMemory,
    ) -> Result<Box<dyn Work>, Error> {
        Ok(match self {
            Self::Nothing => Box::new(NoWork),
            Self::Registers { registers, ending } => {
                Box::new(registers::RegisterWork::new(registers, ending)?)
            }
            Self::WorkingSet {
                bytes,
                order,
                sharing,
            } => match (sharing, &shared.memory) {
                (MemorySharing::Shared, Some(memory)) => {
                    Box::new(working_set::walk_shared(memory, bytes))
                }
                (MemorySharing::Shared, None) => {
                    unreachable!("`prepare_shared` of the same work makes the memory")
                }
                (MemorySharing::Private, _) => {
                    Box::new(working_set::private(bytes, order, member)?)
                }
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

struct NoWork;

impl Work for NoWork {
    fn run(&mut self) {}
}

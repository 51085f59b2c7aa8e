//! What recorder and reader of stacks tell each other.

use serde::{Deserialize, Serialize};
use swtch_capture::LookRefusal;

/// Looks in one packet, of at most 120 bytes each.
pub const MOST_LOOKS: usize = 100;

/// Frames of a stack that are told; a packet holds them.
pub const MOST_FRAMES: usize = 256;

/// What the recorder asks for. The program that looks is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookOrders {
    /// The CPU time that the reader may use, in thousandths of one CPU.
    pub cpu_thousandths: u32,
}

/// What the reader has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackNews {
    /// A stack that was not met before.
    Stack(FoundStack),
    /// Threads that waited in stacks that were told before.
    Looks(Vec<FoundLook>),
    /// A process of which some stack is not read, told once for each reason.
    Refused(NotRead),
}

/// The reason for which stacks of a process are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NotRead {
    /// It belongs to another user than the one whom the recorder works for.
    OtherUser,
    /// It does not let its memory be read.
    NotDumpable,
    /// It is 32-bit code.
    Is32Bit,
    /// A thread's stack pointer points at no stack.
    NoStack,
}

impl NotRead {
    /// The reason, after "stacks of 3 processes were not read: ".
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::OtherUser => "owned by another user than the one who asked",
            Self::NotDumpable => "memory closed to others (prctl(2), PR_SET_DUMPABLE)",
            Self::Is32Bit => "32-bit code",
            Self::NoStack => "a stack pointer pointed at no memory of the program's own",
        }
    }
}

impl From<LookRefusal> for NotRead {
    fn from(refusal: LookRefusal) -> Self {
        match refusal {
            LookRefusal::OtherUser => Self::OtherUser,
            LookRefusal::NotDumpable => Self::NotDumpable,
            LookRefusal::Is32Bit => Self::Is32Bit,
            LookRefusal::NoStack => Self::NoStack,
        }
    }
}

/// The functions of a stack that have not returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundStack {
    /// Its number, from 0 on.
    pub number: u32,
    /// A process that had it.
    pub pid: u32,
    /// Addresses in code, the innermost first; each lies inside of its call.
    pub addresses: Vec<u64>,
}

/// A thread that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLook {
    /// The thread, by its key.
    pub task: u32,
    /// When it was looked at.
    pub ts: u64,
    /// The switch-out that its wait began with.
    pub out: u64,
    /// Number of its stack.
    pub stack: u32,
    /// The time since the look before, in ns.
    pub between: u64,
}

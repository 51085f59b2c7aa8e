//! What recorder and reader of stacks tell each other.

use serde::{Deserialize, Serialize};

/// Looks in one packet, of at most 90 bytes each.
pub const MOST_LOOKS: usize = 128;

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
    /// True if the last one is in the function that the thread began with.
    pub is_whole: bool,
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
}

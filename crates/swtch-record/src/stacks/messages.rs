//! What recorder and reader of stacks tell each other.

use serde::{Deserialize, Serialize};
use swtch_capture::{LookRefusal, ScriptPlace, UserFrame};

/// Looks in one packet, of at most 160 bytes each.
pub const MOST_LOOKS: usize = 100;

/// Places of workers in one packet, of at most 500 bytes each.
pub const MOST_WORKERS: usize = 30;

/// Frames of a stack that are told; a packet holds them.
pub const MOST_FRAMES: usize = 256;

/// What the recorder asks for. The program that looks is beside it, the map for copies of wakers, and that for copies of
/// large stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookOrders {
    /// The CPU time that the reader may use, in thousandths of one CPU.
    pub cpu_thousandths: u32,
    /// The number of copies of wakers that the map holds.
    pub waker_slots: u32,
    /// The number of large copies that the other map holds.
    pub deep_slots: u32,
}

/// What the reader has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackNews {
    /// A file with code that stacks name from now on. It is beside this, if it could be opened; else another process
    /// may open it, and it is told again.
    File(FoundFile),
    /// A stack that was not met before.
    Stack(FoundStack),
    /// A place in a program that an interpreter runs. Stacks name it from now on, by its number: that of those before.
    Script(ScriptPlace),
    /// A process lists the functions that it has compiled, in the file beside this.
    Compiled(u32),
    /// The same of the kernel.
    KernelStack(FoundKernelStack),
    /// Threads that waited, or ended waits, in stacks that were told before.
    Looks(Vec<FoundLook>),
    /// Workers of a runtime's scheduler that waited, in stacks that were told before.
    Workers(Vec<FoundWorkers>),
    /// A process of which some stack is not read, told once for each reason.
    Refused(NotRead),
    /// A runtime that is not read, in words; told once.
    UnknownRuntime(String),
    /// There are more distinct stacks than are kept, told once: waits in those that come later have no place.
    Full,
    /// The recorder sends nothing more, and all that was found is told.
    Done,
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

impl NotRead {
    /// The reason; `None` for a thread that has no user stack.
    pub const fn of(refusal: LookRefusal) -> Option<Self> {
        match refusal {
            LookRefusal::OtherUser => Some(Self::OtherUser),
            LookRefusal::NotDumpable => Some(Self::NotDumpable),
            LookRefusal::Is32Bit => Some(Self::Is32Bit),
            LookRefusal::NoStack => Some(Self::NoStack),
            LookRefusal::KernelThread => None,
        }
    }
}

/// A file with code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFile {
    /// Its number, from 0 on.
    pub number: u32,
    /// Its path where the process lives that maps it.
    pub path: String,
    /// True if it is beside this. A recorder that has no room for another open file does not get it all the same.
    pub is_beside: bool,
}

/// The functions of a stack that have not returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundStack {
    /// Its number, from 0 on.
    pub number: u32,
    /// A process that had it.
    pub pid: u32,
    /// The innermost first; each address lies inside of its call.
    pub frames: Vec<UserFrame>,
    /// Index of how they end, in [`swtch_core::StackEnd::ALL`].
    pub end: usize,
}

/// The functions of a kernel stack that have not returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundKernelStack {
    /// Its number, from 0 on.
    pub number: u32,
    /// The innermost first; each lies inside of its call.
    pub addresses: Vec<u64>,
}

/// Workers of a runtime's scheduler that waited at the same place, at a look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundWorkers {
    /// The process.
    pub pid: u32,
    /// When it was looked at.
    pub ts: u64,
    /// What they wait for, in the words of the runtime; `None` if they could run.
    pub reason: Option<String>,
    /// Number of their user stack.
    pub stack: Option<u32>,
    /// How many they are, in thousandths: of very many only some were read.
    pub thousandths: u64,
    /// The time since the look before, in ns.
    pub between: u64,
}

/// A thread that waited, or that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLook {
    /// The thread that waited, by its key.
    pub task: u32,
    /// When it was looked at, or when the wait was ended.
    pub ts: u64,
    /// The switch-out that the wait began with.
    pub out: u64,
    /// Number of the user stack, if it was read.
    pub user: Option<u32>,
    /// Number of the kernel stack.
    pub kernel: Option<u32>,
    /// The time since the look before, in ns; `None` if the stacks are those of who ended the wait.
    pub between: Option<u64>,
    /// Number of the stack of who held what the thread waited for.
    pub holder: Option<u32>,
}

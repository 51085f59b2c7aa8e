//! Rows that only a trace has: names of cgroups, command lines, wait types, stacks and frames. The
//! other rows are defined in `swtch-core`.

use swtch_core::{CgroupId, Pid, Timestamp};

/// Place of a cgroup in the hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupRow {
    /// The cgroup, by the inode number of its directory.
    pub cgroup: CgroupId,
    /// Path from the root of its hierarchy.
    pub path: String,
}

/// The command line of a process at one moment; a program may change it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandRow {
    /// When it was read, on the trace clock.
    pub ts: Timestamp,
    /// The process that had this command line.
    pub pid: Pid,
    /// The words of the command line, separated by spaces.
    pub command: String,
}

/// A type of wait in a user-mode scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitTypeRow {
    /// Number of the wait type, used in the columns `wait_type` and `off_wait_type`.
    pub wait_type: u16,
    /// Name of the wait type, as the scheduler reports it.
    pub name: String,
}

/// The part of a stack that frames belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StackKind {
    /// Frames of code in the kernel.
    #[default]
    Kernel,
    /// Frames of code in the process.
    User,
}

impl StackKind {
    /// Both kinds, in the order of their numbers in a trace.
    pub const ALL: &'static [Self] = &[Self::Kernel, Self::User];

    /// The word used in columns.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }

    /// What the word means, in one line.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Kernel => "frames in the kernel",
            Self::User => "frames in the process",
        }
    }

    /// The kind with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == word)
    }

    /// Index of this kind in [`Self::ALL`], from 0.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One distinct stack, as a list of frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackRow {
    /// Number of the stack, used in the columns `off_kernel_stack` and `off_user_stack`.
    pub stack: u32,
    /// Whether the frames are the kernel's or the process's.
    pub kind: StackKind,
    /// The process whose addresses these are; `None` for a kernel stack.
    pub pid: Option<Pid>,
    /// Numbers of the frames, the innermost (leaf) first.
    pub frames: Vec<u32>,
}

/// One distinct frame. Fields that symbolisation could not fill are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameRow {
    /// Number of the frame, used in `stack.frames`.
    pub frame: u32,
    /// Address in the address space where it was seen.
    pub address: u64,
    /// Name of the function, where symbolisation found one.
    pub symbol: Option<String>,
    /// Name of the executable, library or kernel module.
    pub module: Option<String>,
    /// Distance from the start of the function, in bytes.
    pub offset: Option<u64>,
    /// Source file of the function's code.
    pub file: Option<String>,
    /// Line in the source file, from 1.
    pub line: Option<u32>,
}

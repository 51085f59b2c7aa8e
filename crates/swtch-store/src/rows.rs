//! Rows that only a trace has: names of cgroups, command lines, stacks and frames. The others are
//! `swtch-core`'s.

use swtch_core::{CgroupId, Pid, Timestamp};

/// Where a cgroup is in the hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupRow {
    /// The cgroup.
    pub cgroup: CgroupId,
    /// Its path, from the root of its hierarchy.
    pub path: String,
}

/// The command line of a process, as it was at a moment: a program may change it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandRow {
    /// When it was read.
    pub ts: Timestamp,
    /// The process.
    pub pid: Pid,
    /// Its words, with spaces between them.
    pub command: String,
}

/// What tasks of user-mode schedulers wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitTypeRow {
    /// Its number, which the `wait_type` and `off_wait_type` columns hold.
    pub wait_type: u16,
    /// Its name, as the scheduler says it.
    pub name: String,
}

/// Which part of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StackKind {
    /// In the kernel.
    #[default]
    Kernel,
    /// In the process.
    User,
}

impl StackKind {
    /// Both, in the order of their numbers in a trace.
    pub const ALL: &'static [Self] = &[Self::Kernel, Self::User];

    /// The word used in columns.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }

    /// What it means, in one line.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Kernel => "frames in the kernel",
            Self::User => "frames in the process",
        }
    }

    /// The one with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == word)
    }

    /// Its place in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One distinct stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackRow {
    /// Its number, which the `off_kernel_stack` and `off_user_stack` columns hold.
    pub stack: u32,
    /// Which part.
    pub kind: StackKind,
    /// The process whose addresses these are; `None` for a kernel stack.
    pub pid: Option<Pid>,
    /// Frames, the innermost (leaf) first.
    pub frames: Vec<u32>,
}

/// One distinct frame. What symbolisation could not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameRow {
    /// Its number, which `stack.frames` holds.
    pub frame: u32,
    /// Address in the address space that it was seen in.
    pub address: u64,
    /// Function.
    pub symbol: Option<String>,
    /// Executable, library or kernel module.
    pub module: Option<String>,
    /// Distance from the start of the function, in bytes.
    pub offset: Option<u64>,
    /// Source file.
    pub file: Option<String>,
    /// Line in it.
    pub line: Option<u32>,
}

//! A load that is described, not programmed: groups of tasks, and what each task does.
//!
//! ```text
//!  Load ──play──▶ members start, meet at the barrier, do their body ──▶ Played: who began and ended
//!  (plain data)        threads or processes, each where it was put           when, and what the kernel
//!                                                                            counted for it
//! ```
//!
//! `check` refuses what cannot be played, `play` starts the members and waits, `member` is what each
//! does, `program` its body as a flat list of instructions. `stage` is all that is there before they
//! start: `desk`, the memory that they share, and `props`, what they take from each other (`lock`,
//! `event`, `ring`). `overdue` says who waits for what when a load does not end.
//!
//! The texts that people write are read elsewhere (`swtch lab run FILE`); here everything is known
//! and checked. What it does *not* do: record, or judge what came of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swtch_core::cost::Members;
use swtch_core::{Nanos, Pid, Tid};

mod check;
mod child_ends;
mod desk;
mod event;
mod gap;
mod kernel;
mod lock;
mod member;
mod overdue;
mod place;
mod places;
mod play;
mod program;
mod props;
mod ring;
mod stage;

pub use check::{At, Fault};
pub use event::EventKind;
pub use gap::Gap;
pub use kernel::{Kernel, calibrate};
pub use lock::LockKind;
pub use places::Places;
pub use ring::{RingKind, RingSpec};

/// Tasks that start together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The groups.
    pub groups: Vec<Group>,
    /// Locks that are not of the first kind ([`LockKind::Mutex`]).
    #[serde(default)]
    pub locks: BTreeMap<String, LockKind>,
    /// Events that are not of the first kind ([`EventKind::Condition`]).
    #[serde(default)]
    pub events: BTreeMap<String, EventKind>,
    /// Rings that are not of the first kind, or have more than one token.
    #[serde(default)]
    pub rings: BTreeMap<String, RingSpec>,
    /// A load that is not done after this long is ended, and its error says who waits for what.
    pub limit: Nanos,
}

/// Tasks that do the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Members are called `NAME-0`, `NAME-1` …; the kernel keeps 15 bytes.
    pub name: String,
    /// Threads of one process, or processes.
    pub members: Members,
    /// How many.
    pub count: u32,
    /// Where they may run.
    pub cpus: Cpus,
    /// How the scheduler treats them.
    pub class: Class,
    /// The slice they ask for (`sched_setattr`, Linux 6.12 and later).
    pub slice: Option<Nanos>,
    /// What each does.
    pub body: Vec<Step>,
}

/// Where the members of a group may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cpus {
    /// Wherever the load may.
    Free,
    /// Member i on the i-th of these, and again from the first when they are used up. One CPU for all
    /// is a list of one.
    Dealt(Vec<u32>),
}

/// How the scheduler treats a task (`sched(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// `SCHED_OTHER` of this nice value.
    Other {
        /// From −20 to 19.
        nice: i32,
    },
    /// `SCHED_BATCH` of this nice value.
    Batch {
        /// From −20 to 19.
        nice: i32,
    },
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_FIFO`.
    Fifo {
        /// From 1 to 99.
        priority: u32,
    },
    /// `SCHED_RR`.
    RoundRobin {
        /// From 1 to 99.
        priority: u32,
    },
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other { nice } => write!(f, "SCHED_OTHER with nice {nice}"),
            Self::Batch { nice } => write!(f, "SCHED_BATCH with nice {nice}"),
            Self::Idle => write!(f, "SCHED_IDLE"),
            Self::Fifo { priority } => write!(f, "SCHED_FIFO with priority {priority}"),
            Self::RoundRobin { priority } => write!(f, "SCHED_RR with priority {priority}"),
        }
    }
}

/// One thing that a member does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Runs a loop that touches no memory.
    Spin {
        /// Which loop.
        kernel: Kernel,
        /// How many times round.
        iterations: u64,
    },
    /// Does the steps so many times.
    Repeat {
        /// How many times.
        times: u64,
        /// The steps.
        body: Vec<Self>,
    },
    /// Waits until nobody has the lock of this name, and has it.
    Lock(String),
    /// Gives it back.
    Unlock(String),
    /// Takes one from the count of the event of this name, and waits while it is 0.
    Wait(String),
    /// Adds one to the count.
    Signal(String),
    /// Waits for a token of the ring of this name.
    Take(String),
    /// Hands it to the next member of the ring.
    Pass(String),
    /// Sleeps so long, by a timer.
    Sleep(Nanos),
    /// Reads the clock again and again for so long, and keeps the longest gaps between two readings.
    Watch(Nanos),
    /// Calls `sched_yield`.
    Yield,
    /// Reads so many bytes of a file, on from where it was, and again from the start at its end.
    Read {
        /// Which file. It is opened before the barrier.
        path: PathBuf,
        /// How many bytes.
        bytes: u64,
    },
    /// Goes through memory of its own once, and changes a byte at every stride.
    Touch {
        /// How much memory. It is there, and holds something, before the barrier.
        bytes: u64,
        /// How far apart the bytes are.
        stride: u64,
    },
}

/// What came of a load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Played {
    /// When all were let go: ns of `CLOCK_MONOTONIC`, the clock of traces.
    pub started_ns: u64,
    /// Everybody, in the order of the groups.
    pub members: Vec<PlayedMember>,
    /// What was asked for and could not be had: a priority, say.
    pub notes: Vec<String>,
}

/// What came of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlayedMember {
    /// Index of its group.
    pub group: usize,
    /// Its number in the group.
    pub index: u32,
    /// Its process.
    pub pid: Pid,
    /// Its thread.
    pub tid: Tid,
    /// The CPU that it was put on.
    pub cpu: Option<u32>,
    /// When it began its body: ns of `CLOCK_MONOTONIC`.
    pub began_ns: u64,
    /// When it had done it.
    pub ended_ns: u64,
    /// CPU time that its body took.
    pub cpu_time: Nanos,
    /// Switches while it did its body, as the kernel counted them (`getrusage(2)`).
    pub voluntary: u64,
    /// The same, not of its own will.
    pub involuntary: u64,
    /// The longest gaps that its [`Step::Watch`] saw, in order of time.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

impl Load {
    /// How long a load may take when nobody says.
    pub const LIMIT: Nanos = Nanos::from_ns(60_000_000_000);

    /// A load with locks, events and rings of the first kind, and the usual limit.
    pub const fn of(groups: Vec<Group>) -> Self {
        Self {
            groups,
            locks: BTreeMap::new(),
            events: BTreeMap::new(),
            rings: BTreeMap::new(),
            limit: Self::LIMIT,
        }
    }

    fn limit(&self) -> Duration {
        Duration::from_nanos(self.limit.as_ns())
    }
}

impl Group {
    /// What the kernel calls its member of this number.
    pub fn name_of(&self, index: u32) -> String {
        format!("{}-{index}", self.name)
    }
}

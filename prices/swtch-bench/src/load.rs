//! A load that is described as data, not programmed: groups of tasks, and the steps of each task.
//!
//! ```text
//!  Load ──play──▶ members start, meet at the barrier, run their body ──▶ LoadResults: when each
//!  (plain data)   threads or processes, each on its CPU                  began and ended, and what
//!                                                                        the kernel counted for it
//! ```
//!
//! `check` refuses loads that cannot run, `play` starts the members and waits, `member` is the life
//! of one member, `program` its body, a flat list of `instructions`. `state` holds what exists
//! before the members start: `control`, the memory that they share, and `resources`, the objects
//! they wait for (`lock`, `event`, `ring`). `overdue` reports what each member waits for when a
//! load does not end.
//!
//! The crate `swtch-lab` reads the text format of loads (`swtch lab run FILE`); here a load is
//! plain data, checked before it runs. What this module does *not* do: record, or judge the
//! results.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swtch_core::cost::Members;
use swtch_core::{Nanos, Pid, Tid};

mod calibrate;
mod check;
mod child_ends;
mod control;
mod event;
mod gap;
mod instructions;
mod lock;
mod member;
mod overdue;
mod place;
mod play;
mod program;
mod resources;
mod ring;
mod state;
mod usable_cpus;

pub use crate::arch::ChainOperation;
pub use calibrate::calibrate;
pub use check::{Fault, LoadPart};
pub use event::EventKind;
pub use gap::ClockGap;
pub use lock::LoadLockKind;
pub use ring::{LoadRingSpec, RingKind};
pub use usable_cpus::UsableCpus;

/// A load: groups of tasks that start together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The groups; other types refer to them by index.
    pub groups: Vec<Group>,
    /// Kinds of locks by name; a lock that is not listed is a [`LoadLockKind::Mutex`].
    #[serde(default)]
    pub locks: BTreeMap<String, LoadLockKind>,
    /// Kinds of events by name; an event that is not listed is an [`EventKind::Condition`].
    #[serde(default)]
    pub events: BTreeMap<String, EventKind>,
    /// Rings by name; a ring that is not listed is a default [`LoadRingSpec`].
    #[serde(default)]
    pub rings: BTreeMap<String, LoadRingSpec>,
    /// A load that takes longer is ended, and its error says what each member waits for.
    pub limit: Nanos,
}

/// A group: tasks with the same description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Name of the group. Members are called `NAME-0`, `NAME-1` …; the kernel keeps 15 bytes.
    pub name: String,
    /// Threads of one process, or processes.
    pub members: Members,
    /// Number of members, at least 1.
    pub count: u32,
    /// The CPUs that the members may run on.
    pub cpus: Cpus,
    /// Scheduling policy with its nice value or priority.
    pub class: Class,
    /// The slice they request (`sched_setattr`, Linux 6.12 and later).
    pub slice: Option<Nanos>,
    /// The steps that each member does, in order.
    pub body: Vec<Step>,
}

/// The CPUs on which the members of a group may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cpus {
    /// On any CPU that the load may use.
    Free,
    /// Member i runs on the i-th of these CPUs, starting over when the list is exhausted. A list of
    /// one CPU pins all members to it.
    Dealt(Vec<u32>),
}

/// Scheduling policy of a task (`sched(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// `SCHED_OTHER` with a nice value.
    Other {
        /// Nice value, from −20 to 19.
        nice: i32,
    },
    /// `SCHED_BATCH` with a nice value.
    Batch {
        /// Nice value, from −20 to 19.
        nice: i32,
    },
    /// `SCHED_IDLE`, below every nice value.
    Idle,
    /// `SCHED_FIFO`, a real-time policy without time slices.
    Fifo {
        /// Real-time priority, from 1 to 98 ([`Load::check`]).
        priority: u32,
    },
    /// `SCHED_RR`, a real-time policy with time slices.
    RoundRobin {
        /// Real-time priority, from 1 to 98 ([`Load::check`]).
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

/// One step of a member's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Runs a loop that touches no memory.
    Spin {
        /// The loop that is run.
        kernel: ChainOperation,
        /// Number of iterations of the loop.
        iterations: u64,
    },
    /// Repeats a list of steps.
    Repeat {
        /// The number of times that the steps are repeated; 0 skips them.
        times: u64,
        /// The steps that are repeated.
        body: Vec<Self>,
    },
    /// Acquires the lock of this name; blocks while another member holds it.
    Lock(String),
    /// Releases the lock of this name, which the member holds.
    Unlock(String),
    /// Takes one from the count of the event of this name; blocks while it is 0.
    Wait(String),
    /// Adds one to the count of the event of this name.
    Signal(String),
    /// Waits for a token of the ring of this name.
    Take(String),
    /// Hands the token to the next member of the ring.
    Pass(String),
    /// Sleeps for this time, by a timer.
    Sleep(Nanos),
    /// Reads the clock repeatedly for this time, and keeps the longest gaps between two readings.
    Watch(Nanos),
    /// Calls `sched_yield`, which need not cause a switch.
    Yield,
    /// Reads from a file, continuing where the last read ended, and from the start again after its
    /// end.
    Read {
        /// Path of the file, which is opened before the barrier.
        path: PathBuf,
        /// Number of bytes to read.
        bytes: u64,
    },
    /// Goes through the member's own memory once, and changes a byte at every stride.
    Touch {
        /// Bytes of memory, allocated and written before the barrier.
        bytes: u64,
        /// Distance between changed bytes, from 1 to `bytes`.
        stride: u64,
    },
}

/// The results of a load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadResults {
    /// The moment at which all were released: ns of `CLOCK_MONOTONIC`, the clock of traces.
    pub started_ns: u64,
    /// All members, in the order of the groups.
    pub members: Vec<PlayedMember>,
    /// Requests that were not granted, such as a real-time priority, as text.
    pub notes: Vec<String>,
}

/// The results of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlayedMember {
    /// Index of its group in [`Load::groups`].
    pub group: usize,
    /// Its number within the group, from 0.
    pub index: u32,
    /// Process id of the member.
    pub pid: Pid,
    /// Thread id of the member.
    pub tid: Tid,
    /// The CPU that it was pinned to; `None` if it was free.
    pub cpu: Option<u32>,
    /// The moment at which it began its body: ns of `CLOCK_MONOTONIC`.
    pub began_ns: u64,
    /// The moment at which it had finished its body, on the same clock.
    pub ended_ns: u64,
    /// CPU time that its body used.
    pub cpu_time: Nanos,
    /// Voluntary switches during its body, as the kernel counted them (`getrusage(2)`).
    pub voluntary: u64,
    /// Involuntary switches during its body, counted likewise.
    pub involuntary: u64,
    /// The longest gaps that its [`Step::Watch`] steps saw, in order of time.
    #[serde(default)]
    pub gaps: Vec<ClockGap>,
}

impl Load {
    /// The usual limit of a load: 60 s.
    pub const LIMIT: Nanos = Nanos::from_ns(60_000_000_000);

    /// A load with locks, events and rings of the default kinds, and the usual limit.
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
    /// The thread name of the member with this number.
    pub fn name_of(&self, index: u32) -> String {
        format!("{}-{index}", self.name)
    }
}

//! The plan of a session and what it finds, as plain data.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use swtch_core::units::Nanos;

use super::arm::ArmSpec;
use super::work::LiveRegisters;
use crate::outcome::SwitchCounts;

/// A plan: arms that are timed side by side, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The arms; other types refer to them by index.
    pub arms: Vec<ArmSpec>,
    /// Timed operations that are left out, as (arm, timed operation). It saves time: a ring's hot
    /// baseline takes as long as the ring.
    pub unneeded: Vec<(usize, usize)>,
    /// The CPU of the driver and of arms that name none; `None` leaves both free.
    pub cpu: Option<u32>,
    /// Approximate length of a block. 1 ms is best; longer blocks pick up other noise.
    pub block: Duration,
    /// Largest number of rounds in one process tree.
    pub rounds: usize,
    /// Rounds that are completed even after `limit` has passed.
    pub least_rounds: usize,
    /// Time after which a process tree ends although rounds are left.
    pub limit: Duration,
}

/// One block of one timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Number of the round, from 0.
    pub round: usize,
    /// Index of the arm in [`Plan::arms`].
    pub arm: usize,
    /// Index of the timed operation within its arm ([`ArmSpec`] says what each is).
    pub timed_operation: usize,
    /// Number of operations that were timed.
    pub operations: u64,
    /// Wall time of all these operations.
    pub elapsed: Nanos,
    /// Switches of all members over exactly [`Self::counted_over`] operations, as the kernel
    /// counted them. For a ring of locks in which nobody should be preempted, the involuntary ones
    /// are those of the whole block.
    pub counted: SwitchCounts,
    /// The timed operations; for a ring of locks also those around them, because reading the
    /// counters of many threads would be part of the time.
    pub counted_over: u64,
    /// Registers of all members that were live at the hand-overs, for work that touches registers.
    pub live: Option<LiveRegisters>,
}

/// One measurement of the machine's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentinel {
    /// Number of the round, from 0.
    pub round: usize,
    /// Time of a fixed loop in user mode.
    pub user: Nanos,
    /// Time of a hundred system calls that do nothing.
    pub calls: Nanos,
}

/// The reason why a process tree ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All rounds of the plan were done.
    Done,
    /// The plan's limit of time was reached.
    Limit,
    /// The caller asked to stop.
    Stopped,
}

/// An arm that this machine cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingArm {
    /// Index of the arm in [`Plan::arms`].
    pub arm: usize,
    /// The reason, in the words of the failed member if it gave one.
    pub why: String,
}

/// The results of one new process tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// All blocks, in the order in which they were performed.
    pub samples: Vec<Sample>,
    /// All readings of the sentinel, in order.
    pub sentinels: Vec<Sentinel>,
    /// Arms that could not be started.
    pub missing: Vec<MissingArm>,
    /// True if the sentinel was steady before the first round.
    pub was_steady: bool,
    /// The reason why the tree ended.
    pub ended: Ended,
}

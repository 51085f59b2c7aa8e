//! Measures the cost of switches: tasks that hand a turn to each other, and the parts of a
//! hand-over.
//!
//! ```text
//! caller              driver: one process, one CPU         leaders: a process for each arm
//! Plan::time ─fork──▶ rounds: every timed operation    ──▶ block(n)       ring ↔ peers
//!    ◀──samples────── once, in the order of a Latin    ◀── ns, switches   alone (hot baseline)
//!                     square, and a sentinel
//! ```
//!
//! All arms of a session exist side by side, each blocked until its turn, so that any two can be
//! compared block by block. A session is repeated in new process trees, because the placement of
//! memory is part of the noise. `swtch_core::cost` decides what the samples mean.

mod arm;
mod control_block;
mod coroutine;
mod counted_event;
mod driver;
mod follower;
mod goroutine;
mod groups;
pub mod injection;
mod instructions;
mod launch;
mod leader;
mod message;
mod mitigation;
mod placement;
mod plan;
mod relay;
mod ring;
mod ring_spec;
mod session;
mod tails;
mod timed_operation;
mod topology;
mod uncontended;
mod work;
mod yardstick;

pub use crate::arch::ExtendedRegisters;
pub use arm::ArmSpec;
pub use coroutine::Coroutine;
pub use groups::RingCgroups;
pub use instructions::{InstructionRate, instruction_rate};
pub use launch::{LaunchEnd, Launcher};
pub use mitigation::{Mitigation, MitigationSpec, Protected};
pub use plan::{Ended, MissingArm, Plan, Sample, Sentinel, Tree};
pub use ring_spec::RingSpec;
pub use tails::{Tails, passes_a_turn, tails};
pub use topology::{Neighbour, check_cpu, home, may_use_fifo, neighbours};
pub use uncontended::Uncontended;
pub use work::{
    LiveRegisters, MemorySharing, Order, PageSize, PatternSharing, RegisterEnding, WorkSpec,
};
pub use yardstick::Yardstick;

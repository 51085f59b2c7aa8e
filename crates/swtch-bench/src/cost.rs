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

pub(crate) mod act;
mod arm;
mod coroutine;
mod groups;
mod instructions;
mod launch;
mod leader;
mod lock;
mod lock_ring;
mod mitigation;
mod relay;
mod ring;
mod runtime;
mod session;
mod stage;
mod tails;
mod topology;
mod uncontended;
mod work;
mod yardstick;

pub use crate::arch::ExtendedRegisters;
pub use arm::{ArmSpec, RingSpec};
pub use coroutine::Coroutine;
pub use groups::RingCgroups;
pub use instructions::{InstructionRate, instruction_rate};
pub use launch::{LaunchEnd, Launcher};
pub use lock::LockKind;
pub use lock_ring::{HandOver, LockRingSpec, Observed, Violation, observe, order_violation};
pub use mitigation::{Mitigation, MitigationSpec, Protected};
pub use runtime::LanguageRuntime;
pub use session::{Ended, MissingArm, Plan, Sample, Sentinel, Tree};
pub use tails::{Tails, passes_a_turn, tails};
pub use topology::{Neighbour, check_cpu, home, may_use_fifo, neighbours};
pub use uncontended::Uncontended;
pub use work::{LiveRegisters, MemorySharing, Order, PageSize, Patterns, RegisterEnding, WorkSpec};
pub use yardstick::Yardstick;

//! Recording: from the kernel's rings, or its counters, to a trace or a first answer.
//!
//! - [`record`]: `swtch record`, one pipeline from the rings to the trace,.
//! - [`counters`]: the kernel's own counters, where recording is not allowed (`--backend proc`).
//! - [`dump`]: `swtch dump`, which asks a flight recorder for what it has.
//!
//! What it does not do: explain. The tables and verdicts of a trace are made by `swtch-report`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod counters;
pub mod dump;
mod helper;
mod packets;
pub mod record;
pub mod stacks;

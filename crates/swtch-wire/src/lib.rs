//! Reads again what a recorder kept: bytes of the rings become events. Pure: no kernel, no file, no clock.
//!
//! ```text
//! eBPF programs ─bytes─▶ records ─layout, decode─▶ Event
//! perf events   ─bytes─▶ perf_record ─PerfRecord─▶ perf_threads ─▶ Event
//! ```
//!
//! - [`layout`] has the records of the eBPF programs as Rust sees them. The crate that records checks,
//!   when it is compiled, that they are those of its `bpf/record.h`.
//! - `decode` is the only file that reads their fields; `records` finds them in bytes.
//! - `perf_record` and `perf_threads` do the same for what perf events say.
//! - `living` keeps the newest record of each task that lives.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod decode;
pub mod layout;
mod living;
mod perf_record;
mod perf_threads;
mod records;

pub use decode::stack_numbers;
pub use living::LivingTasks;
pub use perf_record::{KERNEL_SWITCH_BYTES, PerfRecord, PerfRecordKind, decode_perf_records};
pub use perf_threads::PerfThreads;
pub use records::{
    READABLE_WIRES, RawKind, SwitchPeek, WIRE_VERSION, cgroups_of, decode_records, decode_tasks,
    peek_switches,
};

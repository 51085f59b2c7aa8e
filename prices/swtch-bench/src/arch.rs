//! Instructions that exist on one architecture only: they put vector registers into a known state,
//! read which registers are in use, and tell what the CPU offers for switching between address
//! spaces.
//!
//! Each architecture has one file for this and one for the loops of `chain`, with the same
//! functions in the same order.
//!
//! ```text
//! leave_live      clear │ touch │ hand over      the kernel has to save what was touched
//! leave_cleared   touch │ clear │ hand over      the same instructions, nothing to save
//! ```
//!
//! Both do the same work, so the difference between a ring with the one and a ring with the other
//! is the cost of the state alone. Subtracting a baseline would not do: clearing costs time, and
//! how much depends on the state.

use serde::{Deserialize, Serialize};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
#[path = "arch/chain_aarch64.rs"]
mod chain;
#[cfg(target_arch = "x86_64")]
#[path = "arch/chain_x86_64.rs"]
mod chain;
mod chain_operation;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::{
    has_address_space_ids, is_guest, is_supported, live_components, save_area_bytes, ticks,
    ticks_per_second,
};
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{leave_cleared, leave_live, permit};

#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    has_address_space_ids, is_guest, is_supported, live_components, save_area_bytes, ticks,
    ticks_per_second,
};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{leave_cleared, leave_live, permit};

pub use chain_operation::ChainOperation;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("swtch-bench knows the registers of x86_64 and aarch64 only");

/// Register state beyond the general registers. Each variant includes all earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExtendedRegisters {
    /// No extended register is in use.
    Init,
    /// The 128-bit vector registers (SSE).
    Sse,
    /// The 256-bit vector registers (AVX2).
    Avx2,
    /// The 512-bit vector registers, sixteen further vector registers, and the mask registers.
    Avx512,
    /// The tile registers of AMX.
    Amx,
}

impl ExtendedRegisters {
    /// All states, from the least to the most.
    pub const ALL: [Self; 5] = [Self::Init, Self::Sse, Self::Avx2, Self::Avx512, Self::Amx];
}

/// Size of the memory that a task's extended registers are saved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveArea {
    /// Bytes with room for every component that the operating system has enabled.
    pub standard_bytes: u32,
    /// Bytes without the gaps, as the kernel saves it; `None` if the CPU lacks the compacted
    /// format.
    pub compact_bytes: Option<u32>,
}

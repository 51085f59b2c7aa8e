//! What only the instructions of one architecture can do or say: put registers into a state, read
//! which of them are in use, and what the CPU offers for switching between address spaces.
//!
//! One file per architecture with the same functions in the same order.
//!
//! ```text
//! leave_live      clear │ touch │ hand over      the kernel has to save what was touched
//! leave_cleared   touch │ clear │ hand over      the same instructions, nothing to save
//! ```
//!
//! Both do the same work, so the difference of their rings is the state's alone: a baseline that is
//! subtracted would not do, because clearing is not free and what it costs depends on the state.

use serde::{Deserialize, Serialize};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
#[path = "arch/chain_aarch64.rs"]
mod chain;
#[cfg(target_arch = "x86_64")]
#[path = "arch/chain_x86_64.rs"]
mod chain;
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

pub(crate) use chain::chain;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("swtch-bench knows the registers of x86_64 and aarch64 only");

/// Register state beyond the general registers, each with all that come before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Registers {
    /// None of it.
    Init,
    /// 128-bit vectors.
    Sse,
    /// 256-bit vectors.
    Avx2,
    /// 512-bit vectors, the sixteen more of them, and masks.
    Avx512,
    /// Tiles.
    Amx,
}

impl Registers {
    /// All, from the least state to the most.
    pub const ALL: [Self; 5] = [Self::Init, Self::Sse, Self::Avx2, Self::Avx512, Self::Amx];
}

/// Size of the memory that a task's extended registers are saved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveArea {
    /// All that the operating system has enabled, each at its place.
    pub standard_bytes: u32,
    /// The same without the gaps, as the kernel saves it; `None` where the CPU cannot.
    pub compact_bytes: Option<u32>,
}

//! AArch64: the vectors are always saved, since they have no initial state that the CPU tracks
//! (`arch/arm64/kernel/fpsimd.c`), so there is no ladder of states to measure here. The rest is
//! what EL0 may read.

use std::arch::asm;

use super::{Registers, SaveArea};
use crate::error::Error;

/// Whether there is such a state here: only the plain one.
pub fn is_supported(registers: Registers) -> bool {
    registers == Registers::Init
}

/// Nothing has to be asked for.
pub(crate) fn permit(_registers: Registers) -> Result<(), Error> {
    Ok(())
}

/// Nothing: the plain state has nothing to write.
pub(crate) fn leave_live(_registers: Registers) {}

/// As [`leave_live`].
pub(crate) fn leave_cleared(_registers: Registers) {}

/// `None`: the CPU does not say which registers are in use.
#[inline]
pub fn live_components() -> Option<u64> {
    None
}

/// `None`: the kernel's `user_fpsimd_state` (528 bytes) is not asked from the CPU, and SVE's size
/// depends on the task.
pub fn save_area_bytes() -> Option<SaveArea> {
    None
}

/// ASIDs are part of the architecture.
pub fn has_address_space_ids() -> Option<bool> {
    Some(true)
}

/// `None`: EL0 cannot tell.
pub fn is_guest() -> Option<bool> {
    None
}

/// The virtual counter. It is far slower than the CPU's clock.
#[inline]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: Linux lets EL0 read the virtual counter.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Its rate.
pub fn ticks_per_second() -> Option<u64> {
    let rate: u64;
    // SAFETY: as readable as the counter itself.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) rate, options(nomem, nostack, preserves_flags)) };
    Some(rate)
}

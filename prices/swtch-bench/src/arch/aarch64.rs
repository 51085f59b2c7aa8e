//! AArch64. The kernel always saves the vector registers, since the CPU does not track an initial
//! state for them (`arch/arm64/kernel/fpsimd.c`). So there are no register states to compare here,
//! and the other functions return what EL0 may read.

use std::arch::asm;

use super::{ExtendedRegisters, SaveArea};
use crate::error::Error;

/// Returns true if this register state can be measured here: only the plain one can.
pub fn is_supported(registers: ExtendedRegisters) -> bool {
    registers == ExtendedRegisters::Init
}

/// Succeeds without asking: no register state needs a permission.
pub(crate) fn permit(_registers: ExtendedRegisters) -> Result<(), Error> {
    Ok(())
}

/// Does nothing: the plain state has no register to write.
pub(crate) fn leave_live(_registers: ExtendedRegisters) {}

/// Does nothing either, as [`leave_live`].
pub(crate) fn leave_cleared(_registers: ExtendedRegisters) {}

/// `None`: the CPU does not say which registers are in use.
#[inline]
pub fn live_components() -> Option<u64> {
    None
}

/// `None`: the CPU does not report the size. The kernel's `user_fpsimd_state` has 528 bytes, and
/// the size of the SVE state depends on the task.
pub fn save_area_bytes() -> Option<SaveArea> {
    None
}

/// Always `Some(true)`: ASIDs are part of the architecture.
pub fn has_address_space_ids() -> Option<bool> {
    Some(true)
}

/// `None`: EL0 cannot tell whether it runs in a guest.
pub fn is_guest() -> Option<bool> {
    None
}

/// Reads the virtual counter, which ticks far more slowly than the CPU's clock.
#[inline]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: Linux lets EL0 read the virtual counter.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Rate of the virtual counter (`cntfrq_el0`), in Hz.
pub fn ticks_per_second() -> Option<u64> {
    let rate: u64;
    // SAFETY: as readable as the counter itself.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) rate, options(nomem, nostack, preserves_flags)) };
    Some(rate)
}

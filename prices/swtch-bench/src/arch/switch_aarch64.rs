//! Switches from one stack to another, AArch64.
//!
//! A caller expects a function to preserve x19 to x29, the lower halves of v8 to v15 and the stack
//! pointer (AAPCS64, 6.1). FPCR belongs to the thread; the second variant saves it per stack, to
//! measure what that costs.
//!
//! ```text
//! saved stack pointer ─▶ [FPCR, unused]  only in the second variant
//!                        x19 … x28, x29 (frame), x30 (where to go on), d8 … d15
//! ```

use std::arch::naked_asm;
use std::ptr;

/// The function that a coroutine starts with. It must not return.
pub(crate) type Entry = unsafe extern "C" fn(*mut ()) -> !;

/// Words of a saved stack: 12 integer and 8 floating-point registers.
const WORDS: usize = 20;

/// Saves the callee-saved registers on this stack, stores the stack pointer in `save`, and
/// continues on the stack `load`. Returns when some code switches back.
///
/// # Safety
///
/// `save` must be writable. `load` must have been saved by this function or made by
/// [`init_stack_frame`], must not have been resumed since, and its stack must still be mapped.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch_registers(save: *mut *mut u8, load: *mut u8) {
    naked_asm!(
        "stp x19, x20, [sp, #-160]!",
        "stp x21, x22, [sp, #16]",
        "stp x23, x24, [sp, #32]",
        "stp x25, x26, [sp, #48]",
        "stp x27, x28, [sp, #64]",
        "stp x29, x30, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mov x9, sp",
        "str x9, [x0]",
        "mov sp, x1",
        "ldp x21, x22, [sp, #16]",
        "ldp x23, x24, [sp, #32]",
        "ldp x25, x26, [sp, #48]",
        "ldp x27, x28, [sp, #64]",
        "ldp x29, x10, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "ldp x19, x20, [sp], #160",
        // Not `ret`: the CPU's return-address predictor holds the return address of this call, so
        // every `ret` would be mispredicted.
        "br x10",
    )
}

/// As [`switch_registers`], but saves FPCR too.
///
/// # Safety
///
/// As for [`switch_registers`], with a stack from [`init_stack_frame_with_float_control`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch_registers_and_float_control(
    save: *mut *mut u8,
    load: *mut u8,
) {
    naked_asm!(
        "stp x19, x20, [sp, #-160]!",
        "stp x21, x22, [sp, #16]",
        "stp x23, x24, [sp, #32]",
        "stp x25, x26, [sp, #48]",
        "stp x27, x28, [sp, #64]",
        "stp x29, x30, [sp, #80]",
        "stp d8, d9, [sp, #96]",
        "stp d10, d11, [sp, #112]",
        "stp d12, d13, [sp, #128]",
        "stp d14, d15, [sp, #144]",
        "mrs x9, fpcr",
        "str x9, [sp, #-16]!",
        "mov x9, sp",
        "str x9, [x0]",
        "mov sp, x1",
        "ldr x9, [sp], #16",
        "msr fpcr, x9",
        "ldp x21, x22, [sp, #16]",
        "ldp x23, x24, [sp, #32]",
        "ldp x25, x26, [sp, #48]",
        "ldp x27, x28, [sp, #64]",
        "ldp x29, x10, [sp, #80]",
        "ldp d8, d9, [sp, #96]",
        "ldp d10, d11, [sp, #112]",
        "ldp d12, d13, [sp, #128]",
        "ldp d14, d15, [sp, #144]",
        "ldp x19, x20, [sp], #160",
        "br x10",
    )
}

/// Lays out a stack so that the first [`switch_registers`] to it calls `entry` with `argument`;
/// returns its pointer.
///
/// # Safety
///
/// `top` is the end of a stack of at least a page, a multiple of 16, and nothing else uses the
/// stack.
pub(crate) unsafe fn init_stack_frame(top: *mut u8, entry: Entry, argument: *mut ()) -> *mut u8 {
    let mut words = [0_usize; WORDS];
    words[0] = argument as usize; // x19
    words[1] = entry as *const () as usize; // x20
    words[11] = begin as *const () as usize; // where to go on; x29 = 0 ends the chain of frames
    // SAFETY: the caller says that there is a page of stack.
    let saved = unsafe { top.sub(size_of_val(&words)) };
    // SAFETY: within the same page, which nothing else uses, and aligned as `top` is.
    unsafe { ptr::write(saved.cast(), words) };
    saved
}

/// As [`init_stack_frame`], for [`switch_registers_and_float_control`].
///
/// # Safety
///
/// As for [`init_stack_frame`].
pub(crate) unsafe fn init_stack_frame_with_float_control(
    top: *mut u8,
    entry: Entry,
    argument: *mut (),
) -> *mut u8 {
    // SAFETY: the caller's promise.
    let saved = unsafe { init_stack_frame(top, entry, argument) };
    // SAFETY: two words more of the same page.
    let saved = unsafe { saved.sub(16) };
    // FPCR is all zeros when a process starts: round to nearest, no traps.
    // SAFETY: as above.
    unsafe { ptr::write(saved.cast(), [0_u64; 2]) };
    saved
}

/// The first instructions of a coroutine: they call its entry function.
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    naked_asm!("mov x0, x19", "blr x20", "brk #1")
}

//! Switches from one stack to another, x86-64 with the System V calling convention.
//!
//! A caller expects a function to preserve rbx, rbp, r12 to r15 and the stack pointer (psABI 1.0,
//! figure 3.4), so a switch within one thread need not save more. The psABI also preserves the
//! control bits of MXCSR and the x87 control word. Most coroutine libraries leave these to the
//! whole thread; the second variant saves them, to measure what that costs.
//!
//! ```text
//! saved stack pointer ─▶ [float control]  only in the second variant
//!                        r15 r14 r13 r12 rbx rbp
//!                        where to go on
//! ```

use std::arch::naked_asm;
use std::ptr;

/// The function that a coroutine starts with. It must not return.
pub(crate) type Entry = unsafe extern "C" fn(*mut ()) -> !;

/// MXCSR and x87 control word as the psABI has them when a process starts: all exceptions masked,
/// round to nearest, 64-bit mantissa.
const FLOAT_CONTROL: u64 = 0x037f_0000_1f80;

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
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        // Not `ret`: the CPU's return-address predictor holds the return address of this call, so
        // every `ret` would be mispredicted.
        "pop rcx",
        "jmp rcx",
    )
}

/// As [`switch_registers`], but saves the control words of SSE and x87 too.
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
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "pop rcx",
        "jmp rcx",
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
    // In the order in which they are popped. The last word keeps the stack of `begin` aligned to
    // 16.
    let words = [
        0,                           // r15
        0,                           // r14
        entry as *const () as usize, // r13
        argument as usize,           // r12
        0,                           // rbx
        0,                           // rbp: the end of the chain of frames
        begin as *const () as usize, // where to go on
        0,
    ];
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
    // SAFETY: one word more of the same page.
    let saved = unsafe { saved.sub(8) };
    // SAFETY: as above.
    unsafe { ptr::write(saved.cast(), FLOAT_CONTROL) };
    saved
}

/// The first instructions of a coroutine. The stack pointer is 8 below a multiple of 16, as after
/// any call.
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    naked_asm!("mov rdi, r12", "sub rsp, 8", "call r13", "ud2")
}

//! AArch64.

use swtch_unwind::{REGISTERS, Registers, STACK_POINTER};

/// Four bytes that must precede the abort address of a restartable sequence. The kernel compares
/// them with the value given at registration, and glibc gives this one (`RSEQ_SIG`,
/// `sysdeps/unix/sysv/linux/aarch64/bits/rseq.h`): `brk #0x45e0`, little endian.
pub(crate) const RSEQ_SIGNATURE: u32 = 0xd428_bc00;

/// The thread pointer, from which the offsets of thread-local variables count.
pub(crate) fn thread_pointer() -> *const u8 {
    let pointer: *const u8;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    pointer
}

/// How far `otel_thread_ctx_v1` is from the thread pointer, by a descriptor (TLSDESC), as OTEP 4947 asks.
pub(super) fn thread_context_offset() -> usize {
    let offset: usize;
    // SAFETY: the dynamic linker's function changes no other register and no memory of the program.
    unsafe {
        std::arch::asm!(
            "adrp x0, :tlsdesc:otel_thread_ctx_v1",
            "ldr x1, [x0, :tlsdesc_lo12:otel_thread_ctx_v1]",
            "add x0, x0, :tlsdesc_lo12:otel_thread_ctx_v1",
            ".tlsdesccall otel_thread_ctx_v1",
            "blr x1",
            out("x0") offset,
            out("x1") _,
            out("lr") _,
        );
    }
    offset
}

/// The instruction of a probe, with its note.
macro_rules! hit_probe {
    ($name:literal, $listeners:ident, $arguments:ident) => {
        // SAFETY: an instruction that does nothing, and a note in a section of its own.
        unsafe {
            std::arch::asm!(
                "990: nop",
                $crate::arch::probe_note!($name, "8@x0 8@x1 8@x2 8@x3 8@x4"),
                semaphore = sym $listeners,
                in("x0") $arguments.scheduler,
                in("x1") $arguments.worker,
                in("x2") $arguments.task,
                in("x3") $arguments.wait_type,
                in("x4") $arguments.ns,
            );
        }
    };
}
pub(crate) use hit_probe;

/// The code of a probe, little endian.
#[cfg(test)]
pub(crate) const PROBE: &[u8] = &[0x1f, 0x20, 0x03, 0xd5];

/// Program counter and registers, by DWARF's numbers, from the context of a signal handler.
pub(crate) fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    let mut registers = [None; REGISTERS];
    for (register, value) in registers.iter_mut().zip(machine.regs) {
        *register = Some(value);
    }
    registers[usize::from(STACK_POINTER)] = Some(machine.sp);
    Registers::new(machine.pc, registers)
}

/// The stack pointer, from the context of a signal handler.
pub(crate) fn stack_pointer(context: &libc::ucontext_t) -> usize {
    usize::try_from(context.uc_mcontext.sp).unwrap_or(0)
}

/// The instruction of a system call: `svc #0`, little endian.
pub(crate) const SYSTEM_CALL: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];

/// Name of the processor's shadow stacks.
pub(crate) const SHADOW_STACK: &str = "Arm guarded control stack";
/// The way to switch them off.
pub(crate) const SHADOW_STACK_REMEDY: &str = "start the program with \
    GLIBC_TUNABLES=glibc.cpu.aarch64_gcs=0, or link it \
    without -z gcs=always; thread mode works as it is";

/// The status from `prctl` for the calling thread; `None` without support for shadow stacks.
pub(crate) fn shadow_stack_status() -> Option<u64> {
    /// From `include/uapi/linux/prctl.h`, since Linux 6.13.
    const PR_GET_SHADOW_STACK_STATUS: libc::c_int = 74;
    let mut bits = 0_u64;
    // SAFETY: the call writes eight bytes to the address given, which is that of `bits`.
    let answer = unsafe {
        libc::prctl(
            PR_GET_SHADOW_STACK_STATUS,
            &raw mut bits,
            0_u64,
            0_u64,
            0_u64,
        )
    };
    (answer == 0).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address of a function, signed as its prologue would sign a return address to it. Where
    /// the processor cannot sign, both are the same, and so is the answer.
    #[test]
    fn a_signature_is_taken_off() {
        let address = registers as *const () as u64;
        let mut signed = address;
        // SAFETY: changes a register. This is `paciasp`.
        unsafe {
            std::arch::asm!("hint #25", inout("x30") signed, options(nomem, nostack, preserves_flags));
        }
        assert_eq!(swtch_unwind::without_signature(signed), address);
        assert_eq!(swtch_unwind::without_signature(address), address);
    }
}

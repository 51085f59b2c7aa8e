//! x86-64.

use swtch_unwind::{REGISTERS, Registers};

/// Four bytes that must precede the abort address of a restartable sequence. The kernel compares
/// them with the value given at registration, and glibc gives this one (`RSEQ_SIG`,
/// `sysdeps/unix/sysv/linux/x86/bits/rseq.h`).
pub(crate) const RSEQ_SIGNATURE: u32 = 0x5305_3053;

/// The thread pointer, from which the offsets of thread-local variables count.
pub(crate) fn thread_pointer() -> *const u8 {
    let pointer: *const u8;
    // SAFETY: the first word of the thread's control block is its own address (x86-64 psABI, TLS).
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

/// How far `otel_thread_ctx_v1` is from the thread pointer, by a descriptor (TLSDESC), as OTEP 4947 asks.
pub(super) fn thread_context_offset() -> usize {
    let offset: usize;
    // SAFETY: the dynamic linker's function changes no other register and no memory of the program.
    unsafe {
        std::arch::asm!(
            "leaq otel_thread_ctx_v1@tlsdesc(%rip), %rax",
            "call *otel_thread_ctx_v1@tlscall(%rax)",
            out("rax") offset,
            options(att_syntax),
        );
    }
    offset
}

/// The instructions of a probe, with its note.
macro_rules! hit_probe {
    ($name:literal, $listeners:ident, $arguments:ident) => {
        // SAFETY: two instructions that do nothing, and a note in a section of its own.
        // Not `nostack`: a probed five-byte `nop` pushes.
        unsafe {
            std::arch::asm!(
                "990: nop",
                ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
                $crate::arch::probe_note!($name, "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8"),
                semaphore = sym $listeners,
                in("rdi") $arguments.scheduler,
                in("rsi") $arguments.worker,
                in("rdx") $arguments.task,
                in("rcx") $arguments.wait_type,
                in("r8") $arguments.ns,
            );
        }
    };
}
pub(crate) use hit_probe;

/// The code of a probe.
#[cfg(test)]
pub(crate) const PROBE: &[u8] = &[0x90, 0x0f, 0x1f, 0x44, 0x00, 0x00];

/// Program counter and registers, by DWARF's numbers, from the context of a signal handler.
pub(crate) fn registers(context: &libc::ucontext_t) -> Registers {
    let value = |index: i32| {
        let index = usize::try_from(index).ok()?;
        Some(context.uc_mcontext.gregs.get(index)?.cast_unsigned())
    };
    let order = [
        libc::REG_RAX,
        libc::REG_RDX,
        libc::REG_RCX,
        libc::REG_RBX,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_RBP,
        libc::REG_RSP,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];
    let mut registers = [None; REGISTERS];
    for (register, index) in registers.iter_mut().zip(order) {
        *register = value(index);
    }
    Registers::new(value(libc::REG_RIP).unwrap_or_default(), registers)
}

/// The stack pointer, from the context of a signal handler.
pub(crate) fn stack_pointer(context: &libc::ucontext_t) -> usize {
    usize::try_from(context.uc_mcontext.gregs[libc::REG_RSP as usize]).unwrap_or(0)
}

/// The instruction of a system call: `syscall`.
pub(crate) const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];

/// Name of the processor's shadow stacks.
pub(crate) const SHADOW_STACK: &str = "x86 CET";
/// The way to switch them off.
pub(crate) const SHADOW_STACK_REMEDY: &str = "start the program with \
    GLIBC_TUNABLES=glibc.cpu.x86_shstk=off, or link it \
    without -z shstk; thread mode works as it is";

/// The status from `arch_prctl` for the calling thread; `None` without support for shadow stacks.
pub(crate) fn shadow_stack_status() -> Option<u64> {
    /// From `arch/x86/include/uapi/asm/prctl.h`, since Linux 6.6.
    const ARCH_SHSTK_STATUS: libc::c_ulong = 0x5005;
    let mut bits = 0_u64;
    // SAFETY: the call writes eight bytes to the address given, which is that of `bits`.
    let answer = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut bits) };
    (answer == 0).then_some(bits)
}

//! Loops whose iterations depend on each other, most of one instruction, x86-64.
//!
//! The loop counter runs beside the chain and is never the bottleneck: `dec` and `jnz` take one
//! cycle, as the shortest chain does. A loop begins at a multiple of 32 bytes, because one that lies
//! across such a border takes twice as long on some CPUs (seen on an AMD EPYC).

use std::arch::asm;

use super::ChainOperation;

/// Runs `iterations` iterations, at least one. The CPU must have the instructions of `operation`.
pub(super) fn chain(operation: ChainOperation, iterations: u64) {
    match operation {
        ChainOperation::Add => add(iterations),
        ChainOperation::Multiply => multiply(iterations),
        ChainOperation::Divide => divide(iterations),
        ChainOperation::FloatAdd => float_add(iterations),
        ChainOperation::FloatMultiply => float_multiply(iterations),
        ChainOperation::Branches => branches(iterations),
        ChainOperation::Avx2 => avx2(iterations),
        ChainOperation::Avx512 => avx512(iterations),
    }
}

fn add(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(".p2align 5", "2:", "add {sum}, {addend}", "dec {left}", "jnz 2b",
             sum = inout(reg) 1_u64 => _, addend = in(reg) 3_u64,
             left = inout(reg) iterations => _, options(nomem, nostack));
    }
}

fn multiply(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(".p2align 5", "2:", "imul {product}, {factor}", "dec {left}", "jnz 2b",
             product = inout(reg) 1_u64 => _, factor = in(reg) 3_u64,
             left = inout(reg) iterations => _, options(nomem, nostack));
    }
}

/// The quotient becomes the next dividend, with bits 61 and 62 set again: on many CPUs a division
/// of small numbers takes less time.
fn divide(iterations: u64) {
    // SAFETY: registers only; the divisor is 3 and the upper half of the dividend 0, so that no
    // quotient overflows.
    unsafe {
        asm!(".p2align 5", "2:", "xor edx, edx", "div {divisor}", "or rax, {high}", "dec {left}", "jnz 2b",
             divisor = in(reg) 3_u64, high = in(reg) 3_u64 << 61,
             left = inout(reg) iterations => _,
             inout("rax") u64::MAX => _, out("rdx") _, options(nomem, nostack));
    }
}

fn float_add(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(".p2align 5", "2:", "addsd {sum}, {addend}", "dec {left}", "jnz 2b",
             sum = inout(xmm_reg) 1.0_f64 => _, addend = in(xmm_reg) 1.5_f64,
             left = inout(reg) iterations => _, options(nomem, nostack));
    }
}

/// Multiplies by 1, so that the product neither grows to infinity nor becomes a denormal, which may
/// take longer.
fn float_multiply(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(".p2align 5", "2:", "mulsd {product}, {factor}", "dec {left}", "jnz 2b",
             product = inout(xmm_reg) 1.5_f64 => _, factor = in(xmm_reg) 1.0_f64,
             left = inout(reg) iterations => _, options(nomem, nostack));
    }
}

/// The branch depends on the highest bit of a linear congruential generator (Knuth's MMIX). The
/// addition to `taken` is only there to be jumped over.
fn branches(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!(".p2align 5", "2:", "imul {random}, {factor}", "add {random}, {addend}",
             "test {random}, {random}", "js 3f", "inc {taken}", "3:", "dec {left}", "jnz 2b",
             random = inout(reg) 1_u64 => _, factor = in(reg) 6_364_136_223_846_793_005_u64,
             addend = in(reg) 1_442_695_040_888_963_407_u64,
             taken = inout(reg) 0_u64 => _, left = inout(reg) iterations => _,
             options(nomem, nostack));
    }
}

/// Clears the upper halves at the end: while they are in use, SSE code is slower on some CPUs. The
/// registers are fixed, because `clobber_abi` allows no output that the compiler chooses.
fn avx2(iterations: u64) {
    // SAFETY: registers only, all of them declared as clobbered; the caller knows that the CPU has
    // AVX2.
    unsafe {
        asm!("vpcmpeqd ymm14, ymm14, ymm14", "vpcmpeqd ymm15, ymm15, ymm15",
             ".p2align 5", "2:", "vpaddd ymm15, ymm15, ymm14", "dec rdi", "jnz 2b", "vzeroupper",
             inout("rdi") iterations => _, clobber_abi("sysv64"), options(nomem, nostack));
    }
}

fn avx512(iterations: u64) {
    // SAFETY: registers only, all of them declared as clobbered; the caller knows that the CPU has
    // AVX-512.
    unsafe {
        asm!("vpternlogd zmm14, zmm14, zmm14, 0xff", "vpternlogd zmm15, zmm15, zmm15, 0xff",
             ".p2align 5", "2:", "vpaddd zmm15, zmm15, zmm14", "dec rdi", "jnz 2b", "vzeroupper",
             inout("rdi") iterations => _, clobber_abi("sysv64"), options(nomem, nostack));
    }
}

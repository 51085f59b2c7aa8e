//! Loops whose iterations depend on each other, most of one instruction, AArch64.

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
        ChainOperation::Avx2 | ChainOperation::Avx512 => {
            unreachable!("a load with operations of another processor is refused")
        }
    }
}

fn add(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!("2:", "add {sum}, {sum}, {addend}", "subs {left}, {left}, #1", "b.ne 2b",
             sum = inout(reg) 1_u64 => _, addend = in(reg) 3_u64,
             left = inout(reg) iterations => _, options(nomem, nostack));
    }
}

fn multiply(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!("2:", "mul {product}, {product}, {factor}", "subs {left}, {left}, #1", "b.ne 2b",
             product = inout(reg) 1_u64 => _, factor = in(reg) 3_u64,
             left = inout(reg) iterations => _, options(nomem, nostack));
    }
}

/// The quotient becomes the next dividend, with its highest bits set again: on many CPUs a division
/// of small numbers takes less time.
fn divide(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!("2:", "udiv {quotient}, {quotient}, {divisor}", "orr {quotient}, {quotient}, {high}",
             "subs {left}, {left}, #1", "b.ne 2b",
             quotient = inout(reg) u64::MAX => _, divisor = in(reg) 3_u64, high = in(reg) 3_u64 << 61,
             left = inout(reg) iterations => _, options(nomem, nostack));
    }
}

fn float_add(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!("2:", "fadd {sum:d}, {sum:d}, {addend:d}", "subs {left}, {left}, #1", "b.ne 2b",
             sum = inout(vreg) 1.0_f64 => _, addend = in(vreg) 1.5_f64,
             left = inout(reg) iterations => _, options(nomem, nostack));
    }
}

/// Multiplies by 1, so that the product neither grows to infinity nor becomes a denormal, which may
/// take longer.
fn float_multiply(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!("2:", "fmul {product:d}, {product:d}, {factor:d}", "subs {left}, {left}, #1", "b.ne 2b",
             product = inout(vreg) 1.5_f64 => _, factor = in(vreg) 1.0_f64,
             left = inout(reg) iterations => _, options(nomem, nostack));
    }
}

/// The branch depends on the highest bit of a linear congruential generator (Knuth's MMIX). The
/// addition to `taken` is only there to be jumped over.
fn branches(iterations: u64) {
    // SAFETY: registers only.
    unsafe {
        asm!("2:", "madd {random}, {random}, {factor}, {addend}", "tbnz {random}, #63, 3f",
             "add {taken}, {taken}, #1", "3:", "subs {left}, {left}, #1", "b.ne 2b",
             random = inout(reg) 1_u64 => _, factor = in(reg) 6_364_136_223_846_793_005_u64,
             addend = in(reg) 1_442_695_040_888_963_407_u64,
             taken = inout(reg) 0_u64 => _, left = inout(reg) iterations => _,
             options(nomem, nostack));
    }
}

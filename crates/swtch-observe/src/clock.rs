//! The scheduler's clock: ticks, which cost one instruction to read.
//!
//! A switch takes a few nanoseconds and a call of `clock_gettime` some twenty, so reading the clock
//! at each switch would cost more than the switch. Switches are therefore timed in ticks of the
//! processor's counter, and converted for display by two anchors, each of them one moment in both
//! clocks. Timers are kept in `CLOCK_MONOTONIC`. Ticks only decide when the timers are *checked*,
//! so an error of the rate can make a check too early or too late, but never a timer.
//!
//! Where the counter cannot be trusted (no invariant TSC), a tick is a nanosecond of
//! `CLOCK_MONOTONIC`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// True if [`ticks`] reads the processor's counter.
static COUNTER: AtomicBool = AtomicBool::new(false);

/// Two anchors this far apart give the rate to about one part in 10⁴ at the start; the monitor
/// moves the later one on, see the crate `swtch-fiber`.
const FIRST_SPAN: Duration = Duration::from_millis(2);

/// One moment in both clocks.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// Reading of the processor's counter, see [`ticks`].
    pub ticks: u64,
    /// `CLOCK_MONOTONIC` at the same moment, ns.
    pub monotonic_ns: u64,
}

/// The relation of ticks to nanoseconds, as measured when the process first asked.
#[derive(Clone, Copy, Debug)]
pub struct TickRate {
    origin: ClockReading,
    later: ClockReading,
    ns_per_tick: f64,
}

/// Reads the clock, in ticks. Until [`rate`] was called once in this process, ticks are
/// nanoseconds.
#[inline(always)]
pub fn ticks() -> u64 {
    if COUNTER.load(Ordering::Relaxed) {
        counter()
    } else {
        monotonic_ns()
    }
}

/// Reads the clock `CLOCK_MONOTONIC`, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing; CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Reads both clocks at one moment: of five attempts, the one whose two counter readings lie
/// closest.
pub fn moment() -> ClockReading {
    let attempt = || {
        let before = ticks();
        let monotonic_ns = monotonic_ns();
        let after = ticks();
        (
            after.wrapping_sub(before),
            ClockReading {
                ticks: before.midpoint(after),
                monotonic_ns,
            },
        )
    };
    let attempts = [attempt(), attempt(), attempt(), attempt(), attempt()];
    let [mut best, others @ ..] = attempts;
    for other in others {
        if other.0 < best.0 {
            best = other;
        }
    }
    best.1
}

/// The rate, measured once per process.
pub fn rate() -> TickRate {
    static RATE: OnceLock<TickRate> = OnceLock::new();
    *RATE.get_or_init(|| {
        // Miri cannot execute the processor's counter instruction.
        COUNTER.store(!cfg!(miri) && counter_is_steady(), Ordering::Relaxed);
        let origin = moment();
        std::thread::sleep(FIRST_SPAN);
        TickRate::between(origin, moment())
    })
}

impl TickRate {
    #[expect(clippy::cast_precision_loss, reason = "spans of less than 2^53 ns")]
    fn between(origin: ClockReading, later: ClockReading) -> Self {
        let ticks = later.ticks.wrapping_sub(origin.ticks).max(1) as f64;
        let ns = later.monotonic_ns.wrapping_sub(origin.monotonic_ns) as f64;
        Self {
            origin,
            later,
            ns_per_tick: ns / ticks,
        }
    }

    /// The two moments that the rate was measured at.
    pub fn anchors(&self) -> [ClockReading; 2] {
        [self.origin, self.later]
    }

    /// Converts a length of time to ticks.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a span in ticks fits for centuries"
    )]
    pub fn ticks_in(&self, span: Duration) -> u64 {
        (span.as_nanos() as f64 / self.ns_per_tick) as u64
    }

    /// Converts ticks to a length of time.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a span in nanoseconds fits for centuries"
    )]
    pub fn length(&self, ticks: u64) -> Duration {
        Duration::from_nanos((ticks as f64 * self.ns_per_tick) as u64)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC; `counter_is_steady` has checked that it is a clock.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Intel SDM vol. 3, 18.17.1 "Invariant TSC": CPUID.80000007H:EDX[8]. A hypervisor may hide the bit
/// and still let the kernel use the counter; then we read the clock instead, which is only slower.
#[cfg(target_arch = "x86_64")]
fn counter_is_steady() -> bool {
    use core::arch::x86_64::__cpuid;
    #[allow(unused_unsafe, reason = "safe from Rust 1.92 on")]
    // SAFETY: CPUID exists on every x86-64 processor.
    let highest = unsafe { __cpuid(0x8000_0000) }.eax;
    #[allow(unused_unsafe, reason = "safe from Rust 1.92 on")]
    // SAFETY: as above.
    let invariant = highest >= 0x8000_0007 && unsafe { __cpuid(0x8000_0007) }.edx & (1 << 8) != 0;
    invariant
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: the virtual counter is readable from user mode (Linux sets CNTKCTL_EL1.EL0VCTEN).
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// The generic timer runs at a fixed rate by definition (Arm ARM, D12.1).
#[cfg(target_arch = "aarch64")]
fn counter_is_steady() -> bool {
    true
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> u64 {
    monotonic_ns()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter_is_steady() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn() -> TickRate {
        let origin = ClockReading {
            ticks: 1_000,
            monotonic_ns: 500,
        };
        TickRate::between(
            origin,
            ClockReading {
                ticks: 3_000,
                monotonic_ns: 1_500,
            },
        )
    }

    /// Quanta and histograms depend on this conversion.
    #[test]
    fn two_ticks_make_a_nanosecond_at_two_gigahertz() {
        assert_eq!(drawn().length(2_000), Duration::from_nanos(1_000));
        assert_eq!(drawn().ticks_in(Duration::from_micros(4)), 8_000);
    }

    /// If the counter ran at another rate on another CPU, every converted length would be wrong.
    #[test]
    fn ticks_follow_the_clock() {
        let rate = rate();
        let before = moment();
        std::thread::sleep(Duration::from_millis(5));
        let after = moment();
        let by_ticks = rate.length(after.ticks - before.ticks).as_nanos();
        let by_clock = u128::from(after.monotonic_ns - before.monotonic_ns);
        assert!(
            by_ticks.abs_diff(by_clock) < by_clock / 20,
            "{by_ticks} ns and {by_clock} ns"
        );
    }
}

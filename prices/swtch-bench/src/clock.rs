//! Time as workloads need it: the trace clock, CPU time, and the heartbeat of a hog.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use swtch_core::units::{Nanos, Timestamp};

/// Now, on the trace clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_ns(read(libc::CLOCK_MONOTONIC))
}

/// Now, on a clock that is never adjusted (`CLOCK_MONOTONIC_RAW`). For measured lengths: a
/// correction of the clock's rate by a few in 10⁵ would be part of the result.
pub(crate) fn raw() -> Timestamp {
    Timestamp::from_ns(read(libc::CLOCK_MONOTONIC_RAW))
}

/// The moment `span` from now.
pub(crate) fn after(span: Duration) -> Timestamp {
    Timestamp::from_ns(now().as_ns() + nanos(span))
}

/// CPU time that the calling thread has used.
pub(crate) fn cpu_time() -> Duration {
    Duration::from_nanos(read(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Uses the CPU until `deadline`.
pub(crate) fn spin_until(deadline: Timestamp) {
    while now() < deadline {}
}

/// Uses the CPU for `span`.
pub(crate) fn spin(span: Duration) {
    spin_until(after(span));
}

/// More than the 5 µs by which KVM at most advances a timer (`arch/x86/kvm/lapic.c`, v6.12), and
/// far less than the time from one task outside the workload that takes the CPU to the next.
const TIMER_ADVANCE: Nanos = Nanos::from_ns(20_000);

/// A hog records when it last ran, so that others can tell whether they took the CPU from it.
///
/// ```text
/// hog      ──beat─beat─beat─┐
/// timer          ↑ deadline └ switch-out
/// sleeper                     runs: last beat ≥ deadline, so the hog had the CPU and lost it
/// ```
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    last_ns: AtomicU64,
    stopped: AtomicBool,
}

impl Heartbeat {
    /// Spins and records the time until [`Self::stop_when_done`] ends it; gives up after `limit`.
    pub(crate) fn beat(&self, limit: Duration) {
        let deadline = after(limit);
        while !self.stopped.load(Ordering::Relaxed) {
            let now = now();
            self.last_ns.store(now.as_ns(), Ordering::Relaxed);
            if now >= deadline {
                break;
            }
        }
    }

    /// Ends [`Self::beat`] when the guard is dropped, so that the hog also stops when the thread
    /// that it runs for fails.
    pub(crate) const fn stop_when_done(&self) -> StopWhenDone<'_> {
        StopWhenDone(self)
    }

    /// Returns true if the hog ran at `moment` or later.
    pub(crate) fn ran_after(&self, moment: Timestamp) -> bool {
        self.last_ns.load(Ordering::Relaxed) >= moment.as_ns()
    }

    /// Returns true if the hog had the CPU when a timer for `moment` expired. A hypervisor may take the CPU a little
    /// early to deliver the timer on time (KVM's `lapic_timer_advance_ns`).
    pub(crate) fn ran_at_timer(&self, moment: Timestamp) -> bool {
        self.ran_after(moment.before(TIMER_ADVANCE))
    }
}

/// Guard made by [`Heartbeat::stop_when_done`]; dropping it stops the hog.
#[derive(Debug)]
#[must_use = "the hog stops when it is dropped"]
pub(crate) struct StopWhenDone<'a>(&'a Heartbeat);

impl Drop for StopWhenDone<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is ours to be written to; all these clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

//! Measures what a switch of the scheduler of `swtch-fiber` costs on this machine, which `swtch fiber` shows beside the
//! kernel's: two workers of this program yield to each other. The program that is looked at is not involved. What is
//! slow after a switch is not in it.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use swtch_fiber::{Runtime, spawn, yield_now};
use swtch_observe::Mode;

/// Yields of each of the two workers, which take some milliseconds.
const YIELDS: usize = 50_000;

/// CPU time of a switch in ns; `None` if it cannot be measured here, or a scheduler in this mode has ended.
pub fn measured_ns(mode: Mode) -> Option<f64> {
    let mode = match mode {
        Mode::Fiber => swtch_fiber::Mode::Fiber,
        Mode::Thread => swtch_fiber::Mode::Thread,
        Mode::Ended => return None,
    };
    let runtime = Runtime::builder()
        .schedulers(1)
        .pinned(true)
        .mode(mode)
        // A stall on a busy machine is not worth a warning here.
        .stall_threshold(Duration::ZERO)
        .build()
        .ok()?;
    let look = || {
        let counters = runtime.counters();
        let switches: u64 = counters.iter().map(|one| one.context_switches_count).sum();
        // Nothing else of this program runs meanwhile.
        let cpu = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
        Some((switches, Duration::from(cpu)))
    };
    let before = look()?;
    runtime.run(yield_to_each_other).ok()?;
    let after = look()?;
    let (switches, cpu) = (after.0 - before.0, after.1.checked_sub(before.1)?);
    (switches > 0).then(|| cpu.as_nanos() as f64 / switches as f64)
}

/// A worker starts both: started from outside, the first could end before the second begins.
fn yield_to_each_other() {
    let yielders = [(); 2].map(|()| spawn(|| (0..YIELDS).for_each(|_| yield_now())));
    for yielder in yielders.into_iter().flatten() {
        // The two workers do not panic.
        drop(yielder.join());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hand-over between threads is a system call, a switch of coroutines is not: they differ by more than the
    /// noise of any machine.
    #[test]
    fn a_user_switch_is_cheaper_than_a_hand_over_between_threads() {
        let fiber = measured_ns(Mode::Fiber).unwrap();
        let thread = measured_ns(Mode::Thread).unwrap();
        assert!(0.0 < fiber && fiber < thread, "{fiber} ns, {thread} ns");
        assert_eq!(measured_ns(Mode::Ended), None);
    }
}

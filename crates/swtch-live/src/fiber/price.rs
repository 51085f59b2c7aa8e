//! What a switch at each level costs on this machine.
//!
//! A switch of the kernel: from the saved price list, as a preemption by another process is billed.
//! A switch of the scheduler: measured now, with two workers of our own that yield to each other;
//! the target is not involved. Neither includes what is slow after a switch.

use std::thread;
use std::time::Duration;

use swtch_core::Reason;
use swtch_core::cost::{Billing, Case, Successor};
use swtch_fiber::{Runtime, spawn, yield_now};
use swtch_observe::{Mode, Page};
use swtch_report::price_file;

use super::kernel::{KernelCounters, cpu_time};

/// Yields of each of the two workers, which take some milliseconds.
const YIELDS: usize = 50_000;

/// The kernel adds the CPU time of a running thread to its account at a tick, at the latest after
/// 10 ms.
const UNTIL_BOOKED: Duration = Duration::from_millis(20);

/// Prices in ns; `None` where one is not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelPrices {
    /// The price of a switch between coroutines.
    pub fiber_ns: Option<f64>,
    /// The price of a hand-over between threads.
    pub thread_ns: Option<f64>,
    /// The price of a switch of the kernel.
    pub os_ns: Option<f64>,
}

impl LevelPrices {
    /// Measures what a switch costs in each of these modes, and looks the kernel's price up.
    pub fn find(modes: &[Mode]) -> Self {
        let measured = |mode, own| modes.contains(&mode).then(|| user_switch(own)).flatten();
        Self {
            fiber_ns: measured(Mode::Fiber, swtch_fiber::Mode::Fiber),
            thread_ns: measured(Mode::Thread, swtch_fiber::Mode::Thread),
            os_ns: os_switch(),
        }
    }

    /// The price of a switch of a scheduler in this mode; `None` if it is not known, or the
    /// scheduler has ended.
    pub const fn user_ns(&self, mode: Mode) -> Option<f64> {
        match mode {
            Mode::Fiber => self.fiber_ns,
            Mode::Thread => self.thread_ns,
            Mode::Ended => None,
        }
    }
}

/// The price of a preemption by another process, from the saved list.
fn os_switch() -> Option<f64> {
    let list = price_file::load(&price_file::place().ok()?).ok()?;
    let case = Case {
        reason: Reason::Slice,
        successor: Successor::OtherProcess,
    };
    let billing = Billing::new(&list);
    Some(billing.tariff(case).ok()?.direct.point_ns)
}

/// CPU time of a scheduler per switch that it counted; `None` if it cannot be measured here.
fn user_switch(mode: swtch_fiber::Mode) -> Option<f64> {
    let runtime = Runtime::builder()
        .schedulers(1)
        .pinned(true)
        .mode(mode)
        // A stall on a busy machine is not worth a warning here.
        .stall_threshold(Duration::ZERO)
        .build()
        .ok()?;
    let page = Page::of_process(std::process::id()).ok()?;
    let look = || {
        let snapshot = page.snapshot().ok()?;
        let living = snapshot.schedulers.iter();
        let row = living.clone().find(|row| row.mode != Mode::Ended)?;
        let threads = KernelCounters::read(page.pid(), &snapshot);
        let cpu = cpu_time(&threads.of_scheduler(row.scheduler)?)?;
        Some((row.context_switches_count, cpu.as_ns()))
    };
    let before = look()?;
    runtime.run(yield_to_each_other).ok()?;
    thread::sleep(UNTIL_BOOKED);
    let after = look()?;
    let (switches, cpu_ns) = (after.0 - before.0, after.1.checked_sub(before.1)?);
    (switches > 0).then(|| cpu_ns as f64 / switches as f64)
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

    /// A hand-over between threads is a system call, a switch of coroutines is not: they differ by
    /// more than the noise of any machine.
    #[test]
    fn a_user_switch_is_cheaper_than_a_hand_over_between_threads() {
        let prices = LevelPrices::find(&[Mode::Fiber, Mode::Thread]);
        let fiber = prices.user_ns(Mode::Fiber).unwrap();
        let thread = prices.user_ns(Mode::Thread).unwrap();
        assert!(0.0 < fiber && fiber < thread, "{fiber} ns, {thread} ns");
        assert_eq!(prices.user_ns(Mode::Ended), None);
    }
}

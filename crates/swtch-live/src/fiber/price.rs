//! The price of a switch at each level on this machine.
//!
//! A switch of the kernel: from the saved price list, as a preemption by another process is billed.
//! A switch of the scheduler: measured now, by whoever asks for the rates. Neither includes what is
//! slow after a switch.

use swtch_core::Reason;
use swtch_core::cost::{Billing, Case, Successor};
use swtch_observe::Mode;
use swtch_report::price_file;

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
    pub fn find(modes: &[Mode], measure: fn(Mode) -> Option<f64>) -> Self {
        let measured = |mode| modes.contains(&mode).then(|| measure(mode)).flatten();
        Self {
            fiber_ns: measured(Mode::Fiber),
            thread_ns: measured(Mode::Thread),
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

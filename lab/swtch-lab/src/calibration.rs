//! How many iterations of a kernel take a given CPU time on this machine.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use swtch_bench::load::{ChainOperation, calibrate};

/// Time per iteration of each kernel, measured when it is first asked for and then kept. So all
/// plays of an experiment do the same number of iterations, even if the CPU's speed changes
/// meanwhile.
#[derive(Debug, Default)]
pub struct Calibration(RefCell<BTreeMap<ChainOperation, f64>>);

impl Calibration {
    /// How long one iteration takes alone on an idle CPU, in ns.
    pub fn ns_per_iteration(&self, kernel: ChainOperation) -> f64 {
        *self
            .0
            .borrow_mut()
            .entry(kernel)
            .or_insert_with(|| calibrate(kernel))
    }

    /// Number of iterations that take `cpu_time`; at least 1.
    pub fn iterations(&self, kernel: ChainOperation, cpu_time: Duration) -> u64 {
        let iterations = cpu_time.as_secs_f64() * 1e9 / self.ns_per_iteration(kernel);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and the cast saturates"
        )]
        let iterations = iterations.round().max(1.0) as u64;
        iterations
    }

    /// A calibration by which an iteration of every kernel takes `ns`.
    pub fn of_ns(ns: f64) -> Self {
        Self(RefCell::new(
            ChainOperation::ALL
                .iter()
                .map(|kernel| (*kernel, ns))
                .collect(),
        ))
    }
}

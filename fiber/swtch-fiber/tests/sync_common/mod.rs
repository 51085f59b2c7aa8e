//! Shared by the tests of synchronisation: runtimes of each shape, and waiting for the value of a
//! counter.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::time::{Duration, Instant};

use swtch_fiber::{Mode, Runtime};

pub fn runtime(mode: Mode, schedulers: usize) -> Runtime {
    Runtime::builder()
        .mode(mode)
        .schedulers(schedulers)
        .build()
        .expect("a runtime")
}

/// Calls `test` with a runtime of each mode, with one scheduler and with several.
pub fn in_all_shapes(test: impl Fn(&Runtime)) {
    for mode in [Mode::Fiber, Mode::Thread] {
        for schedulers in [1, 3] {
            test(&runtime(mode, schedulers));
        }
    }
}

/// Calls `test` with a runtime of each mode, with one scheduler, so that the order of events is
/// fixed.
pub fn in_both_modes(test: impl Fn(&Runtime)) {
    for mode in [Mode::Fiber, Mode::Thread] {
        test(&runtime(mode, 1));
    }
}

/// Waits until `condition` holds; fails after a minute.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Number of waits of this type that have begun so far.
pub fn waits(runtime: &Runtime, wait_type: &str) -> u64 {
    let counters = runtime.counters();
    let waits = counters.iter().flat_map(|scheduler| &scheduler.waits);
    waits
        .filter(|waits| waits.wait_type == wait_type)
        .map(|waits| waits.waiting_tasks_count)
        .sum()
}

/// Waits until this many waits of this type have begun.
pub fn until_waits(runtime: &Runtime, wait_type: &str, count: u64) {
    until(wait_type, || waits(runtime, wait_type) >= count);
}

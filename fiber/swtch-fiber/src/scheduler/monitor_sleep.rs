//! The sleep of a runtime's monitor: schedulers wake it when they have work again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::futex;

/// The number that the next runtime of this process gets.
static NUMBER: AtomicU32 = AtomicU32::new(1);

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const ENDING: u32 = 2;

/// The state that the schedulers share with their monitor.
#[derive(Debug)]
pub(crate) struct MonitorSleep {
    number: u32,
    state: AtomicU32,
}

impl MonitorSleep {
    pub(crate) fn new() -> Self {
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            state: AtomicU32::new(AWAKE),
        }
    }

    /// The number of its runtime in this process, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Wakes the monitor if it sleeps. Called when a scheduler was idle and has work again.
    #[inline]
    pub(crate) fn scheduler_works(&self) {
        if self.state.load(Ordering::SeqCst) == ASLEEP
            && self
                .state
                .compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        {
            futex::wake(&self.state);
        }
    }

    /// Asks the monitor's thread to end.
    pub(crate) fn end(&self) {
        self.state.store(ENDING, Ordering::SeqCst);
        futex::wake(&self.state);
    }

    /// Returns true if the monitor was asked to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.state.load(Ordering::SeqCst) == ENDING
    }

    /// Announces a long sleep. False when the monitor was asked to end.
    pub(crate) fn announce_sleep(&self) -> bool {
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        self.state
            .compare_exchange(AWAKE, ASLEEP, order.0, order.1)
            .is_ok()
    }

    /// Returns true if nobody has woken the monitor since it announced a long sleep.
    pub(crate) fn is_asleep(&self) -> bool {
        self.state.load(Ordering::SeqCst) == ASLEEP
    }

    /// Ends a long sleep.
    pub(crate) fn end_sleep(&self) {
        let order = (Ordering::SeqCst, Ordering::Relaxed);
        let _was_woken = self.state.compare_exchange(ASLEEP, AWAKE, order.0, order.1);
    }

    /// Sleeps for `span`, or until the monitor is asked to end.
    pub(crate) fn nap(&self, span: Duration) {
        futex::wait(&self.state, AWAKE, Some(span));
    }

    /// Sleeps until a scheduler has work, at most for `limit`. The long sleep was announced.
    pub(crate) fn sleep_until_work(&self, limit: Option<Duration>) {
        futex::wait(&self.state, ASLEEP, limit);
    }
}

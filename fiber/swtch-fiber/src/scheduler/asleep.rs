//! Tells whether a scheduler sleeps, without losing a wakeup while it falls asleep.
//!
//! ```text
//! sleeper: asleep = true │ fence │ look once more at inbox and queue │ sleep
//! waker:   push          │ fence │ asleep?  ─ yes ─▶ ring
//! ```
//!
//! Whichever fence comes first in their total order, either the sleeper sees what was pushed, or
//! the waker sees that it sleeps.

use crate::atomics::{AtomicBool, Ordering, const_new, fence};

/// The flag of the protocol drawn above.
#[derive(Debug)]
pub(crate) struct Asleep(AtomicBool);

impl Asleep {
    const_new! {
        pub(crate) fn new() -> Self {
            Self(AtomicBool::new(false))
        }
    }

    /// Announces the sleep. The sleeper must check for work once more before it sleeps.
    pub(crate) fn announce(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Returns true if the caller, which has put work in place, has to wake the sleeper. True for one caller only.
    pub(crate) fn must_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }

    /// Called when the sleeper is awake, or did not sleep after all.
    pub(crate) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

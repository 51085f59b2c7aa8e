//! Whether a scheduler sleeps, so that nobody is lost who comes while it falls asleep.
//!
//! ```text
//! sleeper: asleep = true │ fence │ look once more at inbox and queue │ sleep
//! waker:   push          │ fence │ asleep?  ─ yes ─▶ ring
//! ```
//!
//! Whichever comes first in the one order of the two fences, either the sleeper sees what was
//! pushed, or the waker sees that it sleeps.

use crate::atomics::{AtomicBool, Ordering, const_new, fence};

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Asleep(AtomicBool);

impl Asleep {
    const_new! {
        pub(crate) fn new() -> Self {
            Self(AtomicBool::new(false))
        }
    }

    /// The sleeper's announcement. It must look once more before it sleeps.
    pub(crate) fn announce(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the caller, who has put something in place, has to wake it: true for one of all.
    pub(crate) fn must_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }

    /// It is awake, or did not sleep after all.
    pub(crate) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

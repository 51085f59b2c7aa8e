//! A lock in a futex word: U. Drepper, "Futexes Are Tricky", 2011, §6, the third mutex.

use std::sync::atomic::{AtomicU32, Ordering};

use super::RingLock;
use crate::error::Error;
use crate::token::{private_wait_while, private_wake};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and the release must ask the kernel to wake a waiter.
const WAITED_FOR: u32 = 2;

/// The futex word, in its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct BareWord(AtomicU32);

impl RingLock for BareWord {
    fn lock(&self) -> Result<(), Error> {
        let taken = self
            .0
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            return Ok(());
        }
        // A thread that has waited cannot know whether others wait too, so it marks the word as
        // contended.
        while self.0.swap(WAITED_FOR, Ordering::Acquire) != FREE {
            private_wait_while(&self.0, WAITED_FOR)?;
        }
        Ok(())
    }

    fn unlock(&self) -> Result<(), Error> {
        match self.0.swap(FREE, Ordering::Release) {
            WAITED_FOR => private_wake(&self.0, 1),
            _ => Ok(()),
        }
    }
}

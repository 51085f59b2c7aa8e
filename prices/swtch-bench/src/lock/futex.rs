//! A lock in a futex word: U. Drepper, "Futexes Are Tricky", 2011, §6, the third mutex.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Lock;
use crate::error::Error;
use crate::futex::{self, FutexScope, SharedScope};
use crate::shared::Zeroed;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and the release must ask the kernel to wake a waiter.
const CONTENDED: u32 = 2;

/// The futex word.
#[derive(Debug, Default)]
pub(crate) struct FutexLock<S>(AtomicU32, PhantomData<S>);

// SAFETY: zero is a valid atomic number and means a free lock; atomics and futexes are there to be
// used by several processes.
unsafe impl Zeroed for FutexLock<SharedScope> {}

impl<S: FutexScope> Lock for FutexLock<S> {
    fn lock(&self) -> Result<(), Error> {
        let taken = self
            .0
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            return Ok(());
        }
        // A thread that has waited cannot know whether others wait too, so it marks the word as
        // contended.
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            futex::wait_while::<S>(&self.0, CONTENDED)?;
        }
        Ok(())
    }

    fn unlock(&self) -> Result<(), Error> {
        match self.0.swap(FREE, Ordering::Release) {
            CONTENDED => futex::wake::<S>(&self.0, 1),
            _ => Ok(()),
        }
    }
}

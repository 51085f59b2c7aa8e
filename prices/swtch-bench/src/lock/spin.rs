//! A lock that is polled until it is free: no task sleeps.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Lock;
use crate::error::Error;
use crate::shared::Zeroed;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Spins by reading only, so that the cache line is not moved by failed attempts.
#[derive(Debug, Default)]
pub(crate) struct SpinLock(AtomicU32);

// SAFETY: zero is a valid atomic number and means a free lock; atomics are there to be used by
// several processes.
unsafe impl Zeroed for SpinLock {}

impl Lock for SpinLock {
    fn lock(&self) -> Result<(), Error> {
        while self.0.swap(HELD, Ordering::Acquire) != FREE {
            while self.0.load(Ordering::Relaxed) != FREE {
                spin_loop();
            }
        }
        Ok(())
    }

    fn unlock(&self) -> Result<(), Error> {
        self.0.store(FREE, Ordering::Release);
        Ok(())
    }
}

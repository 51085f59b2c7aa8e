//! A lock made of a flag, a mutex and a condition variable, the usual way when the mutex itself
//! must not be held for long.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{ConditionVariable, Lock, OwnCacheLine, PthreadMutex};
use crate::error::Error;

/// The flag, and the condition variable on which waiters block. For the threads of one process.
#[derive(Debug, Default)]
pub(crate) struct ConditionLock {
    mutex: OwnCacheLine<PthreadMutex>,
    freed: ConditionVariable,
    /// Only read and written while `mutex` is held.
    is_held: AtomicBool,
}

impl Lock for ConditionLock {
    fn lock(&self) -> Result<(), Error> {
        self.mutex.lock()?;
        while self.is_held.load(Ordering::Relaxed) {
            self.freed.wait(&self.mutex)?;
        }
        self.is_held.store(true, Ordering::Relaxed);
        self.mutex.unlock()
    }

    fn unlock(&self) -> Result<(), Error> {
        self.mutex.lock()?;
        self.is_held.store(false, Ordering::Relaxed);
        self.mutex.unlock()?;
        // The mutex is free again, so that the woken thread does not block a second time.
        self.freed.signal()
    }
}

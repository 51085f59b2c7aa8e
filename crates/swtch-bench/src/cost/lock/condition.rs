//! A lock made of a flag, a mutex and a condition variable, the usual way when the mutex itself
//! must not be held for long.

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{LibraryMutex, RingLock};
use crate::error::{Error, returned};

/// The flag, and the condition variable on which waiters block.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct ConditionLock {
    mutex: LibraryMutex,
    freed: Freed,
    /// Only read and written while `mutex` is held.
    is_held: AtomicBool,
}

struct Freed(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: several threads may use a pthread_cond_t at once; that is its purpose.
unsafe impl Sync for Freed {}
// SAFETY: it is only moved before its first use, when no thread can wait for it.
unsafe impl Send for Freed {}

impl Default for Freed {
    fn default() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }
}

impl fmt::Debug for ConditionLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConditionLock").finish_non_exhaustive()
    }
}

impl ConditionLock {
    /// Wakes one waiting thread, if there is any.
    pub(crate) fn signal(&self) -> Result<(), Error> {
        // SAFETY: initialised by `default`, alive while `self` is.
        returned("pthread_cond_signal", unsafe {
            libc::pthread_cond_signal(self.freed.0.get())
        })
    }
}

impl RingLock for ConditionLock {
    fn lock(&self) -> Result<(), Error> {
        self.mutex.lock()?;
        while self.is_held.load(Ordering::Relaxed) {
            // SAFETY: both are initialised by `default`, alive while `self` is, and the mutex is
            // ours.
            returned("pthread_cond_wait", unsafe {
                libc::pthread_cond_wait(self.freed.0.get(), self.mutex.as_ptr())
            })?;
        }
        self.is_held.store(true, Ordering::Relaxed);
        self.mutex.unlock()
    }

    fn unlock(&self) -> Result<(), Error> {
        self.mutex.lock()?;
        self.is_held.store(false, Ordering::Relaxed);
        self.mutex.unlock()?;
        // The mutex is free again, so that the woken thread does not block a second time.
        self.signal()
    }
}

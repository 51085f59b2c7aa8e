//! The read-write lock of the C library. It is no [`super::Lock`]: several readers may hold it.

use std::cell::UnsafeCell;
use std::fmt;

use crate::error::{Error, returned};

/// A read-write lock for the threads of one process: many readers, or one writer.
pub(crate) struct ReadWriteLock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: several threads may use a pthread_rwlock_t at once; that is its purpose.
unsafe impl Sync for ReadWriteLock {}
// SAFETY: it is only moved before its first use, when no thread can wait for it.
unsafe impl Send for ReadWriteLock {}

impl Default for ReadWriteLock {
    fn default() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }
}

impl fmt::Debug for ReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadWriteLock").finish_non_exhaustive()
    }
}

impl ReadWriteLock {
    /// Acquires the lock for reading; blocks while a writer holds it.
    pub(crate) fn read(&self) -> Result<(), Error> {
        // SAFETY: initialised by `default`, alive while `self` is.
        returned("pthread_rwlock_rdlock", unsafe {
            libc::pthread_rwlock_rdlock(self.0.get())
        })
    }

    /// Acquires the lock for writing; blocks while any thread holds it.
    pub(crate) fn write(&self) -> Result<(), Error> {
        // SAFETY: initialised by `default`, alive while `self` is.
        returned("pthread_rwlock_wrlock", unsafe {
            libc::pthread_rwlock_wrlock(self.0.get())
        })
    }

    /// Releases the lock, which the caller holds.
    pub(crate) fn unlock(&self) -> Result<(), Error> {
        // SAFETY: initialised by `default`, alive while `self` is; the caller has it.
        returned("pthread_rwlock_unlock", unsafe {
            libc::pthread_rwlock_unlock(self.0.get())
        })
    }
}

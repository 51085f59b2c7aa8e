//! Locks of the C library for the threads of one process.

use std::cell::UnsafeCell;
use std::fmt;

use super::RingLock;
use crate::error::{Error, returned};

/// A plain mutex.
///
/// It is never destroyed: neither glibc nor musl keeps any state of it elsewhere, so freeing its
/// memory is enough.
#[repr(align(64))]
pub(crate) struct LibraryMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: several threads may use a pthread_mutex_t at once; that is its purpose.
unsafe impl Sync for LibraryMutex {}
// SAFETY: it is only moved before its first use, when no thread can wait for it.
unsafe impl Send for LibraryMutex {}

impl Default for LibraryMutex {
    fn default() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }
}

impl fmt::Debug for LibraryMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LibraryMutex").finish_non_exhaustive()
    }
}

impl LibraryMutex {
    /// The raw mutex, for waits on a condition variable.
    pub(super) const fn as_ptr(&self) -> *mut libc::pthread_mutex_t {
        self.0.get()
    }
}

impl RingLock for LibraryMutex {
    fn lock(&self) -> Result<(), Error> {
        // SAFETY: initialised by `default`, alive while `self` is.
        returned("pthread_mutex_lock", unsafe {
            libc::pthread_mutex_lock(self.0.get())
        })
    }

    fn unlock(&self) -> Result<(), Error> {
        // SAFETY: initialised by `default`, alive while `self` is; the caller has it.
        returned("pthread_mutex_unlock", unsafe {
            libc::pthread_mutex_unlock(self.0.get())
        })
    }
}

/// A read-write lock: many readers, or one writer.
#[repr(align(64))]
pub(crate) struct LibraryReadWrite(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: several threads may use a pthread_rwlock_t at once; that is its purpose.
unsafe impl Sync for LibraryReadWrite {}
// SAFETY: it is only moved before its first use, when no thread can wait for it.
unsafe impl Send for LibraryReadWrite {}

impl Default for LibraryReadWrite {
    fn default() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }
}

impl fmt::Debug for LibraryReadWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LibraryReadWrite").finish_non_exhaustive()
    }
}

impl LibraryReadWrite {
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

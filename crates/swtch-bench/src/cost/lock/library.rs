//! Locks of the C library, between threads of one process.

use std::cell::UnsafeCell;
use std::fmt;

use super::Lock;
use crate::error::{Error, returned};

/// A plain mutex.
///
/// It is never destroyed: neither glibc nor musl keeps anything about it elsewhere, so that it goes with
/// its memory.
#[repr(align(64))]
pub(crate) struct LibraryMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: what a pthread_mutex_t is for.
unsafe impl Sync for LibraryMutex {}
// SAFETY: it is only moved before it is used first, when no thread can wait for it.
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
    /// For a condition variable that is waited for with it.
    pub(super) const fn as_ptr(&self) -> *mut libc::pthread_mutex_t {
        self.0.get()
    }
}

impl Lock for LibraryMutex {
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

/// A lock that many may have for reading, or one for writing.
#[repr(align(64))]
pub(crate) struct LibraryReadWrite(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: what a pthread_rwlock_t is for.
unsafe impl Sync for LibraryReadWrite {}
// SAFETY: it is only moved before it is used first, when no thread can wait for it.
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
    /// Waits until nobody has it for writing, and has it for reading.
    pub(crate) fn read(&self) -> Result<(), Error> {
        // SAFETY: initialised by `default`, alive while `self` is.
        returned("pthread_rwlock_rdlock", unsafe {
            libc::pthread_rwlock_rdlock(self.0.get())
        })
    }

    /// Waits until nobody has it, and has it for writing.
    pub(crate) fn write(&self) -> Result<(), Error> {
        // SAFETY: initialised by `default`, alive while `self` is.
        returned("pthread_rwlock_wrlock", unsafe {
            libc::pthread_rwlock_wrlock(self.0.get())
        })
    }

    /// Gives it back. The caller has it.
    pub(crate) fn unlock(&self) -> Result<(), Error> {
        // SAFETY: initialised by `default`, alive while `self` is; the caller has it.
        returned("pthread_rwlock_unlock", unsafe {
            libc::pthread_rwlock_unlock(self.0.get())
        })
    }
}

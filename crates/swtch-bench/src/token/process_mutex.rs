//! A mutex of the C library that processes may share.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;

use crate::error::{Error, returned};
use crate::shared::Zeroed;

/// A mutex for shared memory. The code that allocates the memory calls [`Self::init`] once, before
/// any lock.
///
/// It is never destroyed: neither glibc nor musl keeps any state of it elsewhere, so freeing its
/// memory is enough.
pub(crate) struct ProcessMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: several tasks may use a pthread_mutex_t at once; that is its purpose.
unsafe impl Sync for ProcessMutex {}
// SAFETY: all zeros is what PTHREAD_MUTEX_INITIALIZER is. Only robust and priority-inheriting
// mutexes hold pointers, and this one is neither. It is initialised as process-shared.
unsafe impl Zeroed for ProcessMutex {}

impl ProcessMutex {
    /// Initialises the mutex as unlocked and shared between processes.
    pub(crate) fn init(&self) -> Result<(), Error> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are ours to be written to.
        returned("pthread_mutexattr_init", unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr())
        })?;
        // SAFETY: the attributes are initialised.
        returned("pthread_mutexattr_setpshared", unsafe {
            libc::pthread_mutexattr_setpshared(
                attributes.as_mut_ptr(),
                libc::PTHREAD_PROCESS_SHARED,
            )
        })?;
        // SAFETY: nothing uses the mutex yet, and the attributes are initialised.
        returned("pthread_mutex_init", unsafe {
            libc::pthread_mutex_init(self.0.get(), attributes.as_ptr())
        })
    }

    /// Acquires the lock; blocks while another task holds it.
    pub(crate) fn lock(&self) -> Result<(), Error> {
        // SAFETY: initialised (`init`), alive while `self` is.
        returned("pthread_mutex_lock", unsafe {
            libc::pthread_mutex_lock(self.0.get())
        })
    }

    /// Releases the lock, which the caller holds.
    pub(crate) fn unlock(&self) -> Result<(), Error> {
        // SAFETY: initialised (`init`), alive while `self` is.
        returned("pthread_mutex_unlock", unsafe {
            libc::pthread_mutex_unlock(self.0.get())
        })
    }

    /// The raw mutex, for waits on a condition variable.
    pub(super) const fn as_ptr(&self) -> *mut libc::pthread_mutex_t {
        self.0.get()
    }
}

impl fmt::Debug for ProcessMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProcessMutex").finish_non_exhaustive()
    }
}

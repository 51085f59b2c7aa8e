//! The mutex of the C library.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;

use super::Lock;
use crate::error::{Error, returned};
use crate::shared::{Shared, Zeroed};

/// A plain mutex. The default value is for the threads of one process; [`Self::init_shared`] makes
/// it one for processes.
///
/// It is never destroyed: neither glibc nor musl keeps any state of it elsewhere, so freeing its
/// memory is enough.
pub(crate) struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: several tasks may use a pthread_mutex_t at once; that is its purpose.
unsafe impl Sync for PthreadMutex {}
// SAFETY: it is only moved before its first use, when no thread can wait for it.
unsafe impl Send for PthreadMutex {}
// SAFETY: all zeros is what PTHREAD_MUTEX_INITIALIZER is. Only robust and priority-inheriting
// mutexes hold pointers, and this one is neither. `shared` and `init_shared` make it one for
// processes; the code of this crate that puts one into shared memory calls them first.
unsafe impl Zeroed for PthreadMutex {}

impl Default for PthreadMutex {
    fn default() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }
}

impl fmt::Debug for PthreadMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PthreadMutex").finish_non_exhaustive()
    }
}

impl PthreadMutex {
    /// A mutex that processes share.
    pub(crate) fn shared() -> Result<Shared<Self>, Error> {
        let mutex: Shared<Self> = Shared::new()?;
        mutex.init_shared()?;
        Ok(mutex)
    }

    /// Initialises the mutex as unlocked and shared between processes. The code that allocates the
    /// memory calls it once, before any lock.
    pub(crate) fn init_shared(&self) -> Result<(), Error> {
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

    /// The raw mutex, for waits on a condition variable.
    pub(super) const fn as_ptr(&self) -> *mut libc::pthread_mutex_t {
        self.0.get()
    }
}

impl Lock for PthreadMutex {
    fn lock(&self) -> Result<(), Error> {
        // SAFETY: initialised (`default`, `init_shared`), alive while `self` is.
        returned("pthread_mutex_lock", unsafe {
            libc::pthread_mutex_lock(self.0.get())
        })
    }

    fn unlock(&self) -> Result<(), Error> {
        // SAFETY: initialised (`default`, `init_shared`), alive while `self` is; the caller has it.
        returned("pthread_mutex_unlock", unsafe {
            libc::pthread_mutex_unlock(self.0.get())
        })
    }
}

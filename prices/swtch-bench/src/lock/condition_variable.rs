//! The condition variable of the C library.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;

use super::PthreadMutex;
use crate::error::{Error, returned};
use crate::shared::Zeroed;

/// A condition variable. The default value is for the threads of one process;
/// [`Self::init_shared`] makes it one for processes. As a [`PthreadMutex`], it is never destroyed.
pub(crate) struct ConditionVariable(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: several tasks may use a pthread_cond_t at once; that is its purpose.
unsafe impl Sync for ConditionVariable {}
// SAFETY: it is only moved before its first use, when no thread can wait for it.
unsafe impl Send for ConditionVariable {}
// SAFETY: all zeros is what PTHREAD_COND_INITIALIZER is. A condition variable that is
// process-shared holds no pointer. `init_shared` makes it so, and the code of this crate that puts
// one into shared memory calls it first.
unsafe impl Zeroed for ConditionVariable {}

impl Default for ConditionVariable {
    fn default() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }
}

impl fmt::Debug for ConditionVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConditionVariable").finish_non_exhaustive()
    }
}

impl ConditionVariable {
    /// Initialises it as shared between processes. The code that allocates the memory calls it
    /// once, before any use.
    pub(crate) fn init_shared(&self) -> Result<(), Error> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are ours to be written to.
        returned("pthread_condattr_init", unsafe {
            libc::pthread_condattr_init(attributes.as_mut_ptr())
        })?;
        // SAFETY: the attributes are initialised.
        returned("pthread_condattr_setpshared", unsafe {
            libc::pthread_condattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED)
        })?;
        // SAFETY: nothing uses the condition variable yet, and the attributes are initialised.
        returned("pthread_cond_init", unsafe {
            libc::pthread_cond_init(self.0.get(), attributes.as_ptr())
        })
    }

    /// Wakes one waiting task, if there is any.
    pub(crate) fn signal(&self) -> Result<(), Error> {
        // SAFETY: initialised (`default`, `init_shared`), alive while `self` is.
        returned("pthread_cond_signal", unsafe {
            libc::pthread_cond_signal(self.0.get())
        })
    }

    /// Releases `mutex`, which the caller holds, waits for a signal, and acquires `mutex` again. It
    /// may return without a signal, so the caller must check again what it waits for.
    pub(crate) fn wait(&self, mutex: &PthreadMutex) -> Result<(), Error> {
        // SAFETY: both are initialised, alive while they are borrowed, and the mutex is ours.
        returned("pthread_cond_wait", unsafe {
            libc::pthread_cond_wait(self.0.get(), mutex.as_ptr())
        })
    }
}

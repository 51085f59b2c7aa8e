//! Tokens behind a mutex and a condition variable of the C library. Both are futexes inside.
//!
//! Without a peer, none of the calls of a hand-over enters the kernel: the signal finds no waiter,
//! and the token is already there when it is taken. So the cost of a hand-over's system calls is
//! part of the difference between it and [`Token::alone`], together with the switch.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{ProcessMutex, Token};
use crate::error::{Error, returned};
use crate::shared::{Shared, Zeroed};

/// The number of tokens, and a condition variable for threads or processes that wait for one.
#[derive(Debug)]
pub(crate) struct Condition(Shared<ConditionState>);

struct ConditionState {
    mutex: ProcessMutex,
    came: UnsafeCell<libc::pthread_cond_t>,
    /// Only read and written while `mutex` is held.
    tokens: AtomicU32,
}

// SAFETY: a mutex and a condition variable are there to be used by several at once.
unsafe impl Sync for ConditionState {}
// SAFETY: zeros are what both are initialised from, and mean no token. A process-shared condition
// variable holds no pointer.
unsafe impl Zeroed for ConditionState {}

impl fmt::Debug for ConditionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConditionState").finish_non_exhaustive()
    }
}

impl Condition {
    /// A condition without a token.
    pub(crate) fn new() -> Result<Self, Error> {
        let parts: Shared<ConditionState> = Shared::new()?;
        parts.mutex.init()?;
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
            libc::pthread_cond_init(parts.came.get(), attributes.as_ptr())
        })?;
        Ok(Self(parts))
    }
}

impl Token for Condition {
    fn pass(&self) -> Result<(), Error> {
        self.0.mutex.lock()?;
        let tokens = self.0.tokens.load(Ordering::Relaxed);
        self.0.tokens.store(tokens + 1, Ordering::Relaxed);
        self.0.mutex.unlock()?;
        // The mutex is free again, so that the woken task does not block a second time.
        // SAFETY: initialised by `new`, alive while `self` is.
        returned("pthread_cond_signal", unsafe {
            libc::pthread_cond_signal(self.0.came.get())
        })
    }

    fn take(&self) -> Result<(), Error> {
        self.0.mutex.lock()?;
        while self.0.tokens.load(Ordering::Relaxed) == 0 {
            let mutex = self.0.mutex.as_ptr();
            // SAFETY: initialised by `new`, alive while `self` is, and the mutex is ours.
            returned("pthread_cond_wait", unsafe {
                libc::pthread_cond_wait(self.0.came.get(), mutex)
            })?;
        }
        let tokens = self.0.tokens.load(Ordering::Relaxed);
        self.0.tokens.store(tokens - 1, Ordering::Relaxed);
        self.0.mutex.unlock()
    }
}

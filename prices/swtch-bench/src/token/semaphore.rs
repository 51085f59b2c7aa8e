//! A token as a POSIX semaphore. The kernel has no such object: glibc and musl build it from a
//! futex, so waiting for it is `futex`.
//!
//! Without a peer, neither `sem_post` nor `sem_wait` enters the kernel. So the cost of a
//! hand-over's system calls is part of the difference between it and [`Token::hand_over_alone`],
//! together with the switch.

use std::cell::UnsafeCell;
use std::fmt;

use super::Token;
use crate::error::{Error, checked};
use crate::lock::Lock;
use crate::shared::{Shared, Zeroed};

/// An unnamed semaphore of threads or of processes.
#[derive(Debug)]
pub(crate) struct SemaphoreToken(Shared<Raw>);

struct Raw(UnsafeCell<libc::sem_t>);

// SAFETY: all operations on a sem_t may be called by any thread at any time (sem_overview(7)).
unsafe impl Sync for Raw {}
// SAFETY: a sem_t may be initialised in zeroed memory, and one that is process-shared holds no
// pointer.
unsafe impl Zeroed for Raw {}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Raw").finish_non_exhaustive()
    }
}

impl SemaphoreToken {
    /// A semaphore without a token.
    pub(crate) fn new() -> Result<Self, Error> {
        const PROCESS_SHARED: libc::c_int = 1;
        let semaphore = Self(Shared::new()?);
        // SAFETY: the memory is ours and nothing uses it yet.
        checked("sem_init", unsafe {
            libc::sem_init(semaphore.0.0.get(), PROCESS_SHARED, 0)
        })?;
        Ok(semaphore)
    }
}

impl Token for SemaphoreToken {
    fn pass(&self) -> Result<(), Error> {
        // SAFETY: initialised by `new`, alive while `self` is.
        checked("sem_post", unsafe { libc::sem_post(self.0.0.get()) }).map(drop)
    }

    fn take(&self) -> Result<(), Error> {
        // SAFETY: initialised by `new`, alive while `self` is.
        checked("sem_wait", unsafe { libc::sem_wait(self.0.0.get()) }).map(drop)
    }
}

/// The semaphore has a token while the lock is free.
impl Lock for SemaphoreToken {
    fn lock(&self) -> Result<(), Error> {
        self.take()
    }

    fn unlock(&self) -> Result<(), Error> {
        self.pass()
    }
}

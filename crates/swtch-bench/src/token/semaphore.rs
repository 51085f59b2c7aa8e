//! A token as a POSIX semaphore. The kernel has no such thing: glibc and musl build it from a futex,
//! so waiting for it is `futex`.

use std::cell::UnsafeCell;

use super::Token;
use crate::error::{Error, checked};

/// An unnamed semaphore of the threads of one process.
#[derive(Debug)]
pub(crate) struct Semaphore(Box<UnsafeCell<libc::sem_t>>);

// SAFETY: all operations on a sem_t may be called by any thread at any time (sem_overview(7)).
unsafe impl Sync for Semaphore {}
// SAFETY: an unnamed semaphore belongs to no thread, and its box keeps its address.
unsafe impl Send for Semaphore {}

impl Semaphore {
    /// A semaphore without a token.
    pub(crate) fn new() -> Result<Self, Error> {
        // SAFETY: an all-zero sem_t may be initialised, as memory from malloc may.
        let semaphore = Self(Box::new(UnsafeCell::new(unsafe { std::mem::zeroed() })));
        // SAFETY: the box is ours and no thread uses it yet.
        checked("sem_init", unsafe {
            libc::sem_init(semaphore.0.get(), 0, 0)
        })?;
        Ok(semaphore)
    }
}

impl Token for Semaphore {
    fn pass(&self) -> Result<(), Error> {
        // SAFETY: initialised by `new`, alive while `self` is.
        checked("sem_post", unsafe { libc::sem_post(self.0.get()) }).map(drop)
    }

    fn take(&self) -> Result<(), Error> {
        // SAFETY: initialised by `new`, alive while `self` is.
        checked("sem_wait", unsafe { libc::sem_wait(self.0.get()) }).map(drop)
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: nobody can wait for it any more, since all borrows have ended.
        unsafe { libc::sem_destroy(self.0.get()) };
    }
}

//! A token as a System V semaphore.

use super::Token;
use crate::error::{Error, checked};

/// A private set of one semaphore, removed when dropped.
#[derive(Debug)]
pub(crate) struct SysvSemaphore(libc::c_int);

impl SysvSemaphore {
    /// A semaphore without a token.
    pub(crate) fn new() -> Result<Self, Error> {
        // SAFETY: no memory is involved.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
        checked("semget", id).map(Self)
    }

    fn add(&self, change: i16) -> Result<(), Error> {
        let mut operation = libc::sembuf {
            sem_num: 0,
            sem_op: change,
            sem_flg: 0,
        };
        // SAFETY: one operation is passed, and it lives across the call.
        checked("semop", unsafe { libc::semop(self.0, &mut operation, 1) }).map(drop)
    }
}

impl Token for SysvSemaphore {
    fn pass(&self) -> Result<(), Error> {
        self.add(1)
    }

    fn take(&self) -> Result<(), Error> {
        self.add(-1)
    }
}

impl Drop for SysvSemaphore {
    fn drop(&mut self) {
        // SAFETY: no memory is involved with IPC_RMID; the set is ours.
        unsafe { libc::semctl(self.0, 0, libc::IPC_RMID) };
    }
}

//! A token as a System V semaphore. Only this token outlives a process that is killed: a semaphore
//! set has no descriptor that the kernel would close then, and it cannot be removed right after it
//! was made, because that would wake its waiters (semctl(2)).

use std::io::ErrorKind;

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

    /// The kernel's id of the set.
    pub(crate) const fn id(&self) -> libc::c_int {
        self.0
    }

    /// Removes a set whose owner was killed; an error is ignored, since the set may be gone
    /// already.
    pub(crate) fn remove(id: libc::c_int) {
        // SAFETY: no memory is involved with IPC_RMID.
        unsafe { libc::semctl(id, 0, libc::IPC_RMID) };
    }

    fn add(&self, change: i16) -> Result<(), Error> {
        let mut operation = libc::sembuf {
            sem_num: 0,
            sem_op: change,
            sem_flg: 0,
        };
        loop {
            // SAFETY: one operation is passed, and it lives across the call.
            let result = unsafe { libc::semop(self.0, &mut operation, 1) };
            match checked("semop", result) {
                // No flag of a signal handler makes the kernel restart this call (signal(7)), and a
                // member that failed because of it would leave the set behind.
                Err(Error::Call { source, .. }) if source.kind() == ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
        }
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
        Self::remove(self.0);
    }
}

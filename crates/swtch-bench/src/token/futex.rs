//! A token in a futex word, with no library between it and the kernel.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Token;
use crate::error::{Error, checked};

const ABSENT: u32 = 0;
const PRESENT: u32 = 1;

/// A word that is 1 while the token is there.
#[derive(Debug, Default)]
pub(crate) struct Futex(AtomicU32);

impl Futex {
    fn call(&self, operation: i32, value: u32) -> Result<i64, Error> {
        // SAFETY: the word lives across the call; without a timeout the last three arguments are
        // not used.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                operation | libc::FUTEX_PRIVATE_FLAG,
                value,
                ptr::null::<libc::timespec>(),
            )
        };
        checked("futex", result)
    }
}

impl Token for Futex {
    fn pass(&self) -> Result<(), Error> {
        self.0.store(PRESENT, Ordering::Release);
        self.call(libc::FUTEX_WAKE, 1).map(drop)
    }

    fn take(&self) -> Result<(), Error> {
        while self.0.swap(ABSENT, Ordering::Acquire) == ABSENT {
            match self.call(libc::FUTEX_WAIT, ABSENT) {
                Ok(_) => {}
                // EAGAIN: the token came between the look and the wait.
                Err(Error::Call { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

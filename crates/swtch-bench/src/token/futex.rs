//! A token in a futex word, used without any library in between.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Token;
use crate::error::{Error, checked};
use crate::shared::Shared;

const ABSENT: u32 = 0;
const PRESENT: u32 = 1;

/// A word for the threads of one process, which is 1 while the token is there.
#[derive(Debug, Default)]
pub(crate) struct Futex(AtomicU32);

impl Token for Futex {
    fn pass(&self) -> Result<(), Error> {
        pass(&self.0, libc::FUTEX_PRIVATE_FLAG)
    }

    fn take(&self) -> Result<(), Error> {
        take(&self.0, libc::FUTEX_PRIVATE_FLAG)
    }

    fn alone(&self) -> Result<(), Error> {
        alone(&self.0, libc::FUTEX_PRIVATE_FLAG)
    }
}

/// A word that processes share.
#[derive(Debug)]
pub(crate) struct SharedFutex(Shared<AtomicU32>);

impl SharedFutex {
    /// A word without the token.
    pub(crate) fn new() -> Result<Self, Error> {
        Shared::new().map(Self)
    }

    /// Takes the token if it comes within `limit`, and returns whether it came.
    pub(crate) fn take_within(&self, limit: Duration) -> Result<bool, Error> {
        let timeout = libc::timespec {
            tv_sec: limit.as_secs().cast_signed(),
            tv_nsec: limit.subsec_nanos().into(),
        };
        while self.0.swap(ABSENT, Ordering::Acquire) == ABSENT {
            match call(&self.0, libc::FUTEX_WAIT, ABSENT, &raw const timeout) {
                Ok(_) => {}
                Err(Error::Call { source, .. }) if is_passing(&source) => {}
                Err(Error::Call { source, .. }) if source.kind() == io::ErrorKind::TimedOut => {
                    return Ok(self.0.swap(ABSENT, Ordering::Acquire) == PRESENT);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Token for SharedFutex {
    fn pass(&self) -> Result<(), Error> {
        pass(&self.0, 0)
    }

    fn take(&self) -> Result<(), Error> {
        take(&self.0, 0)
    }

    fn alone(&self) -> Result<(), Error> {
        alone(&self.0, 0)
    }
}

/// Sleeps while the word, which processes share, has this value, for `limit` at most. It may return
/// earlier, so the caller must check the word again.
pub(crate) fn sleep_while(
    word: &AtomicU32,
    value: u32,
    limit: Option<Duration>,
) -> Result<(), Error> {
    let timeout = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().cast_signed(),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    match call(word, libc::FUTEX_WAIT, value, timeout) {
        Ok(_) => Ok(()),
        Err(Error::Call { source, .. })
            if is_passing(&source) || source.kind() == io::ErrorKind::TimedOut =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Wakes up to `most` of the tasks that sleep on the word.
pub(crate) fn wake(word: &AtomicU32, most: u32) -> Result<(), Error> {
    call(word, libc::FUTEX_WAKE, most, ptr::null()).map(drop)
}

fn pass(word: &AtomicU32, scope: i32) -> Result<(), Error> {
    word.store(PRESENT, Ordering::Release);
    call(word, libc::FUTEX_WAKE | scope, 1, ptr::null()).map(drop)
}

fn take(word: &AtomicU32, scope: i32) -> Result<(), Error> {
    while word.swap(ABSENT, Ordering::Acquire) == ABSENT {
        match call(word, libc::FUTEX_WAIT | scope, ABSENT, ptr::null()) {
            Ok(_) => {}
            Err(Error::Call { source, .. }) if is_passing(&source) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A wake without a waiter, and a wait that finds another value: both go as far into the kernel as
/// those of a hand-over do.
fn alone(word: &AtomicU32, scope: i32) -> Result<(), Error> {
    word.store(PRESENT, Ordering::Release);
    call(word, libc::FUTEX_WAKE | scope, 1, ptr::null())?;
    match call(word, libc::FUTEX_WAIT | scope, ABSENT, ptr::null()) {
        Err(Error::Call { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {}
        Ok(_) => unreachable!("nobody else knows the word, so it cannot have changed"),
        Err(error) => return Err(error),
    }
    word.swap(ABSENT, Ordering::Acquire);
    Ok(())
}

/// Sleeps while `word` holds `value`. It may return earlier, so the caller must check the word
/// again. For the threads of one process.
pub(crate) fn private_wait_while(word: &AtomicU32, value: u32) -> Result<(), Error> {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    match call(word, operation, value, ptr::null()) {
        Err(Error::Call { source, .. }) if is_passing(&source) => Ok(()),
        result => result.map(drop),
    }
}

/// Wakes up to `most` of the threads that sleep in [`private_wait_while`].
pub(crate) fn private_wake(word: &AtomicU32, most: u32) -> Result<(), Error> {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    call(word, operation, most, ptr::null()).map(drop)
}

/// EAGAIN: the token came between the check and the wait. EINTR: the task was stopped and
/// continued.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn call(
    word: &AtomicU32,
    operation: i32,
    value: u32,
    timeout: *const libc::timespec,
) -> Result<i64, Error> {
    // SAFETY: the word lives across the call, and so does the timeout where there is one; the last
    // two arguments of the call are not used by these operations.
    let result =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, timeout) };
    checked("futex", result)
}

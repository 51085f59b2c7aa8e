//! The futex calls: sleep while a word has a value, wake those who sleep.

use std::fmt;
use std::io;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::error::{Error, checked};

/// Which tasks use a futex word: all tasks that sleep on it or wake others name the same scope.
pub(crate) trait FutexScope: fmt::Debug + Default + Send + Sync + 'static {
    /// Added to the operations of the system call.
    const FLAG: libc::c_int;
}

/// The threads of one process. The kernel then knows the word by its address alone.
#[derive(Debug, Default)]
pub(crate) struct PrivateScope;

impl FutexScope for PrivateScope {
    const FLAG: libc::c_int = libc::FUTEX_PRIVATE_FLAG;
}

/// All processes that share the memory.
#[derive(Debug, Default)]
pub(crate) struct SharedScope;

impl FutexScope for SharedScope {
    const FLAG: libc::c_int = 0;
}

/// The number that means "all" to [`wake`] (`include/linux/futex.h`).
pub(crate) const ALL: u32 = i32::MAX.unsigned_abs();

/// Sleeps while the word has this value. It may return earlier, so the caller must check the word
/// again.
pub(crate) fn wait_while<S: FutexScope>(word: &AtomicU32, value: u32) -> Result<(), Error> {
    match wait::<S>(word, value) {
        Err(Error::Call { source, .. }) if is_passing(&source) => Ok(()),
        result => result,
    }
}

/// As [`wait_while`], for `limit` at most; returns `false` when the limit has passed.
pub(crate) fn wait_while_within<S: FutexScope>(
    word: &AtomicU32,
    value: u32,
    limit: Duration,
) -> Result<bool, Error> {
    let timeout = libc::timespec {
        tv_sec: limit.as_secs().cast_signed(),
        tv_nsec: limit.subsec_nanos().into(),
    };
    match call(word, libc::FUTEX_WAIT | S::FLAG, value, &raw const timeout) {
        Err(Error::Call { source, .. }) if is_passing(&source) => Ok(true),
        Err(Error::Call { source, .. }) if source.kind() == io::ErrorKind::TimedOut => Ok(false),
        result => result.map(|_| true),
    }
}

/// One wait, which fails with EAGAIN if the word has another value.
#[inline]
pub(crate) fn wait<S: FutexScope>(word: &AtomicU32, value: u32) -> Result<(), Error> {
    call(word, libc::FUTEX_WAIT | S::FLAG, value, ptr::null()).map(drop)
}

/// Wakes up to `most` of the tasks that sleep on the word.
pub(crate) fn wake<S: FutexScope>(word: &AtomicU32, most: u32) -> Result<(), Error> {
    call(word, libc::FUTEX_WAKE | S::FLAG, most, ptr::null()).map(drop)
}

/// EAGAIN: the word changed between the check and the wait. EINTR: the task was stopped and
/// continued.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[inline]
fn call(
    word: &AtomicU32,
    operation: libc::c_int,
    value: u32,
    timeout: *const libc::timespec,
) -> Result<i64, Error> {
    // SAFETY: the word lives across the call, and so does the timeout where there is one; the last
    // two arguments of the call are not used by these operations.
    let result =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, timeout) };
    checked("futex", result)
}

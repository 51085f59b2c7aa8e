//! Sleeping in the kernel on a word, for threads: the baton of thread mode, and waiting threads
//! that are not workers.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `expected`, at most for `at_most`. May return early, so the caller must
/// check the word again.
pub(crate) fn wait(word: &AtomicU32, expected: u32, at_most: Option<Duration>) {
    let timeout = at_most.map(|span| libc::timespec {
        tv_sec: span.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: span.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` outlives the call; `timeout` is null or valid. After any error (changed,
    // interrupted, timed out) the caller checks the word again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, timeout) };
}

/// Wakes one sleeper on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: only the address of `word` is used.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

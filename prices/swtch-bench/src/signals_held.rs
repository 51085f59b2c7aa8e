//! Blocks the signals that end a program, so that what it created outside of itself, such as a
//! cgroup, is removed first.

use std::mem;
use std::ptr;

use crate::error::{Error, checked};

/// Guard made by [`SignalsHeld::hold`]. Dropping it restores the signal mask.
pub(crate) struct SignalsHeld(libc::sigset_t);

impl SignalsHeld {
    /// Blocks SIGINT, SIGTERM and SIGHUP in the calling thread.
    pub(crate) fn hold() -> Result<Self, Error> {
        // SAFETY: an all-zero sigset_t may be passed to sigemptyset, which makes it valid.
        let mut ends: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: the set is ours.
        unsafe { libc::sigemptyset(&mut ends) };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the set is ours and the signal exists.
            unsafe { libc::sigaddset(&mut ends, signal) };
        }
        let mut before = ends;
        // SAFETY: both sets are ours and live across the call.
        checked("sigprocmask", unsafe {
            libc::sigprocmask(libc::SIG_BLOCK, &ends, &mut before)
        })?;
        Ok(Self(before))
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: the set is the one that held before; the old one is not asked for.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

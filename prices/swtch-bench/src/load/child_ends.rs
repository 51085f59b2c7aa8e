//! Sleeps until a child ends, with a limit: `wait4` has none.

use std::mem;
use std::ptr;
use std::time::Duration;

use crate::error::{Error, checked};

/// Blocks `SIGCHLD` so that it can be waited for. Dropping it restores the mask.
pub(super) struct ChildEnds {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl ChildEnds {
    pub(super) fn hold() -> Result<Self, Error> {
        // SAFETY: an all-zero sigset_t may be passed to sigemptyset, which makes it valid.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: the set is ours.
        unsafe { libc::sigemptyset(&mut set) };
        // SAFETY: the set is ours and the signal exists.
        unsafe { libc::sigaddset(&mut set, libc::SIGCHLD) };
        let mut before = set;
        // SAFETY: both sets are ours and live across the call.
        checked("sigprocmask", unsafe {
            libc::sigprocmask(libc::SIG_BLOCK, &set, &mut before)
        })?;
        Ok(Self { set, before })
    }

    /// Sleeps until a child ends, for `limit` at most.
    pub(super) fn wait_for_one(&self, limit: Duration) -> Result<(), Error> {
        let timeout = libc::timespec {
            tv_sec: limit.as_secs().cast_signed(),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: set and timeout live across the call, which only reads them; no information about
        // the signal is requested.
        let signal = unsafe { libc::sigtimedwait(&self.set, ptr::null_mut(), &timeout) };
        match checked("rt_sigtimedwait", signal) {
            Ok(_) => Ok(()),
            // The limit has passed, or another signal was handled: the caller checks.
            Err(Error::Call { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for ChildEnds {
    fn drop(&mut self) {
        // SAFETY: the set is the one that held before; the old one is not asked for.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}

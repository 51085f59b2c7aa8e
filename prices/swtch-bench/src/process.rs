//! Processes: started by `fork` alone, so that they do nothing but what they are told to do, and
//! killed when their guard is dropped.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, checked};

/// Exit code of a child whose function failed.
const FAILED: i32 = 101;

/// A child process. Dropping it kills and reaps it.
#[derive(Debug)]
pub(crate) struct ForkedChild {
    pid: libc::pid_t,
    is_reaped: bool,
}

impl ForkedChild {
    /// Forks a child that runs `run` and ends. The kernel kills it if the thread that forked it ends first.
    ///
    /// `run` must need neither another thread nor a lock that another thread of the parent holds:
    /// only the calling thread exists in the child.
    pub(crate) fn fork(run: impl FnOnce() -> Result<(), Error>) -> Result<Self, Error> {
        let parent = std::process::id();
        Self::fork_surviving(|| {
            die_with_parent(parent);
            run()
        })
    }

    /// As [`Self::fork`], for a child that outlives its parent long enough to clean up: it must
    /// itself detect that the parent has ended.
    pub(crate) fn fork_surviving(run: impl FnOnce() -> Result<(), Error>) -> Result<Self, Error> {
        // SAFETY: fork has no arguments. The child runs `run` under the condition above and then
        // leaves by _exit, so it never returns into the parent's code.
        let pid = checked("fork", unsafe { libc::fork() })?;
        if pid == 0 {
            // A panic must not unwind into the copy of the parent's stack.
            let done = catch_unwind(AssertUnwindSafe(run));
            leave(if matches!(done, Ok(Ok(()))) {
                0
            } else {
                FAILED
            });
        }
        Ok(Self {
            pid,
            is_reaped: false,
        })
    }

    pub(crate) const fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Waits until the child has ended and returns its wait status.
    pub(crate) fn wait(&mut self) -> Result<i32, Error> {
        let mut status = 0;
        retried(|| {
            // SAFETY: `status` is ours to be written to.
            let result = unsafe { libc::waitpid(self.pid, &mut status, 0) };
            checked("wait4", result)
        })?;
        self.is_reaped = true;
        Ok(status)
    }

    /// Waits until the child has ended, but does not reap it: until it is reaped, /proc still shows
    /// it.
    pub(crate) fn wait_without_reaping(&self) -> Result<(), Error> {
        self.wait_for(libc::WEXITED | libc::WNOWAIT).map(drop)
    }

    /// Reaps the child if it has ended, and returns its wait status; `None` while it lives.
    pub(crate) fn try_wait(&mut self) -> Result<Option<i32>, Error> {
        let mut status = 0;
        // SAFETY: `status` is ours to be written to.
        let result = unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) };
        if checked("wait4", result)? == 0 {
            return Ok(None);
        }
        self.is_reaped = true;
        Ok(Some(status))
    }

    /// Waits until the child has ended, for `limit` at most, and reaps it. If it cannot be waited for, this returns at
    /// once; the next call that waits for it has the error.
    pub(crate) fn wait_at_most(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while !matches!(self.try_wait(), Ok(Some(_)) | Err(_)) && Instant::now() < deadline {
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Stops the child with `SIGSTOP`, and returns when the kernel reports that it has stopped. A child
    /// that has ended meanwhile stays to be reaped.
    pub(crate) fn stop(&self) -> Result<(), Error> {
        self.signal(libc::SIGSTOP)?;
        let seen = self.wait_for(libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT)?;
        if seen == libc::CLD_STOPPED {
            // Takes the report, so that the next stop does not find it again.
            self.wait_for(libc::WSTOPPED | libc::WNOHANG)?;
        }
        Ok(())
    }

    /// Continues the child after [`Self::stop`].
    pub(crate) fn resume(&self) -> Result<(), Error> {
        self.signal(libc::SIGCONT)
    }

    /// Kills the child; [`Self::wait`] then returns 9, unless it had already ended.
    pub(crate) fn kill(&self) -> Result<(), Error> {
        self.signal(libc::SIGKILL)
    }

    fn signal(&self, signal: i32) -> Result<(), Error> {
        assert!(
            !self.is_reaped,
            "invariant: once a child is reaped, its id may be another process's"
        );
        // SAFETY: no memory is involved, and `pid` is a child that is not yet reaped.
        checked("kill", unsafe { libc::kill(self.pid, signal) }).map(drop)
    }

    /// Waits by waitid(2), which can be told to leave an ended child as it is. Returns what has become
    /// of it: `CLD_STOPPED`, `CLD_EXITED`, …
    fn wait_for(&self, options: i32) -> Result<i32, Error> {
        // SAFETY: an all-zero siginfo_t is a valid one.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        retried(|| {
            // SAFETY: `info` is ours to be written to.
            let result = unsafe { libc::waitid(libc::P_PID, self.pid(), &mut info, options) };
            checked("waitid", result)
        })?;
        Ok(info.si_code)
    }
}

/// Repeats the call until no signal interrupts it.
fn retried(mut call: impl FnMut() -> Result<i32, Error>) -> Result<i32, Error> {
    loop {
        match call() {
            Err(Error::Call { source, .. }) if source.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl Drop for ForkedChild {
    fn drop(&mut self) {
        if !self.is_reaped {
            let ended = self.kill().and_then(|()| self.wait());
            debug_assert!(
                ended.is_ok(),
                "invariant: an unreaped child can be killed and reaped"
            );
        }
    }
}

/// Sets the calling thread's name to any bytes but NUL; the kernel keeps the first 15.
pub(crate) fn set_own_name(name: &[u8]) {
    let mut comm = [0_u8; 16];
    let kept = name.len().min(comm.len() - 1);
    comm[..kept].copy_from_slice(&name[..kept]);
    // SAFETY: `comm` ends in NUL and lives across the call, which only reads it. It cannot fail.
    unsafe { libc::prctl(libc::PR_SET_NAME, comm.as_ptr()) };
}

/// Asks for SIGKILL when the parent ends. If the parent has ended before that, the signal never
/// comes (prctl(2)), so the child then checks whether its parent is still `parent`.
fn die_with_parent(parent: u32) {
    // SAFETY: no memory is involved; SIGKILL is a valid signal, so it cannot fail.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: getppid has no arguments and cannot fail.
    if unsafe { libc::getppid() }.unsigned_abs() != parent {
        leave(FAILED);
    }
}

/// Ends the process, with all its threads, as failed.
pub(crate) fn fail() -> ! {
    leave(FAILED)
}

fn leave(code: i32) -> ! {
    // SAFETY: _exit ends the process; what the parent's exit handlers would do stays undone.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It may end at the moment at which it is to be stopped.
    #[test]
    fn a_child_that_has_ended_can_be_stopped_and_is_reaped_all_the_same() {
        let mut child = ForkedChild::fork(|| Ok(())).expect("fork works");
        child.wait_without_reaping().expect("it ends");
        child.stop().expect("there is nothing to stop");
        assert_eq!(child.wait().expect("nobody has reaped it"), 0);
    }

    #[test]
    fn a_child_is_stopped_and_goes_on_as_often_as_it_is_told() {
        let mut child = ForkedChild::fork(|| {
            loop {
                thread::sleep(Duration::from_millis(1));
            }
        })
        .expect("fork works");
        for _ in 0..3 {
            child.stop().expect("it lives");
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid()));
            assert!(stat.expect("it lives").contains(") T "), "it is stopped");
            child.resume().expect("it lives");
        }
        child.kill().expect("it lives");
        assert_eq!(child.wait().expect("it is ours"), libc::SIGKILL);
    }
}

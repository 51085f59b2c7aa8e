//! Names the limit that made a system call fail: the kernel only returns an error number.

use std::fmt;
use std::io;
use std::mem;

/// Completes the message of a failed call with the name of the limit, if a limit was the cause.
pub(crate) struct LimitOf<'a>(pub(crate) &'a str, pub(crate) &'a io::Error);

impl fmt::Display for LimitOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match limit(self.0, self.1.raw_os_error()) {
            Some(limit) => write!(f, "; the limit is {limit}"),
            None => Ok(()),
        }
    }
}

/// The limits, from the section ERRORS of each call's manual page.
fn limit(call: &str, errno: Option<i32>) -> Option<&'static str> {
    Some(match (call, errno?) {
        ("mq_open", libc::EMFILE) => "RLIMIT_MSGQUEUE (ulimit -q)",
        ("mq_open", libc::ENOSPC) => "fs.mqueue.queues_max",
        ("semget", libc::ENOSPC) => "kernel.sem (SEMMNI, SEMMNS)",
        ("tgkill", libc::EAGAIN) => "RLIMIT_SIGPENDING (ulimit -i)",
        ("fork" | "clone" | "clone3" | "posix_spawn" | "pthread_create", libc::EAGAIN) => {
            "RLIMIT_NPROC (ulimit -u), pids.max of the cgroup, kernel.threads-max, kernel.pid_max, or \
             for threads vm.max_map_count (four each)"
        }
        ("mmap", libc::EAGAIN) | ("mlock", libc::EAGAIN | libc::ENOMEM | libc::EPERM) => {
            "RLIMIT_MEMLOCK (ulimit -l)"
        }
        ("mmap" | "fork" | "clone" | "clone3" | "posix_spawn" | "pthread_create", libc::ENOMEM) => {
            "memory: vm.overcommit_memory, RLIMIT_AS (ulimit -v) or vm.max_map_count"
        }
        ("sched_setscheduler", libc::EPERM) => "RLIMIT_RTPRIO (ulimit -r)",
        (_, libc::EMFILE) => "RLIMIT_NOFILE (ulimit -n)",
        (_, libc::ENFILE) => "fs.file-max",
        _ => return None,
    })
}

/// Raises the soft limit of open files to the hard limit. A failure is ignored: the call that runs
/// into the limit names it.
pub(crate) fn raise_open_files() {
    // SAFETY: an all-zero rlimit is a valid one.
    let mut limit: libc::rlimit = unsafe { mem::zeroed() };
    // SAFETY: `limit` is ours to be written to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` lives across the call, which only reads it.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_limit_it_ran_into() {
        let error = crate::Error::Call {
            call: "mq_open",
            source: io::Error::from_raw_os_error(libc::EMFILE),
        };
        assert!(error.to_string().ends_with("RLIMIT_MSGQUEUE (ulimit -q)"));
    }

    #[test]
    fn error_that_is_no_limit_names_none() {
        let source = io::Error::from_raw_os_error(libc::EINVAL);
        assert_eq!(LimitOf("mq_open", &source).to_string(), "");
    }
}

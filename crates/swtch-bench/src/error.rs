//! What can go wrong while switches are made on purpose.

use std::io;
use std::path::PathBuf;

use crate::Needs;
use crate::limits::LimitOf;

/// Why a workload could not do what its expectations speak of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine or the user lacks what the workload is built on.
    #[error("workload {workload} needs {needs}")]
    Missing {
        /// Name of the workload.
        workload: &'static str,
        /// What it needs.
        needs: Needs,
    },
    /// A system call failed.
    #[error("{call}: {source}{}", LimitOf(call, source))]
    Call {
        /// Name of the call.
        call: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A file could not be read, written or made.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A thread of the cast ended by a panic.
    #[error("thread {name} panicked")]
    Panicked {
        /// Its name.
        name: String,
    },
    /// A process of the cast did not end well.
    #[error("process {name} ended with wait status {status:#x}")]
    ProcessFailed {
        /// Its name.
        name: String,
        /// The status that `wait4` gave.
        status: i32,
    },
    /// Neither `/var/tmp` nor the current directory can hold a scratch file that is read from disk.
    #[error("no directory on a disk for a scratch file (tried /var/tmp and the current directory)")]
    NoDisk,
    /// A block did not end.
    #[error("a block was not done after {} s", limit.as_secs())]
    Stuck {
        /// How long it was waited for.
        limit: std::time::Duration,
    },
    /// A member of a ring, or the leader, failed and said why.
    #[error("{0}")]
    Member(String),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Senseless(&'static str),
    /// This machine does not have what was asked for.
    #[error("not here: {0}")]
    NotHere(String),
    /// Its peer has failed, and the stream between them has ended.
    #[error("the other end of the {0} is gone")]
    PeerGone(&'static str),
}

impl Error {
    /// What a person could do about it, where that can be said.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Missing { needs, .. } => Some(needs.advice()),
            Self::NoDisk => Some("run it from a directory on ext4, xfs or btrfs, not on tmpfs"),
            Self::Call { source, .. } if source.raw_os_error() == Some(libc::EPERM) => {
                Some("run it as root, or raise RLIMIT_RTPRIO for the real-time workloads")
            }
            Self::Call { source, .. } if source.raw_os_error() == Some(libc::EAGAIN) => {
                Some("raise the limit on tasks: ulimit -u, pids.max of the cgroup, kernel.pid_max")
            }
            _ => None,
        }
    }

    /// For `map_err`: the failure of a library call that made the system call `call`.
    pub(crate) fn calling(call: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Call { call, source }
    }

    /// The failure of the system call `call` that just returned.
    pub(crate) fn last_call(call: &'static str) -> Self {
        Self::calling(call)(io::Error::last_os_error())
    }
}

/// The result of `call`, which says "failed" by a negative number.
pub(crate) fn checked<N: Default + PartialOrd>(call: &'static str, result: N) -> Result<N, Error> {
    if result < N::default() {
        Err(Error::last_call(call))
    } else {
        Ok(result)
    }
}

/// The result of `call`, one of those of the C library that return the error's number.
pub(crate) fn returned(call: &'static str, errno: i32) -> Result<(), Error> {
    match errno {
        0 => Ok(()),
        errno => Err(Error::calling(call)(io::Error::from_raw_os_error(errno))),
    }
}

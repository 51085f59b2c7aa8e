//! Errors of this crate: what can fail while switches are made on purpose.

use std::io;
use std::path::PathBuf;

use crate::limits::LimitOf;
use crate::needs::Needs;

/// The reason why a workload or a measurement could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine or the user lacks what the workload needs.
    #[error("workload {workload} needs {needs}")]
    Missing {
        /// Name of the workload, as on the command line.
        workload: &'static str,
        /// The need that is not met.
        needs: Needs,
    },
    /// A system call, or a call of the C library, failed.
    #[error("{call}: {source}{}", LimitOf(call, source))]
    Call {
        /// Name of the call, such as `fork`.
        call: &'static str,
        /// The error that the kernel returned.
        source: io::Error,
    },
    /// A file could not be read, written or made.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file or directory.
        path: PathBuf,
        /// The error that the kernel returned.
        source: io::Error,
    },
    /// A thread that was started here panicked.
    #[error("thread {name} panicked")]
    Panicked {
        /// Name of the thread that panicked.
        name: String,
    },
    /// A process that was started here failed.
    #[error("process {name} ended with wait status {status:#x}")]
    ProcessFailed {
        /// Name of the process that failed.
        name: String,
        /// The status that `wait4` returned.
        status: i32,
    },
    /// Neither `/var/tmp` nor the current directory can hold a scratch file that is read from disk.
    #[error("no directory on a disk for a scratch file (tried /var/tmp and the current directory)")]
    NoDisk,
    /// A block took longer than its limit.
    #[error("a block was not done after {} s", limit.as_secs())]
    Stuck {
        /// The limit, after which the block was given up.
        limit: std::time::Duration,
    },
    /// A member of a ring or of a load failed, or a load was refused; the text says why.
    #[error("{0}")]
    Member(String),
    /// The request makes no sense; the text says why.
    #[error("{0}")]
    Senseless(&'static str),
    /// This machine does not have what was asked for; the text says what is missing.
    #[error("not here: {0}")]
    NotHere(String),
    /// The peer has ended, and with it the stream between the two; the text names the stream.
    #[error("the other end of the {0} is gone")]
    PeerGone(&'static str),
}

impl Error {
    /// A step that the user can take, if there is one.
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

    /// For `map_err`: the failure of a library call that makes the system call `call`.
    pub(crate) fn calling(call: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Call { call, source }
    }

    /// The failure of the system call `call` that has just returned, from `errno`.
    pub(crate) fn last_call(call: &'static str) -> Self {
        Self::calling(call)(io::Error::last_os_error())
    }
}

/// The result of `call`, which reports failure by a negative number.
pub(crate) fn checked<N: Default + PartialOrd>(call: &'static str, result: N) -> Result<N, Error> {
    if result < N::default() {
        Err(Error::last_call(call))
    } else {
        Ok(result)
    }
}

/// The result of a call of the C library that returns the error number.
pub(crate) fn returned(call: &'static str, errno: i32) -> Result<(), Error> {
    match errno {
        0 => Ok(()),
        errno => Err(Error::calling(call)(io::Error::from_raw_os_error(errno))),
    }
}

//! The errors of looking at another process.

use std::io;

use crate::layout;

/// The reason why a process's schedulers cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Id of the process that was asked for.
        pid: u32,
    },
    /// The process has no page of counters.
    #[error("process {pid} has no user-mode scheduler of swtch-fiber")]
    NoScheduler {
        /// Id of the process that was asked for.
        pid: u32,
    },
    /// The kernel does not permit access to the process.
    #[error("process {pid} may not be looked at")]
    NotPermitted {
        /// Id of the process that was asked for.
        pid: u32,
        /// The error that the kernel returned.
        #[source]
        source: io::Error,
    },
    /// The page has another layout version.
    #[error(
        "the page of process {pid} is of version {version}, and this program reads version {}",
        layout::VERSION
    )]
    OtherVersion {
        /// Id of the process that was asked for.
        pid: u32,
        /// Version number in the page's header.
        version: u32,
    },
    /// The file could shrink under the mapping, and reading it would kill the reader.
    #[error("the page of process {pid} is not sealed against shrinking")]
    Unsealed {
        /// Id of the process that was asked for.
        pid: u32,
    },
    /// The header of the page is inconsistent.
    #[error("the page of process {pid} makes no sense: {what}")]
    Malformed {
        /// Id of the process that was asked for.
        pid: u32,
        /// Which check of the page failed.
        what: String,
    },
    /// A system call about the process failed.
    #[error("{what} of process {pid} failed")]
    System {
        /// Id of the process that was asked for.
        pid: u32,
        /// The step that failed, for the message.
        what: &'static str,
        /// The error that the kernel returned.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Returns what the user can do about it; `None` when there is nothing specific.
    pub const fn advice(&self) -> Option<&'static str> {
        match self {
            Self::NoProcess { .. } => Some("`ps -e` lists the processes; it may have just ended"),
            Self::NoScheduler { .. } => Some(
                "a program has one once it has started a runtime of swtch-fiber; give the id of \
                 that process, not of the shell or the tool that started it",
            ),
            Self::NotPermitted { .. } => {
                Some("look as the user that runs it, or with CAP_SYS_PTRACE (sudo)")
            }
            Self::OtherVersion { .. } => {
                Some("use the swtch that belongs to the version of swtch-fiber in the program")
            }
            Self::Unsealed { .. } | Self::Malformed { .. } => {
                Some("something else than swtch-fiber has made this file, or written over it")
            }
            Self::System { .. } => None,
        }
    }
}

//! What can be in the way of looking at another process.

use std::io;

use crate::page::layout;

/// Why a process's schedulers cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The process asked for.
        pid: u32,
    },
    /// The process has no page.
    #[error("process {pid} has no user-mode scheduler of swtch-fiber")]
    NoScheduler {
        /// The process asked for.
        pid: u32,
    },
    /// The kernel does not let us look.
    #[error("process {pid} may not be looked at")]
    NotPermitted {
        /// The process asked for.
        pid: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The page is of another version.
    #[error(
        "the page of process {pid} is of version {version}, and this program reads version {}",
        layout::VERSION
    )]
    OtherVersion {
        /// The process asked for.
        pid: u32,
        /// Its version.
        version: u32,
    },
    /// The file could shrink under the mapping, and reading it would kill the reader.
    #[error("the page of process {pid} is not sealed against shrinking")]
    Unsealed {
        /// The process asked for.
        pid: u32,
    },
    /// The page contradicts itself.
    #[error("the page of process {pid} makes no sense: {what}")]
    Malformed {
        /// The process asked for.
        pid: u32,
        /// What is wrong.
        what: String,
    },
    /// A system call failed.
    #[error("{what} of process {pid} failed")]
    System {
        /// The process asked for.
        pid: u32,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// What a person can do about it.
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

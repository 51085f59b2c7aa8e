//! Finds the memory file in which a process keeps its page.
//!
//! Every process has the files it holds open in `/proc/PID/fd`, as links that can be opened. A link
//! to a memory file shows the name that its maker gave it; whether it is a page is for
//! [`super::page`] to check. A child that has not executed anything yet holds its parent's file: who
//! has made it stands in the header.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use super::error::Error;
use crate::page::layout::FILE_NAME;

/// A process, by a handle that never means another.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    handle: OwnedFd,
}

impl Process {
    pub(super) fn open(pid: u32) -> Result<Self, Error> {
        let number = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0);
        let number = number.ok_or(Error::NoProcess { pid })?;
        // SAFETY: the call takes two numbers and gives a new file descriptor or an error.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        let Some(fd) = i32::try_from(fd).ok().filter(|fd| *fd >= 0) else {
            let source = io::Error::last_os_error();
            return Err(match source.raw_os_error() {
                Some(libc::ESRCH | libc::EINVAL) => Error::NoProcess { pid },
                _ => system(pid, "opening a handle", source),
            });
        };
        // SAFETY: the descriptor is new and nobody else's.
        let handle = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { pid, handle })
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        let mut watched = libc::pollfd {
            fd: self.handle.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd, and no waiting.
        unsafe { libc::poll(&raw mut watched, 1, 0) > 0 }
    }

    /// Its open memory files of the right name.
    pub(super) fn candidates(&self) -> Result<Vec<File>, Error> {
        let dir = PathBuf::from(format!("/proc/{}/fd", self.pid));
        let wanted = format!("/memfd:{FILE_NAME} (deleted)");
        let entries = fs::read_dir(&dir).map_err(|source| self.refusal(source))?;
        let mut found = Vec::new();
        for entry in entries.flatten() {
            // A file that was closed meanwhile is none of its files.
            let Ok(target) = fs::read_link(entry.path()) else {
                continue;
            };
            if target.as_os_str() == wanted.as_str() {
                match File::open(entry.path()) {
                    Ok(file) => found.push(file),
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(self.refusal(error)),
                }
            }
        }
        Ok(found)
    }

    fn refusal(&self, source: io::Error) -> Error {
        let pid = self.pid;
        match source.kind() {
            ErrorKind::NotFound => Error::NoProcess { pid },
            ErrorKind::PermissionDenied => Error::NotPermitted { pid, source },
            _ => system(pid, "looking at the files", source),
        }
    }
}

pub(super) const fn system(pid: u32, what: &'static str, source: io::Error) -> Error {
    Error::System { pid, what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_process_is_told_from_a_process_without_scheduler() {
        for pid in [0, u32::MAX, 4_194_304] {
            let error = Process::open(pid).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::NoProcess { .. }), "{pid}: {error}");
        }
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let process = Process::open(child.id()).unwrap();
        assert!(process.candidates().unwrap().is_empty());
        assert!(!process.has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.has_ended());
    }
}

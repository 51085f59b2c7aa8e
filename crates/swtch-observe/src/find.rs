//! Finds the memory file in which a process keeps its page.
//!
//! The files that a process holds open appear in `/proc/PID/fd` as links, and these links can be
//! opened. A link to a memory file shows the name that its creator gave it; whether the file is a
//! page is checked by [`super::page`]. A child that has not called `exec` yet holds its parent's
//! file, so the header says which process made it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, MemfdFlags, Mode, OFlags, StatxFlags, memfd_create, open, statx,
};

use super::error::Error;
use crate::layout::FILE_NAME;

/// A process, by a pid file descriptor, which never refers to another process.
#[derive(Debug)]
pub(super) struct PidfdProcess {
    pub(super) pid: u32,
    handle: OwnedFd,
}

impl PidfdProcess {
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
        // SAFETY: the descriptor is new and has no other owner.
        let handle = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { pid, handle })
    }

    /// A process by a descriptor that was opened elsewhere.
    pub(super) const fn by_handle(pid: u32, handle: OwnedFd) -> Self {
        Self { pid, handle }
    }

    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    pub(super) fn has_ended(&self) -> bool {
        let mut watched = libc::pollfd {
            fd: self.handle.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd, and no waiting.
        unsafe { libc::poll(&raw mut watched, 1, 0) > 0 }
    }

    /// The open memory files of the process that have the right name.
    pub(super) fn candidates(&self) -> Result<Vec<File>, Error> {
        let dir = PathBuf::from(format!("/proc/{}/fd", self.pid));
        let wanted = format!("/memfd:{FILE_NAME} (deleted)");
        let entries = fs::read_dir(&dir).map_err(|source| self.refusal(source))?;
        let mut found = Vec::new();
        for entry in entries.flatten() {
            // A file that was closed meanwhile is skipped.
            let Ok(target) = fs::read_link(entry.path()) else {
                continue;
            };
            if target.as_os_str() == wanted.as_str() {
                match memory_file(&entry.path()) {
                    Ok(file) => found.extend(file),
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

/// Opens a memory file; `None` when it is something else.
///
/// After its name was read, the target may have put any other file under the same number (dup2(2)).
/// Opening a FIFO, or asking a file system in user space for anything, can take as long as the
/// target likes. A handle (`O_PATH`) and the attributes that the kernel has cached
/// (`AT_STATX_DONT_SYNC`) involve no such file system.
fn memory_file(path: &Path) -> io::Result<Option<File>> {
    let handle = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let one_of_ours = memfd_create("swtch-compared", MemfdFlags::CLOEXEC)?;
    if type_and_device(&handle)? != type_and_device(&one_of_ours)? {
        return Ok(None);
    }
    // Opened through the handle, so that the file opened is the file that was checked.
    let own = format!("/proc/self/fd/{}", handle.as_raw_fd());
    File::open(own).map(Some)
}

/// Type and device of a file. Memory files are regular files on a file system of the kernel's own
/// that cannot be mounted (`shm_mnt`, mm/shmem.c, v6.12).
fn type_and_device(file: impl AsFd) -> io::Result<(FileType, (u32, u32))> {
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let facts = statx(file, c"", how, StatxFlags::TYPE)?;
    let device = (facts.stx_dev_major, facts.stx_dev_minor);
    Ok((FileType::from_raw_mode(facts.stx_mode.into()), device))
}

pub(super) const fn system(pid: u32, what: &'static str, source: io::Error) -> Error {
    Error::System { pid, what, source }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::fs::{CWD, mknodat};

    use super::*;

    #[test]
    fn no_process_is_told_from_a_process_without_scheduler() {
        for pid in [0, u32::MAX, 4_194_304] {
            let error = PidfdProcess::open(pid).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::NoProcess { .. }), "{pid}: {error}");
        }
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let process = PidfdProcess::open(child.id()).unwrap();
        assert!(process.candidates().unwrap().is_empty());
        assert!(!process.has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.has_ended());
    }

    /// The open file behind `descriptor`, as it is found in a process; `None` when it is refused.
    fn found(descriptor: impl AsFd) -> Option<File> {
        let number = descriptor.as_fd().as_raw_fd();
        let path = PathBuf::from(format!("/proc/{}/fd/{number}", std::process::id()));
        let (answer, answered) = mpsc::channel();
        // On a thread of its own, because opening a FIFO without a writer would block for ever.
        std::thread::spawn(move || answer.send(memory_file(&path)));
        let file = answered.recv_timeout(Duration::from_secs(20));
        file.expect("it does not wait").unwrap()
    }

    #[test]
    fn a_memory_file_is_opened() {
        let file = File::from(memfd_create("swtch-test", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(4711).unwrap();
        assert_eq!(found(&file).unwrap().metadata().unwrap().len(), 4711);
    }

    /// A privileged observer must not block in `open` on a file of a hostile process.
    #[test]
    fn a_fifo_in_its_place_is_not_waited_for() {
        let name = format!("swtch-fifo-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // There is no writer, so opening it for reading once more would block.
        let fifo = open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        fs::remove_file(&path).unwrap();
        assert!(found(fifo.unwrap()).is_none());
    }

    /// Opening a device may have effects, and a file on a disk may be slow.
    #[test]
    fn other_files_in_its_place_are_refused() {
        assert!(found(File::open("/dev/null").unwrap()).is_none());
        assert!(found(File::open("/proc/self/exe").unwrap()).is_none());
    }
}

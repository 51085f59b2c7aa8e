//! The options by which a file is opened.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::File;
use super::file::outside;
use crate::io::{IoRequest, completes_here, run};

/// The options by which a file is opened; names and meanings are those of [`std::fs::OpenOptions`].
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the words of std, each of which may be said or not"
)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
}

impl OpenOptions {
    /// No access is allowed at first.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the file may be read.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// Sets whether the file may be written.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Sets whether each write goes to the end of the file.
    #[must_use]
    pub fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// Sets whether existing content is discarded.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Sets whether the file is created if it does not exist.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets whether the file must be new; an existing one is an error.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::InvalidInput`] when the options contradict each other.
    pub fn open(self, path: impl AsRef<Path>) -> io::Result<File> {
        let flags = self.flags()?;
        let path = CString::new(path.as_ref().as_os_str().as_bytes())?;
        let file = if completes_here() {
            let path = path.as_c_str();
            let mode = 0o666;
            let opened = run(IoRequest::Open { path, flags, mode }, None)?;
            let descriptor = i32::try_from(opened).map_err(io::Error::other)?;
            // SAFETY: the kernel has just opened it, and it has no other owner.
            unsafe { OwnedFd::from_raw_fd(descriptor) }
        } else {
            outside(|| open_now(&path, flags))?
        };
        Ok(std::fs::File::from(file).into())
    }

    fn flags(self) -> io::Result<i32> {
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => libc::O_RDONLY,
            (false, true, false) => libc::O_WRONLY,
            (true, true, false) => libc::O_RDWR,
            (false, _, true) => libc::O_WRONLY | libc::O_APPEND,
            (true, _, true) => libc::O_RDWR | libc::O_APPEND,
            (false, false, false) => return Err(contradiction("neither read nor write")),
        };
        let makes = self.truncate || self.create || self.create_new;
        if makes && !self.write && !self.append {
            return Err(contradiction("made or cut, but not written"));
        }
        if self.truncate && self.append && !self.create_new {
            return Err(contradiction("cut and appended to"));
        }
        let making = match (self.create, self.truncate, self.create_new) {
            (_, _, true) => libc::O_CREAT | libc::O_EXCL,
            (true, true, _) => libc::O_CREAT | libc::O_TRUNC,
            (true, false, _) => libc::O_CREAT,
            (false, true, _) => libc::O_TRUNC,
            (false, false, _) => 0,
        };
        Ok(access | making | libc::O_CLOEXEC)
    }
}

fn contradiction(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn open_now(path: &CString, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: a string that ends with 0, and numbers.
    let descriptor = unsafe { libc::open(path.as_ptr(), flags, 0o666) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

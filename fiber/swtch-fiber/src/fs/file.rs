//! An open file.

use std::fs::{self, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::OpenOptions;
use crate::io::{IoRequest, completes_here, run};
use crate::preemptive::preemptive;
use crate::wait_type::WaitType;

/// An open file.
///
/// Closing it, asking for its metadata, and moving its position block the thread for as long as the
/// kernel takes.
#[derive(Debug)]
pub struct File {
    file: fs::File,
}

/// Runs a blocking call in a preemptive section; in place when the worker unwinds and cannot leave.
pub(super) fn outside<Output: Send>(
    body: impl FnOnce() -> io::Result<Output> + Send,
) -> io::Result<Output> {
    if std::thread::panicking() {
        body()
    } else {
        preemptive(WaitType::ASYNC_IO_COMPLETION, body)
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path)
    }

    /// Creates or truncates a file for writing.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let options = OpenOptions::new().write(true).create(true);
        options.truncate(true).open(path)
    }

    /// Reads at an offset, without moving the file's position. Returns 0 at the end of the file.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_here(buffer, Some(offset))
    }

    /// Writes at an offset, without moving the file's position. Returns the number of bytes
    /// written, at least one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.write_here(bytes, Some(offset))
    }

    /// Flushes data and metadata to the device (`fsync`).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn sync_all(&self) -> io::Result<()> {
        if completes_here() {
            self.request_sync(true)
        } else {
            outside(|| self.file.sync_all())
        }
    }

    /// Flushes the data, and the metadata needed to read it, to the device (`fdatasync`).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn sync_data(&self) -> io::Result<()> {
        if completes_here() {
            self.request_sync(false)
        } else {
            outside(|| self.file.sync_data())
        }
    }

    /// Metadata of the file: length, times, permissions.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    fn request_sync(&self, metadata: bool) -> io::Result<()> {
        let descriptor = self.as_fd();
        let request = IoRequest::Sync {
            descriptor,
            metadata,
        };
        run(request, None).map(drop)
    }

    fn read_here(&self, buffer: &mut [u8], offset: Option<u64>) -> io::Result<usize> {
        if !completes_here() {
            return outside(|| match offset {
                Some(offset) => self.file.read_at(buffer, offset),
                None => (&self.file).read(buffer),
            });
        }
        let descriptor = self.as_fd();
        let request = IoRequest::Read {
            descriptor,
            buffer,
            offset,
        };
        run(request, None).map(|bytes| bytes as usize)
    }

    fn write_here(&self, bytes: &[u8], offset: Option<u64>) -> io::Result<usize> {
        if !completes_here() {
            return outside(|| match offset {
                Some(offset) => self.file.write_at(bytes, offset),
                None => (&self.file).write(bytes),
            });
        }
        let descriptor = self.as_fd();
        let request = IoRequest::Write {
            descriptor,
            buffer: bytes,
            offset,
        };
        run(request, None).map(|bytes| bytes as usize)
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_here(buffer, None)
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_here(bytes, None)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> Self {
        Self { file }
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> Self {
        file.file
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

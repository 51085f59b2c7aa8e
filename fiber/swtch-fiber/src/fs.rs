//! Files that block the worker and not its thread.
//!
//! With `io_uring` the kernel reads and writes while other workers run. To epoll regular files are
//! always ready, so there each operation is a preemptive section. Either way the wait type is
//! [`ASYNC_IO_COMPLETION`](crate::WaitType::ASYNC_IO_COMPLETION).

mod file;
mod options;

use std::io::{self, Read, Write};
use std::path::Path;

pub use file::File;
pub use options::OpenOptions;

/// Reads the whole file at `path`.
///
/// # Errors
/// The kernel's error.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    // The length is only a hint: files of /proc report 0.
    if let Ok(length) = usize::try_from(file.metadata()?.len()) {
        bytes.try_reserve_exact(length)?;
    }
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates or truncates the file at `path` and writes `bytes`. Does not wait until they are on the
/// device.
///
/// # Errors
/// The kernel's error.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    File::create(path)?.write_all(bytes.as_ref())
}

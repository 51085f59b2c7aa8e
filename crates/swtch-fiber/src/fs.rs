//! Files that block the worker and not its thread.
//!
//! With `io_uring` the kernel reads and writes beside the workers. Where there is only epoll, to
//! which regular files are always ready, each operation is a preemptive section. Either way the wait
//! type is [`ASYNC_IO_COMPLETION`](crate::WaitType::ASYNC_IO_COMPLETION).

mod file;
mod options;

use std::io::{self, Read, Write};
use std::path::Path;

pub use file::File;
pub use options::OpenOptions;

/// The bytes of a file.
///
/// # Errors
/// What the kernel says.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    // A hint: files of /proc say 0.
    if let Ok(length) = usize::try_from(file.metadata()?.len()) {
        bytes.try_reserve_exact(length)?;
    }
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes the file anew, with these bytes. Does not wait until they are on the device.
///
/// # Errors
/// What the kernel says.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    File::create(path)?.write_all(bytes.as_ref())
}

//! Opening and reading files that may come from anybody.
//!
//! A path can lead to anything: opening a FIFO waits for a writer that may never come, `/dev/zero`
//! has no end, and a sparse file can claim a terabyte. So every file that swtch takes as input is
//! opened by [`open`], which accepts regular files only, and a file that must be in memory as a
//! whole is read by [`read`], which has a limit.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Opens a regular file for reading. It never waits.
///
/// # Errors
/// Errors of the system, and [`io::ErrorKind::InvalidInput`] where the path leads to something
/// other than a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // With O_NONBLOCK, opening a FIFO does not wait for its writer; for a regular file it has no
    // effect (open(2)). With O_NOCTTY, a terminal does not become the controlling terminal of this
    // process.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    regular(file)
}

/// Returns the file if it is a regular one.
pub(crate) fn regular(file: File) -> io::Result<File> {
    let found = file.metadata()?.file_type();
    if found.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is {}, not a regular file", kind_of(found)),
        ))
    }
}

/// Reads all of a regular file that has at most `most_bytes`.
///
/// # Errors
/// As [`open`], and [`io::ErrorKind::FileTooLarge`] where it has more.
pub fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    read_opened(open(path)?, most_bytes)
}

/// Reads all of an open file that has at most `most_bytes`.
pub(crate) fn read_opened(file: File, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more shows that there are too many, whatever length the file claims.
    let limit = most_bytes.saturating_add(1);
    file.take(limit).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= most_bytes => Ok(bytes),
        _ => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {most_bytes} bytes, which is the limit for such a file"),
        )),
    }
}

/// As [`read`], for text.
///
/// # Errors
/// As [`read`], and [`io::ErrorKind::InvalidData`] where it is not UTF-8.
pub fn read_text(path: &Path, most_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, most_bytes)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("it is not UTF-8 text: its byte {at} does not belong there"),
        )
    })
}

fn kind_of(found: FileType) -> &'static str {
    if found.is_dir() {
        "a directory"
    } else if found.is_fifo() {
        "a FIFO"
    } else if found.is_socket() {
        "a socket"
    } else if found.is_char_device() {
        "a character device"
    } else if found.is_block_device() {
        "a block device"
    } else {
        "something else"
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    fn refusal(path: &Path) -> String {
        read(path, 100).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, [b'x'; 100]).unwrap();
        assert_eq!(read_text(&path, 100).unwrap(), "x".repeat(100));
        let refused = read(&path, 99).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert!(refused.to_string().contains("99 bytes"), "{refused}");
        fs::write(&path, b"ab\xff").unwrap();
        assert!(
            read_text(&path, 9)
                .unwrap_err()
                .to_string()
                .contains("byte 2")
        );
    }

    /// A FIFO has no writer here, and the devices have no end.
    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        assert!(refusal(&fifo).contains("a FIFO"));
        assert!(refusal(Path::new("/dev/zero")).contains("a character device"));
        assert!(refusal(dir.path()).contains("a directory"));
    }

    /// A file can claim to be longer than any memory.
    #[test]
    fn a_sparse_file_is_refused_by_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(
            read(&path, 1 << 20).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    }
}

//! Tells whether a file is still the one that was read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The state of a file, to be compared with a later one. The modification time alone would not do:
/// a recorder writes its list of files twice within a tick of the kernel's coarse clock when it
/// ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    modified: SystemTime,
    bytes: u64,
    inode: u64,
}

impl Stamp {
    /// The stamp of a file as it is now; `None` if it does not exist.
    pub fn of(file: &Path) -> Option<Self> {
        let file = fs::metadata(file).ok()?;
        Some(Self {
            modified: file.modified().ok()?,
            bytes: file.len(),
            inode: file.ino(),
        })
    }

    /// Time since the file was written; `None` if that is in the future.
    pub fn age(self) -> Option<Duration> {
        self.modified.elapsed().ok()
    }
}

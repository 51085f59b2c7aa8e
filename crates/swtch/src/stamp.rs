//! Whether a file is still the one that was read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Tells two states of a file apart. Times alone do not: a recorder ends by writing its list of files
/// twice within a tick of the kernel's coarse clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    modified: SystemTime,
    bytes: u64,
    inode: u64,
}

impl Stamp {
    /// The one of a file as it is now; `None` where there is none.
    pub fn of(file: &Path) -> Option<Self> {
        let file = fs::metadata(file).ok()?;
        Some(Self {
            modified: file.modified().ok()?,
            bytes: file.len(),
            inode: file.ino(),
        })
    }

    /// How long ago it was written; `None` where that is in the future.
    pub fn age(self) -> Option<Duration> {
        self.modified.elapsed().ok()
    }
}

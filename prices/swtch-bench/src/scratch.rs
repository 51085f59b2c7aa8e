//! A file on a disk that disappears when it is closed.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::{Error, checked, returned};

/// Bytes that are read or written at once. With 4 KiB, a virtual disk on a busy host often answered
/// before the reader was asleep (seen on virtio-blk: 0 of 125 reads blocked): by the time the vCPU
/// returned from notifying the host, the answer was there.
pub(crate) const BLOCK: usize = 256 * 1024;

/// Magic numbers of tmpfs and ramfs: `TMPFS_MAGIC` and `RAMFS_MAGIC`
/// (`include/uapi/linux/magic.h`).
const IN_MEMORY: [libc::c_long; 2] = [0x0102_1994, 0x8584_58f6];

/// A block aligned for `O_DIRECT`.
#[derive(Debug)]
#[repr(align(4096))]
pub(crate) struct AlignedBlock(pub(crate) [u8; BLOCK]);

impl AlignedBlock {
    /// A block filled with dots. While it is moved to the heap, a copy may be on the caller's
    /// stack.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self([b'.'; BLOCK]))
    }
}

/// Offset of block `number` in a file, in bytes.
pub(crate) fn offset_of_block(number: u64) -> u64 {
    number * u64::try_from(BLOCK).expect("invariant: a block is smaller than an address space")
}

/// A file without a name (`O_TMPFILE`), so that nothing remains, not even after `kill -9`.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The file, open for reading and writing.
    pub(crate) file: File,
}

impl Scratch {
    /// An empty file in `/var/tmp`, or in the current directory if that is not on a disk.
    pub(crate) fn new() -> Result<Self, Error> {
        let on_disk = |directory: &&str| is_on_disk(Path::new(directory));
        let directory = ["/var/tmp", "."]
            .into_iter()
            .find(on_disk)
            .ok_or(Error::NoDisk)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE);
        let file = options
            .open(directory)
            .map_err(|source| in_file(directory, source))?;
        Ok(Self { file })
    }

    /// A file of `blocks` blocks that have been written to the disk.
    pub(crate) fn with_blocks(blocks: u64) -> Result<Self, Error> {
        let mut scratch = Self::new()?;
        let block = AlignedBlock::new();
        for _ in 0..blocks {
            scratch
                .file
                .write_all(&block.0)
                .map_err(Error::calling("write"))?;
        }
        scratch.file.sync_all().map_err(Error::calling("fsync"))?;
        Ok(scratch)
    }

    /// The same file, opened again with `O_DIRECT`, which bypasses the page cache.
    pub(crate) fn reopen_direct(&self) -> Result<File, Error> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECT);
        options.open(&path).map_err(|source| in_file(&path, source))
    }

    /// Drops the file's pages from the page cache, so that the next read comes from the disk.
    pub(crate) fn evict(&self) -> Result<(), Error> {
        let fd = self.file.as_raw_fd();
        // SAFETY: no memory is involved, and the descriptor is open.
        returned("posix_fadvise", unsafe {
            libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED)
        })
    }
}

fn in_file(path: &str, source: std::io::Error) -> Error {
    Error::File {
        path: path.into(),
        source,
    }
}

/// Returns true if a directory is on a disk. Files on tmpfs are memory: reading them never blocks.
fn is_on_disk(directory: &Path) -> bool {
    let Ok(file) = File::open(directory) else {
        return false;
    };
    // SAFETY: an all-zero statfs is a valid one.
    let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `facts` is ours to be written to.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &mut facts) };
    checked("fstatfs", result).is_ok() && !IN_MEMORY.contains(&facts.f_type)
}

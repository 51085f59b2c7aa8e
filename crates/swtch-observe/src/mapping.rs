//! A mapped file, and references to records at offsets that were checked.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use crate::layout::{
    Header, RingEvent, RingHeader, SchedulerRecord, ThreadRecord, WaitRecord, WaitTypeName,
    WorkerRecord, WorkerStack,
};

/// A record that may lie in memory which another process writes.
///
/// # Safety
/// It consists of atomics alone, so that any bytes are one and they may change at any time.
pub(super) unsafe trait SharedRecord {}

// SAFETY: atomics, and padding that is an atomic too.
unsafe impl SharedRecord for Header {}
// SAFETY: atomics alone.
unsafe impl SharedRecord for SchedulerRecord {}
// SAFETY: atomics alone.
unsafe impl SharedRecord for ThreadRecord {}
// SAFETY: atomics alone.
unsafe impl SharedRecord for WorkerRecord {}
// SAFETY: atomics alone.
unsafe impl SharedRecord for WorkerStack {}
// SAFETY: atomics alone.
unsafe impl SharedRecord for WaitTypeName {}
// SAFETY: atomics alone.
unsafe impl SharedRecord for WaitRecord {}
// SAFETY: atomics alone.
unsafe impl SharedRecord for RingHeader {}
// SAFETY: atomics alone.
unsafe impl SharedRecord for RingEvent {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// The first bytes of a file, mapped while this value lives.
#[derive(Debug)]
pub(super) struct FileMapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is shared with another process anyway and only reached through atomics.
unsafe impl Send for FileMapping {}
// SAFETY: as above.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps the first `len` bytes of a file that cannot shrink and is at least as long.
    pub(super) fn new(file: &File, len: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let fd = file.as_raw_fd();
        // SAFETY: the kernel chooses the address; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).expect("a mapping is not at address 0");
        Ok(Self { base, len })
    }

    /// The record at `offset`; `None` when it is not aligned or not wholly inside.
    pub(super) fn at<T: SharedRecord>(&self, offset: usize) -> Option<&T> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.len || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: the offset is inside the mapping.
        let place = unsafe { self.base.add(offset) };
        // SAFETY: mappings begin at a page, so the place is aligned as its offset is; all of it is
        // mapped as long as self, and `SharedRecord` says that any bytes are a record.
        Some(unsafe { place.cast::<T>().as_ref() })
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; references into it borrow from self.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

//! An eBPF array map shared with the kernel side by `mmap`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use libbpf_rs::MapCore;

use crate::error::Error;

/// An array of `T`, which the kernel side writes while it is read here.
pub(crate) struct Mapped<T> {
    base: NonNull<T>,
    len: usize,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; only its address is kept here.
unsafe impl<T> Send for Mapped<T> {}
// SAFETY: `&self` gives pointers only. The kernel writes the values at any time anyway, so reads
// through such a pointer have to be atomic, from whatever thread.
unsafe impl<T> Sync for Mapped<T> {}

impl<T> Mapped<T> {
    /// Maps an array map that was created with `BPF_F_MMAPABLE` and has `len` values of `T`.
    pub fn new(map: &impl MapCore, len: usize) -> Result<Self, Error> {
        Self::of_descriptor(map.as_fd(), len)
    }

    /// The same by a descriptor of such a map.
    pub fn of_descriptor(map: BorrowedFd<'_>, len: usize) -> Result<Self, Error> {
        // Values are at multiples of 8 bytes, and the array fills whole pages (`array_map_alloc`,
        // kernel/bpf/arraymap.c).
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        let bytes = (len * size_of::<T>()).next_multiple_of(4096);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let fd = map.as_raw_fd();
        // SAFETY: maps a file at an address of the kernel's choice; the result is checked.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(Error::Mmap(io::Error::last_os_error()));
        }
        let base = NonNull::new(base.cast::<T>()).expect("a mapping is not at address 0");
        Ok(Self { base, len, bytes })
    }

    /// Pointer to the value at `index`, to be read field by field.
    ///
    /// # Panics
    /// When `index` is out of the array.
    pub fn at(&self, index: usize) -> NonNull<T> {
        assert!(index < self.len, "{index} of {}", self.len);
        // SAFETY: the mapping holds `len` values, and `index` is below that.
        unsafe { self.base.add(index) }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// Fills all values with zeros. The kernel side must not use them any more.
    pub fn wipe(&self) {
        // SAFETY: these bytes are mapped to be written, and plain numbers may be 0.
        unsafe { self.base.as_ptr().cast::<u8>().write_bytes(0, self.bytes) };
    }

    /// The 64-bit number at this offset of a value, which the kernel side may change at any time.
    pub fn word(&self, index: usize, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= size_of::<T>() && offset.is_multiple_of(8));
        // SAFETY: the offset is inside the value.
        let word = unsafe { self.at(index).cast::<u64>().byte_add(offset) };
        // SAFETY: the word is aligned and mapped as long as self. The kernel side may write it at any
        // time, in stores of at most 64 bits, so atomics are what using it takes.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; pointers that `at` gave are used only within calls.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

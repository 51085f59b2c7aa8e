//! Memory that a process shares with the children that it forks.

use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// Types that may be in shared memory: all-zero bytes are a valid value, and every access is atomic
/// or left to the kernel and the C library.
///
/// # Safety
///
/// The type must be valid when all its bytes are 0, must hold no pointer into the memory of one
/// process, and must allow all its operations from several processes at once.
pub(crate) unsafe trait Zeroed: Sync {}

// SAFETY: zero is a valid atomic number.
unsafe impl Zeroed for std::sync::atomic::AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicU64 {}
// SAFETY: as above.
unsafe impl Zeroed for std::sync::atomic::AtomicUsize {}
// SAFETY: an array of elements that are each valid when zero.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// A value in pages of its own, shared with every child that is forked while it exists.
#[derive(Debug)]
pub(crate) struct Shared<T: Zeroed>(ptr::NonNull<T>);

// SAFETY: `T` allows access from several threads ([`Zeroed`]), and the mapping lives until no
// borrow is left.
unsafe impl<T: Zeroed> Sync for Shared<T> {}
// SAFETY: a mapping belongs to no thread.
unsafe impl<T: Zeroed> Send for Shared<T> {}

impl<T: Zeroed> Shared<T> {
    /// A value whose bytes are all zero.
    pub(crate) fn new() -> Result<Self, Error> {
        map(Self::BYTES).map(|address| Self(address.cast()))
    }

    /// Bytes of the mapping, at least one: even a value without bytes needs a mapping.
    const BYTES: usize = if size_of::<T>() == 0 {
        1
    } else {
        size_of::<T>()
    };
}

impl<T: Zeroed> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the mapping is aligned to a page, zeroed, and lives as long as `self`; zero is a
        // valid `T` ([`Zeroed`]).
        unsafe { self.0.as_ref() }
    }
}

impl<T: Zeroed> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; `self` is the only owner and all borrows have ended.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}

/// `N` numbers that one task stores and another reads.
#[derive(Debug)]
pub(crate) struct SharedNumbers<const N: usize>([AtomicU64; N]);

// SAFETY: zero is a valid atomic number, and atomics may be used by several processes.
unsafe impl<const N: usize> Zeroed for SharedNumbers<N> {}

impl<const N: usize> SharedNumbers<N> {
    pub(crate) fn set(&self, values: [u64; N]) {
        for (slot, value) in self.0.iter().zip(values) {
            slot.store(value, Ordering::Release);
        }
    }

    /// The numbers that were stored last; 0 before.
    pub(crate) fn get(&self) -> [u64; N] {
        self.0.each_ref().map(|slot| slot.load(Ordering::Acquire))
    }
}

/// Values in pages of their own, shared with children as [`Shared`].
#[derive(Debug)]
pub(crate) struct SharedSlice<T: Zeroed> {
    first: ptr::NonNull<T>,
    count: usize,
}

// SAFETY: as [`Shared`].
unsafe impl<T: Zeroed> Sync for SharedSlice<T> {}
// SAFETY: as [`Shared`].
unsafe impl<T: Zeroed> Send for SharedSlice<T> {}

impl<T: Zeroed> SharedSlice<T> {
    /// Allocates `count` values whose bytes are zero.
    pub(crate) fn new(count: usize) -> Result<Self, Error> {
        let first = map((count * size_of::<T>()).max(1))?.cast();
        Ok(Self { first, count })
    }
}

impl<T: Zeroed> Deref for SharedSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `count` values, is aligned to a page, zeroed, and lives as long
        // as `self`; zero is a valid `T` ([`Zeroed`]).
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T: Zeroed> Drop for SharedSlice<T> {
    fn drop(&mut self) {
        let bytes = (self.count * size_of::<T>()).max(1);
        // SAFETY: unmaps what `new` mapped; `self` is the only owner and all borrows have ended.
        unsafe { libc::munmap(self.first.as_ptr().cast(), bytes) };
    }
}

fn map(bytes: usize) -> Result<ptr::NonNull<libc::c_void>, Error> {
    // SAFETY: asks for fresh memory anywhere, which nothing else uses.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(Error::last_call("mmap"));
    }
    Ok(ptr::NonNull::new(address).expect("invariant: mmap never returns 0"))
}

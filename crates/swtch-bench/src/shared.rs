//! Memory that a process shares with the children that it forks.

use std::ops::Deref;
use std::ptr;

use crate::error::Error;

/// What may lie in shared memory: all-zero bytes are a valid value, and every access is atomic or
/// left to the kernel and the C library.
///
/// # Safety
///
/// The type must be valid when all its bytes are 0, must hold no pointer into the memory of one
/// process, and must allow all its operations from several processes at once.
pub(crate) unsafe trait Zeroed: Sync {}

// SAFETY: zero is a valid atomic number.
unsafe impl Zeroed for std::sync::atomic::AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for std::sync::atomic::AtomicU64 {}
// SAFETY: as above.
unsafe impl Zeroed for std::sync::atomic::AtomicUsize {}
// SAFETY: an array of what may lie there.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

/// A value in pages of its own, which every child forked while it lives sees too.
#[derive(Debug)]
pub(crate) struct Shared<T: Zeroed>(ptr::NonNull<T>);

// SAFETY: `T` allows access from several threads ([`Zeroed`]), and the mapping lives until no borrow
// is left.
unsafe impl<T: Zeroed> Sync for Shared<T> {}
// SAFETY: a mapping belongs to no thread.
unsafe impl<T: Zeroed> Send for Shared<T> {}

impl<T: Zeroed> Shared<T> {
    /// A value of zeros.
    pub(crate) fn new() -> Result<Self, Error> {
        // SAFETY: asks for fresh memory anywhere, which nothing else uses.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_call("mmap"));
        }
        Ok(Self(
            ptr::NonNull::new(address.cast()).expect("invariant: mmap never returns 0"),
        ))
    }
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
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}

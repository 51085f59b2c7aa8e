//! A few numbers that a child process leaves for its parent.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// `N` numbers that are shared with every child forked while it lives.
#[derive(Debug)]
pub(crate) struct SharedPage<const N: usize>(ptr::NonNull<[AtomicU64; N]>);

// SAFETY: all access is atomic, and the mapping lives until no borrow is left.
unsafe impl<const N: usize> Sync for SharedPage<N> {}

impl<const N: usize> SharedPage<N> {
    const BYTES: usize = size_of::<[AtomicU64; N]>();

    /// Numbers that are all 0.
    pub(crate) fn new() -> Result<Self, Error> {
        // SAFETY: asks for fresh memory anywhere, which nothing else uses.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Self::BYTES,
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

    /// Leaves the numbers.
    pub(crate) fn set(&self, values: [u64; N]) {
        for (slot, value) in self.slots().iter().zip(values) {
            slot.store(value, Ordering::Release);
        }
    }

    /// The numbers that were left last.
    pub(crate) fn get(&self) -> [u64; N] {
        self.slots()
            .each_ref()
            .map(|slot| slot.load(Ordering::Acquire))
    }

    const fn slots(&self) -> &[AtomicU64; N] {
        // SAFETY: the mapping is aligned to a page, zeroed, and lives as long as `self`; zero is a
        // valid AtomicU64.
        unsafe { self.0.as_ref() }
    }
}

impl<const N: usize> Drop for SharedPage<N> {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; `self` is the only owner and all borrows have ended.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}

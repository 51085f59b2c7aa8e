//! Stack memory for a coroutine, with a guard page below that turns an overflow into a crash.

use std::ptr;

use crate::error::{Error, checked};

/// Bytes of a stack. The code on it is a few frames deep.
const SIZE: usize = 64 * 1024;

/// Bytes of the guard: one page of the largest size that `AArch64` has.
const GUARD: usize = 64 * 1024;

/// Address of the mapping: the guard, then the stack.
#[derive(Debug)]
pub(super) struct MappedStack(ptr::NonNull<u8>);

impl MappedStack {
    /// Usable bytes of every stack.
    pub(super) const SIZE: usize = SIZE;

    /// Maps a new stack that nothing else uses.
    pub(super) fn new() -> Result<Self, Error> {
        // SAFETY: asks for fresh memory anywhere, which nothing else uses.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                GUARD + SIZE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_call("mmap"));
        }
        let stack =
            Self(ptr::NonNull::new(address.cast()).expect("invariant: mmap never returns 0"));
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: these pages were just mapped, and no pointer to them exists elsewhere.
        checked("mprotect", unsafe {
            libc::mprotect(stack.bottom().cast(), SIZE, access)
        })?;
        Ok(stack)
    }

    /// Lowest usable byte, above the guard.
    pub(super) fn bottom(&self) -> *mut u8 {
        // SAFETY: within what `new` mapped.
        unsafe { self.0.as_ptr().add(GUARD) }
    }

    /// Initial stack pointer: the address after the last byte, a multiple of the page size.
    pub(super) fn top(&self) -> *mut u8 {
        // SAFETY: one past the end of what `new` mapped.
        unsafe { self.0.as_ptr().add(GUARD + SIZE) }
    }
}

impl Drop for MappedStack {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; its owner does not switch to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), GUARD + SIZE) };
    }
}

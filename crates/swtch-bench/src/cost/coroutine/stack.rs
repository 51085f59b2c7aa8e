//! Memory for the stack of a coroutine, and a page below that ends the process when it is too small.

use std::ptr;

use crate::error::{Error, checked};

/// Bytes of a stack. What runs on it is a few frames deep.
const SIZE: usize = 64 * 1024;

/// Bytes that nobody may touch: a page of the largest kind that `AArch64` has.
const GUARD: usize = 64 * 1024;

/// A stack.
#[derive(Debug)]
pub(super) struct Stack(ptr::NonNull<u8>);

impl Stack {
    /// Bytes of every stack.
    pub(super) const SIZE: usize = SIZE;

    /// A stack that nobody uses.
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
        // SAFETY: these pages were just mapped, and nobody has a pointer to them.
        checked("mprotect", unsafe {
            libc::mprotect(stack.bottom().cast(), SIZE, access)
        })?;
        Ok(stack)
    }

    /// Its lowest byte.
    pub(super) fn bottom(&self) -> *mut u8 {
        // SAFETY: within what `new` mapped.
        unsafe { self.0.as_ptr().add(GUARD) }
    }

    /// Where it begins to grow down: the address after its last byte, a multiple of a page.
    pub(super) fn top(&self) -> *mut u8 {
        // SAFETY: one past the end of what `new` mapped.
        unsafe { self.0.as_ptr().add(GUARD + SIZE) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; its owner does not switch to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), GUARD + SIZE) };
    }
}

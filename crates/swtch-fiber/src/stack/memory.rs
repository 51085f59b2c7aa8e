//! The system calls by which stacks get and lose their memory.

use std::io;
use std::ptr;

/// Bytes of a page.
pub(super) fn page_size() -> usize {
    // SAFETY: the call has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Reserves address space; memory comes when it is touched.
pub(super) fn map(length: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no other.
    let low = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, -1, 0) };
    if low == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(low as usize)
    }
}

/// Tells the kernel what to do with whole pages of a mapping of stacks.
pub(super) fn advise(low: usize, length: usize, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: the range lies in a mapping of this module; callers own what they let go of.
    let answer = unsafe { libc::madvise(low as *mut libc::c_void, length, advice) };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

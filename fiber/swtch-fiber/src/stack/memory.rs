//! The system calls by which stacks get and lose their memory.

use std::io;
use std::ops::Range;
use std::ptr;

/// Size of a page in bytes.
pub(super) fn page_size() -> usize {
    // SAFETY: the call has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Reserves address space; the kernel adds memory when it is touched.
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

/// Bytes of a stack from its lowest page in memory to its base. Pages that were swapped out do not
/// count; 0 when no page is in memory or the range is not mapped.
pub(crate) fn bytes_used(stack: Range<usize>) -> usize {
    let page = page_size();
    let mut resident = [0_u8; 128];
    let (mut low, high) = (
        stack.start.next_multiple_of(page),
        stack.end.next_multiple_of(page),
    );
    while low < high {
        let pages = ((high - low) / page).min(resident.len());
        // SAFETY: `resident` has a byte for each page; the kernel refuses what is not mapped.
        let answer = unsafe {
            libc::mincore(
                low as *mut libc::c_void,
                pages * page,
                resident.as_mut_ptr(),
            )
        };
        if answer != 0 {
            return 0;
        }
        if let Some(first) = resident[..pages].iter().position(|byte| byte & 1 == 1) {
            return stack.end.saturating_sub(low + first * page);
        }
        low += pages * page;
    }
    0
}

/// Applies `madvise` to whole pages of a mapping of stacks.
pub(super) fn advise(low: usize, length: usize, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: the range lies in a mapping of this module; callers own the pages that they free.
    let answer = unsafe { libc::madvise(low as *mut libc::c_void, length, advice) };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Value of `vm.max_map_count` on this machine; `None` if it cannot be read.
pub(super) fn mapping_limit() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()?
        .trim()
        .parse()
        .ok()
}

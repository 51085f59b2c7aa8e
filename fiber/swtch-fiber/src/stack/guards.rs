//! The guards at the ends of stacks: memory that faults when it is touched.

use std::io;
use std::sync::OnceLock;

use super::memory::{advise, map, page_size};

/// `include/uapi/asm-generic/mman-common.h`, since Linux 6.13; `libc` does not have it.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// The protection of the ends of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guards {
    /// Markers in the page table, which need no mapping of their own. `MADV_DONTNEED` leaves them
    /// in place, and a child of `fork` inherits them (madvise(2)).
    Markers,
    /// `mprotect`, which needs two mappings per stack.
    Mappings,
}

impl Guards {
    /// The kind that this kernel supports, tested once. Markers are refused before 6.13, and in
    /// memory that is locked (`mlockall`).
    pub fn of_this_kernel() -> Self {
        static KNOWN: OnceLock<Guards> = OnceLock::new();
        *KNOWN.get_or_init(|| {
            let page = page_size();
            let Ok(low) = map(page) else {
                return Self::Mappings;
            };
            let marked = advise(low, page, MADV_GUARD_INSTALL);
            // SAFETY: `low` is a mapping of one page that no other code knows of.
            unsafe { libc::munmap(low as *mut libc::c_void, page) };
            if marked.is_ok() {
                Self::Markers
            } else {
                Self::Mappings
            }
        })
    }

    /// Makes `length` bytes from `low` fault. If the program has locked its memory since the kernel
    /// was tested, markers are refused; `mprotect` works there too.
    pub(super) fn protect(self, low: usize, length: usize) -> io::Result<()> {
        if self == Self::Markers && advise(low, length, MADV_GUARD_INSTALL).is_ok() {
            return Ok(());
        }
        // SAFETY: the range is the guard of a slot that was not handed out yet.
        let answer = unsafe { libc::mprotect(low as *mut libc::c_void, length, libc::PROT_NONE) };
        if answer == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

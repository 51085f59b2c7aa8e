//! Reads memory of this process that may not be mapped.
//!
//! The addresses come from registers and stacks of threads that continue to run, so an address may
//! be wrong, or its page unmapped. Therefore the kernel copies (`process_vm_readv`), and returns an
//! error where a load would end the process. Only system calls are made here, so a signal handler
//! may call it.

/// Pages are at least this large; no single copy crosses a page border.
const PAGE: usize = 4096;

/// Copies bytes from `address` on. Returns how many there were before the first that cannot be
/// read.
///
/// Returns 0 if the system call is forbidden, too (a seccomp filter).
pub fn read(address: usize, bytes: &mut [u8]) -> usize {
    let mut done = 0;
    while done < bytes.len() {
        let Some(from) = address.checked_add(done) else {
            break;
        };
        let end = bytes.len().min(done + (PAGE - from % PAGE));
        if !read_in_page(from, &mut bytes[done..end]) {
            break;
        }
        done = end;
    }
    done
}

/// Copies bytes within one page: all or none.
fn read_in_page(address: usize, bytes: &mut [u8]) -> bool {
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: bytes.len(),
    };
    // SAFETY: reads its own number.
    let own = unsafe { libc::getpid() };
    // SAFETY: `local` is writable for its length; the kernel checks `remote`.
    let read = unsafe { libc::process_vm_readv(own, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read) == Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that is not mapped must end the copy, not the process.
    #[test]
    fn a_missing_page_ends_the_copy() {
        // SAFETY: a new mapping.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                3 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let last = base.wrapping_byte_add(2 * PAGE);
        // SAFETY: the last page of the mapping made above, of which nothing was handed out.
        assert_eq!(unsafe { libc::mprotect(last, PAGE, libc::PROT_NONE) }, 0);
        let mut bytes = vec![1; 2 * PAGE];
        assert_eq!(read(base.addr() + 100, &mut bytes), 2 * PAGE - 100);
        assert_eq!(bytes[0], 0);
        assert_eq!(read(last.addr(), &mut bytes), 0);
        assert_eq!(read(usize::MAX - 3, &mut bytes), 0);
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(base, 3 * PAGE) };
    }
}

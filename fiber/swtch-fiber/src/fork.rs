//! Keeps a child of `fork` from changing its parent's counters and from going on with scheduling.
//!
//! The child has only the thread that called `fork`; the other schedulers, the monitor and the
//! helpers do not exist in it. The page of counters, however, is shared: what the child's copy of a
//! scheduler counted would appear as the parent's. So, right after `fork` and before anything else
//! runs in the child, the page is mapped again at the same address as a private copy. A flag is set
//! as well, which ends the child with a message when it enters the scheduler. `exec` and `_exit`
//! work as usual.
//!
//! `vfork`, `posix_spawn` and the bare system call run no such handler; the first two share all
//! memory on purpose until they `exec`.

use std::io;
use std::ptr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use crate::last_words::abort_with;

/// Set in a child of `fork`.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Address of the shared page. Null until [`protect`] was called.
static PAGE: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());
/// Length of the shared page, bytes.
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// File descriptor of the shared page; -1 until [`protect`] was called.
static FILE: AtomicI32 = AtomicI32::new(-1);

/// From now on, a child of `fork` gets a private copy of the `length` bytes of `file` that are
/// mapped at `page`. There is one page per process: only the first call has an effect.
///
/// # Errors
///
/// When `pthread_atfork` has no memory for the handler.
///
/// # Safety
///
/// `page` must be a mapping of `file` from its beginning, `length` bytes long, and it and the
/// descriptor must stay to the end of the process.
pub(crate) unsafe fn protect(
    page: ptr::NonNull<u8>,
    length: usize,
    file: libc::c_int,
) -> io::Result<()> {
    static REGISTERED: Mutex<bool> = Mutex::new(false);
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if *registered {
        return Ok(());
    }
    LENGTH.store(length, Ordering::Relaxed);
    FILE.store(file, Ordering::Relaxed);
    PAGE.store(page.as_ptr().cast(), Ordering::Release);
    // SAFETY: `in_child` does only what a signal handler may.
    let answer = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    if answer != 0 {
        return Err(io::Error::from_raw_os_error(answer));
    }
    *registered = true;
    Ok(())
}

/// Runs in the child before `fork` returns there.
extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    let page = PAGE.load(Ordering::Acquire);
    let (length, file) = (LENGTH.load(Ordering::Relaxed), FILE.load(Ordering::Relaxed));
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
    // SAFETY: the range is the shared page's own, by the contract of `protect`, and shows the same
    // bytes afterwards. If the kernel refuses, the page stays shared; `refuse_in_child` then still
    // keeps the child from writing more than a word to it.
    unsafe { libc::mmap(page, length, access, flags, file, 0) };
}

/// Ends the process if it is a child of `fork`. Costs one load, and is called first in each slow
/// path of the scheduler.
#[inline]
pub(crate) fn refuse_in_child() {
    if FORKED.load(Ordering::Relaxed) {
        refuse();
    }
}

#[cold]
fn refuse() -> ! {
    abort_with(|words| {
        use std::fmt::Write;
        words.write_str(
            "\nswtch-fiber: a child of fork called into the scheduler, but the threads of its \
             parent's runtime do not exist here\n  remedy: in the child, call only exec or _exit, \
             or start processes with std::process::Command",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicU64;

    /// A shared mapping of a file in memory, as the real page is. There is one per process.
    fn shared_page() -> &'static AtomicU64 {
        static SHARED: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let address = *SHARED.get_or_init(|| {
            // SAFETY: the name is a C string.
            let file = unsafe { libc::memfd_create(c"fork-test".as_ptr(), libc::MFD_CLOEXEC) };
            // SAFETY: the descriptor is that of a new file of our own.
            assert_eq!(unsafe { libc::ftruncate(file, 4096) }, 0);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping touches no other.
            let page =
                unsafe { libc::mmap(ptr::null_mut(), 4096, access, libc::MAP_SHARED, file, 0) };
            assert_ne!(page, libc::MAP_FAILED);
            let address = ptr::NonNull::new(page.cast()).unwrap();
            // SAFETY: page and descriptor stay to the end of the tests.
            unsafe { protect(address, 4096, file) }.unwrap();
            page as usize
        });
        // SAFETY: the page is mapped for ever, and its beginning is aligned for any integer.
        unsafe { &*(address as *const AtomicU64) }
    }

    /// Runs `child` in a child of `fork`; returns its wait status and what it wrote to standard
    /// error.
    fn in_forked_child(child: impl FnOnce()) -> (libc::c_int, String) {
        let (mut reader, writer) = std::io::pipe().unwrap();
        // SAFETY: until it ends, the child calls only what a signal handler may.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: both descriptors are open.
            unsafe { libc::dup2(writer.as_raw_fd(), libc::STDERR_FILENO) };
            child();
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        let mut status = 0;
        // SAFETY: `status` is an integer of this frame.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        (status, said)
    }

    /// An observer must not read a child's writes as the parent's.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn writes_of_a_child_do_not_reach_its_parent() {
        let counter = shared_page();
        counter.store(7, Ordering::Relaxed);
        let (status, _) = in_forked_child(|| {
            let seen = counter.swap(8, Ordering::Relaxed);
            if seen != 7 || counter.load(Ordering::Relaxed) != 8 {
                // SAFETY: ends the process.
                unsafe { libc::_exit(1) }
            }
        });
        assert_eq!(status, 0, "the child sees the parent's bytes, then its own");
        assert_eq!(counter.load(Ordering::Relaxed), 7);
        counter.store(9, Ordering::Relaxed);
        assert_eq!(
            counter.load(Ordering::Relaxed),
            9,
            "the parent still writes"
        );
    }

    /// A child that goes on scheduling would wait for threads that do not exist.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn child_that_schedules_is_ended_with_a_message() {
        shared_page();
        refuse_in_child();
        let (status, said) = in_forked_child(refuse_in_child);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT);
        assert!(
            said.contains("child of fork") && said.contains("_exit"),
            "{said}"
        );
    }
}

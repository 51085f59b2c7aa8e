//! The alternate signal stack for the handler of an overflow, because the overflowed stack is full.

use std::io;
use std::marker::PhantomData;
use std::ptr;

use super::memory::{map, page_size};

/// Bytes that the handler itself may use. Its text alone takes one kilobyte.
const HANDLER: usize = 16 * 1024;

/// `AT_MINSIGSTKSZ` of `include/uapi/linux/auxvec.h`: bytes that the kernel puts on the stack when
/// it delivers a signal, which depends on the registers it must save. 3376 with AVX-512.
const AT_MINSIGSTKSZ: libc::c_ulong = 51;

/// Keeps the alternate signal stack of one thread. Dropping it restores the previous one.
#[derive(Debug)]
pub(super) struct AlternateStack {
    /// The previous signal stack, and our mapping; `None` if the previous one was large enough.
    own: Option<(libc::stack_t, SignalStackMapping)>,
    /// It belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

#[derive(Debug)]
struct SignalStackMapping {
    low: usize,
    length: usize,
    /// Bytes at the low end that fault when touched.
    guard: usize,
}

impl AlternateStack {
    /// Gives the calling thread an alternate stack, unless it has one that is large enough. Rust's
    /// library gives its threads one of 8 KiB: enough for its own message, hardly for ours.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory for it.
    pub fn of_this_thread() -> io::Result<Self> {
        Self::below(SignalStackMapping::guarded)
    }

    /// As [`Self::of_this_thread`], without a guard of its own: the stacks of many threads then lie
    /// in one mapping, of which a process has 65,530.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory for it.
    pub fn of_one_of_many() -> io::Result<Self> {
        Self::below(SignalStackMapping::open)
    }

    fn below(new: impl FnOnce(usize) -> io::Result<SignalStackMapping>) -> io::Result<Self> {
        // SAFETY: the call has no precondition.
        let frame = unsafe { libc::getauxval(AT_MINSIGSTKSZ) };
        let frame = usize::try_from(frame).unwrap_or(0).max(libc::MINSIGSTKSZ);
        let before = exchange(None)?;
        let enabled = before.ss_flags & libc::SS_DISABLE == 0;
        if enabled && before.ss_size >= frame + HANDLER {
            return Ok(Self {
                own: None,
                not_send: PhantomData,
            });
        }
        let mapping = new((frame + HANDLER).next_multiple_of(page_size()))?;
        exchange(Some(libc::stack_t {
            ss_sp: (mapping.low + mapping.guard) as *mut libc::c_void,
            ss_flags: 0,
            ss_size: mapping.length - mapping.guard,
        }))?;
        Ok(Self {
            own: Some((before, mapping)),
            not_send: PhantomData,
        })
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        if let Some((before, mapping)) = self.own.take()
            && exchange(Some(before)).is_err()
        {
            // The stack is in use at this moment, so it must stay mapped.
            std::mem::forget(mapping);
        }
    }
}

impl SignalStackMapping {
    /// Maps `usable` bytes without a guard.
    fn open(usable: usize) -> io::Result<Self> {
        Ok(Self {
            low: map(usable)?,
            length: usable,
            guard: 0,
        })
    }

    /// Maps `usable` bytes above a page that faults.
    fn guarded(usable: usize) -> io::Result<Self> {
        let length = usable + page_size();
        let mapping = Self {
            low: map(length)?,
            length,
            guard: page_size(),
        };
        // SAFETY: the range is the lowest page of a mapping that no other code knows of.
        let answer = unsafe {
            libc::mprotect(
                mapping.low as *mut libc::c_void,
                page_size(),
                libc::PROT_NONE,
            )
        };
        if answer == 0 {
            Ok(mapping)
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for SignalStackMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is our own, and no longer the alternate stack of any thread.
        unsafe { libc::munmap(self.low as *mut libc::c_void, self.length) };
    }
}

/// Sets the alternate stack of the calling thread, and returns the one before.
fn exchange(new: Option<libc::stack_t>) -> io::Result<libc::stack_t> {
    let mut before = libc::stack_t {
        ss_sp: ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both point to values of this frame. The memory named by `new` outlives its use, which
    // `AlternateStack` and its callers guarantee.
    let answer = unsafe { libc::sigaltstack(new, &raw mut before) };
    if answer == 0 {
        Ok(before)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread must be left as it was found: at its end it frees the stack that it knows.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn dropping_puts_the_former_stack_back() {
        let before = exchange(None).unwrap();
        let alternate = AlternateStack::of_this_thread().unwrap();
        let during = exchange(None).unwrap();
        assert!(during.ss_size >= HANDLER && during.ss_flags & libc::SS_DISABLE == 0);
        let nested = AlternateStack::of_this_thread().unwrap();
        assert_eq!(
            exchange(None).unwrap().ss_sp,
            during.ss_sp,
            "large enough already"
        );
        drop(nested);
        drop(alternate);
        let after = exchange(None).unwrap();
        assert_eq!(
            (after.ss_sp, after.ss_flags),
            (before.ss_sp, before.ss_flags)
        );
    }
}

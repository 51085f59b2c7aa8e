//! One operation of one worker: it is started, waited for, and has ended before its buffer is
//! freed.
//!
//! With `io_uring` the buffer belongs to the kernel until the completion is there. An operation
//! whose deadline has passed, or whose task is cancelled, is therefore stopped first and then
//! waited for once more, uncancellably. What it did before it could be stopped counts: bytes that
//! were read are returned, not lost to the deadline.

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{Interest, scheduler_here};
use crate::fork;
use crate::last_words;
use crate::park::{self, Deadline, WaitOutcome, Waiter};
use crate::wait_type::WaitType;

/// The operations that the kernel can be asked to do.
#[derive(Debug)]
pub(crate) enum IoRequest<'caller> {
    /// Report when the descriptor is ready.
    Ready {
        descriptor: BorrowedFd<'caller>,
        interest: Interest,
    },
    /// Receive from a socket into `buffer`.
    Receive {
        descriptor: BorrowedFd<'caller>,
        buffer: &'caller mut [u8],
    },
    /// Read a file, at the offset or (`None`) at its position.
    Read {
        descriptor: BorrowedFd<'caller>,
        buffer: &'caller mut [u8],
        offset: Option<u64>,
    },
    /// Write a file, at the offset or (`None`) at its position.
    Write {
        descriptor: BorrowedFd<'caller>,
        buffer: &'caller [u8],
        offset: Option<u64>,
    },
    /// Flush a file's data, and with `metadata` also its metadata, to its device.
    Sync {
        descriptor: BorrowedFd<'caller>,
        metadata: bool,
    },
    /// Open a file; the result is a descriptor.
    Open {
        path: &'caller CStr,
        flags: i32,
        mode: u32,
    },
}

impl IoRequest<'_> {
    fn wait_type(&self) -> WaitType {
        match self {
            Self::Ready { .. } | Self::Receive { .. } => WaitType::ASYNC_NETWORK_IO,
            Self::Read { .. } | Self::Write { .. } | Self::Sync { .. } | Self::Open { .. } => {
                WaitType::ASYNC_IO_COMPLETION
            }
        }
    }

    fn descriptor(&self) -> RawFd {
        match self {
            Self::Ready { descriptor, .. }
            | Self::Receive { descriptor, .. }
            | Self::Read { descriptor, .. }
            | Self::Write { descriptor, .. }
            | Self::Sync { descriptor, .. } => descriptor.as_raw_fd(),
            Self::Open { .. } => libc::AT_FDCWD,
        }
    }
}

/// The driver's state of an operation. It lies on the stack of its worker, which does not leave
/// that frame before there is a result.
#[derive(Debug)]
#[repr(align(8))]
pub(crate) struct Operation {
    waiter: Cell<Waiter>,
    /// The result in the kernel's form: a number from 0, or a negated errno.
    result: Cell<Option<i32>>,
    descriptor: RawFd,
}

impl Operation {
    pub(super) fn new(waiter: Waiter, descriptor: RawFd) -> Self {
        Self {
            waiter: Cell::new(waiter),
            descriptor,
            result: Cell::new(None),
        }
    }

    /// Sets the result, and returns the waiter.
    pub(super) fn complete(&self, result: i32) -> Waiter {
        self.result.set(Some(result));
        self.waiter.get()
    }

    /// The descriptor that the operation works on.
    pub(super) fn descriptor(&self) -> RawFd {
        self.descriptor
    }
}

/// Guard: aborts if the operation's stack frame goes while the driver may still write to it.
struct NotOver<'operation>(&'operation Operation);

impl Drop for NotOver<'_> {
    fn drop(&mut self) {
        if self.0.result.get().is_none() {
            last_words::abort("swtch-fiber: an operation's stack goes while the kernel may use it");
        }
    }
}

/// Hands a request to the driver of the calling worker's scheduler and waits until it has ended.
///
/// # Errors
/// The kernel's error; [`io::ErrorKind::TimedOut`] when nothing was done by the deadline.
pub(crate) fn run(request: IoRequest<'_>, deadline: Option<Deadline>) -> io::Result<u32> {
    fork::refuse_in_child();
    let Some(scheduler) = scheduler_here() else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let opens = matches!(request, IoRequest::Open { .. });
    let (wait_type, descriptor) = (request.wait_type(), request.descriptor());
    // The views show the descriptor as the wait object.
    let resource = usize::try_from(descriptor).unwrap_or(0);
    let waiter = park::prepare(wait_type, resource);
    let operation = Operation::new(waiter, descriptor);
    if let Err(error) = scheduler.start_io(request, &operation) {
        let withdrawn = park::withdraw(waiter);
        debug_assert!(withdrawn, "it was not started");
        return Err(error);
    }
    let guard = NotOver(&operation);
    // A cancelled wait unwinds, and must not do so past the operation.
    let ended = catch_unwind(AssertUnwindSafe(|| park::wait(waiter, deadline)));
    if operation.result.get().is_none() {
        let last = park::prepare_uncancellable(wait_type, resource);
        operation.waiter.set(last);
        if scheduler.stop_io(&operation) {
            let withdrawn = park::withdraw(last);
            debug_assert!(withdrawn, "what stopped at once signals nobody");
        } else {
            let WaitOutcome::Signalled = park::wait(last, None) else {
                unreachable!("without a deadline nothing times out")
            };
        }
    }
    drop(guard);
    let result = operation.result.get().unwrap_or(-libc::ECANCELED);
    match ended {
        Ok(wake) => to_result(result, wake),
        Err(payload) => {
            if let (true, Ok(descriptor)) = (opens && result >= 0, result.try_into()) {
                close(descriptor);
            }
            resume_unwind(payload)
        }
    }
}

fn to_result(result: i32, wake: WaitOutcome) -> io::Result<u32> {
    u32::try_from(result).map_err(|_| {
        if wake == WaitOutcome::TimedOut && (result == -libc::ECANCELED || result == -libc::EINTR) {
            io::ErrorKind::TimedOut.into()
        } else {
            io::Error::from_raw_os_error(-result)
        }
    })
}

/// Closes a descriptor that was opened for a task that has been cancelled.
fn close(descriptor: u32) {
    if let Ok(descriptor) = i32::try_from(descriptor) {
        // SAFETY: the kernel has just opened it for this operation, and it has no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
}

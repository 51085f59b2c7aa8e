//! Requests to the kernel for a worker, and their state while they last.

use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::Interest;
use crate::scheduler::Waiter;
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
    /// Returns the type of its worker's wait.
    pub(crate) fn wait_type(&self) -> WaitType {
        match self {
            Self::Ready { .. } | Self::Receive { .. } => WaitType::ASYNC_NETWORK_IO,
            Self::Read { .. } | Self::Write { .. } | Self::Sync { .. } | Self::Open { .. } => {
                WaitType::ASYNC_IO_COMPLETION
            }
        }
    }

    /// The descriptor it works on; that of the working directory for a path.
    pub(crate) fn descriptor(&self) -> RawFd {
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
    pub(crate) fn new(waiter: Waiter, descriptor: RawFd) -> Self {
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

    /// The result; `None` while the driver may still write to the operation's memory.
    pub(crate) fn result(&self) -> Option<i32> {
        self.result.get()
    }

    /// Makes another wait the one that its end signals.
    pub(crate) fn set_waiter(&self, waiter: Waiter) {
        self.waiter.set(waiter);
    }

    /// The descriptor that the operation works on.
    pub(super) fn descriptor(&self) -> RawFd {
        self.descriptor
    }
}

//! One operation of one worker: it is started, waited for, and has ended before its buffer is
//! freed.
//!
//! With `io_uring` the buffer belongs to the kernel until the completion is there. An operation
//! whose deadline has passed, or whose task is cancelled, is therefore stopped first and then
//! waited for once more, uncancellably. What it did before it could be stopped counts: bytes that
//! were read are returned, not lost to the deadline.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::scheduler_here;
use crate::park::{self, Deadline, WaitOutcome};
use crate::scheduler::driver::{IoRequest, Operation};
use crate::{fork, last_words};

/// Guard: aborts if the operation's stack frame goes while the driver may still write to it.
struct NotOver<'operation>(&'operation Operation);

impl Drop for NotOver<'_> {
    fn drop(&mut self) {
        if self.0.result().is_none() {
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
    if operation.result().is_none() {
        let last = park::prepare_uncancellable(wait_type, resource);
        operation.set_waiter(last);
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
    let result = operation.result().unwrap_or(-libc::ECANCELED);
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

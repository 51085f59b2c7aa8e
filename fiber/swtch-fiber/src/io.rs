//! Input and output that block the worker and not its thread: one driver per scheduler.
//!
//! ```text
//! worker: start ──▶ driver ── submit in batches ──▶ kernel
//!         park::wait      ▲                            │
//!         (others run)    └── completions: looked for at every switch and in the idle sleep
//! ```
//!
//! The thread that holds the scheduler also runs its driver (`scheduler::driver`), so no part of a
//! driver is locked. A socket belongs to no driver: each operation goes through the scheduler of
//! the worker that calls it.
//!
//! A thread that is not a worker makes the plain system call and blocks in the kernel. So does a
//! worker whose stack unwinds: it cannot let others run (see `fiber::leave`).
//!
//! Sockets are in [`crate::net`], files in [`crate::fs`].

mod operation;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::park::Deadline;
pub(crate) use crate::scheduler::driver::{Interest, IoRequest};
use crate::scheduler::driver::{Io, time_until};
use crate::scheduler::{Scheduler, worker};
use crate::yielding::check_quantum;
pub(crate) use operation::run;

/// The scheduler through which the calling worker can wait. `None` for a thread that is not a
/// worker and for a worker that unwinds.
fn scheduler_here() -> Option<&'static Scheduler> {
    let scheduler = worker::current()?.scheduler()?;
    (!std::thread::panicking()).then_some(scheduler)
}

/// Returns true if the calling worker's driver does completion I/O (`io_uring`), so that it can hand
/// a buffer to the kernel.
pub(crate) fn completes_here() -> bool {
    scheduler_here().is_some_and(|scheduler| {
        // SAFETY: the calling worker holds the scheduler.
        unsafe { scheduler.group() }.settings.io == Io::Uring
    })
}

/// Makes a non-blocking system call again and again until it does not fail with `WouldBlock`.
///
/// # Errors
/// The error of the call; [`io::ErrorKind::TimedOut`] after `timeout`.
pub(crate) fn retry<Output>(
    descriptor: BorrowedFd<'_>,
    interest: Interest,
    timeout: Option<Duration>,
    mut attempt: impl FnMut() -> io::Result<Output>,
) -> io::Result<Output> {
    check_quantum();
    let mut deadline = None;
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The clock is read only when the call has to wait.
                deadline = deadline.or_else(|| timeout.map(Deadline::after));
                wait_ready(descriptor, interest, deadline)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Waits until a descriptor is ready. May return early.
///
/// # Errors
/// The kernel's error; [`io::ErrorKind::TimedOut`] when the deadline has passed.
pub(crate) fn wait_ready(
    descriptor: BorrowedFd<'_>,
    interest: Interest,
    deadline: Option<Deadline>,
) -> io::Result<()> {
    if scheduler_here().is_some() {
        let request = IoRequest::Ready {
            descriptor,
            interest,
        };
        return run(request, deadline).map(drop);
    }
    let events = match interest {
        Interest::Read => PollFlags::IN,
        Interest::Write => PollFlags::OUT,
    };
    let timeout = deadline.map(|deadline| time_until(deadline.monotonic_ns));
    match rustix::event::poll(&mut [PollFd::new(&descriptor, events)], timeout.as_ref()) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

//! Input and output that block the worker and not its thread: one driver per scheduler.
//!
//! ```text
//! worker: start ──▶ driver ── submit in batches ──▶ kernel
//!         park::wait      ▲                            │
//!         (others run)    └── completions: looked for at every switch and in the idle sleep
//! ```
//!
//! The thread that holds the scheduler also runs its driver, so no part of a driver is locked. A
//! socket belongs to no driver: each operation goes through the scheduler of the worker that calls
//! it.
//!
//! A thread that is not a worker makes the plain system call and blocks in the kernel. So does a
//! worker whose stack unwinds: it cannot let others run (see `fiber::leave`).
//!
//! Sockets are in [`crate::net`], files in [`crate::fs`].

mod completion;
pub(crate) mod driver;
mod epoll;
mod operation;
mod uring;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use swtch_observe::clock;
use swtch_observe::layout::io_driver;

use crate::error::Error;
use crate::park::Deadline;
use crate::runtime::Mode;
use crate::scheduler::Scheduler;
use crate::worker;
use crate::yielding::check_quantum;
pub(crate) use operation::{IoRequest, run};

/// How sockets and files are driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Io {
    /// In fiber mode by `io_uring` where the kernel allows it, else by epoll.
    ///
    /// In thread mode by epoll: `io_uring` finishes an operation on the thread that submitted it,
    /// which there is seldom the one that waits. Seen with an echo server of 100 connections: 1.2
    /// to 1.4 voluntary OS switches a request, against 0.85 to 0.93 by epoll.
    #[default]
    Auto,
    /// By `io_uring` (Linux 5.11): the kernel completes operations, many per system call.
    Uring,
    /// By epoll: the kernel reports readiness; files are read and written in preemptive sections.
    Epoll,
}

impl Io {
    /// Resolves the setting for this machine. The number is what the page reports, one of
    /// [`io_driver`].
    pub(crate) fn choose(self, mode: Mode) -> Result<(Self, u32), Error> {
        if self == Self::Epoll || (self == Self::Auto && mode == Mode::Thread) {
            return Ok((Self::Epoll, io_driver::EPOLL));
        }
        match uring::build(mode) {
            Ok(_works) => Ok((Self::Uring, io_driver::URING)),
            Err(_) if self == Self::Auto => Ok((Self::Epoll, io_driver::EPOLL_SINCE_REFUSED)),
            Err(source) => Err(Error::IoUring { source }),
        }
    }
}

/// Which readiness of a descriptor a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read or accept, the end of the stream, or an error.
    Read,
    /// Room to write, a connection made, or an error.
    Write,
}

/// The scheduler through which the calling worker can wait. `None` for a thread that is not a
/// worker and for a worker that unwinds.
fn scheduler_here() -> Option<&'static Scheduler> {
    let scheduler = worker::current()?.scheduler()?;
    (!std::thread::panicking()).then_some(scheduler)
}

/// Whether the calling worker can hand a buffer to the kernel (`io_uring`).
pub(crate) fn completes_here() -> bool {
    scheduler_here().is_some_and(|scheduler| {
        // SAFETY: the calling worker holds the scheduler.
        unsafe { scheduler.shared() }.io == Io::Uring
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
    let left = deadline.map(|deadline| time_until(deadline.monotonic_ns));
    match rustix::event::poll(&mut [PollFd::new(&descriptor, events)], left.as_ref()) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The time from now until a moment on `CLOCK_MONOTONIC`, 0 when that moment is past.
fn time_until(monotonic_ns: u64) -> Timespec {
    let left = Duration::from_nanos(monotonic_ns.saturating_sub(clock::monotonic_ns()));
    Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    }
}

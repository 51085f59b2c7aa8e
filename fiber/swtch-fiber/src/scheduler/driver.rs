//! Does the I/O of one scheduler, by `io_uring` or epoll. The engine is made when the first operation
//! needs it.
//!
//! Only the holder of the scheduler touches its driver. To keep system calls rare, operations are batched
//! for up to [`PATIENCE`] while others are runnable, and submitted at once when none is.

mod epoll;
mod operation;
mod uring;

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::Timespec;
use swtch_observe::clock;
use swtch_observe::layout::io_driver;

use super::{Mode, Waiter};
use crate::error::Error;
use epoll::Epoll;
pub(crate) use operation::{IoRequest, Operation};
use uring::Uring;

/// The time for which operations and readiness events may wait, while other workers run, for one
/// system call that serves many. A call takes 0.2 to 0.5 µs when it finds nothing, so looking in
/// vain takes at most 2.5 % of the time.
const PATIENCE: Duration = Duration::from_micros(20);

/// The way in which sockets and files are driven.
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
            // The ring is dropped again: this only finds out whether the kernel makes one.
            Ok(_ring) => Ok((Self::Uring, io_driver::URING)),
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

/// The driver of one scheduler.
#[derive(Debug)]
pub(crate) struct Driver {
    /// The result of [`Io::choose`], so never [`Io::Auto`].
    kind: Io,
    mode: Mode,
    /// `None` until the first operation is started.
    engine: Option<Engine>,
    /// Operations that were started and have not ended.
    pending: u32,
}

#[derive(Debug)]
enum Engine {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
}

impl Driver {
    pub(crate) fn new(kind: Io, mode: Mode) -> Self {
        Self {
            kind,
            mode,
            engine: None,
            pending: 0,
        }
    }

    /// Operations that were started and have not ended.
    pub(crate) fn pending(&self) -> u32 {
        self.pending
    }

    /// Returns true if a switch can skip the driver.
    #[inline(always)]
    pub(crate) fn nothing_to_do(&self) -> bool {
        self.pending == 0 || self.is_quiet()
    }

    /// Kept out of line, so that a switch of a scheduler without I/O inlines only a comparison.
    #[inline(never)]
    fn is_quiet(&self) -> bool {
        match &self.engine {
            Some(Engine::Uring(uring)) => uring.is_quiet(),
            Some(Engine::Epoll(epoll)) => epoll.is_quiet(),
            None => true,
        }
    }

    /// Returns the engine, and makes it if there is none. `alarm` becomes readable when another
    /// thread wants to end [`Self::sleep`].
    fn engine_or_new(&mut self, alarm: BorrowedFd<'_>) -> io::Result<&mut Engine> {
        let engine = match self.engine.take() {
            Some(engine) => engine,
            None if self.kind == Io::Uring => {
                Engine::Uring(Box::new(Uring::new(self.mode, alarm)?))
            }
            None => Engine::Epoll(Box::new(Epoll::new(alarm)?)),
        };
        Ok(self.engine.insert(engine))
    }

    /// Starts an operation. It has ended when [`next_completion`](Self::next_completion) names its
    /// waiter, or [`stop`](Self::stop) returns true.
    ///
    /// # Errors
    /// When the driver could not be made, or the kernel refuses. The operation was not started
    /// then.
    pub(super) fn start(
        &mut self,
        request: IoRequest<'_>,
        operation: &Operation,
        alarm: BorrowedFd<'_>,
    ) -> io::Result<()> {
        match self.engine_or_new(alarm)? {
            Engine::Uring(uring) => uring.start(request, operation),
            Engine::Epoll(epoll) => epoll.start(&request, operation)?,
        }
        self.pending += 1;
        Ok(())
    }

    /// Gives an operation up. Returns true if it has ended with that, and then no waiter is
    /// signalled. Otherwise the kernel may still use its buffers until its completion comes.
    pub(super) fn stop(&mut self, operation: &Operation) -> bool {
        match &mut self.engine {
            Some(Engine::Epoll(epoll)) => {
                epoll.stop(operation);
                self.pending -= 1;
                true
            }
            Some(Engine::Uring(uring)) => {
                uring.stop(operation);
                false
            }
            None => unreachable!("an operation was started, so there is an engine"),
        }
    }

    /// Makes the system call that is due, if one is.
    pub(super) fn turn(&mut self) {
        match &mut self.engine {
            Some(Engine::Uring(uring)) => uring.turn(),
            Some(Engine::Epoll(epoll)) => epoll.turn(),
            None => {}
        }
    }

    /// Returns the waiter of an operation that has ended, one at each call.
    pub(super) fn next_completion(&mut self) -> Option<Waiter> {
        let waiter = match &mut self.engine {
            Some(Engine::Uring(uring)) => uring.next_completion(),
            Some(Engine::Epoll(epoll)) => epoll.next_completion(),
            None => None,
        }?;
        self.pending -= 1;
        Some(waiter)
    }

    /// Sleeps until an operation ends, the alarm rings, or the time `until` (`CLOCK_MONOTONIC`,
    /// ns).
    pub(crate) fn sleep(&mut self, until: Option<u64>) {
        match &mut self.engine {
            Some(Engine::Uring(uring)) => uring.sleep(until),
            Some(Engine::Epoll(epoll)) => epoll.sleep(until),
            None => {}
        }
    }

    /// Returns true if the alarm rang since the last call.
    pub(super) fn take_rang(&mut self) -> bool {
        match &mut self.engine {
            Some(Engine::Uring(uring)) => uring.take_rang(),
            Some(Engine::Epoll(epoll)) => epoll.take_rang(),
            None => false,
        }
    }
}

/// The time from now until a moment on `CLOCK_MONOTONIC`, 0 when that moment is past.
pub(crate) fn time_until(monotonic_ns: u64) -> Timespec {
    let left = Duration::from_nanos(monotonic_ns.saturating_sub(clock::monotonic_ns()));
    Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    }
}

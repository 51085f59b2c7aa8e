//! A driver: `io_uring` or epoll, made when the first operation needs it.
//!
//! Only the holder of the scheduler touches it. To keep system calls rare, operations are batched
//! for up to [`PATIENCE`] while others are runnable, and submitted at once when none is.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::Io;
use super::epoll::Epoll;
use super::operation::{IoRequest, Operation};
use super::uring::Uring;
use crate::park::Waiter;
use crate::runtime::Mode;

/// How long operations and readiness events may wait, while other workers run, for one system call
/// that serves many. A call takes 0.2 to 0.5 µs when it finds nothing: at most 2 % of the time.
pub(super) const PATIENCE: Duration = Duration::from_micros(20);

/// The driver of one scheduler.
#[derive(Debug)]
pub(crate) struct Driver {
    kind: Io,
    mode: Mode,
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

    /// Whether a switch can skip the driver.
    #[inline(always)]
    pub(crate) fn nothing_to_do(&self) -> bool {
        self.pending == 0 || self.is_quiet()
    }

    #[inline(never)]
    fn is_quiet(&self) -> bool {
        match &self.engine {
            Some(Engine::Uring(uring)) => uring.is_quiet(),
            Some(Engine::Epoll(epoll)) => epoll.is_quiet(),
            None => true,
        }
    }

    fn engine(&mut self, alarm: BorrowedFd<'_>) -> io::Result<&mut Engine> {
        let made = match self.engine.take() {
            Some(engine) => engine,
            None if self.kind == Io::Uring => {
                Engine::Uring(Box::new(Uring::new(self.mode, alarm)?))
            }
            None => Engine::Epoll(Box::new(Epoll::new(alarm)?)),
        };
        Ok(self.engine.insert(made))
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
        match self.engine(alarm)? {
            Engine::Uring(uring) => uring.start(request, operation),
            Engine::Epoll(epoll) => epoll.start(&request, operation)?,
        }
        self.pending += 1;
        Ok(())
    }

    /// Gives an operation up. True when it has ended already; then no waiter is signalled.
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

    /// The waiter of an operation that has ended.
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

    /// Whether the alarm rang since the last call.
    pub(super) fn take_rang(&mut self) -> bool {
        match &mut self.engine {
            Some(Engine::Uring(uring)) => uring.take_rang(),
            Some(Engine::Epoll(epoll)) => epoll.take_rang(),
            None => false,
        }
    }
}

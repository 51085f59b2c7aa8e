//! The epoll driver, used by default in thread mode, where `io_uring` is refused, and on request:
//! the kernel reports which descriptors are ready.
//!
//! Each wait arms its descriptor for one event (`EPOLLONESHOT`). No descriptor is removed when a
//! wait is given up or the descriptor is closed: an event without a waiter is ignored, and a waiter
//! that was woken too early tries again and waits anew.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use swtch_observe::clock;

use super::{Interest, IoRequest, Operation, PATIENCE, time_until};
use crate::last_words;
use crate::scheduler::Waiter;

/// Most events that one system call returns.
const EVENTS: usize = 128;

/// Marks the alarm's event; all other events carry their descriptor.
const ALARM: u64 = u64::MAX;

/// The epoll descriptor of one scheduler, and the waiting operations.
#[derive(Debug)]
pub(super) struct Epoll {
    epoll: OwnedFd,
    waiting: HashMap<RawFd, Vec<PendingOperation>>,
    completed: VecDeque<Waiter>,
    /// Earliest time to ask the kernel again while workers run, ticks.
    next_look: u64,
    patience: u64,
    rang: bool,
}

#[derive(Debug)]
struct PendingOperation {
    interest: Interest,
    operation: *const Operation,
}

impl Epoll {
    pub(super) fn new(alarm: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mark = epoll::EventData::new_u64(ALARM);
        epoll::add(&epoll, alarm, mark, epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            waiting: HashMap::new(),
            completed: VecDeque::new(),
            next_look: 0,
            patience: clock::rate().ticks_in(PATIENCE),
            rang: false,
        })
    }

    /// Returns true if no waiter is to be woken and it is too early to ask the kernel again.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.completed.is_empty() && !self.rang && clock::ticks() < self.next_look
    }

    /// Arms a descriptor for the calling worker, and for those that already wait for it.
    pub(super) fn start(
        &mut self,
        request: &IoRequest<'_>,
        operation: &Operation,
    ) -> io::Result<()> {
        let IoRequest::Ready {
            descriptor,
            interest,
        } = *request
        else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let number = descriptor.as_raw_fd();
        let others = self.waiting.get(&number).map_or(&[][..], Vec::as_slice);
        let interests = others.iter().map(|other| other.interest);
        self.arm(descriptor, interests.chain([interest]))?;
        self.waiting
            .entry(number)
            .or_default()
            .push(PendingOperation {
                interest,
                operation,
            });
        Ok(())
    }

    fn arm(
        &self,
        descriptor: BorrowedFd<'_>,
        interests: impl Iterator<Item = Interest>,
    ) -> io::Result<()> {
        let events = interests.fold(epoll::EventFlags::ONESHOT, |events, interest| {
            events | to_events(interest)
        });
        let mark = epoll::EventData::new_u64(descriptor.as_raw_fd().unsigned_abs().into());
        // Usually the descriptor is known from an earlier wait.
        match epoll::modify(&self.epoll, descriptor, mark, events) {
            Err(Errno::NOENT) => Ok(epoll::add(&self.epoll, descriptor, mark, events)?),
            armed => Ok(armed?),
        }
    }

    /// Removes an operation from the table and completes it as cancelled.
    pub(super) fn stop(&mut self, operation: &Operation) {
        if let Some(waiting) = self.waiting.get_mut(&operation.descriptor()) {
            waiting.retain(|other| !ptr::eq(other.operation, operation));
            if waiting.is_empty() {
                self.waiting.remove(&operation.descriptor());
            }
        }
        operation.complete(-libc::ECANCELED);
    }

    /// Asks the kernel for events when that is due.
    pub(super) fn turn(&mut self) {
        let now = clock::ticks();
        if self.completed.is_empty() && now >= self.next_look {
            self.ask(Some(Timespec::default()));
            self.next_look = clock::ticks() + self.patience;
        }
    }

    /// Sleeps until a descriptor is ready, the alarm rings, or `until` (`CLOCK_MONOTONIC`, ns).
    pub(super) fn sleep(&mut self, until: Option<u64>) {
        if self.completed.is_empty() {
            self.ask(until.map(time_until));
        }
    }

    fn ask(&mut self, at_most: Option<Timespec>) {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let asked = match epoll::wait(&self.epoll, &mut room, at_most.as_ref()) {
            // Before 5.11 the timeout has only milliseconds (`epoll_pwait`): round up, so late
            // rather than early.
            Err(Errno::NOSYS) => {
                let at_most = at_most.map(to_milliseconds);
                epoll::wait(&self.epoll, &mut room, at_most.as_ref())
            }
            asked => asked,
        };
        match asked {
            Ok((events, _)) => {
                for event in events {
                    self.deliver(event.data.u64(), event.flags);
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => last_words::abort(&format!("swtch-fiber: epoll_wait: {error}")),
        }
    }

    fn deliver(&mut self, mark: u64, events: epoll::EventFlags) {
        let Ok(number) = RawFd::try_from(mark) else {
            self.rang = true;
            return;
        };
        let Some(waiting) = self.waiting.remove(&number) else {
            return;
        };
        let failed = events.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        let (ready, others): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|waiting| failed || events.intersects(to_events(waiting.interest)));
        for waiting in ready {
            self.complete(&waiting, 0);
        }
        if others.is_empty() {
            return;
        }
        // SAFETY: the operations that wait for it keep it open.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        match self.arm(descriptor, others.iter().map(|other| other.interest)) {
            Ok(()) => {
                self.waiting.insert(number, others);
            }
            Err(error) => {
                let result = error.raw_os_error().unwrap_or(libc::EIO);
                others
                    .iter()
                    .for_each(|other| self.complete(other, -result));
            }
        }
    }

    fn complete(&mut self, waiting: &PendingOperation, result: i32) {
        // SAFETY: its worker stays in `operation::run` until the operation has a result. It had
        // none, because it was still in the table.
        let operation = unsafe { &*waiting.operation };
        self.completed.push_back(operation.complete(result));
    }

    pub(super) fn next_completion(&mut self) -> Option<Waiter> {
        self.completed.pop_front()
    }

    pub(super) fn take_rang(&mut self) -> bool {
        std::mem::take(&mut self.rang)
    }
}

fn to_events(interest: Interest) -> epoll::EventFlags {
    match interest {
        Interest::Read => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        Interest::Write => epoll::EventFlags::OUT,
    }
}

fn to_milliseconds(span: Timespec) -> Timespec {
    let milliseconds = (span.tv_nsec + 999_999) / 1_000_000;
    Timespec {
        tv_sec: span.tv_sec + milliseconds / 1_000,
        tv_nsec: milliseconds % 1_000 * 1_000_000,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::scheduler::alarm::Alarm;
    use crate::scheduler::worker::WorkerCell;

    /// A worker that reads and one that writes wait for the same socket, each for its own event.
    #[test]
    fn who_reads_is_not_woken_by_room_to_write() {
        let alarm = Alarm::new().expect("a descriptor");
        let mut epoll = Epoll::new(alarm.descriptor()).expect("a descriptor");
        let (near, mut far) = UnixStream::pair().expect("two descriptors");
        let waits = |epoll: &mut Epoll, operation: &Operation, interest| {
            let descriptor = std::os::fd::AsFd::as_fd(&near);
            let request = IoRequest::Ready {
                descriptor,
                interest,
            };
            epoll.start(&request, operation).expect("it can be polled");
        };
        let operation = || {
            let waiter = Waiter::arm(WorkerCell::take(None), false);
            (waiter, Operation::new(waiter, near.as_raw_fd()))
        };
        let (reads, reading) = operation();
        let (writes, writing) = operation();
        waits(&mut epoll, &reading, Interest::Read);
        waits(&mut epoll, &writing, Interest::Write);
        epoll.sleep(None);
        assert!(epoll.next_completion().is_some_and(|who| who.is(writes)));
        assert!(epoll.next_completion().is_none());
        far.write_all(b"x").expect("connected");
        epoll.sleep(None);
        assert!(epoll.next_completion().is_some_and(|who| who.is(reads)));
        // After `stop` the operation is neither completed nor left in the table.
        let (_, stopped) = operation();
        waits(&mut epoll, &stopped, Interest::Write);
        epoll.stop(&stopped);
        epoll.ask(Some(Timespec::default()));
        assert!(epoll.next_completion().is_none());
        assert!(epoll.waiting.is_empty());
    }
}

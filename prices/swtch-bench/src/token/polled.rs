//! A token in a pipe that is waited for with poll or epoll: the task blocks in the poll, and the
//! read that follows finds the byte there.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{Pipe, Token};
use crate::error::{Error, checked};

const NO_TIMEOUT: i32 = -1;

/// A pipe whose reader polls it first.
#[derive(Debug)]
pub(crate) struct PolledPipe(Pipe);

impl PolledPipe {
    pub(crate) fn new() -> Result<Self, Error> {
        Pipe::new().map(Self)
    }
}

impl Token for PolledPipe {
    fn pass(&self) -> Result<(), Error> {
        self.0.pass()
    }

    fn take(&self) -> Result<(), Error> {
        let fd = self.0.reader.as_raw_fd();
        let mut waited = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one element is passed, and it is ours to be written to.
        checked("poll", unsafe { libc::poll(&mut waited, 1, NO_TIMEOUT) })?;
        self.0.take()
    }
}

/// A pipe whose reader waits in epoll.
#[derive(Debug)]
pub(crate) struct EpolledPipe {
    pipe: Pipe,
    epoll: OwnedFd,
}

impl EpolledPipe {
    pub(crate) fn new() -> Result<Self, Error> {
        let pipe = Pipe::new()?;
        // SAFETY: no memory is involved.
        let fd = checked("epoll_create1", unsafe {
            libc::epoll_create1(libc::EPOLL_CLOEXEC)
        })?;
        // SAFETY: the descriptor was just opened and nothing else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut interest = libc::epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: 0,
        };
        let reader = pipe.reader.as_raw_fd();
        // SAFETY: both descriptors are open, and the event lives across the call.
        let added = unsafe { libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, reader, &mut interest) };
        checked("epoll_ctl", added)?;
        Ok(Self { pipe, epoll })
    }
}

impl Token for EpolledPipe {
    fn pass(&self) -> Result<(), Error> {
        self.pipe.pass()
    }

    fn take(&self) -> Result<(), Error> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: room for one event is passed, and it is ours to be written to.
        checked("epoll_wait", unsafe {
            libc::epoll_wait(epoll, &mut event, 1, NO_TIMEOUT)
        })?;
        self.pipe.take()
    }
}

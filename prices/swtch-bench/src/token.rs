//! Tokens that one task passes and another waits for. Each kind is another way to wait.

use crate::error::Error;
use crate::shared::{Shared, Zeroed};

mod condition;
mod futex;
mod message_queue;
mod polled;
mod semaphore;
mod stream;
mod sysv_semaphore;

pub(crate) use condition::Condition;
pub(crate) use futex::FutexToken;
pub(crate) use message_queue::MessageQueue;
pub(crate) use polled::{EpolledPipe, PolledPipe};
pub(crate) use semaphore::SemaphoreToken;
pub(crate) use stream::{EventFd, Pipe, Tcp, UnixSocket};
pub(crate) use sysv_semaphore::SysvSemaphore;

/// A place for one token.
pub(crate) trait Token: Sync {
    /// Puts the token there, and wakes a waiting task. Never blocks if no token is there.
    fn pass(&self) -> Result<(), Error>;

    /// Takes the token. Blocks, once, if none is there.
    fn take(&self) -> Result<(), Error>;

    /// Makes the calls of a hand-over, [`Self::pass`] and [`Self::take`], without a peer: the part
    /// of a hand-over that is not the switch. The token is absent before and after. What the C
    /// library builds from futexes does not enter the kernel then, although it does in a hand-over.
    fn hand_over_alone(&self) -> Result<(), Error> {
        self.pass()?;
        self.take()
    }
}

impl<T: Token + Zeroed> Token for Shared<T> {
    fn pass(&self) -> Result<(), Error> {
        (**self).pass()
    }

    fn take(&self) -> Result<(), Error> {
        (**self).take()
    }

    fn hand_over_alone(&self) -> Result<(), Error> {
        (**self).hand_over_alone()
    }
}

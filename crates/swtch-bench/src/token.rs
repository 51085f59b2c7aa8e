//! Tokens that one member of the cast passes and another waits for: each means a different wait.

use crate::error::Error;

mod condition;
pub(crate) mod futex;
mod message_queue;
mod polled;
mod process_mutex;
mod semaphore;
mod stream;
mod sysv_semaphore;

pub(crate) use condition::Condition;
pub(crate) use futex::{Futex, SharedFutex, private_wait_while, private_wake};
pub(crate) use message_queue::MessageQueue;
pub(crate) use polled::{EpolledPipe, PolledPipe};
pub(crate) use process_mutex::ProcessMutex;
pub(crate) use semaphore::Semaphore;
pub(crate) use stream::{EventFd, Pipe, Tcp, UnixSocket};
pub(crate) use sysv_semaphore::SysvSemaphore;

/// A place for one token.
pub(crate) trait Token: Sync {
    /// Puts the token there, and wakes who waits for it. Never blocks when no token is there.
    fn pass(&self) -> Result<(), Error>;

    /// Takes the token. Blocks, once, when none is there.
    fn take(&self) -> Result<(), Error>;

    /// Makes the calls of a hand-over, [`Self::pass`] and [`Self::take`], with no peer: what of a
    /// hand-over is not the switch. The token is not there before and after. What the C library builds
    /// from futexes does not enter the kernel then, though it does in a hand-over.
    fn alone(&self) -> Result<(), Error> {
        self.pass()?;
        self.take()
    }
}

//! Tokens that one member of the cast passes and another waits for: each means a different wait.

use crate::error::Error;

mod condition;
mod futex;
mod message_queue;
mod polled;
mod semaphore;
mod stream;
mod sysv_semaphore;

pub(crate) use condition::Condition;
pub(crate) use futex::Futex;
pub(crate) use message_queue::MessageQueue;
pub(crate) use polled::{EpolledPipe, PolledPipe};
pub(crate) use semaphore::Semaphore;
pub(crate) use stream::{EventFd, Pipe, Tcp, UnixSocket};
pub(crate) use sysv_semaphore::SysvSemaphore;

/// A place for one token.
pub(crate) trait Token: Sync {
    /// Puts the token there, and wakes who waits for it. Never blocks when no token is there.
    fn pass(&self) -> Result<(), Error>;

    /// Takes the token. Blocks, once, when none is there.
    fn take(&self) -> Result<(), Error>;
}

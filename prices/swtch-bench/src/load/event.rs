//! Events that one member signals and another waits for. Each is a count, so that a signal before
//! the wait is not lost.

use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::futex::{self, SharedScope};
use crate::shared::Shared;
use crate::token::{Condition, EventFd, Pipe, SemaphoreToken, Token, UnixSocket};

/// The object that an event is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A count behind a mutex and a condition variable of the C library.
    #[default]
    Condition,
    /// A count in a futex word, used without any library in between.
    Futex,
    /// A POSIX semaphore, shared between processes.
    Semaphore,
    /// An eventfd that is decremented by one at each wait (`EFD_SEMAPHORE`).
    Eventfd,
    /// Bytes in a pipe, which holds 65,536; a signal beyond that blocks.
    Pipe,
    /// Bytes in a pair of Unix stream sockets.
    Socket,
}

impl EventKind {
    /// All kinds, each with its word in a load file.
    pub const ALL: [(&str, Self); 6] = [
        ("condition", Self::Condition),
        ("futex", Self::Futex),
        ("semaphore", Self::Semaphore),
        ("eventfd", Self::Eventfd),
        ("pipe", Self::Pipe),
        ("socket", Self::Socket),
    ];

    /// An event with the count 0.
    pub(super) fn make(self) -> Result<Box<dyn Token + Send>, Error> {
        Ok(match self {
            Self::Condition => Box::new(Condition::new()?),
            Self::Futex => Box::new(FutexCount(Shared::new()?)),
            Self::Semaphore => Box::new(SemaphoreToken::new()?),
            Self::Eventfd => Box::new(EventFd::counting()?),
            Self::Pipe => Box::new(Pipe::new()?),
            Self::Socket => Box::new(UnixSocket::new()?),
        })
    }
}

/// The number of signals not yet waited for.
struct FutexCount(Shared<AtomicU32>);

impl Token for FutexCount {
    fn pass(&self) -> Result<(), Error> {
        self.0.fetch_add(1, Ordering::Release);
        futex::wake::<SharedScope>(&self.0, 1)
    }

    #[allow(
        deprecated,
        reason = "the new name, `try_update`, is not in the oldest Rust that builds this"
    )]
    fn take(&self) -> Result<(), Error> {
        let less = |count: u32| count.checked_sub(1);
        while self
            .0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, less)
            .is_err()
        {
            futex::wait_while::<SharedScope>(&self.0, 0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two signals before any wait let two waits pass; a third wait would block.
    #[test]
    fn signals_that_come_first_are_kept() {
        for (word, kind) in EventKind::ALL {
            let event = kind.make().unwrap();
            event.pass().unwrap();
            event.pass().unwrap();
            event.take().unwrap();
            event.take().unwrap();
            let waits = std::thread::scope(|scope| {
                let waiter = scope.spawn(|| event.take().unwrap());
                std::thread::sleep(std::time::Duration::from_millis(20));
                let waits = !waiter.is_finished();
                event.pass().unwrap();
                waits
            });
            assert!(waits, "{word}");
        }
    }
}

//! Events that one member signals and another waits for. Each has a count: a signal that comes first is
//! not lost.

use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::shared::Shared;
use crate::token::{Condition, EventFd, Pipe, Semaphore, Token, UnixSocket, futex};

/// What an event is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A count behind a mutex and a condition variable of the C library.
    #[default]
    Condition,
    /// A count that is waited for by `futex`, with nothing between it and the kernel.
    Futex,
    /// A POSIX semaphore.
    Semaphore,
    /// An eventfd that is taken from one by one (`EFD_SEMAPHORE`).
    Eventfd,
    /// Bytes in a pipe. It holds 65,536; who signals more waits.
    Pipe,
    /// Bytes in a pair of Unix stream sockets.
    Socket,
}

impl EventKind {
    /// All of them, with their words.
    pub const ALL: [(&str, Self); 6] = [
        ("condition", Self::Condition),
        ("futex", Self::Futex),
        ("semaphore", Self::Semaphore),
        ("eventfd", Self::Eventfd),
        ("pipe", Self::Pipe),
        ("socket", Self::Socket),
    ];

    /// An event that nobody has signalled.
    pub(super) fn make(self) -> Result<Box<dyn Token + Send>, Error> {
        Ok(match self {
            Self::Condition => Box::new(Condition::new()?),
            Self::Futex => Box::new(FutexCount(Shared::new()?)),
            Self::Semaphore => Box::new(Semaphore::new()?),
            Self::Eventfd => Box::new(EventFd::counting()?),
            Self::Pipe => Box::new(Pipe::new()?),
            Self::Socket => Box::new(UnixSocket::new()?),
        })
    }
}

/// How often it was signalled and not yet waited for.
struct FutexCount(Shared<AtomicU32>);

impl Token for FutexCount {
    fn pass(&self) -> Result<(), Error> {
        self.0.fetch_add(1, Ordering::Release);
        futex::wake(&self.0, 1)
    }

    fn take(&self) -> Result<(), Error> {
        let less = |count: u32| count.checked_sub(1);
        while self
            .0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, less)
            .is_err()
        {
            futex::sleep_while(&self.0, 0, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two signals that come before anyone waits let two waits pass, and a third one would block.
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

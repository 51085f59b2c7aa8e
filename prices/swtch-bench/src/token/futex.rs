//! A token in a futex word, used without any library in between.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Token;
use crate::error::Error;
use crate::futex::{self, FutexScope, SharedScope};
use crate::shared::Zeroed;

const ABSENT: u32 = 0;
const PRESENT: u32 = 1;

/// A word that is 1 while the token is there.
#[derive(Debug, Default)]
pub(crate) struct FutexToken<S>(AtomicU32, PhantomData<S>);

// SAFETY: zero is a valid atomic number and means no token; atomics and futexes are there to be
// used by several processes.
unsafe impl Zeroed for FutexToken<SharedScope> {}

impl<S: FutexScope> FutexToken<S> {
    /// Takes the token if it comes within `limit`, and returns whether it came.
    pub(crate) fn take_within(&self, limit: Duration) -> Result<bool, Error> {
        while self.0.swap(ABSENT, Ordering::Acquire) == ABSENT {
            if !futex::wait_while_within::<S>(&self.0, ABSENT, limit)? {
                return Ok(self.0.swap(ABSENT, Ordering::Acquire) == PRESENT);
            }
        }
        Ok(true)
    }
}

impl<S: FutexScope> Token for FutexToken<S> {
    fn pass(&self) -> Result<(), Error> {
        self.0.store(PRESENT, Ordering::Release);
        futex::wake::<S>(&self.0, 1)
    }

    fn take(&self) -> Result<(), Error> {
        while self.0.swap(ABSENT, Ordering::Acquire) == ABSENT {
            futex::wait_while::<S>(&self.0, ABSENT)?;
        }
        Ok(())
    }

    /// A wake without a waiter, and a wait that finds another value: both go as far into the kernel
    /// as those of a hand-over do.
    fn hand_over_alone(&self) -> Result<(), Error> {
        self.pass()?;
        match futex::wait::<S>(&self.0, ABSENT) {
            Err(Error::Call { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {}
            Ok(()) => unreachable!("nobody else knows the word, so it cannot have changed"),
            Err(error) => return Err(error),
        }
        self.0.swap(ABSENT, Ordering::Acquire);
        Ok(())
    }
}

//! Locks that members of a load contend for.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::shared::Shared;
use crate::token::{ProcessMutex, SemaphoreToken, Token, futex};

/// The object that a lock is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadLockKind {
    /// A mutex of the C library (`pthread_mutex_lock`), which processes may share.
    #[default]
    Mutex,
    /// A futex word, used without any library in between.
    Futex,
    /// A word that is polled until it is free. No member sleeps.
    Spin,
    /// A POSIX semaphore (`sem_wait`, `sem_post`).
    Semaphore,
}

/// A lock that at most one member holds.
pub(super) trait Lock: Send + Sync {
    /// Acquires the lock; blocks or spins while another member holds it.
    fn lock(&self) -> Result<(), Error>;

    /// Releases the lock, which the caller holds.
    fn unlock(&self) -> Result<(), Error>;
}

impl LoadLockKind {
    /// All kinds, each with its word in a load file.
    pub const ALL: [(&str, Self); 4] = [
        ("mutex", Self::Mutex),
        ("futex", Self::Futex),
        ("spin", Self::Spin),
        ("semaphore", Self::Semaphore),
    ];

    /// A lock that is free.
    pub(super) fn make(self) -> Result<Box<dyn Lock>, Error> {
        Ok(match self {
            Self::Mutex => {
                let mutex: Shared<ProcessMutex> = Shared::new()?;
                mutex.init()?;
                Box::new(mutex)
            }
            Self::Futex => Box::new(FutexLock(Shared::new()?)),
            Self::Spin => Box::new(SpinLock(Shared::new()?)),
            Self::Semaphore => {
                let semaphore = SemaphoreToken::new()?;
                semaphore.pass()?;
                Box::new(semaphore)
            }
        })
    }
}

impl Lock for Shared<ProcessMutex> {
    fn lock(&self) -> Result<(), Error> {
        (**self).lock()
    }

    fn unlock(&self) -> Result<(), Error> {
        (**self).unlock()
    }
}

/// The semaphore has a token while the lock is free.
impl Lock for SemaphoreToken {
    fn lock(&self) -> Result<(), Error> {
        self.take()
    }

    fn unlock(&self) -> Result<(), Error> {
        self.pass()
    }
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and a member may sleep until it is free.
const AWAITED: u32 = 2;

/// The third mutex of Drepper, "Futexes Are Tricky" (2011).
struct FutexLock(Shared<AtomicU32>);

impl Lock for FutexLock {
    fn lock(&self) -> Result<(), Error> {
        let word = &*self.0;
        if word
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            return Ok(());
        }
        while word.swap(AWAITED, Ordering::Acquire) != FREE {
            futex::sleep_while(word, AWAITED, None)?;
        }
        Ok(())
    }

    fn unlock(&self) -> Result<(), Error> {
        match self.0.swap(FREE, Ordering::Release) {
            AWAITED => futex::wake(&self.0, 1),
            _ => Ok(()),
        }
    }
}

/// Spins by reading only, so that the cache line is not moved by failed attempts.
struct SpinLock(Shared<AtomicU32>);

impl Lock for SpinLock {
    fn lock(&self) -> Result<(), Error> {
        while self.0.swap(TAKEN, Ordering::Acquire) != FREE {
            while self.0.load(Ordering::Relaxed) != FREE {
                spin_loop();
            }
        }
        Ok(())
    }

    fn unlock(&self) -> Result<(), Error> {
        self.0.store(FREE, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// The number is read and written separately, so two holders at a time would lose a turn.
    #[test]
    fn only_one_at_a_time_has_a_lock() {
        const TURNS: u64 = 20_000;
        for (word, kind) in LoadLockKind::ALL {
            let lock = kind.make().unwrap();
            let turns = AtomicU64::new(0);
            let add = || {
                for _ in 0..TURNS {
                    lock.lock().unwrap();
                    turns.store(turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    lock.unlock().unwrap();
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(add);
                scope.spawn(add);
            });
            assert_eq!(turns.load(Ordering::Relaxed), 2 * TURNS, "{word}");
        }
    }
}

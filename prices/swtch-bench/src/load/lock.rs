//! The kinds of locks that members of a load contend for.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::futex::SharedScope;
use crate::lock::{FutexLock, Lock, PthreadMutex, SpinLock};
use crate::shared::Shared;
use crate::token::{SemaphoreToken, Token};

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
            Self::Mutex => Box::new(PthreadMutex::shared()?),
            Self::Futex => Box::new(Shared::<FutexLock<SharedScope>>::new()?),
            Self::Spin => Box::new(Shared::<SpinLock>::new()?),
            Self::Semaphore => {
                let semaphore = SemaphoreToken::new()?;
                semaphore.pass()?;
                Box::new(semaphore)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

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

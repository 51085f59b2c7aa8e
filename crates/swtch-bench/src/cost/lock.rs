//! Locks that threads hand to one another in a ring, one for each usual way to build a lock.
//!
//! ```text
//! bare word   0 free ⇄ 1 held ─▶ 2 held, with waiters   system calls only when a thread waits
//! mutex       the same, inside the C library
//! condvar     a flag behind a mutex; a thread that finds it set waits for a signal
//! ```
//!
//! None of them enters the kernel when it is uncontended. All are for the threads of one process,
//! and each lies in a cache line of its own, since neighbours in a ring are used right after each
//! other.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Error;

mod bare_word;
mod condition;
mod library;

pub(crate) use bare_word::BareWord;
pub(crate) use condition::ConditionLock;
pub(crate) use library::{LibraryMutex, LibraryReadWrite};

/// How a lock is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// `pthread_mutex_t` of the C library.
    Mutex,
    /// A futex word, used without any library in between.
    Futex,
    /// A flag behind a `pthread_mutex_t` and a `pthread_cond_t`.
    Condvar,
}

impl LockKind {
    /// All variants, in the order of their declaration.
    pub const ALL: &'static [Self] = &[Self::Mutex, Self::Futex, Self::Condvar];

    /// The word for this kind, which `Display` prints too.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Futex => "futex",
            Self::Condvar => "condvar",
        }
    }

    /// The kind with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.as_str() == word)
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A lock that at most one thread holds at a time.
pub(crate) trait RingLock: Default + Send + Sync + 'static {
    /// Acquires the lock; blocks while another thread holds it.
    fn lock(&self) -> Result<(), Error>;

    /// Releases the lock, which the caller holds, and wakes a waiter.
    fn unlock(&self) -> Result<(), Error>;
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::thread;

    use super::*;

    /// A number that is only safe to add to behind a lock.
    struct Guarded<L>(L, UnsafeCell<u64>);

    // SAFETY: the test touches the number only with the lock.
    unsafe impl<L: RingLock> Sync for Guarded<L> {}

    fn counts_every_step<L: RingLock>() {
        const STEPS: u64 = 20_000;
        let guarded = Guarded(L::default(), UnsafeCell::new(0));
        let step = || {
            let guarded = &guarded;
            for _ in 0..STEPS {
                guarded.0.lock().unwrap();
                // SAFETY: this thread has the lock, so no other touches the number.
                unsafe { *guarded.1.get() += 1 };
                guarded.0.unlock().unwrap();
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(step))));
        assert_eq!(guarded.1.into_inner(), 4 * STEPS);
    }

    #[test]
    fn a_lock_lets_one_thread_in_at_a_time() {
        counts_every_step::<BareWord>();
        counts_every_step::<LibraryMutex>();
        counts_every_step::<ConditionLock>();
    }

    #[test]
    fn every_word_leads_back_to_its_lock() {
        for kind in LockKind::ALL {
            assert_eq!(LockKind::from_word(kind.as_str()), Some(*kind));
        }
        assert_eq!(LockKind::from_word("latch"), None);
    }
}

//! Locks that at most one task holds at a time, one file for each usual way to build one.
//!
//! ```text
//! futex       0 free ⇄ 1 held ─▶ 2 held, with waiters   system calls only when a task waits
//! mutex       the same, inside the C library
//! spin        a word that is polled until it is free
//! ```
//!
//! None of them enters the kernel when it is uncontended. Their default values are for the threads
//! of one process. What is [`Zeroed`] may lie in shared memory; a lock of the C library is one for
//! processes once its `init_shared` was called.

use std::ops::Deref;

use crate::error::Error;
use crate::shared::{Shared, Zeroed};

mod condition_variable;
mod futex;
mod mutex;
mod read_write;
mod spin;

pub(crate) use condition_variable::ConditionVariable;
pub(crate) use futex::FutexLock;
pub(crate) use mutex::PthreadMutex;
pub(crate) use read_write::ReadWriteLock;
pub(crate) use spin::SpinLock;

/// A lock that at most one task holds at a time.
pub(crate) trait Lock: Send + Sync {
    /// Acquires the lock; blocks or spins while another task holds it.
    fn lock(&self) -> Result<(), Error>;

    /// Releases the lock, which the caller holds, and wakes a waiter.
    fn unlock(&self) -> Result<(), Error>;
}

impl<L: Lock + Zeroed> Lock for Shared<L> {
    fn lock(&self) -> Result<(), Error> {
        (**self).lock()
    }

    fn unlock(&self) -> Result<(), Error> {
        (**self).unlock()
    }
}

/// A value in a cache line of its own, for locks that different threads use right after each other.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct OwnCacheLine<T>(pub(crate) T);

impl<T> Deref for OwnCacheLine<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::thread;

    use super::*;
    use crate::futex::{PrivateScope, SharedScope};

    /// A number that is only safe to add to behind a lock.
    struct Guarded<L>(L, UnsafeCell<u64>);

    // SAFETY: the test touches the number only with the lock.
    unsafe impl<L: Lock> Sync for Guarded<L> {}

    fn counts_every_step(lock: impl Lock) {
        const STEPS: u64 = 20_000;
        let guarded = Guarded(lock, UnsafeCell::new(0));
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
        counts_every_step(FutexLock::<PrivateScope>::default());
        counts_every_step(FutexLock::<SharedScope>::default());
        counts_every_step(PthreadMutex::default());
        counts_every_step(PthreadMutex::shared().unwrap());
        counts_every_step(SpinLock::default());
    }
}

//! Locks and channels without contention: a lock that is free, a byte that is already in its pipe.
//!
//! Each operation is a full cycle, so that it can be repeated: a lock is taken and released, a byte
//! is written and read. Some never enter the kernel (locks of the C library), some once (a futex
//! wake without a waiter) and some twice (System V semaphores, pipes). What such calls cost when
//! they lead to a switch is measured by rings.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

use serde::{Deserialize, Serialize};

use super::message;
use super::timed_operation::{TimedOperation, Timing, timed};
use crate::error::Error;
use crate::futex::{self, PrivateScope};
use crate::lock::{
    ConditionVariable, FutexLock, Lock, OwnCacheLine, PthreadMutex, ReadWriteLock, SpinLock,
};
use crate::token::{EventFd, Pipe, SemaphoreToken, SysvSemaphore, Token};

/// The lock or channel that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Uncontended {
    /// A lock whose waiters spin: one atomic exchange, and a store.
    SpinLock,
    /// A lock in a bare futex word, taken and released.
    FutexLock,
    /// A `pthread_mutex_lock` followed by a `pthread_mutex_unlock`.
    PthreadMutex,
    /// A `std::sync::Mutex`, taken and released.
    StdMutex,
    /// A `pthread_rwlock_rdlock` followed by a `pthread_rwlock_unlock`.
    ReadLock,
    /// A `pthread_rwlock_wrlock` followed by a `pthread_rwlock_unlock`.
    WriteLock,
    /// `pthread_cond_signal` without a waiting thread.
    CondvarSignal,
    /// `sem_post` followed by `sem_wait`, without other users.
    PosixSemaphore,
    /// `semop` up, then `semop` down.
    SysvSemaphore,
    /// `write` and `read` of an eventfd.
    Eventfd,
    /// A `futex` wake without a waiting thread.
    FutexWake,
    /// `write` and `read` of a byte in a pipe.
    Pipe,
}

impl Uncontended {
    /// All variants, in the order of their declaration.
    pub const ALL: &'static [Self] = &[
        Self::SpinLock,
        Self::FutexLock,
        Self::PthreadMutex,
        Self::StdMutex,
        Self::ReadLock,
        Self::WriteLock,
        Self::CondvarSignal,
        Self::PosixSemaphore,
        Self::SysvSemaphore,
        Self::Eventfd,
        Self::FutexWake,
        Self::Pipe,
    ];

    /// Prepares the lock or channel, to be used once per operation.
    pub(super) fn timed_operation(self) -> Result<Box<dyn TimedOperation>, Error> {
        match self {
            Self::SpinLock => {
                let lock = OwnCacheLine::<SpinLock>::default();
                // `black_box`, because without it the compiler might remove what no other thread
                // can see.
                uses(move || {
                    black_box(&lock).lock()?;
                    black_box(&lock).unlock()
                })
            }
            Self::FutexLock => taken_and_given_back(FutexLock::<PrivateScope>::default()),
            Self::PthreadMutex => taken_and_given_back(PthreadMutex::default()),
            Self::StdMutex => {
                let lock = Mutex::new(());
                uses(move || {
                    drop(black_box(&lock).lock());
                    Ok(())
                })
            }
            Self::ReadLock => {
                let lock = OwnCacheLine::<ReadWriteLock>::default();
                uses(move || lock.read().and_then(|()| lock.unlock()))
            }
            Self::WriteLock => {
                let lock = OwnCacheLine::<ReadWriteLock>::default();
                uses(move || lock.write().and_then(|()| lock.unlock()))
            }
            Self::CondvarSignal => {
                let condition = OwnCacheLine::<ConditionVariable>::default();
                uses(move || condition.signal())
            }
            Self::PosixSemaphore => passed_and_taken(SemaphoreToken::new()?),
            Self::SysvSemaphore => {
                passed_and_taken(SysvSemaphore::new().inspect(message::register_semaphore_set)?)
            }
            Self::Eventfd => passed_and_taken(EventFd::new()?),
            Self::FutexWake => {
                let word = AtomicU32::new(0);
                uses(move || futex::wake::<PrivateScope>(&word, 1))
            }
            Self::Pipe => passed_and_taken(Pipe::new()?),
        }
    }
}

fn taken_and_given_back(lock: impl Lock + 'static) -> Result<Box<dyn TimedOperation>, Error> {
    let lock = OwnCacheLine(lock);
    uses(move || {
        lock.lock()?;
        lock.unlock()
    })
}

fn passed_and_taken(token: impl Token + 'static) -> Result<Box<dyn TimedOperation>, Error> {
    uses(move || {
        token.pass()?;
        token.take()
    })
}

fn uses(
    once: impl FnMut() -> Result<(), Error> + 'static,
) -> Result<Box<dyn TimedOperation>, Error> {
    Ok(Box::new(RepeatedUse {
        once,
        _companion: Companion::start()?,
    }))
}

/// Calls `once` for each operation.
struct RepeatedUse<F> {
    once: F,
    _companion: Companion,
}

/// A second thread, which waits until it may end. In a process of one thread, glibc locks and
/// unlocks a mutex without atomic instructions (`nptl/pthread_mutex_lock.c`, 2.34 and later; 3 ns
/// instead of 9 on Zen 5), and such a lock is of no practical interest.
struct Companion {
    _let_go: Sender<()>,
}

impl Companion {
    fn start() -> Result<Self, Error> {
        let (let_go, wait) = channel::<()>();
        // The thread ends when the sender is dropped.
        let follow = move || wait.iter().for_each(drop);
        let builder = Builder::new().stack_size(64 * 1024);
        builder.spawn(follow).map_err(Error::calling("clone"))?;
        Ok(Self { _let_go: let_go })
    }
}

impl<F: FnMut() -> Result<(), Error>> TimedOperation for RepeatedUse<F> {
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        let mut repeat = |times: u64| (0..times).try_for_each(|_| (self.once)());
        repeat(1 + operations / 16)?;
        timed(operations, || repeat(operations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without other users nothing blocks, and the time shows that no operation was optimised away.
    #[test]
    fn nothing_blocks_when_nobody_else_is_there() {
        for what in Uncontended::ALL {
            // A page fault waits while another test of this process changes the memory map, which
            // is no switch of the operation's: of five blocks, one at least must be without any.
            let slept = (0..5).map(|_| {
                let timing = what.timed_operation().unwrap().block(10_000).unwrap();
                assert_eq!(timing.operations, 10_000, "{what:?}");
                assert!(timing.elapsed.as_ns() > 1_000, "{what:?} {timing:?}");
                timing.counted.voluntary
            });
            assert_eq!(slept.min(), Some(0), "{what:?}");
        }
    }
}

//! What tasks meet by, when nobody else is there: a lock that is free, a byte that waits in its pipe.
//!
//! Each is a full round, so that it can be repeated: taken and given back, put there and fetched. Some
//! never enter the kernel then (locks of the C library), some once (a futex that wakes nobody) and some
//! twice (System V semaphores, pipes). What the same calls cost when they switch is a ring's hand-over.

use std::hint::{black_box, spin_loop};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

use serde::{Deserialize, Serialize};

use super::act::{Act, Timing, timed};
use super::leader;
use super::lock::{BareWord, ConditionLock, LibraryMutex, LibraryReadWrite, Lock};
use crate::error::Error;
use crate::token::{EventFd, Pipe, Semaphore, SysvSemaphore, Token, private_wake};

/// What is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Uncontended {
    /// A lock that is waited for by looking again and again: one atomic exchange, and a store.
    SpinLock,
    /// A lock in a bare futex word, taken and given back.
    FutexLock,
    /// `pthread_mutex_lock` and `_unlock`.
    PthreadMutex,
    /// `std::sync::Mutex`, taken and given back.
    StdMutex,
    /// `pthread_rwlock_rdlock` and `_unlock`.
    ReadLock,
    /// `pthread_rwlock_wrlock` and `_unlock`.
    WriteLock,
    /// `pthread_cond_signal` that nobody waits for.
    CondvarSignal,
    /// `sem_post` and `sem_wait`.
    PosixSemaphore,
    /// `semop` up and `semop` down.
    SysvSemaphore,
    /// `write` and `read` of an eventfd.
    Eventfd,
    /// `futex` that wakes nobody.
    FutexWake,
    /// `write` and `read` of a byte in a pipe.
    Pipe,
}

impl Uncontended {
    /// All of them.
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

    /// Uses of it, again and again.
    pub(crate) fn act(self) -> Result<Box<dyn Act>, Error> {
        match self {
            Self::SpinLock => {
                let lock = AtomicBool::new(false);
                uses(move || {
                    spin(&lock);
                    Ok(())
                })
            }
            Self::FutexLock => taken_and_given_back(BareWord::default()),
            Self::PthreadMutex => taken_and_given_back(LibraryMutex::default()),
            Self::StdMutex => {
                let lock = Mutex::new(());
                uses(move || {
                    drop(black_box(&lock).lock());
                    Ok(())
                })
            }
            Self::ReadLock => {
                let lock = LibraryReadWrite::default();
                uses(move || lock.read().and_then(|()| lock.unlock()))
            }
            Self::WriteLock => {
                let lock = LibraryReadWrite::default();
                uses(move || lock.write().and_then(|()| lock.unlock()))
            }
            Self::CondvarSignal => {
                let condition = ConditionLock::default();
                uses(move || condition.signal())
            }
            Self::PosixSemaphore => passed_and_taken(Semaphore::new()?),
            Self::SysvSemaphore => {
                passed_and_taken(SysvSemaphore::new().inspect(leader::tell_of_set)?)
            }
            Self::Eventfd => passed_and_taken(EventFd::new()?),
            Self::FutexWake => {
                let word = AtomicU32::new(0);
                uses(move || private_wake(&word, 1))
            }
            Self::Pipe => passed_and_taken(Pipe::new()?),
        }
    }
}

fn spin(lock: &AtomicBool) {
    while black_box(lock).swap(true, Ordering::Acquire) {
        spin_loop();
    }
    black_box(lock).store(false, Ordering::Release);
}

fn taken_and_given_back(lock: impl Lock) -> Result<Box<dyn Act>, Error> {
    uses(move || {
        lock.lock()?;
        lock.unlock()
    })
}

fn passed_and_taken(token: impl Token + 'static) -> Result<Box<dyn Act>, Error> {
    uses(move || {
        token.pass()?;
        token.take()
    })
}

fn uses(once: impl FnMut() -> Result<(), Error> + 'static) -> Result<Box<dyn Act>, Error> {
    Ok(Box::new(Uses {
        once,
        _companion: Companion::start()?,
    }))
}

/// A function that uses it once.
struct Uses<F> {
    once: F,
    _companion: Companion,
}

/// A second thread, which waits to be let go. In a process of one thread, glibc takes and gives back a
/// mutex without atomic instructions (`nptl/pthread_mutex_lock.c`, 2.34 and later; 3 ns instead of 9 on
/// Zen 5): no lock that anybody needs.
struct Companion {
    _let_go: Sender<()>,
}

impl Companion {
    fn start() -> Result<Self, Error> {
        let (let_go, wait) = channel::<()>();
        // It ends when there is nobody left to send.
        let follow = move || wait.iter().for_each(drop);
        let builder = Builder::new().stack_size(64 * 1024);
        builder.spawn(follow).map_err(Error::calling("clone"))?;
        Ok(Self { _let_go: let_go })
    }
}

impl<F: FnMut() -> Result<(), Error>> Act for Uses<F> {
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        let mut repeat = |times: u64| (0..times).try_for_each(|_| (self.once)());
        repeat(1 + operations / 16)?;
        timed(operations, || repeat(operations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody else is there: nothing blocks, and nothing is so fast that it was left out.
    #[test]
    fn nothing_blocks_when_nobody_else_is_there() {
        for what in Uncontended::ALL {
            let timing = what.act().unwrap().block(10_000).unwrap();
            assert_eq!(timing.operations, 10_000, "{what:?}");
            assert_eq!(timing.counted.voluntary, 0, "{what:?}");
            assert!(timing.elapsed.as_ns() > 1_000, "{what:?} {timing:?}");
        }
    }
}

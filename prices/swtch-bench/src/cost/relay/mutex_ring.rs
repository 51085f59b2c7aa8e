//! A ring of locks, one more than members: each member holds one, takes the next and releases the
//! former (as `csfast5` does).
//!
//! ```text
//! locks     0    1    2    free        member 1 can go on: it takes `free`, gives 2 back …
//! members   0 ─▶ 1 ─▶ 2 ─▶             … so member 0 … can take 2; all wait but one
//! ```
//!
//! A hop is an acquisition. The number of switches is not fixed by construction, because a thread
//! that unlocks may find the next lock free already, so the kernel's count is used. Without a peer,
//! locking and unlocking stay in user mode: the difference to a hop includes its system calls as
//! well as the switch.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Relay;
use crate::cost::work::Work;
use crate::error::Error;
use crate::lock::{Lock, PthreadMutex};
use crate::shared::Shared;

/// The locks, and which one each member holds.
pub(super) struct MutexRing {
    locks: Vec<Shared<PthreadMutex>>,
    /// Each slot is only used by its member, which may be a process with its own copy.
    held: Vec<AtomicUsize>,
    baseline_lock: Shared<PthreadMutex>,
}

impl MutexRing {
    pub(super) fn new(count: u32) -> Result<Self, Error> {
        Ok(Self {
            locks: (0..=count)
                .map(|_| PthreadMutex::shared())
                .collect::<Result<_, _>>()?,
            held: (0..count as usize).map(AtomicUsize::new).collect(),
            baseline_lock: PthreadMutex::shared()?,
        })
    }

    fn go_on(&self, me: usize) -> Result<(), Error> {
        let held = self.held[me].load(Ordering::Relaxed);
        let next = (held + 1) % self.locks.len();
        self.locks[next].lock()?;
        self.locks[held].unlock()?;
        self.held[me].store(next, Ordering::Relaxed);
        Ok(())
    }
}

impl Relay for MutexRing {
    fn enter(&self, me: usize) -> Result<(), Error> {
        self.locks[me].lock()
    }

    fn lead(&self, work: &mut dyn Work) -> Result<(), Error> {
        self.follow(0, work)
    }

    fn follow(&self, me: usize, work: &mut dyn Work) -> Result<(), Error> {
        self.go_on(me)?;
        work.run();
        Ok(())
    }

    fn hand_over_alone(&self) -> Result<(), Error> {
        self.baseline_lock.lock()?;
        self.baseline_lock.unlock()
    }
}

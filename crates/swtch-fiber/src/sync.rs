//! Synchronisation that blocks the worker and not its thread.
//!
//! Each primitive may be shared between workers of any scheduler and threads that are no workers; a
//! worker that has to wait leaves its scheduler to the others, a thread sleeps in the kernel. None of
//! them takes a lock while nobody waits.
//!
//! | primitive | who is next |
//! |---|---|
//! | [`Mutex`] | who comes first; a waiter is overtaken once at most, then it is handed the lock |
//! | [`RwLock`], [`Semaphore`] | strictly in order; nobody overtakes one who waits, also not with a smaller wish |
//! | [`channel`] | strictly in order, at both ends |
//! | [`Event`], [`Condvar`], [`Barrier`] | in order |
//!
//! **Nothing is lost between two ends of a wait.** A wait ends by what it waited for, by its deadline,
//! or by cancellation, and one of them alone. What was meant for a waiter that timed out or was
//! cancelled goes to the next one.
//!
//! **No poisoning.** A guard that is dropped by unwinding just unlocks. Cancellation unwinds as well
//! and is an ordinary way for a task to end; and a panic is the error of its task, which a poisoned
//! lock would make the error of all others. Data that must not be seen half changed has to be changed
//! without a wait or a call that may panic in between.
//!
//! # A `std::sync` guard over a yield
//!
//! Do not hold a `std::sync::MutexGuard` (or any lock that blocks the thread) over a yield, a wait or
//! [`check_quantum`](crate::check_quantum). Another worker of the same thread that wants the lock then
//! blocks the thread on which alone the holder could run and unlock: a deadlock, in fiber mode at
//! once, in thread mode for as long as the holder waits for the baton. Within a span without yield
//! and wait such locks are as good as ever, and the right thing for a few instructions. The locks of
//! this module may be held over both.

mod barrier;
pub mod channel;
mod condvar;
mod event;
pub(crate) mod line;
mod mutex;
pub(crate) mod owners;
mod permits;
mod raw_mutex;
mod rwlock;
mod semaphore;

pub use barrier::{Barrier, BarrierWait};
pub use condvar::Condvar;
pub use event::Event;
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};

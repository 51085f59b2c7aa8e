//! Synchronisation that blocks the worker and not its thread.
//!
//! Each primitive may be shared between workers of any scheduler and threads that are not workers.
//! A worker that has to wait leaves its scheduler to the others; a thread sleeps in the kernel.
//! [`Mutex`], [`RwLock`] and [`Semaphore`] take no internal lock while there are no waiters.
//!
//! | primitive | order of service |
//! |---|---|
//! | [`Mutex`] | first come; a waiter is overtaken at most once, then it is handed the lock |
//! | [`RwLock`], [`Semaphore`] | strictly in order; a small request does not overtake a large one |
//! | [`channel`] | strictly in order, at both ends |
//! | [`Event`], [`Condvar`], [`Barrier`] | in order |
//!
//! **Nothing is lost when a wait ends early.** Exactly one of three things ends a wait: the signal,
//! its deadline, or cancellation. A signal for a waiter that timed out or was cancelled goes to the
//! next one.
//!
//! **No poisoning.** A guard that is dropped by unwinding just unlocks. Cancellation unwinds as
//! well and is an ordinary way for a task to end. A panic is the error of its own task, and a
//! poisoned lock would make it the error of all others. Data that must not be seen half changed has
//! to be changed without a wait, and without a call that may panic.
//!
//! # A `std::sync` guard over a yield
//!
//! Do not hold a `std::sync::MutexGuard` (or any lock that blocks the thread) over a yield, a wait
//! or [`check_quantum`](crate::check_quantum). Another worker of the same thread that wants the
//! lock then blocks that thread, which is the only one on which the holder could run and unlock. In
//! fiber mode this is a deadlock at once, in thread mode it lasts while the holder waits for the
//! baton. Between yields and waits such locks are fine, and the right choice for a few
//! instructions. The locks of this module may be held over both.

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
pub(crate) mod wait_queue;

pub use barrier::{Barrier, BarrierWait};
pub use condvar::Condvar;
pub use event::Event;
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};

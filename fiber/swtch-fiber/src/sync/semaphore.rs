//! A semaphore, which blocks the worker and not its thread.

use std::time::Duration;

use crate::park::Deadline;
use crate::sync::permits::Permits;
use crate::wait_type::WaitType;

/// A number of permits that workers take and give back. Waiters are served strictly in order: small
/// requests do not starve a large one.
///
/// A request for more permits than there will ever be waits for ever, and so do all behind it.
#[derive(Debug)]
pub struct Semaphore {
    permits: Permits,
}

impl Semaphore {
    /// Largest number of permits that a semaphore can have.
    pub const MAX_PERMITS: usize = Permits::MOST;

    /// A semaphore with `permits` free permits.
    ///
    /// # Panics
    /// When `permits` is more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[must_use]
    pub const fn new(permits: usize) -> Self {
        assert!(
            permits <= Self::MAX_PERMITS,
            "a semaphore has MAX_PERMITS permits at most"
        );
        Self {
            permits: Permits::new(permits),
        }
    }

    /// Takes one permit as soon as it is the caller's turn.
    pub fn acquire(&self) -> Permit<'_> {
        self.acquire_many(1)
    }

    /// Takes `count` permits together, as soon as it is the caller's turn and they are free.
    pub fn acquire_many(&self, count: usize) -> Permit<'_> {
        let taken = self.permits.acquire(count, WaitType::SEMAPHORE, None);
        debug_assert!(taken, "without a deadline nothing times out");
        Permit {
            semaphore: self,
            count,
        }
    }

    /// Takes one permit, if one is free and there are no waiters.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `count` permits, if they are free and there are no waiters.
    pub fn try_acquire_many(&self, count: usize) -> Option<Permit<'_>> {
        self.permits.try_acquire(count).then(|| Permit {
            semaphore: self,
            count,
        })
    }

    /// Takes one permit; `None` when that was not possible within `span`.
    pub fn acquire_timeout(&self, span: Duration) -> Option<Permit<'_>> {
        self.acquire_many_timeout(1, span)
    }

    /// Takes `count` permits; `None` when that was not possible within `span`.
    pub fn acquire_many_timeout(&self, count: usize, span: Duration) -> Option<Permit<'_>> {
        let deadline = Some(Deadline::after(span));
        self.permits
            .acquire(count, WaitType::SEMAPHORE, deadline)
            .then(|| Permit {
                semaphore: self,
                count,
            })
    }

    /// Adds new permits to the semaphore.
    ///
    /// # Panics
    /// When there would be more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    pub fn add_permits(&self, count: usize) {
        self.permits.release(count);
    }

    /// Number of free permits at this moment.
    #[must_use]
    pub fn available_permits(&self) -> usize {
        self.permits.free()
    }
}

/// Permits of a [`Semaphore`]; dropping it gives them back.
#[derive(Debug)]
#[must_use = "it is given back at once if it is not kept"]
pub struct Permit<'semaphore> {
    semaphore: &'semaphore Semaphore,
    count: usize,
}

impl Permit<'_> {
    /// Number of permits that this value holds.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Keeps the permits from being given back: the semaphore has fewer from now on.
    pub fn forget(mut self) {
        self.count = 0;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.count != 0 {
            self.semaphore.permits.release(self.count);
        }
    }
}

//! A number of permits, given out strictly in order: the base of semaphores and read-write locks.
//!
//! ```text
//! state:   free permits << 1 | there are waiters
//! ```
//!
//! While the low bit is clear, taking and giving back is one exchange. While it is set, both take
//! the lock of the line, so that no request overtakes; a release then hands permits to waiters
//! before they run.

use crate::atomics::{AtomicUsize, Mutex, MutexGuard, Ordering, const_new, lock};
use crate::park::{self, Deadline, WaitOutcome, Waiter};
use crate::sync::line::{Claims, WaiterLine, wait_in_line};
use crate::wait_type::WaitType;

/// The bit of the state that says that there are waiters.
const WAITING: usize = 1;

/// The permits, with the state word described above.
#[derive(Debug)]
pub(crate) struct Permits {
    state: AtomicUsize,
    /// The waiters, with the number of permits each wants.
    line: Mutex<WaiterLine<usize>>,
}

impl Permits {
    /// Largest number of permits there can be.
    pub(crate) const MOST: usize = usize::MAX >> 1;

    const_new! {
        /// Starts with `permits` free permits, at most [`Permits::MOST`].
        pub(crate) fn new(permits: usize) -> Self {
            Self {
                state: AtomicUsize::new(permits << 1),
                line: Mutex::new(WaiterLine::new()),
            }
        }
    }

    /// Takes `count` permits if they are free and there are no waiters.
    #[inline]
    pub(crate) fn try_acquire(&self, count: usize) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & WAITING != 0 || state >> 1 < count {
                return false;
            }
            let taken = self.state.compare_exchange_weak(
                state,
                state - (count << 1),
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return true,
                Err(other) => state = other,
            }
        }
    }

    /// Takes `count` permits as soon as they are free and it is the caller's turn. False when the
    /// deadline came first.
    #[inline]
    pub(crate) fn acquire(
        &self,
        count: usize,
        wait_type: WaitType,
        deadline: Option<Deadline>,
    ) -> bool {
        let resource = std::ptr::from_ref(self).addr();
        self.acquire_part(count, (wait_type, resource), deadline)
    }

    /// As [`acquire`](Self::acquire), for permits that are part of `resource`, which the views show
    /// as the wait object.
    #[inline]
    pub(crate) fn acquire_part(
        &self,
        count: usize,
        (wait_type, resource): (WaitType, usize),
        deadline: Option<Deadline>,
    ) -> bool {
        self.try_acquire(count) || self.acquire_in_line(count, wait_type, resource, deadline)
    }

    #[cold]
    fn acquire_in_line(
        &self,
        count: usize,
        wait_type: WaitType,
        resource: usize,
        deadline: Option<Deadline>,
    ) -> bool {
        let waiter = {
            let mut line = lock(&self.line);
            if self.take_or_announce(count) {
                return true;
            }
            let waiter = park::prepare(wait_type, resource);
            line.push_back(waiter, count);
            waiter
        };
        wait_in_line(waiter, deadline, || self.leave(waiter)) == WaitOutcome::Signalled
    }

    /// Takes `count` permits, or sets the bit for waiters. The caller has the line's lock.
    fn take_or_announce(&self, count: usize) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let takes = state & WAITING == 0 && state >> 1 >= count;
            let wanted = if takes {
                state - (count << 1)
            } else {
                state | WAITING
            };
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            match self
                .state
                .compare_exchange_weak(state, wanted, order.0, order.1)
            {
                Ok(_) => return takes,
                Err(other) => state = other,
            }
        }
    }

    /// Removes a waiter that gives up. Those behind it may want fewer permits.
    fn leave(&self, waiter: Waiter) {
        let mut line = lock(&self.line);
        line.remove(waiter);
        self.serve(line);
    }

    /// Gives `count` permits back, or adds new ones.
    ///
    /// # Panics
    /// When there would be more than [`Permits::MOST`].
    #[inline]
    pub(crate) fn release(&self, count: usize) {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & WAITING == 0 {
            let given = self.state.compare_exchange_weak(
                state,
                more(state, count),
                Ordering::Release,
                Ordering::Relaxed,
            );
            match given {
                Ok(_) => return,
                Err(other) => state = other,
            }
        }
        self.release_in_line(count);
    }

    #[cold]
    fn release_in_line(&self, count: usize) {
        let line = lock(&self.line);
        let mut state = self.state.load(Ordering::Relaxed);
        while let Err(other) = self.state.compare_exchange_weak(
            state,
            more(state, count),
            // Acquires what other releases did, for the waiter that gets the permits.
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            state = other;
        }
        self.serve(line);
    }

    /// Hands free permits to the waiters whose turn it is, and wakes them.
    fn serve(&self, mut line: MutexGuard<'_, WaiterLine<usize>>) {
        let mut claims = Claims::default();
        while let Some(count) = line.first().map(|first| first.request) {
            if self.state.load(Ordering::Relaxed) >> 1 < count {
                break;
            }
            let Some(first) = line.pop() else { break };
            // Before the claim: a thread may run as soon as it is claimed.
            self.state.fetch_sub(count << 1, Ordering::AcqRel);
            match first.waiter.claim() {
                Some(claim) => claims.add(claim),
                None => drop(self.state.fetch_add(count << 1, Ordering::AcqRel)),
            }
        }
        if line.is_empty() {
            self.state.fetch_and(!WAITING, Ordering::AcqRel);
        }
        drop(line);
        claims.wake();
    }

    /// Permits that are free now.
    pub(crate) fn free(&self) -> usize {
        self.state.load(Ordering::Relaxed) >> 1
    }
}

/// The state with so many more free permits.
fn more(state: usize, count: usize) -> usize {
    let (had, most) = (state >> 1, Permits::MOST);
    let free = had.checked_add(count).filter(|free| *free <= most);
    let Some(free) = free else {
        panic!("{had} permits cannot be {count} more: {most} is the most");
    };
    free << 1 | state & WAITING
}

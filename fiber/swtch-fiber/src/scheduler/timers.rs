//! Waits with a deadline, earliest first.
//!
//! A wait that ends before its deadline leaves its timer behind. Such timers are removed when they
//! may be more than half of all.
//!
//! Deadlines are moments of `CLOCK_MONOTONIC`. Reading that clock at each switch would triple the
//! cost of a switch, so the scheduler reads it only when its own clock says that the earliest
//! deadline may have passed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use swtch_observe::clock;

use super::{Deadline, Waiter};

/// While there are timers the clock is read at least this often. The rate of ticks is known to
/// about one part in 10⁴, which over this span is a microsecond.
const LONGEST_SPAN: Duration = Duration::from_millis(10);

/// The timers of one scheduler.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// The moment at which to read the clock next, in ticks; meaningless without timers.
    look_at_ticks: u64,
    heap: BinaryHeap<Reverse<Timer>>,
    /// Timers added so far. Of equal deadlines the one added first fires first.
    set: u64,
    /// Number of timers at which closed ones are removed next.
    sweep_at: usize,
}

#[derive(Debug)]
struct Timer {
    deadline: Deadline,
    order: u64,
    waiter: Waiter,
}

impl Timer {
    fn key(&self) -> (Deadline, u64) {
        (self.deadline, self.order)
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// With fewer timers than this, none are removed.
const FEW: usize = 64;

impl Timers {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(crate) fn add(&mut self, deadline: Deadline, waiter: Waiter) {
        if self.heap.len() >= self.sweep_at.max(FEW) {
            self.heap.retain(|Reverse(timer)| timer.waiter.is_open());
            self.sweep_at = 2 * self.heap.len();
        }
        self.set += 1;
        self.heap.push(Reverse(Timer {
            deadline,
            order: self.set,
            waiter,
        }));
        let earliest = self.heap.peek();
        if earliest.is_some_and(|Reverse(timer)| timer.order == self.set) {
            self.looked(clock::ticks(), clock::monotonic_ns());
        }
    }

    /// Returns true if it is time to read the clock, provided there are timers; `now` in ticks.
    #[inline(always)]
    pub(crate) fn may_be_overdue(&self, now: u64) -> bool {
        now >= self.look_at_ticks
    }

    /// Sets when to read the clock next. It was read at `now` (ticks), and deadlines before
    /// `monotonic_ns` have been handled.
    pub(crate) fn looked(&mut self, now: u64, monotonic_ns: u64) {
        let Some(Reverse(earliest)) = self.heap.peek() else {
            return;
        };
        let left = earliest.deadline.monotonic_ns.saturating_sub(monotonic_ns);
        let span = Duration::from_nanos(left).min(LONGEST_SPAN);
        self.look_at_ticks = now.saturating_add(clock::rate().ticks_in(span));
    }

    /// Makes the next check read the clock, after a sleep that lasted until a deadline.
    pub(crate) fn look_next_time(&mut self) {
        self.look_at_ticks = 0;
    }

    /// The earliest deadline of a wait that is still open.
    pub(crate) fn earliest(&mut self) -> Option<Deadline> {
        while let Some(Reverse(timer)) = self.heap.peek() {
            if timer.waiter.is_open() {
                return Some(timer.deadline);
            }
            self.heap.pop();
        }
        None
    }

    /// Removes a wait whose deadline has passed; returns it with that deadline.
    pub(crate) fn take_overdue(&mut self, monotonic_ns: u64) -> Option<(Waiter, Deadline)> {
        let deadline = self.earliest()?;
        if deadline.monotonic_ns > monotonic_ns {
            return None;
        }
        let Reverse(timer) = self.heap.pop()?;
        Some((timer.waiter, deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::worker::WorkerCell;

    fn at(monotonic_ns: u64) -> Deadline {
        Deadline { monotonic_ns }
    }

    /// A sleep must not end early, and should not end late.
    #[test]
    fn waits_end_at_their_deadline_in_order() {
        let mut timers = Timers::default();
        let waits: Vec<_> = (0..3).map(|_| open_wait()).collect();
        timers.add(at(30), waits[0]);
        timers.add(at(10), waits[1]);
        timers.add(at(20), waits[2]);
        assert!(timers.take_overdue(9).is_none());
        assert!(
            timers
                .take_overdue(25)
                .is_some_and(|(waiter, _)| waiter.is(waits[1]))
        );
        assert!(
            timers
                .take_overdue(25)
                .is_some_and(|(waiter, _)| waiter.is(waits[2]))
        );
        assert!(timers.take_overdue(25).is_none());
        assert_eq!(timers.earliest(), Some(at(30)));
    }

    /// Reading the clock costs more than a switch, so it is read only when a deadline may have
    /// passed.
    #[test]
    fn the_clock_is_looked_at_when_the_earliest_may_be_over() {
        let mut timers = Timers::default();
        let before = clock::ticks();
        timers.add(Deadline::after(Duration::from_secs(3600)), open_wait());
        assert!(!timers.may_be_overdue(before));
        let span = clock::rate().ticks_in(LONGEST_SPAN);
        assert!(
            timers.may_be_overdue(clock::ticks() + span),
            "from time to time"
        );
        timers.add(at(0), open_wait());
        assert!(
            timers.may_be_overdue(clock::ticks()),
            "what is over already"
        );
    }

    /// A server that sets a timeout of a minute for each of a million requests must not keep them
    /// all.
    #[test]
    fn timers_of_waits_that_are_over_are_swept() {
        let mut timers = Timers::default();
        for number in 0..10_000 {
            let wait = open_wait();
            timers.add(at(number), wait);
            wait.signal();
        }
        assert!(timers.heap.len() <= FEW + 1, "{}", timers.heap.len());
        assert_eq!(timers.earliest(), None);
    }

    fn open_wait() -> Waiter {
        Waiter::arm(WorkerCell::take(None), false)
    }
}

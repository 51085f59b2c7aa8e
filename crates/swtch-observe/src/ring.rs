//! Reads the switches of a scheduler while the scheduler writes them.
//!
//! ```text
//! event number   … 90 91 92 │ 93 94 95 96 97 98 99 100 │ 101
//!                   gone    │ slot 5 6 7 0 1 2 3 4     │ being written, over event 93
//!                           └ oldest that is whole: 94 ┘  └ `written`
//! ```
//!
//! The writer never waits, and overwrites the oldest event. A reader copies events, reads the count
//! again, and discards those that may have been overwritten meanwhile. So every event is counted
//! exactly once, as taken or as lost.

use std::sync::atomic::{Ordering, fence};

use super::page::{Page, read};
use super::rows::EventKind;
use crate::layout::{RUN_BITS, RingEvent};

/// Events copied between two readings of the writer's count: 16 kB.
const TURN: u64 = 256;

/// The position of a reader in one scheduler's ring.
#[derive(Clone, Copy, Debug)]
pub struct RingPosition {
    scheduler: usize,
    next: u64,
}

/// The result of one reading, in numbers of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Events that were passed to the caller.
    pub taken: u64,
    /// Events that were overwritten before they could be read.
    pub lost: u64,
    /// Events of an unknown kind, which were skipped.
    pub unreadable: u64,
    /// Events still in the ring, because a limit was reached.
    pub left: u64,
}

/// One switch-out in user mode. Times and lengths are in ticks of the target's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserSwitch {
    /// The moment at which the worker was switched out.
    pub ticks: u64,
    /// The time for which the worker had run; for [`EventKind::Idle`], that for which no worker ran.
    pub ran_ticks: u64,
    /// The task that left; 0 for none.
    pub task: u64,
    /// Number of the run that ended, among the runs of this task; wraps at 2²⁴.
    pub run: u32,
    /// The task that was switched in; 0 for none.
    pub next_task: u64,
    /// From the end of the task's previous run to the begin of this one; 0 for a first run.
    pub off_ticks: u64,
    /// The part of `off_ticks` in which the task was runnable and waited for its turn.
    pub queued_ticks: u64,
    /// The task that ended the wait before this run; 0 for none.
    pub waker_task: u64,
    /// Thread id, as in the target's own pid namespace.
    pub tid: u32,
    /// The event at the switch-out.
    pub kind: EventKind,
    /// Wait type of the wait that begins now.
    pub wait_type: u8,
    /// Wait type of the wait before this run.
    pub wait_type_before: u8,
}

impl RingPosition {
    /// Starts at the next event to be written.
    pub(super) fn new(page: &Page, scheduler: usize) -> Option<Self> {
        let (header, _, _) = page.events(scheduler)?;
        let next = header.written.load(Ordering::Acquire);
        Some(Self { scheduler, next })
    }

    /// The same ring, from its first event on.
    pub(super) const fn at_start(self) -> Self {
        Self { next: 0, ..self }
    }

    /// Passes the events written since the last call to `sink`, oldest first: at most `most`, and
    /// no more than the ring holds, so that a writer that never pauses cannot keep the reader here.
    pub fn read(&mut self, page: &Page, most: u64, mut sink: impl FnMut(&UserSwitch)) -> Read {
        let mut sum = Read::default();
        let Some((header, first, capacity)) = page.events(self.scheduler) else {
            return sum;
        };
        let (mut turn, mut looked) = (Vec::new(), 0);
        let most = most.min(capacity);
        loop {
            let written = header.written.load(Ordering::Acquire);
            if written < self.next {
                // The count only grows. If it went back the page is corrupt, so start again from
                // the new count.
                self.next = written;
            }
            // The event now being written uses the slot of event `written - capacity`.
            let oldest = written.saturating_sub(capacity - 1);
            let start = self.next.max(oldest);
            let end = written.min(start.saturating_add(TURN.min(most - looked)));
            turn.clear();
            turn.extend((start..end).map(|number| copy(page, first, number & (capacity - 1))));
            fence(Ordering::Acquire);
            let written = header.written.load(Ordering::Relaxed);
            let whole = written.saturating_sub(capacity - 1).clamp(start, end);
            sum.lost += whole - self.next;
            let torn = usize::try_from(whole - start).unwrap_or(usize::MAX);
            for event in turn.iter().skip(torn) {
                match event {
                    Some(event) => {
                        sum.taken += 1;
                        sink(event);
                    }
                    None => sum.unreadable += 1,
                }
            }
            self.next = end;
            looked += end - start;
            sum.left = written.saturating_sub(end).min(capacity);
            if sum.left == 0 || looked >= most || start == end {
                return sum;
            }
        }
    }
}

/// The event in a slot; `None` when it cannot be decoded.
fn copy(page: &Page, first: usize, slot: u64) -> Option<UserSwitch> {
    let slot = usize::try_from(slot).ok()?;
    let event = page.event_at(first + slot * size_of::<RingEvent>())?;
    let (word, packed) = (read(&event.from_word), read(&event.packed));
    Some(UserSwitch {
        ticks: read(&event.ticks),
        ran_ticks: read(&event.ran_ticks),
        task: word >> RUN_BITS,
        run: u32::try_from(word & ((1 << RUN_BITS) - 1)).ok()?,
        next_task: read(&event.to_task),
        off_ticks: read(&event.off_ticks),
        queued_ticks: read(&event.queued_ticks),
        waker_task: read(&event.waker_task),
        tid: u32::try_from(packed & 0xffff_ffff).ok()?,
        kind: EventKind::from_number(byte(packed, 32))?,
        wait_type: byte(packed, 40),
        wait_type_before: byte(packed, 48),
    })
}

const fn byte(packed: u64, shift: u32) -> u8 {
    packed.to_le_bytes()[shift as usize / 8]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::test_page::TestPage;
    use super::*;

    fn tasks(ring: &mut RingPosition, page: &Page) -> (Vec<u64>, Read) {
        let mut tasks = Vec::new();
        let read = ring.read(page, u64::MAX, |event| tasks.push(event.task));
        (tasks, read)
    }

    #[test]
    fn events_come_once_and_in_order() {
        let test = TestPage::new();
        let page = test.observe().unwrap();
        test.write_event(0, 99); // before the reader came
        let mut ring = page.ring(0).unwrap();
        (1..=3).for_each(|task| test.write_event(0, task));
        let (seen, read) = tasks(&mut ring, &page);
        assert_eq!((seen, read.taken, read.lost), (vec![1, 2, 3], 3, 0));
        assert_eq!(tasks(&mut ring, &page).0, [0; 0]);
    }

    #[test]
    fn an_event_keeps_its_fields() {
        let test = TestPage::new();
        let page = test.observe().unwrap();
        let mut ring = page.ring(1).unwrap();
        test.write_event(1, 5);
        ring.read(&page, 9, |event| {
            assert_eq!((event.task, event.run, event.next_task), (5, 7, 6));
            assert_eq!((event.ticks, event.tid), (50, 4711));
            assert_eq!((event.kind, event.wait_type), (EventKind::Yield, 1));
        });
    }

    /// Eight slots, twenty events: the slot that may be in the middle of a write is not used.
    #[test]
    fn what_was_overwritten_is_counted_as_lost() {
        let test = TestPage::new();
        let page = test.observe().unwrap();
        let mut ring = page.ring(0).unwrap();
        (1..=20).for_each(|task| test.write_event(0, task));
        let (seen, read) = tasks(&mut ring, &page);
        assert_eq!(seen, [14, 15, 16, 17, 18, 19, 20]);
        assert_eq!((read.taken, read.lost, read.left), (7, 13, 0));
    }

    #[test]
    fn a_limit_leaves_the_rest_for_the_next_time() {
        let test = TestPage::new();
        let page = test.observe().unwrap();
        let mut ring = page.ring(0).unwrap();
        (1..=5).for_each(|task| test.write_event(0, task));
        let read = ring.read(&page, 2, |_| ());
        assert_eq!((read.taken, read.left), (2, 3));
        assert_eq!(tasks(&mut ring, &page).0, [3, 4, 5]);
    }

    /// Every event is either taken or lost, and no taken event is torn.
    #[test]
    fn taken_and_lost_sum_to_what_was_written() {
        const WRITTEN: u64 = 300_000;
        let test = TestPage::new();
        let page = test.observe().unwrap();
        let mut ring = page.ring(0).unwrap();
        let is_done = AtomicBool::new(false);
        let (mut taken, mut lost, mut last) = (0, 0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..=WRITTEN).for_each(|task| test.write_event(0, task));
                is_done.store(true, Ordering::Release);
            });
            loop {
                let was_done = is_done.load(Ordering::Acquire);
                let read = ring.read(&page, u64::MAX, |event| {
                    assert!(event.task > last, "{} after {last}", event.task);
                    assert_eq!(
                        (event.ticks, event.next_task),
                        (10 * event.task, event.task + 1)
                    );
                    last = event.task;
                });
                taken += read.taken;
                lost += read.lost;
                if was_done {
                    break;
                }
            }
        });
        assert_eq!((taken + lost, last), (WRITTEN, WRITTEN));
    }

    /// Counts and sizes are set as an attacker might set them.
    #[test]
    fn a_ring_that_lies_does_no_harm() {
        let test = TestPage::new();
        let page = test.observe().unwrap();
        let mut ring = page.ring(0).unwrap();
        for written in [u64::MAX, 1 << 63, 5, 0] {
            test.ring(0).written.store(written, Ordering::Relaxed);
            let read = ring.read(&page, 1 << 20, |_| ());
            assert!(read.taken <= 8);
        }
        for capacity in [0, 3, 1 << 12, 1 << 62, u64::MAX] {
            test.ring(0).capacity.store(capacity, Ordering::Relaxed);
            assert_eq!(ring.read(&page, 1 << 20, |_| ()), Read::default());
            assert!(page.ring(0).is_none());
        }
    }
}

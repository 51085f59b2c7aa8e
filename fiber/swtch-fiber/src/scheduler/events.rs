//! The ring of user-mode switches, written while a recorder is active; the writer never waits.
//!
//! A recorder keeps `record_until_ticks` in the header of the page a little in the future. A switch
//! compares it with the clock that it has read anyway. So recording needs no action of the target,
//! and ends by itself when the recorder dies.
//!
//! A switch-out is written directly into its slot, and completed when the next task is known. This
//! costs 2 ns to 3 ns; keeping it aside and copying it then cost 4 ns to 7 ns (Zen 5, `make
//! bench-fiber ARGS=--recorded`).

use std::sync::atomic::{Ordering, fence};

use swtch_observe::layout::{RingEvent, RingHeader};

use super::worker::PreviousWait;
use crate::page::{EVENTS, WritablePage};

/// The writer's side of one scheduler's ring.
#[derive(Debug)]
pub(crate) struct RingWriter {
    page: &'static WritablePage,
    header: &'static RingHeader,
    events: &'static [RingEvent; EVENTS as usize],
}

/// A switch-out, complete except for the task that comes next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserSwitchOut {
    pub(crate) ticks: u64,
    pub(crate) ran_ticks: u64,
    pub(crate) word: u64,
    pub(crate) before: PreviousWait,
    pub(crate) kind: u8,
    pub(crate) wait_type: u8,
    pub(crate) tid: u32,
}

impl RingWriter {
    pub(crate) fn new(page: &'static WritablePage, scheduler: u32) -> Self {
        let (header, events) = page.ring(scheduler);
        Self {
            page,
            header,
            events,
        }
    }

    /// Returns true if a recorder is active at this moment.
    #[inline(always)]
    pub(crate) fn is_recording(&self, now: u64) -> bool {
        self.page
            .header()
            .record_until_ticks
            .load(Ordering::Relaxed)
            > now
    }

    /// Writes a switch-out over the oldest event, except for the task that comes next. No reader
    /// takes it before [`Self::complete`]. One at a time.
    pub(crate) fn begin(&self, departure: &UserSwitchOut) {
        // A reader that sees the new bytes of this slot must also see at least this value of
        // `written`, and so know that the old event is gone.
        fence(Ordering::Release);
        let event = self.next().1;
        let before = &departure.before;
        let packed = u64::from(departure.tid)
            | u64::from(departure.kind) << 32
            | u64::from(departure.wait_type) << 40
            | u64::from(before.wait_type.number()) << 48;
        event.ticks.store(departure.ticks, Ordering::Relaxed);
        event
            .ran_ticks
            .store(departure.ran_ticks, Ordering::Relaxed);
        event.from_word.store(departure.word, Ordering::Relaxed);
        event.off_ticks.store(before.off_ticks, Ordering::Relaxed);
        event
            .queued_ticks
            .store(before.queued_ticks, Ordering::Relaxed);
        event.waker_task.store(before.waker_task, Ordering::Relaxed);
        event.packed.store(packed, Ordering::Relaxed);
    }

    /// Publishes the switch-out that was begun, with the task that comes next; 0 for none.
    pub(crate) fn complete(&self, to_task: u64) {
        let (number, event) = self.next();
        event.to_task.store(to_task, Ordering::Relaxed);
        self.header.written.store(number + 1, Ordering::Release);
    }

    /// Number and slot of the next event to be written.
    fn next(&self) -> (u64, &RingEvent) {
        let number = self.header.written.load(Ordering::Relaxed);
        let slot = usize::try_from(number % u64::from(EVENTS)).expect("below the capacity");
        (number, &self.events[slot])
    }
}

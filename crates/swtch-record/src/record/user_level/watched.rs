//! One process with a user-mode scheduler, while it is recorded.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use swtch_capture::{Capture, Drained, monotonic_ns};
use swtch_core::{
    CpuId, Event, Gap, Level, Pid, Tid, Timestamp, UserDeparture, UserSwitchEvent, UserWait,
    UserWaitType, UserWord,
};
use swtch_observe::{Clock, EventKind, Lease, Page, RingPosition, Tids, UserSwitch};
use swtch_store::UserCounts;

use super::wait_types::WaitTypes;

// A word in the target's memory must have the layout that the rules expect.
const _: () = assert!(UserWord::RUN_BITS == swtch_observe::RUN_BITS);

/// The target writes switches down for this long after a renewal, so that it stops when the
/// recorder dies.
const LEASE_NS: u64 = 1_000_000_000;

/// A time stamp further away from now than this is invalid: the page is wrong.
const MOST_OFF_NS: u64 = 10_000_000_000;

/// Events that are taken from one ring in a round at most.
const TURN: u64 = 1 << 16;

/// The CPU of gaps of a scheduler that may run on any CPU.
const ANY_CPU: CpuId = CpuId::new(u16::MAX);

/// A process and the rings of its schedulers.
pub(super) struct WatchedProcess {
    page: Page,
    lease: Option<Lease>,
    clock: Option<Clock>,
    rings: Vec<WatchedScheduler>,
    /// Schedulers that existed before we watched. Rings of later ones are read from their start.
    were_there: usize,
    tids: Tids,
    words: FxHashMap<Tid, u64>,
    wait_types: FxHashMap<u8, Arc<UserWaitType>>,
    /// True if the process had ended before the rings were read last, and nothing is left in them;
    /// false again when a ring is opened after that.
    is_over: bool,
}

struct WatchedScheduler {
    ring: RingPosition,
    cpu: Option<CpuId>,
    stream: usize,
    last: Timestamp,
}

impl WatchedProcess {
    /// Begins to watch a process. Returns also the reason if its switches cannot be recorded.
    pub(super) fn new(page: Page) -> (Self, Option<String>) {
        let (lease, refusal) = match page.lease() {
            Ok(lease) => (Some(lease), None),
            Err(error) => (
                None,
                Some(format!("its switches are not recorded: {error}")),
            ),
        };
        let watched = Self {
            were_there: page.scheduler_count(),
            page,
            lease,
            clock: None,
            rings: Vec::new(),
            tids: Tids::default(),
            words: FxHashMap::default(),
            wait_types: FxHashMap::default(),
            is_over: false,
        };
        (watched, refusal)
    }

    /// True if the process has ended and all that it wrote was read.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Opens the rings of schedulers that are new, each with a stream of its own.
    pub(super) fn open_rings(&mut self, mut next_stream: impl FnMut() -> usize) {
        self.clock = self.page.clock().or(self.clock);
        if self.clock.is_none() || self.lease.is_none() {
            return;
        }
        for index in self.rings.len()..self.page.scheduler_count() {
            let ring = match index < self.were_there {
                true => self.page.ring(index),
                false => self.page.ring_from_start(index),
            };
            let Some(ring) = ring else {
                break;
            };
            self.rings.push(WatchedScheduler {
                ring,
                cpu: None,
                stream: next_stream(),
                last: Timestamp::from_ns(monotonic_ns()),
            });
            self.is_over = false;
        }
        for (index, scheduler) in self.rings.iter_mut().enumerate() {
            let cpu = self.page.scheduler_cpu(index);
            scheduler.cpu = cpu.and_then(|cpu| u16::try_from(cpu).ok()).map(CpuId::new);
        }
    }

    /// Asks the process to go on writing its switches down.
    pub(super) fn renew_lease(&self) {
        if let Some((clock, lease)) = self.clock.zip(self.lease.as_ref()) {
            lease.renew(clock.ticks(monotonic_ns() + LEASE_NS));
        }
    }

    /// Tells the kernel side which words of the process's memory to read.
    ///
    /// # Errors
    /// When the kernel side has no room for more.
    pub(super) fn tell_words(&mut self, capture: &mut Capture) -> Result<(), swtch_capture::Error> {
        let pid = self.page.pid();
        if self.page.has_ended() {
            capture.forget_words(self.words.drain().map(|(tid, _)| tid));
            return Ok(());
        }
        let in_page: Vec<_> = self.page.thread_words().collect();
        if in_page
            .iter()
            .any(|(own, _)| self.tids.to_ours(*own).is_none())
        {
            self.tids.look(pid);
        }
        let now: FxHashMap<_, _> = in_page
            .iter()
            .filter_map(|(own, address)| Some((Tid::new(self.tids.to_ours(*own)?), *address)))
            .collect();
        if now == self.words {
            return Ok(());
        }
        let gone = self.words.keys().filter(|tid| !now.contains_key(tid));
        capture.forget_words(gone.copied());
        let fresh = now
            .iter()
            .filter(|(tid, address)| self.words.get(tid) != Some(address));
        capture.watch_words(Pid::new(pid), fresh.map(|(tid, address)| (*tid, *address)))?;
        self.words = now;
        Ok(())
    }

    /// Reads the events that were written since the last call.
    pub(super) fn drain(
        &mut self,
        now: Timestamp,
        names: &mut WaitTypes,
        counts: &mut UserCounts,
        gaps: &mut Vec<Gap>,
        sink: &mut impl FnMut(usize, Event),
    ) -> Drained {
        let mut drained = Drained::default();
        let has_ended = self.page.has_ended();
        let Some(clock) = self.clock else {
            self.is_over = has_ended;
            return drained;
        };
        let (mut events, mut left) = (Vec::new(), 0);
        for index in 0..self.rings.len() {
            events.clear();
            let scheduler = &mut self.rings[index];
            let read = scheduler
                .ring
                .read(&self.page, TURN, |event| events.push(*event));
            let (stream, cpu, before) = (scheduler.stream, scheduler.cpu, scheduler.last);
            counts.written += read.taken + read.lost + read.unreadable;
            let mut first = None;
            let mut lost = read.lost + read.unreadable;
            for event in &events {
                let ts = Timestamp::from_ns(clock.monotonic_ns(event.ticks));
                if ts.as_ns().abs_diff(now.as_ns()) > MOST_OFF_NS {
                    lost += 1;
                    continue;
                }
                first.get_or_insert(ts);
                self.rings[index].last = ts;
                if event.kind == EventKind::Idle {
                    counts.idle += 1;
                    continue;
                }
                match self.evidence_of(event, cpu, clock, names) {
                    Some(event) => sink(stream, Event::User(event)),
                    None => counts.unnamed += 1,
                }
            }
            counts.lost += lost;
            if lost > 0 {
                gaps.push(Gap {
                    cpu: cpu.unwrap_or(ANY_CPU),
                    start: before,
                    end: first.unwrap_or(now).max(before),
                    lost,
                    level: Level::User,
                });
            }
            left += read.left;
            drained = drained.and(Drained {
                switches: read.taken,
                most_in_a_ring: read.taken + read.left,
            });
        }
        self.is_over = has_ended && left == 0;
        drained
    }

    /// Returns what an event of the page says, with the ids and the clock of the trace; `None` if its thread is not
    /// known.
    fn evidence_of(
        &mut self,
        event: &UserSwitch,
        cpu: Option<CpuId>,
        clock: Clock,
        names: &mut WaitTypes,
    ) -> Option<UserSwitchEvent> {
        let tid = self.tids.to_ours(event.tid).or_else(|| {
            self.tids.look(self.page.pid());
            self.tids.to_ours(event.tid)
        })?;
        let at = |ticks| Timestamp::from_ns(clock.monotonic_ns(ticks));
        let started = event.ticks.saturating_sub(event.ran_ticks);
        let departure = match event.kind {
            EventKind::Yield => UserDeparture::Yield,
            EventKind::Preemptive => UserDeparture::Preemptive,
            EventKind::Done => UserDeparture::Done,
            EventKind::Suspend | EventKind::Idle => UserDeparture::Wait,
        };
        let is_first = event.off_ticks == 0;
        Some(UserSwitchEvent {
            ts: at(event.ticks),
            tid: Tid::new(tid),
            cpu,
            word: UserWord::new(event.task, event.run),
            next_task: (event.next_task != 0).then_some(event.next_task),
            run_start: at(started),
            departure,
            wait_type: self.wait_type(event.wait_type, names),
            before: UserWait {
                out: (!is_first).then(|| at(started.saturating_sub(event.off_ticks))),
                woken: at(started.saturating_sub(event.queued_ticks)),
                wait_type: self.wait_type(event.wait_type_before, names),
                waker: (event.waker_task != 0).then_some(event.waker_task),
            },
        })
    }

    /// A wait type by its number in the process; `None` for 0, which means "no wait".
    fn wait_type(&mut self, number: u8, names: &mut WaitTypes) -> Option<Arc<UserWaitType>> {
        if number == 0 {
            return None;
        }
        let page = &self.page;
        let named = || {
            let name = page.wait_type_name(number.into());
            names.named(&name.unwrap_or_else(|| format!("WAIT_TYPE_{number}")))
        };
        Some(Arc::clone(
            self.wait_types.entry(number).or_insert_with(named),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use swtch_fiber::{Runtime, yield_now};

    use super::*;

    const YIELDS: u64 = 10;

    /// A runtime whose only scheduler has been given up so many times.
    fn worked() -> Runtime {
        let runtime = Runtime::builder().schedulers(1).build().unwrap();
        runtime
            .run(|| (0..YIELDS).for_each(|_| yield_now()))
            .unwrap();
        runtime
    }

    fn drained(watched: &mut WatchedProcess) -> UserCounts {
        let (mut counts, mut gaps) = (UserCounts::default(), Vec::new());
        let now = Timestamp::from_ns(monotonic_ns());
        watched.drain(
            now,
            &mut WaitTypes::default(),
            &mut counts,
            &mut gaps,
            &mut |_, _| (),
        );
        counts
    }

    /// Rings are opened ten times a second. What a scheduler writes between the last of these times
    /// and the end of a recording must not be left out of all counts.
    #[test]
    fn a_scheduler_that_starts_late_is_read_once_its_ring_is_opened() {
        let _first = worked();
        let page = Page::of_process(std::process::id()).unwrap();
        let (mut watched, refusal) = WatchedProcess::new(page);
        assert_eq!(refusal, None);
        let mut streams = 0;
        let mut next = || {
            streams += 1;
            streams
        };
        let began = Instant::now();
        while watched.clock.is_none() {
            assert!(began.elapsed() < Duration::from_secs(60), "no clock");
            sleep(Duration::from_millis(10));
            watched.open_rings(&mut next);
        }
        watched.renew_lease();
        // A runtime may get the ring of one that has ended, such as that of another test.
        let before = watched.page.scheduler_count();
        let mut late = Vec::new();
        while watched.page.scheduler_count() == before {
            late.push(worked());
        }
        drained(&mut watched);
        watched.is_over = true;
        watched.open_rings(&mut next);
        assert!(!watched.is_over(), "its ring was not read yet");
        assert!(drained(&mut watched).written > 0);
    }
}

//! The monitor: a thread that says when a quantum is over.
//!
//! A yield point must cost one load, so it cannot read a clock. The monitor reads it instead: it
//! sleeps until the earliest end of a quantum, and sets a flag where a worker still runs then. It
//! sleeps for good while all schedulers are idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::page::layout::thread_kind;
use crate::page::{self, ThreadSlot, add};
use crate::probes::{self, Arguments};
use crate::runtime::{Seat, Shared};
use crate::stall::records::Records;
use crate::stall::{self, Deadlock, Duty, Others, Stall, Watch, waits};
use crate::{clock, futex};

/// Numbers of runtimes in this process.
static NUMBER: AtomicU32 = AtomicU32::new(1);

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const ENDING: u32 = 2;

/// Quiet stacks whose memory is given back each time: about half a millisecond.
const STACKS_A_SECOND: usize = 1000;

/// For so long nothing moves before deadlocks are looked for: a thread outside that is about to wake
/// a worker is given time.
const QUIET: Duration = Duration::from_secs(1);

/// How often the later anchor of the page's clock is moved on.
const ANCHOR_EVERY: Duration = Duration::from_secs(1);

/// Wake-ups that lie closer together are made one.
const SHORTEST_NAP: Duration = Duration::from_micros(50);

/// While a scheduler is on its way from idle to work, the monitor looks again this soon at least.
const LONGEST_NAP: Duration = Duration::from_millis(100);

/// What schedulers know of their monitor.
#[derive(Debug)]
pub(crate) struct Monitor {
    number: u32,
    state: AtomicU32,
}

impl Monitor {
    pub(crate) fn new() -> Self {
        Self {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            state: AtomicU32::new(AWAKE),
        }
    }

    /// The number of its runtime.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn start(shared: &Arc<Shared>) -> Result<thread::JoinHandle<()>, Error> {
        let name = format!("{}-mon", shared.name);
        let watched = shared.clone();
        thread::Builder::new()
            .name(name.clone())
            .spawn(move || watch(&watched))
            .map_err(|source| Error::Thread { name, source })
    }

    /// A scheduler was idle and is not any more.
    #[inline]
    pub(crate) fn scheduler_works(&self) {
        if self.state.load(Ordering::SeqCst) == ASLEEP
            && self
                .state
                .compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        {
            futex::wake(&self.state);
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.state.store(ENDING, Ordering::SeqCst);
        futex::wake(&self.state);
    }

    /// Sleeps for `span`, or with `None` until a scheduler works.
    fn sleep(&self, span: Option<Duration>) {
        match span {
            Some(span) => futex::wait(&self.state, AWAKE, Some(span)),
            None => futex::wait(&self.state, ASLEEP, None),
        }
    }
}

/// What the monitor remembers of a scheduler between two looks.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Yields and switches, which tell one run from the next.
    progress: u64,
    /// When that run was first seen, ticks.
    since: u64,
}

fn watch(shared: &Shared) {
    // A monitor without a record works as well.
    let _slot = page::page()
        .and_then(|page| ThreadSlot::take(page, thread_kind::MONITOR, None))
        .ok();
    let quantum = clock::rate().ticks_in(shared.quantum);
    let mut seen = vec![Seen::default(); shared.seats().len()];
    let mut stalls = StallWatch::new(shared);
    let mut anchored = clock::ticks();
    while shared.monitor.state.load(Ordering::SeqCst) != ENDING {
        let now = clock::ticks();
        if clock::rate().length(now.saturating_sub(anchored)) >= ANCHOR_EVERY {
            if let Some(page) = page::page_if_there() {
                page.move_anchor();
            }
            if let Some(stacks) = shared.stacks {
                stacks.trim(STACKS_A_SECOND);
            }
            anchored = now;
        }
        let ends = shared
            .seats()
            .iter()
            .zip(&mut seen)
            .filter_map(|(seat, seen)| look(seat, seen, now, quantum))
            .min();
        let again = stalls
            .look(shared)
            .map(|span| now.saturating_add(clock::rate().ticks_in(span)));
        match ends.into_iter().chain(again).min() {
            Some(ticks) => {
                let left = clock::rate().length(ticks.saturating_sub(now));
                shared
                    .monitor
                    .sleep(Some(left.clamp(SHORTEST_NAP, ANCHOR_EVERY)));
            }
            None => sleep_while_all_are_idle(shared, &mut stalls),
        }
    }
}

/// Asks the worker that runs here to yield if its quantum is over. Returns when to look again, in
/// ticks; `None` while the scheduler is idle.
fn look(seat: &Seat, seen: &mut Seen, now: u64, quantum: u64) -> Option<u64> {
    let record = seat.record;
    if record.is_idle.load(Ordering::SeqCst) != 0 {
        return None;
    }
    let progress = record.yield_count.load(Ordering::Relaxed)
        + record.tasks_completed_count.load(Ordering::Relaxed);
    if progress != seen.progress || seen.since == 0 {
        *seen = Seen {
            progress,
            since: now,
        };
    }
    // With accounting the scheduler says when the run began.
    let started = record.run_started_ticks.load(Ordering::Relaxed);
    let started = if started == 0 { seen.since } else { started };
    let end = started.saturating_add(quantum);
    if end > now {
        return Some(end);
    }
    if !seat.scheduler.need_yield.swap(true, Ordering::Relaxed) {
        add(&record.quantum_expired_count, 1);
    }
    Some(now.saturating_add(quantum))
}

/// The watches over all schedulers, where stalls are looked for.
struct StallWatch {
    watches: Vec<Watch>,
    /// The deadlock that was reported last.
    reported: Option<Deadlock>,
}

impl StallWatch {
    fn new(shared: &Shared) -> Self {
        let watch = |threshold: Duration| shared.seats().iter().map(move |_| Watch::new(threshold));
        let stalls = shared.stalls.iter();
        Self {
            watches: stalls
                .flat_map(|(threshold, _)| watch(*threshold))
                .collect(),
            reported: None,
        }
    }

    /// All schedulers have been idle for a while: reports it if that cannot end, once.
    fn look_for_deadlock(&mut self, shared: &Shared) {
        let (Some((_, reporter)), Some(page)) = (&shared.stalls, page::page_if_there()) else {
            return;
        };
        let seats = || shared.seats().iter();
        let records = || seats().map(|seat| Records::new(page, seat.index));
        let wakes_by_itself = seats()
            .any(|seat| seat.scheduler.has_deadline.load(Ordering::Relaxed))
            || records().any(Records::may_wake_by_itself);
        if wakes_by_itself {
            return;
        }
        let found = stall::find_deadlock(waits::waiting(records()), Others::Quiet);
        // What was read while somebody worked is of several moments.
        let stayed_quiet =
            shared.monitor.state.load(Ordering::SeqCst) == ASLEEP && all_idle(shared);
        if stayed_quiet && found != self.reported {
            self.reported.clone_from(&found);
            if let Some(deadlock) = found {
                reporter.report_deadlock(deadlock);
            }
        }
    }

    /// Looks at each scheduler, and reports those that stall. Returns when to look again; `None`
    /// while all are idle.
    fn look(&mut self, shared: &Shared) -> Option<Duration> {
        let (threshold, reporter) = shared.stalls.as_ref()?;
        let page = page::page_if_there()?;
        let mut again = None;
        for (seat, watch) in shared.seats().iter().zip(&mut self.watches) {
            let records = Records::new(page, seat.index);
            let duty = records.duty(seat.scheduler);
            let (now, progress) = (Instant::now(), records.progress());
            if let Some(stall) = watch.look(now, progress, duty, || records.subject()) {
                add(&seat.record.stalls_count, 1);
                probe(&stall);
                reporter.report(stall, now);
            }
            if duty != Duty::Idle {
                again = Some((*threshold / 4).min(LONGEST_NAP));
            }
        }
        again
    }
}

fn probe(stall: &Stall) {
    probes::stall(|| Arguments {
        scheduler: stall.scheduler.into(),
        worker: stall.offender.as_ref().map_or(0, |who| who.worker.into()),
        task: stall.offender.as_ref().map_or(0, |who| who.task),
        wait_type: 0,
        ns: u64::try_from(stall.lasted.as_nanos()).unwrap_or(u64::MAX),
    });
}

fn all_idle(shared: &Shared) -> bool {
    shared.seats().iter().all(|seat| {
        let waits = seat.scheduler.is_closing() || seat.scheduler.nothing_came_in();
        seat.record.is_idle.load(Ordering::SeqCst) != 0 && waits
    })
}

fn sleep_while_all_are_idle(shared: &Shared, stalls: &mut StallWatch) {
    let monitor = &shared.monitor;
    let order = (Ordering::SeqCst, Ordering::Relaxed);
    if monitor
        .state
        .compare_exchange(AWAKE, ASLEEP, order.0, order.1)
        .is_err()
    {
        return;
    }
    // A scheduler that began to work before it saw ASLEEP is seen here.
    if all_idle(shared) {
        futex::wait(&monitor.state, ASLEEP, Some(QUIET));
        if monitor.state.load(Ordering::SeqCst) == ASLEEP {
            stalls.look_for_deadlock(shared);
            monitor.sleep(None);
        }
    }
    let _was_woken = monitor
        .state
        .compare_exchange(ASLEEP, AWAKE, order.0, order.1);
}

//! The monitor: a thread that asks workers to yield when their quantum is over.
//!
//! A yield point must cost one load, so it cannot read a clock. The monitor reads it instead: it
//! sleeps until the earliest end of a quantum, and sets a flag if a worker still runs then. While
//! all schedulers are idle it sleeps until one has work, apart from rare looks for deadlocks.

mod stacks;
mod stalls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use swtch_observe::clock;
use swtch_observe::layout::thread_kind;

use crate::error::Error;
use crate::page::{self, ThreadSlot, add};
use crate::runtime::{RuntimeState, SchedulerEntry};
use crate::stack::overflow;
use crate::{futex, stall};
use stacks::StackMeter;
use stalls::StallWatch;

/// The number that the next runtime of this process gets.
static NUMBER: AtomicU32 = AtomicU32::new(1);

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const ENDING: u32 = 2;

/// Unused stacks whose memory is given back each time: about half a millisecond of work.
const STACKS_A_SECOND: usize = 1000;

/// All schedulers must be idle for this long before deadlocks are looked for, so that a thread
/// outside that is about to wake a worker has time to do so. The span doubles while such a thread
/// could exist.
const QUIET: Duration = Duration::from_secs(1);

/// While all workers wait and a thread outside could wake one, the monitor looks at least this
/// often.
const LONGEST_QUIET: Duration = Duration::from_secs(60);

/// How often the later anchor of the page's clock is moved on.
const ANCHOR_EVERY: Duration = Duration::from_secs(1);

/// Wakeups of the monitor that lie closer together than this are merged.
const SHORTEST_NAP: Duration = Duration::from_micros(50);

/// The state that the schedulers share with their monitor.
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

    /// The number of its runtime in this process, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn start(shared: &Arc<RuntimeState>) -> Result<thread::JoinHandle<()>, Error> {
        let name = format!("{}-mon", shared.name);
        let watched = shared.clone();
        thread::Builder::new()
            .name(name.clone())
            .spawn(move || watch(&watched))
            .map_err(|source| Error::Thread { name, source })
    }

    /// Wakes the monitor if it sleeps. Called when a scheduler was idle and has work again.
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

    /// Asks the monitor's thread to end.
    pub(crate) fn end(&self) {
        self.state.store(ENDING, Ordering::SeqCst);
        futex::wake(&self.state);
    }

    /// Sleeps for `span`; with `None`, until a scheduler has work.
    fn sleep(&self, span: Option<Duration>) {
        match span {
            Some(span) => futex::wait(&self.state, AWAKE, Some(span)),
            None => futex::wait(&self.state, ASLEEP, None),
        }
    }
}

/// What the monitor remembers of a scheduler from one look to the next.
#[derive(Clone, Copy, Debug, Default)]
struct SchedulerProgress {
    /// Distinguishes one run from the next.
    progress: u64,
    /// When that run was first seen, ticks.
    since: u64,
}

fn watch(shared: &RuntimeState) {
    // The monitor also works without a record in the page.
    let _slot = page::page()
        .and_then(|page| ThreadSlot::take(page, thread_kind::MONITOR, None))
        .ok();
    let quantum = clock::rate().ticks_in(shared.quantum);
    let mut seen = vec![SchedulerProgress::default(); shared.entries().len()];
    let mut stalls = StallWatch::new(shared);
    let mut meter = StackMeter::default();
    let mut anchored = clock::ticks();
    warn_of_handlers(shared);
    while shared.monitor.state.load(Ordering::SeqCst) != ENDING {
        let now = clock::ticks();
        if clock::rate().length(now.saturating_sub(anchored)) >= ANCHOR_EVERY {
            if let Some(page) = page::page_if_there() {
                page.move_anchor();
            }
            if let Some(stacks) = shared.stacks {
                stacks.trim(STACKS_A_SECOND);
            }
            stalls.find_cycles(shared);
            warn_of_handlers(shared);
            meter.look(shared);
            anchored = now;
        }
        let ends = shared
            .entries()
            .iter()
            .zip(&mut seen)
            .filter_map(|(entry, seen)| look(entry, seen, now, quantum))
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
            None => sleep_while_all_are_idle(shared, &mut stalls, &mut meter),
        }
    }
}

/// Checked each time, since handlers may be installed before or after the runtime was made.
fn warn_of_handlers(shared: &RuntimeState) {
    if shared.stacks.is_some()
        && shared.stalls.is_some()
        && let Some(warning) = overflow::warning_of_handlers()
    {
        stall::write(&warning);
    }
}

/// Asks the worker that runs here to yield if its quantum is over. Returns the time to look again,
/// in ticks; `None` while the scheduler is idle.
fn look(
    entry: &SchedulerEntry,
    seen: &mut SchedulerProgress,
    now: u64,
    quantum: u64,
) -> Option<u64> {
    let record = entry.record;
    if record.is_idle.load(Ordering::SeqCst) != 0 {
        return None;
    }
    let progress = record.progress();
    if progress != seen.progress || seen.since == 0 {
        *seen = SchedulerProgress {
            progress,
            since: now,
        };
    }
    // With accounting switched on, the scheduler records when the run began.
    let started = record.run_started_ticks.load(Ordering::Relaxed);
    let started = if started == 0 { seen.since } else { started };
    let end = started.saturating_add(quantum);
    if end > now {
        return Some(end);
    }
    if !entry.scheduler.need_yield.swap(true, Ordering::Relaxed) {
        add(&record.quantum_expired_count, 1);
    }
    Some(now.saturating_add(quantum))
}

fn all_idle(shared: &RuntimeState) -> bool {
    shared.entries().iter().all(|entry| {
        let waits = entry.scheduler.is_closing() || entry.scheduler.nothing_came_in();
        entry.record.is_idle.load(Ordering::SeqCst) != 0 && waits
    })
}

fn sleep_while_all_are_idle(
    shared: &RuntimeState,
    stalls: &mut StallWatch,
    meter: &mut StackMeter,
) {
    let monitor = &shared.monitor;
    let order = (Ordering::SeqCst, Ordering::Relaxed);
    if monitor
        .state
        .compare_exchange(AWAKE, ASLEEP, order.0, order.1)
        .is_err()
    {
        return;
    }
    // A scheduler that began to work before it saw ASLEEP is noticed here.
    let mut nap = all_idle(shared).then_some(QUIET);
    while let Some(span) = nap {
        futex::wait(&monitor.state, ASLEEP, Some(span));
        if monitor.state.load(Ordering::SeqCst) != ASLEEP {
            break;
        }
        meter.look(shared);
        let stays_quiet = || monitor.state.load(Ordering::SeqCst) == ASLEEP && all_idle(shared);
        let later = stalls.look_while_all_are_idle(shared, stays_quiet);
        nap = later.then(|| (span * 2).min(LONGEST_QUIET));
        if nap.is_none() {
            monitor.sleep(None);
        }
    }
    let _was_woken = monitor
        .state
        .compare_exchange(ASLEEP, AWAKE, order.0, order.1);
}

//! The monitor: a thread that asks workers to yield when their quantum is over.
//!
//! A yield point must cost one load, so it cannot read a clock. The monitor reads it instead: it
//! sleeps until the earliest end of a quantum, and sets a flag if a worker still runs then. While
//! all schedulers are idle it sleeps until one has work, apart from rare looks for deadlocks.

mod stacks;
mod stalls;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use swtch_observe::clock;
use swtch_observe::layout::thread_kind;

use crate::error::Error;
use crate::page::{self, ThreadSlot, add};
use crate::scheduler::{SchedulerEntry, SchedulerGroup};
use crate::stack::overflow;
use crate::stall::{self, Reporting};
use stacks::StackMeter;
use stalls::StallWatch;

/// Unused stacks whose memory is given back each time: about half a millisecond of work.
const STACKS_A_SECOND: usize = 1000;

/// All schedulers must be idle for this long before deadlocks are looked for, so that a thread
/// outside that is about to wake a worker has time to do so. The span doubles while such a thread
/// could exist.
const QUIET: Duration = Duration::from_secs(1);

/// While all workers wait and a thread outside could wake one, the monitor looks at least this
/// often.
const LONGEST_QUIET: Duration = Duration::from_secs(60);

/// The time after which the later anchor of the page's clock is moved on.
const ANCHOR_EVERY: Duration = Duration::from_secs(1);

/// Wakeups of the monitor that lie closer together than this are merged.
const SHORTEST_NAP: Duration = Duration::from_micros(50);

/// The monitor's memory of a scheduler from one look to the next.
#[derive(Clone, Copy, Debug, Default)]
struct SchedulerProgress {
    /// Distinguishes one run from the next.
    progress: u64,
    /// The moment at which that run was first seen, ticks.
    since: u64,
}

/// Starts the monitor of these schedulers. Without `reporting`, nothing is looked for that
/// would be reported: stalls, deadlocks, sections without a helper, handlers of signals.
pub(crate) fn start(
    group: &Arc<SchedulerGroup>,
    reporting: Option<Reporting>,
) -> Result<thread::JoinHandle<()>, Error> {
    let name = format!("{}-mon", group.settings.name);
    let watched = group.clone();
    thread::Builder::new()
        .name(name.clone())
        .spawn(move || watch(&watched, reporting))
        .map_err(|source| Error::Thread { name, source })
}

fn watch(group: &SchedulerGroup, reporting: Option<Reporting>) {
    // The monitor also works without a record in the page.
    let _slot = page::page()
        .and_then(|page| ThreadSlot::take(page, thread_kind::MONITOR, None))
        .ok();
    let quantum = clock::rate().ticks_in(group.settings.quantum);
    let mut seen = vec![SchedulerProgress::default(); group.entries().len()];
    let looks_for_stalls = reporting.is_some();
    let mut stalls = StallWatch::new(group, reporting);
    let mut meter = StackMeter::default();
    let mut anchored = clock::ticks();
    if looks_for_stalls {
        warn_of_handlers(group);
    }
    while !group.monitor.is_ending() {
        let now = clock::ticks();
        if clock::rate().length(now.saturating_sub(anchored)) >= ANCHOR_EVERY {
            if let Some(page) = page::page_if_there() {
                page.move_anchor();
            }
            if let Some(stacks) = group.settings.stacks {
                stacks.trim(STACKS_A_SECOND);
            }
            stalls.find_cycles(group);
            if looks_for_stalls {
                warn_of_handlers(group);
            }
            meter.look(group);
            anchored = now;
        }
        let ends = group
            .entries()
            .iter()
            .zip(&mut seen)
            .filter_map(|(entry, seen)| look(entry, seen, now, quantum))
            .min();
        let again = stalls
            .look(group)
            .map(|span| now.saturating_add(clock::rate().ticks_in(span)));
        match ends.into_iter().chain(again).min() {
            Some(ticks) => {
                let left = clock::rate().length(ticks.saturating_sub(now));
                group.monitor.nap(left.clamp(SHORTEST_NAP, ANCHOR_EVERY));
            }
            None => sleep_while_all_are_idle(group, &mut stalls, &mut meter),
        }
    }
}

/// Checked each time, since handlers may be installed before or after the runtime was made.
fn warn_of_handlers(group: &SchedulerGroup) {
    if group.settings.stacks.is_some()
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

fn all_idle(group: &SchedulerGroup) -> bool {
    group.entries().iter().all(|entry| {
        let waits = entry.scheduler.is_closing() || entry.scheduler.nothing_came_in();
        entry.record.is_idle.load(Ordering::SeqCst) != 0 && waits
    })
}

fn sleep_while_all_are_idle(
    group: &SchedulerGroup,
    stalls: &mut StallWatch,
    meter: &mut StackMeter,
) {
    let monitor = &group.monitor;
    if !monitor.announce_sleep() {
        return;
    }
    // A scheduler that began to work before it saw the sleep announced is noticed here.
    let mut nap = all_idle(group).then_some(QUIET);
    while let Some(span) = nap {
        monitor.sleep_until_work(Some(span));
        if !monitor.is_asleep() {
            break;
        }
        meter.look(group);
        let stays_quiet = || monitor.is_asleep() && all_idle(group);
        let later = stalls.look_while_all_are_idle(group, stays_quiet);
        nap = later.then(|| (span * 2).min(LONGEST_QUIET));
        if nap.is_none() {
            monitor.sleep_until_work(None);
        }
    }
    monitor.end_sleep();
}

//! Makes a known number of each kind of event, and checks which counter counted it.
//!
//! A worker makes the events and reads the counters before and after them itself: between the two
//! readings nothing happens on its scheduler but what it and its peer do, so the counts are exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};
use swtch_core::{Pid, Tid};
use swtch_fiber::{Mode, Runtime, WaitType, preemptive, sleep, spawn, yield_now};
use swtch_host::thread::read_counters;
use swtch_observe::{Mode as Observed, Page};

/// A kind of event that a scheduler counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchedulerEvent {
    /// A yield while no other worker is runnable.
    YieldAlone,
    /// A yield, while another worker yields as well.
    YieldBeside,
    /// A wait for a timer.
    Sleep,
    /// A preemptive section, which runs outside of the scheduler.
    Preemptive,
}

/// Counters of a scheduler, or their growth between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerCounts {
    /// Column `yield_count` of the scheduler's row.
    pub yields: u64,
    /// Column `context_switches_count` of the scheduler's row.
    pub switches: u64,
    /// Column `self_reselect_count` of the scheduler's row.
    pub reselects: u64,
    /// Column `preemptive_switches_count` of the scheduler's row.
    pub preemptive: u64,
    /// Column `idle_switches_count` of the scheduler's row.
    pub idle: u64,
}

/// A number of events of one kind, and what both levels counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounts {
    pub event: SchedulerEvent,
    /// Whether workers are threads; else they are coroutines.
    pub in_threads: bool,
    /// How many the worker made.
    pub made: u64,
    /// Growth of its scheduler's counters meanwhile.
    pub counts: SchedulerCounts,
    /// Switches of the scheduler's threads by the kernel meanwhile.
    pub os: u64,
}

impl SchedulerEvent {
    pub const ALL: [Self; 4] = [
        Self::YieldAlone,
        Self::YieldBeside,
        Self::Sleep,
        Self::Preemptive,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::YieldAlone => "yield, nobody else runnable",
            Self::YieldBeside => "yield, another yields as well",
            Self::Sleep => "sleep",
            Self::Preemptive => "preemptive section",
        }
    }

    const fn number(self) -> u64 {
        match self {
            Self::YieldAlone | Self::YieldBeside => 1_000,
            Self::Sleep | Self::Preemptive => 50,
        }
    }

    /// The counts that `made` events must give, by the definition of the counters. `idle` is left
    /// out: how often the scheduler is idle depends on how soon a timer or a helper comes back.
    pub fn expected(self, made: u64) -> SchedulerCounts {
        let none = SchedulerCounts::default();
        match self {
            Self::YieldAlone => SchedulerCounts {
                yields: made,
                reselects: made,
                ..none
            },
            // The peer gives way as often.
            Self::YieldBeside => SchedulerCounts {
                yields: 2 * made,
                switches: 2 * made,
                ..none
            },
            Self::Sleep => SchedulerCounts {
                yields: made,
                switches: made,
                ..none
            },
            Self::Preemptive => SchedulerCounts {
                yields: made,
                switches: made,
                preemptive: made,
                ..none
            },
        }
    }

    /// Makes one event of this kind.
    fn make(self) {
        match self {
            Self::YieldAlone | Self::YieldBeside => yield_now(),
            Self::Sleep => sleep(Duration::from_micros(200)),
            Self::Preemptive => preemptive(WaitType::PREEMPTIVE_OTHER, || {}),
        }
    }
}

impl EventCounts {
    /// Whether the counters have the expected values.
    pub fn is_as_expected(&self) -> bool {
        let counted = SchedulerCounts {
            idle: 0,
            ..self.counts
        };
        counted == self.event.expected(self.made)
    }
}

/// Makes all kinds of events in both modes.
///
/// # Errors
/// A scheduler cannot be made, or its page not be read.
pub fn count_all() -> Result<Vec<EventCounts>> {
    let mut counted = Vec::new();
    for mode in [Mode::Fiber, Mode::Thread] {
        for event in SchedulerEvent::ALL {
            counted.push(count(mode, event)?);
        }
    }
    Ok(counted)
}

fn count(mode: Mode, event: SchedulerEvent) -> Result<EventCounts> {
    let runtime = Runtime::builder()
        .schedulers(1)
        .mode(mode)
        // A snapshot is taken on this stack.
        .stack_size(512 << 10)
        .stall_threshold(Duration::ZERO)
        .build()?;
    let worker = move || -> Result<(SchedulerCounts, u64)> {
        let page = Page::of_process(std::process::id())?;
        let stop = Arc::new(AtomicBool::new(false));
        let peer = (event == SchedulerEvent::YieldBeside)
            .then(|| {
                let stop = stop.clone();
                spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        yield_now();
                    }
                })
            })
            .transpose()?;
        // Until the peer, if any, is bound to a worker and has begun.
        (0..10).for_each(|_| yield_now());
        // One event first: what is initialized at its first use is not counted.
        event.make();
        let before = read(&page)?;
        (0..event.number()).for_each(|_| event.make());
        let after = read(&page)?;
        stop.store(true, Ordering::Relaxed);
        if let Some(peer) = peer {
            peer.join().map_err(|error| anyhow!("the peer: {error}"))?;
        }
        Ok((growth(before.0, after.0), after.1 - before.1))
    };
    let (counts, os) = runtime
        .run(worker)
        .map_err(|error| anyhow!("the worker: {error}"))??;
    Ok(EventCounts {
        event,
        in_threads: mode == Mode::Thread,
        made: event.number(),
        counts,
        os,
    })
}

/// The counters of the running scheduler of this process, at both levels.
fn read(page: &Page) -> Result<(SchedulerCounts, u64)> {
    let snapshot = page.snapshot()?;
    let mut rows = snapshot.schedulers.iter();
    let row = rows
        .find(|row| row.mode != Observed::Ended)
        .context("the scheduler is at work")?;
    let threads = snapshot.threads.iter();
    let mut os = 0;
    for thread in threads.filter(|thread| thread.scheduler == Some(row.scheduler)) {
        let pid = Pid::new(std::process::id());
        let counters = read_counters(pid, Tid::new(thread.os_thread_id))?;
        os += counters.map_or(0, |(_, counters)| counters.switches());
    }
    let counts = SchedulerCounts {
        yields: row.yield_count,
        switches: row.context_switches_count,
        reselects: row.self_reselect_count,
        preemptive: row.preemptive_switches_count,
        idle: row.idle_switches_count,
    };
    Ok((counts, os))
}

const fn growth(before: SchedulerCounts, after: SchedulerCounts) -> SchedulerCounts {
    SchedulerCounts {
        yields: after.yields - before.yields,
        switches: after.switches - before.switches,
        reselects: after.reselects - before.reselects,
        preemptive: after.preemptive - before.preemptive,
        idle: after.idle - before.idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counters have their documented meaning in both modes; none of it depends on the machine.
    #[test]
    fn every_event_is_counted_where_it_should_be() {
        for counted in count_all().unwrap() {
            assert!(counted.is_as_expected(), "{counted:?}");
        }
    }
}

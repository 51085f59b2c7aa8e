//! Looks at switches while they are recorded, for the conditions at which a flight recorder makes a
//! dump (`--when`).

mod open_waits;

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use swtch_capture::monotonic_ns;
use swtch_core::{
    Arch, Event, Nanos, Pid, SwitchEvent, SyscallTable, TaskEvent, TaskEventKind, TaskKey, Tid,
    Timeline, Timestamp, Trigger, TriggerMoment, TriggerThread,
};
use swtch_output::text::from_bytes;
use swtch_store::FiredSwitch;
use swtch_wire::{RawKind, decode_records, peek_switches};

use open_waits::{OpenWaits, lasts};

/// Time over which switches per second are counted.
const SECOND: Duration = Duration::from_secs(1);

/// The conditions, and what they need to know.
pub struct TriggerWatch {
    triggers: Vec<Trigger>,
    timeline: Timeline,
    threads: FxHashMap<TaskKey, WatchedThread>,
    /// Threads that have ended since the last look for firings, and in the time before.
    ended: [Vec<TaskKey>; 2],
    rate: SwitchRate,
    /// `None` if no condition compares lengths of waits.
    open_waits: Option<OpenWaits>,
    fired: Option<Firing>,
}

struct WatchedThread {
    pid: Pid,
    tid: Tid,
    comm: String,
    /// The moment at which it was told of.
    at: Timestamp,
}

impl WatchedThread {
    fn names(&self) -> TriggerThread<'_> {
        TriggerThread {
            pid: self.pid,
            tid: self.tid,
            comm: &self.comm,
        }
    }
}

/// A condition that held.
#[derive(Clone, Debug)]
pub struct Firing {
    /// The moment at which it held.
    pub at: Timestamp,
    /// Which condition, and of what, in words.
    pub what: String,
    /// Of which switch.
    pub switch: FiredSwitch,
    /// The number of times that one held besides.
    pub more: u64,
}

/// Switches of the last whole second.
struct SwitchRate {
    since: Instant,
    count: u64,
    per_second: u64,
}

impl SwitchRate {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            count: 0,
            per_second: 0,
        }
    }

    fn add(&mut self, switches: u64, now: Instant) {
        self.count += switches;
        let passed = now - self.since;
        if passed >= SECOND {
            let per_second = u128::from(self.count) * SECOND.as_nanos() / passed.as_nanos();
            self.per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
            (self.since, self.count) = (now, 0);
        }
    }
}

impl TriggerWatch {
    /// A watch for these conditions; `None` if there are none.
    pub fn new(triggers: &[Trigger], arch: Arch) -> Option<Self> {
        (!triggers.is_empty()).then(|| Self {
            triggers: triggers.to_vec(),
            timeline: Timeline::new(SyscallTable::of(arch)),
            threads: FxHashMap::default(),
            ended: Default::default(),
            rate: SwitchRate::new(Instant::now()),
            open_waits: triggers
                .iter()
                .any(Trigger::is_about_waits)
                .then(|| OpenWaits::new(Instant::now())),
            fired: None,
        })
    }

    /// Learns the names of a thread.
    pub fn meet(&mut self, task: &TaskEvent) {
        if task.kind == TaskEventKind::Exit {
            // Its last switch-out comes after this, maybe in the next round.
            self.ended[0].push(task.task);
            return;
        }
        let thread = WatchedThread {
            pid: task.pid,
            tid: task.tid,
            comm: from_bytes(&task.comm),
            at: task.ts,
        };
        // They come CPU by CPU: where a thread moved, an old name may come after the new one.
        let known = self.threads.get(&task.task);
        if known.is_none_or(|known| known.at <= task.ts) {
            self.threads.insert(task.task, thread);
        }
    }

    /// Looks at switches, given by their records.
    pub fn look(&mut self, records: &[u8], count: u64) {
        self.rate.add(count, Instant::now());
        for peek in peek_switches(records).filter(|peek| peek.in_scope) {
            if let Some(open_waits) = &mut self.open_waits {
                open_waits.note(&peek);
            }
            let may_hold = |one: &Trigger| one.may_hold(peek.wait_at_most, peek.run_at_most);
            if self.triggers.iter().any(may_hold)
                && let Some(event) = decoded(peek.record)
            {
                self.look_at(&event);
            }
        }
    }

    fn look_at(&mut self, event: &SwitchEvent) {
        let Some(switch) = self.timeline.row(event) else {
            return;
        };
        let thread = self.threads.get(&switch.task).map(WatchedThread::names);
        let moment = TriggerMoment::of_switch(&switch, thread, self.rate.per_second);
        let Some(trigger) = self.triggers.iter().find(|one| one.holds(&moment)) else {
            return;
        };
        let what = || format!("{trigger}: {}", in_words(&moment));
        let fired = FiredSwitch {
            task: switch.task.get(),
            ts_ns: event.ts.as_ns(),
            is_open: false,
        };
        fire(&mut self.fired, event.ts, fired, what);
    }

    /// Looks at waits that last, when it is time to.
    fn look_at_open_waits(&mut self, now: Timestamp) {
        let Some(open_waits) = &mut self.open_waits else {
            return;
        };
        let about_waits = || self.triggers.iter().filter(|one| one.is_about_waits());
        let may_hold = |lasted| about_waits().any(|one| one.may_hold(lasted, Nanos::ZERO));
        for (task, left) in open_waits.due(Instant::now(), now, may_hold) {
            let thread = self.threads.get(&task);
            let (Some(thread), Some(row)) = (thread, self.timeline.row(&left)) else {
                continue;
            };
            let lasted = now.since(left.ts);
            let moment = TriggerMoment {
                cpu: left.cpu,
                reason: row.rule.reason,
                ran: None,
                runq: None,
                off: lasted,
                blocked: lasted,
                thread: Some(thread.names()),
                switches_per_second: self.rate.per_second,
            };
            if let Some(trigger) = about_waits().find(|one| one.holds(&moment))
                && lasts(&left, thread.pid, thread.tid)
            {
                open_waits.is_told(task);
                let what = || format!("{trigger}: {}, and still is", in_words(&moment));
                let fired = FiredSwitch {
                    task: task.get(),
                    ts_ns: left.ts.as_ns(),
                    is_open: true,
                };
                fire(&mut self.fired, now, fired, what);
            }
        }
    }

    /// The first firing since the last call.
    pub fn take(&mut self) -> Option<Firing> {
        self.ended.swap(0, 1);
        for task in self.ended[0].drain(..) {
            self.threads.remove(&task);
            if let Some(open_waits) = &mut self.open_waits {
                open_waits.forget(task);
            }
        }
        self.look_at_open_waits(Timestamp::from_ns(monotonic_ns()));
        self.fired.take()
    }
}

/// The switch in this record. What cannot be understood is counted when rows are made of the records.
fn decoded(record: &[u8]) -> Option<SwitchEvent> {
    let mut found = None;
    let _ = decode_records(RawKind::Switches, record, |event| {
        if let Event::Switch(switch) = event {
            found = Some(switch);
        }
    });
    found
}

/// Keeps the first firing, and counts the others.
fn fire(
    fired: &mut Option<Firing>,
    at: Timestamp,
    switch: FiredSwitch,
    what: impl FnOnce() -> String,
) {
    match fired {
        Some(firing) => firing.more += 1,
        None => {
            *fired = Some(Firing {
                at,
                what: what(),
                switch,
                more: 0,
            });
        }
    }
}

/// Of what a condition held: `web-3 (pid 12, tid 15) on CPU 1 was off the CPU for 31 ms, …`.
fn in_words(moment: &TriggerMoment<'_>) -> String {
    let mut words = match moment.thread {
        Some(TriggerThread { pid, tid, comm }) => format!("{comm} (pid {pid}, tid {tid})"),
        None => "a thread without a name".to_owned(),
    };
    words += &format!(" on CPU {}", moment.cpu);
    let parts = [
        moment.off.map(|off| format!("off the CPU for {off}")),
        moment.runq.map(|runq| format!("{runq} of it runnable")),
        moment.ran.map(|ran| format!("ran {ran}")),
        Some(format!("left by {}", moment.reason)),
        Some(format!("{} switches/s", moment.switches_per_second)),
    ];
    for part in parts.into_iter().flatten() {
        words += ", ";
        words += &part;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole second is counted before there is a rate.
    #[test]
    fn the_rate_is_that_of_the_last_whole_second() {
        let start = Instant::now();
        let mut rate = SwitchRate::new(start);
        rate.add(500, start + Duration::from_millis(500));
        assert_eq!(rate.per_second, 0);
        rate.add(1_500, start + Duration::from_secs(2));
        assert_eq!(rate.per_second, 1_000);
        rate.add(10, start + Duration::from_millis(2_100));
        assert_eq!(rate.per_second, 1_000);
    }
}

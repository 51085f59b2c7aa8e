//! Looks at switches while they are recorded, for the conditions at which a flight recorder makes a
//! dump (`--when`).

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use swtch_capture::{RawKind, decode_records};
use swtch_core::{
    Arch, Event, Pid, Switch, SwitchEvent, SyscallTable, TaskEvent, TaskEventKind, TaskKey, Tid,
    Timeline, Timestamp, Trigger, TriggerMoment, TriggerThread,
};
use swtch_output::text::from_bytes;

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
    fired: Option<Firing>,
}

struct WatchedThread {
    pid: Pid,
    tid: Tid,
    comm: String,
}

/// A condition that held.
#[derive(Clone, Debug)]
pub struct Firing {
    /// When the switch happened.
    pub at: Timestamp,
    /// Which condition, and of what, in words.
    pub what: String,
    /// Number of further switches at which one held.
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
        };
        self.threads.insert(task.task, thread);
    }

    /// Looks at switches, given by their records.
    pub fn look(&mut self, records: &[u8], count: u64) {
        self.rate.add(count, Instant::now());
        // What cannot be understood is counted when rows are made of the records.
        let _ = decode_records(RawKind::Switches, records, |event| {
            if let Event::Switch(switch) = event
                && switch.in_scope
            {
                self.look_at(&switch);
            }
        });
    }

    fn look_at(&mut self, event: &SwitchEvent) {
        let Some(switch) = self.timeline.row(event) else {
            return;
        };
        let thread = self.threads.get(&switch.task);
        let thread = thread.map(|thread| TriggerThread {
            pid: thread.pid,
            tid: thread.tid,
            comm: &thread.comm,
        });
        let moment = TriggerMoment {
            switch: &switch,
            thread,
            switches_per_second: self.rate.per_second,
        };
        let Some(trigger) = self.triggers.iter().find(|one| one.holds(&moment)) else {
            return;
        };
        match &mut self.fired {
            Some(firing) => firing.more += 1,
            None => {
                let what = format!("{trigger}: {}", in_words(&moment));
                self.fired = Some(Firing {
                    at: event.ts,
                    what,
                    more: 0,
                });
            }
        }
    }

    /// The first firing since the last call.
    pub fn take(&mut self) -> Option<Firing> {
        self.ended.swap(0, 1);
        for task in self.ended[0].drain(..) {
            self.threads.remove(&task);
        }
        self.fired.take()
    }
}

/// Of what a condition held: `web-3 (pid 12, tid 15) on CPU 1 was off the CPU for 31 ms, …`.
fn in_words(moment: &TriggerMoment<'_>) -> String {
    let Switch {
        wait,
        ran,
        rule,
        cpu,
        ..
    } = moment.switch;
    let mut words = match moment.thread {
        Some(TriggerThread { pid, tid, comm }) => format!("{comm} (pid {pid}, tid {tid})"),
        None => "a thread without a name".to_owned(),
    };
    words += &format!(" on CPU {cpu}");
    let parts = [
        wait.off.map(|off| format!("off the CPU for {off}")),
        wait.runq.map(|runq| format!("{runq} of it runnable")),
        ran.map(|ran| format!("ran {ran}")),
        Some(format!("left by {}", rule.reason)),
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

//! Waits that last. A thread that hangs makes no switch at which a condition could hold, so those
//! that are blocked are looked at once a second.
//!
//! Records do not tell all beginnings of runs: in a recording of some processes, a thread may come
//! after one that is not recorded. So the kernel is asked before anything is said: a thread that is
//! asleep, and has made no switch since the one that was recorded, is still in that wait. Whether a
//! thread that could run does run is not told there; waits in run queues are judged when they end.

use std::time::Instant;

use rustc_hash::FxHashMap;
use swtch_core::{CpuId, Nanos, Pid, Reason, Switch, SwitchEvent, TaskKey, Tid, Timestamp};
use swtch_host::thread::{read_counters, read_state};

use super::SECOND;

/// The last switch-out of each thread.
pub(super) struct OpenWaits {
    last: FxHashMap<TaskKey, OpenWait>,
    looked: Instant,
}

/// A switch-out after which nothing was seen of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenWait {
    pub cpu: CpuId,
    pub reason: Reason,
    pub since: Timestamp,
    /// The thread's switches until then, by the kernel's count.
    kernel_count: u64,
    /// Whether a condition has held for this wait.
    pub is_told: bool,
}

impl OpenWait {
    pub(super) fn lasted(&self, now: Timestamp) -> Option<Nanos> {
        now.since(self.since)
    }

    /// Whether the thread is asleep in this wait still; false where the kernel does not tell.
    pub(super) fn lasts(&self, pid: Pid, tid: Tid) -> bool {
        // The state before the count: had it moved on since, the count would have grown.
        let state = read_state(pid, tid).ok().flatten();
        let is_asleep = state.is_some_and(|state| "SDTt".contains(state));
        let counters = read_counters(pid, tid).ok().flatten();
        is_asleep && counters.is_some_and(|(_, now)| now.switches() == self.kernel_count)
    }
}

impl OpenWaits {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: FxHashMap::default(),
            looked: now,
        }
    }

    /// Notes a switch-out. Those of different CPUs may come in any order.
    pub(super) fn note(&mut self, event: &SwitchEvent, row: &Switch) {
        let is_older = |known: &OpenWait| known.since > row.ts;
        if self.last.get(&row.task).is_some_and(is_older) {
            return;
        }
        let departure = OpenWait {
            cpu: row.cpu,
            reason: row.rule.reason,
            since: row.ts,
            kernel_count: event.kernel_count,
            is_told: false,
        };
        self.last.insert(row.task, departure);
    }

    pub(super) fn forget(&mut self, task: TaskKey) {
        self.last.remove(&task);
    }

    /// The waits that were not told yet, if it is time to look at them.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(TaskKey, OpenWait)> {
        if now - self.looked < SECOND {
            return Vec::new();
        }
        self.looked = now;
        let waits = self.last.iter().filter(|(_, one)| !one.is_told);
        waits.map(|(task, one)| (*task, *one)).collect()
    }

    pub(super) fn is_told(&mut self, task: TaskKey) {
        if let Some(wait) = self.last.get_mut(&task) {
            wait.is_told = true;
        }
    }
}

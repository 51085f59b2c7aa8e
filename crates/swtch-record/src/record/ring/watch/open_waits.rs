//! Waits that last. A thread that hangs makes no switch at which a condition could hold, so those
//! that are blocked are looked at once a second.
//!
//! Records do not tell all beginnings of runs: in a recording of some processes, a thread may come
//! after one that is not recorded. So the kernel is asked before anything is said: a thread that is
//! asleep, and has made no switch since the one that was recorded, is still in that wait. Whether a
//! thread that could run does run is not told there; waits in run queues are judged when they end.

use std::time::Instant;

use rustc_hash::FxHashMap;
use swtch_core::{Nanos, Pid, SwitchEvent, TaskKey, Tid, Timestamp};
use swtch_host::thread::{read_counters, read_state};
use swtch_wire::SwitchPeek;

use super::{SECOND, decoded};

/// The last switch-out of each thread.
pub(super) struct OpenWaits {
    last: FxHashMap<TaskKey, LastSwitch>,
    looked: Instant,
}

/// A switch-out after which nothing was seen of the thread. Few are ever looked at, so the record is only
/// copied.
struct LastSwitch {
    since: Timestamp,
    record: Box<[u8]>,
    /// True if a condition has held for this wait.
    is_told: bool,
}

/// Returns true if the thread is still asleep in the wait that began with this switch-out; false where the kernel does
/// not tell.
pub(super) fn lasts(left: &SwitchEvent, pid: Pid, tid: Tid) -> bool {
    // The state before the count: had it moved on since, the count would have grown.
    let state = read_state(pid, tid).ok().flatten();
    let is_asleep = state.is_some_and(|state| "SDTt".contains(state));
    let counters = read_counters(pid, tid).ok().flatten();
    is_asleep && counters.is_some_and(|(_, now)| now.switches() == left.kernel_count)
}

impl OpenWaits {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            last: FxHashMap::default(),
            looked: now,
        }
    }

    /// Notes a switch-out. Those of different CPUs may come in any order.
    pub(super) fn note(&mut self, peek: &SwitchPeek<'_>) {
        let Some(task) = peek.task else {
            return;
        };
        match self.last.get_mut(&task) {
            Some(known) if known.since > peek.ts => {}
            Some(known) => {
                known.since = peek.ts;
                known.record.copy_from_slice(peek.record);
                known.is_told = false;
            }
            None => {
                let first = LastSwitch {
                    since: peek.ts,
                    record: peek.record.into(),
                    is_told: false,
                };
                self.last.insert(task, first);
            }
        }
    }

    pub(super) fn forget(&mut self, task: TaskKey) {
        self.last.remove(&task);
    }

    /// The switch-outs of waits that were not told yet and are long enough, if it is time to look at them.
    pub(super) fn due(
        &mut self,
        now: Instant,
        at: Timestamp,
        is_long_enough: impl Fn(Nanos) -> bool,
    ) -> Vec<(TaskKey, SwitchEvent)> {
        if now - self.looked < SECOND {
            return Vec::new();
        }
        self.looked = now;
        let waits = self.last.iter().filter(|(_, one)| !one.is_told);
        let waits = waits.filter(|(_, one)| at.since(one.since).is_some_and(&is_long_enough));
        waits
            .filter_map(|(task, one)| Some((*task, decoded(&one.record)?)))
            .collect()
    }

    pub(super) fn is_told(&mut self, task: TaskKey) {
        if let Some(wait) = self.last.get_mut(&task) {
            wait.is_told = true;
        }
    }
}

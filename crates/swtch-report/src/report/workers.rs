//! Goroutines that waited, by what for and where: the sums of what looks saw.
//!
//! Threads say nothing of that. Those of Go's runtime sleep for want of a goroutine that can run, be the goroutines idle or
//! all at one lock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use swtch_core::{Nanos, Pid};
use swtch_store::WaitingWorkersRow;

/// What goroutines wait for at a lock of the package `sync` (`waitReasonStrings` in `runtime/runtime2.go`).
const LOCKS: [&str; 3] = ["sync.Mutex.Lock", "sync.RWMutex.Lock", "sync.RWMutex.RLock"];

/// The number of a stack that there is not.
const UNPLACED: u32 = u32::MAX;

/// The time of goroutines.
#[derive(Clone, Debug, Default)]
pub struct WorkerTimes {
    /// Time at locks in each user stack, in ns.
    pub at_locks: FxHashMap<u32, u64>,
    /// The same of those that could run, and had no thread.
    pub runnable: FxHashMap<u32, u64>,
    /// All time, by what they waited for in the words of the runtime.
    reasons: BTreeMap<String, Nanos>,
    /// The processes whose goroutines were read.
    processes: BTreeSet<Pid>,
}

impl WorkerTimes {
    /// Adds what one look saw.
    pub fn add(&mut self, row: &WaitingWorkersRow) {
        self.processes.insert(row.pid);
        let ns = u128::from(row.between.as_ns()) * u128::from(row.thousandths) / 1000;
        let time = Nanos::from_ns(u64::try_from(ns).unwrap_or(u64::MAX));
        let stack = row.stack.unwrap_or(UNPLACED);
        let places = match &row.reason {
            None => Some(&mut self.runnable),
            Some(reason) if LOCKS.contains(&reason.as_str()) => Some(&mut self.at_locks),
            Some(_) => None,
        };
        if let Some(places) = places {
            let sum = places.entry(stack).or_default();
            *sum = sum.saturating_add(time.as_ns());
        }
        if let Some(reason) = &row.reason {
            *self.reasons.entry(reason.clone()).or_default() += time;
        }
    }

    /// All time at locks.
    pub fn at_locks(&self) -> Nanos {
        sum_of(&self.at_locks)
    }

    /// The time in which goroutines could have worked, and did not.
    pub fn lost(&self) -> Nanos {
        sum_of(&self.at_locks) + sum_of(&self.runnable)
    }

    /// What goroutines waited for, the longest first, with the time.
    pub fn reasons(&self) -> Vec<(&str, Nanos)> {
        let reasons = self.reasons.iter();
        let mut reasons: Vec<_> = reasons.map(|(name, time)| (name.as_str(), *time)).collect();
        reasons.sort_by_key(|(_, time)| Reverse(*time));
        reasons
    }

    /// True if goroutines of this process were read.
    pub fn are_known_of(&self, pid: Option<Pid>) -> bool {
        pid.is_some_and(|pid| self.processes.contains(&pid))
    }
}

/// The sum of the time in all stacks.
pub fn sum_of(stacks: &FxHashMap<u32, u64>) -> Nanos {
    let sum = |sum: u64, ns: &u64| sum.saturating_add(*ns);
    Nanos::from_ns(stacks.values().fold(0, sum))
}

#[cfg(test)]
mod tests {
    use swtch_core::Timestamp;

    use super::*;

    #[test]
    fn goroutines_at_locks_and_those_that_could_run_lose_time() {
        let row = |ts, reason: Option<&str>, stack, thousandths| WaitingWorkersRow {
            ts: Timestamp::from_ns(ts),
            pid: Pid::new(7),
            reason: reason.map(str::to_owned),
            stack,
            thousandths,
            between: Nanos::from_ns(20),
        };
        let mut times = WorkerTimes::default();
        let rows = [
            row(1, Some("sync.Mutex.Lock"), Some(3), 2_000),
            row(1, Some("IO wait"), Some(4), 50_000),
            row(2, Some("sync.Mutex.Lock"), Some(3), 1_500),
            row(2, Some("sync.RWMutex.RLock"), None, 1_000),
            row(2, None, Some(5), 500),
        ];
        rows.iter().for_each(|row| times.add(row));
        assert_eq!(times.at_locks.get(&3), Some(&70));
        let ns = Nanos::from_ns;
        assert_eq!(sum_of(&times.at_locks), ns(90));
        assert_eq!((sum_of(&times.runnable), times.lost()), (ns(10), ns(100)));
        assert_eq!(
            times.reasons()[..2],
            [("IO wait", ns(1_000)), ("sync.Mutex.Lock", ns(70))]
        );
        assert!(times.are_known_of(Some(Pid::new(7))) && !times.are_known_of(Some(Pid::new(8))));
    }
}

//! Counts how waits began and ended: in which stacks tasks waited, which wakers ended the waits, and from which stacks;
//! and in which stacks the holders of a lock were while tasks waited for it.

use std::hash::Hash;

use rustc_hash::FxHashMap;
use swtch_core::{EndedBy, Ender, Nanos, Switch, WakerKind};

use super::names::Names;
use super::waker::Waker;

/// Counts of waits that belong together: those for one reason, or for one object.
#[derive(Clone, Debug, Default)]
pub struct WaitEnds {
    /// Number of waits that each waker ended.
    pub wakers: FxHashMap<Waker, u64>,
    /// Time of waits in each user stack of the waiting tasks, in ns.
    pub waited_in: FxHashMap<u32, u64>,
    /// Number of waits that were ended from each user stack of a waker.
    pub woken_from: FxHashMap<u32, u64>,
    /// Time of waits for a lock while it was held in each user stack, in ns, where a look saw it.
    pub held_in: FxHashMap<u32, u64>,
}

impl WaitEnds {
    /// Adds the wait before a row's run.
    pub fn add(&mut self, row: &Switch, names: &Names) {
        let Some(waker) = Waker::of(row, names) else {
            self.add_place(row);
            return;
        };
        count(&mut self.wakers, waker, 1);
        self.add_stacks(row);
    }

    /// Adds the stacks that a wait was seen in, with its time. A wait that a look met counts with `seen_for`, the time that
    /// it stands for; others with their time off the CPU.
    fn add_place(&mut self, row: &Switch) {
        let time = row.wait.seen_for.or(row.wait.off);
        if let (Some(stack), Some(time)) = (row.wait.stacks.user, time) {
            count(&mut self.waited_in, stack, time.as_ns());
        }
        if let (Some(stack), Some(time)) = (row.wait.holder_stack, time) {
            count(&mut self.held_in, stack, time.as_ns());
        }
    }

    /// Adds the stacks of a wait that a waker ended, but not the waker.
    pub fn add_stacks(&mut self, row: &Switch) {
        self.add_place(row);
        if let Some(stack) = row.wait.wakeup.waker_stacks.user {
            count(&mut self.woken_from, stack, 1);
        }
    }

    /// Adds what was counted of other waits.
    pub fn merge(&mut self, other: &Self) {
        add_all(&mut self.wakers, &other.wakers);
        add_all(&mut self.waited_in, &other.waited_in);
        add_all(&mut self.woken_from, &other.woken_from);
        add_all(&mut self.held_in, &other.held_in);
    }
}

/// Divides `blocked` among these stacks, in proportion to the time that was seen in each, in ns. What was seen of waits
/// stands for all of them, and for their time off the CPU, of which some passed in run queues.
pub fn scaled(seen: &FxHashMap<u32, u64>, blocked: Nanos) -> impl Iterator<Item = (u32, u64)> {
    let all = u128::from(seen.values().sum::<u64>().max(1));
    let blocked = u128::from(blocked.as_ns());
    let part = move |ns: u64| u64::try_from(u128::from(ns) * blocked / all).unwrap_or(u64::MAX);
    seen.iter().map(move |(stack, ns)| (*stack, part(*ns)))
}

/// As [`scaled`], for waits of which some have no stack: no stack gets more than was seen of it.
pub fn scaled_down(seen: &FxHashMap<u32, u64>, blocked: Nanos) -> impl Iterator<Item = (u32, u64)> {
    let all: u64 = seen.values().sum();
    scaled(seen, blocked.min(Nanos::from_ns(all)))
}

/// Returns what ended a wait of the task with this index, seen from it; `families` has a number for the program of each
/// task.
pub fn ended_by(waker: Option<Waker>, task: usize, families: &[usize]) -> EndedBy {
    let (ender, own) = match waker {
        Some(Waker::Task(waker)) if families[waker] == families[task] => (Ender::Own, Some(waker)),
        Some(Waker::Task(_)) => (Ender::Other, None),
        Some(Waker::Other(WakerKind::Timer)) => (Ender::Timer, None),
        Some(Waker::Other(_)) => (Ender::Interrupt, None),
        None => (Ender::Unseen, None),
    };
    EndedBy { ender, own }
}

/// Adds each of these counts to that of the same key.
fn add_all<K: Copy + Eq + Hash>(into: &mut FxHashMap<K, u64>, from: &FxHashMap<K, u64>) {
    for (key, more) in from {
        count(into, *key, *more);
    }
}

/// Adds to a count. Nearly all keys have one already, and are found faster than `entry` does.
fn count<K: Eq + Hash>(counts: &mut FxHashMap<K, u64>, key: K, more: u64) {
    match counts.get_mut(&key) {
        Some(count) => *count += more,
        None => {
            counts.insert(key, more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(parts: impl Iterator<Item = (u32, u64)>) -> Vec<(u32, u64)> {
        let mut parts: Vec<_> = parts.collect();
        parts.sort_unstable();
        parts
    }

    #[test]
    fn stacks_share_the_time_in_proportion() {
        let seen: FxHashMap<u32, u64> = [(1, 30), (2, 10)].into_iter().collect();
        let parts = sorted(scaled(&seen, Nanos::from_ns(400)));
        assert_eq!(parts, [(1, 300), (2, 100)]);
        assert_eq!(
            scaled(&FxHashMap::default(), Nanos::from_ns(400)).count(),
            0
        );
    }

    /// Waits without a stack are not divided among those with one.
    #[test]
    fn no_stack_gets_more_than_was_seen_of_it() {
        let seen: FxHashMap<u32, u64> = [(1, 30), (2, 10)].into_iter().collect();
        let parts = |blocked| sorted(scaled_down(&seen, Nanos::from_ns(blocked)));
        assert_eq!(parts(400), [(1, 30), (2, 10)]);
        assert_eq!(parts(20), [(1, 15), (2, 5)]);
    }

    #[test]
    fn a_wait_was_ended_by_its_own_program_or_by_another() {
        let families = [7, 7, 8];
        let ended = |waker| {
            let ended = ended_by(waker, 0, &families);
            (ended.ender, ended.own)
        };
        assert_eq!(ended(Some(Waker::Task(1))), (Ender::Own, Some(1)));
        assert_eq!(ended(Some(Waker::Task(2))), (Ender::Other, None));
        let timer = Waker::Other(WakerKind::Timer);
        assert_eq!(ended(Some(timer)), (Ender::Timer, None));
        assert_eq!(ended(None), (Ender::Unseen, None));
    }
}

//! Counts how waits began and ended: in which stacks tasks waited, which wakers ended the waits, and from which stacks;
//! and where those were meanwhile who held what was waited for.

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

    /// A wait that was seen while it lasted stands for others.
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
        for (waker, count) in &other.wakers {
            *self.wakers.entry(*waker).or_default() += count;
        }
        for (stack, count) in &other.waited_in {
            *self.waited_in.entry(*stack).or_default() += count;
        }
        for (stack, count) in &other.woken_from {
            *self.woken_from.entry(*stack).or_default() += count;
        }
        for (stack, time) in &other.held_in {
            *self.held_in.entry(*stack).or_default() += time;
        }
    }
}

/// The time in each of these stacks, in ns, so that together they are `blocked`: what was seen of waits stands for all of
/// them, and for their time off the CPU, of which some passed in run queues.
pub fn scaled(seen: &FxHashMap<u32, u64>, blocked: Nanos) -> impl Iterator<Item = (u32, u64)> {
    let all = u128::from(seen.values().sum::<u64>().max(1));
    let blocked = u128::from(blocked.as_ns());
    let part = move |ns: u64| u64::try_from(u128::from(ns) * blocked / all).unwrap_or(u64::MAX);
    seen.iter().map(move |(stack, ns)| (*stack, part(*ns)))
}

/// The same of waits of several programs: those of which no stack was read are in none.
pub fn scaled_down(seen: &FxHashMap<u32, u64>, blocked: Nanos) -> impl Iterator<Item = (u32, u64)> {
    let all: u64 = seen.values().sum();
    scaled(seen, blocked.min(Nanos::from_ns(all)))
}

/// Returns what ended a wait of the task with this index, seen from it; `families` has a number for the program of each
/// task.
pub fn ended_by(waker: Option<Waker>, task: usize, families: &[usize]) -> EndedBy {
    let ender = match waker {
        Some(Waker::Task(waker)) if families[waker] == families[task] => Ender::Own,
        Some(Waker::Task(_)) => Ender::Other,
        Some(Waker::Other(WakerKind::Timer)) => Ender::Timer,
        Some(Waker::Other(_)) => Ender::Interrupt,
        None => Ender::Unseen,
    };
    let own = match waker {
        Some(Waker::Task(waker)) if ender == Ender::Own => Some(waker),
        _ => None,
    };
    EndedBy { ender, own }
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

//! Merges the streams of all CPUs into one in order of time; each stream is already in that order.
//!
//! ```text
//! cpu 0  ──a────c──────e──▶ ┐
//! cpu 1  ────b────────────▶ ├─▶ a b c d e
//! cpu 2  ──────────d──────▶ ┘
//! ```
//!
//! Nothing is merged before a recording has ended, so every stream is there as a whole and the
//! order is exact. A stream that is not in order (a clock went backwards) delays only its own later
//! events; they are passed on when they come, and counted.
//!
//! A machine with 128 CPUs has 256 streams, so the earliest event is not searched among all of them
//! each time: a heap holds the first moment of every stream. Events come in bursts by CPU, and
//! within a burst each event costs two comparisons. `cargo bench -p swtch-core --bench merge`
//! measures it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::event::Event;
use crate::units::Timestamp;

/// An item with a moment on the trace clock.
pub trait HasMoment {
    /// The moment of the item.
    fn ts(&self) -> Timestamp;
}

impl HasMoment for Event {
    fn ts(&self) -> Timestamp {
        Self::ts(self)
    }
}

/// The events of several streams, in order of time; of the same moment, in order of the streams.
pub struct Merge<S: Iterator> {
    streams: Vec<S>,
    /// The first event of each stream that is left; `None` for a stream that has ended.
    firsts: Vec<Option<S::Item>>,
    /// One entry per stream that has not ended: the moment of its first event, and its number.
    heads: BinaryHeap<Reverse<(Timestamp, usize)>>,
    last: Timestamp,
    late: u64,
}

impl<S: Iterator> std::fmt::Debug for Merge<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merge")
            .field("last", &self.last)
            .field("late", &self.late)
            .finish_non_exhaustive()
    }
}

impl<S: Iterator<Item: HasMoment>> Merge<S> {
    /// Merges these streams.
    pub fn new(streams: impl IntoIterator<Item = S>) -> Self {
        let mut streams: Vec<S> = streams.into_iter().collect();
        let firsts: Vec<_> = streams.iter_mut().map(Iterator::next).collect();
        let heads = firsts.iter().zip(0..);
        let heads =
            heads.filter_map(|(first, stream)| Some(Reverse((first.as_ref()?.ts(), stream))));
        Self {
            heads: heads.collect(),
            streams,
            firsts,
            last: Timestamp::default(),
            late: 0,
        }
    }

    /// Number of events that came after a later one.
    pub const fn late(&self) -> u64 {
        self.late
    }
}

impl<S: Iterator<Item: HasMoment>> Iterator for Merge<S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        let mut head = self.heads.peek_mut()?;
        let Reverse((ts, stream)) = *head;
        let following = self.streams[stream].next();
        match &following {
            Some(event) => *head = Reverse((event.ts(), stream)),
            None => drop(PeekMut::pop(head)),
        }
        self.late += u64::from(ts < self.last);
        self.last = self.last.max(ts);
        std::mem::replace(&mut self.firsts[stream], following)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::switch::{TaskEvent, TaskEventKind};
    use crate::{CgroupId, Class, Pid, TaskKey, Tid};

    /// An event of `stream`, which is kept as its task key.
    fn at(ns: u64, stream: u32) -> Event {
        Event::Task(TaskEvent {
            ts: Timestamp::from_ns(ns),
            kind: TaskEventKind::Seen,
            task: TaskKey::new(stream),
            tid: Tid::new(1),
            pid: Pid::new(1),
            parent_pid: Pid::new(0),
            started_ns: 0,
            comm: Vec::new(),
            cgroup: CgroupId::new(0),
            class: Class::Fair,
            prio: 120,
            is_kthread: false,
            in_scope: true,
            voluntary_switches: 0,
            involuntary_switches: 0,
        })
    }

    fn of(event: &Event) -> (u64, u32) {
        match event {
            Event::Task(task) => (task.ts.as_ns(), task.task.get()),
            _ => unreachable!("only tasks are made"),
        }
    }

    fn merged(streams: &[Vec<u64>]) -> (Vec<(u64, u32)>, u64) {
        let streams = streams
            .iter()
            .zip(0..)
            .map(|(times, stream)| times.iter().map(move |ns| at(*ns, stream)));
        let mut merge = Merge::new(streams);
        let events = merge.by_ref().map(|event| of(&event)).collect();
        (events, merge.late())
    }

    /// Streams of any number and length, with equal moments, gaps and bursts.
    #[test]
    fn order_is_that_of_sorting_all_streams() {
        for seed in 0..2_000 {
            let mut dice = Rng::with_seed(seed);
            let streams: Vec<Vec<u64>> = (0..dice.usize(1..20))
                .map(|_| {
                    let mut clock = 0;
                    let steps = dice.usize(0..60);
                    let mut step = || {
                        clock += dice.u64(0..4) * dice.u64(0..9);
                        clock
                    };
                    (0..steps).map(|_| step()).collect()
                })
                .collect();
            let numbered = streams.iter().zip(0..);
            let all =
                numbered.flat_map(|(times, stream)| times.iter().map(move |ns| (*ns, stream)));
            let mut expected: Vec<_> = all.collect();
            expected.sort_unstable();
            assert_eq!(merged(&streams), (expected, 0), "seed {seed}");
        }
    }

    /// A clock that goes backwards must lose no event, and must not go unnoticed.
    #[test]
    fn an_event_after_a_later_one_is_kept_and_counted() {
        let (events, late) = merged(&[vec![10, 5, 30], vec![7, 20]]);
        let times: Vec<_> = events.iter().map(|event| event.0).collect();
        assert_eq!((times, late), (vec![7, 10, 5, 20, 30], 1));
    }
}

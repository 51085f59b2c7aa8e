//! Merges the streams of all CPUs into one in order of time; each stream is already in that order.
//!
//! ```text
//! cpu 0  ──a────c──────e──▶ ┐
//! cpu 1  ────b────────────▶ ├─▶ a b c │ e waits: cpu 1 may still bring something earlier
//! cpu 2  ──────────d──────▶ ┘         └ horizon
//! ```
//!
//! The source says from time to time up to which moment it has delivered everything (the
//! *horizon*); records before it are passed on in order. A record that comes later than the horizon
//! that covered it is passed on at once and counted.
//!
//! A machine with 128 CPUs has 256 streams, so the earliest record is not searched among all of
//! them each time: a heap holds the first record of every stream that is not empty. Records come in
//! bursts by CPU, and within a burst each record costs one comparison. `cargo bench -p swtch-core
//! --bench merge` measures both.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::event::Event;
use crate::units::Timestamp;

/// Merges streams of records, usually two per CPU.
#[derive(Debug, Default)]
pub struct Merge {
    streams: Vec<VecDeque<Event>>,
    /// One entry per stream that is not empty: the moment of its first record, and the number of
    /// the stream, which orders records of the same moment.
    heads: BinaryHeap<Reverse<(Timestamp, usize)>>,
    horizon: Timestamp,
    late: u64,
}

impl Merge {
    /// Adds a record at the end of `stream`.
    pub fn push(&mut self, stream: usize, event: Event) {
        if stream >= self.streams.len() {
            self.streams.resize_with(stream + 1, VecDeque::new);
        }
        if event.ts() < self.horizon {
            self.late += 1;
        }
        if self.streams[stream].is_empty() {
            self.heads.push(Reverse((event.ts(), stream)));
        }
        self.streams[stream].push_back(event);
    }

    /// Passes on every record before `horizon`, in order of time.
    pub fn take_until(&mut self, horizon: Timestamp, mut sink: impl FnMut(Event)) {
        self.horizon = self.horizon.max(horizon);
        while let Some(stream) = self.take_earliest_stream() {
            let next = self.heads.peek().map(|Reverse(head)| *head);
            let queue = &mut self.streams[stream];
            let is_due = |event: &Event| {
                let ts = event.ts();
                ts < self.horizon && next.is_none_or(|next| (ts, stream) < next)
            };
            while queue.front().is_some_and(is_due) {
                queue.pop_front().map(&mut sink);
            }
            if let Some(event) = queue.front() {
                self.heads.push(Reverse((event.ts(), stream)));
            }
        }
    }

    /// Passes on all remaining records, in order of time.
    pub fn take_all(&mut self, sink: impl FnMut(Event)) {
        self.take_until(Timestamp::from_ns(u64::MAX), sink);
    }

    /// Number of records that came after the horizon that should have covered them.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Takes the stream with the earliest record from the heap, if that record is before the
    /// horizon.
    fn take_earliest_stream(&mut self) -> Option<usize> {
        let Reverse((ts, stream)) = *self.heads.peek()?;
        if ts >= self.horizon {
            return None;
        }
        self.heads.pop();
        Some(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::{TaskEvent, TaskEventKind};
    use crate::{CgroupId, Class, Pid, TaskKey, Tid};

    fn at(ns: u64) -> Event {
        Event::Task(TaskEvent {
            ts: Timestamp::from_ns(ns),
            kind: TaskEventKind::Seen,
            task: TaskKey::new(1),
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

    fn taken(merge: &mut Merge, horizon: u64) -> Vec<u64> {
        let mut times = Vec::new();
        merge.take_until(Timestamp::from_ns(horizon), |event| {
            times.push(event.ts().as_ns())
        });
        times
    }

    #[test]
    fn streams_come_out_in_order_of_time_up_to_the_horizon() {
        let mut merge = Merge::default();
        for (stream, ns) in [(0, 1), (0, 3), (0, 5), (1, 2), (2, 4)] {
            merge.push(stream, at(ns));
        }
        assert_eq!(taken(&mut merge, 5), [1, 2, 3, 4]);
        assert_eq!(taken(&mut merge, u64::MAX), [5]);
        assert_eq!(merge.late(), 0);
    }

    /// The hypervisor can take a virtual CPU away between reading the clock and writing the record.
    #[test]
    fn a_late_record_is_kept_and_counted() {
        let mut merge = Merge::default();
        merge.push(0, at(10));
        assert_eq!(taken(&mut merge, 20), [10]);
        merge.push(1, at(9));
        assert_eq!(taken(&mut merge, 20), [9]);
        assert_eq!(merge.late(), 1);
    }
}

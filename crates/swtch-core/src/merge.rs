//! One order out of many: each CPU's stream is in order of time, the trace must be too.
//!
//! ```text
//! cpu 0  ──a────c──────e──▶ ┐
//! cpu 1  ────b────────────▶ ├─▶ a b c │ e waits: cpu 1 may still bring something earlier
//! cpu 2  ──────────d──────▶ ┘         └ horizon
//! ```
//!
//! The source says from time to time up to which moment it has brought everything (the
//! *horizon*); records before it are handed on in order. A record that comes later than the
//! horizon that covered it is handed on at once and counted.

use std::collections::VecDeque;

use crate::event::Event;
use crate::units::Timestamp;

/// Merges streams, one a CPU.
#[derive(Debug, Default)]
pub struct Merge {
    streams: Vec<VecDeque<Event>>,
    horizon: Timestamp,
    late: u64,
}

impl Merge {
    /// Adds a record at the end of a stream.
    pub fn push(&mut self, stream: usize, event: Event) {
        if stream >= self.streams.len() {
            self.streams.resize_with(stream + 1, VecDeque::new);
        }
        if event.ts() < self.horizon {
            self.late += 1;
        }
        self.streams[stream].push_back(event);
    }

    /// Hands on, in order of time, every record before `horizon`.
    pub fn take_until(&mut self, horizon: Timestamp, mut sink: impl FnMut(Event)) {
        self.horizon = self.horizon.max(horizon);
        while let Some(stream) = self.earliest_stream() {
            let queue = &mut self.streams[stream];
            // Stay on this stream while it is the earliest: records come in bursts by CPU.
            match queue.front() {
                Some(event) if event.ts() < self.horizon => {
                    if let Some(event) = queue.pop_front() {
                        sink(event);
                    }
                }
                _ => return,
            }
        }
    }

    /// Hands on everything that is left, in order of time.
    pub fn take_all(&mut self, sink: impl FnMut(Event)) {
        self.take_until(Timestamp::from_ns(u64::MAX), sink);
    }

    /// How many records came after the horizon that should have covered them.
    pub const fn late(&self) -> u64 {
        self.late
    }

    fn earliest_stream(&self) -> Option<usize> {
        let heads = self.streams.iter().enumerate();
        heads
            .filter_map(|(i, queue)| Some((queue.front()?.ts(), i)))
            .min()
            .map(|(_, i)| i)
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

    /// A CPU of a virtual machine can be taken away between reading the clock and the record.
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

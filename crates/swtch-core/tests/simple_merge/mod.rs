//! A merge that is obviously right: it searches all streams for each record. The test compares with
//! its order, the benchmark with its time.

use std::collections::VecDeque;

use swtch_core::{CgroupId, Class, Event, Pid, TaskEvent, TaskEventKind, TaskKey, Tid, Timestamp};

/// Streams, each in order of time.
#[derive(Default)]
pub struct SimpleMerge {
    streams: Vec<VecDeque<Event>>,
    horizon: Timestamp,
}

impl SimpleMerge {
    /// Adds a record at the end of a stream.
    pub fn push(&mut self, stream: usize, event: Event) {
        if stream >= self.streams.len() {
            self.streams.resize_with(stream + 1, VecDeque::new);
        }
        self.streams[stream].push_back(event);
    }

    /// Passes on every record before `horizon`, the earliest first; of equal ones, that of the
    /// first stream.
    pub fn take_until(&mut self, horizon: Timestamp, mut sink: impl FnMut(Event)) {
        self.horizon = self.horizon.max(horizon);
        while let Some(stream) = self.earliest_stream() {
            let queue = &mut self.streams[stream];
            match queue.front() {
                Some(event) if event.ts() < self.horizon => sink(queue.pop_front().unwrap()),
                _ => return,
            }
        }
    }

    fn earliest_stream(&self) -> Option<usize> {
        let heads = self.streams.iter().enumerate();
        let heads = heads.filter_map(|(i, queue)| Some((queue.front()?.ts(), i)));
        heads.min().map(|(_, i)| i)
    }
}

/// A record of stream `stream`, which is kept as its task key.
pub fn record(ns: u64, stream: usize) -> Event {
    Event::Task(TaskEvent {
        ts: Timestamp::from_ns(ns),
        kind: TaskEventKind::Seen,
        task: TaskKey::new(u32::try_from(stream).unwrap()),
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

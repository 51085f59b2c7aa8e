//! The tasks that live, for a recording that forgets its oldest records: those that named a task may
//! be among them.
//!
//! Records come CPU by CPU. A task that moved is told of by several, so what is newer comes first at
//! times: the end of a task before its start.

use rustc_hash::FxHashMap;
use swtch_core::{Pid, Timestamp};

use crate::layout::TaskRecord;

/// Numbers of `enum task_event` in `bpf/record.h`.
const TASK_SEEN: u32 = 0;
const TASK_EXIT: u32 = 4;

/// Length of a record, in bytes.
const LENGTH: usize = size_of::<TaskRecord>();

/// The newest record of each task that lives.
#[derive(Debug, Default)]
pub struct LivingTasks {
    records: FxHashMap<u32, LastTaskRecord>,
}

#[derive(Debug)]
struct LastTaskRecord {
    record: [u8; LENGTH],
    has_ended: bool,
}

impl LivingTasks {
    /// Takes the bytes of task records, those of each CPU in order of time.
    pub fn meet(&mut self, bytes: &[u8]) {
        for record in bytes.as_chunks::<LENGTH>().0 {
            let key = number_at(record, std::mem::offset_of!(TaskRecord, task));
            let event = number_at(record, std::mem::offset_of!(TaskRecord, event));
            let known = self.records.get(&key);
            if known.is_some_and(|known| time_of(&known.record) > time_of(record)) {
                continue;
            }
            let task = LastTaskRecord {
                record: *record,
                // Its last switch-out follows the record of its end, maybe in the next segment.
                has_ended: event == TASK_EXIT,
            };
            self.records.insert(key, task);
        }
    }

    /// Their processes, each as often as it has threads.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        let pid = std::mem::offset_of!(TaskRecord, pid);
        let tasks = self.records.values();
        tasks.map(move |task| Pid::new(number_at(&task.record, pid)))
    }

    /// Their number, and for each a record that it was there at this moment. Those that have ended
    /// since the last call are among them, and are forgotten then.
    pub fn records_at(&mut self, ts: Timestamp) -> (u64, Vec<u8>) {
        let mut bytes = Vec::with_capacity(self.records.len() * LENGTH);
        for LastTaskRecord { record, .. } in self.records.values() {
            let start = bytes.len();
            bytes.extend_from_slice(record);
            let seen = TASK_SEEN.to_ne_bytes();
            let event = start + std::mem::offset_of!(TaskRecord, event);
            bytes[event..event + seen.len()].copy_from_slice(&seen);
            let moment = ts.as_ns().to_ne_bytes();
            let at = start + std::mem::offset_of!(TaskRecord, ts);
            bytes[at..at + moment.len()].copy_from_slice(&moment);
        }
        let count = u64::try_from(self.records.len()).unwrap_or(u64::MAX);
        self.records.retain(|_, task| !task.has_ended);
        (count, bytes)
    }
}

fn time_of(record: &[u8; LENGTH]) -> u64 {
    let bytes = record[std::mem::offset_of!(TaskRecord, ts)..].first_chunk();
    u64::from_ne_bytes(*bytes.expect("a record is longer"))
}

fn number_at(record: &[u8; LENGTH], offset: usize) -> u32 {
    let bytes = record[offset..].first_chunk();
    u32::from_ne_bytes(*bytes.expect("a record is longer"))
}

#[cfg(test)]
mod tests {
    use swtch_core::TaskEventKind;

    use zerocopy::IntoBytes as _;

    use super::*;
    use crate::records::decode_tasks;

    fn record(task: u32, event: u32, ts: u64) -> Vec<u8> {
        let record = TaskRecord {
            kind: 2,
            event,
            ts,
            task,
            tid: task,
            pid: task,
            ..Default::default()
        };
        record.as_bytes().to_vec()
    }

    fn seen(living: &mut LivingTasks, at: u64) -> Vec<u32> {
        let (count, bytes) = living.records_at(Timestamp::from_ns(at));
        let tasks: Vec<_> = decode_tasks(&bytes).collect();
        assert_eq!(count, u64::try_from(tasks.len()).unwrap());
        for task in &tasks {
            assert_eq!((task.kind, task.ts.as_ns()), (TaskEventKind::Seen, at));
        }
        let mut keys: Vec<_> = tasks.iter().map(|task| task.task.get()).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn each_task_is_told_of_again_until_it_has_ended_and_once_more() {
        let mut living = LivingTasks::default();
        for (task, event) in [
            (7, 1),
            (8, TASK_SEEN),
            (7, 2),
            (8, TASK_EXIT),
            (9, TASK_EXIT),
        ] {
            living.meet(&record(task, event, 5));
        }
        assert_eq!(seen(&mut living, 100), [7, 8, 9]);
        assert_eq!(seen(&mut living, 200), [7]);
        assert!(living.processes().eq([Pid::new(7)]));
    }

    /// It was seen on one CPU and ended on another, whose records are read first.
    #[test]
    fn a_task_whose_end_comes_first_is_forgotten_too() {
        let mut living = LivingTasks::default();
        living.meet(&record(7, TASK_EXIT, 20));
        living.meet(&record(7, TASK_SEEN, 10));
        assert_eq!(seen(&mut living, 100), [7]);
        assert_eq!(seen(&mut living, 200), [0; 0]);
    }
}

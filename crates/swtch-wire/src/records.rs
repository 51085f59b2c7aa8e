//! Records outside of the rings: decodes what was kept of them as bytes.
//!
//! While it records, a recorder only copies the bytes of its rings to a file. This says what they
//! mean, later, in the same process or in another one: then the version that the file names must be
//! one of [`READABLE_WIRES`]. Only `decode` knows the fields.

use std::ops::RangeInclusive;

use swtch_core::{CgroupId, Event, Nanos, TaskEvent, TaskKey, Timestamp};

use crate::decode::{decode_switch, decode_task};
use crate::layout::{SwitchRecord, TaskRecord, first};

/// Version of the records of `bpf/record.h`. Whoever changes their layout or the meaning of a field
/// adds one, and to [`READABLE_WIRES`] what is read no more.
pub const WIRE_VERSION: u32 = 3;

/// Versions that are decoded. All have one layout: records of version 1 never have the evidence of a lock of
/// the kernel, and those before version 3 never a sender as the waker.
pub const READABLE_WIRES: RangeInclusive<u32> = 1..=WIRE_VERSION;

/// The kinds of records of the eBPF programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawKind {
    /// A task left a CPU.
    Switches,
    /// A task was seen, started, renamed or ended.
    Tasks,
}

/// The facts about a switch that can be told before it is decoded.
#[derive(Clone, Copy, Debug)]
pub struct SwitchPeek<'a> {
    /// The bytes to decode.
    pub record: &'a [u8],
    /// The task that left.
    pub task: Option<TaskKey>,
    /// The moment at which it left.
    pub ts: Timestamp,
    /// True if the task was asked for.
    pub in_scope: bool,
    /// No part of the wait before the run is longer than this.
    pub wait_at_most: Nanos,
    /// The run is not longer than this.
    pub run_at_most: Nanos,
}

/// Looks at the switches in these bytes; a torn one at the end is left out.
pub fn peek_switches(bytes: &[u8]) -> impl Iterator<Item = SwitchPeek<'_>> {
    let records = bytes.chunks_exact(size_of::<SwitchRecord>());
    records.filter_map(|record| Some(peek(record, &first::<SwitchRecord>(record)?)))
}

fn peek<'a>(record: &'a [u8], of: &SwitchRecord) -> SwitchPeek<'a> {
    // A task that never left a CPU has waited since it was woken. A time of 0 is not known.
    let since = [of.out_ts, of.wake_ts].into_iter().find(|ts| *ts != 0);
    let (wait, run) = match (of.run_start, since) {
        (0, _) => (0, 0),
        (start, None) => (0, of.ts.saturating_sub(start)),
        (start, Some(since)) => (start.saturating_sub(since), of.ts.saturating_sub(start)),
    };
    SwitchPeek {
        record,
        task: TaskKey::from_wire(of.task),
        ts: Timestamp::from_ns(of.ts),
        in_scope: of.in_scope != 0,
        wait_at_most: Nanos::from_ns(wait),
        run_at_most: Nanos::from_ns(run),
    }
}

/// Decodes the records in `bytes` and passes each event to `sink`. Returns how many records could
/// not be understood, a torn one at the end included.
pub fn decode_records(kind: RawKind, bytes: &[u8], mut sink: impl FnMut(Event)) -> u64 {
    let mut unreadable = 0;
    let mut take = |event: Option<Event>| match event {
        Some(event) => sink(event),
        None => unreadable += 1,
    };
    match kind {
        RawKind::Switches => bytes.chunks(size_of::<SwitchRecord>()).for_each(|bytes| {
            take(first::<SwitchRecord>(bytes).and_then(|record| decode_switch(&record)))
        }),
        RawKind::Tasks => bytes
            .chunks(size_of::<TaskRecord>())
            .for_each(|bytes| take(decode_task(bytes))),
    }
    unreadable
}

/// The tasks in the bytes of task records; those that cannot be understood are left out.
pub fn decode_tasks(bytes: &[u8]) -> impl Iterator<Item = TaskEvent> {
    let records = bytes.chunks_exact(size_of::<TaskRecord>());
    records.filter_map(|record| match decode_task(record) {
        Some(Event::Task(task)) => Some(task),
        _ => None,
    })
}

/// The cgroups that the switches in these bytes name, as often as the name changes.
pub fn cgroups_of(bytes: &[u8]) -> impl Iterator<Item = CgroupId> {
    let at = std::mem::offset_of!(SwitchRecord, cgroup);
    let records = bytes.chunks_exact(size_of::<SwitchRecord>());
    let mut last = None;
    records.filter_map(move |record| {
        let cgroup = u64::from_ne_bytes(*record[at..].first_chunk()?);
        (last.replace(cgroup) != Some(cgroup)).then(|| CgroupId::new(cgroup))
    })
}

#[cfg(test)]
mod tests {
    use swtch_core::{Arch, SyscallTable, Timeline};

    use zerocopy::IntoBytes as _;

    use super::*;

    fn switch(cgroup: u64) -> Vec<u8> {
        let record = SwitchRecord {
            kind: 1,
            task: 7,
            waker: 9,
            cgroup,
            ..Default::default()
        };
        record.as_bytes().to_vec()
    }

    #[test]
    fn bytes_are_decoded_and_what_is_no_record_is_counted() {
        let mut bytes = [switch(1), switch(2)].concat();
        let mut decoded = 0;
        assert_eq!(
            decode_records(RawKind::Switches, &bytes, |_| decoded += 1),
            0
        );
        assert_eq!(decoded, 2);
        bytes.truncate(bytes.len() - 1);
        assert_eq!(decode_records(RawKind::Switches, &bytes, |_| ()), 1);
        bytes[0] = 9;
        assert_eq!(decode_records(RawKind::Switches, &bytes, |_| ()), 2);
    }

    /// They are looked up while they exist, so they are read before anything else is decoded.
    #[test]
    fn cgroups_are_told_at_once() {
        let bytes = [5, 5, 6, 5].map(switch).concat();
        let cgroups: Vec<_> = cgroups_of(&bytes).map(|cgroup| cgroup.get()).collect();
        assert_eq!(cgroups, [5, 6, 5]);
    }

    /// Whatever is known of a switch, its row has no longer run, and no part of its wait is longer.
    #[test]
    fn no_row_has_a_longer_wait_or_run_than_a_peek_allows() {
        let moments = [0, 100, 250, 400];
        let mut compared = 0;
        for (out_ts, wake_ts, run_start) in [0, 1, 2, 3].into_iter().flat_map(|a| {
            let pairs = (0..16).map(|number| (number / 4, number % 4));
            pairs.map(move |(b, c): (usize, usize)| (moments[a], moments[b], moments[c]))
        }) {
            for was_runnable in [0, 1] {
                let record = SwitchRecord {
                    kind: 1,
                    task: 7,
                    ts: 500,
                    out_ts,
                    wake_ts,
                    run_start,
                    was_runnable,
                    in_scope: 1,
                    ..Default::default()
                };
                let bytes = record.as_bytes().to_vec();
                let peek = peek_switches(&bytes).next().expect("one record");
                let mut timeline = Timeline::new(SyscallTable::of(Arch::X86_64));
                let unread = decode_records(RawKind::Switches, peek.record, |event| {
                    let Event::Switch(event) = event else {
                        unreachable!("a switch")
                    };
                    let row = timeline.row(&event).expect("the task has a name");
                    let parts = [row.wait.off, row.wait.runq, row.wait.blocked()];
                    let wait = parts.into_iter().flatten().max().unwrap_or_default();
                    assert!(wait <= peek.wait_at_most, "{out_ts} {wake_ts} {run_start}");
                    assert!(row.ran.unwrap_or_default() <= peek.run_at_most);
                    compared += 1;
                });
                assert_eq!(unread, 0);
            }
        }
        assert_eq!(compared, 128);
    }
}

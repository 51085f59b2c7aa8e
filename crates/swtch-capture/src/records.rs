//! Records outside of the rings: decodes what was kept of them as bytes.
//!
//! While it records, a recorder only copies the bytes of its rings to a file. This says what they
//! mean, later, in the same process or in another one: then [`WIRE_VERSION`] must be the version
//! that the file names. Only `decode` knows the fields.

use swtch_core::{CgroupId, Event, StackKind, TaskEvent, TaskKey};

use crate::decode::{decode_switch, decode_task, hints};
use crate::drain::RawKind;
use crate::skeleton::recorder::types::{switch_record, task_record};

/// Version of the records of `bpf/record.h`. Whoever changes their layout or the meaning of a field
/// adds one: a file with records of another version is refused.
pub const WIRE_VERSION: u32 = 1;

/// What a recorder must know of a switch while its tasks and cgroups are still there.
#[derive(Clone, Copy, Debug)]
pub struct SwitchHints {
    /// The cgroup that the task was in.
    pub cgroup: CgroupId,
    /// The stacks that the record names, each with its task.
    pub stacks: [Option<(StackKind, u32, Option<TaskKey>)>; 4],
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
        RawKind::Switches => bytes
            .chunks(size_of::<switch_record>())
            .for_each(|bytes| take(switch_of(bytes).and_then(|record| decode_switch(&record)))),
        RawKind::Tasks => bytes
            .chunks(size_of::<task_record>())
            .for_each(|bytes| take(decode_task(bytes))),
    }
    unreadable
}

/// The tasks in the bytes of task records; those that cannot be understood are left out.
pub fn decode_tasks(bytes: &[u8]) -> impl Iterator<Item = TaskEvent> {
    let records = bytes.chunks_exact(size_of::<task_record>());
    records.filter_map(|record| match decode_task(record) {
        Some(Event::Task(task)) => Some(task),
        _ => None,
    })
}

/// What must be known at once of the switches in these bytes.
pub fn switch_hints(bytes: &[u8]) -> impl Iterator<Item = SwitchHints> {
    let records = bytes.chunks_exact(size_of::<switch_record>());
    records.filter_map(|record| Some(hints(&switch_of(record)?)))
}

/// The cgroups that the switches in these bytes name, as often as the name changes.
pub fn cgroups_of(bytes: &[u8]) -> impl Iterator<Item = CgroupId> {
    let at = std::mem::offset_of!(switch_record, cgroup);
    let records = bytes.chunks_exact(size_of::<switch_record>());
    let mut last = None;
    records.filter_map(move |record| {
        let cgroup = u64::from_ne_bytes(*record[at..].first_chunk()?);
        (last.replace(cgroup) != Some(cgroup)).then(|| CgroupId::new(cgroup))
    })
}

fn switch_of(bytes: &[u8]) -> Option<switch_record> {
    if bytes.len() < size_of::<switch_record>() {
        return None;
    }
    // SAFETY: there are enough bytes, any bytes are a record (plain numbers without padding), and
    // the read need not be aligned.
    Some(unsafe { bytes.as_ptr().cast::<switch_record>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of `bpf/record.h` up to the state of a CPU, without comments and spaces, in
    /// version [`WIRE_VERSION`].
    const NUMBER_OF_HEADER: u64 = 0x58a7_1ce9_4d66_e67e;

    /// FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo), 64 bits.
    fn number_of(text: &str) -> u64 {
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    fn without_comments(text: &str) -> String {
        let parts = text.split("/*").enumerate();
        let code = parts.map(|(nth, part)| match nth {
            0 => part,
            _ => part.split_once("*/").expect("a comment ends").1,
        });
        code.flat_map(str::split_ascii_whitespace).collect()
    }

    /// Who changes the records must change their version, or a file of an older program would be
    /// decoded wrongly.
    #[test]
    fn the_version_changes_with_the_records() {
        let header = include_str!("bpf/record.h");
        let (records, _) = header
            .split_once("struct watched_word {")
            .expect("it is there");
        assert_eq!(
            number_of(&without_comments(records)),
            NUMBER_OF_HEADER,
            "record.h has changed: add one to WIRE_VERSION, and put this number here"
        );
    }

    fn switch(cgroup: u64, stacks: [i32; 4]) -> Vec<u8> {
        let record = switch_record {
            kind: 1,
            task: 7,
            waker: 9,
            cgroup,
            kernel_stack: stacks[0],
            user_stack: stacks[1],
            waker_kernel_stack: stacks[2],
            waker_user_stack: stacks[3],
            ..Default::default()
        };
        let start = (&raw const record).cast::<u8>();
        // SAFETY: a record is plain numbers without padding.
        unsafe { std::slice::from_raw_parts(start, size_of::<switch_record>()) }.to_vec()
    }

    #[test]
    fn bytes_are_decoded_and_what_is_no_record_is_counted() {
        let mut bytes = [switch(1, [-1; 4]), switch(2, [-1; 4])].concat();
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

    /// Both are looked up while they exist, so they are read before anything else is decoded.
    #[test]
    fn cgroups_and_stacks_are_told_at_once() {
        let records = [
            switch(5, [-1; 4]),
            switch(5, [3, -1, -1, 4]),
            switch(6, [-17; 4]),
            switch(5, [-1; 4]),
        ];
        let bytes = records.concat();
        let cgroups: Vec<_> = cgroups_of(&bytes).map(|cgroup| cgroup.get()).collect();
        assert_eq!(cgroups, [5, 6, 5]);
        let stacks = switch_hints(&bytes).flat_map(|hints| hints.stacks.into_iter().flatten());
        let (task, waker) = (Some(TaskKey::new(7)), Some(TaskKey::new(9)));
        let expected = [(StackKind::Kernel, 3, task), (StackKind::User, 4, waker)];
        assert_eq!(stacks.collect::<Vec<_>>(), expected);
    }
}

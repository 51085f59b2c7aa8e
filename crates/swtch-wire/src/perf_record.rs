//! Records of the kernel (`enum perf_event_type`), and the form in which they are kept: all of one
//! length, so that they can be packed.

use swtch_core::merge::HasMoment;
use swtch_core::{Nanos, Pid, Timestamp};

/// Bytes of the kernel's record of a switch: header, thread, time, CPU.
pub const KERNEL_SWITCH_BYTES: usize = 32;

/// Length of a kept record: five numbers of 8 bytes and a name.
const KEPT_BYTES: usize = 48;

/// Most bytes of a name, with a final zero: `TASK_COMM_LEN`.
const NAME_BYTES: usize = 16;

/// Types of the kernel's records (`include/uapi/linux/perf_event.h`).
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SWITCH: u32 = 14;

/// Bits of `misc`: a switch-out, of a thread that could run on; a name that comes of an exec.
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
const COMM_EXEC: u16 = 1 << 13;

/// The kind of a record: what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PerfRecordKind {
    /// The thread came onto the CPU.
    In,
    /// It left the CPU asleep.
    Blocked,
    /// It left the CPU and could have run on: it was preempted, or called `sched_yield`.
    Preempted,
    /// It was there when the recording began, or has changed its name.
    Name,
    /// It executed a program.
    Exec,
    /// It was started; the number is the process of its parent.
    Fork,
    /// It is about to end: its last switch-out has no other record.
    Exit,
    /// So many records as the number says were lost before.
    Lost,
    /// It was seen to be blocked; see [`PerfRecord::look`].
    Look,
}

impl PerfRecordKind {
    const ALL: [Self; 9] = [
        Self::In,
        Self::Blocked,
        Self::Preempted,
        Self::Name,
        Self::Exec,
        Self::Fork,
        Self::Exit,
        Self::Lost,
        Self::Look,
    ];
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfRecord {
    /// The moment, on the trace clock.
    pub ts: Timestamp,
    /// The kind of the record.
    pub kind: PerfRecordKind,
    /// The CPU on which it was written.
    pub cpu: u16,
    /// Process of the thread; 0 if the kernel does not tell it any more.
    pub pid: Pid,
    /// The thread.
    pub tid: Pid,
    /// The process of the parent, how many records were lost, or what a look found.
    pub number: u64,
    /// The name, filled with zeros.
    pub comm: [u8; NAME_BYTES],
}

impl HasMoment for PerfRecord {
    fn ts(&self) -> Timestamp {
        self.ts
    }
}

impl PerfRecord {
    /// A thread that `/proc` tells of.
    pub fn named(ts: Timestamp, pid: Pid, tid: Pid, comm: &[u8]) -> Self {
        Self {
            ts,
            kind: PerfRecordKind::Name,
            cpu: 0,
            pid,
            tid,
            number: 0,
            comm: name(comm),
        }
    }

    /// A thread that was seen to be blocked in the stack of this number, so long after the look before.
    pub fn looked_at(ts: Timestamp, (pid, tid): (Pid, Pid), stack: u32, between: Nanos) -> Self {
        // In µs, up to an hour.
        let between = u32::try_from(between.as_ns() / 1000).unwrap_or(u32::MAX);
        Self {
            kind: PerfRecordKind::Look,
            number: u64::from(stack) | u64::from(between) << 32,
            ..Self::named(ts, pid, tid, b"")
        }
    }

    /// The number of the stack that a look found, and the time since the look before.
    pub const fn look(&self) -> (u32, Nanos) {
        let [a, b, c, d, ..] = self.number.to_le_bytes();
        let between = Nanos::from_ns((self.number >> 32) * 1000);
        (u32::from_le_bytes([a, b, c, d]), between)
    }

    /// Reads a record of the kernel: header, body, and at its end the thread, the time and the CPU.
    /// `None` for one that is of no use here.
    pub fn of_kernel(bytes: &[u8]) -> Option<Self> {
        let kind = word(bytes, 0)?;
        let misc = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
        let end = bytes.len().checked_sub(24)?;
        let (mut pid, mut tid) = (word(bytes, end)?, word(bytes, end + 4)?);
        let (mut number, mut comm) = (0, [0; NAME_BYTES]);
        let kind = match kind {
            SWITCH if misc & SWITCH_OUT == 0 => PerfRecordKind::In,
            SWITCH if misc & SWITCH_OUT_PREEMPT != 0 => PerfRecordKind::Preempted,
            SWITCH => PerfRecordKind::Blocked,
            COMM => {
                (pid, tid) = (word(bytes, 8)?, word(bytes, 12)?);
                comm = name(bytes.get(16..end)?);
                match misc & COMM_EXEC {
                    0 => PerfRecordKind::Name,
                    _ => PerfRecordKind::Exec,
                }
            }
            // Both: pid, ppid, tid, ptid, time.
            FORK | EXIT => {
                (pid, tid) = (word(bytes, 8)?, word(bytes, 16)?);
                number = u64::from(word(bytes, 12)?);
                match kind {
                    FORK => PerfRecordKind::Fork,
                    _ => PerfRecordKind::Exit,
                }
            }
            // The number of the event, then how many.
            LOST => {
                number = u64::from(word(bytes, 16)?) | u64::from(word(bytes, 20)?) << 32;
                PerfRecordKind::Lost
            }
            _ => return None,
        };
        let low = u64::from(word(bytes, end + 8)?);
        let high = u64::from(word(bytes, end + 12)?);
        Some(Self {
            ts: Timestamp::from_ns(low | high << 32),
            kind,
            cpu: u16::try_from(word(bytes, end + 16)?).ok()?,
            pid: Pid::new(pid),
            tid: Pid::new(tid),
            number,
            comm,
        })
    }

    /// Appends the kept form.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let place = u64::from(self.kind as u8) | u64::from(self.cpu) << 16;
        let thread = u64::from(self.pid.get()) | u64::from(self.tid.get()) << 32;
        for number in [self.ts.as_ns(), place, thread, self.number] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.comm);
    }

    fn decode(bytes: &[u8; KEPT_BYTES]) -> Option<Self> {
        let number = |index: usize| {
            let bytes = bytes[8 * index..].first_chunk().expect("four numbers");
            u64::from_le_bytes(*bytes)
        };
        let [kind, _, cpu_low, cpu_high, rest @ ..] = number(1).to_le_bytes();
        if rest != [0; 4] {
            return None;
        }
        let thread = number(2);
        let low = u32::try_from(thread & u64::from(u32::MAX)).ok()?;
        let high = u32::try_from(thread >> 32).ok()?;
        Some(Self {
            ts: Timestamp::from_ns(number(0)),
            kind: *PerfRecordKind::ALL.get(usize::from(kind))?,
            cpu: u16::from_le_bytes([cpu_low, cpu_high]),
            pid: Pid::new(low),
            tid: Pid::new(high),
            number: number(3),
            comm: *bytes[32..].first_chunk().expect("a name"),
        })
    }

    /// The name without the zeros behind it.
    pub fn name(&self) -> &[u8] {
        let end = self.comm.iter().position(|byte| *byte == 0);
        &self.comm[..end.unwrap_or(NAME_BYTES)]
    }
}

/// Hands on kept records. Returns how many could not be understood.
pub fn decode_perf_records(bytes: &[u8], mut keep: impl FnMut(PerfRecord)) -> u64 {
    let (records, rest) = bytes.as_chunks::<KEPT_BYTES>();
    let mut odd = u64::from(!rest.is_empty());
    for record in records {
        match PerfRecord::decode(record) {
            Some(record) => keep(record),
            None => odd += 1,
        }
    }
    odd
}

/// A name up to its first zero, in the form in which it is kept.
fn name(bytes: &[u8]) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    let bytes = bytes.iter().take_while(|byte| **byte != 0);
    // One byte stays zero, as in the kernel.
    for (to, byte) in name[..NAME_BYTES - 1].iter_mut().zip(bytes) {
        *to = *byte;
    }
    name
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of every record: thread 70 of process 7, moment 5,000,000,001, CPU 3.
    fn ending() -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend([7_u32, 70].iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(5_000_000_001_u64.to_ne_bytes());
        bytes.extend([3_u32, 0].iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    fn kernel_record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend([0, 0]);
        bytes.extend(body);
        bytes.extend(ending());
        let length = u16::try_from(bytes.len()).expect("short");
        bytes[6..8].copy_from_slice(&length.to_ne_bytes());
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn records_of_the_kernel_are_understood() {
        let switch =
            |misc| PerfRecord::of_kernel(&kernel_record(SWITCH, misc, &[])).expect("whole");
        assert_eq!(switch(0).kind, PerfRecordKind::In);
        assert_eq!(switch(SWITCH_OUT).kind, PerfRecordKind::Blocked);
        let preempted = switch(SWITCH_OUT | SWITCH_OUT_PREEMPT);
        assert_eq!(preempted.kind, PerfRecordKind::Preempted);
        assert_eq!(
            (preempted.pid.get(), preempted.tid.get(), preempted.cpu),
            (7, 70, 3)
        );
        assert_eq!(preempted.ts.as_ns(), 5_000_000_001);

        let body = [words(&[8, 7, 80, 70]), 5_u64.to_ne_bytes().to_vec()].concat();
        let fork = PerfRecord::of_kernel(&kernel_record(FORK, 0, &body)).expect("whole");
        assert_eq!(
            (fork.kind, fork.pid.get(), fork.tid.get()),
            (PerfRecordKind::Fork, 8, 80)
        );
        assert_eq!(fork.number, 7, "its parent");

        let body = [words(&[7, 70]), b"a name\0\0".to_vec()].concat();
        let exec = PerfRecord::of_kernel(&kernel_record(COMM, COMM_EXEC, &body)).expect("whole");
        assert_eq!(
            (exec.kind, exec.name()),
            (PerfRecordKind::Exec, &b"a name"[..])
        );

        let body = [1_u64.to_ne_bytes(), (5_u64 << 32).to_ne_bytes()].concat();
        let lost = PerfRecord::of_kernel(&kernel_record(LOST, 0, &body)).expect("whole");
        assert_eq!((lost.kind, lost.number), (PerfRecordKind::Lost, 5 << 32));
    }

    #[test]
    fn a_record_that_is_cut_or_unknown_is_passed_over() {
        let whole = kernel_record(FORK, 0, &words(&[8, 7, 80, 70, 0, 0]));
        for length in 0..whole.len() {
            // It must not panic; a shorter one may still look like a record.
            let _ = PerfRecord::of_kernel(&whole[..length]);
        }
        assert_eq!(PerfRecord::of_kernel(&kernel_record(99, 0, &[])), None);
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let mut bytes = Vec::new();
        let mut records = Vec::new();
        for (number, kind) in PerfRecordKind::ALL.into_iter().enumerate() {
            let record = PerfRecord {
                ts: Timestamp::from_ns(u64::MAX - number as u64),
                kind,
                cpu: 65_535,
                pid: Pid::new(u32::MAX),
                tid: Pid::new(1),
                number: number as u64,
                comm: name(b"a name that is far too long"),
            };
            record.encode(&mut bytes);
            records.push(record);
        }
        let mut read = Vec::new();
        assert_eq!(decode_perf_records(&bytes, |record| read.push(record)), 0);
        assert_eq!(read, records);
        assert_eq!(read[0].name().len(), NAME_BYTES - 1);
        bytes[8] = 200;
        bytes.pop();
        assert_eq!(
            decode_perf_records(&bytes, |_| ()),
            2,
            "an odd kind, and a cut record"
        );
    }
}

//! Empties the rings: two per CPU, one of switches and one of task records.
//!
//! ```text
//!   kernel side writes ──▶ head          slots of one CPU in the mapped array, a power of two
//!  ┌───┬───┬───┬───┬───┬───┬───┬───┐
//!  │   │ r │ r │ r │   │   │   │   │
//!  └───┴───┴───┴───┴───┴───┴───┴───┘
//!   ▲    ▲ tail ──▶ read here
//!   origin: the position whose record lies in slot 0. It moves only while the ring is empty.
//! ```
//!
//! Records are passed on as the bytes that the kernel side wrote. They are decoded after the recording, when
//! there is time ([`swtch_wire`]). Each ring is in order of time.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapHandle};
use swtch_wire::RawKind;
use swtch_wire::layout::{SwitchRecord, TaskRecord};

use crate::counters::CpuStates;
use crate::error::Error;
use crate::mapped::Mapped;
use crate::record_ring::RecordRing;
use crate::skeleton::recorder::types::cpu_state;

/// Result of reading all rings of a source once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drained {
    /// Number of switches that were taken; of a user-mode scheduler's ring, events of any kind.
    pub switches: u64,
    /// Number of switches that waited in the fullest ring, taken or not.
    pub most_in_a_ring: u64,
}

impl Drained {
    /// Adds what reading another source gave.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            switches: self.switches + other.switches,
            most_in_a_ring: self.most_in_a_ring.max(other.most_in_a_ring),
        }
    }
}

/// Whole records of one ring, as the kernel side wrote them and in order of time.
#[derive(Clone, Copy, Debug)]
pub struct RawRecords<'a> {
    /// Number of the ring, below [`Capture::streams`](crate::Capture::streams).
    pub ring: usize,
    /// The kind of the records.
    pub kind: RawKind,
    /// Number of records.
    pub count: u64,
    /// Their bytes, which [`decode_records`](swtch_wire::decode_records) understands.
    pub bytes: &'a [u8],
}

/// The most switch records that are taken from one ring before the next has its turn. Those of a ring of task
/// records are limited by [`RecordRing`].
const TURN: u64 = 64 << 10;

/// The bytes of a task record.
type TaskBytes = [u8; size_of::<TaskRecord>()];

/// The task record in these bytes; `None` if they are too few. Of a longer one the rest is left out: the fields that are
/// known lie at its start.
fn task_bytes(record: &[u8]) -> Option<TaskBytes> {
    record.first_chunk().copied()
}

/// All rings of a capture: those of switches are numbered by CPU, those of task records follow.
pub(crate) struct CaptureRings {
    switches: SwitchRings,
    tasks: Vec<RecordRing<TaskBytes>>,
}

/// The rings of switch records.
struct SwitchRings {
    slots: Mapped<SwitchRecord>,
    slots_per_cpu: usize,
}

impl SwitchRings {
    fn map(map: &impl MapCore, cpus: usize, slots_per_cpu: u32) -> Result<Self, Error> {
        let slots_per_cpu = usize::try_from(slots_per_cpu).unwrap_or(usize::MAX);
        Ok(Self {
            slots: Mapped::new(map, cpus * slots_per_cpu)?,
            slots_per_cpu,
        })
    }

    /// Takes up to [`TURN`] records from one CPU's ring.
    fn take(
        &self,
        states: &CpuStates,
        cpu: usize,
        sink: &mut impl FnMut(RawRecords<'_>),
    ) -> Drained {
        let waiting = states.waiting(cpu);
        if waiting == 0 {
            return Drained::default();
        }
        let tail = states.counter(cpu, offset_of!(cpu_state, tail));
        let start = tail.load(Ordering::Relaxed);
        // While unread records wait, the kernel side does not move the origin.
        let origin = states
            .counter(cpu, offset_of!(cpu_state, origin))
            .load(Ordering::Relaxed);
        let taken = waiting.min(TURN);
        let (mut next, end) = (start - origin, start - origin + taken);
        while next < end {
            let bytes = self.bytes(cpu, next, end);
            let count = bytes.len() / size_of::<SwitchRecord>();
            let count = u64::try_from(count).expect("a length fits 64 bits");
            sink(RawRecords {
                ring: cpu,
                kind: RawKind::Switches,
                count,
                bytes,
            });
            next += count;
        }
        tail.store(start + taken, Ordering::Release);
        Drained {
            switches: taken,
            most_in_a_ring: waiting,
        }
    }

    /// The bytes of the records from the distance `from` to `to`, or to the last slot if that comes
    /// first.
    fn bytes(&self, cpu: usize, from: u64, to: u64) -> &[u8] {
        let wanted = usize::try_from(to - from).unwrap_or(usize::MAX);
        let slot = usize::try_from(from).unwrap_or(usize::MAX) & (self.slots_per_cpu - 1);
        let count = wanted.min(self.slots_per_cpu - slot);
        let first = cpu * self.slots_per_cpu + slot;
        let (start, _last) = (self.slots.at(first), self.slots.at(first + count - 1));
        let length = count * size_of::<SwitchRecord>();
        // SAFETY: all slots from the first to the last are in the mapping; the kernel side wrote
        // them before it moved `head` past them (acquired by `waiting`) and does not write them again
        // before `tail` is moved, which `take` does when the slice is gone.
        unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<u8>(), length) }
    }
}

impl CaptureRings {
    /// Maps the records of switches, and opens one ring of task records per CPU.
    pub fn open(
        records: &impl MapCore,
        slots_per_cpu: u32,
        task_rings: &[MapHandle],
    ) -> Result<Self, Error> {
        let open_one = |map: &MapHandle| RecordRing::of(map, "rings", task_bytes);
        Ok(Self {
            switches: SwitchRings::map(records, task_rings.len(), slots_per_cpu)?,
            tasks: task_rings.iter().map(open_one).collect::<Result<_, _>>()?,
        })
    }

    /// Number of all rings.
    pub fn count(&self) -> usize {
        2 * self.tasks.len()
    }

    /// Number of records that fit into a CPU's ring.
    pub fn slots_per_cpu(&self) -> u64 {
        u64::try_from(self.switches.slots_per_cpu).expect("a length fits 64 bits")
    }

    /// Number of records that were too short to be any, since the start.
    pub fn unreadable(&self) -> u64 {
        self.tasks.iter().map(RecordRing::unreadable).sum()
    }

    /// Takes the records from all rings, and passes their bytes on. Task records come first, so
    /// that most tasks are known when their switches come.
    pub fn take(&mut self, states: &CpuStates, mut sink: impl FnMut(RawRecords<'_>)) -> Drained {
        let cpus = states.cpus();
        for (index, ring) in self.tasks.iter_mut().enumerate() {
            let records = ring
                .take()
                .expect("invariant: only a callback that fails stops it, and this one never does");
            if records.is_empty() {
                continue;
            }
            sink(RawRecords {
                ring: cpus + index,
                kind: RawKind::Tasks,
                count: u64::try_from(records.len()).expect("a length fits 64 bits"),
                bytes: records.as_flattened(),
            });
        }
        (0..cpus)
            .map(|cpu| self.switches.take(states, cpu, &mut sink))
            .fold(Drained::default(), Drained::and)
    }
}

//! Empties the rings: two per CPU, one of switches and one of task records.
//!
//! ```text
//!   kernel side writes ──▶ head          slots of one CPU in the mapped array, a power of two
//!  ┌───┬───┬───┬───┬───┬───┬───┬───┐
//!  │   │ r │ r │ r │   │   │   │   │
//!  └───┴───┴───┴───┴───┴───┴───┴───┘
//!   ▲    ▲ tail ──▶ read here
//!   origin: this position stands in slot 0. It moves only while the ring is empty.
//! ```
//!
//! Records are passed on as the bytes that the kernel side wrote. They are decoded after the recording, when
//! there is time ([`swtch_wire`]). Each ring is in order of time.

use std::cell::RefCell;
use std::mem::offset_of;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapHandle, RingBuffer, RingBufferBuilder};
use swtch_wire::RawKind;
use swtch_wire::layout::{SwitchRecord, TaskRecord};

use crate::counters::CpuStates;
use crate::error::Error;
use crate::mapped::Mapped;
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
    /// The result of reading both sources.
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

/// Most records taken from one ring before the next has its turn.
const TURN: u64 = 64 << 10;

/// All rings of a capture: those of switches are numbered by CPU, those of task records follow.
pub(crate) struct CaptureRings {
    switches: SwitchRings,
    tasks: TaskRings,
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
        let head = states
            .counter(cpu, offset_of!(cpu_state, head))
            .load(Ordering::Acquire);
        let tail = states.counter(cpu, offset_of!(cpu_state, tail));
        let start = tail.load(Ordering::Relaxed);
        let waiting = head - start;
        if waiting == 0 {
            return Drained::default();
        }
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
        // them before it moved `head` past them (acquired by `take`) and does not write them again
        // before `tail` is moved, which `take` does when the slice is gone.
        unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<u8>(), length) }
    }
}

/// The rings of task records.
struct TaskRings {
    rings: Vec<RingBuffer<'static>>,
    inbox: Rc<RefCell<TaskInbox>>,
}

#[derive(Default)]
struct TaskInbox {
    bytes: Vec<u8>,
    /// Number of records that were too short for a task record, since the start.
    unreadable: u64,
}

impl TaskRings {
    fn open(maps: Vec<MapHandle>) -> Result<Self, Error> {
        let inbox = Rc::new(RefCell::new(TaskInbox::default()));
        let failed = |source| Error::Map {
            map: "rings",
            source,
        };
        let open_one = |map: MapHandle| {
            let inbox = Rc::clone(&inbox);
            let take = move |bytes: &[u8]| {
                let mut inbox = inbox.borrow_mut();
                // Of a record that is longer the rest is left out: the fields that are known lie at its
                // start.
                match bytes.get(..size_of::<TaskRecord>()) {
                    Some(record) => inbox.bytes.extend_from_slice(record),
                    None => inbox.unreadable += 1,
                }
                0
            };
            // The ring buffer borrows its map for as long as it lives, which is the whole capture.
            let map: &'static MapHandle = Box::leak(Box::new(map));
            let mut builder = RingBufferBuilder::new();
            builder.add(map, take).map_err(failed)?;
            builder.build().map_err(failed)
        };
        let rings = maps.into_iter().map(open_one).collect::<Result<_, _>>()?;
        Ok(Self { rings, inbox })
    }
}

impl CaptureRings {
    /// Maps the records of switches, and opens one ring of task records per CPU.
    pub fn open(
        records: &impl MapCore,
        slots_per_cpu: u32,
        task_rings: Vec<MapHandle>,
    ) -> Result<Self, Error> {
        Ok(Self {
            switches: SwitchRings::map(records, task_rings.len(), slots_per_cpu)?,
            tasks: TaskRings::open(task_rings)?,
        })
    }

    /// Number of all rings.
    pub fn count(&self) -> usize {
        2 * self.tasks.rings.len()
    }

    /// Number of records that fit into a CPU's ring.
    pub fn slots_per_cpu(&self) -> u64 {
        u64::try_from(self.switches.slots_per_cpu).expect("a length fits 64 bits")
    }

    /// Number of records that were too short to be any, since the start.
    pub fn unreadable(&self) -> u64 {
        self.tasks.inbox.borrow().unreadable
    }

    /// Takes the records from all rings, and passes their bytes on. Task records come first, so
    /// that most tasks are known when their switches come.
    pub fn take(&self, states: &CpuStates, mut sink: impl FnMut(RawRecords<'_>)) -> Drained {
        let cpus = states.cpus();
        for (index, ring) in self.tasks.rings.iter().enumerate() {
            // It returns the number of records, or the first error of the callback, which never fails.
            // Reading the mapped ring makes no system call that could fail or be interrupted.
            ring.consume_raw();
            let mut inbox = self.tasks.inbox.borrow_mut();
            if inbox.bytes.is_empty() {
                continue;
            }
            let count = inbox.bytes.len() / size_of::<TaskRecord>();
            sink(RawRecords {
                ring: cpus + index,
                kind: RawKind::Tasks,
                count: u64::try_from(count).expect("a length fits 64 bits"),
                bytes: &inbox.bytes,
            });
            inbox.bytes.clear();
        }
        (0..cpus)
            .map(|cpu| self.switches.take(states, cpu, &mut sink))
            .fold(Drained::default(), Drained::and)
    }
}

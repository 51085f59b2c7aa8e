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
//! Each ring is in order of time. The clock says up to which moment all records have arrived: a
//! record is published within microseconds of its time stamp, so once a ring was found empty, all
//! records from a little before that moment are here.

use std::cell::{Cell, RefCell};
use std::mem::offset_of;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapHandle, RingBuffer, RingBufferBuilder};
use swtch_core::{Event, Timestamp};

use crate::clock::monotonic_ns;
use crate::counters::CpuStates;
use crate::decode::{decode_switch, decode_task};
use crate::error::Error;
use crate::mapped::Mapped;
use crate::skeleton::recorder::types::{cpu_state, switch_record};

/// Result of reading all rings of a source once.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    /// Number of switches that were taken; of a user-mode scheduler's ring, events of any kind.
    pub switches: u64,
    /// All records before this moment have been delivered.
    pub horizon: Timestamp,
    /// Number of them that the fullest ring held.
    pub most_in_a_ring: u64,
}

impl Drained {
    /// The result of a source without rings: all before `horizon` has been delivered.
    pub const fn nothing(horizon: Timestamp) -> Self {
        Self {
            switches: 0,
            horizon,
            most_in_a_ring: 0,
        }
    }

    /// The result of reading both sources.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            switches: self.switches + other.switches,
            horizon: self.horizon.min(other.horizon),
            most_in_a_ring: self.most_in_a_ring.max(other.most_in_a_ring),
        }
    }
}

/// Most records taken from one ring before the next has its turn.
const TURN: u64 = 64 << 10;

/// Allowance for the time between reading the clock and publishing the record, in which a virtual
/// CPU may be away. If it is away longer, records are late, which is counted.
const SLACK_NS: u64 = 2_000_000;

/// All rings of a capture: those of switches are numbered by CPU, those of task records follow.
pub(crate) struct CaptureRings {
    switches: SwitchRings,
    tasks: TaskRings,
}

/// The rings of switch records.
struct SwitchRings {
    slots: Mapped<switch_record>,
    slots_per_cpu: u64,
    /// Number of records that could not be read, since the start.
    unreadable: Cell<u64>,
}

/// Result of draining one ring of switches.
struct DrainedTurn {
    taken: u64,
    waiting: u64,
    last: Option<Timestamp>,
}

impl SwitchRings {
    fn map(map: &impl MapCore, cpus: usize, slots_per_cpu: u32) -> Result<Self, Error> {
        let slots = usize::try_from(slots_per_cpu).unwrap_or(usize::MAX);
        Ok(Self {
            slots: Mapped::new(map, cpus * slots)?,
            slots_per_cpu: u64::from(slots_per_cpu),
            unreadable: Cell::new(0),
        })
    }

    /// Takes up to [`TURN`] records from one CPU's ring.
    fn take(&self, states: &CpuStates, cpu: usize, sink: &mut impl FnMut(Event)) -> DrainedTurn {
        let head = states
            .counter(cpu, offset_of!(cpu_state, head))
            .load(Ordering::Acquire);
        let tail = states.counter(cpu, offset_of!(cpu_state, tail));
        let start = tail.load(Ordering::Relaxed);
        let waiting = head - start;
        // While unread records wait, the kernel side does not move the origin.
        let origin = states
            .counter(cpu, offset_of!(cpu_state, origin))
            .load(Ordering::Relaxed);
        let mut turn = DrainedTurn {
            taken: waiting.min(TURN),
            waiting,
            last: None,
        };
        for position in start..start + turn.taken {
            match decode_switch(&self.record(cpu, position - origin)) {
                Some(event) => {
                    turn.last = Some(event.ts());
                    sink(event);
                }
                None => self.unreadable.update(|count| count + 1),
            }
        }
        tail.store(start + turn.taken, Ordering::Release);
        turn
    }

    fn record(&self, cpu: usize, distance: u64) -> switch_record {
        let slot = usize::try_from(distance & (self.slots_per_cpu - 1)).unwrap_or(usize::MAX);
        let per_cpu = usize::try_from(self.slots_per_cpu).unwrap_or(usize::MAX);
        // SAFETY: the slot is in the mapping; the kernel side wrote it before it moved `head` past
        // it (acquired above) and does not write it again before `tail` is moved.
        unsafe { self.slots.at(cpu * per_cpu + slot).read() }
    }
}

/// The rings of task records.
struct TaskRings {
    rings: Vec<RingBuffer<'static>>,
    inbox: Rc<RefCell<TaskEventBuffer>>,
}

#[derive(Default)]
struct TaskEventBuffer {
    events: Vec<Event>,
    unreadable: u64,
}

impl TaskRings {
    fn open(maps: Vec<MapHandle>) -> Result<Self, Error> {
        let inbox = Rc::new(RefCell::new(TaskEventBuffer::default()));
        let failed = |source| Error::Map {
            map: "rings",
            source,
        };
        let open_one = |map: MapHandle| {
            let inbox = Rc::clone(&inbox);
            let take = move |bytes: &[u8]| {
                let mut inbox = inbox.borrow_mut();
                match decode_task(bytes) {
                    Some(event) => inbox.events.push(event),
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
    pub const fn slots_per_cpu(&self) -> u64 {
        self.switches.slots_per_cpu
    }

    /// Number of records that could not be read, since the start.
    pub fn unreadable(&self) -> u64 {
        self.switches.unreadable.get() + self.tasks.inbox.borrow().unreadable
    }

    /// Takes the records from all rings, and passes each event on with the number of its ring.
    pub fn drain(&self, states: &CpuStates, mut sink: impl FnMut(usize, Event)) -> Drained {
        let looked = Timestamp::from_ns(monotonic_ns().saturating_sub(SLACK_NS));
        let mut drained = Drained::nothing(looked);
        let cpus = states.cpus();
        for (index, ring) in self.tasks.rings.iter().enumerate() {
            // Task records are few; a negative result is an interrupted call, which is repeated
            // soon.
            ring.consume_raw();
            let mut inbox = self.tasks.inbox.borrow_mut();
            inbox
                .events
                .drain(..)
                .for_each(|event| sink(cpus + index, event));
        }
        for cpu in 0..cpus {
            let turn = self
                .switches
                .take(states, cpu, &mut |event| sink(cpu, event));
            let horizon = turn.last.filter(|_| turn.taken < turn.waiting);
            drained = drained.and(Drained {
                switches: turn.taken,
                horizon: horizon.unwrap_or(looked),
                most_in_a_ring: turn.waiting,
            });
        }
        drained
    }
}

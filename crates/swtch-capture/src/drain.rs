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
use crate::load::Capture;
use crate::mapped::Mapped;
use crate::skeleton::recorder::types::{cpu_state, switch_record};

/// Result of draining all rings once.
#[derive(Clone, Copy, Debug)]
pub struct Drained {
    /// Number of switch records that were taken.
    pub switches: u64,
    /// All records before this moment have been delivered.
    pub horizon: Timestamp,
    /// Number of records that could not be read, since the start.
    pub unreadable: u64,
    /// Number of switch records that the fullest ring held.
    pub most_in_a_ring: u64,
}

/// Most records taken from one ring before the next has its turn.
const TURN: u64 = 64 << 10;

/// Allowance for the time between reading the clock and publishing the record, in which a virtual
/// CPU may be away. If it is away longer, records are late, which is counted.
const SLACK_NS: u64 = 2_000_000;

/// The rings of switch records.
pub(crate) struct SwitchRings {
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
    pub fn map(map: &impl MapCore, cpus: usize, slots_per_cpu: u32) -> Result<Self, Error> {
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

    /// Number of records that fit into a CPU's ring.
    pub const fn slots_per_cpu(&self) -> u64 {
        self.slots_per_cpu
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
pub(crate) struct TaskRings {
    rings: Vec<RingBuffer<'static>>,
    inbox: Rc<RefCell<TaskEventBuffer>>,
}

#[derive(Default)]
struct TaskEventBuffer {
    events: Vec<Event>,
    unreadable: u64,
}

impl TaskRings {
    pub fn open(maps: Vec<MapHandle>) -> Result<Self, Error> {
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

impl Capture {
    /// Number of rings that [`Self::drain`] numbers; streams from this number on are free for other
    /// sources.
    pub fn streams(&self) -> usize {
        self.cpu_states().cpus() + self.task_rings().rings.len()
    }

    /// Takes the records from the rings and passes each event on with the number of its ring.
    /// Events of one ring come in order of time.
    pub fn drain(&mut self, mut sink: impl FnMut(usize, Event)) -> Drained {
        let looked = Timestamp::from_ns(monotonic_ns().saturating_sub(SLACK_NS));
        let mut drained = Drained {
            switches: 0,
            horizon: looked,
            unreadable: 0,
            most_in_a_ring: 0,
        };
        let cpus = self.cpu_states().cpus();
        for (index, ring) in self.task_rings().rings.iter().enumerate() {
            // Task records are few; a negative result is an interrupted call, which is repeated
            // soon.
            ring.consume_raw();
            let mut inbox = self.task_rings().inbox.borrow_mut();
            inbox
                .events
                .drain(..)
                .for_each(|event| sink(cpus + index, event));
            drained.unreadable = inbox.unreadable;
        }
        let rings = self.switch_rings();
        for cpu in 0..cpus {
            let turn = rings.take(self.cpu_states(), cpu, &mut |event| sink(cpu, event));
            drained.switches += turn.taken;
            drained.most_in_a_ring = drained.most_in_a_ring.max(turn.waiting);
            if turn.taken < turn.waiting
                && let Some(last) = turn.last
            {
                drained.horizon = drained.horizon.min(last);
            }
        }
        drained.unreadable += rings.unreadable.get();
        drained
    }
}

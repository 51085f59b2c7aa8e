//! The memory that the player and all members share: the two barriers, and a place for each member to
//! leave what it did.
//!
//! ```text
//! member   ready ──┐                    body ── done ──┐
//! player           └ all ready: go ─▶                  └ the last one: over ─▶ all end
//! ```
//!
//! Who is done stays until all are: nobody's end takes CPU time from the others.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::gap;
use crate::cast::own_id;
use crate::error::Error;
use crate::outcome::Counted;
use crate::shared::{Shared, SharedSlice, Zeroed};
use crate::token::futex;

/// What the kernel's `include/linux/futex.h` takes for "all".
const ALL: u32 = i32::MAX.unsigned_abs();

/// Where player and members leave word for each other.
#[derive(Debug)]
pub(super) struct Desk {
    gates: Shared<Gates>,
    slots: SharedSlice<Slot>,
    complaint: Shared<Complaint>,
}

#[derive(Debug)]
struct Gates {
    ready: AtomicU32,
    go: AtomicU32,
    done: AtomicU32,
    over: AtomicU32,
}

// SAFETY: zero is a valid atomic number, and atomics may be used by several processes.
unsafe impl Zeroed for Gates {}

const LONGEST_COMPLAINT: usize = 512;

#[derive(Debug)]
struct Complaint {
    is_claimed: AtomicU32,
    length: AtomicU32,
    bytes: [AtomicU8; LONGEST_COMPLAINT],
}

// SAFETY: zero is a valid atomic number, and atomics may be used by several processes.
unsafe impl Zeroed for Complaint {}

/// What a member leaves. A line of its own, and the neighbour that the CPU fetches with it.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Slot {
    pid: AtomicU32,
    tid: AtomicU32,
    /// Number of the instruction that it is at.
    pub(super) at: AtomicU32,
    is_done: AtomicU32,
    /// Why its class could not be had: an error number, or 0.
    pub(super) class_refused: AtomicU32,
    /// The slice that the kernel gave, in ns, where one was asked for.
    pub(super) slice_ns: AtomicU64,
    began_ns: AtomicU64,
    ended_ns: AtomicU64,
    cpu_ns: AtomicU64,
    voluntary: AtomicU64,
    involuntary: AtomicU64,
    /// What it saw of its own switches.
    pub(super) gaps: gap::Left,
}

// SAFETY: zero is a valid atomic number, and atomics may be used by several processes.
unsafe impl Zeroed for Slot {}

/// What a member did, as read from its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) cpu_ns: u64,
    pub(super) counted: Counted,
}

impl Slot {
    /// Whose slot it is: the calling thread's.
    pub(super) fn claim(&self) {
        let id = own_id();
        self.pid.store(id.pid, Ordering::Relaxed);
        self.tid.store(id.tid, Ordering::Relaxed);
    }

    /// Leaves what was done.
    pub(super) fn leave(&self, began_ns: u64, ended_ns: u64, cpu: Duration, counted: Counted) {
        let cpu_ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        self.began_ns.store(began_ns, Ordering::Relaxed);
        self.ended_ns.store(ended_ns, Ordering::Relaxed);
        self.cpu_ns.store(cpu_ns, Ordering::Relaxed);
        self.voluntary.store(counted.voluntary, Ordering::Relaxed);
        self.involuntary
            .store(counted.involuntary, Ordering::Relaxed);
        self.is_done.store(1, Ordering::Release);
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire) != 0
    }

    pub(super) fn done(&self) -> Done {
        Done {
            pid: self.pid.load(Ordering::Relaxed),
            tid: self.tid.load(Ordering::Relaxed),
            began_ns: self.began_ns.load(Ordering::Relaxed),
            ended_ns: self.ended_ns.load(Ordering::Relaxed),
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
            counted: Counted {
                voluntary: self.voluntary.load(Ordering::Relaxed),
                involuntary: self.involuntary.load(Ordering::Relaxed),
            },
        }
    }
}

impl Desk {
    /// A desk for so many members.
    pub(super) fn new(members: usize) -> Result<Self, Error> {
        Ok(Self {
            gates: Shared::new()?,
            slots: SharedSlice::new(members)?,
            complaint: Shared::new()?,
        })
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn members(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// By a member: it is ready, and comes back when all are let go.
    pub(super) fn meet(&self) -> Result<(), Error> {
        let gates = &*self.gates;
        if gates.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.members() {
            futex::wake(&gates.ready, ALL)?;
        }
        wait_for(&gates.go)
    }

    /// By a member: it is done, and comes back when all are.
    pub(super) fn part(&self) -> Result<(), Error> {
        let gates = &*self.gates;
        if gates.done.fetch_add(1, Ordering::AcqRel) + 1 == self.members() {
            gates.over.store(1, Ordering::Release);
            return futex::wake(&gates.over, ALL);
        }
        wait_for(&gates.over)
    }

    /// By the player: whether all are ready; waits for it so long at most.
    pub(super) fn all_are_ready(&self, limit: Duration) -> Result<bool, Error> {
        let ready = self.gates.ready.load(Ordering::Acquire);
        if ready == self.members() {
            return Ok(true);
        }
        futex::sleep_while(&self.gates.ready, ready, Some(limit))?;
        Ok(false)
    }

    /// By the player: lets all go.
    pub(super) fn go(&self) -> Result<(), Error> {
        self.gates.go.store(1, Ordering::Release);
        futex::wake(&self.gates.go, ALL)
    }

    /// Whether all are done.
    pub(super) fn is_over(&self) -> bool {
        self.gates.over.load(Ordering::Acquire) != 0
    }

    /// By a member: why it cannot go on. The first one counts: the others follow from it.
    pub(super) fn complain(&self, why: &dyn fmt::Display) {
        let complaint = &*self.complaint;
        if complaint.is_claimed.swap(1, Ordering::AcqRel) == 0 {
            let why = why.to_string();
            for (place, byte) in complaint.bytes.iter().zip(why.bytes()) {
                place.store(byte, Ordering::Relaxed);
            }
            let length = u32::try_from(why.len().min(LONGEST_COMPLAINT)).unwrap_or_default();
            complaint.length.store(length, Ordering::Release);
        }
    }

    /// By the player, when a member has failed: what was complained. `None` when it was killed.
    pub(super) fn complaint(&self) -> Option<String> {
        let length = self.complaint.length.load(Ordering::Acquire) as usize;
        let said = self.complaint.bytes[..length].iter();
        let said: Vec<u8> = said.map(|byte| byte.load(Ordering::Relaxed)).collect();
        (length > 0).then(|| String::from_utf8_lossy(&said).into_owned())
    }
}

fn wait_for(gate: &AtomicU32) -> Result<(), Error> {
    while gate.load(Ordering::Acquire) == 0 {
        futex::sleep_while(gate, 0, None)?;
    }
    Ok(())
}

//! The memory that the player and all members share: two barriers, and a slot in which each member
//! stores its results.
//!
//! ```text
//! member   ready ──┐                    body ── done ──┐
//! player           └ all ready: go ─▶                  └ the last one: over ─▶ all end
//! ```
//!
//! A member that is done waits until all are done, so that its exit takes no CPU time from the
//! others.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::gap;
use crate::error::Error;
use crate::futex::{self, SharedScope};
use crate::outcome::SwitchCounts;
use crate::shared::{Shared, SharedSlice, Zeroed};
use crate::workers::own_id;

/// Shared memory of the player and all members.
#[derive(Debug)]
pub(super) struct LoadControl {
    gates: Shared<Gates>,
    slots: SharedSlice<ResultSlot>,
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

/// The results of a member, in shared memory. Aligned so that two slots share neither a cache line
/// nor a pair of adjacent lines, which the CPU prefetches together.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct ResultSlot {
    pid: AtomicU32,
    tid: AtomicU32,
    /// Index of the instruction that the member is executing.
    pub(super) at: AtomicU32,
    is_done: AtomicU32,
    /// Error number of the refused policy, or 0.
    pub(super) class_refused: AtomicU32,
    /// The slice that the kernel granted, in ns, if one was requested.
    pub(super) slice_ns: AtomicU64,
    began_ns: AtomicU64,
    ended_ns: AtomicU64,
    cpu_ns: AtomicU64,
    voluntary: AtomicU64,
    involuntary: AtomicU64,
    /// Gaps in which the member did not run.
    pub(super) gaps: gap::SharedGaps,
}

// SAFETY: zero is a valid atomic number, and atomics may be used by several processes.
unsafe impl Zeroed for ResultSlot {}

/// The results of a member, as read from its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberResult {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) cpu_ns: u64,
    pub(super) counted: SwitchCounts,
}

impl ResultSlot {
    /// Stores process and thread id of the calling thread, the owner of the slot.
    pub(super) fn claim(&self) {
        let id = own_id();
        self.pid.store(id.pid, Ordering::Relaxed);
        self.tid.store(id.tid, Ordering::Relaxed);
    }

    /// Stores the results and marks the member as done.
    pub(super) fn store(&self, began_ns: u64, ended_ns: u64, cpu: Duration, counted: SwitchCounts) {
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

    pub(super) fn done(&self) -> MemberResult {
        MemberResult {
            pid: self.pid.load(Ordering::Relaxed),
            tid: self.tid.load(Ordering::Relaxed),
            began_ns: self.began_ns.load(Ordering::Relaxed),
            ended_ns: self.ended_ns.load(Ordering::Relaxed),
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
            counted: SwitchCounts {
                voluntary: self.voluntary.load(Ordering::Relaxed),
                involuntary: self.involuntary.load(Ordering::Relaxed),
            },
        }
    }
}

impl LoadControl {
    /// Shared memory for `members` members.
    pub(super) fn new(members: usize) -> Result<Self, Error> {
        Ok(Self {
            gates: Shared::new()?,
            slots: SharedSlice::new(members)?,
            complaint: Shared::new()?,
        })
    }

    pub(super) fn slots(&self) -> &[ResultSlot] {
        &self.slots
    }

    fn members(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Called by a member that is ready; returns when all are released.
    pub(super) fn meet(&self) -> Result<(), Error> {
        let gates = &*self.gates;
        if gates.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.members() {
            wake_all(&gates.ready)?;
        }
        wait_for(&gates.go)
    }

    /// Called by a member that is done; returns when all are done.
    pub(super) fn part(&self) -> Result<(), Error> {
        let gates = &*self.gates;
        if gates.done.fetch_add(1, Ordering::AcqRel) + 1 == self.members() {
            gates.over.store(1, Ordering::Release);
            return wake_all(&gates.over);
        }
        wait_for(&gates.over)
    }

    /// Called by the player: whether all are ready. If not, it sleeps for `limit` at most and then
    /// returns `false`, even if all have become ready meanwhile: the player asks again.
    pub(super) fn all_are_ready(&self, limit: Duration) -> Result<bool, Error> {
        let ready = self.gates.ready.load(Ordering::Acquire);
        if ready == self.members() {
            return Ok(true);
        }
        futex::wait_while_within::<SharedScope>(&self.gates.ready, ready, limit)?;
        Ok(false)
    }

    /// Called by the player: releases all members.
    pub(super) fn go(&self) -> Result<(), Error> {
        self.gates.go.store(1, Ordering::Release);
        wake_all(&self.gates.go)
    }

    /// Returns true if all members are done.
    pub(super) fn is_over(&self) -> bool {
        self.gates.over.load(Ordering::Acquire) != 0
    }

    /// Called by a member that fails. Only the first reason is kept: the others follow from it.
    pub(super) fn complain(&self, why: &dyn fmt::Display) {
        let complaint = &*self.complaint;
        if complaint.is_claimed.swap(1, Ordering::AcqRel) == 0 {
            let why = why.to_string();
            for (slot, byte) in complaint.bytes.iter().zip(why.bytes()) {
                slot.store(byte, Ordering::Relaxed);
            }
            let length = u32::try_from(why.len().min(LONGEST_COMPLAINT)).unwrap_or_default();
            complaint.length.store(length, Ordering::Release);
        }
    }

    /// Called by the player after a member has failed: the reason. `None` if the member was killed.
    pub(super) fn complaint(&self) -> Option<String> {
        let length = self.complaint.length.load(Ordering::Acquire) as usize;
        let said = self.complaint.bytes[..length].iter();
        let said: Vec<u8> = said.map(|byte| byte.load(Ordering::Relaxed)).collect();
        (length > 0).then(|| String::from_utf8_lossy(&said).into_owned())
    }
}

fn wait_for(gate: &AtomicU32) -> Result<(), Error> {
    while gate.load(Ordering::Acquire) == 0 {
        futex::wait_while::<SharedScope>(gate, 0)?;
    }
    Ok(())
}

fn wake_all(gate: &AtomicU32) -> Result<(), Error> {
    futex::wake::<SharedScope>(gate, futex::ALL)
}

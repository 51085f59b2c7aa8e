//! Counters of the kernel side, read from the per-CPU states that it shares with user space.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::MapCore;
use swtch_core::{CpuCounters, CpuId, Gap, Level, TaskAtEnd, TaskKey, Timestamp};

use crate::error::Error;
use crate::mapped::Mapped;
use crate::skeleton::recorder::types::cpu_state;

/// Sums over all CPUs. `seen = idle + filtered + stored + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Switches that the probes saw, including those from idle.
    pub seen: u64,
    /// Of `seen`: switches away from idle.
    pub idle: u64,
    /// Of `seen`: switches outside of the scope.
    pub filtered: u64,
    /// Of `seen`: switches written into a ring.
    pub stored: u64,
    /// Of `seen`: switches lost because the ring was full.
    pub lost: u64,
    /// Groups of switches for which a summary has taken room.
    pub summary_groups: u64,
    /// Of `lost`, in a summary: switches of tasks for whose state there was no free slot.
    pub summary_unnamed: u64,
    /// Task records lost because the ring was full.
    pub lost_task_records: u64,
    /// Number of times that no slot was free for the state of a task.
    pub storage_failed: u64,
    /// Number of stacks that could not be stored.
    pub stack_failed: u64,
    /// Number of times that the task that left was not the one that had come: the kernel did not
    /// trace the switch between. They are not part of [`Self::seen`].
    pub untraced: u64,
    /// Of `untraced`: those away from a task in scope.
    pub untraced_in_scope: u64,
    /// Number of times that the word in which a thread's user-mode scheduler names its worker could not be read
    /// ([`crate::Capture::watch_words`]).
    pub words_unread: u64,
    /// For tests: events that were made to be missed ([`crate::MissedEvents`]).
    pub missed: u64,
}

/// `CLAIMS_KEPT` of `bpf/record.h`.
pub(crate) const CLAIMS_KEPT: usize = 256;

const _: () = assert!(CLAIMS_KEPT * size_of::<u32>() == size_of_claims());

/// The size of the field, whose type an accessor names: `size_of` cannot name the type of a field.
const fn size_of_claims() -> usize {
    const fn of<T>(_: fn(&cpu_state) -> &T) -> usize {
        size_of::<T>()
    }
    of(|state| &state.claims)
}

/// The mapped array of per-CPU states.
#[derive(Clone)]
pub(crate) struct CpuStates(Arc<Mapped<cpu_state>>);

impl CpuStates {
    pub fn map(map: &impl MapCore, cpus: usize) -> Result<Self, Error> {
        Ok(Self(Arc::new(Mapped::new(map, cpus)?)))
    }

    pub fn cpus(&self) -> usize {
        self.0.len()
    }

    /// Number of switch records in the fullest ring.
    pub fn most_in_a_ring(&self) -> u64 {
        let waiting = (0..self.cpus()).map(|cpu| self.waiting(cpu));
        waiting.max().unwrap_or(0)
    }

    /// Number of switch records in the ring of this CPU.
    pub fn waiting(&self, cpu: usize) -> u64 {
        // The tail is read first: it never passes the head, so the difference is not negative.
        let tail = self.read(cpu, offset_of!(cpu_state, tail));
        self.read(cpu, offset_of!(cpu_state, head))
            .saturating_sub(tail)
    }

    /// The counter at this offset of a CPU's state, which the kernel side may change at any time.
    pub fn counter(&self, cpu: usize, offset: usize) -> &AtomicU64 {
        self.0.word(cpu, offset)
    }

    fn read(&self, cpu: usize, offset: usize) -> u64 {
        self.counter(cpu, offset).load(Ordering::Acquire)
    }

    fn sum(&self, offset: usize) -> u64 {
        (0..self.cpus()).map(|cpu| self.read(cpu, offset)).sum()
    }

    /// Sums over all CPUs since the start of the capture.
    pub fn totals(&self) -> Counters {
        Counters {
            seen: self.sum(offset_of!(cpu_state, seen)),
            idle: self.sum(offset_of!(cpu_state, idle)),
            filtered: self.sum(offset_of!(cpu_state, filtered)),
            stored: self.sum(offset_of!(cpu_state, stored)),
            lost: self.sum(offset_of!(cpu_state, lost)),
            summary_groups: self.sum(offset_of!(cpu_state, summary_groups)),
            summary_unnamed: self.sum(offset_of!(cpu_state, summary_unnamed)),
            lost_task_records: self.sum(offset_of!(cpu_state, lost_task_records)),
            storage_failed: self.sum(offset_of!(cpu_state, storage_failed)),
            stack_failed: self.sum(offset_of!(cpu_state, stack_failed)),
            untraced: self.sum(offset_of!(cpu_state, untraced)),
            untraced_in_scope: self.sum(offset_of!(cpu_state, untraced_in_scope)),
            words_unread: self.sum(offset_of!(cpu_state, words_unread)),
            missed: self.sum(offset_of!(cpu_state, missed)),
        }
    }

    /// Returns who runs on each CPU, since when, and what is known of the wait before. The kernel side must not be
    /// recording any more.
    pub fn running(&self) -> impl Iterator<Item = TaskAtEnd> {
        (0..self.cpus()).filter_map(|cpu| self.running_on(cpu))
    }

    fn running_on(&self, cpu: usize) -> Option<TaskAtEnd> {
        let state = self.0.at(cpu).as_ptr();
        let moment = |offset| Some(self.read(cpu, offset)).filter(|ts| *ts != 0);
        // SAFETY: the state is mapped as long as self, and the kernel side does not write it any more.
        let started = unsafe { (&raw const (*state).started).read_volatile() };
        // SAFETY: as above.
        let task = unsafe { (&raw const (*state).task).read_volatile() };
        // SAFETY: as above.
        let in_scope = unsafe { (&raw const (*state).in_scope).read_volatile() };
        // SAFETY: as above.
        let was_runnable = unsafe { (&raw const (*state).was_runnable).read_volatile() };
        let key = TaskKey::from_wire(task).filter(|key| *key != TaskKey::IDLE)?;
        if started == 0 {
            return None;
        }
        let left = moment(offset_of!(cpu_state, out_ts));
        // An older wakeup is that of an earlier wait.
        let woken = moment(offset_of!(cpu_state, wake_ts))
            .filter(|woken| was_runnable == 0 && left.is_some_and(|left| *woken > left));
        Some(TaskAtEnd {
            task: key,
            in_scope: in_scope != 0,
            cpu: CpuId::new(u16::try_from(cpu).unwrap_or(u16::MAX)),
            left: left.map(Timestamp::from_ns),
            woken: woken.map(Timestamp::from_ns),
            runs_since: moment(offset_of!(cpu_state, run_start)).map(Timestamp::from_ns),
        })
    }

    /// Number of groups for which this CPU has taken places in the table of a summary.
    pub fn summary_groups(&self, cpu: usize) -> u64 {
        self.read(cpu, offset_of!(cpu_state, summary_groups))
    }

    /// The place in the table that this CPU took for its group of this number, counted from 0. Only the last
    /// [`CLAIMS_KEPT`] are kept: for an older number this is the place of a later group.
    pub fn claim(&self, cpu: usize, number: u64) -> u32 {
        let slot = usize::try_from(number).unwrap_or(usize::MAX) & (CLAIMS_KEPT - 1);
        let offset = offset_of!(cpu_state, claims) + slot * size_of::<u32>();
        // SAFETY: the slot is inside the state.
        let field = unsafe { self.0.at(cpu).cast::<u32>().byte_add(offset) };
        // SAFETY: the field is aligned, mapped as long as self, and the kernel writes it with whole
        // 32-bit stores, so atomics are what reading it takes.
        unsafe { AtomicU32::from_ptr(field.as_ptr()) }.load(Ordering::Relaxed)
    }

    /// The counters of each CPU, by its number.
    pub fn by_cpu(&self) -> impl Iterator<Item = CpuCounters> {
        (0..self.cpus()).map(|cpu| CpuCounters {
            seen: self.read(cpu, offset_of!(cpu_state, seen)),
            idle: self.read(cpu, offset_of!(cpu_state, idle)),
            filtered: self.read(cpu, offset_of!(cpu_state, filtered)),
            lost: self.read(cpu, offset_of!(cpu_state, lost)),
            untraced: self.read(cpu, offset_of!(cpu_state, untraced)),
        })
    }

    /// The gaps of all CPUs since the last call.
    pub fn take_gaps(&self) -> impl Iterator<Item = Gap> {
        (0..self.cpus()).filter_map(|cpu| self.take_gap(cpu))
    }

    /// Records that a CPU lost since the last call; later losses start a new gap.
    fn take_gap(&self, cpu: usize) -> Option<Gap> {
        let count = self.counter(cpu, offset_of!(cpu_state, lost));
        let acknowledged = self.counter(cpu, offset_of!(cpu_state, lost_acknowledged));
        let before = acknowledged.load(Ordering::Relaxed);
        let mut lost = count.load(Ordering::Acquire);
        if lost == before {
            return None;
        }
        let start = self.read(cpu, offset_of!(cpu_state, lost_first_ts));
        // The kernel side begins a new gap only if all earlier losses are acknowledged. So losses that came after the
        // count was read belong to this gap.
        loop {
            acknowledged.store(lost, Ordering::SeqCst);
            let now = count.load(Ordering::SeqCst);
            if now == lost {
                break;
            }
            lost = now;
        }
        let end = self.read(cpu, offset_of!(cpu_state, lost_last_ts));
        Some(Gap {
            cpu: CpuId::new(u16::try_from(cpu).unwrap_or(u16::MAX)),
            start: Timestamp::from_ns(start),
            end: Timestamp::from_ns(end.max(start)),
            lost: lost - before,
            level: Level::Os,
        })
    }
}

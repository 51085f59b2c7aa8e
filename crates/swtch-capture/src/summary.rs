//! Reads the switches that the kernel side counted: the user side of `bpf/summary.h`.
//!
//! ```text
//! records stop ─▶ wait for programs that still run ─▶ flush: every task is visited ─▶ read the table
//! ```
//!
//! What an entry says is decoded here; which reason it has, the rules say. [`SummaryReader`] reads the
//! table while the recording goes on.

mod blocked;
mod reader;
mod stacks;

use std::collections::HashSet;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{Iter, MapCore, ProgramMut};
use swtch_core::{
    Cause, Class, Evidence, EvidenceBits, GroupCounts, GroupTotals, KeptArguments, LengthHistogram,
    Nanos, SwitchGroup, TaskKey, WaitObject,
};

use crate::error::Error;
use crate::load::Capture;
use crate::mapped::Mapped;
use crate::skeleton::recorder::types::{summary_group, summary_key, summary_value};
use crate::tree::visit_all;

pub use blocked::BlockedTask;
pub(crate) use blocked::TaskStates;
pub use reader::{PlaceReading, SummaryReader};
pub use stacks::StackSums;

// The layout of the wire is part of the contract with the kernel side.
const _: () = assert!(size_of::<summary_key>() == 40 && size_of::<summary_value>() == 616);

/// `TASK_DEAD`, `EXIT_ZOMBIE` and `EXIT_DEAD`, of a task that does not come back: `LAST_STATES` of
/// `bpf/summary.h`.
const LAST_STATES: u32 = 0x80 | 0x20 | 0x10;

/// Number of places in the table for this number of groups.
pub(crate) const fn places(groups: u32) -> u32 {
    match groups.checked_next_power_of_two() {
        Some(places) => places,
        // The largest power of two that a `u32` holds.
        None => 1 << 31,
    }
}

/// The table of groups, which the kernel side writes.
pub(crate) struct SummaryGroups(Mapped<summary_group>);

impl SummaryGroups {
    pub fn map(map: &impl MapCore, places: u32) -> Result<Self, Error> {
        let places = usize::try_from(places).unwrap_or(usize::MAX);
        Mapped::new(map, places).map(Self)
    }

    /// The entries, each with its place. A group of a running task may be read half changed.
    fn entries(&self) -> impl Iterator<Item = (usize, (SwitchGroup, GroupTotals))> {
        let taken =
            (0..self.0.len()).filter(|place| self.taken_flag(*place).load(Ordering::Acquire) != 0);
        taken.filter_map(|place| {
            // SAFETY: the place is in the mapping, and any bytes are an entry (plain numbers).
            let entry = unsafe { self.0.at(place).as_ptr().read_volatile() };
            Some((place, decoded(&entry)?))
        })
    }

    /// Number of places.
    const fn len(&self) -> usize {
        self.0.len()
    }

    fn is_in_use(&self, place: u32) -> bool {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        self.taken_flag(place).load(Ordering::Acquire) != 0
    }

    /// The 64-bit number at this offset of a place. Keys, which have narrower ones, are written before
    /// the place is used.
    fn word(&self, place: u32, offset: usize) -> u64 {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        self.0.word(place, offset).load(Ordering::Relaxed)
    }

    /// The place, word by word: no counter is torn, whatever the compiler makes of a copy.
    fn read(&self, place: u32) -> summary_group {
        const WORDS: usize = size_of::<summary_group>() / 8;
        const { assert!(WORDS * 8 == size_of::<summary_group>()) };
        let words: [u64; WORDS] = std::array::from_fn(|index| self.word(place, index * 8));
        // SAFETY: both have the same size, and any words are an entry (plain numbers).
        unsafe { std::mem::transmute::<[u64; WORDS], summary_group>(words) }
    }

    /// From now on the kernel side finds no group here: the key is one that no switch has (a thread
    /// cannot wait for a futex at that address). A program that found it before may still add to it.
    fn close(&self, place: u32) {
        const FUTEX: usize = offset_of!(summary_group, key) + offset_of!(summary_key, futex);
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        self.0.word(place, FUTEX).store(u64::MAX, Ordering::Relaxed);
    }

    /// Makes the place free for another group. Nobody may write it any more.
    fn free(&self, place: usize) {
        let entry = self.0.at(place).as_ptr();
        // SAFETY: the place is in the mapping.
        let key = unsafe { &raw mut (*entry).key };
        // SAFETY: as above; the kernel side writes nothing here until it is free.
        unsafe { key.write_bytes(0, 1) };
        // SAFETY: the place is in the mapping.
        let sums = unsafe { &raw mut (*entry).sums };
        // SAFETY: as for the key.
        unsafe { sums.write_bytes(0, 1) };
        self.taken_flag(place).store(0, Ordering::Release);
    }

    fn taken_flag(&self, place: usize) -> &AtomicU64 {
        self.0.word(place, offset_of!(summary_group, is_taken))
    }
}

/// The iterator that adds what living tasks keep of their last switch-out.
pub(crate) struct SummaryFlush(Iter);

impl SummaryFlush {
    /// Opens the iterator. This needs privilege; reading it later does not.
    pub fn open(program: &ProgramMut<'_>) -> Result<Self, Error> {
        let failed = |source| Error::Attach {
            program: "flush_tasks".to_owned(),
            source,
        };
        let link = program.attach().map_err(failed)?;
        Iter::new(&link).map(Self).map_err(failed)
    }
}

impl Capture {
    /// Ends a summary: what was counted of each group of switches. Call it after
    /// [`Self::detach`]; empty if records were written instead, and at a second call.
    ///
    /// # Errors
    /// When the kernel does not let the tasks be visited, or the map be read.
    pub fn take_summary(&mut self) -> Result<Vec<(SwitchGroup, GroupTotals)>, Error> {
        let Some(mut flush) = self.take_flush() else {
            return Ok(Vec::new());
        };
        wait_for_programs();
        visit_all(&mut flush.0)?;
        let entries = self.groups().into_iter().flat_map(SummaryGroups::entries);
        Ok(entries.map(|(_place, entry)| entry).collect())
    }

    /// Takes the groups of tasks that have ended out of a summary that goes on, which makes room for
    /// others. Nothing is lost by it: the entry of a task's last switch-out says that none of its
    /// entries is written any more.
    pub fn take_ended_groups(&mut self) -> Vec<(SwitchGroup, GroupTotals)> {
        let Some(table) = self.groups() else {
            return Vec::new();
        };
        let entries: Vec<_> = table.entries().collect();
        let is_last = |group: &SwitchGroup| group.evidence.state & LAST_STATES != 0;
        let ended: HashSet<TaskKey> = entries
            .iter()
            .filter(|(_, (group, _))| is_last(group))
            .map(|(_, (group, _))| group.task)
            .collect();
        let of_ended = entries
            .into_iter()
            .filter(|(_, (group, _))| ended.contains(&group.task));
        of_ended
            .map(|(place, entry)| {
                table.free(place);
                entry
            })
            .collect()
    }
}

/// Waits until no program runs that still saw that records are written. A program runs with
/// preemption off, so a grace period of RCU is enough.
fn wait_for_programs() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: membarrier(2) takes numbers only.
    let refused = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if refused != 0 {
        // Refused where CPUs run without ticks (nohz_full). A program takes a microsecond.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Decodes an entry; `None` for one with a number that is in no list.
fn decoded(entry: &summary_group) -> Option<(SwitchGroup, GroupTotals)> {
    // SAFETY: both variants of the union are plain numbers, so any bytes are a key.
    let key = unsafe { entry.key.key };
    Some((group(&key)?, totals(&entry.sums)))
}

fn group(key: &summary_key) -> Option<SwitchGroup> {
    Some(SwitchGroup {
        task: TaskKey::new(key.task),
        next_task: TaskKey::from_wire(key.next_task),
        futex: key.futex,
        evidence: Evidence {
            state: key.state,
            bits: EvidenceBits(key.evidence),
            cause: *Cause::ALL.get(usize::from(key.cause))?,
            syscall: u32::try_from(key.syscall).ok(),
            args: KeptArguments(key.arguments).to_arguments(),
            wait_object: *WaitObject::ALL.get(usize::from(key.wait_object))?,
            class: *Class::ALL.get(usize::from(key.class))?,
            next_class: *Class::ALL.get(usize::from(key.next_class))?,
            ..Evidence::RUNNABLE
        },
    })
}

fn totals(value: &summary_value) -> GroupTotals {
    GroupTotals {
        counts: GroupCounts {
            switches: value.switches,
            ran: Nanos::from_ns(value.ran_ns),
            waits: value.waits,
            off: Nanos::from_ns(value.off_ns),
            split_waits: value.split_waits,
            split_off: Nanos::from_ns(value.split_off_ns),
            runq: Nanos::from_ns(value.runq_ns),
            open_waits: value.open_waits,
            open: Nanos::from_ns(value.open_ns),
        },
        irq: Nanos::from_ns(value.irq_ns),
        longest_run: Nanos::from_ns(value.longest_run_ns),
        longest_off: Nanos::from_ns(value.longest_off_ns),
        longest_runq: Nanos::from_ns(value.longest_runq_ns),
        off_lengths: LengthHistogram(value.off),
        runq_lengths: LengthHistogram(value.runq),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_core::summary::{READ_OF_BLOCKED, READ_OF_RUNNABLE, READ_TO_INFER};

    const HEADER: &str = include_str!("bpf/summary.h");

    /// The words of a `#define` that lists evidence, in lower case and in order.
    fn bits_in_c(name: &str) -> Vec<String> {
        let start = format!("#define {name} ");
        let (_, rest) = HEADER
            .split_once(&start)
            .unwrap_or_else(|| panic!("{name}"));
        let (_, rest) = rest.split_once('(').unwrap();
        let (list, _) = rest.split_once(')').unwrap();
        let words = list.split(['|', '\\']).map(str::trim);
        let mut words: Vec<_> = words
            .filter_map(|word| word.strip_prefix("EVIDENCE_"))
            .map(str::to_ascii_lowercase)
            .collect();
        words.sort();
        words
    }

    fn bits_in_rust(bits: EvidenceBits) -> Vec<String> {
        let mut words: Vec<_> = bits.to_string().split('+').map(str::to_owned).collect();
        words.sort();
        words
    }

    /// `swtch-core` proves that rules read no more than these; this proves that C keeps them.
    #[test]
    fn both_sides_keep_the_same_evidence() {
        for (name, bits) in [
            ("READ_OF_BLOCKED", READ_OF_BLOCKED),
            ("READ_OF_RUNNABLE", READ_OF_RUNNABLE),
            ("READ_TO_INFER", READ_TO_INFER),
        ] {
            assert_eq!(bits_in_c(name), bits_in_rust(bits), "{name}");
        }
    }

    #[test]
    fn an_entry_is_a_group_and_its_sums() {
        let key = summary_key {
            task: 7,
            next_task: u32::MAX,
            syscall: -1,
            cause: 4,
            arguments: 0b1000,
            ..Default::default()
        };
        let mut value = summary_value {
            switches: 3,
            split_off_ns: 900,
            runq_ns: 100,
            ..Default::default()
        };
        value.runq[31] = 3;
        let entry = |key| {
            let mut entry = summary_group {
                sums: value,
                ..Default::default()
            };
            entry.key.key = key;
            decoded(&entry)
        };
        let (group, totals) = entry(key).unwrap();
        assert_eq!((group.task, group.next_task), (TaskKey::new(7), None));
        assert_eq!(group.evidence.cause, Cause::Tick);
        assert_eq!((group.evidence.syscall, group.evidence.args[1]), (None, 7));
        assert_eq!(
            (totals.counts.switches, totals.counts.blocked()),
            (3, Nanos::from_ns(800))
        );
        assert_eq!(totals.runq_lengths.0[31], 3);
        let unknown = summary_key { cause: 200, ..key };
        assert!(entry(unknown).is_none());
    }
}

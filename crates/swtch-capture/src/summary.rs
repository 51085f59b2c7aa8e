//! Reads the switches that the kernel side counted: the user side of `bpf/summary.h`.
//!
//! ```text
//! records stop ─▶ wait for programs that still run ─▶ flush: every task is visited ─▶ read the map
//! ```
//!
//! What an entry says is decoded here; which reason it has, the rules say.

use std::collections::HashSet;

use libbpf_rs::{Iter, MapCore, MapFlags, ProgramMut};
use swtch_core::{
    Cause, Class, Evidence, EvidenceBits, GroupTotals, KeptArguments, LengthHistogram, Nanos,
    SwitchGroup, TaskKey, WaitObject,
};

use crate::error::Error;
use crate::load::Capture;
use crate::skeleton::recorder::types::{summary_key, summary_value};
use crate::tree::visit_all;

// The layout of the wire is part of the contract with the kernel side.
const _: () = assert!(size_of::<summary_key>() == 28 && size_of::<summary_value>() == 616);

/// States of a task that does not come back: `LAST_STATES` of `bpf/summary.h`.
const LAST_STATES: u32 = 0x80 | 0x20 | 0x10;

/// Number of entries that are read by one system call.
const BATCH: u32 = 4096;

/// The iterator that adds what living tasks keep of their last switch-out.
pub(crate) struct SummaryFlush(Iter);

impl SummaryFlush {
    /// Opens it: that needs privilege, reading does not.
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
        let entries = read(self.summaries())?;
        Ok(entries
            .filter_map(|(key, value)| entry(&key, &value))
            .collect())
    }

    /// Takes the groups of tasks that have ended out of a summary that goes on, which makes room for
    /// others. Nothing is lost by it: the entry of a task's last switch-out says that none of its
    /// entries is written any more.
    ///
    /// # Errors
    /// When the map cannot be read or written.
    pub fn take_ended_groups(&mut self) -> Result<Vec<(SwitchGroup, GroupTotals)>, Error> {
        let map = self.summaries();
        let decoded = read(map)?.filter_map(|(key, value)| {
            let entry = entry(&key, &value)?;
            Some((key, entry))
        });
        let decoded: Vec<_> = decoded.collect();
        let is_last = |group: &SwitchGroup| group.evidence.state & LAST_STATES != 0;
        let ended: HashSet<TaskKey> = decoded
            .iter()
            .filter(|(_, (group, _))| is_last(group))
            .map(|(_, (group, _))| group.task)
            .collect();
        let of_ended = decoded
            .into_iter()
            .filter(|(_, (group, _))| ended.contains(&group.task));
        of_ended
            .map(|(key, entry)| map.delete(&key).map(|()| entry).map_err(failed))
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

fn failed(source: libbpf_rs::Error) -> Error {
    Error::Map {
        map: "summaries",
        source,
    }
}

/// The bytes of all entries: key and value.
fn read(map: &impl MapCore) -> Result<impl Iterator<Item = (Vec<u8>, Vec<u8>)>, Error> {
    map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)
        .map_err(failed)
}

/// Decodes an entry; `None` for one of another size, or with a number that is in no list.
fn entry(key: &[u8], value: &[u8]) -> Option<(SwitchGroup, GroupTotals)> {
    if key.len() != size_of::<summary_key>() || value.len() < size_of::<summary_value>() {
        return None;
    }
    // SAFETY: there are enough bytes, any bytes are a key (plain numbers without padding), and the
    // read need not be aligned.
    let key = unsafe { key.as_ptr().cast::<summary_key>().read_unaligned() };
    // SAFETY: as above.
    let value = unsafe { value.as_ptr().cast::<summary_value>().read_unaligned() };
    Some((group(&key)?, totals(&value)))
}

fn group(key: &summary_key) -> Option<SwitchGroup> {
    Some(SwitchGroup {
        task: TaskKey::new(key.task),
        next_task: TaskKey::from_wire(key.next_task),
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
        switches: value.switches,
        ran: Nanos::from_ns(value.ran_ns),
        irq: Nanos::from_ns(value.irq_ns),
        longest_run: Nanos::from_ns(value.longest_run_ns),
        waits: value.waits,
        off: Nanos::from_ns(value.off_ns),
        longest_off: Nanos::from_ns(value.longest_off_ns),
        split_waits: value.split_waits,
        split_off: Nanos::from_ns(value.split_off_ns),
        runq: Nanos::from_ns(value.runq_ns),
        longest_runq: Nanos::from_ns(value.longest_runq_ns),
        open_waits: value.open_waits,
        open: Nanos::from_ns(value.open_ns),
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

    fn bytes_of<T>(plain: &T) -> &[u8] {
        // SAFETY: keys and values are plain numbers without padding.
        unsafe { std::slice::from_raw_parts((&raw const *plain).cast(), size_of::<T>()) }
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
        let (group, totals) = entry(bytes_of(&key), bytes_of(&value)).unwrap();
        assert_eq!((group.task, group.next_task), (TaskKey::new(7), None));
        assert_eq!(group.evidence.cause, Cause::Tick);
        assert_eq!((group.evidence.syscall, group.evidence.args[1]), (None, 7));
        assert_eq!(
            (totals.switches, totals.blocked()),
            (3, Nanos::from_ns(800))
        );
        assert_eq!(totals.runq_lengths.0[31], 3);
        assert!(entry(&bytes_of(&key)[1..], bytes_of(&value)).is_none());
        let unknown = summary_key { cause: 200, ..key };
        assert!(entry(bytes_of(&unknown), bytes_of(&value)).is_none());
    }
}

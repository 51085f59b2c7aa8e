//! Reads a summary again and again while it goes on: the programs are not stopped for it.
//!
//! ```text
//! kernel side adds ──▶ table ◀── a reading looks at the count of each place that is in use, and
//!                                reads the rest only where that count has changed
//! ```
//!
//! What is guaranteed of a place that is read while its task runs: each counter is a whole one (both
//! sides use 64-bit loads and stores) and only grows, so a difference between two readings is never
//! negative, and each switch is in exactly one difference. The counters of one place may be of two
//! moments, a fraction of a microsecond apart: a switch may be counted in this reading and its run in
//! the next.
//!
//! So that the table does not fill over hours, places are freed when nobody writes them any more:
//!
//! - Those of a task that has ended. The place of its last switch-out says so; they are freed one
//!   reading later, when all of them have been met and read to their end. While the table is full, that
//!   switch-out finds no place. Then the record of the task's end says so, which comes before its last
//!   switches: they are freed when nothing was added to them for a while.
//! - Those that say that a task which has ended took the CPU from one that goes on. Such a switch-out
//!   may still be pending (`summary.h` adds it when its task leaves again), so they are freed when
//!   that task has been counted twice more since.
//! - Those to which nothing was added for a while, of two kinds that go on growing in number while their
//!   tasks live: futex words, when half of the places for such are in use (programs make and drop locks
//!   all the time), and who took the CPU from whom, when half of the table is in use (a thousand threads
//!   are a million pairs). Their tasks may add to them again, so such a place is closed first, and freed
//!   when no program runs any more that may have found it before. Who comes later takes a new place.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::{FUTEX_OF_MANY, GroupTotals, SwitchGroup, TaskKey};

use super::{LAST_STATES, SummaryGroups, decoded, wait_for_programs};
use crate::counters::{CLAIMS_KEPT, CpuStates};
use crate::load::Capture;
use crate::skeleton::recorder::types::{summary_group, summary_value};

/// A reading of one place in the table.
#[derive(Clone, Copy, Debug)]
pub enum PlaceReading<'a> {
    /// Switches were added since the last reading. The sums are those since the place was taken.
    Grown(&'a SwitchGroup, &'a GroupTotals),
    /// The place is free: another group may have it at the next reading.
    Freed,
}

/// Remembers of each place what it said last.
#[derive(Debug, Default)]
pub struct SummaryReader {
    known: Vec<KnownPlace>,
    /// By place: whether it is in `known`.
    is_known: Vec<bool>,
    /// By CPU: number of groups that it had taken places for when they were looked for last.
    taken: Vec<u64>,
    /// Number of readings so far.
    readings: u64,
    /// Tasks that have ended, with the number of the reading that met their end.
    ended: FxHashMap<TaskKey, u64>,
    /// Counted tasks that have begun to end, with the number of the reading before.
    ending: FxHashMap<TaskKey, u64>,
}

/// A task that has ended is remembered for so many readings: a switch-out to it that is pending until
/// then is noticed. One that is pending for longer takes a place until its own task ends.
const REMEMBERED: u64 = 16;

/// The places of a task that has begun to end are freed when nothing was added for so many readings.
const ENDS_WITHIN: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct KnownPlace {
    place: u32,
    task: TaskKey,
    /// The task that took the CPU; idle for a place that was not read yet.
    next_task: TaskKey,
    switches: u64,
    /// Number of the reading in which it has grown last.
    grown_at: u64,
    /// True if it is the place of a futex word.
    has_futex: bool,
    /// True if it counts the last switch-out of a task.
    is_last: bool,
    /// The number of further switches of `task` after which the place is freed, once `next_task` has
    /// ended.
    spared_for: Option<u64>,
}

impl KnownPlace {
    const fn new(place: u32) -> Self {
        Self {
            place,
            task: TaskKey::IDLE,
            next_task: TaskKey::IDLE,
            switches: 0,
            grown_at: 0,
            has_futex: false,
            is_last: false,
            spared_for: None,
        }
    }

    /// Returns true if it tells who took the CPU.
    fn is_of_pair(&self) -> bool {
        self.next_task != TaskKey::IDLE
    }
}

/// Futex words may have one in so many places (`find_or_claim` of `bpf/summary.h`).
const FUTEX_SHARE: usize = 4;

/// Nothing was added for so many readings to a place that is freed though its tasks live.
const IDLE_FOR: u64 = 10;

/// One fewer than a CPU remembers: the slot that it writes next may be half-way to be written.
const CLAIMS_REMEMBERED: u64 = CLAIMS_KEPT as u64 - 1;

/// A switch-out of the task adds the one before, and the next one shows that this is done.
const SPARED_FOR: u64 = 2;

impl SummaryReader {
    /// Number of places that are in use.
    pub const fn in_use(&self) -> usize {
        self.known.len()
    }

    /// Passes on what has changed since the last reading, by place.
    pub fn read(&mut self, capture: &mut Capture, mut sink: impl FnMut(u32, PlaceReading<'_>)) {
        let futexes = capture.futex_groups().load(Ordering::Relaxed);
        let Some(table) = capture.groups() else {
            return;
        };
        self.meet_new(table, capture.cpu_states());
        self.readings += 1;
        let grown = self.read_known(table, &mut sink);
        self.spare_less(&grown);
        let mut freed = self.free(table, &mut sink);
        let futexes = usize::try_from(futexes).unwrap_or(usize::MAX);
        let many_futexes = futexes > table.len() / FUTEX_SHARE / 2;
        let is_half_full = self.known.len() > table.len() / 2;
        if many_futexes || is_half_full {
            freed += self.free_idle(table, &mut sink, |known| {
                (many_futexes && known.has_futex) || (is_half_full && known.is_of_pair())
            });
        }
        capture.futex_groups().fetch_sub(freed, Ordering::Relaxed);
        let now = self.readings;
        self.ended.retain(|_, met| now - *met < REMEMBERED);
        self.ending.retain(|_, met| now - *met < 2 * ENDS_WITHIN);
    }

    /// Notes that a task ends whose switches are not counted: it may have taken the CPU from others.
    pub fn note_end(&mut self, task: TaskKey) {
        self.ended.entry(task).or_insert(self.readings + 1);
    }

    /// Notes that a task begins to end whose switches are counted.
    pub fn note_end_of_counted(&mut self, task: TaskKey) {
        self.ending.insert(task, self.readings);
    }

    /// Finds the places that were taken since the last time: each CPU remembers its last ones.
    fn meet_new(&mut self, table: &SummaryGroups, cpus: &CpuStates) {
        self.is_known.resize(table.len(), false);
        self.taken.resize(cpus.cpus(), 0);
        let mut is_told = true;
        for cpu in 0..cpus.cpus() {
            let (before, now) = (self.taken[cpu], cpus.summary_groups(cpu));
            self.taken[cpu] = now;
            is_told &= now - before <= CLAIMS_REMEMBERED;
            for number in before..now.min(before + CLAIMS_REMEMBERED) {
                is_told &= self.meet_claim(table, cpus.claim(cpu, number));
            }
            // What was read may have been written over meanwhile.
            is_told &= cpus.summary_groups(cpu) - before <= CLAIMS_REMEMBERED;
        }
        if !is_told {
            self.meet_all(table);
        }
    }

    /// Takes up a place that was taken and not known before, and returns true if this is one. Something else is read on
    /// a processor that reorders stores, where the count was written before the place.
    fn meet_claim(&mut self, table: &SummaryGroups, place: u32) -> bool {
        let index = usize::try_from(place).unwrap_or(usize::MAX);
        let is_new = self.is_known.get(index) == Some(&false) && table.is_in_use(place);
        if is_new {
            self.is_known[index] = true;
            self.known.push(KnownPlace::new(place));
        }
        is_new
    }

    /// Looks at all places, some 12 ms for 100,000 of them: a CPU has taken more than it remembers.
    fn meet_all(&mut self, table: &SummaryGroups) {
        for (place, is_known) in (0u32..).zip(&mut self.is_known) {
            if !*is_known && table.is_in_use(place) {
                *is_known = true;
                self.known.push(KnownPlace::new(place));
            }
        }
    }

    /// Reads the places that have grown, and returns by how many switches each task has.
    fn read_known(
        &mut self,
        table: &SummaryGroups,
        sink: &mut impl FnMut(u32, PlaceReading<'_>),
    ) -> FxHashMap<TaskKey, u64> {
        let mut grown: FxHashMap<TaskKey, u64> = FxHashMap::default();
        for known in &mut self.known {
            let switches = table.word(known.place, SWITCHES);
            if switches == known.switches {
                continue;
            }
            // The key is written before the first switch is added. It is read anew each time: on a
            // processor that reorders stores it may have been half-written at the first.
            let Some((group, totals)) = decoded(&table.read(known.place)) else {
                continue;
            };
            known.task = group.task;
            known.next_task = group.next_task.unwrap_or(TaskKey::IDLE);
            *grown.entry(group.task).or_default() +=
                totals.counts.switches.saturating_sub(known.switches);
            known.switches = totals.counts.switches;
            known.grown_at = self.readings;
            known.has_futex = group.futex > FUTEX_OF_MANY;
            if group.evidence.state & LAST_STATES != 0 {
                self.ended.insert(group.task, self.readings);
                known.is_last = true;
            }
            sink(known.place, PlaceReading::Grown(&group, &totals));
        }
        grown
    }

    fn spare_less(&mut self, grown: &FxHashMap<TaskKey, u64>) {
        for known in &mut self.known {
            if let Some(left) = &mut known.spared_for {
                *left = left.saturating_sub(grown.get(&known.task).copied().unwrap_or(0));
            }
        }
    }

    /// Frees the places of tasks that have ended; returns how many of them had a futex word.
    fn free(&mut self, table: &SummaryGroups, sink: &mut impl FnMut(u32, PlaceReading<'_>)) -> u32 {
        let mut futexes = 0;
        let nobody_ends = self.ended.is_empty() && self.ending.is_empty();
        if nobody_ends && self.known.iter().all(|known| known.spared_for.is_none()) {
            return futexes;
        }
        let has_ended = |task| {
            self.ended
                .get(&task)
                .is_some_and(|met| *met < self.readings)
        };
        let last: FxHashSet<TaskKey> = self
            .known
            .iter()
            .filter(|known| known.is_last && has_ended(known.task))
            .map(|known| known.task)
            .collect();
        self.known.retain_mut(|known| {
            if known.spared_for.is_none() && has_ended(known.next_task) {
                known.spared_for = Some(SPARED_FOR);
            }
            let is_over = last.contains(&known.task)
                || known.spared_for == Some(0)
                || is_quiet_since_end(&self.ending, self.readings, known);
            if is_over {
                futexes += u32::from(known.has_futex);
                free_place(table, &mut self.is_known, known.place, sink);
            }
            !is_over
        });
        futexes
    }

    /// Frees the places of a kind that have not grown for a while; returns how many had a futex word.
    fn free_idle(
        &mut self,
        table: &SummaryGroups,
        sink: &mut impl FnMut(u32, PlaceReading<'_>),
        is_of_kind: impl Fn(&KnownPlace) -> bool,
    ) -> u32 {
        let now = self.readings;
        let (idle, others): (Vec<_>, Vec<_>) = self
            .known
            .drain(..)
            .partition(|known| is_of_kind(known) && now - known.grown_at >= IDLE_FOR);
        self.known = others;
        if idle.is_empty() {
            return 0;
        }
        let groups: Vec<_> = idle
            .iter()
            .map(|known| {
                let group = decoded(&table.read(known.place)).map(|(group, _)| group);
                table.close(known.place);
                group
            })
            .collect();
        wait_for_programs();
        for (known, group) in idle.iter().zip(groups) {
            let totals = decoded(&table.read(known.place)).map(|(_, totals)| totals);
            if let (Some(group), Some(totals)) = (group, totals)
                && totals.counts.switches != known.switches
            {
                sink(known.place, PlaceReading::Grown(&group, &totals));
            }
            free_place(table, &mut self.is_known, known.place, sink);
        }
        idle.iter().map(|known| u32::from(known.has_futex)).sum()
    }
}

/// Returns true if the task of this place has begun to end long ago, and nothing was added since for as long.
fn is_quiet_since_end(ending: &FxHashMap<TaskKey, u64>, now: u64, known: &KnownPlace) -> bool {
    let since = ending.get(&known.task).map(|met| known.grown_at.max(*met));
    since.is_some_and(|since| now - since >= ENDS_WITHIN)
}

fn free_place(
    table: &SummaryGroups,
    is_known: &mut [bool],
    place: u32,
    sink: &mut impl FnMut(u32, PlaceReading<'_>),
) {
    let index = usize::try_from(place).unwrap_or(usize::MAX);
    table.free(index);
    is_known[index] = false;
    sink(place, PlaceReading::Freed);
}

const SWITCHES: usize = offset_of!(summary_group, sums) + offset_of!(summary_value, switches);

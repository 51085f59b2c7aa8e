//! The counts of each group of switches, and what was added to them in this frame.

use swtch_core::{Arch, CpuCounters, GroupTotals, JudgedGroup, Reason, SwitchGroup, SyscallTable};

use super::sums::LiveSums;

/// A group that has grown in this frame, and by how much.
#[derive(Clone, Copy, Debug)]
pub struct GrownGroup {
    pub of: JudgedGroup,
    pub growth: LiveSums,
    place: usize,
}

#[derive(Clone, Copy, Debug)]
struct CountedPlace {
    of: JudgedGroup,
    /// Its counters at the last reading.
    counted: LiveSums,
    /// Its place in `grown`; `None` if it has not grown in this frame.
    grown: Option<usize>,
}

/// The counters of all groups and CPUs at the last reading, and their growth in this frame, which may
/// take several readings.
#[derive(Debug)]
pub struct LiveCounts {
    calls: SyscallTable,
    places: Vec<Option<CountedPlace>>,
    grown: Vec<GrownGroup>,
    cpus: Vec<CpuCounters>,
    cpus_before: Vec<CpuCounters>,
}

impl LiveCounts {
    /// Nothing is counted yet.
    pub fn new(arch: Arch) -> Self {
        Self {
            calls: SyscallTable::of(arch),
            places: Vec::new(),
            grown: Vec::new(),
            cpus: Vec::new(),
            cpus_before: Vec::new(),
        }
    }

    /// Takes the sums of the group at this place of the kernel's table. A group that is met for the
    /// first time was empty before: it counts from 0 on.
    pub fn meet(&mut self, place: u32, group: &SwitchGroup, totals: &GroupTotals) {
        let counted = LiveSums::of(totals);
        let index = usize::try_from(place).unwrap_or(usize::MAX);
        if index >= self.places.len() {
            self.places.resize(index + 1, None);
        }
        let known = match &mut self.places[index] {
            Some(known) if known.of.group == *group => known,
            slot => slot.insert(CountedPlace {
                of: JudgedGroup::of(group, &self.calls),
                counted: LiveSums::default(),
                grown: None,
            }),
        };
        let growth = counted.since(&known.counted);
        known.counted = counted;
        match known.grown {
            Some(number) => self.grown[number].growth.add(&growth),
            None => {
                known.grown = Some(self.grown.len());
                let of = known.of;
                self.grown.push(GrownGroup {
                    of,
                    growth,
                    place: index,
                });
            }
        }
    }

    /// The reason of a wait that is in no place yet: it lasts.
    pub fn reason_of(&self, group: &SwitchGroup) -> Reason {
        JudgedGroup::of(group, &self.calls).rule.reason
    }

    /// The place is free; what its group has grown by stays in this frame.
    pub fn free(&mut self, place: u32) {
        let index = usize::try_from(place).unwrap_or(usize::MAX);
        if let Some(slot) = self.places.get_mut(index) {
            *slot = None;
        }
    }

    /// Takes the counters of all CPUs.
    pub fn meet_cpus(&mut self, counters: impl Iterator<Item = CpuCounters>) {
        self.cpus.clear();
        self.cpus.extend(counters);
    }

    /// The groups that have grown in this frame.
    pub fn grown(&self) -> &[GrownGroup] {
        &self.grown
    }

    /// Returns what each CPU has counted in this frame.
    pub fn by_cpu(&self) -> impl Iterator<Item = CpuCounters> {
        let before = self.cpus_before.iter().copied();
        let before = before.chain(std::iter::repeat(CpuCounters::default()));
        self.cpus
            .iter()
            .zip(before)
            .map(|(now, before)| CpuCounters {
                seen: now.seen.saturating_sub(before.seen),
                idle: now.idle.saturating_sub(before.idle),
                filtered: now.filtered.saturating_sub(before.filtered),
                lost: now.lost.saturating_sub(before.lost),
                untraced: now.untraced.saturating_sub(before.untraced),
            })
    }

    /// Begins the next frame.
    pub fn end_frame(&mut self) {
        for grown in self.grown.drain(..) {
            if let Some(place) = &mut self.places[grown.place] {
                place.grown = None;
            }
        }
        self.cpus_before.clone_from(&self.cpus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::live::drawn_live::{blocked_in_read, totals};
    use swtch_core::GroupCounts;

    fn growth(counts: &LiveCounts) -> Vec<u64> {
        let grown = counts.grown().iter();
        grown.map(|grown| grown.growth.counts.switches).collect()
    }

    /// ```text
    /// reading   10      25 | 25 | 40          a frame ends at each bar
    /// ```
    #[test]
    fn a_frame_holds_what_was_added_in_it() {
        let mut counts = LiveCounts::new(Arch::X86_64);
        let group = blocked_in_read(1);
        counts.meet(7, &group, &totals(10));
        counts.meet(7, &group, &totals(25));
        assert_eq!(growth(&counts), [25]);
        counts.end_frame();
        assert_eq!(growth(&counts), [0; 0]);
        counts.end_frame();
        counts.meet(7, &group, &totals(40));
        assert_eq!(growth(&counts), [15]);
    }

    #[test]
    fn a_place_that_was_freed_begins_at_zero() {
        let mut counts = LiveCounts::new(Arch::X86_64);
        counts.meet(0, &blocked_in_read(1), &totals(100));
        counts.free(0);
        counts.meet(0, &blocked_in_read(2), &totals(3));
        assert_eq!(growth(&counts), [100, 3]);
        counts.end_frame();
        counts.meet(0, &blocked_in_read(2), &totals(4));
        assert_eq!(growth(&counts), [1]);
    }

    /// Counters are read while they are written: they are never torn, but nothing else is promised.
    #[test]
    fn no_difference_is_negative() {
        let mut counts = LiveCounts::new(Arch::X86_64);
        let group = blocked_in_read(1);
        counts.meet(0, &group, &totals(10));
        counts.end_frame();
        let torn = GroupTotals {
            counts: GroupCounts {
                switches: 11,
                ..GroupCounts::default()
            },
            ..GroupTotals::default()
        };
        counts.meet(0, &group, &torn);
        let growth = counts.grown()[0].growth;
        assert_eq!((growth.counts.switches, growth.counts.runq.as_ns()), (1, 0));
        assert_eq!(growth.runq_lengths.0, [0; 32]);
    }
}

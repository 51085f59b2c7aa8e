//! Counts and sums of switches: what answers about a group of them are made of, whoever counted.
//!
//! ```text
//! a trace       Switch, Open ────────────▶ ┐
//!                                          ├ Tally ─▶ report, explain, bill
//! the kernel    SwitchGroup, GroupCounts ─▶ ┘         record --summary, top, agent
//! ```
//!
//! What a number means is said once, here: a switch counts for its reason, a wait for the switch-out that
//! began it.

use crate::evidence::EvidenceBits;
use crate::reason::{Category, Certainty, Reason};
use crate::rules::{Rule, classify};
use crate::summary::{GroupCounts, SwitchGroup};
use crate::switch::{Open, Switch};
use crate::syscall::SyscallTable;
use crate::units::Nanos;

/// Counts and sums of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of switch-outs.
    pub switches: u64,
    /// Of the switch-outs, those that the kernel counts as voluntary (`nvcsw`).
    pub voluntary: u64,
    /// Of the switch-outs, those whose reason the kernel itself gave.
    pub certain: u64,
    /// Switch-outs by reason, at [`Reason::index`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Time on a CPU, of runs whose length is known.
    pub ran: Nanos,
    /// Waits that have ended in a run.
    pub waits: u64,
    /// Sum of their lengths; for a new task, the time until its first run.
    pub off: Nanos,
    /// Blocked time of these waits, of those that could be split.
    pub blocked: Nanos,
    /// Run-queue time of these waits, of those that could be split.
    pub runq: Nanos,
    /// Of [`Self::waits`], those whose wakeup was not seen, so that their time cannot be split.
    pub unsplit: u64,
    /// Waits that were open when the recording ended.
    pub open_waits: u64,
    /// Time from their switch-out until it ended.
    pub open: Nanos,
    /// Of [`Self::open`], the time in which their tasks could run and had no CPU, as far as it is known.
    pub open_runq: Nanos,
}

impl Tally {
    /// Adds a switch-out and the run that it ended.
    pub fn add_switch(&mut self, row: &Switch) {
        self.switches += 1;
        self.voluntary += u64::from(row.evidence.bits.has(EvidenceBits::VOLUNTARY));
        self.certain += u64::from(row.rule.certainty == Certainty::Certain);
        self.reasons[row.rule.reason.index()] += 1;
        self.ran += row.ran.unwrap_or(Nanos::ZERO);
    }

    /// Adds the wait before the row's run, if one is known.
    pub fn add_wait(&mut self, row: &Switch) {
        let Some(off) = row.wait.length() else {
            return;
        };
        self.waits += 1;
        self.off += off;
        match row.wait.runq {
            Some(runq) => {
                self.runq += runq;
                self.blocked += off.saturating_sub(runq);
            }
            None => self.unsplit += 1,
        }
    }

    /// Adds a wait that was open at the end.
    pub fn add_open(&mut self, open: &Open) {
        self.open_waits += 1;
        self.open += open.lasted;
        self.open_runq += open.runq.unwrap_or(Nanos::ZERO);
    }

    /// Adds what the kernel counted of a group of switches.
    pub fn add_counted(&mut self, of: &JudgedGroup, counts: &GroupCounts) {
        self.switches += counts.switches;
        self.reasons[of.rule.reason.index()] += counts.switches;
        if of.is_voluntary() {
            self.voluntary += counts.switches;
        }
        if of.rule.certainty == Certainty::Certain {
            self.certain += counts.switches;
        }
        self.ran += counts.ran;
        self.waits += counts.waits;
        self.off += counts.off;
        self.blocked += counts.blocked();
        self.runq += counts.runq;
        self.unsplit += counts.waits.saturating_sub(counts.split_waits);
        self.open_waits += counts.open_waits;
        self.open += counts.open;
    }

    /// Adds all of another group.
    pub fn add(&mut self, other: &Self) {
        self.switches += other.switches;
        self.voluntary += other.voluntary;
        self.certain += other.certain;
        for (sum, more) in self.reasons.iter_mut().zip(other.reasons) {
            *sum += more;
        }
        self.ran += other.ran;
        self.waits += other.waits;
        self.off += other.off;
        self.blocked += other.blocked;
        self.runq += other.runq;
        self.unsplit += other.unsplit;
        self.open_waits += other.open_waits;
        self.open += other.open;
        self.open_runq += other.open_runq;
    }

    /// Subtracts a group that is a part of this one.
    pub fn subtract(&mut self, part: &Self) {
        self.switches -= part.switches;
        self.voluntary -= part.voluntary;
        self.certain -= part.certain;
        for (sum, less) in self.reasons.iter_mut().zip(part.reasons) {
            *sum -= less;
        }
        self.ran = self.ran.saturating_sub(part.ran);
        self.waits -= part.waits;
        self.off = self.off.saturating_sub(part.off);
        self.blocked = self.blocked.saturating_sub(part.blocked);
        self.runq = self.runq.saturating_sub(part.runq);
        self.unsplit -= part.unsplit;
        self.open_waits -= part.open_waits;
        self.open = self.open.saturating_sub(part.open);
        self.open_runq = self.open_runq.saturating_sub(part.open_runq);
    }

    /// Time in which tasks could run and had no CPU, that of open waits included.
    pub fn without_cpu(&self) -> Nanos {
        self.runq + self.open_runq
    }

    /// Time in which tasks were blocked, as far as it is known: waits that ended, and what is open and not
    /// known to be a wait for a CPU.
    pub fn blocked_in_all(&self) -> Nanos {
        self.blocked + self.open.saturating_sub(self.open_runq)
    }

    /// Returns true if nothing was counted.
    pub const fn is_empty(&self) -> bool {
        self.switches == 0 && self.waits == 0 && self.open_waits == 0
    }

    /// The most frequent reason and how often; on a tie the first of the list.
    pub fn main_reason(&self) -> Option<(Reason, u64)> {
        let reasons = Reason::ALL.iter().copied().zip(self.reasons);
        let counted = reasons.filter(|(_, count)| *count > 0);
        counted.max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)))
    }

    /// Switch-outs that the kernel counts as involuntary (`nivcsw`). Counters that are read while they are
    /// written may be one apart: it is 0 then.
    pub const fn involuntary(&self) -> u64 {
        self.switches.saturating_sub(self.voluntary)
    }

    /// Returns true if waits were counted, and none of them could be split: blocked and run-queue time are not known
    /// then, and not 0.
    pub const fn is_unsplit(&self) -> bool {
        self.unsplit > 0 && self.unsplit == self.waits
    }
}

/// A group of switches that the kernel counted together, and what the rules say of it.
#[derive(Clone, Copy, Debug)]
pub struct JudgedGroup {
    /// The properties that these switches have in common.
    pub group: SwitchGroup,
    /// The rule that gives them their reason.
    pub rule: &'static Rule,
}

impl JudgedGroup {
    /// Judges a group.
    pub fn of(group: &SwitchGroup, calls: &SyscallTable) -> Self {
        Self {
            group: *group,
            rule: classify(&group.evidence, calls),
        }
    }

    /// Returns true if another task took the CPU. A task that waits to be moved has left by itself, and who came next
    /// is not kept of it, as of one that blocked.
    pub fn is_preemption(&self) -> bool {
        self.rule.reason.category() == Category::Preemption && self.group.evidence.state == 0
    }

    /// Returns true if the kernel counts these switches as voluntary.
    pub const fn is_voluntary(&self) -> bool {
        self.group.evidence.bits.has(EvidenceBits::VOLUNTARY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Cause, Evidence};
    use crate::ids::TaskKey;
    use crate::syscall::Arch;

    const fn counts(switches: u64) -> GroupCounts {
        GroupCounts {
            switches,
            ran: Nanos::from_ns(100 * switches),
            waits: switches,
            off: Nanos::from_ns(60 * switches),
            split_waits: switches - 1,
            split_off: Nanos::from_ns(50 * switches),
            runq: Nanos::from_ns(20 * switches),
            open_waits: 1,
            open: Nanos::from_ns(7),
        }
    }

    /// Each time is in one place, and what cannot be split is said.
    #[test]
    fn what_the_kernel_counted_is_divided_as_rows_are() {
        let evidence = Evidence {
            cause: Cause::Wakeup,
            ..Evidence::RUNNABLE
        };
        let group = SwitchGroup {
            task: TaskKey::new(1),
            next_task: Some(TaskKey::new(2)),
            futex: 0,
            evidence,
        };
        let of = JudgedGroup::of(&group, &SyscallTable::of(Arch::X86_64));
        assert!(of.is_preemption() && !of.is_voluntary());
        let mut tally = Tally::default();
        tally.add_counted(&of, &counts(10));
        assert_eq!(tally.reasons[Reason::Wakeup.index()], 10);
        assert_eq!((tally.voluntary, tally.involuntary()), (0, 10));
        assert_eq!((tally.waits, tally.unsplit, tally.open_waits), (10, 1, 1));
        let parts = [tally.off, tally.blocked, tally.runq].map(Nanos::as_ns);
        assert_eq!(parts, [600, 300, 200]);
        let mut rest = tally.clone();
        rest.add(&tally);
        rest.subtract(&tally);
        assert_eq!(rest, tally);
        rest.subtract(&tally);
        assert!(rest.is_empty());
    }
}

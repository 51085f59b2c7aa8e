//! Summaries: switches that the rules cannot tell apart, counted together while they happen.
//!
//! The kernel side keeps, of each switch-out, what the rules read and nothing else
//! (`bpf/summary.h`), and adds switches of which that is equal. So a group of switches gets the
//! reason that each of them would have got in a recording. What the rules do not read is gone:
//! moments, CPUs, wakers, stacks, objects.

use crate::evidence::{Cause, Class, Evidence, EvidenceBits as Bits};
use crate::ids::TaskKey;
use crate::syscall::SyscallTable;
use crate::units::Nanos;

/// The bits that rules read of a task that blocked (`READ_OF_BLOCKED` of `bpf/summary.h`).
pub const READ_OF_BLOCKED: Bits = Bits(0)
    .with(Bits::VOLUNTARY)
    .with(Bits::IN_IOWAIT)
    .with(Bits::FROZEN)
    .with(Bits::MEMSTALL)
    .with(Bits::EXITING)
    .with(Bits::KTHREAD)
    .with(Bits::COMPAT)
    .with(Bits::WQ_WORKER)
    .with(Bits::KERNEL_LOCK)
    .with(Bits::MMAP_LOCK)
    .with(Bits::INODE_LOCK);

/// The bits that rules read of a task that left runnable (`READ_OF_RUNNABLE`).
pub const READ_OF_RUNNABLE: Bits = Bits(0)
    .with(Bits::VOLUNTARY)
    .with(Bits::THROTTLED)
    .with(Bits::DL_THROTTLED)
    .with(Bits::COMPAT)
    .with(Bits::NEXT_STOPPER)
    .with(Bits::ROUND_ROBIN)
    .with(Bits::REQUESTS_NOT_SEEN)
    .with(Bits::SLICE_END)
    .with(Bits::GROUP_SLICE_END)
    .with(Bits::IN_ENQUEUE)
    .with(Bits::PROTECTION_LAPSED);

/// The bits that rules read besides, where the hook is missing that says who asked for the CPU
/// (`READ_TO_INFER`).
pub const READ_TO_INFER: Bits = Bits(0)
    .with(Bits::RAN_SLICE)
    .with(Bits::TICK_IN_RUN)
    .with(Bits::WOKEN_IS_NEXT)
    .with(Bits::WOKEN_SINCE_TICK)
    .with(Bits::MOVED_IS_NEXT);

/// Returns what a summary keeps of this evidence, as `keep_pending` of `bpf/summary.h` does it: the rules decide the
/// same of both.
pub fn kept_evidence(evidence: &Evidence, calls: &SyscallTable) -> Evidence {
    if !evidence.left_runnable() {
        let arguments = KeptArguments::of(evidence, calls).to_arguments();
        return Evidence {
            state: evidence.state,
            bits: Bits(evidence.bits.0 & READ_OF_BLOCKED.0),
            syscall: evidence.syscall,
            args: arguments,
            wait_object: evidence.wait_object,
            class: Class::Idle,
            next_class: Class::Idle,
            ..Evidence::RUNNABLE
        };
    }
    let read = match evidence.cause {
        Cause::NoHook => READ_OF_RUNNABLE.with(READ_TO_INFER),
        _ => READ_OF_RUNNABLE,
    };
    Evidence {
        bits: Bits(evidence.bits.0 & read.0),
        cause: evidence.cause,
        syscall: evidence.syscall,
        args: KeptArguments::default().to_arguments(),
        class: evidence.class,
        next_class: evidence.next_class,
        ..Evidence::RUNNABLE
    }
}

/// `FUTEX_OF_MANY` of `bpf/record.h`.
pub const FUTEX_OF_MANY: u64 = 1;

/// Switch-outs of one task that the rules cannot tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SwitchGroup {
    /// The task that left.
    pub task: TaskKey,
    /// The task that ran next, where the CPU was taken away: [`TaskKey::IDLE`] for idle, and for a
    /// task that blocked; `None` if it could not be named.
    pub next_task: Option<TaskKey>,
    /// Address of the futex word that it waited for: 0 for none or if they are not told apart,
    /// [`FUTEX_OF_MANY`] for one of those for which there was no room.
    pub futex: u64,
    /// The evidence that the rules read of these switches. The rest is as in [`Evidence::RUNNABLE`].
    pub evidence: Evidence,
}

/// Numbers and times of the switch-outs of a group: the runs that they ended, and the waits that followed.
/// They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Number of switch-outs.
    pub switches: u64,
    /// Time on a CPU, of runs whose start was seen.
    pub ran: Nanos,
    /// Waits that have ended in a run.
    pub waits: u64,
    /// Their off-CPU time.
    pub off: Nanos,
    /// Of `waits`, those whose wakeup was seen, so that their run-queue time is known.
    pub split_waits: u64,
    /// Off-CPU time of `split_waits`.
    pub split_off: Nanos,
    /// Run-queue time of `split_waits`.
    pub runq: Nanos,
    /// Waits that had not ended when the recording did.
    pub open_waits: u64,
    /// Time from their switch-out until then.
    pub open: Nanos,
}

/// All that is counted of a group: numbers and times, with the longest of them and how they are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTotals {
    /// Numbers and times.
    pub counts: GroupCounts,
    /// Time that interrupts took out of the runs.
    pub irq: Nanos,
    /// The longest run.
    pub longest_run: Nanos,
    /// The longest of `counts.waits`.
    pub longest_off: Nanos,
    /// The longest run-queue time of `counts.split_waits`.
    pub longest_runq: Nanos,
    /// Off-CPU times of `counts.waits`.
    pub off_lengths: LengthHistogram,
    /// Run-queue times of `counts.split_waits`.
    pub runq_lengths: LengthHistogram,
}

/// The counts of a recorder on one CPU since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounters {
    /// Switches that the probes saw, including those from idle.
    pub seen: u64,
    /// Of `seen`: switches away from idle.
    pub idle: u64,
    /// Of `seen`: switches outside of the scope.
    pub filtered: u64,
    /// Of `seen`: switches that found no room.
    pub lost: u64,
    /// Number of times that the task that left was not the one that had come: the kernel did not
    /// trace the switch between. They are not part of `seen`.
    pub untraced: u64,
}

impl GroupCounts {
    /// Adds the counts of another group, or of another time.
    pub fn add(&mut self, other: &Self) {
        self.switches += other.switches;
        self.ran += other.ran;
        self.waits += other.waits;
        self.off += other.off;
        self.split_waits += other.split_waits;
        self.split_off += other.split_off;
        self.runq += other.runq;
        self.open_waits += other.open_waits;
        self.open += other.open;
    }

    /// Returns what was added since an earlier reading of the same counts; a difference that would be negative is 0.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            switches: self.switches.saturating_sub(earlier.switches),
            ran: self.ran.saturating_sub(earlier.ran),
            waits: self.waits.saturating_sub(earlier.waits),
            off: self.off.saturating_sub(earlier.off),
            split_waits: self.split_waits.saturating_sub(earlier.split_waits),
            split_off: self.split_off.saturating_sub(earlier.split_off),
            runq: self.runq.saturating_sub(earlier.runq),
            open_waits: self.open_waits.saturating_sub(earlier.open_waits),
            open: self.open.saturating_sub(earlier.open),
        }
    }

    /// Blocked time of the waits that can be split. The two times may have been read between two additions,
    /// so that the difference were negative: it is 0 then.
    pub fn blocked(&self) -> Nanos {
        self.split_off.saturating_sub(self.runq)
    }
}

impl GroupTotals {
    /// Adds the sums of another group.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.irq += other.irq;
        self.longest_run = self.longest_run.max(other.longest_run);
        self.longest_off = self.longest_off.max(other.longest_off);
        self.longest_runq = self.longest_runq.max(other.longest_runq);
        self.off_lengths.add(&other.off_lengths);
        self.runq_lengths.add(&other.runq_lengths);
    }
}

/// Number of slots of a histogram (`SUMMARY_SLOTS` of `bpf/record.h`).
const SLOTS: usize = 32;

/// Lengths by powers of two: slot 0 holds those below 256 ns, slot n those from 2^(n+7) ns up to
/// twice that, and the last all from 275 s on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LengthHistogram(pub [u64; SLOTS]);

impl LengthHistogram {
    /// Adds all lengths of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// Returns what was added since an earlier reading; a difference that would be negative is 0.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut lengths = *self;
        for (now, before) in lengths.0.iter_mut().zip(earlier.0) {
            *now = now.saturating_sub(before);
        }
        lengths
    }

    /// A length that `percent` (0 to 100) of all do not reach or exceed: the upper edge of their
    /// slot, so up to twice too long. `None` if there are none, or if it is in the last slot, which
    /// has no edge.
    pub fn percentile_below(&self, percent: u64) -> Option<Nanos> {
        let all: u64 = self.0.iter().sum();
        let wanted = (all * percent).div_ceil(100).max(1);
        let mut met = 0;
        let slot = self.0.iter().position(|count| {
            met += count;
            met >= wanted
        })?;
        (slot + 1 < SLOTS).then(|| Nanos::from_ns(256 << slot))
    }
}

/// The bits that the rules read of a call's arguments: `enum summary_argument` of `bpf/record.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptArguments(pub u8);

/// Flag of `clone` (`include/uapi/linux/sched.h`).
const CLONE_VFORK: u64 = 0x4000;
/// Commands of `fcntl` that wait for a lock (`include/uapi/asm-generic/fcntl.h`).
const F_SETLKW: u64 = 7;
const F_OFD_SETLKW: u64 = 38;

impl KeptArguments {
    const FIRST_IS_ZERO: u8 = 1 << 0;
    const SECOND_IS_ZERO: u8 = 1 << 1;
    const IS_VFORK: u8 = 1 << 2;
    const IS_LOCK: u8 = 1 << 3;

    /// Returns what the rules read of the arguments of a task that blocked.
    pub fn of(evidence: &Evidence, calls: &SyscallTable) -> Self {
        let number = evidence.syscall;
        if !number.is_some_and(|number| calls.waits(number).are_told_by_arguments()) {
            return Self::default();
        }
        let [first, second, _] = evidence.args;
        let found = [
            (first == 0, Self::FIRST_IS_ZERO),
            (second == 0, Self::SECOND_IS_ZERO),
            (first & CLONE_VFORK != 0, Self::IS_VFORK),
            (matches!(second, F_SETLKW | F_OFD_SETLKW), Self::IS_LOCK),
        ];
        let set = found.iter().filter(|(is_so, _)| *is_so);
        Self(set.fold(0, |bits, (_, bit)| bits | bit))
    }

    /// Arguments of which the rules read the same. Values that no rule asks for are 1.
    pub const fn to_arguments(self) -> [u64; 3] {
        let first = if self.0 & Self::FIRST_IS_ZERO != 0 {
            0
        } else if self.0 & Self::IS_VFORK != 0 {
            CLONE_VFORK
        } else {
            1
        };
        let second = if self.0 & Self::SECOND_IS_ZERO != 0 {
            0
        } else if self.0 & Self::IS_LOCK != 0 {
            F_SETLKW
        } else {
            1
        };
        [first, second, 0]
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::evidence::WaitObject;
    use crate::rules::classify;
    use crate::syscall::Arch;

    fn of<T: Copy>(dice: &mut Rng, all: &[T]) -> T {
        *dice.choice(all).expect("none of these lists is empty")
    }

    fn any_evidence(dice: &mut Rng) -> Evidence {
        let states = [0, 0, 0x1, 0x2, 0x402, 0x4, 0x8, 0x80, 0x8001, 0x102];
        let arguments = [0, 1, 7, 38, 0x4000, 0x4111, 64];
        // Two numbers and-ed: a quarter of the bits is set. Bit 24 is of imports.
        let bits = dice.u32(..) & dice.u32(..) & 0x1eff_ffff;
        let number = dice.u32(..460);
        Evidence {
            state: of(dice, &states),
            bits: Bits(bits),
            cause: of(dice, Cause::ALL),
            syscall: (dice.u8(..4) > 0).then_some(number),
            args: std::array::from_fn(|_| of(dice, &arguments)),
            wait_object: of(dice, WaitObject::ALL),
            class: of(dice, Class::ALL),
            next_class: of(dice, Class::ALL),
            ..Evidence::RUNNABLE
        }
    }

    /// A rule that comes to read more than a summary keeps fails here.
    #[test]
    fn what_is_kept_has_the_verdict_of_the_whole() {
        let mut dice = Rng::with_seed(0x5eed);
        let mut rules = std::collections::BTreeSet::new();
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let calls = SyscallTable::of(arch);
            for _ in 0..200_000 {
                let evidence = any_evidence(&mut dice);
                let rule = classify(&evidence, &calls);
                let kept = kept_evidence(&evidence, &calls);
                assert_eq!(classify(&kept, &calls), rule, "{evidence:?}");
                assert_eq!(kept_evidence(&kept, &calls), kept, "nothing more is lost");
                rules.insert(rule.name);
            }
        }
        assert!(rules.len() > 60, "most rules were met: {rules:?}");
    }

    #[test]
    fn a_percentile_is_the_edge_above_it() {
        let mut lengths = LengthHistogram::default();
        assert_eq!(lengths.percentile_below(50), None);
        lengths.0[0] = 50;
        lengths.0[3] = 49;
        lengths.0[SLOTS - 1] = 1;
        let below = |percent| lengths.percentile_below(percent).map(Nanos::as_ns);
        assert_eq!([50, 51, 99].map(below), [256, 2048, 2048].map(Some));
        assert_eq!(below(100), None, "the last slot has no edge");
    }

    #[test]
    fn sums_of_groups_are_added_and_the_longest_kept() {
        let one = |switches, longest, slot: usize| {
            let mut off_lengths = LengthHistogram::default();
            off_lengths.0[slot] = 1;
            GroupTotals {
                counts: GroupCounts {
                    switches,
                    ..GroupCounts::default()
                },
                longest_off: Nanos::from_ns(longest),
                off_lengths,
                ..GroupTotals::default()
            }
        };
        let mut sum = one(2, 900, 1);
        sum.add(&one(3, 400, 2));
        assert_eq!((sum.counts.switches, sum.longest_off.as_ns()), (5, 900));
        assert_eq!(sum.off_lengths.0[..3], [0, 1, 1]);
    }
}

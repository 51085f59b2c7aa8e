//! Sums that rates are made of.

use swtch_core::cost::DirectCost;
use swtch_core::{GroupTotals, LengthHistogram, Nanos, Reason};

/// Counters of one group, or their growth between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveSums {
    /// Number of switch-outs.
    pub switches: u64,
    /// Time on a CPU, of runs whose start was seen.
    pub ran: Nanos,
    /// Waits whose wakeup was seen, so that they can be split.
    pub split_waits: u64,
    /// Off-CPU time of `split_waits`.
    pub split_off: Nanos,
    /// Run-queue time of `split_waits`.
    pub runq: Nanos,
    /// Run-queue times of `split_waits`.
    pub runq_lengths: LengthHistogram,
}

impl LiveSums {
    /// The counters of a group.
    pub const fn of(totals: &GroupTotals) -> Self {
        Self {
            switches: totals.switches,
            ran: totals.ran,
            split_waits: totals.split_waits,
            split_off: totals.split_off,
            runq: totals.runq,
            runq_lengths: totals.runq_lengths,
        }
    }

    /// What was added since an earlier reading of the same counters. They only grow; a difference
    /// that were negative is 0.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut lengths = self.runq_lengths;
        for (now, before) in lengths.0.iter_mut().zip(earlier.runq_lengths.0) {
            *now = now.saturating_sub(before);
        }
        Self {
            switches: self.switches.saturating_sub(earlier.switches),
            ran: self.ran.saturating_sub(earlier.ran),
            split_waits: self.split_waits.saturating_sub(earlier.split_waits),
            split_off: self.split_off.saturating_sub(earlier.split_off),
            runq: self.runq.saturating_sub(earlier.runq),
            runq_lengths: lengths,
        }
    }

    /// Adds other counters.
    pub fn add(&mut self, other: &Self) {
        self.switches += other.switches;
        self.ran += other.ran;
        self.split_waits += other.split_waits;
        self.split_off += other.split_off;
        self.runq += other.runq;
        self.runq_lengths.add(&other.runq_lengths);
    }

    /// Blocked time of the waits that can be split. The two counters may have been read between two
    /// additions, so that the difference were negative: it is 0 then.
    pub fn blocked(&self) -> Nanos {
        self.split_off.saturating_sub(self.runq)
    }
}

/// Number of reasons.
const REASONS: usize = Reason::ALL.len();

/// By whom the CPU was taken from a task, seen from that task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// A thread of its own process.
    OwnProcess,
    /// Another process of its cgroup.
    OwnCgroup,
    /// A process of another cgroup.
    Foreign,
    /// A task that could not be named.
    Unnamed,
    /// Nobody: the CPU was idle then, as after a throttling.
    Idle,
}

/// What came before a time in a run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeforeRunq {
    /// The thread was blocked, and was woken. Who had the CPU then is not counted.
    Wakeup,
    /// A thread of its own process took the CPU.
    OwnProcess,
    /// Another process of its cgroup did.
    OwnCgroup,
    /// A process of another cgroup, or a thread of the kernel, did.
    Foreign,
    /// Something else: a quota, a move to another CPU, a yield, or a task that could not be named.
    Other,
}

impl BeforeRunq {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Wakeup,
        Self::OwnProcess,
        Self::OwnCgroup,
        Self::Foreign,
        Self::Other,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wakeup => "wakeup",
            Self::OwnProcess => "own_process",
            Self::OwnCgroup => "own_cgroup",
            Self::Foreign => "foreign",
            Self::Other => "other",
        }
    }
}

/// What a row of a view sums: the growth of its groups in one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct RowSums {
    /// Counters of the groups.
    pub sums: LiveSums,
    /// Switches with the kernel's mark of a voluntary one.
    pub voluntary: u64,
    /// Switches by reason.
    pub by_reason: [u64; REASONS],
    /// Blocked time by reason.
    pub blocked_by_reason: [Nanos; REASONS],
    /// Preemptions by a thread of the same process.
    pub by_own_process: u64,
    /// Preemptions by another process of the same cgroup.
    pub by_own_cgroup: u64,
    /// Preemptions by a process of another cgroup.
    pub by_foreign: u64,
    /// Run-queue time by what came before it, in the order of [`BeforeRunq::ALL`].
    pub runq_after: [Nanos; BeforeRunq::ALL.len()],
    /// What the switches that have a price took.
    pub cost: DirectCost,
    /// Switches without a price.
    pub unpriced: u64,
}

impl Default for RowSums {
    fn default() -> Self {
        Self {
            sums: LiveSums::default(),
            voluntary: 0,
            by_reason: [0; REASONS],
            blocked_by_reason: [Nanos::ZERO; REASONS],
            by_own_process: 0,
            by_own_cgroup: 0,
            by_foreign: 0,
            runq_after: [Nanos::ZERO; BeforeRunq::ALL.len()],
            cost: DirectCost::default(),
            unpriced: 0,
        }
    }
}

impl RowSums {
    /// Adds the sums of another row.
    pub fn add(&mut self, other: &Self) {
        self.sums.add(&other.sums);
        self.voluntary += other.voluntary;
        for (sum, more) in self.by_reason.iter_mut().zip(other.by_reason) {
            *sum += more;
        }
        let blocked = self.blocked_by_reason.iter_mut();
        for (sum, more) in blocked.zip(other.blocked_by_reason) {
            *sum += more;
        }
        self.by_own_process += other.by_own_process;
        self.by_own_cgroup += other.by_own_cgroup;
        self.by_foreign += other.by_foreign;
        for (sum, more) in self.runq_after.iter_mut().zip(other.runq_after) {
            *sum += more;
        }
        self.cost = self.cost.plus(other.cost);
        self.unpriced += other.unpriced;
    }

    /// Number of switches.
    pub const fn switches(&self) -> u64 {
        self.sums.switches
    }

    /// The reason of most switches; `None` if there are none.
    pub fn main_reason(&self) -> Option<Reason> {
        most_of(&self.by_reason)
    }

    /// The reason for which most time was spent blocked; `None` if none was.
    pub fn blocked_on(&self) -> Option<Reason> {
        most_of(&self.blocked_by_reason.map(Nanos::as_ns))
    }

    /// Adds time in a run queue.
    pub fn count_runq(&mut self, before: BeforeRunq, time: Nanos) {
        self.runq_after[before as usize] += time;
    }

    /// Counts a preemption by the one who took the CPU.
    pub fn count_taker(&mut self, taker: Taker, switches: u64) {
        match taker {
            Taker::OwnProcess => self.by_own_process += switches,
            Taker::OwnCgroup => self.by_own_cgroup += switches,
            Taker::Foreign => self.by_foreign += switches,
            Taker::Unnamed | Taker::Idle => {}
        }
    }
}

/// The first of the reasons that have the most.
fn most_of(amounts: &[u64; REASONS]) -> Option<Reason> {
    let most = amounts.iter().copied().max().filter(|most| *most > 0)?;
    let place = amounts.iter().position(|amount| *amount == most)?;
    Some(Reason::ALL[place])
}

//! Sums that rates are made of.

use swtch_core::cost::DirectCost;
use swtch_core::{GroupCounts, GroupTotals, JudgedGroup, LengthHistogram, Nanos, Reason, Tally};

/// Counters of one group, or their growth between two readings: of [`GroupTotals`], what rates are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveSums {
    /// Numbers and times.
    pub counts: GroupCounts,
    /// Run-queue times of the waits that can be split.
    pub runq_lengths: LengthHistogram,
}

impl LiveSums {
    /// The counters of a group.
    pub const fn of(totals: &GroupTotals) -> Self {
        Self {
            counts: totals.counts,
            runq_lengths: totals.runq_lengths,
        }
    }

    /// Returns what was added since an earlier reading of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            counts: self.counts.since(&earlier.counts),
            runq_lengths: self.runq_lengths.since(&earlier.runq_lengths),
        }
    }

    /// Adds other counters.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.runq_lengths.add(&other.runq_lengths);
    }
}

const REASONS: usize = Reason::ALL.len();

/// The one that took the CPU from a task, seen from that task.
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

/// The event before a time in a run queue.
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
    /// All ways into a run queue, in the order of their numbers.
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

/// The sums of a row of a view: the growth of its groups in one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct RowSums {
    /// Counts and sums, as of every answer.
    pub tally: Tally,
    /// Run-queue times of the waits that can be split.
    pub runq_lengths: LengthHistogram,
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
    /// The cost of the switches that have a price.
    pub cost: DirectCost,
    /// Switches without a price.
    pub unpriced: u64,
}

impl Default for RowSums {
    fn default() -> Self {
        Self {
            tally: Tally::default(),
            runq_lengths: LengthHistogram::default(),
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
        self.tally.add(&other.tally);
        self.runq_lengths.add(&other.runq_lengths);
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

    /// Adds what a group has grown by.
    pub fn add_grown(&mut self, of: &JudgedGroup, growth: &LiveSums) {
        self.tally.add_counted(of, &growth.counts);
        self.runq_lengths.add(&growth.runq_lengths);
        self.blocked_by_reason[of.rule.reason.index()] += growth.counts.blocked();
    }

    /// Number of switches.
    pub const fn switches(&self) -> u64 {
        self.tally.switches
    }

    /// The reason for which most time was spent blocked; `None` if none was. On a tie the first of the list.
    pub fn blocked_on(&self) -> Option<Reason> {
        let most = self.blocked_by_reason.iter().max();
        let most = most.filter(|most| **most > Nanos::ZERO)?;
        let place = self
            .blocked_by_reason
            .iter()
            .position(|time| time == most)?;
        Some(Reason::ALL[place])
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

//! The expected content of a trace of a workload, and the comparison with what was found.
//!
//! The construction of a workload gives bounds per thread and reason ([`Expect`]); the kernel's own
//! counters give the total ([`SwitchCounts`]). A trace is right when both hold:
//!
//! ```text
//!  fork                                     counters read   exit
//!   │── every switch-out in here is counted ──────┼─────────┤
//!   │          rows of the trace                            │
//!   rows = voluntary + involuntary + (the exit, and a preemption on the way to it)
//! ```
//!
//! Other tasks run on the machine too, and their wakeups preempt. So counts of blocking are bounded
//! on both sides, and counts of preemption mostly from below.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use swtch_core::reason::{Category, Reason};

/// Reasons that any thread may show when other tasks run on the machine. `other` is among them
/// because load balancing may move another queued task to this CPU, where it is then preferred.
/// Seen while compilers ran on both CPUs, most often over a `SCHED_IDLE` thread, whose CPU counts
/// as idle.
pub const BYSTANDERS: [Reason; 5] = [
    Reason::Other,
    Reason::Wakeup,
    Reason::Class,
    Reason::Slice,
    Reason::Throttle,
];

/// Switch-outs of one thread after it read its counters: the exit itself, and up to two before it,
/// preempted or waiting. Waits inside the exit are allowed in addition: where 10,000 threads end at
/// once, each waits for the lock of their address space several times.
const AFTER_COUNT: u64 = 3;

/// Share of rows with an unexplained reason that is tolerated, in percent: a cold page of the
/// program itself, a lock inside the kernel.
const STRANGERS_PCT: u64 = 1;

/// The same tolerance as [`STRANGERS_PCT`], in rows, for threads with few switches.
const STRANGERS: u64 = 2;

/// The expected content of a trace of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadOutcome {
    /// The threads that are checked. The workload's main thread is not among them.
    pub threads: Vec<ThreadOutcome>,
}

/// Expectations for one thread, or for several that are judged together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadOutcome {
    /// Name of the threads (`comm`), with bytes outside ASCII escaped.
    pub name: String,
    /// The threads: usually one, but all threads of a crowd together.
    pub ids: Vec<ThreadId>,
    /// Sum of what the kernel had counted for each thread when it read its counters, just before
    /// its end.
    pub counted: SwitchCounts,
    /// Switches that the kernel counted from then until the end of each task. Processes only:
    /// nothing can read the counters of a thread that has ended.
    pub leaving: u64,
    /// Statements that follow from the construction.
    pub expect: Vec<Expect>,
}

/// The kernel's ids of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadId {
    /// Process id, which the kernel calls `tgid`.
    pub pid: u32,
    /// Thread id, which the kernel calls `pid`.
    pub tid: u32,
}

/// The kernel's switch counters of a thread, from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchCounts {
    /// `nvcsw`: switches out in a sleeping state.
    pub voluntary: u64,
    /// `nivcsw`: switches out while runnable. The kernel counts `sched_yield` here.
    pub involuntary: u64,
}

impl SwitchCounts {
    /// All switches out, voluntary and involuntary.
    pub const fn total(self) -> u64 {
        self.voluntary + self.involuntary
    }

    /// The sum of both counts, each by kind.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
        }
    }

    /// The counts that were added since `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            voluntary: self.voluntary - earlier.voluntary,
            involuntary: self.involuntary - earlier.involuntary,
        }
    }
}

/// The counts of a thread's sleeps, by the kernel's counters before and after each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SleepCounts {
    /// Sleeps in which the thread blocked. In the others the time was over before it left its CPU.
    pub blocked: u64,
    /// Blocks in all sleeps. One sleep has several when the thread is woken before its time: a futex or
    /// a lock of the kernel that it has just left may send its wakeup late (`wake_up_q()`), and the
    /// thread then goes back to sleep. A page fault on the way adds one too.
    pub blocks: u64,
}

impl AddAssign for SleepCounts {
    fn add_assign(&mut self, other: Self) {
        self.blocked += other.blocked;
        self.blocks += other.blocks;
    }
}

impl Sum for SleepCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

/// One statement about the rows of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    /// The reasons that count. More than one only where the kernel may really do either.
    #[serde(with = "words")]
    pub reasons: Vec<Reason>,
    /// Number of rows that must have one of these reasons.
    pub amount: ExpectedRows,
    /// The reason why this follows from the construction.
    pub because: Cow<'static, str>,
}

/// The number or share of rows that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedRows {
    /// A number of rows, bounds included.
    Count {
        /// Fewest rows that are right.
        at_least: u64,
        /// Most rows that are right; `None` if other tasks determine the number.
        at_most: Option<u64>,
    },
    /// A share of the rows in which the thread left while runnable (state 0).
    ShareOfRunnable {
        /// Smallest share that is right, in percent.
        at_least_pct: u8,
    },
}

impl Expect {
    /// Expects `at_least` to `at_most` rows.
    pub fn between(reason: Reason, at_least: u64, at_most: u64, because: &'static str) -> Self {
        Self::new(
            reason,
            ExpectedRows::Count {
                at_least,
                at_most: Some(at_most),
            },
            because,
        )
    }

    /// Expects exactly this number of rows.
    pub fn exactly(reason: Reason, rows: u64, because: &'static str) -> Self {
        Self::between(reason, rows, rows, because)
    }

    /// For a task that blocks once each time: `times` rows, less those that a preemption `spared`,
    /// because what the task was about to wait for came while others had the CPU.
    pub fn blocks(reason: Reason, times: u64, spared: u64, because: &'static str) -> Self {
        Self::between(reason, times.saturating_sub(spared), times, because)
    }

    /// For a task that slept `times` times. The first statement is the kernel's: a row for every
    /// sleep in which the task left its CPU, and no more rows than it blocked in its sleeps. The
    /// second says that the task slept at all: half of its sleeps or more, but for those that a
    /// preemption `spared`. How many more did is luck: where others have the CPUs, or a machine is
    /// emulated, the time of a sleep is over before the task has left its CPU.
    pub fn sleeps(times: u64, slept: SleepCounts, spared: u64) -> [Self; 2] {
        let because = "the kernel counted a block in that many of its sleeps";
        let counted = Self::between(Reason::Sleep, slept.blocked, slept.blocks, because);
        let because = "most sleeps block: those whose time is not used up on the way";
        let least = times.saturating_sub(spared) / 2;
        let again = slept.blocks - slept.blocked;
        let mostly = Self::between(Reason::Sleep, least, times + again, because);
        [counted, mostly]
    }

    /// Expects this number of rows or more.
    pub fn at_least(reason: Reason, at_least: u64, because: &'static str) -> Self {
        Self::new(
            reason,
            ExpectedRows::Count {
                at_least,
                at_most: None,
            },
            because,
        )
    }

    /// For a task that may run on several CPUs: load balancing may move it, or move another task to
    /// its CPU that is then preferred.
    pub fn balancing() -> Self {
        let because = "it may run on any CPU, and the kernel balances";
        Self::at_least(Reason::Migrate, 0, because).or(Reason::Other)
    }

    /// Expects at least this percentage of the rows in which the thread left while runnable.
    pub fn share_of_runnable(reason: Reason, at_least_pct: u8, because: &'static str) -> Self {
        Self::new(
            reason,
            ExpectedRows::ShareOfRunnable { at_least_pct },
            because,
        )
    }

    /// Also accepts `reason`; the call site says when the kernel may choose it.
    #[must_use]
    pub fn or(mut self, reason: Reason) -> Self {
        self.reasons.push(reason);
        self
    }

    fn new(reason: Reason, amount: ExpectedRows, because: &'static str) -> Self {
        Self {
            reasons: vec![reason],
            amount,
            because: Cow::Borrowed(because),
        }
    }

    fn is_met_by(&self, tally: &ReasonTally) -> bool {
        self.deviation(tally) == (0, 0)
    }

    /// Number of missing rows, and number of excess rows.
    fn deviation(&self, tally: &ReasonTally) -> (u64, u64) {
        let found = tally.of_any(&self.reasons);
        let (at_least, at_most) = match self.amount {
            ExpectedRows::Count { at_least, at_most } => (at_least, at_most),
            ExpectedRows::ShareOfRunnable { at_least_pct } => {
                let share = tally.runnable() * u64::from(at_least_pct);
                // Two rows of tolerance, so that one odd row among ten is no failure.
                (share.div_ceil(100).saturating_sub(2), None)
            }
        };
        let excess = at_most.map_or(0, |most| found.saturating_sub(most));
        (at_least.saturating_sub(found), excess)
    }
}

/// The format is `futex 1999..=2000: REASON`, with the reason in words.
impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons: Vec<_> = self.reasons.iter().map(|reason| reason.as_str()).collect();
        write!(f, "{} ", reasons.join("|"))?;
        match self.amount {
            ExpectedRows::Count {
                at_least,
                at_most: Some(most),
            } => write!(f, "{at_least}..={most}")?,
            ExpectedRows::Count {
                at_least,
                at_most: None,
            } => write!(f, "{at_least}..")?,
            ExpectedRows::ShareOfRunnable { at_least_pct } => {
                write!(f, "at least {at_least_pct} % of those that left runnable")?;
            }
        }
        write!(f, ": {}", self.because)
    }
}

/// Rows of a trace for one [`ThreadOutcome`], counted by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReasonTally(BTreeMap<Reason, u64>);

impl ReasonTally {
    /// Adds `rows` rows with this reason.
    pub fn add(&mut self, reason: Reason, rows: u64) {
        *self.0.entry(reason).or_default() += rows;
    }

    /// Number of all rows, whatever their reason.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Number of rows with one of these reasons.
    pub fn of_any(&self, reasons: &[Reason]) -> u64 {
        reasons.iter().filter_map(|reason| self.0.get(reason)).sum()
    }

    /// Rows in which a task left while runnable: preempted, or yielding.
    fn runnable(&self) -> u64 {
        let left_runnable =
            |reason: &Reason| matches!(reason.category(), Category::Preemption | Category::Yield);
        self.0
            .iter()
            .filter(|(reason, _)| left_runnable(reason))
            .map(|(_, rows)| rows)
            .sum()
    }
}

impl FromIterator<Reason> for ReasonTally {
    fn from_iter<I: IntoIterator<Item = Reason>>(reasons: I) -> Self {
        let mut tally = Self::default();
        for reason in reasons {
            tally.add(reason, 1);
        }
        tally
    }
}

impl ThreadOutcome {
    /// Compares the rows of a trace for these threads with the expectations. Returns one line for
    /// each statement that does not hold; none when the trace is right.
    pub fn misses(&self, tally: &ReasonTally) -> Vec<String> {
        let unmet = self.expect.iter().filter(|expect| !expect.is_met_by(tally));
        unmet
            .map(|expect| format!("{}: expected {expect}; found {:?}", self.name, tally.0))
            .chain(self.imbalance(tally))
            .chain(self.strangers(tally))
            .collect()
    }

    /// Lower bound of the number of rows with a wrong reason. A row that is missing under one
    /// reason may be in excess under another, so the larger of the two counts is used.
    pub fn wrong_rows(&self, tally: &ReasonTally) -> u64 {
        let (missing, excess): (Vec<_>, Vec<_>) = self
            .expect
            .iter()
            .map(|expect| expect.deviation(tally))
            .unzip();
        let strangers: u64 = self.stranger_rows(tally).map(|(_, rows)| rows).sum();
        let missing: u64 = missing.iter().sum();
        missing.max(excess.iter().sum::<u64>() + strangers)
    }

    /// Reports a kernel count that does not match the number of rows.
    fn imbalance(&self, tally: &ReasonTally) -> Option<String> {
        let counted = self.counted.total();
        let threads = u64::try_from(self.ids.len()).unwrap_or(u64::MAX);
        let after = self.leaving + AFTER_COUNT * threads;
        let most = counted + after + tally.of_any(&[Reason::Exit, Reason::Lock]);
        let rows = tally.total();
        (rows < counted || rows > most)
            .then(|| format!("{}: {rows} rows, the kernel counted {counted}", self.name))
    }

    /// Reports rows whose reasons neither the construction nor bystanders explain.
    fn strangers(&self, tally: &ReasonTally) -> Option<String> {
        let strangers: Vec<_> = self.stranger_rows(tally).collect();
        let rows: u64 = strangers.iter().map(|(_, rows)| rows).sum();
        (rows > STRANGERS + tally.total() * STRANGERS_PCT / 100)
            .then(|| format!("{}: nothing explains {strangers:?}", self.name))
    }

    fn stranger_rows<'t>(
        &self,
        tally: &'t ReasonTally,
    ) -> impl Iterator<Item = (Reason, u64)> + 't {
        let expected = self.expect.iter().flat_map(|expect| &expect.reasons);
        let explained: Vec<Reason> = expected.chain(&BYSTANDERS).copied().collect();
        let rows = tally.0.iter().map(|(reason, rows)| (*reason, *rows));
        rows.filter(move |(reason, _)| !explained.contains(reason))
    }
}

/// Serializes reasons as their words.
mod words {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use swtch_core::reason::Reason;

    pub(super) fn serialize<S: Serializer>(
        reasons: &[Reason],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(reasons.iter().map(|reason| reason.as_str()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Reason>, D::Error> {
        let known = |word: &String| {
            Reason::from_word(word).ok_or_else(|| D::Error::custom(format!("no reason {word}")))
        };
        Vec::<String>::deserialize(deserializer)?
            .iter()
            .map(known)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ponger(voluntary: u64, involuntary: u64) -> ThreadOutcome {
        ThreadOutcome {
            name: "ponger".into(),
            ids: vec![ThreadId { pid: 1, tid: 2 }],
            counted: SwitchCounts {
                voluntary,
                involuntary,
            },
            leaving: 0,
            expect: vec![
                Expect::between(Reason::Pipe, 99, 100, "one a round"),
                Expect::exactly(Reason::Exit, 1, "it ends once"),
            ],
        }
    }

    fn tally(rows: &[(Reason, u64)]) -> ReasonTally {
        let mut tally = ReasonTally::default();
        for (reason, count) in rows {
            tally.add(*reason, *count);
        }
        tally
    }

    #[test]
    fn a_right_trace_has_no_misses() {
        let rows = tally(&[(Reason::Pipe, 100), (Reason::Wakeup, 7), (Reason::Exit, 1)]);
        assert_eq!(ponger(100, 7).misses(&rows), [""; 0]);
    }

    /// The kernel's counters reveal what the bounds would let pass.
    #[test]
    fn a_lost_row_is_a_miss_though_the_bounds_hold() {
        let rows = tally(&[(Reason::Pipe, 99), (Reason::Exit, 1)]);
        let misses = ponger(102, 0).misses(&rows);
        assert_eq!(misses, ["ponger: 100 rows, the kernel counted 102"]);
    }

    #[test]
    fn a_wrong_reason_is_a_miss() {
        let rows = tally(&[(Reason::Pipe, 90), (Reason::Unknown, 10), (Reason::Exit, 1)]);
        let misses = ponger(100, 0).misses(&rows);
        assert_eq!(misses.len(), 2, "{misses:?}");
        assert!(misses[0].contains("expected pipe 99..=100"), "{misses:?}");
        assert!(misses[1].contains("nothing explains"), "{misses:?}");
        assert_eq!(ponger(100, 0).wrong_rows(&rows), 10);
    }

    #[test]
    fn a_share_is_of_the_rows_that_left_runnable() {
        let expect = Expect::share_of_runnable(Reason::Slice, 90, "hogs only").or(Reason::Wakeup);
        let rows = |other| {
            tally(&[
                (Reason::Slice, 60),
                (Reason::Wakeup, 30),
                (Reason::Other, other),
            ])
        };
        assert!(expect.is_met_by(&rows(10)));
        assert!(!expect.is_met_by(&rows(20)));
    }

    /// A sleep that was disturbed has a row more, and only as many as the kernel counted.
    #[test]
    fn sleeps_have_as_many_rows_as_the_kernel_counted_blocks() {
        let slept = SleepCounts {
            blocked: 1000,
            blocks: 1002,
        };
        let are_met = |rows| {
            let rows = tally(&[(Reason::Sleep, rows)]);
            Expect::sleeps(1000, slept, 0).map(|expect| expect.is_met_by(&rows))
        };
        assert_eq!(are_met(999), [false, true]);
        assert_eq!(are_met(1000), [true, true]);
        assert_eq!(are_met(1002), [true, true]);
        assert_eq!(are_met(1003), [false, false]);
    }

    #[test]
    fn an_outcome_survives_json() {
        let outcome = WorkloadOutcome {
            threads: vec![ponger(100, 7)],
        };
        let text = serde_json::to_string(&outcome).unwrap();
        assert!(text.contains(r#""reasons":["pipe"]"#), "{text}");
        assert_eq!(
            serde_json::from_str::<WorkloadOutcome>(&text).unwrap(),
            outcome
        );
    }
}

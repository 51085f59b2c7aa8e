//! The columns of the rows, one entry per row in each.

use rustc_hash::FxHashMap;
use swtch_core::{Level, Nanos, Reason, Switch, TaskKey, WakerKind};

use super::pieces::RowPieces;

/// Lengths in ns of 32 bits each. Longer ones are in the map `long`: the largest 32-bit number
/// means "look in the map", and a row without an entry there has no known length.
#[derive(Debug, Default)]
pub struct Lengths {
    short: Vec<u32>,
    long: FxHashMap<usize, u64>,
}

impl Lengths {
    fn unknown(rows: usize) -> Self {
        Self {
            short: vec![u32::MAX; rows],
            long: FxHashMap::default(),
        }
    }

    fn set(&mut self, row: usize, length: Option<Nanos>) {
        let Some(ns) = length.map(Nanos::as_ns) else {
            return;
        };
        match u32::try_from(ns) {
            Ok(short) if short != u32::MAX => self.short[row] = short,
            _ => {
                self.long.insert(row, ns);
            }
        }
    }

    /// The length of a row; `None` when it is not known.
    pub fn get(&self, row: usize) -> Option<u64> {
        match self.short[row] {
            u32::MAX => self.long.get(&row).copied(),
            short => Some(u64::from(short)),
        }
    }
}

/// One entry per row in each column; [`Switch`] says what they mean.
#[derive(Debug, Default)]
pub struct RowColumns {
    /// The moment of the switch-out, in ns since the start of the trace.
    pub ended_ns: Vec<u64>,
    /// Length of the run, which ended at `ended_ns`.
    pub ran: Lengths,
    /// Off-CPU time before the run.
    pub off: Lengths,
    /// Run-queue time before the run.
    pub runq: Lengths,
    /// Number of the CPU that it ran on.
    pub cpu: Vec<u16>,
    /// Index of the reason why the run ended.
    why: Vec<u8>,
    /// Index of the reason of the switch-out before the wait, or [`NO_REASON`].
    off_why: Vec<u8>,
    /// Level os: the task that woke it; level user: the lower 32 bits of the worker's number.
    who: Vec<u32>,
}

/// There was no switch-out before (a new task), or it was not recorded.
const NO_REASON: u8 = 31;

/// No task woke it, or none is known.
const NO_WAKER: u32 = u32::MAX;

impl RowColumns {
    pub(super) fn with_rows(rows: usize) -> Self {
        Self {
            ended_ns: vec![0; rows],
            ran: Lengths::unknown(rows),
            off: Lengths::unknown(rows),
            runq: Lengths::unknown(rows),
            cpu: vec![0; rows],
            why: vec![NO_REASON; rows],
            off_why: vec![NO_REASON; rows],
            who: vec![NO_WAKER; rows],
        }
    }

    pub(super) fn set(&mut self, number: usize, row: &Switch, ended_ns: u64) {
        self.ended_ns[number] = ended_ns;
        self.ran.set(number, row.ran);
        self.cpu[number] = row.cpu.get();
        self.why[number] = reason_byte(Some(row.rule.reason));
        // The wait of a user-mode row is the worker's, and lanes are of threads.
        if row.level == Level::User {
            self.who[number] = row.user_task.map_or(NO_WAKER, lower_bits);
            return;
        }
        self.off.set(number, row.wait.off);
        self.runq.set(number, row.wait.runq);
        self.off_why[number] = reason_byte(row.wait.reason);
        if let (Some(waker), Some(WakerKind::Task)) = (row.wait.wakeup.waker, row.wait.wakeup.kind)
        {
            self.who[number] = waker.get();
        }
    }

    pub fn len(&self) -> usize {
        self.ended_ns.len()
    }

    /// The reason why the run ended.
    pub fn reason(&self, row: usize) -> Reason {
        reason_of(self.why[row]).unwrap_or(Reason::Unknown)
    }

    /// The reason of the switch-out before the wait; `None` for a new task, or if it is not known.
    pub fn off_reason(&self, row: usize) -> Option<Reason> {
        reason_of(self.off_why[row])
    }

    /// The task that woke it; `None` for an interrupt, or if the wakeup was not seen.
    pub fn waker(&self, row: usize) -> Option<TaskKey> {
        Some(self.who[row])
            .filter(|waker| *waker != NO_WAKER)
            .map(TaskKey::new)
    }

    /// The lower 32 bits of the worker's number, for rows of the level user.
    pub fn worker(&self, row: usize) -> u32 {
        self.who[row]
    }

    /// The pieces of a row: blocked, in the run queue, running.
    pub fn pieces(&self, row: usize) -> RowPieces {
        RowPieces::new(
            self.ended_ns[row],
            self.ran.get(row),
            self.off.get(row),
            self.runq.get(row),
            self.off_reason(row),
        )
    }
}

fn reason_byte(reason: Option<Reason>) -> u8 {
    reason.map_or(NO_REASON, |reason| {
        u8::try_from(reason.index()).expect("fewer than 31 reasons")
    })
}

fn reason_of(byte: u8) -> Option<Reason> {
    Reason::ALL.get(usize::from(byte)).copied()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the upper bits are not shown"
)]
const fn lower_bits(worker: u64) -> u32 {
    worker as u32
}

//! The columns of the rows.

use rustc_hash::FxHashMap;
use swtch_core::{Level, Nanos, Reason, Switch, TaskKey, WakerKind};

use super::pieces::RowPieces;

/// Lengths in ns, 32 bits each; those beyond stand aside. The largest 32-bit number is "look
/// aside", where nothing means "not known".
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

/// One entry a row each; what they mean is in [`Switch`].
#[derive(Debug, Default)]
pub struct RowColumns {
    /// The moment of the switch-out, since the start of the trace.
    pub ended_ns: Vec<u64>,
    /// Length of the run.
    pub ran: Lengths,
    /// Off-CPU time before the run.
    pub off: Lengths,
    /// Run-queue time before the run.
    pub runq: Lengths,
    /// The CPU.
    pub cpu: Vec<u16>,
    /// Why the run ended.
    why: Vec<u8>,
    /// Why the task had left before the run.
    off_why: Vec<u8>,
    /// Level os: who made it runnable; level user: the lower 32 bits of the worker.
    who: Vec<u32>,
}

/// No reason is known: there was no switch-out before (a new task), or it was not recorded.
const NO_REASON: u8 = 31;

/// Nobody, or an interrupt.
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
        // A user-mode row's wait is the worker's, and lanes are of threads.
        if row.level == Level::User {
            self.who[number] = row.user_task.map_or(NO_WAKER, lower_bits);
            return;
        }
        self.off.set(number, row.wait.off);
        self.runq.set(number, row.wait.runq);
        self.off_why[number] = reason_byte(row.wait.reason);
        if let (Some(waker), Some(WakerKind::Task)) = (row.wait.waker, row.wait.waker_kind) {
            self.who[number] = waker.get();
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.ended_ns.len()
    }

    /// Why the run ended.
    pub fn reason(&self, row: usize) -> Reason {
        reason_of(self.why[row]).unwrap_or(Reason::Unknown)
    }

    /// Why the task had left before the run; `None` for a new task, or when it is not known.
    pub fn off_reason(&self, row: usize) -> Option<Reason> {
        reason_of(self.off_why[row])
    }

    /// The task that made it runnable; `None` for an interrupt or when it was not seen.
    pub fn waker(&self, row: usize) -> Option<TaskKey> {
        Some(self.who[row])
            .filter(|waker| *waker != NO_WAKER)
            .map(TaskKey::new)
    }

    /// Level user: the lower 32 bits of the worker's number.
    pub fn worker(&self, row: usize) -> u32 {
        self.who[row]
    }

    /// The pieces of a row.
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

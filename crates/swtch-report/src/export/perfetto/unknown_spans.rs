//! Finds the time that no row describes, in a first pass over the rows.
//!
//! ```text
//! row n     … run ──┤ ts        ┊ (a switch that was lost)       row n + 1 of the same thread
//!                   ├─ unknown ─┊─ out ── blocked ──┤─ run queue ─├── run ──┤
//! ```
//!
//! A switch of ftrace says in which state the thread left, and its reader assumes that state until
//! the thread is woken or runs. If the next row of the thread does not join this one, the trace
//! does not claim that: switches were lost or not reported, the run began before the capture saw
//! it, or the waker is not known. Whether a row joins is only known from a row that may come much
//! later. So this pass reads the rows once before they are written, and keeps one bit for each.
//!
//! A thread that runs when the trace ends has no row for that run. No report counts the wait before
//! it, so that wait is marked as well.

use anyhow::Result;
use rustc_hash::FxHashMap;
use swtch_core::{CpuId, Level, Switch, TaskKey, Timestamp};
use swtch_store::Columns;

use crate::export::life::Moments;
use crate::export::rows::ExportRows;

/// Switch-outs after which the trace does not tell what followed, and the tasks that ran at the
/// end.
#[derive(Debug, Default)]
pub struct UnknownSpans {
    /// One bit for each row of the kernel's level, in order.
    bits: Vec<u64>,
    waits: u64,
    running: FxHashMap<CpuId, TaskKey>,
}

impl UnknownSpans {
    /// Reads all rows once, with few columns.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn find(rows: &mut ExportRows<'_>) -> Result<Self> {
        let columns = Columns::TS
            .and(Columns::CPU)
            .and(Columns::TASK)
            .and(Columns::RAN)
            .and(Columns::NEXT_TASK)
            .and(Columns::OFF)
            .and(Columns::RUNQ);
        let mut reading = UnknownSpansReader::default();
        rows.scan_columns(columns, &mut |row, taken| {
            if row.level == Level::Os {
                reading.push(row, taken.asked);
            }
            Ok(())
        })?;
        Ok(reading.finish(|task| rows.takes_task(task)))
    }

    /// Returns true if the trace does not tell what followed the row with this number.
    pub fn follows(&self, row: usize) -> bool {
        let word = self.bits.get(row / 64).copied().unwrap_or_default();
        word >> (row % 64) & 1 == 1
    }

    /// Number of waits of threads that were asked for, between two rows that do not join.
    pub const fn waits(&self) -> u64 {
        self.waits
    }

    /// The task that ran on this CPU when the trace ended, if it was asked for.
    pub fn running(&self, cpu: CpuId) -> Option<TaskKey> {
        self.running.get(&cpu).copied()
    }

    /// Returns true if this task ran when the trace ended.
    pub fn runs_on(&self, task: TaskKey) -> bool {
        self.running.values().any(|running| *running == task)
    }

    fn mark(&mut self, row: usize) {
        if self.bits.len() <= row / 64 {
            self.bits.resize(row / 64 + 1, 0);
        }
        self.bits[row / 64] |= 1 << (row % 64);
    }
}

/// The last switch-out of a thread: the number of its row, and its moment.
#[derive(Clone, Copy, Debug)]
struct LastSwitchOut {
    row: usize,
    ts: Timestamp,
}

#[derive(Debug, Default)]
struct UnknownSpansReader {
    found: UnknownSpans,
    rows: usize,
    threads: FxHashMap<TaskKey, LastSwitchOut>,
    cpus: FxHashMap<CpuId, (Timestamp, Option<TaskKey>)>,
}

impl UnknownSpansReader {
    fn push(&mut self, row: &Switch, is_asked: bool) {
        let this = LastSwitchOut {
            row: self.rows,
            ts: row.ts,
        };
        self.rows += 1;
        self.cpus.insert(row.cpu, (row.ts, row.next_task));
        let Some(last) = self.threads.insert(row.task, this) else {
            return;
        };
        let moments = Moments::of(row);
        if moments.out != Some(last.ts) || moments.woken.is_none() {
            self.found.mark(last.row);
            self.found.waits += u64::from(is_asked);
        }
    }

    /// Also finds the tasks that ran at the end; `is_asked` says whether a task was asked for.
    fn finish(mut self, is_asked: impl Fn(TaskKey) -> bool) -> UnknownSpans {
        // If the recording of one CPU ended before another's, a task may have come last on both.
        let mut came: FxHashMap<TaskKey, (Timestamp, CpuId)> = FxHashMap::default();
        for (cpu, (ts, next)) in self.cpus {
            if let Some(next) = next.filter(|next| !next.is_idle() && is_asked(*next)) {
                let last = came.entry(next).or_insert((ts, cpu));
                *last = (ts, cpu).max(*last);
            }
        }
        for (task, (since, cpu)) in came {
            let last = self.threads.get(&task);
            if last.is_some_and(|last| last.ts > since) {
                continue;
            }
            if let Some(last) = last {
                self.found.mark(last.row);
            }
            self.found.running.insert(cpu, task);
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn;
    use swtch_core::{Nanos, Reason, Wait};

    fn row(task: u32, start: u64, end: u64, off: Option<u64>, next: u32) -> Switch {
        let off = off.map(Nanos::from_ns);
        Switch {
            ts: Timestamp::from_ns(end),
            ran: Some(Nanos::from_ns(end - start)),
            next_task: Some(TaskKey::new(next)),
            wait: Wait {
                off,
                runq: off,
                ..Wait::default()
            },
            ..drawn::row(task, Reason::Slice)
        }
    }

    fn found(rows: &[Switch]) -> UnknownSpans {
        let mut reading = UnknownSpansReader::default();
        rows.iter().for_each(|row| reading.push(row, true));
        reading.finish(|task| task.get() < 9)
    }

    fn numbers(unknown: &UnknownSpans) -> Vec<usize> {
        (0..200).filter(|row| unknown.follows(*row)).collect()
    }

    /// Task 1 left at 20 and waited from then on. Task 2 left at 30, and left again at a moment
    /// that has no row.
    #[test]
    fn a_wait_is_told_when_its_row_joins_the_switch_out_before() {
        let rows = [
            row(1, 10, 20, None, 2),
            row(2, 20, 30, None, 1),
            row(1, 30, 40, Some(10), 2),
            row(2, 60, 70, Some(10), 0),
        ];
        let unknown = found(&rows);
        assert_eq!(numbers(&unknown), [1]);
        assert_eq!(unknown.waits(), 1);
    }

    #[test]
    fn a_wait_without_a_known_wakeup_or_before_a_run_without_a_start_is_untold() {
        let no_wakeup = Switch {
            wait: Wait {
                off: Some(Nanos::from_ns(10)),
                ..Wait::default()
            },
            ..row(1, 30, 40, None, 0)
        };
        let no_start = Switch {
            ran: None,
            ..row(1, 60, 70, None, 0)
        };
        let unknown = found(&[row(1, 10, 20, None, 0), no_wakeup, no_start]);
        assert_eq!(numbers(&unknown), [0, 1]);
    }

    /// Beyond the first 64 bits, and for one thread of a hundred rows.
    #[test]
    fn each_row_has_its_own_bit() {
        let mut rows: Vec<_> = (0..150)
            .map(|n| row(1, n * 10 + 5, n * 10 + 10, Some(5), 0))
            .collect();
        rows[100].wait.off = None;
        assert_eq!(numbers(&found(&rows)), [99]);
    }

    /// Task 3 came last on both CPUs, and its run that goes on has no row.
    #[test]
    fn a_task_goes_on_running_on_one_cpu_only() {
        let other_cpu = Switch {
            cpu: CpuId::new(1),
            ..row(2, 10, 30, None, 3)
        };
        let unknown = found(&[row(3, 0, 5, None, 1), row(1, 10, 20, None, 3), other_cpu]);
        assert_eq!(unknown.running(CpuId::new(0)), None);
        assert_eq!(unknown.running(CpuId::new(1)), Some(TaskKey::new(3)));
        assert_eq!(numbers(&unknown), [0]);
    }

    #[test]
    fn who_was_not_asked_for_does_not_go_on_running() {
        let unknown = found(&[row(1, 10, 20, None, 9)]);
        assert_eq!(unknown.running(CpuId::new(0)), None);
    }
}

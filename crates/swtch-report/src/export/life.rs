//! The moments of a thread, from its rows: when it left, was woken and ran again.
//!
//! ```text
//!   row n      … run ──┤ ts: it left, and why        row n + 1 of the same thread
//!                      ├── blocked ──┤── run queue ──├── run ──┤ ts
//!                      out          woken           start
//! ```
//!
//! A row describes the wait before its run, and the reason of the switch-out after it. So two rows
//! describe a whole wait: its reason, its object, and its waker. [`LastSwitchOuts`] keeps only the
//! last row of each thread.

use rustc_hash::FxHashMap;
use swtch_core::{Reason, Switch, TaskKey, Timestamp};

/// The moments of a row; `None` if the row does not tell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moments {
    /// The moment at which the thread had left before this run.
    pub out: Option<Timestamp>,
    /// The moment at which it became runnable; equal to `out` if it stayed runnable.
    pub woken: Option<Timestamp>,
    /// The moment at which the run of the row began.
    pub start: Option<Timestamp>,
}

impl Moments {
    /// The moments that a row tells.
    pub fn of(row: &Switch) -> Self {
        let start = row.ran.map(|ran| row.ts.before(ran));
        let earlier = |span| Some(start?.before(span));
        Self {
            out: row.wait.off.and_then(earlier),
            woken: row.wait.runq.and_then(earlier),
            start,
        }
    }

    /// Returns when the wait began: when the thread left or, for a new thread, when it was started.
    pub fn wait_began(&self) -> Option<Timestamp> {
        self.out.or(self.woken)
    }

    /// The earliest moment that the row tells.
    pub fn first(&self, row: &Switch) -> Timestamp {
        self.wait_began().or(self.start).unwrap_or(row.ts)
    }
}

/// Returns true if something woke the thread before this run. A thread that left runnable was never woken.
pub fn was_woken(row: &Switch) -> bool {
    row.wait.wakeup.kind.is_some() && row.wait.runq.is_some()
}

/// Returns why the thread waited before this run: the word of the reason, or that it was new.
pub fn name_of_wait(row: &Switch) -> &'static str {
    match (row.wait.reason, row.wait.off, row.wait.runq) {
        (Some(reason), _, _) => reason.as_str(),
        (None, None, Some(_)) => "new thread",
        (None, _, _) => Reason::Unknown.as_str(),
    }
}

/// The last switch-out of every thread.
#[derive(Debug, Default)]
pub struct LastSwitchOuts {
    last: FxHashMap<TaskKey, Switch>,
}

impl LastSwitchOuts {
    /// Takes the next row, in order of time. Returns the switch-out that began the wait before its
    /// run, unless that was lost, out of scope, or before the part of the trace that is read.
    pub fn push(&mut self, row: &Switch) -> Option<Switch> {
        let before = self.last.insert(row.task, *row)?;
        (Moments::of(row).out == Some(before.ts)).then_some(before)
    }

    /// The last row of a thread.
    pub fn last(&self, task: TaskKey) -> Option<&Switch> {
        self.last.get(&task)
    }

    /// The last row of every thread, by task.
    pub fn all(&self) -> Vec<&Switch> {
        let mut rows: Vec<_> = self.last.values().collect();
        rows.sort_by_key(|row| row.task);
        rows
    }

    /// Threads that had left and not come back at the end of the trace, by task.
    pub fn still_waiting(&self) -> Vec<&Switch> {
        let mut rows = self.all();
        rows.retain(|row| row.rule.reason != Reason::Exit);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, row};
    use swtch_core::Nanos;

    fn at(ns: u64, row: Switch) -> Switch {
        Switch {
            ts: Timestamp::from_ns(ns),
            ran: Some(Nanos::from_ns(100)),
            ..row
        }
    }

    #[test]
    fn a_wait_joins_the_row_that_began_it() {
        let mut last_switch_outs = LastSwitchOuts::default();
        assert!(
            last_switch_outs
                .push(&at(1_000, row(1, Reason::Futex)))
                .is_none()
        );
        let next = at(1_600, after(row(1, Reason::Sleep), Reason::Futex, 400, 100));
        let before = last_switch_outs.push(&next).unwrap();
        assert_eq!(before.rule.reason, Reason::Futex);
        let moments = Moments::of(&next);
        let ns = [moments.out, moments.woken, moments.start].map(|at| at.map(Timestamp::as_ns));
        assert_eq!(ns, [Some(1_000), Some(1_400), Some(1_500)]);
    }

    /// A switch between the two rows was lost, so the wait did not begin with the first row.
    #[test]
    fn a_wait_whose_beginning_was_lost_joins_nothing() {
        let mut last_switch_outs = LastSwitchOuts::default();
        last_switch_outs.push(&at(1_000, row(1, Reason::Futex)));
        let next = at(1_600, after(row(1, Reason::Sleep), Reason::Futex, 40, 10));
        assert!(last_switch_outs.push(&next).is_none());
    }

    #[test]
    fn who_has_ended_waits_for_nothing() {
        let mut last_switch_outs = LastSwitchOuts::default();
        last_switch_outs.push(&at(1_000, row(1, Reason::Exit)));
        last_switch_outs.push(&at(1_000, row(2, Reason::Futex)));
        let waiting: Vec<_> = last_switch_outs
            .still_waiting()
            .iter()
            .map(|row| row.task)
            .collect();
        assert_eq!(waiting, [TaskKey::new(2)]);
    }
}

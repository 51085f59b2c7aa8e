//! The pieces of a lane: stretches of time, each with one state.

use std::cmp::max;

use swtch_core::Reason;

/// The state of a thread. The page uses the same numbers (`web/src/timeline/piece.ts`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThreadState {
    /// The thread has a CPU and runs.
    Running,
    /// It waits for what this reason names.
    Blocked(Reason),
    /// It has no CPU, and it is not known when it became runnable: blocked, then in a run queue.
    Off(Reason),
    /// It is runnable and has no CPU, after it left for this reason; `None` before its first run.
    InQueue(Option<Reason>),
}

impl ThreadState {
    /// One more than the largest number of a state.
    pub const NUMBERS: usize = 128;
    const RUNNING: u8 = 1;
    const BLOCKED: u8 = 32;
    const OFF: u8 = 64;
    const IN_QUEUE: u8 = 96;
    const NEW_TASK: u8 = Self::IN_QUEUE + 31;

    /// The number by which the page knows the state.
    pub fn number(self) -> u8 {
        let index = |reason: Reason| u8::try_from(reason.index()).expect("fewer than 31 reasons");
        match self {
            Self::Running => Self::RUNNING,
            Self::Blocked(reason) => Self::BLOCKED + index(reason),
            Self::Off(reason) => Self::OFF + index(reason),
            Self::InQueue(None) => Self::NEW_TASK,
            Self::InQueue(Some(reason)) => Self::IN_QUEUE + index(reason),
        }
    }

    /// The state with a number.
    pub fn of_number(number: u8) -> Option<Self> {
        let reason = |first: u8| Reason::ALL.get(usize::from(number - first)).copied();
        match number {
            Self::RUNNING => Some(Self::Running),
            Self::BLOCKED..Self::OFF => reason(Self::BLOCKED).map(Self::Blocked),
            Self::OFF..Self::IN_QUEUE => reason(Self::OFF).map(Self::Off),
            Self::NEW_TASK => Some(Self::InQueue(None)),
            Self::IN_QUEUE..Self::NEW_TASK => {
                reason(Self::IN_QUEUE).map(|reason| Self::InQueue(Some(reason)))
            }
            _ => None,
        }
    }
}

/// In place of a row: a wait or run that was open when the trace ended.
pub const NO_ROW: u32 = u32::MAX;

/// In place of a task, CPU or worker: a wait has no CPU.
pub const NOBODY: u32 = u32::MAX;

/// A piece of a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Begin of the piece, in ns since the start of the trace.
    pub from_ns: u64,
    /// End of the piece, in ns since the start of the trace.
    pub to_ns: u64,
    /// The row it belongs to, or [`NO_ROW`].
    pub row: u32,
    /// The CPU of a thread's run, the task of a CPU's run, the worker of a worker's run; or
    /// [`NOBODY`].
    pub who: u32,
    pub state: ThreadState,
}

/// The pieces of one row: blocked, in the run queue, and running; or, if the wakeup was not seen,
/// off the CPU and running. Empty pieces are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPieces {
    /// The moment at which the run began, if known.
    pub run_from_ns: Option<u64>,
    /// The moment at which the run ended, which ends the row.
    pub run_to_ns: u64,
    /// The moment at which the thread became runnable, if known.
    pub queued_from_ns: Option<u64>,
    /// The moment at which the thread left, if known.
    pub left_ns: Option<u64>,
    /// The reason for which the thread left before its wait.
    pub off_reason: Option<Reason>,
}

impl RowPieces {
    /// The pieces of a row that ended at `ended_ns`.
    pub fn new(
        ended_ns: u64,
        ran: Option<u64>,
        off: Option<u64>,
        runq: Option<u64>,
        off_reason: Option<Reason>,
    ) -> Self {
        let run_from_ns = ran.map(|ran| ended_ns.saturating_sub(ran));
        let before_run = |length: Option<u64>| Some(run_from_ns?.saturating_sub(length?));
        Self {
            run_from_ns,
            run_to_ns: ended_ns,
            queued_from_ns: before_run(runq),
            left_ns: before_run(off),
            off_reason,
        }
    }

    /// Returns when the first known piece begins; `None` if none is known.
    pub fn first_ns(&self) -> Option<u64> {
        self.left_ns.or(self.queued_from_ns).or(self.run_from_ns)
    }

    /// Calls `each` for every piece that is not empty: (from, to, state), in order of time.
    pub fn each(&self, mut each: impl FnMut(u64, u64, ThreadState)) {
        let Some(run_from) = self.run_from_ns else {
            return;
        };
        let queued = self.queued_from_ns.unwrap_or(run_from);
        if let Some(left) = self.left_ns.filter(|left| *left < queued) {
            let reason = self.off_reason.unwrap_or(Reason::Unknown);
            let state = match self.queued_from_ns {
                Some(_) => ThreadState::Blocked(reason),
                None => ThreadState::Off(reason),
            };
            each(left, queued, state);
        }
        let queued = max(queued, self.left_ns.unwrap_or(0));
        if queued < run_from {
            each(queued, run_from, ThreadState::InQueue(self.off_reason));
        }
        if run_from < self.run_to_ns {
            each(run_from, self.run_to_ns, ThreadState::Running);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces_of(row: RowPieces) -> Vec<(u64, u64, ThreadState)> {
        let mut pieces = Vec::new();
        row.each(|from, to, state| pieces.push((from, to, state)));
        pieces
    }

    /// ```text
    ///   50        70      80       100
    ///   ├ blocked ┼ queue ┼─ runs ─┤
    /// ```
    #[test]
    fn a_row_is_blocked_then_queued_then_runs() {
        let row = RowPieces::new(100, Some(20), Some(30), Some(10), Some(Reason::Futex));
        assert_eq!(
            pieces_of(row),
            [
                (50, 70, ThreadState::Blocked(Reason::Futex)),
                (70, 80, ThreadState::InQueue(Some(Reason::Futex))),
                (80, 100, ThreadState::Running),
            ]
        );
    }

    /// The wakeup was not seen, so no part of the wait is called blocked: no report counts one
    /// either.
    #[test]
    fn a_wait_that_cannot_be_split_is_neither_blocked_nor_queued() {
        let row = RowPieces::new(100, Some(20), Some(30), None, Some(Reason::Futex));
        assert_eq!(
            pieces_of(row),
            [
                (50, 80, ThreadState::Off(Reason::Futex)),
                (80, 100, ThreadState::Running)
            ]
        );
    }

    /// A preempted task is runnable all the time.
    #[test]
    fn a_preempted_task_is_never_blocked() {
        let row = RowPieces::new(100, Some(20), Some(30), Some(30), Some(Reason::Slice));
        assert_eq!(
            pieces_of(row),
            [
                (50, 80, ThreadState::InQueue(Some(Reason::Slice))),
                (80, 100, ThreadState::Running)
            ]
        );
    }

    /// Its first wait has no reason, because it has never run before.
    #[test]
    fn a_new_task_waits_in_the_queue() {
        let row = RowPieces::new(100, Some(20), None, Some(10), None);
        assert_eq!(
            pieces_of(row),
            [
                (70, 80, ThreadState::InQueue(None)),
                (80, 100, ThreadState::Running)
            ]
        );
    }

    /// Nothing is drawn for a run whose length is not known.
    #[test]
    fn a_run_that_began_before_the_capture_has_no_piece() {
        assert_eq!(
            pieces_of(RowPieces::new(100, None, None, None, None)),
            vec![]
        );
    }

    /// The page distinguishes states by these numbers.
    #[test]
    fn states_have_different_numbers() {
        let mut states = vec![ThreadState::Running, ThreadState::InQueue(None)];
        for reason in Reason::ALL {
            states.push(ThreadState::Blocked(*reason));
            states.push(ThreadState::Off(*reason));
            states.push(ThreadState::InQueue(Some(*reason)));
        }
        for state in &states {
            assert_eq!(ThreadState::of_number(state.number()), Some(*state));
        }
        let mut numbers: Vec<u8> = states.iter().map(|state| state.number()).collect();
        assert!(
            numbers
                .iter()
                .all(|number| usize::from(*number) < ThreadState::NUMBERS)
        );
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
    }
}

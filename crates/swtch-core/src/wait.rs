//! A wait: what a source of events reports of it, and what a row holds.
//!
//! ```text
//!  switch-out          wakeup             switch-in
//! ──────┼────────────────┼────────────────────┼──▶
//!       │◀── blocked ───▶│◀─ run-queue time ─▶│
//!       └ its stacks     └ waker, its stacks
//! ```
//!
//! A source reports moments ([`WaitEvidence`]), a row holds lengths ([`Wait`]). What needs no
//! arithmetic is the same in both, and is passed on in one piece: [`Wakeup`], [`StackNumbers`].

use crate::evidence::WakerKind;
use crate::ids::{CpuId, TaskKey};
use crate::reason::Reason;
use crate::stack::StackNumbers;
use crate::units::{Nanos, Timestamp};

/// The wait before a run, as it was seen: moments, not lengths.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitEvidence {
    /// The task's previous switch-out; `None` when this is its first run in the capture.
    pub out: Option<Timestamp>,
    /// True if the task was still runnable at its previous switch-out, so that no wakeup ended its wait.
    pub was_runnable: bool,
    /// The moment at which the last wakeup before the run began (`sched_waking`). It may be older than the previous
    /// switch-out. `None` when none was seen; [`Self::wakeup`] says nothing then.
    pub woken: Option<Timestamp>,
    /// That wakeup.
    pub wakeup: Wakeup,
    /// The moment at which the waiting task was last moved to another run queue.
    pub moved: Option<Timestamp>,
    /// Stacks at the place where the task waited.
    pub stacks: StackNumbers,
}

/// The end of a wait. In a row ([`Wait`]) all is `None` if that was not seen; of evidence it counts only together with
/// [`WaitEvidence::woken`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakeup {
    /// The task that made it runnable, or that was interrupted by what did.
    pub waker: Option<TaskKey>,
    /// The kind of waker that made the task runnable: a task, or an interrupt.
    pub kind: Option<WakerKind>,
    /// The CPU whose run queue the task was put on.
    pub cpu: Option<CpuId>,
    /// Stacks of the waker when it ended the wait.
    pub waker_stacks: StackNumbers,
}

/// The wait that came before a run. All `None` for the first run that is seen of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// The reason for which the task had left; `None` when that switch-out was not recorded.
    pub reason: Option<Reason>,
    /// Off-CPU time: blocked time plus run-queue time.
    pub off: Option<Nanos>,
    /// Run-queue time: runnable, but not running. Known without `off` for a new task's first wait.
    pub runq: Option<Nanos>,
    /// The wakeup that ended the wait.
    pub wakeup: Wakeup,
    /// Time on the run queue of the CPU where it ran, when it was moved there while it waited.
    pub moved: Option<Nanos>,
    /// Stacks at the place where the task waited.
    pub stacks: StackNumbers,
    /// Where stacks are read at looks: the off-CPU time that this user stack stands for, see [`crate::places`].
    /// `None` for a wait that no look met, and where the stack of every wait is taken.
    pub seen_for: Option<Nanos>,
    /// Number of the user stack of who held the lock that the task waited for, when a look met the wait. Known of locks
    /// of a runtime that tells it.
    pub holder_stack: Option<u32>,
}

impl Wait {
    /// The whole wait: off-CPU time, or run-queue time for a new task, which has never left a CPU.
    /// `None` when it is not known.
    pub fn length(&self) -> Option<Nanos> {
        self.off.or(self.runq)
    }

    /// Blocked time: from leaving the CPU until the wakeup; `None` without both times.
    pub fn blocked(&self) -> Option<Nanos> {
        Some(self.off?.saturating_sub(self.runq?))
    }
}

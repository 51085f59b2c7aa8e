//! The events that a source (live capture, import) reports, before any conclusion.

use crate::evidence::Evidence;
use crate::ids::{CgroupId, CpuId, TaskKey};
use crate::stack::StackNumbers;
use crate::switch::TaskEvent;
use crate::units::{Nanos, Timestamp};
use crate::user::{UserSwitchEvent, UserWord};
use crate::wait::WaitEvidence;

/// One decoded record of a source.
#[derive(Clone, Debug)]
pub enum Event {
    /// A task left a CPU.
    Switch(SwitchEvent),
    /// A task was seen, started, renamed or ended.
    Task(TaskEvent),
    /// A worker of a user-mode scheduler left its thread.
    User(UserSwitchEvent),
    /// A task was seen where it waits.
    Look(LookEvent),
}

/// Where a task was while it waited, or who ended its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookEvent {
    /// The moment of the look, on the trace clock.
    pub ts: Timestamp,
    /// The task.
    pub task: TaskKey,
    /// The switch-out that its wait began with, by which the wait is found.
    pub out: Timestamp,
    /// Whose stacks were read.
    pub whose: LookedTask,
    /// Numbers of the stacks.
    pub stacks: StackNumbers,
}

/// Whose stacks a look has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookedTask {
    /// Those of the task that waited.
    Waiter {
        /// The time since the look before, at which it would have been seen as well.
        between: Nanos,
        /// Number of the user stack of the task that held the lock which this one waited for, where a runtime tells it.
        holder: Option<u32>,
    },
    /// Those of the task that ended the wait, at that moment.
    Waker,
}

impl Event {
    /// The moment of the event, on the trace clock.
    pub const fn ts(&self) -> Timestamp {
        match self {
            Self::Switch(switch) => switch.ts,
            Self::Task(task) => task.ts,
            Self::User(user) => user.ts,
            Self::Look(look) => look.ts,
        }
    }

    /// Calls `change` for each task that the event names by its key.
    pub fn for_each_task(&mut self, mut change: impl FnMut(&mut TaskKey)) {
        match self {
            Self::Switch(switch) => {
                let SwitchEvent {
                    task,
                    next_task,
                    evidence,
                    wait,
                    ..
                } = switch;
                let named = [
                    task,
                    next_task,
                    &mut evidence.nominator,
                    &mut wait.wakeup.waker,
                ];
                named.into_iter().flatten().for_each(change);
            }
            Self::Task(task) => change(&mut task.task),
            Self::Look(look) => change(&mut look.task),
            Self::User(_) => {}
        }
    }
}

/// A switch-out as the kernel side recorded it: moments, not lengths.
#[derive(Clone, Copy, Debug)]
pub struct SwitchEvent {
    /// The moment of the switch-out, on the trace clock.
    pub ts: Timestamp,
    /// The CPU on which the switch happened.
    pub cpu: CpuId,
    /// The task that left; `None` if it could not be named.
    pub task: Option<TaskKey>,
    /// The task that ran next; `None` if it could not be named.
    pub next_task: Option<TaskKey>,
    /// Start of the run that ends; `None` when the capture began inside it.
    pub run_start: Option<Timestamp>,
    /// CPU time that the kernel charged for the run (`sum_exec_runtime`), without steal where the
    /// kernel accounts it.
    pub charged: Option<Nanos>,
    /// Time that interrupts took out of the run.
    pub irq: Nanos,
    /// Evidence for why the run ended.
    pub evidence: Evidence,
    /// cgroup of the task at the switch-out.
    pub cgroup: CgroupId,
    /// The worker that the thread's user-mode scheduler was running; `None` when the thread has no
    /// such scheduler, or when its word could not be read.
    pub user_word: Option<UserWord>,
    /// The wait before the run.
    pub wait: WaitEvidence,
    /// Number of switches that the kernel has counted for this task, including this one (`nvcsw +
    /// nivcsw`).
    pub kernel_count: u64,
    /// True if the task is in the scope of the capture; if not, it is recorded because a task in scope waited for the
    /// CPU that it used.
    pub in_scope: bool,
}

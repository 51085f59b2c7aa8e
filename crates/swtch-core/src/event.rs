//! What a source of events (live capture, import) says, before any conclusion.

use crate::evidence::{Evidence, WakerKind};
use crate::ids::{CgroupId, CpuId, TaskKey};
use crate::switch::TaskEvent;
use crate::units::{Nanos, Timestamp};
use crate::user::{UserSwitchEvent, UserWord};

/// One decoded record.
#[derive(Clone, Debug)]
pub enum Event {
    /// A task left a CPU.
    Switch(SwitchEvent),
    /// Something about a task's identity.
    Task(TaskEvent),
    /// A worker of a user-mode scheduler left it.
    User(UserSwitchEvent),
}

impl Event {
    /// When it happened.
    pub const fn ts(&self) -> Timestamp {
        match self {
            Self::Switch(switch) => switch.ts,
            Self::Task(task) => task.ts,
            Self::User(user) => user.ts,
        }
    }
}

/// A switch-out as the kernel side recorded it: moments, not lengths.
#[derive(Clone, Copy, Debug)]
pub struct SwitchEvent {
    /// The moment of the switch-out.
    pub ts: Timestamp,
    /// Where.
    pub cpu: CpuId,
    /// Who left; `None` if it could not be named.
    pub task: Option<TaskKey>,
    /// Who came; `None` if it could not be named.
    pub next_task: Option<TaskKey>,
    /// Start of the run that ends; `None` when the capture began inside it.
    pub run_start: Option<Timestamp>,
    /// CPU time that the kernel charged for the run (`sum_exec_runtime`), without steal where the
    /// kernel accounts it.
    pub charged: Option<Nanos>,
    /// Interrupt time inside the run.
    pub irq: Nanos,
    /// Why the run ended.
    pub evidence: Evidence,
    /// cgroup of the task.
    pub cgroup: CgroupId,
    /// What the thread's user-mode scheduler ran on it; `None` when it has none, or when its word
    /// could not be read.
    pub user_word: Option<UserWord>,
    /// The task's previous switch-out; `None` when this is its first run in the capture.
    pub previous_out: Option<Timestamp>,
    /// Whether the task had left runnable then, so that it was never woken.
    pub was_runnable: bool,
    /// The last wakeup seen before the run, which may be older than the previous switch-out.
    pub wake: Option<Wake>,
    /// When the waiting task was last moved to another run queue.
    pub moved: Option<Timestamp>,
    /// Kernel stack of the wait before the run.
    pub kernel_stack: Option<u32>,
    /// User stack of the wait before the run.
    pub user_stack: Option<u32>,
    /// How many switches the kernel has counted for this task, this one included
    /// (`nvcsw + nivcsw`).
    pub kernel_count: u64,
    /// Whether the task is in the scope of the capture; if not, it is recorded because a task in
    /// scope waited for the CPU that it had.
    pub in_scope: bool,
}

/// A wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// When the waker began it (`sched_waking`).
    pub ts: Timestamp,
    /// Who did it, or was interrupted by what did.
    pub waker: Option<TaskKey>,
    /// What did it.
    pub kind: WakerKind,
    /// The CPU whose run queue the task was put on.
    pub cpu: CpuId,
    /// Kernel stack of who did it.
    pub kernel_stack: Option<u32>,
    /// User stack of who did it.
    pub user_stack: Option<u32>,
}

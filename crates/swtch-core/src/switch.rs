//! One row of a trace: a switch-out, complete when it is written.
//!
//! ```text
//!        wait that came before      │ the run that ends     │ why it ended
//! ──────┬───────────────┬───────────┼───────────────────────┼──▶ time
//!   previous out      woken      switch-in               switch-out = ts
//!       │◀── blocked ──▶│◀─ runq ──▶│◀──────── ran ─────────▶│
//!       │◀────────── off ──────────▶│
//! ```

use crate::evidence::{Evidence, WakerKind};
use crate::ids::{CgroupId, CpuId, TaskKey};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::units::{Nanos, Timestamp};
use crate::user::{Level, UserSide};

/// A switch-out: the run that ends, why, and the wait that came before that run.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// The moment of the switch-out.
    pub ts: Timestamp,
    /// Where it happened.
    pub cpu: CpuId,
    /// Who left.
    pub task: TaskKey,
    /// Length of the run; `None` when the capture began inside it.
    pub ran: Option<Nanos>,
    /// Time that interrupts took out of the run (timer, device, soft interrupts).
    pub irq: Nanos,
    /// Time of the run that the hypervisor gave to others, where the kernel accounts it.
    pub stolen: Nanos,
    /// The rule that decided; it names reason and certainty.
    pub rule: &'static Rule,
    /// What the rule saw.
    pub evidence: Evidence,
    /// Who came: [`TaskKey::IDLE`] for idle; `None` if it could not be named.
    pub next_task: Option<TaskKey>,
    /// The task of a user-mode scheduler that ran on this thread; at level `user`, the one that left.
    pub user_task: Option<u64>,
    /// Who switched: the kernel, or a user-mode scheduler.
    pub level: Level,
    /// What else is known of the user-mode scheduler.
    pub user: UserSide,
    /// cgroup of the task.
    pub cgroup: CgroupId,
    /// The wait before the run.
    pub wait: Wait,
}

/// The wait that came before a run. All `None` for the first run that is seen of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Why the task had left; `None` when that switch-out was not recorded.
    pub reason: Option<Reason>,
    /// Off-CPU time: blocked time plus run-queue time.
    pub off: Option<Nanos>,
    /// Run-queue time: runnable, but not running. Known without `off` for a new task's first wait.
    pub runq: Option<Nanos>,
    /// The task that made it runnable (or that was interrupted by what did).
    pub waker: Option<TaskKey>,
    /// What made it runnable.
    pub waker_kind: Option<WakerKind>,
    /// The CPU whose run queue it was put on when woken.
    pub wake_cpu: Option<CpuId>,
    /// Time on the run queue of the CPU where it ran, when it was moved there while it waited.
    pub moved: Option<Nanos>,
    /// Kernel stack of the place that waited.
    pub kernel_stack: Option<u32>,
    /// User stack of the place that waited.
    pub user_stack: Option<u32>,
    /// Kernel stack of the waker when it ended the wait.
    pub waker_kernel_stack: Option<u32>,
    /// User stack of the waker when it ended the wait.
    pub waker_user_stack: Option<u32>,
}

impl Wait {
    /// All of the wait: off-CPU time; a new task, which has never left a CPU, only waited in the
    /// run queue. `None` when it is not known.
    pub fn length(&self) -> Option<Nanos> {
        self.off.or(self.runq)
    }

    /// Blocked time: off-CPU time until woken.
    pub fn blocked(&self) -> Option<Nanos> {
        Some(self.off?.saturating_sub(self.runq?))
    }
}

/// Evidence of a task's identity: seen first, forked, executed, renamed or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEvent {
    /// When.
    pub ts: Timestamp,
    /// What happened.
    pub kind: TaskEventKind,
    /// Which task.
    pub task: TaskKey,
    /// Thread id.
    pub tid: crate::ids::Tid,
    /// Process id.
    pub pid: crate::ids::Pid,
    /// Process id of the parent.
    pub parent_pid: crate::ids::Pid,
    /// When the task was started, ns since boot (with suspend), as `/proc/PID/stat` counts.
    pub started_ns: u64,
    /// Name: up to 15 bytes from outside, any bytes but NUL.
    pub comm: Vec<u8>,
    /// cgroup.
    pub cgroup: CgroupId,
    /// Scheduling class.
    pub class: crate::evidence::Class,
    /// Kernel priority.
    pub prio: i16,
    /// Whether it is a kernel thread.
    pub is_kthread: bool,
    /// Whether the capture was asked to record it (others are only named).
    pub in_scope: bool,
    /// `nvcsw` of the task at this moment.
    pub voluntary_switches: u64,
    /// `nivcsw` of the task at this moment.
    pub involuntary_switches: u64,
}

crate::reason::words! {
    /// What happened to a task.
    TaskEventKind {
        Seen = "seen": "first seen by the capture",
        Fork = "fork": "started by its parent during the capture",
        Exec = "exec": "executed a new program",
        Rename = "rename": "changed its name",
        Exit = "exit": "ended",
    }
}
use std::fmt;

/// Records that were produced and could not be kept: how many, on which CPU, in which time span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The CPU whose ring was full; at level `user`, the one that the scheduler is bound to.
    pub cpu: CpuId,
    /// Time of the first record that was lost.
    pub start: Timestamp,
    /// Time of the last record that was lost.
    pub end: Timestamp,
    /// How many records.
    pub lost: u64,
    /// Whose switches they were.
    pub level: Level,
}

/// A wait or a run that was still open when the capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Which task.
    pub task: TaskKey,
    /// Why it had left; `None` when it was running.
    pub reason: Option<Reason>,
    /// Since when.
    pub since: Timestamp,
    /// For how long, until the end of the capture.
    pub lasted: Nanos,
}

//! One row of a trace: a switch-out with the run that it ended and the wait before that run.
//!
//! ```text
//!        wait that came before      │ the run that ends     │ why it ended
//! ──────┬───────────────┬───────────┼───────────────────────┼──▶ time
//!   previous out      woken      switch-in               switch-out = ts
//!       │◀── blocked ──▶│◀─ runq ──▶│◀──────── ran ─────────▶│
//!       │◀────────── off ──────────▶│
//! ```

use crate::evidence::Evidence;
use crate::ids::{CgroupId, CpuId, TaskKey};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::units::{Nanos, Timestamp};
use crate::user::{Level, UserSide};
use crate::wait::Wait;

/// A switch-out: the run that ends, why, and the wait that came before that run.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// The moment of the switch-out, on the trace clock.
    pub ts: Timestamp,
    /// The CPU that the task left.
    pub cpu: CpuId,
    /// The task that left the CPU.
    pub task: TaskKey,
    /// Length of the run; `None` when the capture began inside it.
    pub ran: Option<Nanos>,
    /// Time that interrupts took out of the run (timer, device, soft interrupts).
    pub irq: Nanos,
    /// Time of the run that the hypervisor gave to others, where the kernel accounts it.
    pub stolen: Nanos,
    /// The rule that decided; it names reason and certainty.
    pub rule: &'static Rule,
    /// The evidence that the rule decided on, kept so that a trace can be judged again.
    pub evidence: Evidence,
    /// The task that ran next: [`TaskKey::IDLE`] for idle; `None` if it could not be named.
    pub next_task: Option<TaskKey>,
    /// The task of a user-mode scheduler that ran on this thread; at level `user`, the one that
    /// left.
    pub user_task: Option<u64>,
    /// The level that switched: the kernel, or a user-mode scheduler.
    pub level: Level,
    /// Further columns of user-mode schedulers and of their threads.
    pub user: UserSide,
    /// cgroup of the task at the switch-out.
    pub cgroup: CgroupId,
    /// The wait that came before the run.
    pub wait: Wait,
}

impl Switch {
    /// A row of which nothing but its rule is known: the source of rows sets what it knows.
    pub fn blank(rule: &'static Rule) -> Self {
        Self {
            ts: Timestamp::default(),
            cpu: CpuId::default(),
            task: TaskKey::IDLE,
            ran: None,
            irq: Nanos::ZERO,
            stolen: Nanos::ZERO,
            rule,
            evidence: Evidence::RUNNABLE,
            next_task: None,
            user_task: None,
            level: Level::Os,
            user: UserSide::default(),
            cgroup: CgroupId::default(),
            wait: Wait::default(),
        }
    }
}

/// Evidence of a task's identity: seen first, forked, executed, renamed or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEvent {
    /// The moment of the event, on the trace clock.
    pub ts: Timestamp,
    /// The kind of the event.
    pub kind: TaskEventKind,
    /// The task that the event is about.
    pub task: TaskKey,
    /// Thread id, as `gettid` returns it (kernel: `pid`).
    pub tid: crate::ids::Tid,
    /// Process id, as `getpid` returns it (kernel: `tgid`).
    pub pid: crate::ids::Pid,
    /// Process id of the parent.
    pub parent_pid: crate::ids::Pid,
    /// The time at which the task was started, ns since boot (with suspend), as `/proc/PID/stat` counts.
    pub started_ns: u64,
    /// Name, up to 15 bytes; it comes from outside and may hold any byte but NUL.
    pub comm: Vec<u8>,
    /// cgroup of the task at this moment.
    pub cgroup: CgroupId,
    /// Scheduling class at this moment.
    pub class: crate::evidence::Class,
    /// Kernel priority (`task->prio`), as in [`Evidence::prio`].
    pub prio: i16,
    /// True if it is a kernel thread.
    pub is_kthread: bool,
    /// True if the capture was asked to record it (others are only named).
    pub in_scope: bool,
    /// `nvcsw` of the task at this moment.
    pub voluntary_switches: u64,
    /// `nivcsw` of the task at this moment.
    pub involuntary_switches: u64,
}

crate::reason::words! {
    /// An event in the life of a task.
    TaskEventKind {
        Seen = "seen": "first seen by the capture",
        Fork = "fork": "started by its parent during the capture",
        Exec = "exec": "executed a new program",
        Rename = "rename": "changed its name",
        Exit = "exit": "ended",
    }
}
use std::fmt;

/// Records that were produced but could not be kept: how many, on which CPU, in which time span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The CPU whose ring was full; at level `user`, the one that the scheduler is bound to.
    pub cpu: CpuId,
    /// Time of the first record that was lost.
    pub start: Timestamp,
    /// Time of the last record that was lost.
    pub end: Timestamp,
    /// Number of records that were lost.
    pub lost: u64,
    /// Level of the lost switches: the kernel's, or those of a user-mode scheduler.
    pub level: Level,
}

/// A wait or a run that no row tells, because the switch-out after it did not come before the capture
/// ended: a run that was still open, the wait before that run, or a wait that was still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The task that waited or ran.
    pub task: TaskKey,
    /// The reason for which the task had left its CPU; `None` for a run.
    pub reason: Option<Reason>,
    /// Start of the wait or run, on the trace clock.
    pub since: Timestamp,
    /// Time from `since` until the capture ended, or until the run began that was open then.
    pub lasted: Nanos,
    /// Of a wait: how long the task could run and had no CPU, at its end; `None` if it is not known, and
    /// for a run.
    pub runq: Option<Nanos>,
    /// The CPU on which it ran, or for which it waited; `None` if it is not known.
    pub cpu: Option<CpuId>,
}

impl Open {
    /// Returns when the capture ended, or when the run began that was open then.
    pub fn end(&self) -> Timestamp {
        Timestamp::from_ns(self.since.as_ns().saturating_add(self.lasted.as_ns()))
    }
}

/// A task that ran, or could run, when the capture ended, as the source of events knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskAtEnd {
    /// The task.
    pub task: TaskKey,
    /// True if its waits were asked for. Of others only the run is told.
    pub in_scope: bool,
    /// The CPU on which it ran, or for which it waited.
    pub cpu: CpuId,
    /// Its last switch-out; `None` if none was seen.
    pub left: Option<Timestamp>,
    /// The moment at which it could run again after that.
    pub woken: Option<Timestamp>,
    /// Since when it ran; `None` if it had no CPU.
    pub runs_since: Option<Timestamp>,
}

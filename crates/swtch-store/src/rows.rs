//! Rows that only a trace has: names of cgroups, command lines, wait types, workers. The other rows are
//! defined in `swtch-core`.

use swtch_core::{CgroupId, Nanos, Pid, Tid, Timestamp};

/// Place of a cgroup in the hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupRow {
    /// The cgroup, by the inode number of its directory.
    pub cgroup: CgroupId,
    /// Path from the root of its hierarchy.
    pub path: String,
}

/// The command line of a process at one moment; a program may change it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandRow {
    /// The moment at which it was read, on the trace clock.
    pub ts: Timestamp,
    /// The process that had this command line.
    pub pid: Pid,
    /// The words of the command line, separated by spaces.
    pub command: String,
}

/// A type of wait in a user-mode scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitTypeRow {
    /// Number of the wait type, used in the columns `wait_type` and `off_wait_type`.
    pub wait_type: u16,
    /// Name of the wait type, as the scheduler reports it.
    pub name: String,
}

/// A span of a thread that has ended: from where it came to one place of its program to where it came to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanRow {
    /// When it began, on the trace clock.
    pub begin: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// How spans of its kind are called.
    pub name: String,
    /// The trace that it is a part of, in hexadecimal digits, where the program has published that.
    pub trace_id: Option<String>,
    /// What of that trace it is.
    pub span_id: Option<String>,
}

/// Workers of a runtime's scheduler (goroutines) that waited at the same place, at a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingWorkersRow {
    /// When it was looked at, on the trace clock.
    pub ts: Timestamp,
    /// Their process.
    pub pid: Pid,
    /// What they wait for, in the words of the runtime; `None` for those that could run.
    pub reason: Option<String>,
    /// Their user stack.
    pub stack: Option<u32>,
    /// How many they are, in thousandths: of very many only some are read.
    pub thousandths: u64,
    /// The time that the look stands for: since the one before.
    pub between: Nanos,
}

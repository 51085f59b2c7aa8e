//! Requests for recordings.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use swtch_capture::{Children, HeldCommand, RecordingScope, Settings, SpanChoice};
use swtch_core::Pid;
use swtch_store::StackSettings;

use super::facts;
use super::ring::RingRequest;

/// A trace that is asked for.
#[derive(Clone, Debug)]
pub struct RecordRequest {
    /// Whose switches.
    pub capture: CaptureRequest,
    /// By what it is made, and how much of it is kept.
    pub by: TraceBy,
    /// The path of the trace; `None` picks a name with the date in the current directory.
    pub output: Option<PathBuf>,
    /// Stop after this time, measured from the first round of draining; `None` sets no limit.
    pub duration: Option<Duration>,
    /// The process that started this one, if the recording must end with it.
    pub with_parent: Option<Pid>,
    /// Spans of threads to record, too. Only eBPF programs tell them.
    pub spans: Vec<SpanChoice>,
}

/// By what a trace is made, and how much of it is kept. What cannot be had together has no form here.
#[derive(Clone, Debug)]
pub enum TraceBy {
    /// eBPF programs, where they are allowed; else perf events. All is kept.
    Auto {
        /// What reading the stacks of waits may cost; `None` reads none.
        stacks: Option<StackBudget>,
    },
    /// eBPF programs, and all is kept.
    Ebpf {
        /// What reading the stacks of waits may cost; `None` reads none.
        stacks: Option<StackBudget>,
    },
    /// eBPF programs, and the last part is kept.
    Ring(RingRequest),
    /// Perf events of own processes.
    Perf {
        /// What reading the stacks of waits may cost; `None` if none are read.
        stacks: Option<StackBudget>,
    },
}

/// What reading the stacks of waits may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackBudget {
    /// CPU time, in thousandths of one CPU.
    pub cpu_thousandths: u32,
}

impl StackBudget {
    /// What a trace says of stacks that were read so.
    pub const fn settings() -> StackSettings {
        StackSettings {
            min_blocked_ns: 0,
            by_looks: true,
        }
    }
}

impl TraceBy {
    /// What reading the stacks of waits may cost; `None` if none are read.
    pub const fn stacks(&self) -> Option<StackBudget> {
        match self {
            Self::Auto { stacks } | Self::Ebpf { stacks } | Self::Perf { stacks } => *stacks,
            Self::Ring(_) => None,
        }
    }
}

/// Whose switches eBPF programs tell of or count, and how they are attached: what traces, summaries and
/// `swtch top` have in common.
#[derive(Clone, Debug)]
pub struct CaptureRequest {
    /// The target of the recording.
    pub target: Target,
    /// Memory for the rings of all CPUs, in bytes; `None` for the default.
    pub buffer: Option<u64>,
    /// Hooks to treat as missing.
    pub without_hooks: Vec<String>,
    /// Hooks to attach to even if eBPF on them can crash this kernel.
    pub with_hooks: Vec<String>,
}

impl CaptureRequest {
    /// Whose switches are recorded.
    pub(super) fn scope(&self, command: Option<&HeldCommand>) -> RecordingScope {
        match (&self.target, command) {
            (Target::Command(_), Some(command)) => RecordingScope::Processes {
                pids: vec![command.pid()],
                children: Children::Recorded,
            },
            (Target::Processes { pids, children }, _) => RecordingScope::Processes {
                pids: pids.clone(),
                children: *children,
            },
            (Target::Cgroups(paths), _) => RecordingScope::Cgroups(paths.clone()),
            _ => RecordingScope::All,
        }
    }

    /// The settings of a capture of what was asked for.
    ///
    /// # Errors
    /// When the buffer is too small.
    pub fn settings(&self, command: Option<&HeldCommand>) -> Result<Settings> {
        let cpus = facts::possible_cpus();
        let mut settings = Settings {
            without_hooks: self.without_hooks.clone(),
            with_hooks: self.with_hooks.clone(),
            ..Settings::new(self.scope(command), cpus)
        };
        if let Some(bytes) = self.buffer {
            settings.set_buffer(bytes, cpus).context("--buffer")?;
        }
        Ok(settings)
    }
}

/// The work of this process after it has recorded, which decides whether it filters system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRecording {
    /// It only reports what was recorded, under a filter of system calls.
    Tells,
    /// It measures what switches cost, without a filter of system calls: the filter would be part
    /// of each price, 10 to 30 ns a system call (seen on 6.18).
    MeasuresPrices,
}

/// The target of a recording.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command, which the recorder starts.
    Command(Vec<OsString>),
    /// Processes that are running already.
    Processes {
        /// Their ids.
        pids: Vec<Pid>,
        /// Says whether the processes below them are recorded, too.
        children: Children,
    },
    /// The tasks of cgroups, given by their directories.
    Cgroups(Vec<PathBuf>),
    /// All tasks of the machine.
    All,
}

impl Target {
    /// The command, which is started and waits until it may begin; `None` if processes that run already
    /// are recorded.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn hold(&self) -> Result<Option<HeldCommand>> {
        match self {
            Self::Command(words) => Ok(Some(HeldCommand::start(words)?)),
            _ => Ok(None),
        }
    }

    /// Returns true if these are tasks, rather than a part of the machine: tasks have counters of their own, and may be
    /// recorded without root.
    pub const fn is_of_tasks(&self) -> bool {
        matches!(self, Self::Command(_) | Self::Processes { .. })
    }
}

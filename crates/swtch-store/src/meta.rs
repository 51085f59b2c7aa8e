//! `meta.json`: what a trace is of, and what it cost. Fields are only ever added; a reader fills
//! what an older trace lacks with defaults and passes over what it does not know.

use std::path::Path;

use serde::{Deserialize, Serialize};
use swtch_core::RULES_VERSION;

use crate::error::Error;

/// Version of the layout of a trace. It grows by one whenever a table, a column or a word is
/// added. Nothing is ever removed or changed in meaning.
pub const FORMAT_VERSION: u32 = 4;

/// The facts about one trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// [`FORMAT_VERSION`] of the program that wrote it.
    pub format_version: u32,
    /// [`RULES_VERSION`] of the rules that judged it.
    pub rules_version: u32,
    /// Version of the program that wrote it.
    pub swtch_version: String,
    /// How far the recording came.
    pub state: State,
    /// Why it ended, when it did not end as asked for.
    pub stop_reason: Option<String>,
    /// The machine.
    pub host: Host,
    /// One moment on three clocks, to tell wall time from trace time.
    pub clock: Clock,
    /// The traced command; empty when there was none.
    pub command: Vec<String>,
    /// What was recorded, in words: the command, process ids, a cgroup, the whole system.
    pub scope: String,
    /// Start of the capture, on the trace clock.
    pub start_ns: u64,
    /// End of the capture, on the trace clock.
    pub end_ns: u64,
    /// Where the switches went; the sum is checked.
    pub counts: Counts,
    /// What the kernel itself counted.
    pub kernel: KernelCounts,
    /// What the kernel knew of the processes that were recorded; `None` of another scope, and in
    /// traces of older programs.
    pub tree: Option<TreeCounts>,
    /// How the recorder was kept from being starved; `None` in traces of older programs.
    pub guard: Option<RecorderGuard>,
    /// What the recording cost.
    pub overhead: Overhead,
    /// What the kernel lacked.
    pub hooks: Hooks,
    /// How stacks were taken; `None` when they were not.
    pub stacks: Option<Stacks>,
    /// Where the switches of user-mode schedulers went; `None` when no such scheduler was met.
    pub user: Option<UserCounts>,
    /// What it was imported from; `None` for a recording of our own.
    pub imported: Option<Imported>,
}

/// How far a recording came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It goes on, or its recorder was killed.
    #[default]
    Recording,
    /// It ended as asked for.
    Finished,
    /// It ended before; [`Meta::stop_reason`] says why.
    StoppedEarly,
}

/// The machine of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    pub hostname: String,
    /// Kernel release, as `uname -r` says it.
    pub kernel_release: String,
    /// Architecture, as `uname -m` says it.
    pub machine: String,
    /// CPUs that are online.
    pub cpus: u32,
    /// CPUs that the recorder could use, by its affinity and its cgroup's quota. A command that it starts
    /// inherits both. `None` in traces of versions that did not tell.
    pub usable_cpus: Option<u32>,
}

/// One moment, read on three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// `CLOCK_MONOTONIC`: the trace clock.
    pub monotonic_ns: u64,
    /// `CLOCK_BOOTTIME`: as the former, with time in suspend.
    pub boottime_ns: u64,
    /// `CLOCK_REALTIME`: since 1970.
    pub realtime_ns: u64,
}

/// Where the switches went: `switches_seen` is the sum of all but `idle`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Switch-outs of tasks that the probes saw.
    pub switches_seen: u64,
    /// Rows of `switch`.
    pub stored: u64,
    /// Out of scope.
    pub filtered: u64,
    /// No space in a ring; the `gap` table says when and where.
    pub lost: u64,
    /// Switches away from idle: nobody pays for them.
    pub idle: u64,
    /// Switch-outs whose task could not be named.
    pub unnamed: u64,
    /// Rows that came after a later one had been stored; they are in the trace, in their place.
    pub late: u64,
    /// Rows that the disk did not take.
    pub storage_failed: u64,
    /// Switches that the kernel counted for the recorded tasks (`nvcsw + nivcsw`) between two of
    /// their rows: what is missing by the kernel's own count, [`Self::lost`] included.
    pub uncaught: u64,
    /// Switches that the kernel's tracepoint did not report: another task left than the one that
    /// had come. They are not part of [`Self::switches_seen`].
    pub untraced: u64,
    /// Times that the kernel refused storage for a task: what that event would have told is missing,
    /// such as a waker or the start of a wait.
    pub storage_refused: u64,
}

/// Where the switches of user-mode schedulers went. They are in no count of the kernel's switches.
/// `written` is the sum of the five below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserCounts {
    /// Processes with a scheduler that were watched.
    pub processes: u64,
    /// Events that the schedulers wrote down while they were watched.
    pub written: u64,
    /// Rows of `switch` at level `user`.
    pub stored: u64,
    /// Events that said that nothing was runnable: no switch-out of anybody.
    pub idle: u64,
    /// Overwritten before they were read, or unreadable; the `gap` table says when.
    pub lost: u64,
    /// Switch-outs whose thread could not be named.
    pub unnamed: u64,
    /// Rows that the disk did not take.
    pub storage_failed: u64,
    /// The kernel's switches of schedulers' threads at which the word that names the worker could
    /// not be read.
    pub words_unread: u64,
    /// Why a scheduler that was met could not be watched, one sentence each.
    pub refused: Vec<String>,
}

/// The kernel's own count of context switches (`ctxt` in `/proc/stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelCounts {
    /// At the start.
    pub ctxt_before: Option<u64>,
    /// At the end.
    pub ctxt_after: Option<u64>,
}

impl KernelCounts {
    /// Switches in between, those of idle tasks included; `None` when a count could not be read.
    pub fn moved(&self) -> Option<u64> {
        Some(self.ctxt_after?.saturating_sub(self.ctxt_before?))
    }
}

/// What the kernel knew of the processes that were recorded, apart from the probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeCounts {
    /// Processes in scope when the recording began: those that were asked for, and those below them.
    pub processes: u64,
    /// Switches that the kernel counted (`nvcsw + nivcsw`) during the recording, of their threads that
    /// live at its end. Threads that have ended meanwhile are not in it.
    pub switches: u64,
    /// Tasks that could not be looked at when the tree was taken, because too many ended at that moment
    /// or the kernel refused storage: when it is not 0, processes may be missing.
    pub missed: u64,
}

/// The real-time priority that the recorder could borrow while its rings were filling, so that
/// real-time tasks do not starve it, and how much it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecorderGuard {
    /// `deadline`, `fifo`, or `none` without the right to a real-time priority.
    pub policy: String,
    /// The priority of `fifo`, 1 to 99.
    pub priority: Option<u8>,
    /// How often the rings were filling.
    pub lent_times: u64,
    /// For how long the recorder could run at that priority: at most 94 % of one CPU.
    pub lent_ns: u64,
}

/// What a recording cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overhead {
    /// CPU time of the recorder.
    pub recorder_cpu_ns: u64,
    /// Its largest resident memory.
    pub recorder_peak_rss_bytes: u64,
    /// Bytes written while recording.
    pub bytes: u64,
}

/// Hooks of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hooks {
    /// Those that this kernel lacks; rules that need them fall back.
    pub missing: Vec<String>,
    /// Those that were not attached to, because this kernel can crash by eBPF on them; rules fall back as
    /// without them.
    pub left_out: Vec<String>,
}

/// What a trace was made of that another program recorded. Its evidence is less: reasons go only as far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Imported {
    /// The format, and the program that wrote it.
    pub format: String,
    /// The file's name.
    pub file: String,
    /// The kernel's events that it holds.
    pub events: Vec<String>,
    /// Runs whose start it does not hold: their length is in no sum of run times.
    pub runs_without_start: u64,
    /// Records of the file that could not be understood: they are damaged, or newer than the program that
    /// imported them. What they said is in no row.
    pub unreadable_records: u64,
}

impl Imported {
    /// What is missing of the file, in a sentence; `None` when every record was understood.
    pub fn incomplete(&self) -> Option<String> {
        let records = match self.unreadable_records {
            0 => return None,
            1 => "1 record".to_owned(),
            many => format!("{many} records"),
        };
        Some(format!(
            "{records} of the file could not be understood, and what they said is in no row: counts and sums are \
             lower bounds"
        ))
    }
}

/// How stacks were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stacks {
    /// Only of waits that were blocked at least this long.
    pub min_blocked_ns: u64,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            format_version: FORMAT_VERSION,
            rules_version: RULES_VERSION,
            swtch_version: env!("CARGO_PKG_VERSION").to_owned(),
            state: State::default(),
            stop_reason: None,
            host: Host::default(),
            clock: Clock::default(),
            command: Vec::new(),
            scope: String::new(),
            start_ns: 0,
            end_ns: 0,
            counts: Counts::default(),
            kernel: KernelCounts::default(),
            tree: None,
            guard: None,
            overhead: Overhead::default(),
            hooks: Hooks::default(),
            stacks: None,
            user: None,
            imported: None,
        }
    }
}

impl Meta {
    /// CPUs that the recorded threads can have had together: those that are online, or fewer where the
    /// recorder started the command itself, which inherits its affinity and quota.
    pub fn cpus_of_the_recorded(&self) -> u32 {
        let inherited = self.host.usable_cpus.filter(|_| !self.command.is_empty());
        inherited.map_or(self.host.cpus, |usable| usable.min(self.host.cpus))
    }

    /// The bytes of `meta.json`: indented, one final newline.
    pub(crate) fn to_json(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let mut json = serde_json::to_vec_pretty(self).map_err(|err| Error::encode(path, err))?;
        json.push(b'\n');
        Ok(json)
    }

    pub(crate) fn from_json(path: &Path, json: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(json).map_err(|source| Error::Meta {
            path: path.to_owned(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Traces outlive programs, in both directions.
    #[test]
    fn missing_fields_default_and_unknown_ones_are_passed_over() {
        let json = br#"{"scope": "all", "moon": "full", "host": {"cpus": 2, "sun": 1}}"#;
        let meta = Meta::from_json(Path::new("meta.json"), json).unwrap();
        assert_eq!((meta.scope.as_str(), meta.host.cpus), ("all", 2));
        assert_eq!(meta.counts, Counts::default());
    }

    /// Fields that were always empty or null are in older traces only.
    #[test]
    fn fields_that_are_gone_do_not_close_a_trace() {
        let json =
            br#"{"host": {"cpus": 2, "facts": {}}, "overhead": {"kernel_ns_per_switch": null}}"#;
        let meta = Meta::from_json(Path::new("meta.json"), json).unwrap();
        assert_eq!((meta.host.cpus, meta.host.usable_cpus), (2, None));
    }

    /// `taskset -c 0 swtch record -a` sees all CPUs; `taskset -c 0 swtch record -- CMD` has one for CMD.
    #[test]
    fn only_a_command_inherits_the_affinity_of_its_recorder() {
        let mut meta = Meta::default();
        (meta.host.cpus, meta.host.usable_cpus) = (8, Some(1));
        assert_eq!(meta.cpus_of_the_recorded(), 8);
        meta.command = vec!["make".into()];
        assert_eq!(meta.cpus_of_the_recorded(), 1);
        meta.host.usable_cpus = None;
        assert_eq!(meta.cpus_of_the_recorded(), 8);
    }

    #[test]
    fn meta_survives_json() {
        let meta = Meta {
            state: State::StoppedEarly,
            stop_reason: Some("disk full".into()),
            stacks: Some(Stacks { min_blocked_ns: 5 }),
            command: vec!["perf".into(), "bench".into()],
            ..Meta::default()
        };
        let path = Path::new("meta.json");
        let json = meta.to_json(path).unwrap();
        assert_eq!(Meta::from_json(path, &json).unwrap(), meta);
    }
}

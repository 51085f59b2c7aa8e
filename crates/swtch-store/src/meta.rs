//! `meta.json`: the facts about a trace, and what recording it cost. A reader fills fields that an
//! older trace lacks with defaults, and ignores fields that it does not know. The version of the format has no
//! default, because every trace has one.

use std::path::Path;

use serde::{Deserialize, Serialize};
use swtch_core::{CpuTopology, RULES_VERSION, UntoldSpans};

use crate::error::Error;

/// Name of the file.
pub(crate) const META: &str = "meta.json";

/// Version of the layout of a trace. It grows by one whenever a table, a column or a word is added.
/// None is ever removed or changed in meaning.
pub const FORMAT_VERSION: u32 = 10;

/// [`Meta::scope`] of a recording of all tasks.
pub const WHOLE_SYSTEM: &str = "whole system";

/// The facts about one trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// [`FORMAT_VERSION`] of the program that wrote it. A file that does not tell it is refused.
    #[serde(default)]
    pub format_version: u32,
    /// [`RULES_VERSION`] of the rules that decided the reasons; 0 if a file does not tell it.
    #[serde(default)]
    pub rules_version: u32,
    /// Version of the program that wrote it; empty if a file does not tell it.
    #[serde(default)]
    pub swtch_version: String,
    /// The state that the recording was in when this was written.
    pub state: RecordingState,
    /// The reason why it ended, when it did not end as requested.
    pub stop_reason: Option<String>,
    /// The machine that was recorded.
    pub host: TraceHost,
    /// One moment on three clocks, to tell wall time from trace time.
    pub clock: ClockSample,
    /// The traced command and its arguments; empty when there was none.
    pub command: Vec<String>,
    /// The scope of the recording, in words: the command, process ids, a cgroup, or [`WHOLE_SYSTEM`].
    pub scope: String,
    /// Start of the capture, on the trace clock.
    pub start_ns: u64,
    /// End of the capture, on the trace clock.
    pub end_ns: u64,
    /// The counts of the switches, by what became of them; the sum is checked.
    pub counts: Counts,
    /// The kernel's own counts of switches.
    pub kernel: KernelCounts,
    /// The load of the machine meanwhile.
    pub load: HostLoad,
    /// Process id of the recorder, whose helpers are its children; `None` in traces of older programs.
    pub recorder_pid: Option<u32>,
    /// The kernel's counts for the processes that were recorded; `None` for another scope, and in
    /// traces of older programs.
    pub tree: Option<TreeCounts>,
    /// The recorder's protection from being starved; `None` in traces of older programs.
    pub guard: Option<RecorderGuard>,
    /// The cost of the recording itself.
    pub overhead: Overhead,
    /// The means by which the kernel reported switches.
    pub backend: RecordingBackend,
    /// Hooks that this kernel lacks or that were not used.
    pub hooks: Hooks,
    /// The settings of stacks; `None` when none were taken.
    pub stacks: Option<StackSettings>,
    /// The counts of spans that are not in the trace (`span.parquet`); `None` when no spans were asked for.
    pub spans: Option<UntoldSpans>,
    /// The counts of the switches of user-mode schedulers; `None` when there was no such scheduler.
    pub user: Option<UserCounts>,
    /// The file it was imported from; `None` for a recording.
    pub imported: Option<Imported>,
    /// Facts about a flight recording, of which only the last part was kept; `None` for any other.
    pub ring: Option<RingFacts>,
    /// Quotas of CPU time of the cgroups that tasks were in, and of those above them. Older traces have
    /// none.
    pub quotas: Vec<QuotaFacts>,
    /// The work of the machine's disks, of those that did anything. None in traces of older versions, in imports, and
    /// in dumps of a flight recorder.
    pub disks: Vec<DiskFacts>,
    /// Limits of memory of the machine's cgroups, those that were reached. None in traces of older versions, in imports,
    /// and in dumps of a flight recorder.
    pub memory_limits: Vec<MemoryLimitFacts>,
    /// Threads that were blocked all the time, so that no row tells of them. `None` where it was not looked:
    /// in traces of older programs, without eBPF, in imports, in dumps, and in recordings that did not
    /// end.
    pub lasting: Option<LastingWaits>,
}

/// The state of a recording: how far it had come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingState {
    /// It goes on, or its recorder was killed.
    #[default]
    Recording,
    /// It ended as it was asked to.
    Finished,
    /// It ended earlier; [`Meta::stop_reason`] says why.
    StoppedEarly,
}

/// The means by which the kernel reports switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingBackend {
    /// eBPF programs at the scheduler's tracepoints, which takes root.
    #[default]
    Ebpf,
    /// `perf_event_open(2)` for own processes: no wakers, no system calls, and not who asked for the CPU.
    Perf,
}

impl RecordingBackend {
    /// Returns how the trace was made, in words.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Ebpf => "recorded by eBPF",
            Self::Perf => "recorded by perf events",
        }
    }

    /// Returns what such traces do not tell, for the head of an answer; `None` if they tell all that answers need.
    pub const fn not_told(self) -> Option<&'static str> {
        match self {
            Self::Ebpf => None,
            Self::Perf => Some(
                "recorded by perf events, without eBPF: those tell neither the system call nor who asked for the \
                 CPU or woke whom, so reasons are only blocked or preempted; swtch doctor says what the rest takes",
            ),
        }
    }
}

/// The machine that a trace was recorded on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceHost {
    /// Host name of the machine.
    pub hostname: String,
    /// Kernel release, as `uname -r` says it.
    pub kernel_release: String,
    /// Architecture, as `uname -m` says it.
    pub machine: String,
    /// Number of CPUs that are online.
    pub cpus: u32,
    /// Number of CPUs that the recorder could use, by its affinity and its cgroup's quota. A
    /// command that it starts inherits both. `None` in traces of older versions.
    pub usable_cpus: Option<u32>,
    /// NUMA nodes and SMT siblings; `None` in traces of older versions and in imports.
    pub topology: Option<CpuTopology>,
    /// The kernel's preemption model (`none`, `voluntary`, `full`, `lazy`), as `swtch doctor` says
    /// it; `None` in traces of older versions, in imports, and where the kernel does not tell it.
    pub preemption: Option<String>,
    /// The processor's name; `None` in traces of older versions, in imports, and where it has none.
    pub cpu_model: Option<String>,
}

/// One moment, read on three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockSample {
    /// `CLOCK_MONOTONIC`, the trace clock, in ns.
    pub monotonic_ns: u64,
    /// `CLOCK_BOOTTIME` in ns: since boot, with time in suspend.
    pub boottime_ns: u64,
    /// `CLOCK_REALTIME` in ns since 1970.
    pub realtime_ns: u64,
}

/// The counts of the switches, by what became of them. `switches_seen` is the sum of `stored`, `filtered`, `lost`,
/// `unnamed` and `storage_failed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Switch-outs of tasks that the probes saw.
    pub switches_seen: u64,
    /// Number of kernel switches stored in the table `switch`.
    pub stored: u64,
    /// Switches of tasks out of scope.
    pub filtered: u64,
    /// Records lost because a ring had no space; the `gap` table says when and where. In a recording by perf events
    /// these are switch-outs, estimated from the records: the true number is not larger. In an import they are records
    /// of any kind.
    pub lost: u64,
    /// Switches away from idle, which no task pays for.
    pub idle: u64,
    /// Switch-outs whose task could not be named.
    pub unnamed: u64,
    /// Rows that came after a later one had been stored; the trace holds them in order of time.
    pub late: u64,
    /// Rows lost because a write to the disk failed.
    pub storage_failed: u64,
    /// Switches that the kernel counted for the recorded tasks (`nvcsw + nivcsw`) between two of
    /// their rows: the number missing by the kernel's own count, [`Self::lost`] included.
    pub uncaught: u64,
    /// Switches that the kernel's tracepoint did not report: the task that left was not the one
    /// that had come. They are not part of [`Self::switches_seen`].
    pub untraced: u64,
    /// Of [`Self::untraced`]: those away from a task in scope. `None` in traces of older versions and
    /// in imports.
    pub untraced_in_scope: Option<u64>,
    /// Number of times that there was no room for the state of a task. The data of that event is
    /// missing, such as a waker or the start of a wait.
    pub storage_refused: u64,
    /// Records of who a task is, or of its end, that were lost because a ring had no space.
    pub lost_names: u64,
}

/// The counts of the switches of user-mode schedulers, by what became of them. They are in no count of the kernel's
/// switches. `written` is the sum of the five below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserCounts {
    /// Processes with a scheduler that were watched.
    pub processes: u64,
    /// Events that the schedulers reported while they were watched.
    pub written: u64,
    /// Rows of `switch` at level `user`.
    pub stored: u64,
    /// Events that said that no worker was runnable, so none left.
    pub idle: u64,
    /// Events overwritten before they were read, or unreadable; the `gap` table says when.
    pub lost: u64,
    /// Switch-outs whose thread could not be named.
    pub unnamed: u64,
    /// Rows lost because a write to the disk failed.
    pub storage_failed: u64,
    /// The kernel's switches of schedulers' threads at which the word that names the worker could
    /// not be read.
    pub words_unread: u64,
    /// The reasons why schedulers could not be watched, one sentence each.
    pub refused: Vec<String>,
}

/// The kernel's own count of context switches (`ctxt` in `/proc/stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelCounts {
    /// The count when the recording began.
    pub ctxt_before: Option<u64>,
    /// The count when the recording ended.
    pub ctxt_after: Option<u64>,
}

impl KernelCounts {
    /// Switches in between, including those of idle tasks; `None` when a count could not be read.
    pub fn switches(&self) -> Option<u64> {
        self.ctxt_after?.checked_sub(self.ctxt_before?)
    }
}

/// The load of the machine while it was recorded, by sums that the kernel keeps since its boot. Each is `None` in
/// traces of older versions, in imports, and where the kernel does not keep it; those at the end also in a recording
/// that was cut off, and in a dump of a flight recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLoad {
    /// Time in which some task of the machine waited for a CPU (`some` of `/proc/pressure/cpu`), when
    /// the recording began.
    pub cpu_pressure_before_ns: Option<u64>,
    /// Time in which some task of the machine waited for a CPU, when the recording ended.
    pub cpu_pressure_after_ns: Option<u64>,
    /// CPU time of all CPUs that the hypervisor gave to others (`steal` of `/proc/stat`), when the
    /// recording began.
    pub steal_before_ns: Option<u64>,
    /// CPU time of all CPUs that the hypervisor gave to others, when the recording ended.
    pub steal_after_ns: Option<u64>,
    /// CPU time of all CPUs that was not idle, nor given to others (`/proc/stat`), when the recording began.
    pub busy_before_ns: Option<u64>,
    /// CPU time of all CPUs that was not idle, nor given to others, when the recording ended.
    pub busy_after_ns: Option<u64>,
}

impl HostLoad {
    /// Time of the recording in which some task waited for a CPU; `None` if it is not known.
    pub fn cpu_pressure_ns(&self) -> Option<u64> {
        self.cpu_pressure_after_ns?
            .checked_sub(self.cpu_pressure_before_ns?)
    }

    /// CPU time of all CPUs during the recording that was not idle, nor given to others; `None` if it is
    /// not known.
    pub fn busy_ns(&self) -> Option<u64> {
        self.busy_after_ns?.checked_sub(self.busy_before_ns?)
    }

    /// CPU time that the hypervisor gave to others during the recording; `None` if it is not known, as where the
    /// kernel's sum went back.
    pub fn steal_ns(&self) -> Option<u64> {
        self.steal_after_ns?.checked_sub(self.steal_before_ns?)
    }
}

/// The kernel's own data on the processes that were recorded, independent of the probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeCounts {
    /// Processes in scope when the recording began: those requested, and their descendants.
    pub processes: u64,
    /// Switches that the kernel counted (`nvcsw + nivcsw`) during the recording, of those of their
    /// threads that live at its end. Threads that ended meanwhile are not included.
    pub switches: u64,
    /// Tasks that could not be examined when the tree was taken, because too many ended at that
    /// moment or the kernel refused storage. If it is not 0, processes may be missing.
    pub missed: u64,
}

/// The real-time priority that the recorder could borrow while its rings were filling, so that
/// real-time tasks do not starve it, and how much it used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecorderGuard {
    /// `deadline`, `fifo`, or `none` without the right to a real-time priority.
    pub policy: String,
    /// The priority of `fifo`, 1 to 99; `None` for other policies.
    pub priority: Option<u8>,
    /// The number of times that the rings were filling, so that the priority was lent.
    pub lent_times: u64,
    /// Time in which the recorder could run at that priority, in ns: at most 94 % of one CPU.
    pub lent_ns: u64,
}

/// Resources that a recording used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overhead {
    /// CPU time of the recorder until the recording ended, in ns: without that for making rows of
    /// the records.
    pub recorder_cpu_ns: u64,
    /// The largest resident memory of the recorder until then.
    pub recorder_peak_rss_bytes: u64,
    /// Bytes written to the trace while recording.
    pub bytes: u64,
    /// Mean time in ns that a switch of the machine took in the recorder's programs in the kernel;
    /// `None` if it was not measured.
    pub kernel_ns_per_switch: Option<f64>,
    /// Runs of the recorder's programs for a switch of the machine; `None` if they were not counted.
    pub kernel_runs_per_switch: Option<f64>,
    /// Number of switches that this is the mean of.
    pub kernel_cost_switches: u64,
}

impl Overhead {
    /// Returns what the programs in the kernel took, in words; `None` if it was not measured.
    pub fn in_kernel(&self) -> Option<String> {
        let cost = self.kernel_ns_per_switch?;
        Some(format!("{cost:.0} ns a switch in the kernel"))
    }
}

/// Hooks of the kernel that a recording had to do without.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hooks {
    /// Hooks that this kernel lacks; rules that need them fall back.
    pub missing: Vec<String>,
    /// Hooks that were not attached to, because eBPF on them can crash this kernel; rules fall back
    /// as if they were missing.
    pub left_out: Vec<String>,
}

/// The source of a trace that another program recorded. Its evidence is less than that of a
/// recording, and so are the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Imported {
    /// The format, and the program that wrote it.
    pub format: String,
    /// Name of the file that was imported.
    pub file: String,
    /// Names of the kernel events that the file holds.
    pub events: Vec<String>,
    /// Runs whose start the file does not hold: their length is in no sum of run times.
    pub runs_without_start: u64,
    /// Records of the file that could not be understood: they are damaged, or newer than the
    /// program that imported them. No row holds their data.
    pub unreadable_records: u64,
}

impl Imported {
    /// Returns what is missing from the file, in a sentence; `None` when every record was understood.
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

/// Facts about the whole of a flight recording. All other facts are about the part of it that was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RingFacts {
    /// The amount that was kept, as it was asked for: `5m`, `512MB`.
    pub kept: String,
    /// The moment at which the recording began, on the trace clock.
    pub began_ns: u64,
    /// Number of switches that were recorded since then.
    pub switches: u64,
    /// Number of switches that were lost since then.
    pub lost: u64,
    /// Number of switches since then that the kernel's tracepoint did not report.
    pub untraced: u64,
    /// The reason why this dump was made, in words; `None` for the recording itself.
    pub dumped_because: Option<String>,
    /// The switch that met the condition for which this dump was made; `None` for another cause, and in
    /// dumps of older programs.
    pub fired: Option<FiredSwitch>,
}

/// A switch that met a condition of a flight recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FiredSwitch {
    /// The task, as the tables name it.
    pub task: u32,
    /// The moment of its switch-out, on the trace clock.
    pub ts_ns: u64,
    /// True if the condition is about the wait that began there, which was open then. Else it is about the run that
    /// ended there and the wait before it.
    pub is_open: bool,
}

/// A cgroup that has a quota of CPU time, and how often that was used up while it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaFacts {
    /// The cgroup, as the table `cgroup` names it.
    pub cgroup: String,
    /// The CPU time that it and all below it may use in a period, in µs.
    pub quota_us: u64,
    /// The length of a period, in µs.
    pub period_us: u64,
    /// Number of periods in which it was used up.
    pub throttled_periods: u64,
    /// For how long CPUs were stopped by it, added up over CPUs.
    pub throttled_ns: u64,
}

/// The work of a disk of the machine, whoever asked for it, by `/proc/diskstats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskFacts {
    /// Its name, as below `/dev`.
    pub name: String,
    /// Its sums when the recording began.
    pub before: DiskCounts,
    /// Its sums when the recording ended; `None` in a recording that was cut off.
    pub after: Option<DiskCounts>,
}

impl DiskFacts {
    /// Returns what it did meanwhile; `None` if it is not known, as where a sum of the kernel's began anew.
    pub fn meanwhile(&self) -> Option<DiskCounts> {
        let (before, after) = (&self.before, self.after?);
        Some(DiskCounts {
            requests: after.requests.checked_sub(before.requests)?,
            taken_ns: after.taken_ns.checked_sub(before.taken_ns)?,
            busy_ns: after.busy_ns.checked_sub(before.busy_ns)?,
        })
    }
}

/// Requests to a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskCounts {
    /// Number of requests that it completed: reads, writes, discards and flushes.
    pub requests: u64,
    /// The time that these took, added up.
    pub taken_ns: u64,
    /// The time for which it had at least one of them.
    pub busy_ns: u64,
}

/// The memory that a cgroup may use, and how often its processes wanted more (`memory.events` of cgroup v2,
/// `memory.failcnt` of v1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryLimitFacts {
    /// Path of the cgroup, in the hierarchy with the memory controller.
    pub cgroup: String,
    /// The limit.
    pub bytes: u64,
    /// The number of times that it had been reached when the recording began.
    pub reached_before: u64,
    /// The number of times that it had been reached when the recording ended; `None` in a recording that was cut
    /// off.
    pub reached_after: Option<u64>,
}

impl MemoryLimitFacts {
    /// Returns how often it was reached meanwhile; `None` if it is not known.
    pub fn reached(&self) -> Option<u64> {
        self.reached_after?.checked_sub(self.reached_before)
    }
}

/// The threads in scope that were blocked from before the recording began until its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastingWaits {
    /// Their number, without kernel threads that had nothing to do.
    pub threads: u64,
    /// Number of kernel threads that had nothing to do.
    pub idle_kernel_threads: u64,
    /// Threads that wait alike; at most 500 groups are kept.
    pub groups: Vec<LastingGroup>,
    /// The number of `threads` that are in no group that was kept.
    pub not_listed: u64,
}

/// Threads of one process that wait alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastingGroup {
    /// The process.
    pub pid: u32,
    /// Name of the process's first thread.
    pub program: String,
    /// Number of threads.
    pub threads: u64,
    /// The ids of the first 16.
    pub tids: Vec<u32>,
    /// Their state, by the letter that `ps` shows: `S`, `D`, `T`, `t`, `I`.
    pub state: String,
    /// Number of the system call that they are in; `None` for kernel threads, outside of a call, as in a
    /// page fault, and in a call of 32-bit code.
    pub syscall: Option<u32>,
    /// The kernel's function that waits; `None` where the kernel did not tell.
    pub function: Option<String>,
    /// The moment at which the first of them was last given a CPU, on the trace clock; `None` where that is not known
    /// of each of them.
    pub ran_first_ns: Option<u64>,
    /// The moment at which the last of them was last given a CPU.
    pub ran_last_ns: Option<u64>,
}

/// The settings by which stacks were recorded with the waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StackSettings {
    /// Only waits blocked for at least this long have stacks.
    pub min_blocked_ns: u64,
    /// True if they were read while the threads waited, so that short waits have none.
    pub by_looks: bool,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            format_version: FORMAT_VERSION,
            rules_version: RULES_VERSION,
            swtch_version: env!("CARGO_PKG_VERSION").to_owned(),
            state: RecordingState::default(),
            stop_reason: None,
            host: TraceHost::default(),
            clock: ClockSample::default(),
            command: Vec::new(),
            scope: String::new(),
            start_ns: 0,
            end_ns: 0,
            counts: Counts::default(),
            kernel: KernelCounts::default(),
            load: HostLoad::default(),
            recorder_pid: None,
            tree: None,
            guard: None,
            overhead: Overhead::default(),
            backend: RecordingBackend::default(),
            hooks: Hooks::default(),
            stacks: None,
            spans: None,
            user: None,
            imported: None,
            ring: None,
            quotas: Vec::new(),
            disks: Vec::new(),
            memory_limits: Vec::new(),
            lasting: None,
        }
    }
}

impl Meta {
    /// Number of CPUs that the recorded threads can have had together: those online, or fewer where
    /// the recorder started the command itself, which inherits its affinity and quota.
    pub fn cpus_of_the_recorded(&self) -> u32 {
        let inherited = self.host.usable_cpus.filter(|_| !self.command.is_empty());
        inherited.map_or(self.host.cpus, |usable| usable.min(self.host.cpus))
    }

    /// The bytes of `meta.json`: indented, with one final newline.
    pub(crate) fn to_json(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let mut json = serde_json::to_vec_pretty(self).map_err(|err| Error::encode(path, err))?;
        json.push(b'\n');
        Ok(json)
    }

    /// The facts in the bytes of `meta.json`.
    ///
    /// # Errors
    /// When they are none, or do not tell the version of the format: which tables there are, and what they mean,
    /// would be guessed.
    pub(crate) fn from_json(path: &Path, json: &[u8]) -> Result<Self, Error> {
        let meta: Self = serde_json::from_slice(json).map_err(|source| Error::Meta {
            path: path.to_owned(),
            source,
        })?;
        match meta.format_version {
            0 => Err(Error::damaged(path, "it does not tell its format_version")),
            _ => Ok(meta),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Older and newer programs must be able to read the same file.
    #[test]
    fn missing_fields_default_and_unknown_ones_are_passed_over() {
        let json = br#"{"format_version": 3, "scope": "all", "moon": "full", "host": {"cpus": 2, "sun": 1}}"#;
        let meta = Meta::from_json(Path::new("meta.json"), json).unwrap();
        assert_eq!(meta.host.topology, None, "older traces do not tell it");
        assert_eq!(meta.host.cpu_model, None);
        assert_eq!(
            (meta.load.cpu_pressure_ns(), meta.load.steal_ns()),
            (None, None)
        );
        assert_eq!((meta.scope.as_str(), meta.host.cpus), ("all", 2));
        assert_eq!(meta.counts, Counts::default());
        // Nothing of this program is taken for what wrote the file.
        assert_eq!((meta.format_version, meta.rules_version), (3, 0));
        assert_eq!(meta.swtch_version, "");
    }

    /// By the newest version, the reader would look for tables that older traces do not have.
    #[test]
    fn facts_without_a_version_of_the_format_are_refused() {
        for json in [r#"{"scope": "all"}"#, r#"{"format_version": 0}"#] {
            let refused = Meta::from_json(Path::new("meta.json"), json.as_bytes()).unwrap_err();
            assert!(refused.to_string().contains("format_version"), "{refused}");
        }
    }

    /// `host.facts` was always empty, and is in older traces only.
    #[test]
    fn a_field_that_is_gone_does_not_close_a_trace() {
        let json = br#"{"format_version": 1, "host": {"cpus": 2, "facts": {}}}"#;
        let meta = Meta::from_json(Path::new("meta.json"), json).unwrap();
        assert_eq!((meta.host.cpus, meta.host.usable_cpus), (2, None));
    }

    /// `taskset -c 0 swtch record -a` sees all CPUs; `taskset -c 0 swtch record -- CMD` has one.
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

    /// The kernel's sum of stolen time may go back. What is not known is not 0.
    #[test]
    fn a_sum_that_went_back_tells_no_length() {
        let load = HostLoad {
            steal_before_ns: Some(20),
            steal_after_ns: Some(10),
            busy_before_ns: Some(10),
            busy_after_ns: Some(25),
            ..HostLoad::default()
        };
        assert_eq!((load.steal_ns(), load.busy_ns()), (None, Some(15)));
    }

    #[test]
    fn meta_survives_json() {
        let meta = Meta {
            state: RecordingState::StoppedEarly,
            stop_reason: Some("disk full".into()),
            stacks: Some(StackSettings {
                min_blocked_ns: 5,
                by_looks: false,
            }),
            command: vec!["perf".into(), "bench".into()],
            host: TraceHost {
                topology: Some(CpuTopology::of_lists(
                    [(0, "0-1".to_owned())],
                    ["0-1".to_owned()],
                )),
                ..TraceHost::default()
            },
            ..Meta::default()
        };
        let path = Path::new("meta.json");
        let json = meta.to_json(path).unwrap();
        assert_eq!(Meta::from_json(path, &json).unwrap(), meta);
    }
}

//! Fills in `meta.json`: facts about the machine, the command, the counts and the overhead.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use swtch_capture::{Capture, Children, LastingTasks, boottime_ns, monotonic_ns, process_cpu_ns};
use swtch_core::{Arch, Nanos, TaskAtEnd, Timestamp};
use swtch_host::{DiskSums, LoadSums, MemoryLimit};
use swtch_output::built;
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_store::{
    ClockSample, Counts, DiskCounts, DiskFacts, Hooks, HostLoad, MemoryLimitFacts, Meta, Overhead,
    RecordingState, TraceHost, TreeCounts, WHOLE_SYSTEM,
};

use super::Target;
use super::lasting;
use super::pipeline::Pipeline;

/// The architecture of this machine, if its system calls are known.
pub fn arch() -> Result<Arch> {
    Arch::from_machine(std::env::consts::ARCH)
        .with_context(|| format!("the system calls of {} are unknown", std::env::consts::ARCH))
}

/// Number of CPUs that can ever be online.
pub(crate) fn possible_cpus() -> usize {
    let range = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = range
        .trim()
        .rsplit(['-', ','])
        .next()
        .and_then(|last| last.parse::<usize>().ok());
    last.map_or(1, |last| last + 1)
}

/// A name in this directory from what is recorded and the time. From `nth` = 2 on it is numbered,
/// because two recordings of one program may begin in the same second.
pub(crate) fn default_path(target: &Target, nth: u32) -> PathBuf {
    let what = match target {
        Target::Command(words) => {
            let program = words
                .first()
                .map(|word| Path::new(word).to_owned())
                .unwrap_or_default();
            program
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        }
        Target::Processes { pids, .. } => pids
            .first()
            .map_or_else(String::new, |pid| format!("pid{pid}")),
        Target::Cgroups(paths) => paths
            .first()
            .and_then(|path| path.file_name())
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        Target::All => "all".to_owned(),
    };
    let safe: String = what
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .collect();
    PathBuf::from(format!("{safe}-{}", dated_name(nth)))
}

/// The time as the name of a trace, numbered from `nth` = 2 on.
pub(crate) fn dated_name(nth: u32) -> String {
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let number = if nth < 2 {
        String::new()
    } else {
        format!("-{nth}")
    };
    format!("{now}{number}.swtch")
}

/// The facts that are known when the capture has started.
pub fn at_start(target: &Target, started: Timestamp) -> Meta {
    Meta {
        swtch_version: built::VERSION.to_owned(),
        state: RecordingState::Recording,
        host: host(),
        clock: ClockSample {
            monotonic_ns: monotonic_ns(),
            boottime_ns: boottime_ns(),
            realtime_ns: since_1970_ns(),
        },
        command: command_words(target),
        scope: scope(target),
        start_ns: started.as_ns(),
        kernel: swtch_store::KernelCounts {
            ctxt_before: ctxt(),
            ctxt_after: None,
        },
        load: load_at_start(),
        disks: disks_at_start(),
        memory_limits: memory_limits_at_start(),
        recorder_pid: Some(std::process::id()),
        ..Meta::default()
    }
}

fn load_at_start() -> HostLoad {
    let sums = LoadSums::read();
    HostLoad {
        cpu_pressure_before_ns: sums.cpu_pressure.map(Nanos::as_ns),
        steal_before_ns: sums.steal.map(Nanos::as_ns),
        busy_before_ns: sums.busy.map(Nanos::as_ns),
        ..HostLoad::default()
    }
}

fn disks_at_start() -> Vec<DiskFacts> {
    let disks = DiskSums::read().into_iter().map(|disk| DiskFacts {
        before: disk_counts(&disk),
        after: None,
        name: disk.name,
    });
    disks.collect()
}

const fn disk_counts(disk: &DiskSums) -> DiskCounts {
    DiskCounts {
        requests: disk.requests,
        taken_ns: disk.taken.as_ns(),
        busy_ns: disk.busy.as_ns(),
    }
}

fn memory_limits_at_start() -> Vec<MemoryLimitFacts> {
    let limits = MemoryLimit::read().into_iter();
    let limits = limits.map(|limit| MemoryLimitFacts {
        cgroup: limit.cgroup,
        bytes: limit.bytes,
        reached_before: limit.reached,
        reached_after: None,
    });
    limits.collect()
}

/// Adds what disks did, and which limits of memory were reached. A cgroup that was made meanwhile had reached its limit
/// never before; that of one that is gone is not known.
fn used_up_at_end(meta: &mut Meta) {
    let disks = DiskSums::read();
    for facts in &mut meta.disks {
        let now = disks.iter().find(|disk| disk.name == facts.name);
        facts.after = now.map(disk_counts);
    }
    meta.disks
        .retain(|disk| disk.meanwhile().is_some_and(|counts| counts.requests > 0));
    let before = std::mem::take(&mut meta.memory_limits);
    let limits = MemoryLimit::read().into_iter().map(|limit| {
        let known = before.iter().find(|known| known.cgroup == limit.cgroup);
        MemoryLimitFacts {
            reached_before: known.map_or(0, |known| known.reached_before),
            reached_after: Some(limit.reached),
            cgroup: limit.cgroup,
            bytes: limit.bytes,
        }
    });
    meta.memory_limits = limits
        .filter(|limit| limit.reached().is_some_and(|count| count > 0))
        .collect();
}

/// Adds how loaded the machine was.
pub(crate) fn load_at_end(meta: &mut Meta) {
    used_up_at_end(meta);
    let sums = LoadSums::read();
    meta.load.cpu_pressure_after_ns = sums.cpu_pressure.map(Nanos::as_ns);
    meta.load.steal_after_ns = sums.steal.map(Nanos::as_ns);
    meta.load.busy_after_ns = sums.busy.map(Nanos::as_ns);
}

/// The hooks that a recording must do without.
pub fn hooks(capture: &Capture) -> Hooks {
    Hooks {
        missing: capture.missing_hooks().to_vec(),
        left_out: capture.left_out_hooks().to_vec(),
    }
}

/// Adds the facts that are known when the capture is about to end. Returns the tasks in scope that could run
/// then and had no CPU.
pub fn at_end(meta: &mut Meta, capture: &mut Capture) -> Vec<TaskAtEnd> {
    // A recording without this count is as good as one with it: report the error and go on.
    let counted = capture.count_tree().unwrap_or_else(|error| {
        let error = format!("{:#}", anyhow::Error::from(error));
        message!(
            "swtch: the kernel's own count is not known: {}",
            escaped(&error)
        );
        None
    });
    meta.tree = counted.map(|count| TreeCounts {
        processes: count.processes,
        switches: count.switches,
        missed: count.missed,
    });
    let lasting = lasting_tasks(capture);
    meta.lasting = lasting
        .as_ref()
        .map(|lasting| lasting::grouped(&lasting.blocked));
    meta.kernel.ctxt_after = ctxt();
    load_at_end(meta);
    meta.end_ns = monotonic_ns();
    lasting.map_or_else(Vec::new, |lasting| lasting.runnable)
}

/// Asks who was blocked all the time, and who could run; a recording without that is as good, so an error is only
/// reported.
fn lasting_tasks(capture: &mut Capture) -> Option<LastingTasks> {
    capture.lasting_tasks().unwrap_or_else(|error| {
        let error = format!("{:#}", anyhow::Error::from(error));
        message!(
            "swtch: which threads were blocked all the time, and which could run at the end, is not known: {}",
            escaped(&error)
        );
        None
    })
}

/// Adds the facts that are known when all records are on disk: counts of the kernel side, and what
/// recording cost. Rows are counted later.
pub(crate) fn complete(meta: &mut Meta, capture: &Capture, pipeline: &mut Pipeline) {
    complete_counts(meta, capture);
    meta.quotas = pipeline.quotas();
    meta.spans = pipeline.untold_spans();
    for helper in pipeline.helpers() {
        meta.overhead.recorder_cpu_ns += helper.cpu_time().as_ns();
        meta.overhead.recorder_peak_rss_bytes += peak_memory_bytes(&helper.pid().to_string());
    }
    meta.user = pipeline.user_counts();
    if let Some(user) = &mut meta.user {
        user.words_unread = capture.counters().words_unread;
    }
}

/// Reads what the kernel side has counted so far.
pub(crate) fn kernel_counts(capture: &Capture) -> Counts {
    let counters = capture.counters();
    Counts {
        switches_seen: counters.seen - counters.idle,
        filtered: counters.filtered,
        lost: counters.lost + capture.unreadable(),
        idle: counters.idle,
        untraced: counters.untraced,
        untraced_in_scope: Some(counters.untraced_in_scope),
        storage_refused: counters.storage_failed,
        lost_names: counters.lost_task_records,
        ..Counts::default()
    }
}

/// Adds what the kernel side counted, and what recording cost this process and the kernel.
pub fn complete_counts(meta: &mut Meta, capture: &Capture) {
    meta.counts = kernel_counts(capture);
    let kernel_cost = capture.kernel_cost().unwrap_or_else(|error| {
        message!(
            "swtch: what recording costs in the kernel is not known: {}",
            escaped(&error.to_string())
        );
        None
    });
    meta.overhead = Overhead {
        kernel_ns_per_switch: kernel_cost.map(|cost| cost.ns_per_switch),
        kernel_runs_per_switch: kernel_cost.map(|cost| cost.runs_per_switch),
        kernel_cost_switches: kernel_cost.map_or(0, |cost| cost.switches),
        recorder_cpu_ns: process_cpu_ns(),
        recorder_peak_rss_bytes: peak_memory_bytes("self"),
        ..Overhead::default()
    };
}

/// The machine.
pub fn host() -> TraceHost {
    let host = swtch_host::Host::read();
    let to_u32 = |cpus: usize| u32::try_from(cpus).unwrap_or(u32::MAX);
    TraceHost {
        hostname: host.hostname,
        kernel_release: host.kernel_release,
        machine: host.machine,
        cpus: to_u32(host.cpus),
        // `available_parallelism` reads our affinity and cgroup quota, which are not those of the
        // machine.
        usable_cpus: std::thread::available_parallelism()
            .ok()
            .map(|cpus| to_u32(cpus.get())),
        topology: Some(swtch_host::read_topology()),
        preemption: swtch_host::preemption_model(),
        cpu_model: swtch_host::model_name(),
    }
}

fn since_1970_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn command_words(target: &Target) -> Vec<String> {
    match target {
        Target::Command(words) => words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        _ => Vec::new(),
    }
}

/// Says what is recorded, in words.
pub fn scope(target: &Target) -> String {
    match target {
        Target::Command(_) => format!("command {}", command_words(target).join(" ")),
        Target::Processes { pids, children } => {
            let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
            let others = match children {
                Children::Recorded => " and those below",
                Children::LeftOut => "",
            };
            format!("process {}{others}", pids.join(", "))
        }
        Target::Cgroups(paths) => {
            let paths: Vec<_> = paths
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            let word = if paths.len() == 1 {
                "cgroup"
            } else {
                "cgroups"
            };
            format!("{word} {}", paths.join(", "))
        }
        Target::All => WHOLE_SYSTEM.to_owned(),
    }
}

/// The kernel's count of switches since boot, on all CPUs and with those of idle (`ctxt`).
pub(crate) fn ctxt() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines()
        .find_map(|line| line.strip_prefix("ctxt "))?
        .trim()
        .parse()
        .ok()
}

/// The largest memory use of a process so far (`VmHWM`); 0 if it has ended.
pub(crate) fn peak_memory_bytes(process: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

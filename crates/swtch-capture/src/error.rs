//! Errors of a capture: the failure, the object concerned, and what the user can do about it.

use std::io;
use std::path::PathBuf;

use crate::limits::{ResourceLimit, TooLow};
use crate::probe::needed_capabilities;
use crate::refusal::{self, Refusal};

/// A capture that could not be started or went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not load eBPF programs.
    #[error("loading eBPF programs is not permitted")]
    NotPermitted(#[source] libbpf_rs::Error),
    /// The kernel has no description of its types (BTF).
    #[error("this kernel has no BTF at /sys/kernel/btf/vmlinux")]
    NoBtf(#[source] io::Error),
    /// A hook without which nothing can be recorded is missing.
    #[error("this kernel lacks the tracepoint {0}")]
    MissingHook(&'static str),
    /// A hook that only [`crate::KernelShare`] needs is missing.
    #[error("this kernel lacks the tracepoint {0}, which tells how long the scheduler takes")]
    NoShareHook(&'static str),
    /// The kernel is older than any that the programs support.
    #[error("Linux {}.{} is too old to be recorded", .0.0, .0.1)]
    KernelTooOld((u32, u32)),
    /// The eBPF object or something it needs could not be prepared.
    #[error("preparing the eBPF programs failed")]
    Load(#[source] libbpf_rs::Error),
    /// The kernel refused a program.
    #[error("the kernel refused {refusal}")]
    Refused {
        /// The refused program, and the last lines of the verifier.
        refusal: Refusal,
        /// Error number that the kernel returned.
        source: libbpf_rs::Error,
    },
    /// A program could not be attached.
    #[error("attaching {program} failed")]
    Attach {
        /// Name of the eBPF program.
        program: String,
        /// Error number that the kernel returned.
        source: libbpf_rs::Error,
    },
    /// A span cannot be recorded.
    #[error(transparent)]
    NoSpan(#[from] crate::NoSpan),
    /// A map could not be created, changed or read.
    #[error("the eBPF map {map} failed")]
    Map {
        /// Name of the eBPF map.
        map: &'static str,
        /// Error number that the kernel returned.
        source: libbpf_rs::Error,
    },
    /// The counters could not be mapped.
    #[error("mapping the counters failed")]
    Mmap(#[source] io::Error),
    /// The rings of so many CPUs do not fit into the memory that was asked for.
    #[error("{} KB are too little for the records of {cpus} CPUs, which need {} KB", .bytes >> 10, .least >> 10)]
    BufferTooSmall {
        /// The size that was asked for.
        bytes: u64,
        /// Number of CPUs that this machine can have.
        cpus: usize,
        /// The least size that they need.
        least: u64,
    },
    /// A process that was asked for does not exist.
    #[error("process {pid} is not there")]
    NoProcess {
        /// Id of the missing process.
        pid: u32,
        /// Error of reading `/proc` for it.
        source: io::Error,
    },
    /// The id that was asked for is that of a thread which is not the first of its process.
    #[error("{tid} is a thread of process {pid}: use -p {pid}")]
    IsThread {
        /// Id of the thread that was given.
        tid: u32,
        /// Id of the process that it belongs to.
        pid: u32,
    },
    /// A process that was asked for has ended before the recording began.
    #[error("process {pid} ended before the recording began")]
    EndedBefore {
        /// Id of the ended process.
        pid: u32,
    },
    /// The walk through the tasks of the machine failed.
    #[error("looking through the tasks of this machine failed")]
    TaskWalk(#[source] io::Error),
    /// The path does not lead to a cgroup directory.
    #[error("{path} is not a cgroup that can be followed: {why}")]
    NotACgroup {
        /// The path that was given.
        path: PathBuf,
        /// Reason why it cannot be used.
        why: String,
    },
    /// No file system is mounted on `/proc`.
    #[error("there is no /proc here, where the kernel tells of processes")]
    NoProc,
    /// The filter of system calls could not be set.
    #[error("setting a filter of system calls failed")]
    Filter(#[source] seccompiler::Error),
    /// The kernel does not let this user record by perf events.
    #[error("recording by perf events is not permitted")]
    PerfRefused(#[source] io::Error),
    /// The CPUs whose switches are to be recorded are not known.
    #[error("the list of online CPUs cannot be read from {}", file.display())]
    OnlineCpus {
        /// The file.
        file: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Only own processes can be recorded by perf events.
    #[error("without root, only a command or processes (-p) can be recorded")]
    PerfScope,
    /// Process ids are those of a container, not the kernel's.
    #[error("this is a process id namespace of its own: its ids are not the kernel's")]
    PidNamespace,
    /// An architecture whose system calls are unknown.
    #[error("system calls of {0} are unknown to swtch")]
    Architecture(String),
    /// The thread that guards the recorder could not be started.
    #[error("the thread that keeps the recorder from being starved could not be started")]
    Guard(#[source] io::Error),
    /// A resource limit is too low for what was asked for.
    #[error("{0}")]
    Limit(TooLow),
    /// Half of the CPU time that this process may use is used up.
    #[error(
        "{}, and half of it is used: the rest is for finishing the trace",
        ResourceLimit::CpuTime
    )]
    CpuTime,
    /// The privileges of the process could not be dropped.
    #[error("dropping privileges failed")]
    Privileges(#[source] io::Error),
}

/// Advice for recording from inside a process id namespace.
const PID_NAMESPACE_REMEDY: &str = "start the container with the host's process ids (docker run --pid=host \
     --cap-add=BPF --cap-add=PERFMON …), or record on the host: swtch record --cgroup \
     /sys/fs/cgroup/PATH-OF-THE-CONTAINER";

impl Error {
    /// Returns in a word what this machine lacks, so that nothing can be recorded on it; `None` if what was asked for is
    /// at fault.
    pub const fn lacking_on_machine(&self) -> Option<&'static str> {
        match self {
            Self::NotPermitted(_) => Some("rights"),
            Self::NoBtf(_) => Some("btf"),
            Self::MissingHook(_) | Self::KernelTooOld(_) => Some("kernel"),
            Self::PidNamespace => Some("pid_namespace"),
            Self::Load(_)
            | Self::Refused { .. }
            | Self::Attach { .. }
            | Self::Map { .. }
            | Self::Mmap(_) => Some("programs"),
            _ => None,
        }
    }

    /// The error for a load that failed, with what libbpf printed since [`refusal::listen`].
    pub(crate) fn of_load(source: libbpf_rs::Error) -> Self {
        let refusal = refusal::last();
        let is_permission = source.kind() == libbpf_rs::ErrorKind::PermissionDenied;
        // The verifier also returns "Permission denied" (EACCES), for a wrong memory access.
        if is_permission && !refusal.is_by_verifier {
            return Self::NotPermitted(source);
        }
        Self::Refused { refusal, source }
    }

    /// The last lines of the kernel's verifier about a program that it refused. The text comes from
    /// the kernel and must be escaped where it is shown.
    pub fn verdict(&self) -> &[String] {
        match self {
            Self::Refused { refusal, .. } => &refusal.last_lines,
            _ => &[],
        }
    }

    /// Returns what the user can do about it; `None` where there is no advice.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::NotPermitted(_) => Some(concat!(
                "run it with sudo, or grant the rights once: sudo setcap ",
                needed_capabilities!(),
                "+ep $(command -v swtch)"
            )),
            Self::NoProc => Some("mount it: mount -t proc proc /proc"),
            Self::NoBtf(_) => Some(
                "a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed; the kernels of Debian 11, \
                 Ubuntu 20.10, Fedora 31 and later have it",
            ),
            Self::MissingHook(_) | Self::KernelTooOld(_) => Some("Linux 5.15 or later is needed"),
            Self::NoShareHook(_) => Some("Linux 6.15 or later is needed"),
            Self::Refused { .. } => Some(
                "this is a fault of swtch with this kernel: please report it with the lines above \
                 and `uname -r`. swtch doctor shows what this kernel allows",
            ),
            Self::Load(_) => Some("swtch doctor shows what this kernel allows"),
            Self::NoProcess { .. } | Self::EndedBefore { .. } => {
                Some("see ps -e for the processes that run now")
            }
            Self::NotACgroup { .. } => Some(
                "name a directory of cgroup v2, or of the v1 hierarchy that has the cpu controller",
            ),
            Self::PidNamespace => Some(PID_NAMESPACE_REMEDY),
            Self::PerfRefused(_) => Some(match allows_own_processes() {
                true => {
                    "kernel.perf_event_paranoid allows it for processes of one's own, and this one is another \
                     user's, or may not be traced: run it with sudo"
                }
                false => {
                    "it is allowed for own processes up to kernel.perf_event_paranoid 2 (see sysctl \
                     kernel.perf_event_paranoid): sudo sysctl kernel.perf_event_paranoid=2, or run it with sudo"
                }
            }),
            Self::OnlineCpus { .. } => {
                Some("is sysfs mounted? mount -t sysfs sysfs /sys; in a container, let it see /sys")
            }
            Self::PerfScope => Some("record the whole machine or a cgroup with sudo"),
            _ => None,
        }
    }
}

/// Returns true if the kernel lets a user count events of processes of their own.
fn allows_own_processes() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let setting: Option<i32> = setting.ok().and_then(|words| words.trim().parse().ok());
    setting.is_some_and(|paranoid| paranoid <= 2)
}

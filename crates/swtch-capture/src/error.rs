//! What can fail, on which object, and what a person can do about it.

use std::io;
use std::path::PathBuf;

use crate::probe::needed_capabilities;
use crate::refusal::Refusal;

/// A capture that could not be started or went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not load eBPF programs.
    #[error("loading eBPF programs is not permitted")]
    NotPermitted(#[source] libbpf_rs::Error),
    /// The kernel does not describe its types.
    #[error("this kernel has no BTF at /sys/kernel/btf/vmlinux")]
    NoBtf(#[source] io::Error),
    /// A hook without which nothing can be recorded is missing.
    #[error("this kernel lacks the tracepoint {0}")]
    MissingHook(&'static str),
    /// A hook is missing that only [`crate::KernelShare`] needs.
    #[error("this kernel lacks the tracepoint {0}, which tells how long the scheduler takes")]
    NoShareHook(&'static str),
    /// The kernel is older than any that the programs were made for.
    #[error("Linux {}.{} is too old to be recorded", .0.0, .0.1)]
    KernelTooOld((u32, u32)),
    /// What loading needs could not be had.
    #[error("preparing the eBPF programs failed")]
    Load(#[source] libbpf_rs::Error),
    /// The kernel refused a program.
    #[error("the kernel refused {refusal}")]
    Refused {
        /// Which, and what the verifier said last.
        refusal: Refusal,
        /// Why, as an error number.
        source: libbpf_rs::Error,
    },
    /// A program could not be attached.
    #[error("attaching {program} failed")]
    Attach {
        /// The program.
        program: String,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// A map could not be made or read.
    #[error("the eBPF map {map} failed")]
    Map {
        /// The map.
        map: &'static str,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// The counters could not be mapped.
    #[error("mapping the counters failed")]
    Mmap(#[source] io::Error),
    /// A process that was asked for is not there.
    #[error("process {pid} is not there")]
    NoProcess {
        /// Its id.
        pid: u32,
        /// Why.
        source: io::Error,
    },
    /// The id that was asked for is that of a thread which is not the first of its process.
    #[error("{tid} is a thread of process {pid}: use -p {pid}")]
    IsThread {
        /// The thread.
        tid: u32,
        /// Its process.
        pid: u32,
    },
    /// A process that was asked for was there, and has ended since.
    #[error("process {pid} ended before the recording began")]
    EndedBefore {
        /// Its id.
        pid: u32,
    },
    /// The tasks of the machine could not be looked through.
    #[error("looking through the tasks of this machine failed")]
    TaskWalk(#[source] io::Error),
    /// The path is no cgroup directory.
    #[error("{path} is not a cgroup that can be followed: {why}")]
    NotACgroup {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no `/proc`.
    #[error("there is no /proc here, where the kernel tells of processes")]
    NoProc,
    /// The filter of system calls could not be set.
    #[error("setting a filter of system calls failed")]
    Filter(#[source] seccompiler::Error),
    /// Inside a container, process ids are not the kernel's.
    #[error("this is a process id namespace of its own: its ids are not the kernel's")]
    PidNamespace,
    /// An architecture whose system calls are unknown.
    #[error("system calls of {0} are unknown to swtch")]
    Architecture(String),
    /// The thread that guards the recorder could not be started.
    #[error("the thread that keeps the recorder from being starved could not be started")]
    Guard(#[source] io::Error),
    /// Dropping privileges failed.
    #[error("dropping privileges failed")]
    Privileges(#[source] io::Error),
}

/// How to record in spite of a process id namespace.
const PID_NAMESPACE_REMEDY: &str = "start the container with the host's process ids (docker run --pid=host \
     --cap-add=BPF --cap-add=PERFMON …), or record on the host: swtch record --cgroup \
     /sys/fs/cgroup/PATH-OF-THE-CONTAINER";

impl Error {
    /// What the kernel's verifier said last about a program that it refused, line by line; text of
    /// the kernel, to be escaped where it is shown.
    pub fn verdict(&self) -> &[String] {
        match self {
            Self::Refused { refusal, .. } => &refusal.last_lines,
            _ => &[],
        }
    }

    /// What a person can do about it.
    pub const fn advice(&self) -> Option<&'static str> {
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
            _ => None,
        }
    }
}

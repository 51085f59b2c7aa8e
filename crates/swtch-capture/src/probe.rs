//! Finds out what the kernel of this machine allows a recorder to do, by trying.
//!
//! Three kinds of answers, the most important first:
//!
//! ```text
//!   Trial         a program of two instructions, loaded and attached to sched_switch: the verdict
//!   Hook          which tracepoints the kernel's BTF names: what quality the answers can have
//!   capabilities, sysctls, lockdown, …: why the trial failed, and what would let it pass
//! ```
//!
//! A distribution may patch its kernel, a container may filter `bpf(2)`, a security module may
//! refuse it. No list of capabilities and versions foresees all that, so the trial decides and the
//! rest explains. Nothing here prints, and nothing stays loaded: the trial's program is unloaded
//! before [`Probe::take`] returns.
//!
//! Each answer that could not be read is an [`Unreadable`] that names the file and the cause, never
//! a default.
//!
//! Sources: `capabilities(7)`, `bpf(2)`, `kernel_lockdown(7)`, `cgroups(7)`;
//! `Documentation/admin-guide/sysctl/kernel.rst` (v6.18).

use std::fmt;
use std::fs;
use std::path::PathBuf;

use libbpf_rs::btf::Btf;

use crate::load::hooks::can_look;

mod foreign;
mod hook;
mod mount;
mod privilege;
mod trial;

pub use foreign::ForeignProgram;
pub use hook::{HOOKS, Hook, HookPresence, Need};
pub(crate) use hook::{can_crash, tick_irq};
pub use mount::{Cgroups, CpuController, NamingHierarchy, cgroups};
pub(crate) use privilege::needed_capabilities;
pub use privilege::{Capabilities, Capability, NEEDED_CAPABILITIES, Privilege};
pub use trial::{EmptyProgram, Trial, TrialStep};

/// The file in which the kernel describes its types (BTF).
pub const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// The oldest kernel the recorder works on: `bpf_task_pt_regs` came with 5.15.
pub const OLDEST_KERNEL: KernelVersion = KernelVersion {
    major: 5,
    minor: 15,
};

/// Since 5.11, BPF maps count in the memory cgroup, and locked memory no longer limits them.
const MEMLOCK_FREE_KERNEL: KernelVersion = KernelVersion {
    major: 5,
    minor: 11,
};

/// A fact that could not be read: from which file, and why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct Unreadable {
    /// The file that was read.
    pub path: PathBuf,
    /// The reason why it could not be read.
    pub why: String,
}

impl Unreadable {
    fn new(path: impl Into<PathBuf>, why: impl fmt::Display) -> Self {
        Self {
            path: path.into(),
            why: why.to_string(),
        }
    }
}

/// The first two numbers of a kernel's version, which decide its features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// The first number of the release.
    pub major: u32,
    /// The second number of the release.
    pub minor: u32,
}

impl KernelVersion {
    /// Parses a release such as `6.8.0-45-generic`; `None` when it does not begin with two numbers.
    pub fn of_release(release: &str) -> Option<Self> {
        let mut parts = release.splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let rest = parts.next()?;
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let minor = rest[..digits].parse().ok()?;
        Some(Self { major, minor })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The kernel's description of its own types (BTF), if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelTypes {
    /// The description exists and can be parsed.
    Present {
        /// Size of the BTF file in bytes.
        bytes: u64,
    },
    /// The description is missing, or cannot be read or parsed.
    Missing(Unreadable),
}

/// The lockdown of the kernel: what it forbids even to root (`kernel_lockdown(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// No lockdown: nothing is forbidden.
    None,
    /// Changing the running kernel is forbidden. BPF tracing is allowed.
    Integrity,
    /// Reading the running kernel is forbidden as well: `bpf_probe_read_kernel` is refused.
    Confidentiality,
}

impl Lockdown {
    /// The kernel's own word for the mode.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Integrity => "integrity",
            Self::Confidentiality => "confidentiality",
        }
    }
}

/// Everything that this machine's kernel allows.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The kernel's release, as `uname -r` shows it.
    pub release: Result<String, Unreadable>,
    /// The kernel's description of its types (BTF).
    pub types: KernelTypes,
    /// Each hook of [`HOOKS`] that this architecture has.
    pub hooks: Vec<HookPresence>,
    /// The programs of others on the tracepoints of [`HOOKS`]; `None` where this process may not list
    /// programs.
    pub foreign_programs: Option<Vec<ForeignProgram>>,
    /// True if the kernel lets a program read the stack of a thread that waits.
    pub can_look: bool,
    /// Capabilities and restrictions of this process.
    pub privilege: Result<Privilege, Unreadable>,
    /// Restrictions that the kernel puts even on root.
    pub lockdown: Result<Lockdown, Unreadable>,
    /// The value of the sysctl `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Result<i64, Unreadable>,
    /// The value of the sysctl `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Result<i64, Unreadable>,
    /// The value of the sysctl `kernel.kptr_restrict`.
    pub kptr_restrict: Result<i64, Unreadable>,
    /// The place where tracefs is mounted. The recorder does not need it; `perf` and its imports do.
    pub tracefs: Result<Option<PathBuf>, Unreadable>,
    /// Mount points of the cgroup hierarchies.
    pub cgroups: Result<Cgroups, Unreadable>,
    /// Limit of locked memory in bytes where it limits maps (before 5.11); else `None`.
    pub memlock_limit: Option<u64>,
    /// The result of trying to load and attach a tracing program here.
    pub trial: Trial,
}

impl Probe {
    /// Asks the kernel. It takes a few milliseconds; what it loads is unloaded before it returns.
    pub fn take() -> Self {
        let release = read("/proc/sys/kernel/osrelease");
        let mounts = mount::mounts();
        let (types, btf) = kernel_types();
        // Before the trial, whose own program would be among them.
        let foreign_programs = foreign::foreign_programs();
        Self {
            foreign_programs,
            memlock_limit: memlock_limit(release.as_deref().ok()),
            release,
            hooks: hook::hooks_in(btf.as_ref(), kernel_version()),
            can_look: btf.as_ref().is_some_and(can_look),
            trial: trial::try_tracing(btf.as_ref()),
            types,
            privilege: privilege::privilege(),
            lockdown: lockdown(),
            perf_event_paranoid: read_number("/proc/sys/kernel/perf_event_paranoid"),
            unprivileged_bpf_disabled: read_number("/proc/sys/kernel/unprivileged_bpf_disabled"),
            kptr_restrict: read_number("/proc/sys/kernel/kptr_restrict"),
            tracefs: mounts
                .as_ref()
                .map_err(Clone::clone)
                .map(|mounts| mount::tracefs_in(mounts)),
            cgroups: mounts.map(|mounts| mount::cgroups_in(&mounts)),
        }
    }

    /// The version of the kernel; `None` when its release could not be read or understood.
    pub fn version(&self) -> Option<KernelVersion> {
        KernelVersion::of_release(self.release.as_deref().ok()?)
    }

    /// Returns true if this process can record switches here: the trial passed, no required hook is missing, and the
    /// kernel is not known to be too old.
    pub fn can_record(&self) -> bool {
        self.trial == Trial::Works
            && self.missing(Need::Required).next().is_none()
            && self
                .version()
                .is_none_or(|version| version >= OLDEST_KERNEL)
    }

    /// Returns true if this kernel reports the cause of each preemption.
    pub fn tells_causes(&self) -> bool {
        matches!(self.types, KernelTypes::Present { .. })
            && self.missing(Need::ExactCause).next().is_none()
            && self.left_out().next().is_none()
    }

    /// Hooks that the recorder attaches to only on demand, because eBPF on them can crash this
    /// kernel.
    pub fn left_out(&self) -> impl Iterator<Item = &'static Hook> {
        let crashing = self.hooks.iter().filter(|seen| seen.can_crash);
        crashing
            .filter(|seen| seen.present == Some(true))
            .map(|seen| seen.hook)
    }

    /// Hooks of this kind that are known to be missing.
    pub fn missing(&self, need: Need) -> impl Iterator<Item = &'static Hook> {
        self.hooks
            .iter()
            .filter(move |seen| seen.hook.need == need && seen.present == Some(false))
            .map(|seen| seen.hook)
    }
}

/// The result of [`kernel_version`] when the version is not known.
pub(crate) const UNKNOWN_VERSION: (u32, u32) = (0, 0);

/// Major and minor number of the running kernel; (0, 0) if it is not known.
pub fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The number of threads of the machine; `None` where it is not told.
pub fn threads_of_this_machine() -> Option<u32> {
    threads_of(&std::fs::read_to_string("/proc/loadavg").ok()?)
}

/// The number of threads in the text of `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206` (`proc_loadavg(5)`).
fn threads_of(loadavg: &str) -> Option<u32> {
    let running_and_all = loadavg.split_whitespace().nth(3)?;
    running_and_all.split_once('/')?.1.parse().ok()
}

fn read(path: &str) -> Result<String, Unreadable> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned()),
        Err(error) => Err(Unreadable::new(path, error)),
    }
}

fn read_number(path: &str) -> Result<i64, Unreadable> {
    let text = read(path)?;
    text.parse()
        .map_err(|_| Unreadable::new(path, format!("not a number: {text:?}")))
}

/// Returns the kernel's description of its types, and libbpf's view of it if it could be parsed.
fn kernel_types() -> (KernelTypes, Option<Btf<'static>>) {
    let missing = |why: String| {
        (
            KernelTypes::Missing(Unreadable::new(VMLINUX_BTF, why)),
            None,
        )
    };
    let bytes = match fs::metadata(VMLINUX_BTF) {
        Ok(file) => file.len(),
        Err(error) => return missing(error.to_string()),
    };
    match Btf::from_path(VMLINUX_BTF) {
        Ok(btf) => (KernelTypes::Present { bytes }, Some(btf)),
        Err(error) => missing(error.to_string()),
    }
}

fn lockdown() -> Result<Lockdown, Unreadable> {
    const FILE: &str = "/sys/kernel/security/lockdown";
    if !fs::exists(FILE).unwrap_or(true) {
        return Err(Unreadable::new(
            FILE,
            "securityfs is not mounted, or the kernel has no lockdown",
        ));
    }
    let text = read(FILE)?;
    lockdown_of(&text).ok_or_else(|| Unreadable::new(FILE, format!("not understood: {text:?}")))
}

/// Parses `none [integrity] confidentiality`: the mode in brackets is in force.
fn lockdown_of(text: &str) -> Option<Lockdown> {
    let chosen = text.split_once('[')?.1.split_once(']')?.0;
    [
        Lockdown::None,
        Lockdown::Integrity,
        Lockdown::Confidentiality,
    ]
    .into_iter()
    .find(|mode| mode.word() == chosen)
}

fn memlock_limit(release: Option<&str>) -> Option<u64> {
    if KernelVersion::of_release(release?)? >= MEMLOCK_FREE_KERNEL {
        return None;
    }
    let limits = read("/proc/self/limits").ok()?;
    memlock_of(&limits)
}

/// The soft limit in `/proc/PID/limits`; `None` when it is unlimited.
fn memlock_of(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_gives_its_first_two_numbers() {
        let version = |major, minor| Some(KernelVersion { major, minor });
        assert_eq!(KernelVersion::of_release("6.8.0-45-generic"), version(6, 8));
        assert_eq!(KernelVersion::of_release("5.15-rc3"), version(5, 15));
        assert_eq!(KernelVersion::of_release("6.18+"), version(6, 18));
        assert_eq!(KernelVersion::of_release("linux"), None);
        assert_eq!(KernelVersion::of_release("6"), None);
    }

    #[test]
    fn versions_are_ordered_as_numbers_not_as_text() {
        assert!(KernelVersion::of_release("5.9") < KernelVersion::of_release("5.15"));
    }

    #[test]
    fn lockdown_is_the_word_in_brackets() {
        assert_eq!(
            lockdown_of("none [integrity] confidentiality"),
            Some(Lockdown::Integrity)
        );
        assert_eq!(
            lockdown_of("[none] integrity confidentiality"),
            Some(Lockdown::None)
        );
        assert_eq!(
            lockdown_of("none integrity [confidentiality]"),
            Some(Lockdown::Confidentiality)
        );
        assert_eq!(lockdown_of("none"), None);
        assert_eq!(lockdown_of("[absolute]"), None);
    }

    #[test]
    fn an_unlimited_memlock_is_no_limit() {
        let limits = |value| format!("Max locked memory         {value}   {value}   bytes\n");
        assert_eq!(memlock_of(&limits("65536")), Some(65536));
        assert_eq!(memlock_of(&limits("unlimited")), None);
    }

    /// This is the only test that asks the kernel: whatever it allows, the answers must agree.
    #[test]
    fn a_probe_does_not_contradict_itself() {
        let probe = Probe::take();
        let asked = probe.hooks.iter().all(|seen| seen.present.is_some());
        assert_eq!(matches!(probe.types, KernelTypes::Present { .. }), asked);
        if probe.trial == Trial::Works {
            assert!(
                asked,
                "a tracing program cannot be loaded without kernel types"
            );
        }
        assert!(!probe.can_record() || probe.trial == Trial::Works);
    }

    #[test]
    fn threads_of_the_machine_are_read() {
        assert_eq!(threads_of("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(threads_of(""), None);
        assert_eq!(threads_of("0.20 0.18 0.12 1-80 11206"), None);
    }
}

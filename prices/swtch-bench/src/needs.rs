//! The needs of a workload beyond an ordinary user's rights on one CPU.

use std::fmt;

/// A need of a workload, beyond an ordinary user's rights on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Needs {
    /// No need beyond a CPU.
    Nothing,
    /// Root, to use a real-time class.
    Root,
    /// Two CPUs that the process may run on.
    TwoCpus,
    /// Root, and the cgroup controller `cpu` of either version.
    CpuController,
    /// A directory on a disk: `/var/tmp` or the current one.
    Disk,
}

impl Needs {
    /// Tells the user how to meet the need.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Nothing => "nothing is missing",
            Self::Root => "run it as root",
            Self::TwoCpus => "allow it a second CPU (taskset, cpuset cgroup, online CPUs)",
            Self::CpuController => "run it as root where the cgroup controller `cpu` is mounted",
            Self::Disk => "run it from a directory on ext4, xfs or btrfs, not on tmpfs",
        }
    }
}

/// The text completes the sentence "the workload needs …".
impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nothing => "nothing",
            Self::Root => "root",
            Self::TwoCpus => "two CPUs",
            Self::CpuController => "root and the cgroup controller `cpu`",
            Self::Disk => "a directory on a disk",
        })
    }
}

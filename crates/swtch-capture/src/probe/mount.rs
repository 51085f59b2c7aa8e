//! Mount points of tracefs and of the cgroup hierarchies, including the one that sets CPU quotas.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Unreadable, read};

/// Mount points of the cgroup hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// The mount of cgroup v2, if any.
    pub v2: Option<PathBuf>,
    /// Mounts of cgroup v1, each with its controllers.
    pub v1: Vec<(PathBuf, Vec<String>)>,
    /// The hierarchy in which CPU quotas are set.
    pub cpu: CpuController,
}

/// The hierarchy that has the `cpu` controller, and with it the quotas that throttle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CpuController {
    /// No hierarchy has the controller.
    #[default]
    Absent,
    /// A v1 hierarchy (`cpu.cfs_quota_us`), mounted here.
    V1(PathBuf),
    /// The v2 hierarchy (`cpu.max`), mounted here.
    V2(PathBuf),
}

/// The hierarchy whose directories give cgroups the ids by which they are told apart. The id is the number of a
/// directory's inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamingHierarchy {
    /// That of the v1 controller `cpu`.
    V1,
    /// That of v2.
    V2,
}

impl Cgroups {
    /// Returns the hierarchy that names the cgroups of all switches: that of the v1 controller `cpu` where there is
    /// one, since quotas are set there, and v2 otherwise.
    pub const fn naming(&self) -> NamingHierarchy {
        match self.cpu {
            CpuController::V1(_) => NamingHierarchy::V1,
            CpuController::Absent | CpuController::V2(_) => NamingHierarchy::V2,
        }
    }
}

/// The fields of one line of `/proc/self/mounts`.
#[derive(Debug)]
pub(super) struct Mount {
    at: PathBuf,
    kind: String,
    options: Vec<String>,
}

impl Mount {
    fn parse_all(text: &str) -> Vec<Self> {
        text.lines().filter_map(Self::parse).collect()
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').skip(1);
        Some(Self {
            at: PathBuf::from(unescape_octal(fields.next()?)),
            kind: fields.next()?.to_owned(),
            options: fields.next()?.split(',').map(str::to_owned).collect(),
        })
    }
}

/// Undoes the escapes such as `\040` with which the kernel writes blanks in mount points. That of the backslash
/// comes last: one that it brings back does not begin an escape.
fn unescape_octal(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |text, (escape, plain)| {
            text.replace(escape, plain)
        })
}

pub(super) fn mounts() -> Result<Vec<Mount>, Unreadable> {
    read("/proc/self/mounts").map(|text| Mount::parse_all(&text))
}

/// Finds the mount points of the cgroup hierarchies.
///
/// # Errors
///
/// The list of mounts cannot be read.
pub fn cgroups() -> Result<Cgroups, Unreadable> {
    mounts().map(|mounts| cgroups_in(&mounts))
}

pub(super) fn tracefs_in(mounts: &[Mount]) -> Option<PathBuf> {
    mounts
        .iter()
        .find(|mount| mount.kind == "tracefs")
        .map(|mount| mount.at.clone())
}

/// Controllers that a v1 mount may list among its options (`cgroups(7)`).
const V1_CONTROLLERS: [&str; 13] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

pub(super) fn cgroups_in(mounts: &[Mount]) -> Cgroups {
    cgroups_with(mounts, v2_has_cpu)
}

/// Finds the hierarchies among the mounts. `v2_has_cpu` answers whether that of v2, mounted there, has the controller
/// `cpu`.
fn cgroups_with(mounts: &[Mount], v2_has_cpu: impl Fn(&Path) -> bool) -> Cgroups {
    let v2 = mounts
        .iter()
        .find(|mount| mount.kind == "cgroup2")
        .map(|mount| mount.at.clone());
    let v1: Vec<_> = mounts
        .iter()
        .filter(|mount| mount.kind == "cgroup")
        .map(|mount| (mount.at.clone(), v1_controllers(&mount.options)))
        .collect();
    let v1_cpu = v1
        .iter()
        .find(|(_, controllers)| controllers.iter().any(|name| name == "cpu"));
    let cpu = match (v1_cpu, &v2) {
        (Some((at, _)), _) => CpuController::V1(at.clone()),
        (None, Some(at)) if v2_has_cpu(at) => CpuController::V2(at.clone()),
        _ => CpuController::Absent,
    };
    Cgroups { v2, v1, cpu }
}

fn v1_controllers(options: &[String]) -> Vec<String> {
    options
        .iter()
        .filter(|option| V1_CONTROLLERS.contains(&option.as_str()))
        .cloned()
        .collect()
}

fn v2_has_cpu(mount: &Path) -> bool {
    fs::read_to_string(mount.join("cgroup.controllers"))
        .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "cpu"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_set_where_the_cpu_controller_is_mounted() {
        let hybrid = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0\n";
        let seen = cgroups_with(&Mount::parse_all(hybrid), |_| true);
        assert_eq!(
            seen.cpu,
            CpuController::V1("/sys/fs/cgroup/cpu,cpuacct".into())
        );
        assert_eq!(seen.naming(), NamingHierarchy::V1);
        assert_eq!(seen.v1[0].1, ["cpu", "cpuacct"]);

        let unified = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let seen = cgroups_with(&Mount::parse_all(unified), |_| true);
        assert_eq!(seen.cpu, CpuController::V2("/sys/fs/cgroup".into()));
        assert_eq!(seen.naming(), NamingHierarchy::V2);
        let seen = cgroups_with(&Mount::parse_all(unified), |_| false);
        assert_eq!(seen.cpu, CpuController::Absent);
    }

    #[test]
    fn a_mount_point_with_a_blank_is_read_whole() {
        let mounts = Mount::parse_all("t /mnt/my\\040trace tracefs rw 0 0\nbroken\n");
        assert_eq!(tracefs_in(&mounts), Some("/mnt/my trace".into()));
    }
}

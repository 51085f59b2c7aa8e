//! CPU quotas, weights, clamps and CPU sets of our cgroup and of every one above it: the tightest
//! counts, and it may be far up.
//!
//! Sources: `Documentation/admin-guide/cgroup-v2.rst`, `Documentation/scheduler/sched-bwc.rst`,
//! `Documentation/admin-guide/cgroup-v1/cpusets.rst` (v6.18).

use std::fs;
use std::path::{Path, PathBuf};

use swtch_capture::probe::{Cgroups, CpuController};

use super::hierarchy::{CpuQuota, Throttling};
use super::{Fact, SourcedValue, read};

const OWN_CGROUP: &str = "/proc/self/cgroup";

pub(super) fn facts(cgroups: Option<&Cgroups>) -> Vec<Fact> {
    let own = read(OWN_CGROUP).unwrap_or_default();
    let cpu = cpu_groups(cgroups, &own);
    let set = cpuset_groups(cgroups, &own);
    vec![
        chain(cpu.as_ref(), limit).named(
            "cgroup_cpu_limits",
            "each of them throttles all below it; throttled rounds measure the quota",
        ),
        chain(cpu.as_ref(), weight).named(
            "cgroup_cpu_weights",
            "where not the default: how much of the CPU a group gets when its neighbours want it too",
        ),
        chain(cpu.as_ref(), clamp).named(
            "cgroup_uclamp",
            "where not the default: it bounds the clamps of the tasks, and with them the frequency",
        ),
        chain(cpu.as_ref(), throttled).named(
            "cgroup_throttled",
            "periods since the group was made in which its quota was used up",
        ),
        chain(set.as_ref(), cpus).named(
            "cgroup_cpus",
            "CPUs that a group may use: sched_setaffinity cannot reach beyond them",
        ),
    ]
}

/// The quotas of our cgroup and of each above it; `None` if there is none.
pub(super) fn limits(cgroups: Option<&Cgroups>) -> Option<String> {
    let own = read(OWN_CGROUP).ok()?;
    let CgroupPath { mount, group } = cpu_groups(cgroups, &own)?;
    let limits = ancestry(&mount, &group).into_iter().filter_map(|at| {
        let name = at.strip_prefix(&mount).unwrap_or(&at).display().to_string();
        Some(format!("/{name}: {}", limit(&at)?))
    });
    limits.reduce(|all, limit| format!("{all}; {limit}"))
}

/// The path of our cgroup in one hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct CgroupPath {
    mount: PathBuf,
    group: String,
}

fn cpu_groups(cgroups: Option<&Cgroups>, own: &str) -> Option<CgroupPath> {
    let (mount, group) = match &cgroups?.cpu {
        CpuController::Absent => return None,
        CpuController::V1(mount) => (mount, group_in(own, Some("cpu"))?),
        CpuController::V2(mount) => (mount, group_in(own, None)?),
    };
    Some(CgroupPath {
        mount: mount.clone(),
        group: group.to_owned(),
    })
}

/// Our cgroup in the v1 hierarchy with `cpuset`, otherwise in that of v2.
fn cpuset_groups(cgroups: Option<&Cgroups>, own: &str) -> Option<CgroupPath> {
    let cgroups = cgroups?;
    let holds = |controllers: &[String]| controllers.iter().any(|name| name == "cpuset");
    let v1 = cgroups
        .v1
        .iter()
        .find(|(_, controllers)| holds(controllers));
    let (mount, group) = match v1 {
        Some((mount, _)) => (mount, group_in(own, Some("cpuset"))?),
        None => (cgroups.v2.as_ref()?, group_in(own, None)?),
    };
    Some(CgroupPath {
        mount: mount.clone(),
        group: group.to_owned(),
    })
}

/// Our path in one hierarchy: that of `controller`, or with `None` that of cgroup v2.
pub(super) fn group_in<'a>(own: &'a str, controller: Option<&str>) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let found = match controller {
            None => number == "0" && controllers.is_empty(),
            Some(name) => controllers.split(',').any(|listed| listed == name),
        };
        found.then_some(path)
    })
}

/// The directories of a cgroup and of all above it; the root of the hierarchy comes last.
fn ancestry(mount: &Path, group: &str) -> Vec<PathBuf> {
    let deepest = mount.join(group.trim_start_matches('/'));
    deepest
        .ancestors()
        .take_while(|at| at.starts_with(mount))
        .map(Path::to_owned)
        .collect()
}

/// Lists what `get` finds in our cgroup and in each above it: `/a/b: 50000 100000; /a: …`.
fn chain(groups: Option<&CgroupPath>, get: impl Fn(&Path) -> Option<String>) -> SourcedValue {
    let Some(CgroupPath { mount, group }) = groups else {
        return SourcedValue::known("none: no such controller", "/proc/self/mounts");
    };
    let found: Vec<String> = ancestry(mount, group)
        .iter()
        .filter_map(|at| {
            let name = at.strip_prefix(mount).unwrap_or(at);
            Some(format!("/{}: {}", name.display(), get(at)?))
        })
        .collect();
    let source = format!("{}{group} and above", mount.display());
    if found.is_empty() {
        return SourcedValue::known("none", source);
    }
    SourcedValue::known(found.join("; "), source)
}

fn text(at: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(at.join(file)).ok()?;
    Some(text.trim().to_owned())
}

fn limit(at: &Path) -> Option<String> {
    CpuQuota::of(at).map(|quota| quota.to_string())
}

/// The weight, unless it is the default: 100 in v2, 1024 shares in v1.
fn weight(at: &Path) -> Option<String> {
    if let Some(weight) = text(at, "cpu.weight") {
        return (weight != "100").then_some(weight);
    }
    let shares = text(at, "cpu.shares")?;
    (shares != "1024").then(|| format!("{shares} shares"))
}

/// The utilization clamps, in percent as the files have them, unless they are the default.
fn clamp(at: &Path) -> Option<String> {
    let least = text(at, "cpu.uclamp.min").filter(|value| !matches!(value.as_str(), "0" | "0.00"));
    let most = text(at, "cpu.uclamp.max").filter(|value| value != "max");
    match (least, most) {
        (None, None) => None,
        (least, most) => Some(format!(
            "{} to {} %",
            least.unwrap_or_else(|| "0".to_owned()),
            most.unwrap_or_else(|| "100".to_owned())
        )),
    }
}

fn throttled(at: &Path) -> Option<String> {
    let periods = Throttling::of(at)?.periods;
    (periods > 0).then(|| format!("{periods} periods"))
}

/// Number of periods so far in which the quota of our cgroup, or of one above it, was used up;
/// `None` if no cgroup counts them.
pub(super) fn throttled_periods(cgroups: Option<&Cgroups>) -> Option<u64> {
    let own = read(OWN_CGROUP).ok()?;
    let CgroupPath { mount, group } = cpu_groups(cgroups, &own)?;
    let groups = ancestry(&mount, &group);
    let periods = groups
        .iter()
        .filter_map(|at| Some(Throttling::of(at)?.periods));
    periods.reduce(|sum, periods| sum + periods)
}

fn cpus(at: &Path) -> Option<String> {
    text(at, "cpuset.cpus.effective").or_else(|| text(at, "cpuset.effective_cpus"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FactValue;

    const HYBRID: &str =
        "9:name=systemd:/user.slice\n3:cpu,cpuacct:/docker/4af1\n0::/user.slice/a\n";

    #[test]
    fn our_group_is_looked_up_in_the_hierarchy_of_the_controller() {
        assert_eq!(group_in(HYBRID, Some("cpu")), Some("/docker/4af1"));
        assert_eq!(group_in(HYBRID, None), Some("/user.slice/a"));
        assert_eq!(group_in(HYBRID, Some("cpuset")), None);
    }

    /// The cgroup whose quota limits us may be far above ours.
    #[test]
    fn groups_are_sought_up_to_the_root_of_the_hierarchy() {
        let seen = ancestry(Path::new("/sys/fs/cgroup"), "/a/b");
        assert_eq!(
            seen,
            ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"].map(PathBuf::from)
        );
        assert_eq!(ancestry(Path::new("/c"), "/"), [PathBuf::from("/c")]);
    }

    /// The files of a cgroup `/pod/app`, as v2 has them.
    fn kubernetes() -> (tempfile::TempDir, CgroupPath) {
        let mount = tempfile::tempdir().unwrap();
        fs::create_dir_all(mount.path().join("pod/app")).unwrap();
        for (file, text) in [
            ("pod/app/cpu.max", "max 100000\n"),
            ("pod/app/cpu.weight", "20\n"),
            ("pod/app/cpu.uclamp.min", "0.00\n"),
            ("pod/app/cpu.uclamp.max", "50.00\n"),
            (
                "pod/app/cpu.stat",
                "usage_usec 5\nnr_periods 9\nnr_throttled 0\nthrottled_usec 0\n",
            ),
            ("pod/cpu.max", "50000 100000\n"),
            ("pod/cpu.weight", "100\n"),
            (
                "pod/cpu.stat",
                "usage_usec 5\nnr_periods 9\nnr_throttled 7\nthrottled_usec 90\n",
            ),
            ("pod/app/cpuset.cpus.effective", "2-3\n"),
        ] {
            fs::write(mount.path().join(file), text).unwrap();
        }
        let groups = CgroupPath {
            mount: mount.path().to_owned(),
            group: "/pod/app".to_owned(),
        };
        (mount, groups)
    }

    #[test]
    fn every_group_above_us_is_asked() {
        let (_mount, groups) = kubernetes();
        let found = |get: fn(&Path) -> Option<String>| match chain(Some(&groups), get).value {
            FactValue::Known(value) => value,
            FactValue::Unknown(why) => panic!("{why}"),
        };
        assert_eq!(found(limit), "/pod: 50000 of 100000 us");
        assert_eq!(found(weight), "/pod/app: 20");
        assert_eq!(found(clamp), "/pod/app: 0 to 50.00 %");
        assert_eq!(found(throttled), "/pod: 7 periods");
        assert_eq!(found(cpus), "/pod/app: 2-3");
    }

    #[test]
    fn the_files_of_v1_are_understood_too() {
        let group = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(group.path().join(file), text).unwrap();
        write("cpu.cfs_period_us", "100000\n");
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.shares", "512\n");
        assert_eq!(limit(group.path()), None);
        write("cpu.cfs_quota_us", "20000\n");
        assert_eq!(limit(group.path()), Some("20000 of 100000 us".into()));
        assert_eq!(weight(group.path()), Some("512 shares".into()));
    }

    #[test]
    fn the_hierarchy_of_cpusets_may_be_another_than_that_of_quotas() {
        let cgroups = Cgroups {
            v2: Some("/sys/fs/cgroup/unified".into()),
            v1: vec![("/sys/fs/cgroup/cpu".into(), vec!["cpu".into()])],
            cpu: CpuController::V1("/sys/fs/cgroup/cpu".into()),
        };
        let quotas = cpu_groups(Some(&cgroups), HYBRID).unwrap();
        assert_eq!(quotas.group, "/docker/4af1");
        let sets = cpuset_groups(Some(&cgroups), HYBRID).unwrap();
        assert_eq!(sets.mount, PathBuf::from("/sys/fs/cgroup/unified"));
        assert_eq!(cpu_groups(Some(&Cgroups::default()), HYBRID), None);
    }
}

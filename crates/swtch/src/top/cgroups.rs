//! Paths and CPU quotas of cgroups, as files of the cgroup file system say them.
//!
//! A quota may be that of a cgroup above: the nearest one holds. Only quotas that there are have
//! their `cpu.stat` read.

use std::fs;
use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::{CgroupId, Nanos};
use swtch_report::report::live::{CgroupLimits, LiveRow, RowKey};

use super::session::LimitsById;
use crate::record::facts::{cgroup_paths, cgroup_root};

/// What is known of cgroups.
#[derive(Debug, Default)]
pub struct CgroupQuotas {
    limits: LimitsById,
    /// The quota that holds for each of them, by the directory that has it.
    quotas: FxHashMap<CgroupId, Option<PathBuf>>,
    /// Of each such directory, what `cpu.stat` said last.
    throttled: FxHashMap<PathBuf, Throttling>,
    /// Those that were looked for and have no path.
    not_found: FxHashSet<CgroupId>,
    frames: u64,
}

/// How often a quota was used up since the cgroup was made, and for how long CPUs were stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which it was used up.
    pub times: u64,
    /// Added up over CPUs.
    pub time_ns: u64,
}

/// Quotas may change, and a cgroup may be removed and its id be used again: all is read anew after so
/// many frames.
const FRESH_FOR: u64 = 30;

impl CgroupQuotas {
    /// What is known of each cgroup.
    pub const fn limits(&self) -> &LimitsById {
        &self.limits
    }

    /// Looks at the cgroups of these rows.
    pub fn look_at(&mut self, rows: &[LiveRow]) {
        self.frames += 1;
        if self.frames.is_multiple_of(FRESH_FOR) {
            self.limits.clear();
            self.quotas.clear();
            self.not_found.clear();
        }
        let ids = rows.iter().filter_map(|row| match row.key {
            RowKey::Cgroup(id) => id,
            _ => None,
        });
        let ids: Vec<CgroupId> = ids.collect();
        self.find(&ids);
        self.read_throttling(&ids);
    }

    /// Finds the paths of those that are new: that walks all directories of the hierarchy.
    fn find(&mut self, ids: &[CgroupId]) {
        let is_new = |id: &CgroupId| !self.limits.contains_key(id) && !self.not_found.contains(id);
        let wanted: FxHashSet<CgroupId> = ids.iter().copied().filter(is_new).collect();
        if wanted.is_empty() {
            return;
        }
        for (id, path) in cgroup_paths(&wanted) {
            let holder = cgroup_root().and_then(|root| nearest_quota(root, &path));
            let limits = CgroupLimits {
                path,
                quota_cpus: holder.as_ref().map(|(_, cpus)| *cpus),
                ..CgroupLimits::default()
            };
            self.limits.insert(id, limits);
            self.quotas
                .insert(id, holder.map(|(directory, _)| directory));
        }
        let limits = &self.limits;
        let missing = wanted.iter().filter(|id| !limits.contains_key(id));
        self.not_found.extend(missing);
    }

    fn read_throttling(&mut self, ids: &[CgroupId]) {
        let mut grown: FxHashMap<PathBuf, Throttling> = FxHashMap::default();
        for id in ids {
            let Some(directory) = self.quotas.get(id).and_then(Option::as_ref) else {
                continue;
            };
            let growth = *grown.entry(directory.clone()).or_insert_with(|| {
                let now = throttling_of(directory).unwrap_or_default();
                // The first time it is not known what was before.
                let before = self.throttled.insert(directory.clone(), now).unwrap_or(now);
                Throttling {
                    times: now.times.saturating_sub(before.times),
                    time_ns: now.time_ns.saturating_sub(before.time_ns),
                }
            });
            if let Some(limits) = self.limits.get_mut(id) {
                limits.throttled = Some(growth.times);
                limits.throttled_for = Some(Nanos::from_ns(growth.time_ns));
            }
        }
    }
}

/// The directory at this path below the root, or the nearest above it, that has a quota, and the
/// quota in CPUs.
fn nearest_quota(root: &Path, path: &str) -> Option<(PathBuf, f64)> {
    let below = path.trim_start_matches('/');
    let mut directory = root.join(below);
    loop {
        if let Some(cpus) = quota_of(&directory) {
            return Some((directory, cpus));
        }
        if directory == root || !directory.pop() {
            return None;
        }
    }
}

fn quota_of(directory: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    if let Some(max) = read("cpu.max") {
        return quota_v2(&max);
    }
    quota_v1(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
}

/// `cpu.max` of cgroup v2: `50000 100000` is half a CPU, `max 100000` no limit.
fn quota_v2(max: &str) -> Option<f64> {
    let (quota, period) = max.trim().split_once(' ')?;
    quota_v1(quota, period)
}

/// Quota and period of cgroup v1, both in µs; a quota of -1 is no limit.
fn quota_v1(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse().ok()?;
    let period: f64 = period.trim().parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn throttling_of(directory: &Path) -> Option<Throttling> {
    fs::read_to_string(directory.join("cpu.stat"))
        .ok()
        .and_then(|text| throttling(&text))
}

/// What `cpu.stat` says: `throttled_usec` in cgroup v2, `throttled_time` in ns in v1. `None` where no
/// quota can be set.
pub fn throttling(stat: &str) -> Option<Throttling> {
    let number = |name: &str| {
        let mut fields = stat.lines().filter_map(|line| line.split_once(' '));
        let (_, number) = fields.find(|(key, _)| *key == name)?;
        number.trim().parse::<u64>().ok()
    };
    let time_v2 = number("throttled_usec").map(|usec| usec.saturating_mul(1000));
    Some(Throttling {
        times: number("nr_throttled")?,
        time_ns: time_v2.or_else(|| number("throttled_time"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_both_versions_are_in_cpus() {
        assert_eq!(quota_v2("50000 100000\n"), Some(0.5));
        assert_eq!(quota_v2("max 100000\n"), None);
        assert_eq!(quota_v1("400000\n", "100000\n"), Some(4.0));
        assert_eq!(quota_v1("-1\n", "100000\n"), None);
        assert_eq!(quota_v2(""), None);
    }

    #[test]
    fn throttling_of_both_versions_is_in_ns() {
        let v2 = "usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 1500\n";
        let v1 = "nr_periods 7\nnr_throttled 3\nthrottled_time 1500000\n";
        let expected = Throttling {
            times: 3,
            time_ns: 1_500_000,
        };
        assert_eq!([v2, v1].map(throttling), [Some(expected); 2]);
    }

    #[test]
    fn the_nearest_quota_above_holds() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        fs::write(root.path().join("a/cpu.max"), "150000 100000").unwrap();
        fs::write(below.join("cpu.max"), "max 100000").unwrap();
        let (directory, cpus) = nearest_quota(root.path(), "/a/b").unwrap();
        assert_eq!((directory, cpus), (root.path().join("a"), 1.5));
        assert_eq!(nearest_quota(root.path(), "/"), None);
        assert_eq!(nearest_quota(root.path(), "/gone/away"), None);
    }
}

//! Cgroups as the directories of a hierarchy show them: their paths by id, their quotas of CPU time,
//! and how often a quota stopped a CPU. Whoever tells a quota reads it here.
//!
//! ```text
//! /pod          40 ms of 100 ms   ◀─ the one that throttles: it has the quota that is used up
//! /pod/app      150 ms of 100 ms     what a cgroup states may be above what one above it has (v2)
//! /pod/app/x    none
//! ```
//!
//! Sources: `Documentation/admin-guide/cgroup-v2.rst`, `Documentation/scheduler/sched-bwc.rst` (v6.18);
//! `throttle_cfs_rq` in `kernel/sched/fair.c`, which counts in the group that has the quota.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::fs;
use std::hash::BuildHasher;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use swtch_capture::probe::{self, CpuController, NamingHierarchy};
use swtch_core::{CgroupId, Nanos};

/// Deeper levels are not searched; cgroups there are shown by their ids.
const MOST_LEVELS: usize = 32;

/// A quota of CPU time: at most so much in each period, on all CPUs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// The time, in µs.
    pub quota_us: u64,
    /// The period, in µs.
    pub period_us: u64,
}

impl CpuQuota {
    /// The quota of a cgroup, by the files of v2 or v1; `None` where it has none.
    pub fn of(directory: &Path) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        if let Some(max) = read("cpu.max") {
            let (quota, period) = max.trim().split_once(' ')?;
            return Self::of_words(quota, period);
        }
        Self::of_words(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
    }

    /// `max` of v2 and -1 of v1 are no limit.
    fn of_words(quota: &str, period: &str) -> Option<Self> {
        let quota_us = quota.trim().parse().ok()?;
        let period_us = period.trim().parse().ok().filter(|period| *period > 0)?;
        Some(Self {
            quota_us,
            period_us,
        })
    }

    /// Number of CPUs that may be used on average.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a few digits after the point are shown"
    )]
    pub fn cpus(self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

/// As `50000 of 100000 us`.
impl fmt::Display for CpuQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} us", self.quota_us, self.period_us)
    }
}

/// The periods in which a quota was used up since the cgroup was made, and the time for which it stopped CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which it was used up.
    pub periods: u64,
    /// Added up over CPUs.
    pub time: Nanos,
}

impl Throttling {
    /// Reads what `cpu.stat` says of the quota of a cgroup; `None` where no quota can be set.
    pub fn of(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join("cpu.stat")).ok()?;
        Self::of_stat(&text)
    }

    /// `throttled_usec` in v2, `throttled_time` in ns in v1.
    fn of_stat(stat: &str) -> Option<Self> {
        let number = |name: &str| {
            let mut fields = stat.lines().filter_map(|line| line.split_once(' '));
            let (_, number) = fields.find(|(key, _)| *key == name)?;
            number.trim().parse::<u64>().ok()
        };
        let time_v2 = number("throttled_usec").map(|usec| usec.saturating_mul(1000));
        let time_ns = time_v2.or_else(|| number("throttled_time"))?;
        Some(Self {
            periods: number("nr_throttled")?,
            time: Nanos::from_ns(time_ns),
        })
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            periods: self.periods + other.periods,
            time: self.time + other.time,
        }
    }

    /// Returns what was added since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(earlier.periods),
            time: self.time.saturating_sub(earlier.time),
        }
    }
}

/// A cgroup that has a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaHolder {
    /// Its path below the root of the hierarchy; it is not escaped.
    pub path: String,
    /// Its quota.
    pub quota: CpuQuota,
}

/// The hierarchy in which the cgroups of switches have their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupTree {
    root: PathBuf,
}

impl CgroupTree {
    /// That of this kind; `None` where it is not mounted.
    pub fn of(hierarchy: NamingHierarchy) -> Option<Self> {
        let cgroups = probe::cgroups().ok()?;
        let root = match (hierarchy, cgroups.cpu) {
            (NamingHierarchy::V1, CpuController::V1(root)) => root,
            (NamingHierarchy::V1, _) => return None,
            (NamingHierarchy::V2, _) => cgroups.v2?,
        };
        Some(Self::at(root))
    }

    /// The one that is mounted here.
    pub const fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The directory of the cgroup at this path.
    pub fn directory(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The path of the cgroup that has this directory.
    fn path_of(&self, directory: &Path) -> String {
        let below = directory.strip_prefix(&self.root).unwrap_or(directory);
        format!("/{}", below.to_string_lossy())
    }

    /// The id of the cgroup that has this path now; `None` if there is none.
    pub fn id_of(&self, path: &str) -> Option<CgroupId> {
        let found = fs::metadata(self.directory(path)).ok()?;
        Some(CgroupId::new(found.ino()))
    }

    /// Paths of cgroups, whose ids are the inode numbers of their directories. One that was removed
    /// meanwhile has no path. This walks all directories.
    pub fn paths_of<S: BuildHasher>(
        &self,
        wanted: &HashSet<CgroupId, S>,
    ) -> Vec<(CgroupId, String)> {
        let mut found = Vec::new();
        if let Some(own) = self.id_of("/").filter(|own| wanted.contains(own)) {
            found.push((own, "/".to_owned()));
        }
        self.find_below(&self.root, wanted, &mut found, 0);
        found
    }

    fn find_below<S: BuildHasher>(
        &self,
        directory: &Path,
        wanted: &HashSet<CgroupId, S>,
        found: &mut Vec<(CgroupId, String)>,
        level: usize,
    ) {
        for (id, below) in directories_in(directory) {
            if wanted.contains(&id) {
                found.push((id, self.path_of(&below)));
            }
            if level < MOST_LEVELS {
                self.find_below(&below, wanted, found, level + 1);
            }
        }
    }

    /// The cgroups below the root, those that are nearest to it first; at most so many.
    pub fn nearest(&self, most: usize) -> Vec<(CgroupId, String)> {
        let mut found: Vec<(CgroupId, String)> = Vec::new();
        let mut waiting: VecDeque<PathBuf> = VecDeque::from([self.root.clone()]);
        while let Some(directory) = waiting.pop_front() {
            for (id, below) in directories_in(&directory) {
                if found.len() >= most {
                    return found;
                }
                found.push((id, self.path_of(&below)));
                waiting.push_back(below);
            }
        }
        found
    }

    /// Reads how often quotas have stopped CPUs so far; not known where there are more cgroups than `most`.
    pub fn throttled(&self, most: usize) -> ThrottledSoFar {
        let all = self.nearest(most + 1);
        if all.len() > most {
            return ThrottledSoFar::default();
        }
        let throttled = all.into_iter().filter_map(|(_, path)| {
            let throttled = Throttling::of(&self.directory(&path))?;
            (throttled.periods > 0).then_some((path, throttled))
        });
        ThrottledSoFar(Some(throttled.collect()))
    }

    /// The path of a cgroup, and those of all above it; the root comes last.
    pub fn at_or_above(path: &str) -> impl Iterator<Item = &str> {
        let above = path.trim_end_matches('/');
        let above = std::iter::successors(Some(above).filter(|path| !path.is_empty()), |path| {
            let (above, _) = path.rsplit_once('/')?;
            Some(above).filter(|above| !above.is_empty())
        });
        above.chain(["/"])
    }

    /// The cgroup at this path and those above it that have a quota, the innermost first.
    pub fn quotas_of(&self, path: &str) -> Vec<QuotaHolder> {
        let holders = Self::at_or_above(path).filter_map(|path| {
            Some(QuotaHolder {
                quota: CpuQuota::of(&self.directory(path))?,
                path: path.to_owned(),
            })
        });
        holders.collect()
    }
}

/// The throttling of each cgroup up to some moment.
#[derive(Debug, Default)]
pub struct ThrottledSoFar(
    /// By path: for those that are not there it never had. `None` where nothing is known.
    Option<HashMap<String, Throttling>>,
);

impl ThrottledSoFar {
    /// That of the cgroup at this path, of which `cpu.stat` says `now`; where it is not known it is that, so
    /// that nothing counts as added since.
    pub fn before(&self, path: &str, now: Throttling) -> Throttling {
        match &self.0 {
            Some(throttled) => throttled.get(path).copied().unwrap_or_default(),
            None => now,
        }
    }
}

/// The one of these cgroups, each of which contains the one before, whose quota counts: the one that
/// stopped CPUs longest meanwhile, else the smallest.
pub fn limiting(
    holders: &[QuotaHolder],
    throttled: impl Fn(&str) -> Throttling,
) -> Option<&QuotaHolder> {
    let worst = holders.iter().max_by_key(|one| throttled(&one.path).time);
    let worst = worst.filter(|one| throttled(&one.path).time > Nanos::ZERO);
    let smallest = || {
        let holders = holders.iter();
        holders.min_by(|one, other| one.quota.cpus().total_cmp(&other.quota.cpus()))
    };
    worst.or_else(smallest)
}

/// The directories in a directory, with their inode numbers. A cgroup that was removed meanwhile has
/// none.
fn directories_in(directory: &Path) -> impl Iterator<Item = (CgroupId, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| (CgroupId::new(entry.ino()), entry.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn quota(quota_us: u64) -> CpuQuota {
        CpuQuota {
            quota_us,
            period_us: 100_000,
        }
    }

    #[test]
    fn quotas_of_both_versions_are_read() {
        let group = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(group.path().join(file), text).unwrap();
        assert_eq!(CpuQuota::of(group.path()), None);
        write("cpu.cfs_period_us", "100000\n");
        for (text, expected) in [("-1\n", None), ("400000\n", Some(quota(400_000)))] {
            write("cpu.cfs_quota_us", text);
            assert_eq!(CpuQuota::of(group.path()), expected);
        }
        for (text, expected) in [
            ("max 100000\n", None),
            ("50000 100000\n", Some(quota(50_000))),
            ("50000 0\n", None),
            ("", None),
        ] {
            write("cpu.max", text);
            assert_eq!(CpuQuota::of(group.path()), expected, "{text}");
        }
        assert!((quota(50_000).cpus() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn throttling_of_both_versions_is_in_ns() {
        let v2 = "usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 1500\n";
        let v1 = "nr_periods 7\nnr_throttled 3\nthrottled_time 1500000\n";
        let expected = Throttling {
            periods: 3,
            time: Nanos::from_ns(1_500_000),
        };
        assert_eq!([v2, v1].map(Throttling::of_stat), [Some(expected); 2]);
        assert_eq!(Throttling::of_stat("usage_usec 9\n"), None);
    }

    #[test]
    fn a_cgroup_is_at_or_above_itself_and_so_are_all_up_to_the_root() {
        let of = |path| CgroupTree::at_or_above(path).collect::<Vec<_>>();
        assert_eq!(of("/a/b"), ["/a/b", "/a", "/"]);
        assert_eq!(of("/"), ["/"]);
        assert_eq!(of(""), ["/"]);
    }

    /// ```text
    /// /pod   40 ms    /pod/app   150 ms    /pod/app/x   none
    /// ```
    fn pod() -> (tempfile::TempDir, CgroupTree) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("pod/app/x")).unwrap();
        for (file, text) in [
            ("pod/cpu.max", "40000 100000\n"),
            ("pod/app/cpu.max", "150000 100000\n"),
            ("pod/app/x/cpu.max", "max 100000\n"),
        ] {
            fs::write(root.path().join(file), text).unwrap();
        }
        let tree = CgroupTree::at(root.path().to_owned());
        (root, tree)
    }

    /// In v2 a cgroup may state a quota above that of one above it.
    #[test]
    fn the_smallest_quota_counts_wherever_it_is() {
        let (_root, tree) = pod();
        let holders = tree.quotas_of("/pod/app/x");
        let none = |_: &str| Throttling::default();
        let found = limiting(&holders, none).unwrap();
        assert_eq!((found.path.as_str(), found.quota), ("/pod", quota(40_000)));
        assert_eq!(tree.quotas_of("/gone/away"), []);
        assert_eq!(limiting(&[], none), None);
    }

    /// Several cgroups below share one quota: it may be used up though each has a smaller one.
    #[test]
    fn the_quota_that_stops_cpus_counts_though_another_is_smaller() {
        let (_root, tree) = pod();
        let holders = tree.quotas_of("/pod/app");
        let throttled = |path: &str| Throttling {
            periods: 1,
            time: Nanos::from_ns(if path == "/pod/app" { 900 } else { 100 }),
        };
        assert_eq!(limiting(&holders, throttled).unwrap().path, "/pod/app");
    }

    #[test]
    fn paths_are_found_by_inode_and_the_nearest_come_first() {
        let (_root, tree) = pod();
        let nearest: Vec<_> = tree.nearest(2).into_iter().map(|(_, path)| path).collect();
        assert_eq!(nearest, ["/pod", "/pod/app"]);
        let wanted: HashSet<_> = ["/", "/pod/app/x"]
            .into_iter()
            .map(|path| tree.id_of(path).unwrap())
            .collect();
        let mut found: Vec<_> = tree
            .paths_of(&wanted)
            .into_iter()
            .map(|one| one.1)
            .collect();
        found.sort();
        assert_eq!(found, ["/", "/pod/app/x"]);
    }
}

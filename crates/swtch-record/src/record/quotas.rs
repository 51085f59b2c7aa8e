//! The cgroups of a recording: their paths, and the quotas of CPU time of those and of the ones above
//! them, of which it is read how often they are used up while it is recorded.
//!
//! A cgroup may be gone at the end, so what is told of it is what was read last.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use swtch_capture::probe::NamingHierarchy;
use swtch_core::CgroupId;
use swtch_host::hierarchy::{CgroupTree, CpuQuota, ThrottledSoFar, Throttling};
use swtch_store::QuotaFacts;

/// Throttling is read this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Of more cgroups that there are at once no quota is read.
const MOST_WATCHED: usize = 1_000;

/// The cgroups that were met.
#[derive(Debug)]
pub struct RecordedCgroups {
    /// `None` where no cgroup has a name.
    tree: Option<CgroupTree>,
    /// The throttling of cgroups when this part of the recording began.
    at_start: ThrottledSoFar,
    watched: BTreeMap<String, WatchedQuota>,
    looked: Instant,
}

/// A cgroup that may have a quota.
#[derive(Debug)]
struct WatchedQuota {
    /// As it was read last; `None` if there never was one.
    quota: Option<CpuQuota>,
    last: Throttling,
    /// The growth since the recording began, or since it was met where it is not known what it was then.
    grown: Throttling,
}

impl WatchedQuota {
    /// One that had counted so much before.
    fn since(last: Throttling) -> Self {
        Self {
            quota: None,
            last,
            grown: Throttling::default(),
        }
    }

    fn read(&mut self, directory: &Path) {
        self.quota = CpuQuota::of(directory).or(self.quota);
        let Some(now) = Throttling::of(directory) else {
            return;
        };
        // One that was made again under its path begins at 0.
        let added = match now.periods < self.last.periods {
            true => now,
            false => now.since(self.last),
        };
        self.grown = self.grown.plus(added);
        self.last = now;
    }
}

impl RecordedCgroups {
    /// None was met yet, of this hierarchy.
    pub fn of(naming: NamingHierarchy) -> Self {
        Self::below(CgroupTree::of(naming))
    }

    fn below(tree: Option<CgroupTree>) -> Self {
        Self {
            at_start: tree
                .as_ref()
                .map(|tree| tree.throttled(MOST_WATCHED))
                .unwrap_or_default(),
            tree,
            watched: BTreeMap::new(),
            looked: Instant::now(),
        }
    }

    /// Paths of cgroups, whose quotas are watched from now on. One that was removed meanwhile has no
    /// path.
    pub fn paths_of(&mut self, wanted: &FxHashSet<CgroupId>) -> Vec<(CgroupId, String)> {
        let Some(tree) = &self.tree else {
            return Vec::new();
        };
        let found = tree.paths_of(wanted);
        if self.watched.len() + found.len() > MOST_WATCHED {
            self.watched.retain(|path, _| tree.id_of(path).is_some());
            self.at_start = ThrottledSoFar::default();
        }
        for (_, path) in &found {
            for path in CgroupTree::at_or_above(path) {
                if self.watched.len() < MOST_WATCHED && !self.watched.contains_key(path) {
                    let directory = tree.directory(path);
                    let now = Throttling::of(&directory).unwrap_or_default();
                    let mut met = WatchedQuota::since(self.at_start.before(path, now));
                    met.read(&directory);
                    self.watched.insert(path.to_owned(), met);
                }
            }
        }
        found
    }

    /// Reads how often quotas were used up, if that was long ago.
    pub fn look(&mut self) {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.read(|one| one.quota.is_some());
        }
    }

    fn read(&mut self, is_read: impl Fn(&WatchedQuota) -> bool) {
        let Some(tree) = &self.tree else {
            return;
        };
        for (path, one) in self.watched.iter_mut().filter(|(_, one)| is_read(one)) {
            one.read(&tree.directory(path));
        }
    }

    /// The quotas, and how often each was used up. What is met later is told since then: a part of the
    /// recording ends here, and what was before belongs to none that follows.
    pub fn quotas(&mut self) -> Vec<QuotaFacts> {
        self.read(|_| true);
        self.at_start = ThrottledSoFar::default();
        let quotas = self.watched.iter().filter_map(|(path, one)| {
            let quota = one.quota?;
            Some(QuotaFacts {
                cgroup: path.clone(),
                quota_us: quota.quota_us,
                period_us: quota.period_us,
                throttled_periods: one.grown.periods,
                throttled_ns: one.grown.time.as_ns(),
            })
        });
        quotas.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// ```text
    /// /uq   40 ms of 100 ms      /uq/inner   no quota, the tasks are here
    /// ```
    #[test]
    fn a_quota_above_is_told_with_what_it_stopped_also_when_it_is_gone() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("uq/inner")).unwrap();
        let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        write("uq/cpu.max", "40000 100000\n");
        write("uq/cpu.stat", "nr_throttled 5\nthrottled_usec 1000\n");
        write("uq/inner/cpu.max", "max 100000\n");
        let tree = CgroupTree::at(root.path().to_owned());
        let inner = tree.id_of("/uq/inner").unwrap();
        let mut cgroups = RecordedCgroups::below(Some(tree));
        let found = cgroups.paths_of(&FxHashSet::from_iter([inner]));
        assert_eq!(found, [(inner, "/uq/inner".to_owned())]);
        write("uq/cpu.stat", "nr_throttled 12\nthrottled_usec 9000\n");
        let expected = [QuotaFacts {
            cgroup: "/uq".to_owned(),
            quota_us: 40_000,
            period_us: 100_000,
            throttled_periods: 7,
            throttled_ns: 8_000_000,
        }];
        assert_eq!(cgroups.quotas(), expected);
        fs::remove_dir_all(root.path().join("uq")).unwrap();
        assert_eq!(cgroups.quotas(), expected);
    }

    /// Of the last of many cgroups it is not known what was used up before, nor of one that is met in a later part of a
    /// recording in parts.
    #[test]
    fn what_was_used_up_before_it_could_be_known_is_not_told() {
        let root = tempfile::tempdir().unwrap();
        for nth in 0..=MOST_WATCHED {
            fs::create_dir(root.path().join(format!("g{nth}"))).unwrap();
        }
        let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        write("g7/cpu.max", "40000 100000\n");
        write("g7/cpu.stat", "nr_throttled 900\nthrottled_usec 1000000\n");
        let throttled = |mut cgroups: RecordedCgroups| {
            let id = cgroups.tree.as_ref().unwrap().id_of("/g7").unwrap();
            cgroups.paths_of(&FxHashSet::from_iter([id]));
            let told = cgroups.quotas();
            assert_eq!(told.len(), 1, "{told:?}");
            told[0].throttled_periods
        };
        let tree = CgroupTree::at(root.path().to_owned());
        assert_eq!(throttled(RecordedCgroups::below(Some(tree.clone()))), 0);
        fs::remove_dir(root.path().join("g0")).unwrap();
        let mut later = RecordedCgroups::below(Some(tree));
        assert_eq!(later.quotas(), []);
        write("g7/cpu.stat", "nr_throttled 905\nthrottled_usec 2000000\n");
        assert_eq!(throttled(later), 0);
    }
}

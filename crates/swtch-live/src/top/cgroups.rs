//! Paths and CPU quotas of the cgroups that have rows. The quota that counts may be that of a cgroup
//! above; only cgroups that have one have their `cpu.stat` read.

use std::collections::HashMap;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::CgroupId;
use swtch_host::hierarchy::{CgroupTree, QuotaHolder, ThrottledSoFar, Throttling, limiting};
use swtch_report::report::live::{CgroupLimits, LiveRow, RowKey};

use super::session::LimitsById;

/// The quotas of cgroups, and how often they have stopped CPUs.
#[derive(Debug)]
pub struct CgroupQuotas {
    /// `None` where no cgroup has a name.
    tree: Option<CgroupTree>,
    limits: LimitsById,
    /// Of each of them, the quotas that limit it: its own and those above.
    quotas: FxHashMap<CgroupId, Vec<QuotaHolder>>,
    /// The throttling of all cgroups before the first frame.
    at_start: ThrottledSoFar,
    /// The throttling that each path had last, and the frame in which it was read.
    throttled: HashMap<String, (u64, Throttling)>,
    /// The cgroups that were looked for and have no path.
    not_found: FxHashSet<CgroupId>,
    frames: u64,
}

/// Quotas may change, and a cgroup may be removed and its id be used again: all is read anew after so
/// many frames.
const FRESH_FOR: u64 = 30;

/// Of so many cgroups it is looked at the beginning how often a quota was used up before.
const MOST_AT_START: usize = 1_000;

impl CgroupQuotas {
    /// Nothing is known yet of the cgroups in this hierarchy.
    pub fn of(tree: Option<CgroupTree>) -> Self {
        let at_start = tree.as_ref().map(|tree| tree.throttled(MOST_AT_START));
        Self {
            tree,
            limits: LimitsById::default(),
            quotas: FxHashMap::default(),
            at_start: at_start.unwrap_or_default(),
            throttled: HashMap::new(),
            not_found: FxHashSet::default(),
            frames: 0,
        }
    }

    /// The hierarchy in which they are.
    pub const fn tree(&self) -> Option<&CgroupTree> {
        self.tree.as_ref()
    }

    /// Returns the limits of each cgroup.
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
        let Some(tree) = self.tree.clone() else {
            return;
        };
        let ids = rows.iter().filter_map(|row| match row.key {
            RowKey::Cgroup(id) => id,
            _ => None,
        });
        let ids: Vec<CgroupId> = ids.collect();
        self.find(&tree, &ids);
        self.read_throttling(&tree, &ids);
    }

    /// Finds the paths of those that are new: that walks all directories of the hierarchy.
    fn find(&mut self, tree: &CgroupTree, ids: &[CgroupId]) {
        let is_new = |id: &CgroupId| !self.limits.contains_key(id) && !self.not_found.contains(id);
        let wanted: FxHashSet<CgroupId> = ids.iter().copied().filter(is_new).collect();
        if wanted.is_empty() {
            return;
        }
        for (id, path) in tree.paths_of(&wanted) {
            self.quotas.insert(id, tree.quotas_of(&path));
            let limits = CgroupLimits {
                path,
                ..CgroupLimits::default()
            };
            self.limits.insert(id, limits);
        }
        let limits = &self.limits;
        let missing = wanted.iter().filter(|id| !limits.contains_key(id));
        self.not_found.extend(missing);
    }

    fn read_throttling(&mut self, tree: &CgroupTree, ids: &[CgroupId]) {
        let mut grown: FxHashMap<String, Throttling> = FxHashMap::default();
        for id in ids {
            let (Some(holders), Some(limits)) = (self.quotas.get(id), self.limits.get_mut(id))
            else {
                continue;
            };
            for QuotaHolder { path, .. } in holders {
                if grown.contains_key(path) {
                    continue;
                }
                let now = Throttling::of(&tree.directory(path)).unwrap_or_default();
                let before = self.throttled.insert(path.clone(), (self.frames, now));
                let before = match before {
                    Some((frame, before)) if frame + 1 == self.frames => before,
                    None if self.frames == 1 => self.at_start.before(path, now),
                    // What was added since the frame before is not known.
                    _ => now,
                };
                grown.insert(path.clone(), now.since(before));
            }
            let growth_of = |path: &str| grown.get(path).copied().unwrap_or_default();
            if let Some(QuotaHolder { path, quota }) = limiting(holders, growth_of) {
                let growth = growth_of(path);
                limits.quota_cpus = Some(quota.cpus());
                limits.quota_of = Some(path.clone());
                limits.throttled = Some(growth.periods);
                limits.throttled_for = Some(growth.time);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use swtch_core::Nanos;
    use swtch_report::report::live::RowSums;

    use super::*;

    /// ```text
    /// /p   10 ms, used up        /p/a, /p/b   10 ms each, never used up
    /// ```
    #[test]
    fn the_cgroup_above_that_throttles_is_named() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        let stat = |times, usec| format!("nr_throttled {times}\nthrottled_usec {usec}\n");
        for group in ["p", "p/a", "p/b"] {
            fs::create_dir(root.path().join(group)).unwrap();
            write(&format!("{group}/cpu.max"), "10000 100000\n");
            write(&format!("{group}/cpu.stat"), &stat(9, 500));
        }
        let tree = CgroupTree::at(root.path().to_owned());
        let ids = ["/p/a", "/p/b"].map(|path| tree.id_of(path).unwrap());
        let rows = ids.map(|id| LiveRow {
            key: RowKey::Cgroup(Some(id)),
            sums: RowSums::default(),
            from_idle: 0,
        });
        let mut quotas = CgroupQuotas::of(Some(tree));
        quotas.look_at(&rows);
        write("p/cpu.stat", &stat(66, 6_100_500));
        quotas.look_at(&rows);
        for id in ids {
            let limits = &quotas.limits()[&id];
            assert_eq!(limits.quota_of.as_deref(), Some("/p"));
            assert_eq!(limits.throttled, Some(57));
            assert_eq!(limits.throttled_for, Some(Nanos::from_ns(6_100_000_000)));
        }
    }
}

//! Which cgroups have metrics of their own. A label for each cgroup of a machine that has ten thousand
//! would be too much for whoever stores the metrics, so that their number is bounded.
//!
//! ```text
//! cgroups of a frame ─┬─ is known by its id ──────────────────────────────▶ the sums of its path
//!                     ├─ has the path of one that was removed: made again ▶ the sums of that path go on
//!                     ├─ has none, but there is room ─walk, path──────────▶ its own sums, from now on
//!                     └─ else ────────────────────────────────────────────▶ the sums of all others
//! ```
//!
//! Sums belong to a path: a service that is started again has a new cgroup there, and one series. A
//! name is kept as long as a cgroup has the path and a little longer, so that its last counts are still
//! read. To find a path, all directories of the hierarchy are walked, which takes 50 ms for 10,000:
//! walks take at most a hundredth of the time, but for the first tenth of a second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::CgroupId;
use swtch_host::hierarchy::CgroupTree;
use swtch_output::text::escaped;
use swtch_report::report::live::{LiveRow, RowKey, RowSums};

use super::host::CgroupCounters;
use super::thread_cpu_time;

/// The time between two readings of the pressure, throttling and quota of each named cgroup, and of whether it still
/// exists.
const COUNTERS_EVERY: Duration = Duration::from_secs(5);

/// Ids that had no path are looked for again after so long.
const LOOK_AGAIN_EVERY: Duration = Duration::from_secs(60);

/// A cgroup that was removed is shown for this long: scrapers come once a minute or more often.
const SHOWN_FOR: Duration = Duration::from_secs(300);

/// Walks take at most one part in so many of the time.
const WALK_SHARE: u32 = 100;

/// A walk of 20 ms pays for 2 s; so much may be owed before no walk is made. Without it, one walk that took 20 ms, or that
/// the hypervisor held up for as long, would leave a cgroup without a name for two readings, and its
/// switches would be summed with those of others.
const WALKS_AHEAD: Duration = Duration::from_secs(10);

/// Of the cgroups that had a path one after the other so many are known by their ids: switches of the
/// one before may be counted after it was made again.
const IDS_OF_A_PATH: usize = 2;

/// The cgroups whose switches are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedCgroups {
    /// All cgroups.
    All,
    /// The cgroups that were asked for.
    Chosen,
}

/// A path with metrics of its own.
#[derive(Clone, Debug)]
pub struct NamedCgroup {
    /// The path below the root of the hierarchy; it is not escaped.
    path: String,
    /// Sums since it has the name, of all cgroups that had the path.
    pub sums: RowSums,
    /// The kernel's counters of them.
    pub counters: CgroupCounters,
    /// The cgroups that had the path last, the newest at the end.
    ids: Vec<CgroupId>,
    /// The moment at which it was found that no cgroup has the path.
    removed: Option<Instant>,
}

/// All cgroups that have a name here, and the sums of the others.
#[derive(Debug)]
pub struct NamedCgroups {
    most: usize,
    /// `None` where no hierarchy is mounted: then no cgroup has a name.
    tree: Option<CgroupTree>,
    /// By the label of their series, which is the escaped path: two paths may look the same.
    named: BTreeMap<String, NamedCgroup>,
    /// The label of each cgroup that is known.
    labels: FxHashMap<CgroupId, String>,
    /// Cgroups above them that have a quota and no name, as no task is in them.
    above: BTreeMap<String, CgroupCounters>,
    /// Ids without a directory: cgroups that were removed meanwhile, and those of other hierarchies.
    not_found: FxHashSet<CgroupId>,
    /// Sums of the cgroups without a name, and of tasks whose cgroup is not known.
    others: RowSums,
    /// Number of cgroups that were summed under `others` in the last frame.
    others_now: usize,
    /// Walks have used up their share of the time until then.
    walked_until: Instant,
    next_nearest: Instant,
    next_look_again: Instant,
    next_counters: Instant,
}

impl NamedCgroups {
    /// None has a name yet; at most so many will, of this hierarchy.
    pub fn new(most: usize, tree: Option<CgroupTree>) -> Self {
        let now = Instant::now();
        Self {
            most,
            tree,
            named: BTreeMap::new(),
            labels: FxHashMap::default(),
            above: BTreeMap::new(),
            not_found: FxHashSet::default(),
            others: RowSums::default(),
            others_now: 0,
            walked_until: now,
            next_nearest: now,
            next_look_again: now + LOOK_AGAIN_EVERY,
            next_counters: now,
        }
    }

    /// Most cgroups that have a name.
    pub const fn most(&self) -> usize {
        self.most
    }

    /// The cgroups with a name, each with its label, in the order of labels.
    pub fn named(&self) -> impl Iterator<Item = (&str, &NamedCgroup)> {
        self.named.iter().map(|(label, one)| (label.as_str(), one))
    }

    /// Returns what the kernel counts of those with a name, and of those above them that have a quota, each with its
    /// label.
    pub fn counters(&self) -> impl Iterator<Item = (&str, &CgroupCounters)> {
        let named = self.named().map(|(label, one)| (label, &one.counters));
        named.chain(self.above.iter().map(|(label, of)| (label.as_str(), of)))
    }

    /// Sums of all others.
    pub const fn others(&self) -> &RowSums {
        &self.others
    }

    /// Number of cgroups that were summed with others in the last frame.
    pub const fn others_now(&self) -> usize {
        self.others_now
    }

    /// Adds the rows of a frame, in which all cgroups are, or only chosen ones. What the kernel counts
    /// anyway is told of the others, too, as long as they take no more than half of the room.
    pub fn add(&mut self, rows: &[LiveRow], counted: CountedCgroups) {
        let now = Instant::now();
        self.forget_removed(now);
        if let Some(tree) = self.tree.clone() {
            self.name_new(rows, now, |wanted| tree.paths_of(wanted));
        }
        if counted == CountedCgroups::Chosen {
            self.name_nearest(now, self.most / 2);
        }
        self.count(rows);
        self.read_counters(now);
    }

    /// Names cgroups where no switches are counted.
    pub fn add_from_hierarchy(&mut self) {
        let now = Instant::now();
        self.forget_removed(now);
        self.name_nearest(now, self.most);
        self.read_counters(now);
    }

    /// Names cgroups in which nobody is known to switch, those nearest to the root first, until so many
    /// have a name.
    fn name_nearest(&mut self, now: Instant, most: usize) {
        let is_due = self.named.len() < most && now >= self.next_nearest && self.may_walk(now);
        let Some(tree) = self.tree.clone().filter(|_| is_due) else {
            return;
        };
        self.next_nearest = now + COUNTERS_EVERY;
        for (id, path) in self.walk(now, || tree.nearest(most)) {
            let is_named = self.named.contains_key(&*escaped(&path));
            if is_named || self.named.len() < most {
                self.name(id, path, now);
            }
        }
    }

    /// The cgroup with this id has the path now, whose sums go on if it had one before.
    fn name(&mut self, id: CgroupId, path: String, now: Instant) {
        let label = escaped(&path).into_owned();
        let above = &mut self.above;
        let one = self
            .named
            .entry(label.clone())
            .or_insert_with(|| NamedCgroup {
                path,
                sums: RowSums::default(),
                counters: above.remove(&label).unwrap_or_default(),
                ids: Vec::new(),
                removed: None,
            });
        one.removed = None;
        if one.ids.contains(&id) {
            return;
        }
        one.ids.push(id);
        if one.ids.len() > IDS_OF_A_PATH {
            self.labels.remove(&one.ids.remove(0));
        }
        self.labels.insert(id, label);
        self.next_counters = now;
    }

    /// Reads what the kernel counts of each, and of those above that have a quota.
    fn read_counters(&mut self, now: Instant) {
        let Some(tree) = self.tree.clone().filter(|_| now >= self.next_counters) else {
            return;
        };
        let mut made_again = Vec::new();
        for one in self.named.values_mut() {
            one.removed = if one.counters.read(&tree, &one.path) {
                None
            } else {
                one.removed.or(Some(now))
            };
            if let Some(id) = one.counters.id().filter(|id| !one.ids.contains(id)) {
                made_again.push((id, one.path.clone()));
            }
        }
        for (id, path) in made_again {
            self.name(id, path, now);
        }
        self.read_above(&tree);
        self.next_counters = now + COUNTERS_EVERY;
    }

    fn read_above(&mut self, tree: &CgroupTree) {
        let mut above = BTreeMap::new();
        let paths = self.named.values().map(|one| one.path.as_str());
        for path in paths.flat_map(CgroupTree::at_or_above) {
            let label = escaped(path);
            if self.named.contains_key(&*label) || above.contains_key(&*label) {
                continue;
            }
            let mut counters = self.above.remove(&*label).unwrap_or_default();
            if counters.read(tree, path) && counters.quota.is_some() {
                above.insert(label.into_owned(), counters);
            }
        }
        self.above = above;
    }

    fn count(&mut self, rows: &[LiveRow]) {
        self.others_now = 0;
        for row in rows {
            let RowKey::Cgroup(id) = row.key else {
                continue;
            };
            let label = id.and_then(|id| self.labels.get(&id));
            match label.and_then(|label| self.named.get_mut(label)) {
                Some(named) => named.sums.add(&row.sums),
                None => {
                    self.others.add(&row.sums);
                    self.others_now += usize::from(id.is_some());
                }
            }
        }
    }

    /// Names those without a name that switched most, as far as there is room.
    fn name_new(
        &mut self,
        rows: &[LiveRow],
        now: Instant,
        find: impl Fn(&FxHashSet<CgroupId>) -> Vec<(CgroupId, String)>,
    ) {
        let mut wanted: Vec<(u64, CgroupId)> = rows
            .iter()
            .filter_map(|row| match row.key {
                RowKey::Cgroup(Some(id)) => Some((row.sums.switches(), id)),
                _ => None,
            })
            .filter(|(_, id)| !self.labels.contains_key(id) && !self.not_found.contains(id))
            .collect();
        if wanted.is_empty() || !self.may_walk(now) {
            return;
        }
        self.name_made_again(&wanted, now);
        wanted.retain(|(_, id)| !self.labels.contains_key(id));
        wanted.sort_unstable_by_key(|(switches, id)| (std::cmp::Reverse(*switches), id.get()));
        wanted.truncate(self.most.saturating_sub(self.named.len()));
        let wanted: FxHashSet<CgroupId> = wanted.into_iter().map(|(_, id)| id).collect();
        if wanted.is_empty() {
            return;
        }
        for (id, path) in self.walk(now, || find(&wanted)) {
            self.name(id, path, now);
        }
        let labels = &self.labels;
        let missing = wanted.iter().filter(|id| !labels.contains_key(id));
        self.not_found.extend(missing);
    }

    /// Names those that have the path of one that has a name: it was removed, and made again.
    fn name_made_again(&mut self, wanted: &[(u64, CgroupId)], now: Instant) {
        let Some(tree) = self.tree.clone() else {
            return;
        };
        let paths: Vec<String> = self.named.values().map(|one| one.path.clone()).collect();
        let ids = self.walk(now, || {
            let ids = paths
                .into_iter()
                .filter_map(|path| Some((tree.id_of(&path)?, path)));
            ids.collect()
        });
        for (id, path) in ids {
            if wanted.iter().any(|(_, wanted)| *wanted == id) {
                self.name(id, path, now);
            }
        }
    }

    /// Forgets the names of cgroups that were removed some time ago.
    fn forget_removed(&mut self, now: Instant) {
        if now >= self.next_look_again {
            self.next_look_again = now + LOOK_AGAIN_EVERY;
            self.not_found.clear();
        }
        let labels = &mut self.labels;
        self.named.retain(|_, one| {
            let is_shown = one.removed.is_none_or(|since| now - since < SHOWN_FOR);
            if !is_shown {
                one.ids.iter().for_each(|id| drop(labels.remove(id)));
            }
            is_shown
        });
    }

    fn may_walk(&self, now: Instant) -> bool {
        self.walked_until <= now + WALKS_AHEAD
    }

    /// Walks the hierarchy. Its CPU time counts: a walk that had to wait for a CPU was no work.
    fn walk(
        &mut self,
        now: Instant,
        find: impl FnOnce() -> Vec<(CgroupId, String)>,
    ) -> Vec<(CgroupId, String)> {
        let before = thread_cpu_time();
        let found = find();
        let took = thread_cpu_time().saturating_sub(before);
        self.walked_until = self.walked_until.max(now) + took * WALK_SHARE;
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn rows(ids: std::ops::Range<u64>) -> Vec<LiveRow> {
        let row = |id| {
            let mut sums = RowSums::default();
            sums.tally.switches = id;
            LiveRow {
                key: RowKey::Cgroup(Some(CgroupId::new(id))),
                sums,
                from_idle: 0,
            }
        };
        ids.map(row).collect()
    }

    fn paths(wanted: &FxHashSet<CgroupId>) -> Vec<(CgroupId, String)> {
        let found = wanted.iter().filter(|id| id.get() != 9_999);
        found.map(|id| (*id, format!("/{}", id.get()))).collect()
    }

    /// Ten thousand cgroups have a hundred names, the busiest ones, and no switch is left out.
    #[test]
    fn the_number_of_names_is_bounded_and_the_rest_is_summed() {
        let mut cgroups = NamedCgroups::new(100, None);
        let frame = rows(0..10_000);
        cgroups.name_new(&frame, Instant::now(), paths);
        cgroups.count(&frame);
        let named: u64 = cgroups.named().map(|(_, one)| one.sums.switches()).sum();
        assert_eq!(named + cgroups.others().switches(), 9_999 * 5_000);
        // 9,999 was removed before its path was looked for.
        assert_eq!((cgroups.named().count(), cgroups.others_now()), (99, 9_901));
        assert!(cgroups.named().all(|(_, one)| one.sums.switches() >= 9_900));
    }

    /// A cgroup that appears in the next reading must not be summed with the others because a walk was
    /// slow once: on a busy machine it may wait for a CPU for as long as it likes, and what the
    /// hypervisor takes may count as its own time.
    #[test]
    fn a_slow_walk_does_not_put_off_the_next() {
        fn paths_late(wanted: &FxHashSet<CgroupId>) -> Vec<(CgroupId, String)> {
            std::thread::sleep(Duration::from_millis(20));
            let before = thread_cpu_time();
            while thread_cpu_time().saturating_sub(before) < Duration::from_millis(20) {}
            paths(wanted)
        }
        let mut cgroups = NamedCgroups::new(2, None);
        let now = Instant::now();
        cgroups.name_new(&rows(1..2), now, paths_late);
        cgroups.name_new(&rows(2..3), now + Duration::from_secs(1), paths_late);
        assert_eq!(cgroups.named().count(), 2);
    }

    /// Walks that are always slow have their share of the time, and no more.
    #[test]
    fn slow_walks_have_their_share_of_the_time() {
        /// CPU time that walks took, and that the longest one took: something may make them longer.
        static WALKS: Mutex<[Duration; 2]> = Mutex::new([Duration::ZERO; 2]);
        fn slow(_: &FxHashSet<CgroupId>) -> Vec<(CgroupId, String)> {
            let before = thread_cpu_time();
            while thread_cpu_time().saturating_sub(before) < Duration::from_millis(1) {}
            let took = thread_cpu_time().saturating_sub(before);
            let mut walks = WALKS.lock().unwrap();
            *walks = [walks[0] + took, walks[1].max(took)];
            Vec::new()
        }
        let mut cgroups = NamedCgroups::new(1_000, None);
        let start = Instant::now();
        for id in 0..1_000 {
            let now = start + Duration::from_millis(20 * id);
            cgroups.name_new(&rows(id..id + 1), now, slow);
        }
        // In 20 seconds 200 ms, and the 100 ms that they may be ahead. The last may begin just before that
        // is used up. What is measured around a walk is a little more than what it takes.
        let [took, longest] = *WALKS.lock().unwrap();
        let share = Duration::from_millis(300);
        assert!(took + longest > share * 9 / 10, "{took:?} of {share:?}");
        assert!(took <= share + longest, "{took:?} of {share:?}");
    }

    /// Series must go on under the same name when others become busier.
    #[test]
    fn a_name_is_kept_when_others_switch_more() {
        let mut cgroups = NamedCgroups::new(2, None);
        cgroups.name_new(&rows(1..3), Instant::now(), paths);
        cgroups.name_new(&rows(1..50), Instant::now(), paths);
        let names: Vec<_> = cgroups.named().map(|(label, _)| label).collect();
        assert_eq!(names, ["/1", "/2"]);
    }

    /// A service that is started again and again has one series, whose counters go on.
    #[test]
    fn cgroups_that_have_one_path_one_after_the_other_have_one_name() {
        let mut cgroups = NamedCgroups::new(2, None);
        let now = Instant::now();
        let service = |wanted: &FxHashSet<CgroupId>| {
            let ids = wanted.iter().copied();
            ids.map(|id| (id, "/service".to_owned())).collect()
        };
        let mut counted = 0;
        for id in 1..=1_000 {
            let frame = rows(id..id + 1);
            cgroups.name_new(&frame, now, service);
            cgroups.count(&frame);
            counted += id;
            let sums: Vec<_> = cgroups
                .named()
                .map(|(_, one)| one.sums.switches())
                .collect();
            assert_eq!(sums, [counted]);
        }
        assert_eq!(cgroups.labels.len(), IDS_OF_A_PATH);
        assert_eq!(cgroups.others().switches(), 0);
        // What the one before did is counted when the next one is there.
        cgroups.count(&rows(999..1_001));
        assert_eq!(cgroups.others().switches(), 0);
    }

    /// A cgroup that was made again still has its own name where there is no room for another.
    #[test]
    fn a_cgroup_that_is_made_again_needs_no_room() {
        let root = tempfile::tempdir().unwrap();
        let tree = CgroupTree::at(root.path().to_owned());
        let make = |name: &str| {
            std::fs::create_dir(root.path().join(name)).unwrap();
            tree.id_of(name).unwrap()
        };
        let of = |id: CgroupId| rows(id.get()..id.get() + 1);
        let mut cgroups = NamedCgroups::new(1, Some(tree.clone()));
        let old = make("service");
        cgroups.add(&of(old), CountedCgroups::All);
        let new = make("next");
        assert_ne!(old, new);
        std::fs::rename(root.path().join("next"), root.path().join("service")).unwrap();
        cgroups.add(&of(new), CountedCgroups::All);
        let named: Vec<_> = cgroups
            .named()
            .map(|(label, one)| (label, one.sums.switches()))
            .collect();
        assert_eq!(named, [("/service", old.get() + new.get())]);
    }

    /// A quota is mostly that of a cgroup in which no task is.
    #[test]
    fn a_cgroup_above_with_a_quota_is_told() {
        let root = tempfile::tempdir().unwrap();
        let tree = CgroupTree::at(root.path().to_owned());
        std::fs::create_dir_all(root.path().join("pod/app")).unwrap();
        std::fs::write(root.path().join("pod/cpu.max"), "40000 100000\n").unwrap();
        let stat = "nr_throttled 3\nthrottled_usec 1500\n";
        std::fs::write(root.path().join("pod/cpu.stat"), stat).unwrap();
        let app = tree.id_of("/pod/app").unwrap().get();
        let mut cgroups = NamedCgroups::new(9, Some(tree));
        cgroups.add(&rows(app..app + 1), CountedCgroups::All);
        let told: Vec<_> = cgroups
            .counters()
            .map(|(label, of)| (label, of.throttled().map(|of| of.periods)))
            .collect();
        assert_eq!(told, [("/pod/app", None), ("/pod", Some(3))]);
    }
}

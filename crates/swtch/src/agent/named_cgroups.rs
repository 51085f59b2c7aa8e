//! Which cgroups have metrics of their own. A label for each cgroup of a machine that has ten thousand
//! would be too much for whoever stores the metrics, so that their number is bounded.
//!
//! ```text
//! cgroups of a frame ─┬─ has a name already ──────────────────────▶ its own sums
//!                     ├─ has none, but there is room ─walk, path──▶ its own sums, from now on
//!                     └─ else ────────────────────────────────────▶ the sums of all others
//! ```
//!
//! A name is kept as long as the cgroup exists and a little longer, so that its last counts are still
//! read. To find a path, all directories of the hierarchy are walked, which takes 50 ms for 10,000:
//! walks take at most a hundredth of the time, but for the first tenth of a second.

use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::CgroupId;
use swtch_report::report::live::{LiveRow, RowKey, RowSums};

use super::host::CgroupCounters;
use super::thread_cpu_time;
use crate::record::facts::{cgroup_paths, nearest_cgroups};

/// Pressure and throttling of each named cgroup are read this often: two files each.
const COUNTERS_EVERY: Duration = Duration::from_secs(5);

/// It is looked this often whether named cgroups still exist.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A cgroup that was removed is shown for this long: scrapers come once a minute or more often.
const SHOWN_FOR: Duration = Duration::from_secs(300);

/// Walks take at most one part in so many of the time.
const WALK_SHARE: u32 = 100;

/// They may be ahead of that by the walks of so much time. Without it, one walk that took 20 ms, or that
/// the hypervisor held up for as long, would leave a cgroup without a name for two readings, and its
/// switches would be summed with those of others.
const WALKS_AHEAD: Duration = Duration::from_secs(10);

/// The cgroups whose switches are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedCgroups {
    /// All.
    All,
    /// Those that were asked for.
    Chosen,
}

/// A cgroup with metrics of its own.
#[derive(Clone, Debug)]
pub struct NamedCgroup {
    /// Its path below the root of the hierarchy; it is not escaped.
    pub path: String,
    /// What was counted since it has the name.
    pub sums: RowSums,
    /// What the kernel counts of it since it was made.
    pub counters: CgroupCounters,
    /// When it was found to be removed.
    removed: Option<Instant>,
}

impl NamedCgroup {
    fn new(path: String) -> Self {
        Self {
            path,
            sums: RowSums::default(),
            counters: CgroupCounters::default(),
            removed: None,
        }
    }
}

/// All of them, and the sums of the others.
#[derive(Debug)]
pub struct NamedCgroups {
    most: usize,
    named: FxHashMap<CgroupId, NamedCgroup>,
    /// Ids without a directory: cgroups that were removed meanwhile, and those of other hierarchies.
    not_found: FxHashSet<CgroupId>,
    /// Sums of the cgroups without a name, and of tasks whose cgroup is not known.
    others: RowSums,
    /// Number of cgroups that were summed under `others` in the last frame.
    others_now: usize,
    /// Walks have used up their share of the time until then.
    walked_until: Instant,
    next_nearest: Instant,
    next_look: Instant,
    next_counters: Instant,
}

impl NamedCgroups {
    /// None has a name yet; at most so many will.
    pub fn new(most: usize) -> Self {
        let now = Instant::now();
        Self {
            most,
            named: FxHashMap::default(),
            not_found: FxHashSet::default(),
            others: RowSums::default(),
            others_now: 0,
            walked_until: now,
            next_nearest: now,
            next_look: now + LOOK_EVERY,
            next_counters: now,
        }
    }

    /// Most cgroups that have a name.
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Those with a name, in the order of names.
    pub fn named(&self) -> impl Iterator<Item = &NamedCgroup> {
        let mut named: Vec<_> = self.named.values().collect();
        named.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        named.into_iter()
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
        self.look_for_removed(now);
        self.name_new(rows, now, cgroup_paths);
        if counted == CountedCgroups::Chosen {
            self.name_nearest(now, self.most / 2);
        }
        self.count(rows);
        self.read_counters(now);
    }

    /// Names cgroups where no switches are counted.
    pub fn add_from_hierarchy(&mut self) {
        let now = Instant::now();
        self.look_for_removed(now);
        self.name_nearest(now, self.most);
        self.read_counters(now);
    }

    /// Names cgroups in which nobody is known to switch, those nearest to the root first, until so many
    /// have a name.
    fn name_nearest(&mut self, now: Instant, most: usize) {
        if self.named.len() >= most || now < self.next_nearest || !self.may_walk(now) {
            return;
        }
        self.next_nearest = now + COUNTERS_EVERY;
        let nearest = self.walk(now, || nearest_cgroups(most));
        for (id, path) in nearest {
            if self.named.len() < most && !self.named.contains_key(&id) {
                self.named.insert(id, NamedCgroup::new(path));
                self.next_counters = now;
            }
        }
    }

    fn read_counters(&mut self, now: Instant) {
        if now >= self.next_counters {
            self.next_counters = now + COUNTERS_EVERY;
            let live = self.named.values_mut().filter(|one| one.removed.is_none());
            live.for_each(|one| one.counters = CgroupCounters::read(&one.path));
        }
    }

    fn count(&mut self, rows: &[LiveRow]) {
        self.others_now = 0;
        for row in rows {
            let RowKey::Cgroup(id) = row.key else {
                continue;
            };
            match id.and_then(|id| self.named.get_mut(&id)) {
                Some(named) => named.sums.add(&row.sums),
                None => {
                    self.others.add(&row.sums);
                    self.others_now += usize::from(id.is_some());
                }
            }
        }
    }

    /// Names those without a name that switched most, as far as there is room.
    fn name_new(&mut self, rows: &[LiveRow], now: Instant, find: FindPaths) {
        let room = self.most.saturating_sub(self.named.len());
        if room == 0 || !self.may_walk(now) {
            return;
        }
        let mut wanted: Vec<(u64, CgroupId)> = rows
            .iter()
            .filter_map(|row| match row.key {
                RowKey::Cgroup(Some(id)) => Some((row.sums.switches(), id)),
                _ => None,
            })
            .filter(|(_, id)| !self.named.contains_key(id) && !self.not_found.contains(id))
            .collect();
        wanted.sort_unstable_by_key(|(switches, id)| (std::cmp::Reverse(*switches), id.get()));
        wanted.truncate(room);
        let wanted: FxHashSet<CgroupId> = wanted.into_iter().map(|(_, id)| id).collect();
        if wanted.is_empty() {
            return;
        }
        for (id, path) in self.walk(now, || find(&wanted)) {
            self.named.insert(id, NamedCgroup::new(path));
            self.next_counters = now;
        }
        let named = &self.named;
        let missing = wanted.iter().filter(|id| !named.contains_key(id));
        self.not_found.extend(missing);
    }

    /// Forgets the names of cgroups that were removed some time ago.
    fn look_for_removed(&mut self, now: Instant) {
        if now < self.next_look || !self.may_walk(now) {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        self.not_found.clear();
        let wanted: FxHashSet<CgroupId> = self.named.keys().copied().collect();
        let there: FxHashSet<CgroupId> = self
            .walk(now, || cgroup_paths(&wanted))
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        self.named.retain(|id, one| {
            one.removed = match there.contains(id) {
                true => None,
                false => one.removed.or(Some(now)),
            };
            one.removed.is_none_or(|since| now - since < SHOWN_FOR)
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

/// Finds the paths of cgroups.
type FindPaths = fn(&FxHashSet<CgroupId>) -> Vec<(CgroupId, String)>;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn rows(ids: std::ops::Range<u64>) -> Vec<LiveRow> {
        let row = |id| {
            let mut sums = RowSums::default();
            sums.sums.switches = id;
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
        let mut cgroups = NamedCgroups::new(100);
        let frame = rows(0..10_000);
        cgroups.name_new(&frame, Instant::now(), paths);
        cgroups.count(&frame);
        let named: u64 = cgroups.named().map(|one| one.sums.switches()).sum();
        assert_eq!(named + cgroups.others().switches(), 9_999 * 5_000);
        // 9,999 was removed before its path was looked for.
        assert_eq!((cgroups.named().count(), cgroups.others_now()), (99, 9_901));
        assert!(cgroups.named().all(|one| one.sums.switches() >= 9_900));
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
        let mut cgroups = NamedCgroups::new(2);
        let now = Instant::now();
        cgroups.name_new(&rows(1..2), now, paths_late);
        cgroups.name_new(&rows(2..3), now + Duration::from_secs(1), paths_late);
        assert_eq!(cgroups.named().count(), 2);
    }

    /// Walks that are always slow have their share of the time, and no more.
    #[test]
    fn slow_walks_have_their_share_of_the_time() {
        static WALKS: AtomicU32 = AtomicU32::new(0);
        fn slow(_: &FxHashSet<CgroupId>) -> Vec<(CgroupId, String)> {
            WALKS.fetch_add(1, Ordering::Relaxed);
            let before = thread_cpu_time();
            while thread_cpu_time().saturating_sub(before) < Duration::from_millis(1) {}
            Vec::new()
        }
        let mut cgroups = NamedCgroups::new(1_000);
        let start = Instant::now();
        for id in 0..1_000 {
            let now = start + Duration::from_millis(20 * id);
            cgroups.name_new(&rows(id..id + 1), now, slow);
        }
        // In 20 seconds 200 of a millisecond, and the 100 that they may be ahead. Fewer where something
        // made them longer.
        let walks = WALKS.load(Ordering::Relaxed);
        assert!((150..=302).contains(&walks), "{walks}");
    }

    /// Series must go on under the same name when others become busier.
    #[test]
    fn a_name_is_kept_when_others_switch_more() {
        let mut cgroups = NamedCgroups::new(2);
        cgroups.name_new(&rows(1..3), Instant::now(), paths);
        cgroups.name_new(&rows(1..50), Instant::now(), paths);
        let mut names: Vec<_> = cgroups.named().map(|one| one.path.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["/1", "/2"]);
    }
}

//! The machine's own counters beside a cause: how busy its disks were, and which limit of memory was reached.

use std::cmp::Reverse;

use swtch_core::{Nanos, Reason, cgroup_words};
use swtch_output::sheet::percent;
use swtch_output::text::{counted, escaped};

use super::{MOST_PCT, VerdictInput, share};

/// A thread that waits so many times as long as a request to the disk takes, while the disk mostly has none, waits for
/// something else.
const TIMES_AS_LONG: u64 = 3;

impl VerdictInput<'_> {
    /// The disk that was busy longest, beside waits for this reason: `the machine's disk vda was busy for 96.0 % of the
    /// time: 12,345 requests, 152 µs each (mean), whoever asked`.
    pub(super) fn busiest_disk(&self, reason: Reason) -> Option<String> {
        let known = self.disks.iter();
        let known = known.filter_map(|disk| Some((disk.name.as_str(), disk.meanwhile()?)));
        let (name, counts) = known.max_by_key(|(name, counts)| (counts.busy_ns, Reverse(*name)))?;
        let mean = counts.taken_ns.checked_div(counts.requests)?;
        let busy_ns = counts.busy_ns.min(self.wall.as_ns());
        let tally = self.of_programs(reason);
        let waited = tally.blocked.as_ns().checked_div(tally.waits).unwrap_or(0);
        let busy_pct = percent(busy_ns, self.wall.as_ns()).unwrap_or(100.0);
        let is_idle = busy_pct < MOST_PCT && waited > mean.saturating_mul(TIMES_AS_LONG);
        let held_back = if is_idle {
            format!(
                "; the waits took {} (mean), so something else held them back: a limit of I/O (io.max, blkio.throttle), \
                 or the file system",
                Nanos::from_ns(waited)
            )
        } else {
            String::new()
        };
        Some(format!(
            "the machine's disk {} was busy for {} of the time: {}, {} each (mean), whoever asked{held_back}",
            escaped(name),
            share(busy_ns, self.wall.as_ns()),
            counted(counts.requests, "request"),
            Nanos::from_ns(mean),
        ))
    }

    /// The limit of memory that was reached most often, of those of the cgroups of this recording and of all above them,
    /// if there is one. Cgroups of memory may be others (v1), so that it is not known whether it is the program's.
    pub(super) fn memory_limit(&self) -> Option<String> {
        let reached = self.memory_limits.iter();
        let reached = reached.filter_map(|limit| Some((limit.reached()?, limit)));
        let (count, limit) = reached.max_by_key(|(count, limit)| {
            (
                self.is_recorded(&limit.cgroup),
                *count,
                Reverse(&limit.cgroup),
            )
        })?;
        Some(format!(
            "meanwhile cgroup {} reached its limit of memory, {} MB, {}",
            escaped(&cgroup_words(&limit.cgroup)),
            limit.bytes >> 20,
            counted(count, "time"),
        ))
    }

    /// Returns true if a cgroup of this recording is the one at this path, or below it.
    fn is_recorded(&self, cgroup: &str) -> bool {
        self.cgroups
            .values()
            .any(|path| is_at_or_below(path, cgroup))
    }
}

/// Returns true if the cgroup at `path` is the one at `above`, or below it.
pub(super) fn is_at_or_below(path: &str, above: &str) -> bool {
    let below = path.strip_prefix(above.trim_end_matches('/'));
    below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

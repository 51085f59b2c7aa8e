//! Detects whether others took CPU time during a play, from counters read before and after it.
//!
//! ```text
//! all CPUs (/proc/stat) − ourselves and our children (getrusage) = others
//! ```
//!
//! The kernel counts busy time in hundredths of a second, so a disturbance of a short play must be
//! larger before it shows.

use std::fs;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};

/// `/proc/stat` counts in hundredths of a second whatever the tick (`USER_HZ`).
const USER_HZ: f64 = 100.0;

/// CPU time that others may take, as a share of one CPU, before a play counts as disturbed.
const SHARE: f64 = 0.03;

/// Rounding error of the counters in seconds: one unit for each of the columns that are added.
const ROUNDING_S: f64 = 0.03;

/// Counters at one moment, or their growth between two. `None` where this kernel does not say.
#[derive(Clone, Debug)]
pub struct DisturbanceCounters {
    at: Instant,
    elapsed_s: f64,
    /// Seconds in which tasks ran, on all CPUs.
    busy_s: Option<f64>,
    /// Seconds in which the hypervisor ran others, on all CPUs.
    steal_s: Option<f64>,
    /// CPU seconds of this process and of its children that were waited for.
    own_s: Option<f64>,
    /// Periods in which a quota of our cgroup, or of one above it, was used up.
    throttled: Option<u64>,
}

impl DisturbanceCounters {
    pub fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            at: Instant::now(),
            elapsed_s: 0.0,
            busy_s: columns(&stat, &[0, 1, 2]),
            steal_s: columns(&stat, &[7]),
            own_s: own(),
            throttled: swtch_host::throttled_periods(),
        }
    }

    /// Growth of the counters since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let grown = |now: Option<f64>, then: Option<f64>| Some(now? - then?);
        Self {
            at: self.at,
            elapsed_s: (self.at - before.at).as_secs_f64(),
            busy_s: grown(self.busy_s, before.busy_s),
            steal_s: grown(self.steal_s, before.steal_s),
            own_s: grown(self.own_s, before.own_s),
            throttled: self
                .throttled
                .zip(before.throttled)
                .map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// What disturbed the play, in words; `None` when nothing did.
    pub fn disturbance(&self) -> Option<String> {
        let percent = |seconds: f64| 100.0 * seconds / self.elapsed_s;
        let is_much = |seconds: &f64| *seconds > SHARE * self.elapsed_s + ROUNDING_S;
        let others = self.busy_s.zip(self.own_s).map(|(busy, own)| busy - own);
        let others = others.filter(is_much);
        let others = others.map(|s| format!("others took {:.0} % of a CPU", percent(s)));
        let steal = self.steal_s.filter(is_much);
        let steal = steal.map(|s| format!("the hypervisor took {:.0} % of a CPU", percent(s)));
        let throttled = self.throttled.filter(|periods| *periods > 0);
        let throttled =
            throttled.map(|periods| format!("a quota was used up in {periods} periods"));
        let all: Vec<_> = [others, steal, throttled].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// Columns of the line of all CPUs (`proc_stat(5)`), in seconds.
fn columns(stat: &str, places: &[usize]) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<f64> = line
        .split_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    let chosen = places.iter().map(|place| numbers.get(*place).copied());
    chosen.sum::<Option<f64>>().map(|ticks| ticks / USER_HZ)
}

fn own() -> Option<f64> {
    let of = |who| {
        let usage = getrusage(who).ok()?;
        let seconds = |time: TimeVal| time.num_microseconds() as f64 / 1e6;
        Some(seconds(usage.user_time()) + seconds(usage.system_time()))
    };
    Some(of(UsageWho::RUSAGE_SELF)? + of(UsageWho::RUSAGE_CHILDREN)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown(busy_s: f64, own_s: f64) -> DisturbanceCounters {
        DisturbanceCounters {
            at: Instant::now(),
            elapsed_s: 2.0,
            busy_s: Some(busy_s),
            steal_s: Some(0.0),
            own_s: Some(own_s),
            throttled: None,
        }
    }

    #[test]
    fn columns_are_added() {
        let stat = "cpu  100 20 3 4 5 6 7 250 0 0\ncpu0 1 1 1 1 1 1 1 9 0 0\n";
        assert_eq!(columns(stat, &[0, 1, 2]), Some(1.23));
        assert_eq!(columns(stat, &[7]), Some(2.5));
        assert_eq!(columns("nothing", &[0]), None);
    }

    #[test]
    fn our_own_children_disturb_nobody() {
        assert_eq!(grown(3.9, 3.88).disturbance(), None);
        let others = grown(3.9, 2.0).disturbance();
        assert_eq!(others.as_deref(), Some("others took 95 % of a CPU"));
    }
}

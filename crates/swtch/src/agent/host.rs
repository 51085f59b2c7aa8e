//! What the kernel counts of the whole machine and of a cgroup anyway: switches, time stolen by the
//! hypervisor, pressure (PSI), throttling. A file that is not there, as PSI where it is switched off,
//! gives no metric.
//!
//! Sources: `proc(5)`, `Documentation/accounting/psi.rst`, `Documentation/admin-guide/cgroup-v2.rst`
//! (v6.18).

use std::fs;

use swtch_core::Nanos;
use swtch_host::{pressure_total, steal};

use crate::record::facts::cgroup_root;
use crate::top::cgroups;

/// Counters of the whole machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostCounters {
    /// Context switches since boot, with those to and from idle.
    pub ctxt: Option<u64>,
    /// Time for which a hypervisor ran others, of all CPUs, in seconds.
    pub steal_s: Option<f64>,
    /// Number of CPUs that are online.
    pub cpus: u64,
    /// Threads that run or could.
    pub running: Option<u64>,
    /// Time under pressure, by resource.
    pub pressure: Vec<Pressure>,
}

/// Time in which tasks waited for a resource, since boot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// `cpu`, `io`, `memory` or `irq`.
    pub resource: &'static str,
    /// `some`: at least one task waited; `full`: all did.
    pub kind: &'static str,
    /// In seconds.
    pub total_s: f64,
}

/// What `cpu.stat` and `cpu.pressure` say of a cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupCounters {
    /// Periods in which the quota was used up.
    pub throttled_periods: Option<u64>,
    /// Time for which CPUs were stopped by the quota, in seconds.
    pub throttled_s: Option<f64>,
    /// Time in which tasks of it waited for a CPU.
    pub pressure: Vec<Pressure>,
}

impl HostCounters {
    /// Reads them.
    pub fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            pressure: ["cpu", "io", "memory", "irq"]
                .into_iter()
                .flat_map(|resource| {
                    let path = format!("/proc/pressure/{resource}");
                    pressure(resource, &fs::read_to_string(path).unwrap_or_default())
                })
                .collect(),
            ..Self::of_stat(&stat)
        }
    }

    fn of_stat(stat: &str) -> Self {
        let number = |name: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        // An offline CPU has no line.
        let is_cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
        Self {
            ctxt: number("ctxt "),
            steal_s: steal(stat).map(seconds),
            cpus: u64::try_from(stat.lines().filter(is_cpu).count()).unwrap_or(u64::MAX),
            running: number("procs_running "),
            pressure: Vec::new(),
        }
    }
}

impl CgroupCounters {
    /// Reads those of the cgroup at this path below the root of the hierarchy.
    pub fn read(path: &str) -> Self {
        let Some(root) = cgroup_root() else {
            return Self::default();
        };
        let directory = root.join(path.trim_start_matches('/'));
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
        Self {
            pressure: pressure("cpu", &read("cpu.pressure")),
            ..Self::of_stat(&read("cpu.stat"))
        }
    }

    fn of_stat(stat: &str) -> Self {
        let throttling = cgroups::throttling(stat);
        Self {
            throttled_periods: throttling.map(|of| of.times),
            throttled_s: throttling.map(|of| seconds(Nanos::from_ns(of.time_ns))),
            pressure: Vec::new(),
        }
    }
}

/// The totals of a file of PSI.
fn pressure(resource: &'static str, text: &str) -> Vec<Pressure> {
    let of_kind = |kind| {
        Some(Pressure {
            resource,
            kind,
            total_s: seconds(pressure_total(text, kind)?),
        })
    };
    ["some", "full"].into_iter().filter_map(of_kind).collect()
}

fn seconds(time: Nanos) -> f64 {
    time.as_ns() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_machine_are_found_in_proc_stat() {
        let stat = "cpu  10 0 20 900 5 0 1 250 0 0\ncpu0 5 0 10 450 2 0 0 120 0 0\n\
                    cpu1 5 0 10 450 3 0 1 130 0 0\nintr 5 1\nctxt 987654\nprocs_running 3\n";
        let found = HostCounters::of_stat(stat);
        assert_eq!((found.ctxt, found.steal_s), (Some(987_654), Some(2.5)));
        assert_eq!((found.cpus, found.running), (2, Some(3)));
        assert_eq!(HostCounters::of_stat("").steal_s, None);
    }

    #[test]
    fn pressure_is_in_seconds_and_has_a_line_for_each_kind() {
        let text = "some avg10=1.00 avg60=0.50 avg300=0.10 total=2500000\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n";
        let found = pressure("cpu", text);
        let found: Vec<_> = found.iter().map(|one| (one.kind, one.total_s)).collect();
        assert_eq!(found, [("some", 2.5), ("full", 1.0)]);
        assert_eq!(pressure("cpu", "some total=x"), []);
    }

    #[test]
    fn throttling_of_both_versions_is_in_seconds() {
        let v2 = "usage_usec 9\nnr_throttled 3\nthrottled_usec 1500000\n";
        let v1 = "nr_periods 7\nnr_throttled 3\nthrottled_time 1500000000\n";
        for stat in [v2, v1] {
            let found = CgroupCounters::of_stat(stat);
            assert_eq!(
                (found.throttled_periods, found.throttled_s),
                (Some(3), Some(1.5))
            );
        }
        assert_eq!(CgroupCounters::of_stat("usage_usec 9\n").throttled_s, None);
    }
}

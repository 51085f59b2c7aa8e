//! Reads what the kernel counts of the whole machine and of a cgroup anyway: switches, time stolen by the hypervisor,
//! pressure (PSI), throttling. A file that is not there, as PSI where it is switched off, gives no metric.
//!
//! Sources: `proc(5)`, `Documentation/accounting/psi.rst`, `Documentation/admin-guide/cgroup-v2.rst`
//! (v6.18).

use std::fs;

use swtch_core::{CgroupId, Nanos};
use swtch_host::hierarchy::{CgroupTree, CpuQuota, Throttling};
use swtch_host::{pressure_total, steal};

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

/// The figures of `cpu.stat` and `cpu.pressure` of the cgroups that had one path, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupCounters {
    /// Its quota, if it has one.
    pub quota: Option<CpuQuota>,
    /// The cgroup that has the path, as of the last reading, and what that said.
    last: Option<(CgroupId, CgroupReading)>,
    /// The counts of those before it, which are removed.
    before: CgroupReading,
}

/// One reading of the files of one cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
struct CgroupReading {
    throttled: Option<Throttling>,
    pressure: Vec<Pressure>,
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
    /// Reads those of the cgroup at this path. What is known stays if there is none; returns whether
    /// there is one.
    pub fn read(&mut self, tree: &CgroupTree, path: &str) -> bool {
        let directory = tree.directory(path);
        let id = tree.id_of(path);
        let pressure_text = fs::read_to_string(directory.join("cpu.pressure"));
        let reading = CgroupReading {
            throttled: Throttling::of(&directory),
            pressure: pressure("cpu", &pressure_text.unwrap_or_default()),
        };
        let quota = CpuQuota::of(&directory);
        match id {
            // It was neither removed nor made meanwhile.
            Some(id) if tree.id_of(path) == Some(id) => {
                self.take(id, reading);
                self.quota = quota;
            }
            _ => {}
        }
        id.is_some()
    }

    fn take(&mut self, id: CgroupId, reading: CgroupReading) {
        if let Some((last_id, last)) = self.last.replace((id, reading))
            && last_id != id
        {
            self.before = self.before.plus(&last);
        }
    }

    /// The cgroup that has the path, as of the last reading.
    pub fn id(&self) -> Option<CgroupId> {
        self.last.as_ref().map(|(id, _)| *id)
    }

    /// Periods in which the quota was used up, and for how long CPUs were stopped by it.
    pub fn throttled(&self) -> Option<Throttling> {
        self.all().throttled
    }

    /// Time in which tasks of it waited for a CPU.
    pub fn pressure(&self) -> Vec<Pressure> {
        self.all().pressure
    }

    fn all(&self) -> CgroupReading {
        match &self.last {
            Some((_, last)) => self.before.plus(last),
            None => self.before.clone(),
        }
    }
}

impl CgroupReading {
    fn plus(&self, other: &Self) -> Self {
        let throttled = match (self.throttled, other.throttled) {
            (Some(one), Some(more)) => Some(one.plus(more)),
            (one, more) => one.or(more),
        };
        let mut pressure = self.pressure.clone();
        for more in &other.pressure {
            match pressure.iter_mut().find(|one| one.kind == more.kind) {
                Some(one) => one.total_s += more.total_s,
                None => pressure.push(*more),
            }
        }
        Self {
            throttled,
            pressure,
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

    /// A service that is started again has a new cgroup under its old path, whose counters begin at 0.
    #[test]
    fn counters_of_a_path_never_go_back() {
        let root = tempfile::tempdir().unwrap();
        let tree = CgroupTree::at(root.path().to_owned());
        let make = |name: &str, periods| {
            let directory = root.path().join(name);
            fs::create_dir(&directory).unwrap();
            let stat = format!("nr_throttled {periods}\nthrottled_usec {periods}000000\n");
            fs::write(directory.join("cpu.stat"), stat).unwrap();
            let psi = format!("some total={periods}000000\n");
            fs::write(directory.join("cpu.pressure"), psi).unwrap();
        };
        let mut counters = CgroupCounters::default();
        let mut read = || {
            let is_there = counters.read(&tree, "/service");
            let throttled = counters.throttled().map(|of| of.periods);
            (is_there, throttled, counters.pressure().first().copied())
        };
        let psi = |total_s| {
            Some(Pressure {
                resource: "cpu",
                kind: "some",
                total_s,
            })
        };
        assert_eq!(read(), (false, None, None));
        make("service", 7);
        assert_eq!(read(), (true, Some(7), psi(7.0)));
        make("next", 2);
        fs::rename(root.path().join("service"), root.path().join("old")).unwrap();
        assert_eq!(read(), (false, Some(7), psi(7.0)));
        fs::rename(root.path().join("next"), root.path().join("service")).unwrap();
        assert_eq!(read(), (true, Some(9), psi(9.0)));
        assert_eq!(read(), (true, Some(9), psi(9.0)));
    }
}

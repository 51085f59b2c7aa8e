//! Load of the host and our share of it: memory, load average, pressure stalls, cgroup, quota,
//! container.
//!
//! Sources: `proc(5)`, `Documentation/accounting/psi.rst`,
//! `Documentation/admin-guide/cgroup-v2.rst`, `Documentation/scheduler/sched-bwc.rst` (v6.18).

use std::fs;

use swtch_capture::probe::{Cgroups, CpuController};
use swtch_core::{CgroupOwner, Nanos};

use super::cgroup::group_in;
use super::hierarchy::{CgroupTree, QuotaHolder, Throttling, limiting};
use super::{Fact, SourcedValue, read};

const OWN_CGROUP: &str = "/proc/self/cgroup";
const OWN_STATUS: &str = "/proc/self/status";

pub(super) fn facts(cgroups: Option<&Cgroups>) -> Vec<Fact> {
    vec![
        SourcedValue::in_file(OWN_STATUS, own_cpus).named(
            "own_cpus",
            "CPUs this process may use; a command started from it inherits them",
        ),
        SourcedValue::in_file("/proc/meminfo", memory).named(
            "memory",
            "reclaim makes tasks wait in the kernel (reason fault)",
        ),
        SourcedValue::in_file("/proc/uptime", uptime)
            .named("uptime", "counters since boot cover this time"),
        SourcedValue::in_file("/proc/loadavg", load).named(
            "load",
            "others who want the CPUs: they cause preemptions of yours",
        ),
        SourcedValue::in_file("/proc/pressure/cpu", pressure).named(
            "pressure_cpu",
            "share of time in which some task waited for a CPU",
        ),
        SourcedValue::in_file("/proc/pressure/io", pressure).named(
            "pressure_io",
            "share of time in which some task waited for I/O",
        ),
        SourcedValue::in_file("/proc/pressure/memory", pressure).named(
            "pressure_memory",
            "share of time in which some task waited for memory",
        ),
        hierarchy(cgroups).named("cgroup_version", "where quotas are set and read"),
        SourcedValue::in_file(OWN_CGROUP, |text| Some(own_groups(text)))
            .named("own_cgroup", "the group whose quota and weight apply to us"),
        own_quota(cgroups).named(
            "cpu_quota",
            "what is used up leads to switches by reason throttle",
        ),
        container().named(
            "container",
            "inside, the host's other tasks take the CPU unseen by name",
        ),
    ]
}

fn own_cpus(status: &str) -> Option<String> {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "one digit after the point is shown"
)]
fn memory(meminfo: &str) -> Option<String> {
    let kib = |name: &str| -> Option<u64> {
        let line = meminfo
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let gib = |kib: u64| kib as f64 / f64::from(1 << 20);
    let (total, available) = (kib("MemTotal")?, kib("MemAvailable")?);
    Some(format!(
        "{:.1} GiB, {:.1} GiB available",
        gib(total),
        gib(available)
    ))
}

fn uptime(text: &str) -> Option<String> {
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(format!("{seconds:.0} s"))
}

fn load(loadavg: &str) -> Option<String> {
    let fields: Vec<_> = loadavg.split_whitespace().collect();
    let [one, five, fifteen, tasks, ..] = fields.as_slice() else {
        return None;
    };
    let (running, all) = tasks.split_once('/')?;
    Some(format!(
        "{one} {five} {fifteen} (1, 5, 15 min), {running} of {all} threads runnable now"
    ))
}

/// Sums of the machine's load since its boot; what the kernel does not keep is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadSums {
    /// Time in which some task waited for a CPU.
    pub cpu_pressure: Option<Nanos>,
    /// CPU time of all CPUs that the hypervisor gave to others.
    pub steal: Option<Nanos>,
    /// CPU time of all CPUs in which they ran tasks or interrupts of this machine.
    pub busy: Option<Nanos>,
}

impl LoadSums {
    /// The sums until now.
    pub fn read() -> Self {
        let stat = read("/proc/stat").ok();
        Self {
            cpu_pressure: read("/proc/pressure/cpu")
                .ok()
                .and_then(|text| pressure_total(&text, "some")),
            steal: stat.as_deref().and_then(steal),
            busy: stat.as_deref().and_then(busy),
        }
    }
}

/// The sum of the line `some` or `full` of a file of PSI, which is in µs
/// (`Documentation/accounting/psi.rst`).
pub fn pressure_total(text: &str, kind: &str) -> Option<Nanos> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
    let mut fields = line.split_whitespace();
    let total: u64 = fields
        .find_map(|field| field.strip_prefix("total="))?
        .parse()
        .ok()?;
    Some(Nanos::from_ns(total.checked_mul(1_000)?))
}

/// CPU time of all CPUs that the hypervisor gave to others, in the text of `/proc/stat`: the eighth
/// number of all CPUs together, in ticks of 10 ms.
pub fn steal(stat: &str) -> Option<Nanos> {
    of_ticks(*ticks_of_all(stat)?.get(7)?)
}

/// CPU time of all CPUs that was neither idle (the fourth and fifth number, with and without I/O) nor given
/// to others. The times of guests are in those of users already (`proc_stat(5)`).
pub fn busy(stat: &str) -> Option<Nanos> {
    let ticks = ticks_of_all(stat)?;
    let is_busy = |place: &usize| ![3, 4, 7].contains(place);
    let busy = (0..8).filter(is_busy).filter_map(|place| ticks.get(place));
    of_ticks(busy.sum())
}

/// The numbers of all CPUs together.
fn ticks_of_all(stat: &str) -> Option<Vec<u64>> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks = all.split_whitespace().map(str::parse);
    ticks.collect::<Result<_, _>>().ok()
}

fn of_ticks(ticks: u64) -> Option<Nanos> {
    Some(Nanos::from_ns(ticks.checked_mul(1_000_000_000 / USER_HZ)?))
}

/// Ticks of `/proc/stat` in a second, on every architecture that swtch knows.
const USER_HZ: u64 = 100;

/// The averages of the `some` line over 10 s, 60 s and 300 s, in percent.
fn pressure(text: &str) -> Option<String> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let average = |name: &str| {
        some.split_whitespace()
            .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    };
    let (short, middle, long) = (average("avg10")?, average("avg60")?, average("avg300")?);
    Some(format!("{short} {middle} {long} % (10, 60, 300 s)"))
}

fn hierarchy(cgroups: Option<&Cgroups>) -> SourcedValue {
    const MOUNTS: &str = "/proc/self/mounts";
    let Some(cgroups) = cgroups else {
        return SourcedValue::unknown("the mounts cannot be read", MOUNTS);
    };
    let version = match (&cgroups.v2, cgroups.v1.is_empty()) {
        (Some(_), true) => "v2",
        (Some(_), false) => "v1 and v2",
        (None, false) => "v1",
        (None, true) => "none mounted",
    };
    let cpu = match &cgroups.cpu {
        CpuController::Absent => "no cpu controller: no quotas".to_owned(),
        CpuController::V1(at) => format!("cpu controller in v1 at {}", at.display()),
        CpuController::V2(at) => format!("cpu controller in v2 at {}", at.display()),
    };
    SourcedValue::known(format!("{version}; {cpu}"), MOUNTS)
}

/// The paths of our cgroups in all hierarchies, each path once.
fn own_groups(text: &str) -> String {
    let mut groups: Vec<_> = text
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups.join(" ")
}

/// The tightest quota of our cgroup and all above it.
fn own_quota(cgroups: Option<&Cgroups>) -> SourcedValue {
    let Ok(own) = read(OWN_CGROUP) else {
        return SourcedValue::unknown("our cgroup cannot be read", OWN_CGROUP);
    };
    let (mount, group) = match cgroups.map(|cgroups| &cgroups.cpu) {
        None => return SourcedValue::unknown("the mounts cannot be read", "/proc/self/mounts"),
        Some(CpuController::Absent) => {
            return SourcedValue::known("none: no cpu controller is mounted", "/proc/self/mounts");
        }
        Some(CpuController::V1(mount)) => (mount, group_in(&own, Some("cpu"))),
        Some(CpuController::V2(mount)) => (mount, group_in(&own, None)),
    };
    let Some(group) = group else {
        return SourcedValue::unknown(
            "the hierarchy of the cpu controller is not listed",
            OWN_CGROUP,
        );
    };
    let tree = CgroupTree::at(mount.clone());
    let holders = tree.quotas_of(group);
    match limiting(&holders, |_| Throttling::default()) {
        Some(QuotaHolder { path, quota }) => SourcedValue::known(
            format!("{:.2} CPUs ({quota})", quota.cpus()),
            tree.directory(path).display().to_string(),
        ),
        None => SourcedValue::known("none", format!("{}{group} and above", mount.display())),
    }
}

fn container() -> SourcedValue {
    let marker = ["/.dockerenv", "/run/.containerenv"]
        .into_iter()
        .find(|path| fs::exists(path).unwrap_or(false));
    if let Some(marker) = marker {
        return SourcedValue::known("yes", marker);
    }
    if let Ok(kind) = read("/run/systemd/container") {
        return SourcedValue::known(kind, "/run/systemd/container");
    }
    SourcedValue::in_file(OWN_CGROUP, |text| {
        Some(container_of(text).unwrap_or_else(|| "none seen".to_owned()))
    })
}

/// The container that we are in, by the paths of our cgroups.
fn container_of(own_cgroups: &str) -> Option<String> {
    let mut paths = own_cgroups
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2));
    paths.find_map(|path| CgroupOwner::of(path).short())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FactValue;

    const HYBRID: &str =
        "9:name=systemd:/user.slice\n3:cpu,cpuacct:/docker/4af1\n0::/user.slice/a\n";

    #[test]
    fn our_groups_are_listed_each_once() {
        assert_eq!(own_groups(HYBRID), "/docker/4af1 /user.slice /user.slice/a");
    }

    #[test]
    fn sums_of_load_are_in_ns() {
        let psi =
            "some avg10=1.50 avg60=0.00 avg300=0.00 total=5826281605\nfull avg10=0.00 total=7\n";
        assert_eq!(
            pressure_total(psi, "some"),
            Some(Nanos::from_ns(5_826_281_605_000))
        );
        assert_eq!(pressure_total("full avg10=0.00 total=7\n", "some"), None);
        let stat = "cpu  1 2 3 4 5 6 7 2058 0 0\ncpu0 1 2 3 4 5 6 7 1029 0 0\n";
        assert_eq!(steal(stat), Some(Nanos::from_ns(20_580_000_000)));
        assert_eq!(steal("cpu  1 2 3\n"), None);
    }

    #[test]
    fn pressure_shows_the_three_averages_of_some() {
        let psi = "some avg10=0.18 avg60=0.32 avg300=0.43 total=15474219\n\
                   full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(
            pressure(psi),
            Some("0.18 0.32 0.43 % (10, 60, 300 s)".into())
        );
        assert_eq!(pressure("full avg10=0\n"), None);
    }

    #[test]
    fn load_and_memory_are_read_from_their_own_words() {
        let shown = load("0.52 0.58 0.59 3/869 11206").unwrap();
        assert_eq!(
            shown,
            "0.52 0.58 0.59 (1, 5, 15 min), 3 of 869 threads runnable now"
        );
        let meminfo = "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n";
        assert_eq!(memory(meminfo), Some("16.0 GiB, 8.0 GiB available".into()));
        assert_eq!(memory("MemFree: 1 kB\n"), None);
        assert_eq!(load("0.5 0.5"), None);
    }

    #[test]
    fn containers_are_told_by_the_groups_their_engines_make() {
        let id = "3f2a9c1b7d5e4c0a8b6f1e2d3c4b5a69788796a5b4c3d2e1f00112233445566b";
        assert_eq!(
            container_of(&format!("1:cpu:/\n0::/system.slice/docker-{id}.scope/a:b")).as_deref(),
            Some("docker:3f2a9c1b7d5e/a:b")
        );
        assert_eq!(container_of("0::/system.slice/ssh.service"), None);
    }

    #[test]
    fn a_host_without_the_cpu_controller_has_no_quotas() {
        let cgroups = Cgroups {
            v2: Some("/sys/fs/cgroup".into()),
            ..Cgroups::default()
        };
        let expected = "v2; no cpu controller: no quotas";
        assert_eq!(
            hierarchy(Some(&cgroups)).value,
            FactValue::Known(expected.into())
        );
        assert!(matches!(hierarchy(None).value, FactValue::Unknown(_)));
    }
}

//! Reads what disks did, and how often the memory that cgroups may use was used up: sums that the kernel keeps, of
//! which a recording tells the difference.
//!
//! Sources: `Documentation/admin-guide/iostats.rst`, `Documentation/admin-guide/cgroup-v2.rst` (`memory.events`),
//! `Documentation/admin-guide/cgroup-v1/memory.rst` (`memory.failcnt`), v6.18.

use std::fs;
use std::path::Path;

use swtch_capture::probe;
use swtch_core::Nanos;

use super::hierarchy::CgroupTree;
use super::read;

/// On a machine with more cgroups none of them is told.
const MOST_CGROUPS: usize = 1_000;

/// The limit that v1 shows where there is none: the largest number of pages (`PAGE_COUNTER_MAX`, `mm/page_counter.c`);
/// for any size of a page it is above this.
const NO_LIMIT: u64 = 1 << 62;

/// The requests that a disk has completed since the machine was started, and their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSums {
    /// Its name, as below `/dev`.
    pub name: String,
    /// Number of requests that it has completed: reads, writes, discards and flushes.
    pub requests: u64,
    /// The time that these took, added up.
    pub taken: Nanos,
    /// The time for which it had at least one of them.
    pub busy: Nanos,
}

impl DiskSums {
    /// The sums of all disks that ever had a request, without their partitions.
    pub fn read() -> Vec<Self> {
        let is_disk = |disk: &Self| Path::new("/sys/block").join(&disk.name).exists();
        let disks = read("/proc/diskstats").unwrap_or_default();
        disks
            .lines()
            .filter_map(Self::of_line)
            .filter(|disk| disk.requests > 0 && is_disk(disk))
            .collect()
    }

    /// `254 0 vda 100 0 800 50 …`: after the name reads, writes, what is under way, and then discards and flushes.
    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(2);
        let name = words.next()?.replace('!', "/");
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let number = |place: usize| numbers.get(place).copied().unwrap_or(0);
        let from_ms = |ms: u64| Nanos::from_ns(ms.saturating_mul(1_000_000));
        (numbers.len() > 9).then(|| Self {
            name,
            requests: number(0) + number(4) + number(11) + number(15),
            taken: from_ms(number(3) + number(7) + number(14) + number(16)),
            busy: from_ms(number(9)),
        })
    }
}

/// The memory that a cgroup may use, and how often it was used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Path of the cgroup in the hierarchy with the memory controller; it is not escaped.
    pub cgroup: String,
    /// The memory that it may use.
    pub bytes: u64,
    /// The number of times that somebody wanted more since the cgroup was made.
    pub reached: u64,
}

impl MemoryLimit {
    /// The limits of all cgroups that have one.
    pub fn read() -> Vec<Self> {
        let Ok(cgroups) = probe::cgroups() else {
            return Vec::new();
        };
        let v1 = cgroups.v1.into_iter();
        let mut v1 = v1.filter(|(_, controllers)| controllers.iter().any(|name| name == "memory"));
        let root = v1.next().map(|(root, _)| root).or(cgroups.v2);
        root.map(|root| Self::below(&CgroupTree::at(root)))
            .unwrap_or_default()
    }

    fn below(tree: &CgroupTree) -> Vec<Self> {
        let cgroups = tree.nearest(MOST_CGROUPS + 1);
        if cgroups.len() > MOST_CGROUPS {
            return Vec::new();
        }
        let limits = cgroups.into_iter().filter_map(|(_, cgroup)| {
            let (bytes, reached) = limit_in(&tree.directory(&cgroup))?;
            Some(Self {
                cgroup,
                bytes,
                reached,
            })
        });
        limits.collect()
    }
}

/// The limit of a cgroup, and how often it was reached, by the files of v2 or v1; `None` where it has none.
fn limit_in(directory: &Path) -> Option<(u64, u64)> {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let number = |text: String| text.trim().parse::<u64>().ok();
    if let Some(events) = read("memory.events") {
        let limits = ["memory.high", "memory.max"];
        let limits = limits.into_iter().filter_map(read).filter_map(number);
        let count = |line: &str| match line.split_once(' ')? {
            ("high" | "max", count) => count.trim().parse::<u64>().ok(),
            _ => None,
        };
        return Some((limits.min()?, events.lines().filter_map(count).sum()));
    }
    let bytes = read("memory.limit_in_bytes").and_then(number);
    let bytes = bytes.filter(|bytes| *bytes < NO_LIMIT)?;
    Some((bytes, read("memory.failcnt").and_then(number)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_told_by_its_requests_with_flushes_or_without() {
        let now = "254 0 vda 100 7 800 50 20 3 160 30 0 70 80 4 0 32 5 6 15";
        let disk = DiskSums::of_line(now).unwrap();
        let ms = |disk: &DiskSums| {
            (
                disk.taken.as_ns() / 1_000_000,
                disk.busy.as_ns() / 1_000_000,
            )
        };
        assert_eq!((disk.name.as_str(), disk.requests), ("vda", 130));
        assert_eq!(ms(&disk), (100, 70));
        let old = DiskSums::of_line("8 0 cciss!c0d0 100 7 800 50 20 3 160 30 0 70 80").unwrap();
        assert_eq!(
            (old.name.as_str(), old.requests, ms(&old)),
            ("cciss/c0d0", 120, (80, 70))
        );
        assert_eq!(DiskSums::of_line("8 1 sda1 1 2"), None);
    }

    /// The root has no limit in either version.
    #[test]
    fn limits_of_both_versions_are_read() {
        let root = tempfile::tempdir().unwrap();
        let told = |name: &str, files: &[(&str, &str)]| {
            fs::create_dir(root.path().join(name)).unwrap();
            for (file, text) in files {
                fs::write(root.path().join(name).join(file), text).unwrap();
            }
            limit_in(&root.path().join(name))
        };
        let events = ("memory.events", "low 0\nhigh 30\nmax 4\noom 0\n");
        let high = [("memory.high", "4096\n"), ("memory.max", "max\n"), events];
        assert_eq!(told("high", &high), Some((4096, 34)));
        assert_eq!(told("free", &[("memory.max", "max\n"), events]), None);
        let v1 = |limit| [("memory.limit_in_bytes", limit), ("memory.failcnt", "9\n")];
        assert_eq!(told("v1", &v1("33554432\n")), Some((33_554_432, 9)));
        assert_eq!(told("v1-free", &v1("9223372036854771712\n")), None);
        let all = MemoryLimit::below(&CgroupTree::at(root.path().to_owned()));
        assert_eq!(all.len(), 2, "{all:?}");
    }
}

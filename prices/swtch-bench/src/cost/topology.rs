//! Reads how CPUs are related to one another, as the kernel reports it (`Documentation/admin-guide/cputopology.rst`,
//! v6.18). A hypervisor may hide the real topology.

use std::fs;

use swtch_core::cost::Place;

use crate::cpu;
use crate::error::Error;
use crate::process::ForkedChild;

/// Another CPU, by its relation to the home CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The relation to the home CPU.
    pub place: Place,
    /// The first such CPU, or the reason why there is none.
    pub cpu: Result<u32, String>,
}

/// The first CPU in each relation to `home`. [`Place::SameCpu`] and [`Place::Free`] are left out,
/// since they need no other CPU.
///
/// # Errors
///
/// The kernel does not report which CPUs this process may use.
pub fn neighbours(home: u32) -> Result<Vec<Neighbour>, Error> {
    let others: Vec<u32> = cpu::allowed()?
        .into_iter()
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .filter(|cpu| *cpu != home)
        .collect();
    let relations = Relations::read(home);
    let remote = [
        Place::SmtSibling,
        Place::SameCache,
        Place::OtherCache,
        Place::OtherNode,
    ];
    let found = remote.map(|place| {
        let first = others.iter().find(|cpu| relations.place_of(**cpu) == place);
        Neighbour {
            place,
            cpu: first.copied().ok_or_else(|| why_none(place, &others)),
        }
    });
    Ok(found.to_vec())
}

/// The CPU for measurements when none is given: the last one that may be used, since the first one
/// serves most interrupts.
///
/// # Errors
///
/// The kernel does not report which CPUs this process may use.
pub fn home() -> Result<u32, Error> {
    let home = cpu::workload_cpu()?;
    Ok(u32::try_from(home).expect("invariant: a cpu_set_t holds 1024 CPUs"))
}

/// Refuses a CPU that does not exist, is offline, or is excluded by a cpuset. A child process tries
/// to move there.
///
/// # Errors
///
/// The CPU cannot be used, or no process can be started.
pub fn check_cpu(number: u32) -> Result<(), Error> {
    let mut child = ForkedChild::fork(|| cpu::move_to(0, number as usize))?;
    if child.wait()? == 0 {
        return Ok(());
    }
    let usable: Vec<String> = cpu::allowed()?.iter().map(usize::to_string).collect();
    Err(Error::NotHere(format!(
        "CPU {number} cannot be used; usable: {}",
        usable.join(", ")
    )))
}

/// Returns true if a task of this process may run under `SCHED_FIFO`. A child process tries it.
///
/// # Errors
///
/// No process can be started.
pub fn may_use_fifo() -> Result<bool, Error> {
    let mut child = ForkedChild::fork(|| cpu::Policy::Fifo.adopt())?;
    Ok(child.wait()? == 0)
}

fn why_none(place: Place, others: &[u32]) -> String {
    if others.is_empty() {
        return "this process may use one CPU only".to_owned();
    }
    let what = match place {
        Place::SmtSibling => "hardware thread of the same core (SMT is off, or hidden)",
        Place::SameCache => "core that shares the last-level cache",
        Place::OtherCache => "core of this node with another last-level cache",
        Place::OtherNode => "other NUMA node",
        Place::SameCpu | Place::Free => unreachable!("these need no other CPU"),
    };
    format!("the kernel shows no usable {what}")
}

/// CPUs that share a core, a cache or a node with the home CPU, itself included; empty where the
/// kernel does not tell.
struct Relations {
    core: Vec<u32>,
    cache: Vec<u32>,
    node: Vec<u32>,
}

impl Relations {
    fn read(home: u32) -> Self {
        let cpu = format!("/sys/devices/system/cpu/cpu{home}");
        let list =
            |path: String| fs::read_to_string(path).map_or_else(|_| Vec::new(), |list| cpus(&list));
        Self {
            core: list(format!("{cpu}/topology/thread_siblings_list")),
            cache: last_level(&cpu).map(list).unwrap_or_default(),
            node: cpus_of_node(home),
        }
    }

    fn place_of(&self, cpu: u32) -> Place {
        if self.core.contains(&cpu) {
            Place::SmtSibling
        } else if self.cache.contains(&cpu) {
            Place::SameCache
        } else if self.node.is_empty() || self.node.contains(&cpu) {
            Place::OtherCache
        } else {
            Place::OtherNode
        }
    }
}

/// The file that lists the CPUs that share the cache of the highest level.
fn last_level(cpu: &str) -> Option<String> {
    // An index that does not exist has no level.
    let indexes = (0..8).map(|index| format!("{cpu}/cache/index{index}"));
    let level = |index: &String| -> Option<u32> {
        let level = fs::read_to_string(format!("{index}/level")).ok()?;
        level.trim().parse().ok()
    };
    // Levels compare first.
    let last = indexes
        .filter_map(|index| Some((level(&index)?, index)))
        .max()?;
    Some(format!("{}/shared_cpu_list", last.1))
}

/// The CPUs of the node that contains `home`; empty without NUMA.
fn cpus_of_node(home: u32) -> Vec<u32> {
    let Ok(nodes) = fs::read_dir("/sys/devices/system/node") else {
        return Vec::new();
    };
    nodes
        .flatten()
        .filter_map(|node| fs::read_to_string(node.path().join("cpulist")).ok())
        .map(|list| cpus(&list))
        .find(|cpus| cpus.contains(&home))
        .unwrap_or_default()
}

/// Parses a list of CPUs such as `0-3,8`.
fn cpus(list: &str) -> Vec<u32> {
    let parts = list.trim().split(',').filter(|part| !part.is_empty());
    parts
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<u32>().ok()?..=last.parse().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_has_ranges_and_singles() {
        assert_eq!(cpus("0-2,8\n"), [0, 1, 2, 8]);
        assert!(cpus("\n").is_empty());
    }

    #[test]
    fn the_nearest_relation_counts() {
        let relations = Relations {
            core: vec![0, 4],
            cache: vec![0, 1, 4, 5],
            node: vec![0, 1, 2, 4, 5],
        };
        let places = [4, 1, 2, 9].map(|cpu| relations.place_of(cpu));
        let expected = [
            Place::SmtSibling,
            Place::SameCache,
            Place::OtherCache,
            Place::OtherNode,
        ];
        assert_eq!(places, expected);
    }
}

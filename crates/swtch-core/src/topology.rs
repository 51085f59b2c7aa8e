//! Tells which CPUs are near each other: NUMA nodes, and cores with more than one hardware thread.
//!
//! The kernel tells both as lists of CPUs (`0-3,8`), and a trace keeps them as such: a list of 128
//! CPUs is one word, which people can read. [`CpuPlaces`] answers for one CPU.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::CpuId;

/// The nodes and cores of a machine, as lists of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuTopology {
    /// NUMA nodes that have CPUs, by number.
    pub nodes: Vec<NumaNode>,
    /// Cores with more than one CPU (SMT): the CPUs of each, by the first of them.
    pub cores: Vec<String>,
}

/// The CPUs of one NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct NumaNode {
    /// The kernel's number of the node.
    pub node: u32,
    /// Its CPUs as a list, `0-63,128-191`.
    pub cpus: String,
}

impl CpuTopology {
    /// The topology that files of the kernel tell: `(N, text of nodeN/cpulist)` of every node, and
    /// the text of `topology/thread_siblings_list` of every CPU. A node without CPUs (memory
    /// only) and a CPU without siblings are left out, and so is a list that cannot be understood.
    pub fn of_lists(
        nodes: impl IntoIterator<Item = (u32, String)>,
        siblings: impl IntoIterator<Item = String>,
    ) -> Self {
        let cpus_of = |list: &str| cpus_of_list(list).filter(|cpus| !cpus.is_empty());
        let nodes = nodes.into_iter().filter_map(|(node, list)| {
            let cpus = list.trim().to_owned();
            cpus_of(&cpus).map(|_| NumaNode { node, cpus })
        });
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort();
        // Every CPU of a core tells the same list.
        let cores = siblings.into_iter().filter_map(|list| {
            let cpus = cpus_of(&list).filter(|cpus| cpus.len() > 1)?;
            Some((*cpus.iter().min()?, list.trim().to_owned()))
        });
        let cores: BTreeMap<_, _> = cores.collect();
        Self {
            nodes,
            cores: cores.into_values().collect(),
        }
    }

    /// Returns where each CPU is.
    pub fn places(&self) -> CpuPlaces {
        let mut places = CpuPlaces::default();
        for node in &self.nodes {
            let cpus = cpus_of_list(&node.cpus).unwrap_or_default();
            places
                .nodes
                .extend(cpus.into_iter().map(|cpu| (cpu, node.node)));
        }
        for (index, list) in self.cores.iter().enumerate() {
            let cpus = cpus_of_list(list).unwrap_or_default();
            places
                .cores
                .extend(cpus.into_iter().map(|cpu| (cpu, index)));
        }
        places.lists.clone_from(&self.cores);
        places
    }
}

/// The node and the core of each CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuPlaces {
    nodes: BTreeMap<CpuId, u32>,
    /// Index of each CPU's core in `lists`.
    cores: BTreeMap<CpuId, usize>,
    lists: Vec<String>,
}

impl CpuPlaces {
    /// Returns true if CPUs are on more than one node.
    pub fn has_nodes(&self) -> bool {
        let mut nodes = self.nodes.values();
        let first = nodes.next();
        nodes.any(|node| Some(node) != first)
    }

    /// Returns true if any CPU shares its core with another.
    pub fn has_siblings(&self) -> bool {
        !self.cores.is_empty()
    }

    /// The NUMA node of a CPU; `None` if it is not known.
    pub fn node(&self, cpu: CpuId) -> Option<u32> {
        self.nodes.get(&cpu).copied()
    }

    /// The CPUs of a CPU's core as a list, itself among them; `None` if it has the core alone, or
    /// that is not known.
    pub fn core(&self, cpu: CpuId) -> Option<&str> {
        let index = self.cores.get(&cpu)?;
        Some(&self.lists[*index])
    }
}

/// The CPUs of a list such as `0-3,8`, as they stand there. `None` if it cannot be understood.
/// An empty list has no CPUs.
pub fn cpus_of_list(list: &str) -> Option<Vec<CpuId>> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        // A crafted trace can name the same range a million times.
        if first > last || cpus.len() > usize::from(u16::MAX) {
            return None;
        }
        cpus.extend((first..=last).map(CpuId::new));
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(number: u16) -> CpuId {
        CpuId::new(number)
    }

    /// Two sockets of two cores with two hardware threads each, as Xeons number them: siblings are
    /// half of all CPUs apart. Node 2 has memory only.
    fn two_sockets() -> CpuTopology {
        let nodes = [(1, "2-3,6-7\n"), (0, "0-1,4-5\n"), (2, "\n")];
        let siblings = ["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7\n"];
        CpuTopology::of_lists(
            nodes.map(|(node, list)| (node, list.to_owned())),
            siblings.map(str::to_owned),
        )
    }

    #[test]
    fn a_machine_of_two_nodes_with_smt_has_places() {
        let topology = two_sockets();
        assert_eq!(topology.cores, ["0,4", "1,5", "2,6", "3,7"]);
        let nodes: Vec<_> = topology.nodes.iter().map(|node| node.node).collect();
        assert_eq!(nodes, [0, 1], "a node without CPUs is left out");
        let places = topology.places();
        assert!(places.has_nodes() && places.has_siblings());
        assert_eq!(
            (places.node(cpu(5)), places.node(cpu(6))),
            (Some(0), Some(1))
        );
        assert_eq!(places.core(cpu(7)), Some("3,7"));
        assert_eq!((places.node(cpu(8)), places.core(cpu(8))), (None, None));
    }

    /// Four threads a core and a range, as on POWER with SMT4.
    #[test]
    fn siblings_may_be_a_range() {
        let siblings = ["0-3", "0-3", "0-3", "0-3", "4-7"].map(str::to_owned);
        let topology = CpuTopology::of_lists([(8, "0-7".to_owned())], siblings);
        let places = topology.places();
        assert!(!places.has_nodes(), "one node, whatever its number");
        assert_eq!(places.core(cpu(2)), Some("0-3"));
        assert_eq!(topology.cores, ["0-3", "4-7"]);
    }

    #[test]
    fn a_machine_without_smt_has_no_siblings() {
        let topology =
            CpuTopology::of_lists([(0, "0-1".to_owned())], ["0", "1"].map(str::to_owned));
        assert!(topology.cores.is_empty());
        assert!(!topology.places().has_siblings());
    }

    #[test]
    fn lists_that_make_no_sense_are_refused_and_cost_nothing() {
        assert_eq!(cpus_of_list("0-2,8\n").map(|cpus| cpus.len()), Some(4));
        assert_eq!(cpus_of_list("\n"), Some(Vec::new()));
        for list in ["3-0", "a", "0-", "70000", "0-4294967295"] {
            assert_eq!(cpus_of_list(list), None, "{list}");
        }
        assert_eq!(cpus_of_list(&"0-65535,".repeat(1000)), None);
    }
}

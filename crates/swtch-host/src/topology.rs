//! NUMA nodes and SMT siblings: which CPUs share memory and which a core.
//!
//! Sources: `Documentation/ABI/stable/sysfs-devices-node`,
//! `Documentation/admin-guide/cputopology.rst` (v6.18). [`CpuTopology`] parses what they say. A
//! hypervisor may hide the real topology.

use std::fs;

use swtch_core::CpuTopology;

use super::{Fact, SourcedValue, read};

const NODES: &str = "/sys/devices/system/node";
const CPUS: &str = "/sys/devices/system/cpu";

/// Reads which CPUs share a node or a core. What the kernel does not show is left out.
pub fn read_topology() -> CpuTopology {
    let nodes = numbered(NODES, "node").into_iter();
    let nodes = nodes.filter_map(|node| {
        let list = read(&format!("{NODES}/node{node}/cpulist")).ok()?;
        Some((node, list))
    });
    let cpus = numbered(CPUS, "cpu").into_iter();
    let siblings = cpus.filter_map(|cpu| {
        // A CPU that is offline has no such file.
        read(&format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list")).ok()
    });
    CpuTopology::of_lists(nodes, siblings)
}

/// Numbers of the directory's entries that are named `prefix` and a number.
fn numbered(dir: &str, prefix: &str) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix(prefix)?.parse().ok()
    });
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

pub(super) fn facts() -> Vec<Fact> {
    let topology = read_topology();
    vec![
        nodes_of(&topology).named(
            "numa_cpus",
            "a task that moves to a CPU of another node has its memory far away",
        ),
        siblings_of(&topology).named(
            "smt_siblings",
            "CPUs of one core: a busy sibling slows the other without any switch",
        ),
    ]
}

fn nodes_of(topology: &CpuTopology) -> SourcedValue {
    let source = format!("{NODES}/node*/cpulist");
    let nodes = topology.nodes.iter();
    let nodes: Vec<_> = nodes
        .map(|node| format!("node {}: {}", node.node, node.cpus))
        .collect();
    if nodes.is_empty() {
        SourcedValue::unknown("this kernel shows no nodes", source)
    } else {
        SourcedValue::known(nodes.join("; "), source)
    }
}

/// The most cores that are named.
const MOST_NAMED: usize = 16;

fn siblings_of(topology: &CpuTopology) -> SourcedValue {
    let source = format!("{CPUS}/cpu*/topology/thread_siblings_list");
    let cores = &topology.cores;
    let named: Vec<_> = cores.iter().take(MOST_NAMED).map(String::as_str).collect();
    let mut words = if named.is_empty() {
        "none".to_owned()
    } else {
        named.join("; ")
    };
    if cores.len() > MOST_NAMED {
        words += &format!("; and {} more cores", cores.len() - MOST_NAMED);
    }
    SourcedValue::known(words, source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FactValue;

    /// Two sockets of 20 cores with two hardware threads each.
    fn xeon() -> CpuTopology {
        let nodes = [(0, "0-19,40-59"), (1, "20-39,60-79")];
        let nodes = nodes.map(|(node, cpus)| (node, cpus.to_owned()));
        let siblings = (0..80).map(|cpu| format!("{},{}", cpu % 40, cpu % 40 + 40));
        CpuTopology::of_lists(nodes, siblings)
    }

    #[test]
    fn nodes_and_siblings_are_told_in_words() {
        let known = |words: &str| FactValue::Known(words.to_owned());
        let nodes = nodes_of(&xeon()).value;
        assert_eq!(nodes, known("node 0: 0-19,40-59; node 1: 20-39,60-79"));
        let FactValue::Known(siblings) = siblings_of(&xeon()).value else {
            panic!("they are known")
        };
        assert!(siblings.starts_with("0,40; 1,41; "), "{siblings}");
        assert!(siblings.ends_with("15,55; and 24 more cores"), "{siblings}");
        let alone = CpuTopology::of_lists([(0, "0-1".to_owned())], ["0", "1"].map(str::to_owned));
        assert_eq!(siblings_of(&alone).value, known("none"));
        let hidden = nodes_of(&CpuTopology::default()).value;
        assert!(matches!(hidden, FactValue::Unknown(_)));
    }

    /// Every CPU that is online here is on a node or the kernel shows none.
    #[test]
    fn the_topology_of_this_machine_can_be_read() {
        let topology = read_topology();
        let places = topology.places();
        if !topology.nodes.is_empty() {
            assert!(
                places.node(swtch_core::CpuId::new(0)).is_some(),
                "{topology:?}"
            );
        }
    }
}

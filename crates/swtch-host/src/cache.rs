//! The caches of a CPU: how much of a working set survives a switch, and which CPUs share a cache.
//!
//! Sources: `Documentation/ABI/testing/sysfs-devices-system-cpu`, `drivers/base/cacheinfo.c`
//! (v6.18).

use std::path::Path;

use super::{Fact, SourcedValue, read};

/// The first CPU stands for all; on hybrid processors other cores may have other caches.
const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

/// For each cache: its level, its type in sysfs, and the names of the facts for its size and for
/// the CPUs that share it.
const NAMES: &[(u32, &str, &str, &str)] = &[
    (1, "Data", "cache_l1d_bytes", "cache_l1d_shared_cpus"),
    (1, "Instruction", "cache_l1i_bytes", "cache_l1i_shared_cpus"),
    (2, "Unified", "cache_l2_bytes", "cache_l2_shared_cpus"),
    (3, "Unified", "cache_l3_bytes", "cache_l3_shared_cpus"),
];

pub(super) fn facts() -> Vec<Fact> {
    let caches = Cache::read_all(Path::new(CACHES));
    let mut facts: Vec<Fact> = NAMES
        .iter()
        .flat_map(|(level, kind, size, shared)| {
            let cache = caches.iter().find(|cache| cache.is(*level, kind));
            [
                finding(cache, "size", |cache| cache.size_bytes.to_string()).named(
                    size,
                    "what a task has in it, others may have pushed out when it runs again",
                ),
                finding(cache, "shared_cpu_list", |cache| cache.shared_cpus.clone()).named(
                    shared,
                    "a task that moves among these CPUs keeps what is in this cache",
                ),
            ]
        })
        .collect();
    facts.push(
        SourcedValue::text_of(&format!("{CACHES}/index0/coherency_line_size")).named(
            "cache_line_bytes",
            "what moves between two CPUs when one of them writes",
        ),
    );
    facts
}

/// Size of the second-level cache of the first CPU.
pub(super) fn second_level_bytes() -> Option<u64> {
    let caches = Cache::read_all(Path::new(CACHES));
    let second = caches.iter().find(|cache| cache.level == 2);
    second.map(|cache| cache.size_bytes)
}

/// Size of the largest cache of the first CPU.
pub(super) fn largest_bytes() -> Option<u64> {
    let caches = Cache::read_all(Path::new(CACHES));
    caches.iter().map(|cache| cache.size_bytes).max()
}

fn finding(cache: Option<&Cache>, file: &str, get: impl Fn(&Cache) -> String) -> SourcedValue {
    match cache {
        Some(cache) => SourcedValue::known(get(cache), format!("{}/{file}", cache.source)),
        None => SourcedValue::unknown("the kernel shows no such cache", CACHES),
    }
}

/// One cache of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cache {
    level: u32,
    /// The type in sysfs: `Data`, `Instruction` or `Unified`.
    kind: String,
    size_bytes: u64,
    shared_cpus: String,
    /// The sysfs directory that it was read from.
    source: String,
}

impl Cache {
    fn read_all(directory: &Path) -> Vec<Self> {
        let indices = (0..16).map(|index| directory.join(format!("index{index}")));
        indices.filter_map(|index| Self::read(&index)).collect()
    }

    fn read(index: &Path) -> Option<Self> {
        let file = |name: &str| read(&index.join(name).display().to_string()).ok();
        Some(Self {
            level: file("level")?.parse().ok()?,
            kind: file("type")?,
            size_bytes: bytes(&file("size")?)?,
            shared_cpus: file("shared_cpu_list")?,
            source: index.display().to_string(),
        })
    }

    fn is(&self, level: u32, kind: &str) -> bool {
        self.level == level && self.kind == kind
    }
}

/// The size in bytes. The kernel writes `48K`; sizes from firmware may also read `1M`.
fn bytes(size: &str) -> Option<u64> {
    let (digits, factor) = match size.strip_suffix('K') {
        Some(digits) => (digits, 1 << 10),
        None => match size.strip_suffix('M') {
            Some(digits) => (digits, 1 << 20),
            None => (size, 1),
        },
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::FactValue;

    #[test]
    fn sizes_are_bytes() {
        assert_eq!(bytes("48K"), Some(49_152));
        assert_eq!(bytes("2M"), Some(2 << 20));
        assert_eq!(bytes(""), None);
    }

    /// A Raspberry Pi 4 shows two levels and no third.
    #[test]
    fn caches_are_read_from_their_directories() {
        let cpu = tempfile::tempdir().unwrap();
        let caches = [("1", "Data", "32K", "0"), ("2", "Unified", "1024K", "0-3")];
        for (index, (level, kind, size, shared)) in caches.into_iter().enumerate() {
            let directory = cpu.path().join(format!("index{index}"));
            fs::create_dir(&directory).unwrap();
            for (file, text) in [
                ("level", level),
                ("type", kind),
                ("size", size),
                ("shared_cpu_list", shared),
            ] {
                fs::write(directory.join(file), format!("{text}\n")).unwrap();
            }
        }
        let found = Cache::read_all(cpu.path());
        assert_eq!(found.len(), 2);
        let second = found.iter().find(|cache| cache.is(2, "Unified")).unwrap();
        assert_eq!(
            (second.size_bytes, second.shared_cpus.as_str()),
            (1 << 20, "0-3")
        );
        let third = found.iter().find(|cache| cache.is(3, "Unified"));
        let missing = finding(third, "size", |cache| cache.size_bytes.to_string());
        assert!(matches!(missing.value, FactValue::Unknown(_)));
    }
}

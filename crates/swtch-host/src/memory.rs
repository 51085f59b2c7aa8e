//! Huge pages, swap, page merging and NUMA balancing: how the kernel manages memory while a program
//! runs.
//!
//! Sources: `Documentation/admin-guide/mm/transhuge.rst`, `…/hugetlbpage.rst`, `…/ksm.rst`,
//! `proc_meminfo(5)`.

use super::{Fact, SourcedValue};

const MEMINFO: &str = "/proc/meminfo";

pub(super) fn facts() -> Vec<Fact> {
    let own = "/sys/kernel/mm/transparent_hugepage/enabled";
    vec![
        SourcedValue::in_file_or(own, "not in this kernel", chosen).named(
            "transparent_huge_pages",
            "a working set on huge pages needs fewer TLB entries after a switch",
        ),
        SourcedValue::in_file(MEMINFO, huge_pages).named(
            "huge_pages",
            "reserved ones: what can be mapped huge on request",
        ),
        SourcedValue::in_file(MEMINFO, swap)
            .named("swap", "a page that was swapped out is a wait for I/O"),
        SourcedValue::in_file_or("/sys/kernel/mm/ksm/run", "not in this kernel", merging).named(
            "page_merging",
            "ksmd takes CPU time, and pages of processes become shared",
        ),
        SourcedValue::in_file_or(
            "/proc/sys/kernel/numa_balancing",
            "not in this kernel",
            balancing,
        )
        .named(
            "numa_balancing",
            "pages are unmapped now and then to see who uses them: faults, and moves of tasks",
        ),
    ]
}

/// The word in brackets, which is in force: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn field<'a>(meminfo: &'a str, name: &str) -> Option<&'a str> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()
}

fn huge_pages(meminfo: &str) -> Option<String> {
    let (total, free) = (
        field(meminfo, "HugePages_Total")?,
        field(meminfo, "HugePages_Free")?,
    );
    let size = field(meminfo, "Hugepagesize")?;
    Some(match total {
        "0" => format!("none ({size} KiB each)"),
        total => format!("{total}, {free} free ({size} KiB each)"),
    })
}

fn swap(meminfo: &str) -> Option<String> {
    let kib = |name: &str| field(meminfo, name)?.parse::<u64>().ok();
    let (total, free) = (kib("SwapTotal")?, kib("SwapFree")?);
    Some(match total {
        0 => "none".to_owned(),
        _ => format!(
            "{} MiB, {} MiB used",
            total >> 10,
            total.saturating_sub(free) >> 10
        ),
    })
}

fn merging(run: &str) -> Option<String> {
    let word = match run {
        "0" => "off",
        "1" => "on",
        "2" => "off, unmerged",
        _ => return None,
    };
    Some(word.to_owned())
}

fn balancing(text: &str) -> Option<String> {
    let mode: u32 = text.parse().ok()?;
    Some(if mode == 0 { "off" } else { "on" }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_is_the_word_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise".into()));
        assert_eq!(chosen("always"), None);
    }

    #[test]
    fn huge_pages_and_swap_are_read_from_meminfo() {
        let database = "SwapTotal:       2097152 kB\nSwapFree:        1048576 kB\n\
            HugePages_Total:     512\nHugePages_Free:      100\nHugepagesize:       2048 kB\n";
        assert_eq!(
            huge_pages(database),
            Some("512, 100 free (2048 KiB each)".into())
        );
        assert_eq!(swap(database), Some("2048 MiB, 1024 MiB used".into()));
        assert_eq!(
            swap("SwapTotal: 0 kB\nSwapFree: 0 kB\n"),
            Some("none".into())
        );
        assert_eq!(huge_pages("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn any_mode_of_balancing_but_0_is_on() {
        assert_eq!(balancing("2"), Some("on".into()));
        assert_eq!(balancing("0"), Some("off".into()));
        assert_eq!(merging("7"), None);
    }
}

//! Other work on this host at the moment: the disturbance that a measurement must expect.
//!
//! Sources: `proc_stat(5)`, `Documentation/admin-guide/sysctl/kernel.rst` (v6.18).

use super::{Fact, SourcedValue};

pub(super) fn facts() -> Vec<Fact> {
    vec![
        SourcedValue::in_file("/proc/stat", |stat| count(stat, "procs_running")).named(
            "runnable_tasks",
            "threads that run or wait for a CPU at this moment, this one included",
        ),
        SourcedValue::in_file("/proc/stat", |stat| count(stat, "procs_blocked")).named(
            "blocked_tasks",
            "threads that wait for a disk at this moment and will want a CPU soon",
        ),
        SourcedValue::in_file_or(
            "/proc/sys/kernel/nmi_watchdog",
            "not in this kernel",
            on_or_off,
        )
        .named(
            "nmi_watchdog",
            "it takes a hardware counter of each CPU and interrupts each now and then",
        ),
    ]
}

/// The number of a line such as `procs_running 2`, as text; `None` if there is no such line, or no
/// number in it.
fn count(stat: &str, name: &str) -> Option<String> {
    let number = stat.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = number.trim().parse().ok()?;
    Some(number.to_string())
}

fn on_or_off(text: &str) -> Option<String> {
    match text {
        "0" => Some("off".to_owned()),
        "1" => Some("on".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_name() {
        let stat = "cpu  1 2 3\nprocesses 99\nprocs_running 2\nprocs_blocked 0\n";
        assert_eq!(count(stat, "procs_running"), Some("2".into()));
        assert_eq!(count(stat, "procs_blocked"), Some("0".into()));
        assert_eq!(count("cpu 1\n", "procs_running"), None);
    }
}

//! Facts about how the kernel treats this process; a measurement started by it inherits that.
//!
//! Sources: `proc_pid_stat(5)`, `proc_pid_status(5)`, `kernel/sched/debug.c` (v6.18),
//! `Documentation/userspace-api/spec_ctrl.rst`.

use swtch_core::ProcessStat;

use super::{Fact, SourcedValue};

const STAT: &str = "/proc/self/stat";
const STATUS: &str = "/proc/self/status";
const SCHED: &str = "/proc/self/sched";

pub(super) fn facts() -> Vec<Fact> {
    vec![
        SourcedValue::in_file(STAT, policy).named(
            "own_policy",
            "who may preempt us, and whom we may; a command started from here inherits it",
        ),
        SourcedValue::in_file(SCHED, |text| Some(clamp(text))).named(
            "own_uclamp",
            "the load that is claimed for us: it chooses frequency and, on hybrids, CPUs",
        ),
        SourcedValue::in_file(STATUS, speculation).named(
            "own_speculation",
            "with store bypass or indirect branches off, a switch to or from us does more",
        ),
        SourcedValue::in_file("/proc/sys/kernel/randomize_va_space", randomisation).named(
            "address_randomisation",
            "each start of a process has other cache and branch conflicts: repeat starts",
        ),
    ]
}

/// The scheduling policy, with the nice value or the real-time priority.
fn policy(stat: &str) -> Option<String> {
    let stat = ProcessStat::parse(stat.as_bytes())?;
    let (nice, priority) = (stat.field(19)?, stat.field(40)?);
    let word = match stat.field(41)? {
        "0" => return Some(format!("SCHED_OTHER, nice {nice}")),
        "3" => return Some(format!("SCHED_BATCH, nice {nice}")),
        "1" => "SCHED_FIFO",
        "2" => "SCHED_RR",
        "5" => return Some("SCHED_IDLE".to_owned()),
        "6" => return Some("SCHED_DEADLINE".to_owned()),
        "7" => return Some("SCHED_EXT".to_owned()),
        _ => return None,
    };
    Some(format!("{word}, priority {priority}"))
}

/// The utilization clamp in force; kernels without the option do not list one.
fn clamp(sched: &str) -> String {
    let value = |name: &str| {
        sched.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    match (value("effective uclamp.min"), value("effective uclamp.max")) {
        (Some(least), Some(most)) => format!("{least} to {most} of 1024"),
        _ => "not in this kernel".to_owned(),
    }
}

fn speculation(status: &str) -> Option<String> {
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.strip_prefix(':')?.trim())
    };
    let store = value("Speculation_Store_Bypass")?;
    let branch = value("SpeculationIndirectBranch");
    Some(match branch {
        Some(branch) => format!("store bypass: {store}; indirect branch: {branch}"),
        None => format!("store bypass: {store}"),
    })
}

fn randomisation(text: &str) -> Option<String> {
    let word = match text {
        "0" => "off",
        "1" => "on, but for the heap",
        "2" => "on",
        _ => return None,
    };
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line of a command that is named `a) R 1 (b`.
    const STAT_TEXT: &str = "77 (a) R 1 (b) S 1 77 77 0 -1 4194560 99 0 0 0 0 0 0 0 20 5 1 0 123 \
        3133440 383 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0";

    #[test]
    fn policy_and_nice_are_counted_from_the_end_of_the_name() {
        assert_eq!(policy(STAT_TEXT), Some("SCHED_OTHER, nice 5".into()));
        let fifo = STAT_TEXT.replace(" 17 1 0 0 ", " 17 1 42 1 ");
        assert_eq!(policy(&fifo), Some("SCHED_FIFO, priority 42".into()));
        assert_eq!(policy("77 (cut off) S 1"), None);
    }

    #[test]
    fn clamps_are_those_in_force() {
        let text = "uclamp.min : 0\neffective uclamp.min  :   256\neffective uclamp.max : 1024\n";
        assert_eq!(clamp(text), "256 to 1024 of 1024");
        assert_eq!(clamp("policy : 0\n"), "not in this kernel");
    }

    #[test]
    fn speculation_is_told_as_the_kernel_words_it() {
        let text = "Seccomp:\t0\nSpeculation_Store_Bypass:\tthread vulnerable\n\
                    SpeculationIndirectBranch:\tconditional enabled\n";
        assert_eq!(
            speculation(text),
            Some("store bypass: thread vulnerable; indirect branch: conditional enabled".into())
        );
        assert_eq!(speculation("Seccomp:\t0\n"), None);
    }
}

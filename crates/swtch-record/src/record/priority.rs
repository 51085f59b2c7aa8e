//! The recorder's real-time priority: what the trace says of it, and warnings where it is missing
//! and real-time tasks may starve the recorder.

use std::fs;
use std::path::{Path, PathBuf};

use swtch_capture::{GuardPriority, GuardUse};
use swtch_output::text::counted;
use swtch_store::RecorderGuard;

/// Advice for a recorder that lacks the right to a real-time priority.
const REMEDY: &str = "run it with sudo, or grant the right once: sudo setcap \
     cap_bpf,cap_perfmon,cap_sys_nice+ep $(command -v swtch)";

/// The policy of a guard that has no priority to lend, as `meta.json` has it.
const NO_PRIORITY: &str = "none";

/// The guard and the time that it lent, as `meta.json` has them.
pub fn guard_in_trace(priority: GuardPriority, lent: GuardUse) -> RecorderGuard {
    let (policy, priority) = match priority {
        GuardPriority::Deadline => ("deadline", None),
        GuardPriority::Fifo(priority) => ("fifo", Some(priority)),
        GuardPriority::Ordinary => (NO_PRIORITY, None),
    };
    RecorderGuard {
        policy: policy.to_owned(),
        priority,
        lent_times: lent.times,
        lent_ns: u64::try_from(lent.time.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Returns a warning if losses can be foreseen: the recorder has no right to a real-time priority, and
/// real-time threads are runnable now. Threads that sleep are not counted: those that mostly sleep, such as a
/// sound server, take little time from the recorder.
pub fn warning(priority: GuardPriority) -> Option<String> {
    match priority {
        GuardPriority::Ordinary => warning_about(&busy_realtime_threads()),
        _ => None,
    }
}

/// The warning about threads of real-time priority with these names; `None` if there are none.
fn warning_about(busy: &[String]) -> Option<String> {
    let first = busy.first()?;
    let threads = counted(u64::try_from(busy.len()).unwrap_or(u64::MAX), "thread");
    Some(format!(
        "{threads} of real-time priority (such as {first}) may keep the recorder from its CPU, and the kernel \
         gives it no such priority: switches may be lost; {REMEDY}"
    ))
}

/// Returns advice if switches were lost that a real-time priority might have saved.
pub fn hint(guard: &RecorderGuard, lost: u64) -> Option<String> {
    (lost > 0 && guard.policy == NO_PRIORITY).then(|| {
        format!(
            "the recorder had no real-time priority to borrow, with which fewer may be lost: {REMEDY}"
        )
    })
}

/// Names of the user threads of a real-time policy that are runnable at this moment.
fn busy_realtime_threads() -> Vec<String> {
    let mut busy = Vec::new();
    for process in numbered_entries(Path::new("/proc")) {
        for thread in numbered_entries(&process.join("task")) {
            // A thread that has ended meanwhile has no `stat` file.
            let stat = fs::read(thread.join("stat")).unwrap_or_default();
            busy.extend(busy_realtime_thread(&String::from_utf8_lossy(&stat)));
        }
    }
    busy
}

/// Entries whose names are numbers; none if the directory is gone.
fn numbered_entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .map(|entry| entry.path())
}

/// Flag of kernel threads, from `include/linux/sched.h`.
const PF_KTHREAD: u64 = 0x0020_0000;

/// The name of a thread, if it is a runnable user thread of a real-time policy. Uses fields 2
/// (name), 3 (state), 9 (flags) and 41 (policy) of `/proc/PID/stat` (`proc_pid_stat(5)`).
fn busy_realtime_thread(stat: &str) -> Option<String> {
    let (before, rest) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let is_of_kernel = number(9)? & PF_KTHREAD != 0;
    let is_realtime = matches!(
        i32::try_from(number(41)?),
        Ok(libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
    );
    (*fields.first()? == "R" && is_realtime && !is_of_kernel).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A line of `/proc/PID/stat` with these fields, and zeros elsewhere.
    fn stat(state: &str, flags: u64, policy: u32) -> String {
        let zeros = |count| "0 ".repeat(count);
        format!(
            "7 (a) b) {state} {}{flags} {}{policy} 0 0",
            zeros(5),
            zeros(31)
        )
    }

    #[test]
    fn only_runnable_realtime_threads_of_user_mode_are_busy() {
        assert_eq!(
            busy_realtime_thread(&stat("R", 0, 1)),
            Some("a) b".to_owned())
        );
        assert_eq!(
            busy_realtime_thread(&stat("R", 0, 6)),
            Some("a) b".to_owned())
        );
        for quiet in [
            stat("S", 0, 1),
            stat("R", 0, 0),
            stat("R", PF_KTHREAD, 1),
            String::new(),
        ] {
            assert_eq!(busy_realtime_thread(&quiet), None, "{quiet}");
        }
    }

    #[test]
    fn a_recorder_that_can_borrow_a_priority_warns_of_nothing() {
        assert_eq!(warning(GuardPriority::Deadline), None);
        assert_eq!(warning(GuardPriority::Fifo(99)), None);
    }

    #[test]
    fn busy_realtime_threads_are_warned_of_with_the_remedy() {
        let busy = ["jackd".to_owned(), "other".to_owned()];
        let warned = warning_about(&busy).unwrap();
        assert!(
            warned.starts_with("2 threads of real-time priority (such as jackd)"),
            "{warned}"
        );
        assert!(warned.contains("cap_sys_nice"), "{warned}");
        assert_eq!(warning_about(&[]), None);
    }

    #[test]
    fn losses_without_the_right_name_the_remedy() {
        let without = guard_in_trace(GuardPriority::Ordinary, GuardUse::default());
        assert!(hint(&without, 3).is_some_and(|hint| hint.contains("cap_sys_nice")));
        assert_eq!(hint(&without, 0), None);
        let with = guard_in_trace(GuardPriority::Fifo(7), GuardUse::default());
        assert_eq!(hint(&with, 3), None);
        assert_eq!((with.policy.as_str(), with.priority), ("fifo", Some(7)));
    }

    #[test]
    fn what_was_lent_is_in_the_trace() {
        let lent = GuardUse {
            times: 2,
            time: Duration::from_millis(16),
        };
        let told = guard_in_trace(GuardPriority::Deadline, lent);
        assert_eq!((told.lent_times, told.lent_ns), (2, 16_000_000));
        assert_eq!((told.policy.as_str(), told.priority), ("deadline", None));
    }
}

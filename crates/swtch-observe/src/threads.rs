//! Maps thread ids of a target's own pid namespace to ours.
//!
//! A target records its threads by their `gettid`. Inside a container these numbers differ from
//! those that we and the kernel's tracing see. `NSpid` of `/proc/PID/task/TID/status` lists both,
//! ours first (`proc_pid_status(5)`).

use std::collections::HashMap;
use std::fs;

/// Ids of a process's threads: from its own namespace to ours. Threads that have ended stay in the
/// map, because their events may be read later.
#[derive(Clone, Debug, Default)]
pub struct Tids {
    ours: HashMap<u32, u32>,
    /// The process is in our namespace, so the ids of threads that ended before the first look are
    /// known too.
    same_namespace: bool,
}

impl Tids {
    /// Adds the threads that the process has now.
    pub fn look(&mut self, pid: u32) {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return;
        };
        for entry in entries.flatten() {
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            if let Some((ours, own)) = both(&status) {
                self.ours.insert(own, ours);
                self.same_namespace |= has_one_id(&status);
            }
        }
    }

    /// Our id of the thread that has the id `own` in its namespace.
    pub fn to_ours(&self, own: u32) -> Option<u32> {
        let known = self.ours.get(&own).copied();
        known.or(self.same_namespace.then_some(own))
    }
}

/// The id of process `pid` in its own namespace; `None` when it is gone.
pub fn pid_in_namespace(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    both(&status).map(|(_, own)| own)
}

/// Returns true if a task has only the id that we see.
fn has_one_id(status: &str) -> bool {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.is_some_and(|ids| ids.split_ascii_whitespace().count() == 1)
}

/// Our id and the thread's own id.
fn both(status: &str) -> Option<(u32, u32)> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut ids = line.split_ascii_whitespace().map(str::parse::<u32>);
    let ours = ids.next()?.ok()?;
    let own = ids.next_back().transpose().ok()?.unwrap_or(ours);
    Some((ours, own))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that switched and ended before the first look must not lose its rows.
    #[test]
    fn a_thread_of_our_namespace_is_known_though_it_has_ended() {
        let mut tids = Tids::default();
        assert_eq!(
            tids.to_ours(4_000_000),
            None,
            "nothing is known of the process"
        );
        tids.look(std::process::id());
        assert_eq!(tids.to_ours(4_000_000), Some(4_000_000));
        assert!(has_one_id("Name:\tx\nNSpid:\t17\n"));
        assert!(!has_one_id("Name:\tx\nNSpid:\t17\t1\n"), "in a container");
    }

    /// The line lists one id per namespace, from ours to the thread's own.
    #[test]
    fn a_thread_in_a_container_has_two_ids() {
        assert_eq!(both("Name:\tx\nNSpid:\t4711\t17\t3\n"), Some((4711, 3)));
        assert_eq!(both("NSpid:\t4711\n"), Some((4711, 4711)));
        assert_eq!(both("NSpid:\n"), None);
        assert_eq!(both("NSpid:\t4\tx\n"), None);
    }

    #[test]
    fn own_threads_are_found() {
        let pid = std::process::id();
        let mut tids = Tids::default();
        tids.look(pid);
        let own = pid_in_namespace(pid).unwrap();
        assert_eq!(tids.to_ours(own), Some(pid));
    }
}

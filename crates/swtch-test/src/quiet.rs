//! A reading of what others take of the machine's CPUs while a test runs: without it nobody can say
//! whether a test that counts on them has found a fault or had bad luck.
//!
//! ```text
//! all CPUs, /proc/stat:   user nice system irq softirq │ steal │ idle iowait
//!                         └──── ours ────┴── others ───┘
//! ```
//!
//! Ours is what this process, its children that were waited for, and all that live below it used.
//! What a living process below it used before it was our descendant counts as ours; that can only
//! make others look smaller.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::time::Duration;

/// From this share of the CPUs' time on, a test that failed was disturbed. Two idle CPUs of a
/// virtual machine show 0 to 2 % for services, kernel threads and the granularity of ticks.
const DISTURBED_PCT: f64 = 5.0;

/// Watches what others take while a test runs whose statement holds only where they leave it the
/// CPUs. A test that fails meanwhile and was disturbed says so in a line of its own:
///
/// ```text
/// test it::truth::root_crowd ... disturbed: others took 37.2 % of the CPUs, 1.0 % was stolen
/// ```
///
/// The runner (`cargo run -p xtask -- test`) then runs it again, alone, after all others.
#[derive(Debug)]
#[must_use = "the reading ends when this is dropped"]
pub struct QuietReading {
    start: Option<MachineTime>,
    /// `None` while it goes on.
    end: Option<MachineTime>,
}

impl QuietReading {
    /// Ends the count: from here on a process that was started by the test is no longer below it (its parent was
    /// killed) and would be taken for another's.
    pub fn ends_here(&mut self) {
        self.end = MachineTime::now();
    }
}

/// Begins such a reading.
pub fn depends_on_quiet() -> QuietReading {
    crate::tell_failures_at_once();
    QuietReading {
        start: MachineTime::now(),
        end: None,
    }
}

impl Drop for QuietReading {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let (Some(start), Some(end)) = (self.start, self.end.or_else(MachineTime::now)) else {
            return; // without /proc nothing is known, so the failure counts
        };
        let disturbance = start.until(end);
        let thread = std::thread::current();
        if let (true, Some(name)) = (disturbance.is_one(), thread.name()) {
            let line = disturbance.line(name);
            // Where this cannot be written the failure counts, which is the safe side.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

/// The share of the CPUs' time that others took.
#[derive(Clone, Copy, Debug)]
struct Disturbance {
    others_pct: f64,
    stolen_pct: f64,
}

impl Disturbance {
    fn is_one(self) -> bool {
        self.others_pct + self.stolen_pct >= DISTURBED_PCT
    }

    /// Begins with a line break, since the harness may have begun a line of its own.
    fn line(self, test: &str) -> String {
        let Self {
            others_pct,
            stolen_pct,
        } = self;
        format!(
            "\ntest {test} ... disturbed: others took {others_pct:.1} % of the CPUs, {stolen_pct:.1} % was stolen\n"
        )
    }
}

/// CPU time in clock ticks since boot, of all CPUs together.
#[derive(Clone, Copy, Debug, Default)]
struct MachineTime {
    all: u64,
    busy: u64,
    stolen: u64,
    ours: u64,
}

impl MachineTime {
    /// `None` where /proc cannot be read.
    fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let mut time = Self::of_machine(&stat)?;
        time.ours = ours(std::process::id());
        Some(time)
    }

    /// Reads the line of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal
    /// (`man 5 proc_stat`). Time of guests is part of `user`.
    fn of_machine(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .take(8)
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        let [user, nice, system, idle, iowait, irq, softirq, stolen] = ticks[..] else {
            return None;
        };
        let busy = user + nice + system + irq + softirq;
        Some(Self {
            all: busy + idle + iowait + stolen,
            busy,
            stolen,
            ours: 0,
        })
    }

    fn until(self, end: Self) -> Disturbance {
        let all = end.all.saturating_sub(self.all).max(1) as f64;
        let busy = end.busy.saturating_sub(self.busy);
        let others = busy.saturating_sub(end.ours.saturating_sub(self.ours));
        Disturbance {
            others_pct: 100.0 * others as f64 / all,
            stolen_pct: 100.0 * end.stolen.saturating_sub(self.stolen) as f64 / all,
        }
    }
}

/// The time that one process used, and its children that were waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessTime {
    parent: u32,
    ticks: u64,
}

impl ProcessTime {
    /// Of a process that lives, or that has ended and was not waited for. `None` for any other.
    pub fn of(pid: u32) -> Option<Self> {
        Self::of_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// As a length of time: Linux shows 100 ticks a second, whatever the kernel's own are
    /// (`USER_HZ`).
    pub const fn cpu(self) -> Duration {
        Duration::from_millis(10 * self.ticks)
    }

    /// Reads /proc/PID/stat: the parent is field 4, utime to cstime are 14 to 17. The name before
    /// them may hold blanks and parentheses.
    fn of_stat(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
        let ticks: i64 = (14..=17).map(number).sum::<Option<i64>>()?;
        Some(Self {
            parent: u32::try_from(number(4)?).ok()?,
            ticks: u64::try_from(ticks).ok()?,
        })
    }
}

/// Ticks of this process and of all that live below it. A process that ends while this reads is
/// missing, or counted by its parent.
fn ours(root: u32) -> u64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let times: HashMap<u32, ProcessTime> = entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, ProcessTime::of(pid)?))
        })
        .collect();
    let below = times.keys().filter(|&&pid| is_below(pid, root, &times));
    below.map(|pid| times[pid].ticks).sum()
}

/// True of the root itself, too. A loop, which processes that come and go meanwhile could feign,
/// ends.
fn is_below(mut pid: u32, root: u32, times: &HashMap<u32, ProcessTime>) -> bool {
    for _ in 0..times.len() {
        if pid == root {
            return true;
        }
        match times.get(&pid) {
            Some(time) => pid = time.parent,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{Duration, MachineTime, ProcessTime};

    #[test]
    fn time_of_others_is_what_is_busy_and_not_ours() {
        let stat = |user, steal| format!("cpu  {user} 0 10 500 0 0 5 {steal} 0 0\ncpu0 1 2 3\n");
        let mut start = MachineTime::of_machine(&stat(100, 0)).unwrap();
        let mut end = MachineTime::of_machine(&stat(180, 20)).unwrap();
        (start.ours, end.ours) = (40, 90);
        let disturbance = start.until(end);
        assert_eq!(disturbance.others_pct, 30.0);
        assert_eq!(disturbance.stolen_pct, 20.0);
        assert_eq!(
            disturbance.line("it::a"),
            "\ntest it::a ... disturbed: others took 30.0 % of the CPUs, 20.0 % was stolen\n"
        );
    }

    #[test]
    fn a_name_may_hold_blanks_and_parentheses() {
        let stat = "7 (a) b (c) S 5 7 7 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 99";
        let time = ProcessTime::of_stat(stat).unwrap();
        assert_eq!((time.parent, time.ticks), (5, 100));
        assert_eq!(time.cpu(), Duration::from_secs(1));
    }

    /// A test that uses a CPU itself has not been disturbed by that.
    #[test]
    fn own_work_and_that_of_children_is_ours() {
        let start = MachineTime::now().unwrap();
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let mut child = std::process::Command::new("sh");
        let status = child.args(["-c", script]).status().unwrap();
        assert!(status.success());
        let end = MachineTime::now().unwrap();
        assert!(end.ours > start.ours, "{start:?} {end:?}");
    }
}

//! What the kernel has counted of one thread; anybody may read it.
//!
//! Sources: `proc_pid_status(5)`, `Documentation/scheduler/sched-stats.rst`.

use std::fs;
use std::io;
use std::ops::{Add, Sub};

use swtch_core::{Nanos, Pid, Tid};

/// What the kernel has counted of a thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounters {
    /// Switches at which it left asleep.
    pub voluntary: u64,
    /// Switches at which it left runnable.
    pub involuntary: u64,
    /// `None` where the kernel does not account for it (`CONFIG_SCHED_INFO`).
    pub runs: Option<Schedstat>,
}

/// The three numbers of `/proc/PID/task/TID/schedstat`, in the order of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time that it ran.
    pub ran: Nanos,
    /// Time that it was runnable without running (`run_delay`).
    pub runq: Nanos,
    /// How often it got a CPU.
    pub runs: u64,
}

impl ThreadCounters {
    /// All its switches.
    pub fn switches(&self) -> u64 {
        self.voluntary + self.involuntary
    }

    /// Counters never decrease: if one did, the id belongs to another thread now.
    pub fn is_before(&self, later: &Self) -> bool {
        self.voluntary <= later.voluntary && self.involuntary <= later.involuntary
    }
}

impl Add for ThreadCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let runs = [self.runs, other.runs].into_iter().flatten();
        Self {
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
            runs: runs.reduce(|one, more| Schedstat {
                ran: one.ran + more.ran,
                runq: one.runq + more.runq,
                runs: one.runs + more.runs,
            }),
        }
    }
}

impl Sub for ThreadCounters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        let before = earlier.runs.unwrap_or_default();
        Self {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
            runs: self.runs.map(|now| Schedstat {
                ran: now.ran.saturating_sub(before.ran),
                runq: now.runq.saturating_sub(before.runq),
                runs: now.runs.saturating_sub(before.runs),
            }),
        }
    }
}

/// Name and counters of a thread; `None` when it has ended.
///
/// # Errors
/// The kernel's files of the thread cannot be read or understood.
pub fn read_counters(pid: Pid, tid: Tid) -> io::Result<Option<(String, ThreadCounters)>> {
    let Some(status) = read_if_alive(&format!("/proc/{pid}/task/{tid}/status"))? else {
        return Ok(None);
    };
    let Some(Status {
        name,
        voluntary,
        involuntary,
        ..
    }) = Status::parse(&status)
    else {
        return Err(io::Error::other("no counters in status"));
    };
    let runs = read_if_alive(&format!("/proc/{pid}/task/{tid}/schedstat"))?
        .and_then(|schedstat| runs_of(&schedstat));
    let counters = ThreadCounters {
        voluntary,
        involuntary,
        runs,
    };
    Ok(Some((name, counters)))
}

/// Reads a file of a thread; `None` if the thread is gone (`ENOENT` from open, `ESRCH` from read)
/// or the kernel has no such file.
fn read_if_alive(path: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The fields of `/proc/PID/task/TID/status` that are used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The name, made safe to show.
    pub name: String,
    /// The process id (`Tgid`) of the thread.
    pub pid: Pid,
    /// Switches at which it left asleep.
    pub voluntary: u64,
    /// Switches at which it left runnable.
    pub involuntary: u64,
}

impl Status {
    /// Parses the whole file; `None` if a field is missing or is no number.
    pub fn parse(status: &[u8]) -> Option<Self> {
        let field = |name: &str| {
            status.split(|&byte| byte == b'\n').find_map(|line| {
                let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
                Some(value.trim_ascii())
            })
        };
        let number = |name| std::str::from_utf8(field(name)?).ok()?.parse::<u64>().ok();
        Some(Self {
            name: swtch_output::text::from_bytes(field("Name")?),
            pid: Pid::new(u32::try_from(number("Tgid")?).ok()?),
            voluntary: number("voluntary_ctxt_switches")?,
            involuntary: number("nonvoluntary_ctxt_switches")?,
        })
    }
}

/// Parses run time, run-queue time and runs. A kernel that does not account writes zeros: `None`.
fn runs_of(schedstat: &[u8]) -> Option<Schedstat> {
    let text = std::str::from_utf8(schedstat).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let (ran, runq, runs) = (next()?, next()?, next()?);
    (runs > 0).then(|| Schedstat {
        ran: Nanos::from_ns(ran),
        runq: Nanos::from_ns(runq),
        runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counters(voluntary: u64, involuntary: u64) -> ThreadCounters {
        ThreadCounters {
            voluntary,
            involuntary,
            runs: None,
        }
    }

    #[test]
    fn a_status_of_a_hostile_name_is_read_whole() {
        let status = b"Name:\tevil\xff\x1b\nTgid:\t9\n\
                       voluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t2\n";
        let status = Status::parse(status).unwrap();
        assert_eq!(
            (status.name.as_str(), status.pid),
            ("evil\\xff\u{1b}", Pid::new(9))
        );
        assert_eq!((status.voluntary, status.involuntary), (4, 2));
        assert_eq!(Status::parse(b"Name:\tx\n"), None);
    }

    #[test]
    fn a_kernel_that_does_not_account_gives_no_run_time() {
        let runs = Schedstat {
            ran: Nanos::from_ns(50),
            runq: Nanos::from_ns(20),
            runs: 3,
        };
        assert_eq!(runs_of(b"50 20 3\n"), Some(runs));
        assert_eq!(runs_of(b"0 0 0\n"), None);
        assert_eq!(runs_of(b""), None);
    }

    #[test]
    fn a_sum_with_unknown_parts_holds_the_known_ones() {
        let known = ThreadCounters {
            runs: Some(Schedstat {
                runs: 3,
                ..Schedstat::default()
            }),
            ..counters(1, 0)
        };
        assert_eq!((known + counters(2, 0)).runs, known.runs);
        assert_eq!((counters(2, 0) + counters(1, 0)).runs, None);
    }
}

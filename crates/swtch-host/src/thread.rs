//! Reads what the kernel has counted of one thread; anybody may read it.
//!
//! Sources: `proc_pid_status(5)`, `Documentation/scheduler/sched-stats.rst`.

use std::fs;
use std::io;
use std::ops::{Add, Sub};

use swtch_core::{Nanos, Pid, ProcessStat, Tid};

/// The switches and times that the kernel has counted of a thread since it started.
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
    /// The number of times that it got a CPU.
    pub runs: u64,
}

impl Schedstat {
    /// Returns how long a thread was blocked while so much time `passed` since its `earlier` numbers: when it neither
    /// ran nor waited for a CPU. A run that goes on is known up to the last tick, and a wait in a run queue when it has
    /// ended, so both ends may be off by that much.
    pub fn blocked_since(self, earlier: Self, passed: Nanos) -> Nanos {
        let ran = self.ran.saturating_sub(earlier.ran);
        let runq = self.runq.saturating_sub(earlier.runq);
        passed.saturating_sub(ran).saturating_sub(runq)
    }
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
    // Read before the status: of a thread that ends in between nothing is told then. The other way round it
    // would pass for one of a kernel that does not account for times.
    let runs = read_if_alive(&format!("/proc/{pid}/task/{tid}/schedstat"))?
        .and_then(|schedstat| runs_of(&schedstat));
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
    let counters = ThreadCounters {
        voluntary,
        involuntary,
        runs,
    };
    Ok(Some((name, counters)))
}

/// The state of a thread at the moment of asking, by `/proc/PID/task/TID/syscall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It runs, or could if a CPU were free.
    Running,
    /// It is blocked.
    Blocked(BlockedAt),
}

/// The place at which a thread is blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedAt {
    /// The number of the system call that it is in; `None` outside of calls, as in a page fault.
    pub call: Option<u32>,
    /// The call's first three arguments.
    pub args: [u64; 3],
    /// Stack pointer and address of the next instruction, both in user mode; zero for a thread
    /// that has no stack any more.
    pub stack_pointer: u64,
    /// See [`Self::stack_pointer`].
    pub instruction: u64,
}

/// Reads what a thread does now; `None` when it has ended. The kernel tells it to whom it allows to trace the thread.
///
/// # Errors
/// The kernel refuses (`EPERM`, `EACCES`), or says something that is not understood.
pub fn read_doing(pid: Pid, tid: Tid) -> io::Result<Option<Doing>> {
    let Some(line) = read_if_alive(&format!("/proc/{pid}/task/{tid}/syscall"))? else {
        return Ok(None);
    };
    let doing = Doing::parse(&line);
    doing
        .map(Some)
        .ok_or_else(|| io::Error::other("the line of `syscall` is not understood"))
}

/// Reads how often a thread has got a CPU, which grows with every wait that ends; `None` when it has ended or the
/// kernel does not count it.
///
/// # Errors
/// The file cannot be read.
pub fn read_runs(pid: Pid, tid: Tid) -> io::Result<Option<u64>> {
    let schedstat = read_if_alive(&format!("/proc/{pid}/task/{tid}/schedstat"))?;
    Ok(schedstat
        .and_then(|line| runs_of(&line))
        .map(|runs| runs.runs))
}

/// True if a thread that was blocked there, and had got a CPU so often, has stayed blocked since.
///
/// # Errors
/// As [`read_doing`] and [`read_runs`].
pub fn has_stayed(pid: Pid, tid: Tid, at: BlockedAt, runs: Option<u64>) -> io::Result<bool> {
    match runs {
        Some(_) => Ok(read_runs(pid, tid)? == runs),
        None => Ok(read_doing(pid, tid)? == Some(Doing::Blocked(at))),
    }
}

/// The letter of a thread's state (`S`, `D`, `T`, …); `None` when it has ended.
///
/// # Errors
/// The file cannot be read.
pub fn read_state(pid: Pid, tid: Tid) -> io::Result<Option<char>> {
    let stat = read_if_alive(&format!("/proc/{pid}/task/{tid}/stat"))?;
    Ok(stat.and_then(|line| ProcessStat::parse(&line)?.state()))
}

impl Doing {
    /// Parses the line of `proc_pid_syscall` (`fs/proc/base.c`, v6.18): `running`; or the call's
    /// number, six arguments, stack pointer and instruction; or -1 and the last two.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.trim_ascii();
        if line == "running" {
            return Some(Self::Running);
        }
        let (number, rest) = line.split_once(' ')?;
        let number: i64 = number.parse().ok()?;
        let words = rest.split(' ').map(|word| {
            let digits = word.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        });
        let words: Vec<u64> = words.collect::<Option<_>>()?;
        let (args, stack_pointer, instruction) = match *words.as_slice() {
            [stack_pointer, instruction] => ([0; 3], stack_pointer, instruction),
            [a, b, c, _, _, _, stack_pointer, instruction] => {
                ([a, b, c], stack_pointer, instruction)
            }
            _ => return None,
        };
        Some(Self::Blocked(BlockedAt {
            call: u32::try_from(number).ok(),
            args,
            stack_pointer,
            instruction,
        }))
    }
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
    fn a_line_of_syscall_tells_the_call_and_the_place() {
        let blocked = |call, args| {
            Some(Doing::Blocked(BlockedAt {
                call,
                args,
                stack_pointer: 0x70,
                instruction: 0x80,
            }))
        };
        let call = b"202 0x10 0x80 0x2 0x0 0x0 0x0 0x70 0x80\n";
        assert_eq!(Doing::parse(call), blocked(Some(202), [0x10, 0x80, 2]));
        assert_eq!(Doing::parse(b"-1 0x70 0x80\n"), blocked(None, [0; 3]));
        assert_eq!(Doing::parse(b"running\n"), Some(Doing::Running));
        for nonsense in [
            b"" as &[u8],
            b"7",
            b"7 0x1",
            b"7 1 2",
            b"x 0x1 0x2",
            b"\xff",
        ] {
            assert_eq!(Doing::parse(nonsense), None);
        }
    }

    #[test]
    fn what_oneself_does_is_to_read_that_file() {
        let (pid, tid) = (Pid::new(std::process::id()), Tid::new(own_tid()));
        let Some(Doing::Blocked(at)) = read_doing(pid, tid).unwrap() else {
            panic!("the kernel tells the caller's own call, though it runs");
        };
        assert_eq!(at.call.map(libc::c_long::from), Some(libc::SYS_read));
        assert_eq!(read_state(pid, tid).unwrap(), Some('R'));
        assert_eq!(read_state(pid, Tid::new(u32::MAX)).unwrap(), None);
    }

    fn own_tid() -> u32 {
        let link = fs::read_link("/proc/thread-self").unwrap();
        link.file_name().unwrap().to_str().unwrap().parse().unwrap()
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

    /// Of 100 ns 30 on a CPU and 25 in a run queue: it was blocked for the rest, and never for less
    /// than nothing.
    #[test]
    fn blocked_time_is_what_neither_ran_nor_waited_for_a_cpu() {
        let at = |ran, runq| Schedstat {
            ran: Nanos::from_ns(ran),
            runq: Nanos::from_ns(runq),
            runs: 1,
        };
        let passed = Nanos::from_ns(100);
        let blocked = |later: Schedstat| later.blocked_since(at(10, 5), passed).as_ns();
        assert_eq!(blocked(at(40, 30)), 45);
        assert_eq!(blocked(at(10, 5)), 100);
        assert_eq!(blocked(at(100, 50)), 0);
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

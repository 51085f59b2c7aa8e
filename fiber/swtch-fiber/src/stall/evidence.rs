//! The kernel's data about a thread that makes no progress, read by another thread of the same
//! process, without privilege and without stopping it.
//!
//! | number | source | why this one |
//! |---|---|---|
//! | CPU time | the thread's CPU clock | exact; `stat` counts in 10 ms |
//! | user and kernel part | `getrusage` in the handler, else `stat` | µs, but guessed from ticks |
//! | time in the run queue | `schedstat` | only waits that have *ended* are in it |
//! | switches | `status` | a thread that blocks counts a voluntary one |
//! | state | `stat` | `R` also stands for runnable and not running |
//! | system call | `syscall` | number, arguments and stack pointer while it blocks |
//! | CPU time of preemptive threads | their CPU clocks | who had the CPU instead |
//! | process and machine | process CPU clock, `/proc/stat` | as error 17883 prints them |
//!
//! A value that cannot be read is `None`, never 0.

use std::time::Duration;

use super::capture::Usage;

/// The state of a thread at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadSample {
    /// The moment at which it was taken: `CLOCK_MONOTONIC`, ns.
    pub at_ns: u64,
    /// CPU time of the thread so far, ns.
    pub cpu_ns: Option<u64>,
    /// The part of it in user mode, in steps of 10 ms, ns.
    pub user_ns: Option<u64>,
    /// The part of it in the kernel, in steps of 10 ms, ns.
    pub kernel_ns: Option<u64>,
    /// User and kernel time in finer steps, if the thread itself answered.
    pub usage: Option<Usage>,
    /// Time of ended waits in a run queue, ns.
    pub queued_ns: Option<u64>,
    /// Switches in which the thread blocked.
    pub voluntary: Option<u64>,
    /// Switches in which the thread was preempted, and those of `sched_yield`.
    pub involuntary: Option<u64>,
    /// The letter of `/proc/…/stat`: `R` running or runnable, `S` and `D` blocked.
    pub state: Option<char>,
    /// System call or other place in the kernel.
    pub call: Call,
    /// The kernel function in which it waits, if the kernel tells (`wchan`).
    pub waits_in: Option<String>,
    /// Id and CPU time (ns) of each thread that runs preemptively and last ran on the same CPU.
    pub preemptive: Vec<(i32, u64)>,
    /// CPU time of the process, ns.
    pub process_cpu_ns: Option<u64>,
    /// Idle time of all CPUs, ns, in steps of 10 ms.
    pub idle_ns: Option<u64>,
}

/// The content of `/proc/…/syscall`, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Call {
    /// The file could not be read.
    #[default]
    Unknown,
    /// The thread is on a CPU, or waits for one.
    Running,
    /// The thread is blocked in a system call.
    Inside {
        /// Number of the system call.
        number: i64,
        /// Arguments of the system call.
        arguments: [u64; 6],
        /// Stack pointer in user mode.
        stack_pointer: u64,
        /// Address at which it continues in user mode.
        pc: u64,
    },
    /// The thread is blocked in the kernel outside of a system call, mostly by a page fault.
    Fault {
        /// Stack pointer in user mode.
        stack_pointer: u64,
        /// Address at which it continues in user mode.
        pc: u64,
    },
}

impl ThreadSample {
    /// Samples thread `tid` of this process. `preemptive` names the threads that compete with it on
    /// behalf of its own scheduler.
    pub fn take(tid: i32, preemptive: &[i32]) -> Self {
        let stat = read(tid, "stat").as_deref().and_then(parse_stat);
        let switches = read(tid, "status").map(|text| parse_switches(&text));
        Self {
            at_ns: clock_ns(libc::CLOCK_MONOTONIC).unwrap_or_default(),
            cpu_ns: thread_cpu_ns(tid),
            user_ns: stat.map(|(_, user, _)| user),
            kernel_ns: stat.map(|(_, _, kernel)| kernel),
            usage: None,
            queued_ns: read(tid, "schedstat").as_deref().and_then(parse_queued),
            voluntary: switches.and_then(|(voluntary, _)| voluntary),
            involuntary: switches.and_then(|(_, involuntary)| involuntary),
            state: stat.map(|(state, ..)| state),
            call: call_of(tid),
            waits_in: read(tid, "wchan").filter(|name| !matches!(name.trim(), "" | "0")),
            preemptive: preemptive
                .iter()
                .filter(|other| share_a_cpu(tid, **other))
                .filter_map(|tid| Some((*tid, thread_cpu_ns(*tid)?)))
                .collect(),
            process_cpu_ns: clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID),
            idle_ns: std::fs::read_to_string("/proc/stat")
                .ok()
                .as_deref()
                .and_then(parse_idle),
        }
    }

    /// Returns true if the thread is off the CPU and waits for something other than a CPU.
    pub fn is_blocked(&self) -> bool {
        match self.call {
            Call::Inside { .. } | Call::Fault { .. } => true,
            Call::Running => false,
            Call::Unknown => matches!(self.state, Some('S' | 'D')),
        }
    }
}

/// Returns true if a thread has a CPU or waits for one.
pub(super) fn is_runnable(tid: i32) -> bool {
    let stat = read(tid, "stat");
    stat.as_deref()
        .and_then(parse_stat)
        .is_some_and(|(state, ..)| state == 'R')
}

/// System call or other place in the kernel of a thread of this process.
pub(super) fn call_of(tid: i32) -> Call {
    read(tid, "syscall").map_or(Call::Unknown, |text| parse_call(&text))
}

/// Switches of a thread of this process so far, of both kinds together.
pub(super) fn switches_of(tid: i32) -> Option<u64> {
    let (voluntary, involuntary) = parse_switches(&read(tid, "status")?);
    Some(voluntary? + involuntary?)
}

/// Returns true if two threads last ran on the same CPU; also true when that is not known.
fn share_a_cpu(one: i32, other: i32) -> bool {
    let cpu = |tid| read(tid, "stat").as_deref().and_then(parse_cpu);
    match (cpu(one), cpu(other)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// The CPU on which the thread ran last, from a line of `stat`.
fn parse_cpu(line: &str) -> Option<u32> {
    let (_, rest) = line.rsplit_once(')')?;
    // The 39th field; the third is the first after the name.
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

/// Reads a file of `/proc` about a thread of this process.
fn read(tid: i32, file: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/self/task/{tid}/{file}")).ok()
}

/// Reads a clock, in ns.
fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable; a clock that does not exist is an error.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let time = Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?);
    u64::try_from(time.as_nanos()).ok()
}

/// CPU time of any thread of this process, ns; `None` when it has ended.
///
/// The clock's number is computed from the thread id (`include/linux/posix-timers_types.h`, v6.18:
/// `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`). `pthread_getcpuclockid` does the same, but needs a
/// `pthread_t`, which is invalid once its thread has ended.
fn thread_cpu_ns(tid: i32) -> Option<u64> {
    clock_ns((!tid) << 3 | 4 | 2)
}

/// State, user and kernel time (ns) from a line of `stat`.
fn parse_stat(line: &str) -> Option<(char, u64, u64)> {
    // The name before may contain blanks and brackets; it ends with the last bracket.
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some((state, user * TICK_NS, kernel * TICK_NS))
}

/// Times in `/proc` are in hundredths of a second (`USER_HZ`), on all processors that Linux
/// supports.
const TICK_NS: u64 = 10_000_000;

/// Voluntary and involuntary switches from the text of `status`.
fn parse_switches(status: &str) -> (Option<u64>, Option<u64>) {
    let find = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    (
        find("voluntary_ctxt_switches:"),
        find("nonvoluntary_ctxt_switches:"),
    )
}

/// Time spent in the run queue, ns: the second number of `schedstat`.
fn parse_queued(line: &str) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let ran: u64 = fields.next()?.parse().ok()?;
    let queued: u64 = fields.next()?.parse().ok()?;
    // A kernel without CONFIG_SCHED_INFO prints zeros.
    (ran > 0).then_some(queued)
}

/// `running`, or number, arguments, stack pointer and program counter, or only the last two
/// behind a `-1` (`fs/proc/base.c`, `proc_pid_syscall`, v6.18).
fn parse_call(line: &str) -> Call {
    let mut fields = line.split_ascii_whitespace();
    let number = match fields.next() {
        Some("running") => return Call::Running,
        Some(number) => number.parse::<i64>(),
        None => return Call::Unknown,
    };
    let values: Option<Vec<u64>> = fields
        .map(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok())
        .collect();
    match (number, values.as_deref()) {
        (Ok(-1), Some([stack_pointer, pc])) => Call::Fault {
            stack_pointer: *stack_pointer,
            pc: *pc,
        },
        (Ok(number), Some([a, b, c, d, e, f, stack_pointer, pc])) => Call::Inside {
            number,
            arguments: [*a, *b, *c, *d, *e, *f],
            stack_pointer: *stack_pointer,
            pc: *pc,
        },
        _ => Call::Unknown,
    }
}

/// Idle time of all CPUs, including waiting for a disk, ns.
fn parse_idle(stat: &str) -> Option<u64> {
    let mut fields = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace();
    let idle: u64 = fields.nth(3)?.parse().ok()?;
    let disk: u64 = fields.next()?.parse().ok()?;
    Some((idle + disk) * TICK_NS)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A thread can have any name, also `) R 1`.
    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let line = "77 (a) R 1 b) S 1 2 3 4 5 6 7 8 9 10 25 3 0 0 20 0 1";
        assert_eq!(parse_stat(line), Some(('S', 250_000_000, 30_000_000)));
    }

    /// The three forms of the file, as Linux 6.18 prints them.
    #[test]
    fn a_system_call_is_read_in_its_three_forms() {
        assert_eq!(parse_call("running\n"), Call::Running);
        assert_eq!(
            parse_call("-1 0x7ffc0 0x7fca6\n"),
            Call::Fault {
                stack_pointer: 0x7ffc0,
                pc: 0x7fca6
            }
        );
        assert_eq!(
            parse_call("0 0x3 0x10 0x20000 0x4 0xf 0x0 0x7ffc9692d088 0x7fca624102ad\n"),
            Call::Inside {
                number: 0,
                arguments: [3, 16, 0x20000, 4, 15, 0],
                stack_pointer: 0x7ffc_9692_d088,
                pc: 0x7fca_6241_02ad
            }
        );
        assert_eq!(parse_call(""), Call::Unknown);
        assert_eq!(parse_call("202 0x1\n"), Call::Unknown);
    }

    /// A kernel without the counter must not look like one whose threads never wait.
    #[test]
    fn a_run_queue_time_that_is_not_kept_is_not_known() {
        assert_eq!(parse_queued("349191 17 1\n"), Some(17));
        assert_eq!(parse_queued("0 0 0\n"), None);
    }

    /// `voluntary` must not match inside `nonvoluntary`.
    #[test]
    fn the_two_kinds_of_switches_are_told_apart() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t14\n";
        assert_eq!(parse_switches(status), (Some(3), Some(14)));
    }

    /// The numbers must be those of the given thread, not of the calling one.
    #[test]
    fn a_sleeping_thread_is_seen_in_its_system_call() {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: reads a number.
            send.send(unsafe { libc::gettid() }).unwrap();
            ended.recv().unwrap_err();
        });
        let tid = receive.recv().unwrap();
        // It sends first, and may be anywhere in that when it is looked at. The state and the call
        // are read one after the other.
        let is_in_its_wait = |sample: &ThreadSample| {
            let futex = libc::SYS_futex;
            sample.is_blocked()
                && matches!(sample.call, Call::Inside { number, .. } if number == futex)
        };
        let latest = Instant::now() + Duration::from_secs(60);
        let sample = loop {
            let sample = ThreadSample::take(tid, &[tid]);
            if is_in_its_wait(&sample) {
                break sample;
            }
            assert!(Instant::now() < latest, "{sample:?}");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(sample.preemptive[0].0, tid);
        assert!(sample.cpu_ns.unwrap() < sample.process_cpu_ns.unwrap());
        drop(end);
        thread.join().unwrap();
        assert_eq!(ThreadSample::take(tid, &[]).cpu_ns, None);
    }
}

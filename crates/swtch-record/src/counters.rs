//! Counts switches without privilege, from the counters that the kernel keeps for each task: the
//! first answer of `swtch explain` where nothing can be recorded.
//!
//! Nothing is recorded here. The kernel counts for each task how often it left the CPU asleep
//! (voluntary) and how often runnable (involuntary), how long it ran and how long it was runnable
//! without running; anybody may read these. They tell how many, not why, to whom, or how long.
//!
//! ```text
//!            start                                    end
//!   command  ├──sample──sample──sample──…──sample────▶┤ reaped: getrusage(RUSAGE_CHILDREN)
//!   totals                                             exact for all that was waited for
//!   threads     each by its last sample: may miss the last moments
//! ```
//!
//! A running process (`-p`) is not a child of ours and cannot be reaped: its totals are the sum of
//! the differences of its threads, and a thread that ended in between is counted up to its last
//! sample.
//!
//! What threads wait for is looked at besides, more often than the counters (`waits`): an
//! estimate, where the kernel lets this user trace them.
//!
//! "Nonvoluntary" is not "preempted": the kernel counts there every task that left while runnable,
//! also by `sched_yield` or because its quota was used up (`__schedule`, `kernel/sched/core.c`,
//! v6.18).
//!
//! Sources: `proc_pid_status(5)`, `Documentation/scheduler/sched-stats.rst`, `getrusage(2)`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use swtch_capture::limits::hand_limits_down;
use swtch_capture::signals::hand_signals_down;
use swtch_capture::{Children, process_cpu_ns};
use swtch_core::{Nanos, Pid};
use swtch_host::ability::Obstacle;
use swtch_output::format::Format;
use swtch_output::message;

mod sample;
mod show;
mod signals;
mod waits;

use sample::{Processes, SeenThreads};
use signals::{SignalOrigin, Signals};
use waits::{WaitLooks, WaitsSeen};

/// Time between two samples of the counters as long as they are quick to take.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// A pause lasts at least this many times as long as what was looked at before it took, so that
/// sampling takes at most a tenth of one CPU even with 10,000 threads.
const PAUSE_PER_SAMPLE: u32 = 9;

/// Exit codes that a shell gives for a command that is not found, and for one that cannot be
/// executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// The result of counting: the subject, its totals, and the counters of its threads.
#[derive(Debug)]
struct Count {
    subject: CountersTarget,
    duration: Nanos,
    totals: Totals,
    tally: SeenThreads,
    /// CPU time that counting itself used.
    overhead: Nanos,
    samples: u64,
    /// The longest time between two samples. A thread that ended may lack at most this much of its
    /// counters.
    longest_gap: Nanos,
    waits: WaitsSeen,
}

#[derive(Debug)]
enum CountersTarget {
    Command {
        words: Vec<OsString>,
        exit_code: u8,
        /// Processes that it started and that still ran at the end: not in the totals.
        left_running: usize,
    },
    Processes {
        pids: Vec<Pid>,
        /// The number of them that ended before the time was up.
        ended: usize,
    },
}

/// Switches and CPU time of all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    voluntary: u64,
    involuntary: u64,
    /// Time on the CPU in user mode and in the kernel; unknown apart for running processes.
    user: Option<Nanos>,
    system: Option<Nanos>,
    /// True if the totals are those of `getrusage` for a command that was reaped, and the last
    /// switches of its threads, not sums of samples.
    is_exact: bool,
}

impl Totals {
    fn switches(&self) -> u64 {
        self.voluntary + self.involuntary
    }

    /// The growth between two readings of `RUSAGE_CHILDREN`: all children reaped in between. Of
    /// threads that ended the kernel has left out the last switch; so many were seen.
    fn between(before: &Usage, after: &Usage, last_switches: u64) -> Self {
        let voluntary = grown(
            before.voluntary_context_switches(),
            after.voluntary_context_switches(),
        );
        Self {
            voluntary: voluntary + last_switches,
            involuntary: grown(
                before.involuntary_context_switches(),
                after.involuntary_context_switches(),
            ),
            user: Some(elapsed(before.user_time(), after.user_time())),
            system: Some(elapsed(before.system_time(), after.system_time())),
            is_exact: true,
        }
    }

    fn of_samples(tally: &SeenThreads) -> Self {
        let sum = tally.sum();
        Self {
            voluntary: sum.voluntary,
            involuntary: sum.involuntary,
            user: None,
            system: None,
            is_exact: false,
        }
    }
}

/// The growth of a counter that never decreases.
fn grown(before: i64, after: i64) -> u64 {
    u64::try_from(after - before).unwrap_or_default()
}

fn elapsed(before: TimeVal, after: TimeVal) -> Nanos {
    Nanos::from_ns(grown(before.num_microseconds(), after.num_microseconds()) * 1_000)
}

fn length(span: Duration) -> Nanos {
    Nanos::from_ns(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

fn usage(who: UsageWho) -> Result<Usage> {
    getrusage(who).context("asking for the use of resources")
}

/// Runs a command and writes how often it and its children switched. `obstacles` say why there is
/// no recording. The command keeps our stdin, stdout and stderr; SIGTERM, SIGHUP, SIGINT and
/// SIGQUIT are passed on to it.
///
/// Returns the command's exit code: 128 + n when signal n ended it, 127 when it was not found and
/// 126 when it could not be executed, which is then reported on stderr.
///
/// # Errors
///
/// If there is no command, if signals cannot be caught or counters not read, or if `out` cannot be
/// written.
pub fn explain_command(
    command: &[OsString],
    format: Format,
    obstacles: &[Obstacle],
    out: &mut dyn Write,
) -> Result<u8> {
    let Some((program, arguments)) = command.split_first() else {
        bail!("no command to run");
    };
    // Before the command starts, so that no signal arrives without a handler.
    let signals = Signals::listen().context("listening for signals")?;
    let before = usage(UsageWho::RUSAGE_CHILDREN)?;
    let own_before = process_cpu_ns();
    let started = Instant::now();
    let mut spawn = Command::new(program);
    spawn.args(arguments);
    hand_signals_down(&mut spawn);
    hand_limits_down(&mut spawn);
    let child = match spawn.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(report_not_started(program, &error)),
    };
    let mut watch = SampleLog::default();
    let mut processes = Processes::tree_of(Pid::new(child.id()));
    let status = wait_while_sampling(child, &mut processes, &mut watch, &signals)?;
    let duration = length(started.elapsed());
    let exit_code = exit_code(status);
    processes
        .refresh()
        .context("looking for processes left behind")?;
    let count = Count {
        subject: CountersTarget::Command {
            words: command.to_vec(),
            exit_code,
            left_running: processes.count_running(),
        },
        duration,
        totals: Totals::between(
            &before,
            &usage(UsageWho::RUSAGE_CHILDREN)?,
            watch.tally.last_switches(),
        ),
        overhead: Nanos::from_ns(process_cpu_ns() - own_before),
        samples: watch.samples,
        longest_gap: length(watch.longest_gap),
        waits: watch.waits.added_up(&watch.tally.blocked()),
        tally: watch.tally,
    };
    show::write(&count, format, obstacles, out)?;
    Ok(exit_code)
}

/// Counts the switches of the threads of running processes, and of the processes below them, until
/// `limit` is over, all of them have ended, or SIGINT or SIGTERM asks to stop.
///
/// # Errors
///
/// If a process does not exist, if an id is that of a thread and not of a process, if signals
/// cannot be caught, or if `out` cannot be written.
pub fn explain_processes(
    (pids, children): (&[Pid], Children),
    limit: Option<Duration>,
    format: Format,
    obstacles: &[Obstacle],
    out: &mut dyn Write,
) -> Result<()> {
    let mut processes = Processes::running(pids, children)?;
    let signals = Signals::listen().context("listening for signals")?;
    let own_before = process_cpu_ns();
    let started = Instant::now();
    let mut watch = SampleLog {
        tally: SeenThreads::of_running(),
        ..SampleLog::default()
    };
    loop {
        let pause = watch.go_on(&mut processes)?;
        let left = limit.map_or(pause, |limit| limit.saturating_sub(started.elapsed()));
        if processes.count_ended(pids) == pids.len() || left.is_zero() {
            watch.sample(&mut processes)?;
            break;
        }
        if let Some(signal) = signals.next_within(pause.min(left))
            && signal.number != libc::SIGCHLD
        {
            watch.sample(&mut processes)?;
            break;
        }
    }
    let count = Count {
        duration: length(started.elapsed()),
        totals: Totals::of_samples(&watch.tally),
        subject: CountersTarget::Processes {
            pids: pids.to_vec(),
            ended: processes.count_ended(pids),
        },
        overhead: Nanos::from_ns(process_cpu_ns() - own_before),
        samples: watch.samples,
        longest_gap: length(watch.longest_gap),
        waits: watch.waits.added_up(&watch.tally.blocked()),
        tally: watch.tally,
    };
    show::write(&count, format, obstacles, out)
}

/// The samples taken so far, and how they were spaced.
#[derive(Debug, Default)]
struct SampleLog {
    tally: SeenThreads,
    samples: u64,
    last: Option<Instant>,
    longest_gap: Duration,
    waits: WaitLooks,
}

impl SampleLog {
    /// Looks at what every thread waits for, takes a sample of its counters when that is due, and
    /// returns how long to pause after it.
    fn go_on(&mut self, processes: &mut Processes) -> Result<Duration> {
        let begun = Instant::now();
        let used = process_cpu_ns();
        if self.last.is_none_or(|last| begun - last >= SAMPLE_EVERY) {
            self.sample(processes)?;
        }
        self.waits.look(self.tally.alive());
        // CPU time: on a busy machine much of the time that passes is not ours.
        let used = Duration::from_nanos(process_cpu_ns() - used);
        Ok(waits::pause().max(used * PAUSE_PER_SAMPLE))
    }

    /// Takes a sample of the counters of every thread.
    fn sample(&mut self, processes: &mut Processes) -> Result<()> {
        let begun = Instant::now();
        if let Some(last) = self.last.replace(begun) {
            self.longest_gap = self.longest_gap.max(begun - last);
        }
        processes.refresh().context("looking for processes")?;
        self.tally.sample(processes.pids());
        self.samples += 1;
        self.waits.sampled(self.tally.alive());
        Ok(())
    }
}

/// Returns true if a child has ended. It is not reaped.
fn has_ended(child: &Child) -> Result<bool> {
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Ok(waitid(Id::Pid(pid), flags)? != WaitStatus::StillAlive)
}

/// Samples until the command has ended, and passes signals on to it meanwhile. The last sample is
/// taken after its end and before it is reaped: the counters of its first thread are final then.
fn wait_while_sampling(
    mut child: Child,
    processes: &mut Processes,
    watch: &mut SampleLog,
    signals: &Signals,
) -> Result<ExitStatus> {
    loop {
        let pause = watch.go_on(processes)?;
        if has_ended(&child).context("waiting for the command")? {
            watch.sample(processes)?;
            return child.wait().context("waiting for the command");
        }
        if let Some(signal) = signals.next_within(pause) {
            match signal.origin {
                // The terminal has sent this signal to the command as well.
                SignalOrigin::Kernel => {}
                SignalOrigin::Process => signals::pass_on(signal.number, &child),
            }
        }
    }
}

/// Reports on stderr why the command did not start, and returns the exit code for it.
fn report_not_started(program: &OsStr, error: &io::Error) -> u8 {
    let shown = program.to_string_lossy();
    let program_shown = swtch_output::text::escaped(&shown);
    if is_found(program) {
        message!("error: cannot run {program_shown}: {error}");
        NOT_EXECUTABLE
    } else {
        message!("error: cannot run {program_shown}: no such command (is it in PATH?)");
        NOT_FOUND
    }
}

/// True if a file of this name exists where `execvp` looks. The error of `execvp` does not tell:
/// one directory of PATH that may not be searched turns "not found" into "permission denied".
fn is_found(program: &OsStr) -> bool {
    let is_there = |path: &Path| fs::exists(path).unwrap_or(false);
    if program.as_encoded_bytes().contains(&b'/') {
        return is_there(Path::new(program));
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&directories).any(|directory| is_there(&directory.join(program)))
}

/// The exit code that a shell would give: the command's own, or 128 + the signal.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or_default()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal::SIGKILL;

    use super::*;

    fn words(command: &[&str]) -> Vec<OsString> {
        command.iter().map(OsString::from).collect()
    }

    fn explained(command: &[&str]) -> (u8, serde_json::Value) {
        let mut out = Vec::new();
        let code = explain_command(&words(command), Format::Json, &[], &mut out).unwrap();
        (code, serde_json::from_slice(&out).unwrap_or_default())
    }

    #[test]
    fn a_command_that_is_not_there_gives_127_and_no_report() {
        assert_eq!(
            explained(&["/no/such/command"]),
            (127, serde_json::Value::Null)
        );
    }

    #[test]
    fn a_name_is_sought_where_the_shell_seeks_it() {
        assert!(is_found("sh".as_ref()) && is_found("/bin/sh".as_ref()));
        assert!(!is_found("no-such-command".as_ref()) && !is_found("/no/such".as_ref()));
    }

    #[test]
    fn a_file_that_cannot_be_executed_gives_126() {
        assert_eq!(explained(&["/proc/self/status"]).0, 126);
    }

    #[test]
    fn the_exit_code_of_the_command_is_passed_on() {
        assert_eq!(explained(&["sh", "-c", "exit 7"]).0, 7);
        assert_eq!(explained(&["sh", "-c", "kill -TERM $$"]).0, 128 + 15);
    }

    /// Every sleep is one voluntary switch, and the shell waits for each of them.
    #[test]
    fn switches_of_children_that_were_waited_for_are_counted() {
        let (code, json) = explained(&["sh", "-c", "for i in 1 2 3 4 5; do sleep 0.02; done"]);
        assert_eq!(code, 0);
        assert_eq!(json["trace"]["is_exact"], true);
        assert!(json["trace"]["voluntary"].as_u64().unwrap() >= 10, "{json}");
    }

    #[test]
    fn a_child_that_was_left_behind_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! >{}; sleep 1", file.display());
        let (_, json) = explained(&["sh", "-c", &script]);
        let left = std::fs::read_to_string(file)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(left), SIGKILL).unwrap();
        assert_eq!(json["trace"]["left_running"], 1, "{json}");
    }

    #[test]
    fn a_process_that_is_gone_is_an_error_that_names_it() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid::new(child.id());
        child.wait().unwrap();
        let refusal = explain_processes(
            (&[pid], Children::Recorded),
            None,
            Format::Table,
            &[],
            &mut Vec::new(),
        );
        let refusal = refusal.unwrap_err().to_string();
        assert!(refusal.contains(&format!("no process {pid}")), "{refusal}");
    }

    #[test]
    fn a_process_that_ends_meanwhile_ends_the_count() {
        let mut child = Command::new("sleep").arg("0.2").spawn().unwrap();
        let mut out = Vec::new();
        let (pid, limit) = (Pid::new(child.id()), Duration::from_secs(120));
        let begun = Instant::now();
        explain_processes(
            (&[pid], Children::Recorded),
            Some(limit),
            Format::Json,
            &[],
            &mut out,
        )
        .unwrap();
        assert!(begun.elapsed() < limit, "its end does not end the count");
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["trace"]["ended"], 1);
        child.wait().unwrap();
    }

    /// Switches of a process before counting began are not in its count.
    #[test]
    fn counts_of_a_process_are_differences() {
        let script = "i=0; while [ $i -lt 50 ]; do sleep 0.001; i=$((i+1)); done; exec sleep 600";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let of_child = |file| std::fs::read_to_string(format!("/proc/{}/{file}", child.id()));
        let sleeps = format!("{} ", libc::SYS_clock_nanosleep);
        while of_child("comm").unwrap().trim() != "sleep"
            || !of_child("syscall").unwrap().starts_with(&sleeps)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut out = Vec::new();
        let limit = Some(Duration::from_millis(100));
        let pids = [Pid::new(child.id())];
        let whose = (&pids[..], Children::Recorded);
        explain_processes(whose, limit, Format::Json, &[], &mut out).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["trace"]["switches"], 0, "{json}");
    }
}

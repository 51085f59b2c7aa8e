//! Shared by the examples: command line options, and the counters of this process at both levels.

use std::error::Error;
use std::fs;
use std::ops::Sub;
use std::process::ExitCode;
use std::str::FromStr;

use swtch_fiber::observe::{Mode, Page, Snapshot};

/// The error type of an example.
pub type Failure = Box<dyn Error>;

/// Runs an example and reports an error; or only prints the help, if that is asked for.
pub fn exit_code(help: &str, example: fn() -> Result<(), Failure>) -> ExitCode {
    if std::env::args().any(|word| word == "--help" || word == "-h") {
        print!("{help}");
        return ExitCode::SUCCESS;
    }
    match example() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// The pairs `--NAME VALUE …` of the command line.
pub struct CommandLine(Vec<(String, String)>);

impl CommandLine {
    /// Reads the command line; `known` are the allowed names.
    ///
    /// # Errors
    /// A word without a name or a value, or an unknown name.
    pub fn read(known: &[&str]) -> Result<Self, Failure> {
        let mut words = std::env::args().skip(1);
        let mut pairs = Vec::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").unwrap_or_default();
            if !known.contains(&name) {
                let known = known.join(" N, --");
                return Err(format!("`{word}` means nothing here; there is --{known} N").into());
            }
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?;
            pairs.push((name.to_owned(), value));
        }
        Ok(Self(pairs))
    }

    /// The value of a name, or the default.
    ///
    /// # Errors
    /// When the value cannot be parsed as this type.
    pub fn value<Value: FromStr>(&self, name: &str, default: Value) -> Result<Value, Failure> {
        let mut given = self.0.iter().rev();
        let Some((_, value)) = given.find(|(given, _)| given == name) else {
            return Ok(default);
        };
        let refusal = || format!("--{name} {value}: this is no value for it");
        Ok(value.parse().map_err(|_| refusal())?)
    }
}

/// Counters of one scheduler at both levels; they only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Both {
    /// Times that a worker was switched out.
    pub switches: u64,
    /// Times that a worker gave the scheduler up.
    pub yields: u64,
    /// Yields after which the same worker ran on.
    pub reselects: u64,
    /// Time that workers ran, ns.
    pub running_ns: u64,
    /// Voluntary switches of its threads, counted by the kernel.
    pub voluntary: u64,
    /// Involuntary switches of its threads, counted by the kernel.
    pub involuntary: u64,
    /// CPU time of its threads, ns.
    pub cpu_ns: u64,
}

impl Both {
    /// The counters of one scheduler: its own, and the kernel's for its threads (one in fiber mode,
    /// those of all its workers in thread mode).
    pub fn of(snapshot: &Snapshot, scheduler: usize) -> Self {
        let mut both = Self::default();
        if let Some(row) = snapshot
            .schedulers
            .iter()
            .find(|row| row.scheduler == scheduler)
        {
            both.switches = row.context_switches_count;
            both.yields = row.yield_count;
            both.reselects = row.self_reselect_count;
            both.running_ns = row.total_running_ns;
        }
        let threads = snapshot.threads.iter();
        for thread in threads.filter(|thread| thread.scheduler == Some(scheduler)) {
            both.add_thread(thread.os_thread_id);
        }
        both
    }

    /// Adds the kernel's counters of one thread. Sources: `proc_pid_status(5)`;
    /// `Documentation/scheduler/sched-stats.rst`.
    fn add_thread(&mut self, tid: u32) {
        let read = |file| fs::read_to_string(format!("/proc/self/task/{tid}/{file}"));
        let status = read("status").unwrap_or_default();
        let number = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.trim().parse::<u64>().ok())
        };
        self.voluntary += number("voluntary_ctxt_switches:").unwrap_or(0);
        self.involuntary += number("nonvoluntary_ctxt_switches:").unwrap_or(0);
        let schedstat = read("schedstat").unwrap_or_default();
        let ran = schedstat.split(' ').next().map(str::parse::<u64>);
        self.cpu_ns += ran.and_then(Result::ok).unwrap_or(0);
    }
}

impl Sub for Both {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            switches: self.switches.saturating_sub(earlier.switches),
            yields: self.yields.saturating_sub(earlier.yields),
            reselects: self.reselects.saturating_sub(earlier.reselects),
            running_ns: self.running_ns.saturating_sub(earlier.running_ns),
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
        }
    }
}

/// The page of this process, and the indices of its live schedulers.
///
/// # Errors
/// As [`Page::of_process`].
pub fn own_page() -> Result<(Page, Vec<usize>), Failure> {
    let page = Page::of_process(std::process::id())?;
    let schedulers = page.snapshot()?.schedulers;
    let living = schedulers.iter().filter(|row| row.mode != Mode::Ended);
    let living = living.map(|row| row.scheduler).collect();
    Ok((page, living))
}

/// A length of time in the unit that fits: `41 ns`, `3.98 ms`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// A number with separators, such as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut words = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            words.push(',');
        }
        words.push(digit);
    }
    words
}

/// To the nearest whole number.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rates and lengths of time are far below 2⁵³"
)]
pub fn rounded(number: f64) -> u64 {
    number.round() as u64
}

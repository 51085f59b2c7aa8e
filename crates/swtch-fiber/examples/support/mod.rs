//! What the examples share: words of the command line, and both levels' counters of this process.

use std::error::Error;
use std::fs;
use std::ops::Sub;
use std::process::ExitCode;
use std::str::FromStr;

use swtch_fiber::observe::{Mode, Page, Snapshot};

/// What an example fails with.
pub type Failure = Box<dyn Error>;

/// Runs an example and says what went wrong; or says only how it is called, if that is asked.
pub fn told(help: &str, example: fn() -> Result<(), Failure>) -> ExitCode {
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

/// `--NAME VALUE …` of the command line.
pub struct Words(Vec<(String, String)>);

impl Words {
    /// Reads the command line; `known` are the names that have a meaning.
    ///
    /// # Errors
    /// A word without a name or a value, or a name that is not known.
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

    /// The value of a name.
    ///
    /// # Errors
    /// It is none of this type.
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
    /// Another worker was switched to.
    pub switches: u64,
    /// A worker gave the scheduler up.
    pub yields: u64,
    /// It ran on, since nobody else was runnable.
    pub reselects: u64,
    /// Time that workers ran, ns.
    pub running_ns: u64,
    /// Times that the kernel switched its threads out asleep.
    pub voluntary: u64,
    /// Times that the kernel switched them out runnable.
    pub involuntary: u64,
    /// CPU time of its threads, ns.
    pub cpu_ns: u64,
}

impl Both {
    /// Of a scheduler: its own books, and the kernel's of its threads (one in fiber mode, all its
    /// workers in thread mode).
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

    /// Sources: `proc_pid_status(5)`; `Documentation/scheduler/sched-stats.rst`.
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

/// The page of this process, and which of its schedulers live.
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

/// `1,234,567`.
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

//! A load with a known number of switches of a user-mode scheduler, for recording both levels: it
//! prints what its schedulers and the kernel counted between two moments.
//!
//! ```text
//! two_levels_load MODE SCHEDULERS WORKERS MILLISECONDS [OWN_CODE]
//! two_levels_load fiber 1 4 1000
//! ```
//!
//! Workers scan memory and give the CPU up at the end of each quantum; every fourth yields all the
//! time. The load waits half a second before it begins, so that a recorder can find it. The answer
//! is lines of `key=value` on stdout. To the file `OWN_CODE` it writes when each worker was in its
//! own code, by its own reading of the clock, as lines of `task=… from_ns=… to_ns=…`: from its
//! return from the scheduler until its next call of it.
#![allow(clippy::print_stdout, reason = "the answer of a program")]

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use swtch_fiber::{Mode, Runtime, check_quantum, sleep, spawn, yield_now};
use swtch_observe::{Page, Snapshot, ThreadKind};

/// The counters at one moment.
struct CounterReading {
    monotonic_ns: u64,
    context_switches: u64,
    yields: u64,
    self_reselects: u64,
    /// `(tid, voluntary, involuntary)` of each thread that runs workers.
    threads: Vec<(u32, u64, u64)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mode = match arguments.next().as_deref() {
        Some("thread") => Mode::Thread,
        _ => Mode::Fiber,
    };
    let mut number = |default| -> Result<usize, Box<dyn Error>> {
        Ok(arguments.next().map_or(Ok(default), |word| word.parse())?)
    };
    let (schedulers, workers) = (number(1)?, number(4)?);
    let length = Duration::from_millis(u64::try_from(number(1000)?)?);
    let own_code = arguments.next();
    let runtime = Runtime::builder()
        .mode(mode)
        .schedulers(schedulers)
        .build()?;
    let (before, after, stays) = runtime.run(move || {
        sleep(Duration::from_millis(500));
        let before = CounterReading::now();
        let tasks = (0..workers).map(|index| spawn(move || scan(index, length)));
        let tasks: Result<Vec<_>, _> = tasks.collect();
        let mut stays = Vec::new();
        for task in tasks.into_iter().flatten() {
            let id = task.id();
            // A worker that panicked has printed a message.
            let own = task.join().unwrap_or_default();
            stays.extend(own.into_iter().map(|stay| (id, stay)));
        }
        (before, CounterReading::now(), stays)
    })?;
    tell(&before?, &after?);
    if let Some(file) = own_code {
        let mut lines = String::new();
        for (task, stay) in stays {
            let (from, to) = (stay.start, stay.end);
            writeln!(lines, "task={task} from_ns={from} to_ns={to}")?;
        }
        fs::write(file, lines)?;
    }
    Ok(())
}

/// Scans memory for this long: every fourth worker yields all the time, the others at the end of a
/// quantum. Returns the times during which the worker was in its own code.
fn scan(index: usize, length: Duration) -> Vec<Range<u64>> {
    let mut memory = vec![1_u64; 1 << 15];
    let mut stays = Vec::new();
    let end = Instant::now() + length;
    let mut came = monotonic_ns();
    while Instant::now() < end {
        for word in &mut memory {
            *word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        std::hint::black_box(&memory);
        let goes = monotonic_ns();
        let has_left = if index % 4 == 3 {
            yield_now();
            true
        } else {
            check_quantum()
        };
        if has_left {
            stays.push(came..goes);
            came = monotonic_ns();
        }
    }
    stays.push(came..monotonic_ns());
    stays
}

/// The clock of time stamps in traces, `CLOCK_MONOTONIC`.
fn monotonic_ns() -> u64 {
    // Every Linux kernel has this clock.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

impl CounterReading {
    /// The counters as a worker sees them: no other worker of its scheduler runs meanwhile.
    fn now() -> Result<Self, String> {
        let page = Page::of_process(std::process::id()).map_err(|error| error.to_string())?;
        let snapshot = page.snapshot().map_err(|error| error.to_string())?;
        let sum = |count: fn(&swtch_observe::SchedulerRow) -> u64| {
            snapshot.schedulers.iter().map(count).sum()
        };
        Ok(Self {
            monotonic_ns: snapshot.taken_monotonic_ns,
            context_switches: sum(|row| row.context_switches_count),
            yields: sum(|row| row.yield_count),
            self_reselects: sum(|row| row.self_reselect_count),
            threads: threads(&snapshot),
        })
    }
}

fn threads(snapshot: &Snapshot) -> Vec<(u32, u64, u64)> {
    let run_workers = |kind| {
        matches!(
            kind,
            ThreadKind::Scheduler | ThreadKind::Worker | ThreadKind::Helper
        )
    };
    let threads = snapshot.threads.iter().filter(|row| run_workers(row.kind));
    let counted = threads.filter_map(|row| {
        let path = format!("/proc/self/task/{}/status", row.os_thread_id);
        let status = fs::read_to_string(path).ok()?;
        let count = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse::<u64>().ok()
        };
        Some((
            row.os_thread_id,
            count("voluntary_ctxt_switches:")?,
            count("nonvoluntary_ctxt_switches:")?,
        ))
    });
    counted.collect()
}

fn tell(before: &CounterReading, after: &CounterReading) {
    println!(
        "from_ns={} to_ns={} context_switches={} yields={} self_reselects={}",
        before.monotonic_ns,
        after.monotonic_ns,
        after.context_switches - before.context_switches,
        after.yields - before.yields,
        after.self_reselects - before.self_reselects,
    );
    for (tid, voluntary, involuntary) in &after.threads {
        let then = before.threads.iter().find(|row| row.0 == *tid);
        let (_, was_voluntary, was_involuntary) = then.copied().unwrap_or_default();
        println!(
            "tid={tid} voluntary={} involuntary={}",
            voluntary - was_voluntary,
            involuntary - was_involuntary,
        );
    }
}

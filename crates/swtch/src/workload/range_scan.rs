//! `swtch workload range-scan`: a user-mode scheduler at work, for `swtch fiber PID` to watch.
//!
//! Three workers of one scheduler scan a table in memory and give way at the end of each quantum; a
//! fourth wakes every 10 ms. The kernel sees one busy thread; the switches between the workers are
//! the scheduler's own. (`fiber/swtch-fiber/examples/range_scan.rs` shows both counts each
//! second.)

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use swtch_fiber::{Runtime, TaskBuilder, check_quantum, sleep};
use swtch_output::message;

/// The name of the workload on the command line.
pub const NAME: &str = "range-scan";

/// One line for the list of workloads.
pub const ABOUT: &str = "workers of a user-mode scheduler, to be watched with `swtch fiber PID`";

/// Run time in seconds, unless one is given.
pub const DEFAULT_SECONDS: u64 = 30;

const SCANNERS: usize = 3;

/// Words in the table: 64 MB, more than most caches hold.
const WORDS: usize = 8 << 20;

/// Words that are scanned between two places where a worker may give way: 16 KiB.
const PORTION: usize = 2_048;

/// The time between two wakeups of the fourth worker.
const PERIOD: Duration = Duration::from_millis(10);

/// Runs the workload for some seconds.
///
/// # Errors
/// When the scheduler cannot be started, or a worker panicked.
pub fn run(seconds: u64) -> Result<()> {
    let runtime = Runtime::builder()
        .schedulers(1)
        .name("scan")
        .build()
        .context("starting the scheduler")?;
    let pid = std::process::id();
    message!("swtch: {SCANNERS} workers scan and one sleeps, for {seconds} s: swtch fiber {pid}");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = Vec::new();
    for scanner in 0..SCANNERS {
        let task = TaskBuilder::new().name(&format!("scan {scanner}"));
        tasks.push(runtime.spawn_with(task, move || scan(end))?);
    }
    let sleeper = TaskBuilder::new().name("sleeper");
    tasks.push(runtime.spawn_with(sleeper, move || wake_every_period(end))?);
    for task in tasks {
        task.join().context("a worker")?;
    }
    Ok(())
}

fn scan(end: Instant) {
    let table: Vec<usize> = (0..WORDS).collect();
    for portion in table.chunks(PORTION).cycle() {
        black_box(portion.iter().copied().fold(0, usize::wrapping_add));
        // This costs a single load while the quantum is not used up.
        check_quantum();
        if Instant::now() >= end {
            return;
        }
    }
}

fn wake_every_period(end: Instant) {
    while Instant::now() < end {
        sleep(PERIOD);
    }
}

//! A long scan in memory that yields every 4 ms, and what that means at both levels.
//!
//! Three workers of one scheduler scan the same table again and again, and never block; a fourth
//! wakes every 10 ms and reports how late it was. Each second a line shows what the scheduler
//! counted and what the kernel counted for the same thread. The two counts are independent of each
//! other.
//!
//! ```text
//! cargo run --release -p swtch-fiber --example range_scan -- --seconds 10
//! ```
//!
//! `--help` shows the options.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::{Both, CommandLine, Failure, grouped, own_page, rounded, time};
use swtch_fiber::observe::Page;
use swtch_fiber::{JoinHandle, Mode, Runtime, TaskBuilder, check_quantum, sleep, spawn, yield_now};

mod support;

const HELP: &str = "\
A long scan in memory that gives way every quantum: what the scheduler counts and what the kernel
counts for the same thread, each second.

cargo run --release -p swtch-fiber --example range_scan -- [OPTION N]...

  --megabytes N    the table that is scanned [256]
  --seconds N      how long [10]
  --schedulers N   [1]
  --scanners N     workers that scan, on each scheduler [3]
  --quantum N      ms that a worker runs before it gives way [4]
  --mode MODE      fiber or thread [fiber]
";

/// Numbers that are scanned between two yield points (16 KiB).
const PORTION: usize = 2_048;

/// The period at which the fourth worker wants to wake.
const PERIOD: Duration = Duration::from_millis(10);

struct ScanSettings {
    megabytes: usize,
    seconds: u64,
    schedulers: usize,
    scanners: usize,
    quantum: Duration,
    mode: Mode,
}

/// The results that the workers share with the thread that reports.
#[derive(Default)]
struct SharedResults {
    stop: AtomicBool,
    scanned_bytes: AtomicU64,
    worst_delay_ns: AtomicU64,
}

fn main() -> ExitCode {
    support::exit_code(HELP, run)
}

fn run() -> Result<(), Failure> {
    let settings = ScanSettings::read()?;
    let price_ns = price_of_a_switch(settings.mode)?;
    let runtime = Runtime::builder()
        .schedulers(settings.schedulers)
        .mode(settings.mode)
        .quantum(settings.quantum)
        .name("scan")
        .build()?;
    settings.introduce(price_ns);

    let results = Arc::new(SharedResults::default());
    let table: Arc<[u64]> = (0..settings.megabytes as u64 * 131_072).collect();
    let tasks = start(&runtime, &settings, &table, &results)?;
    report(&settings, &results, price_ns)?;
    results.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.join()?;
    }
    show_waits(&own_page()?.0)
}

impl ScanSettings {
    fn read() -> Result<Self, Failure> {
        let known = [
            "megabytes",
            "seconds",
            "schedulers",
            "scanners",
            "quantum",
            "mode",
        ];
        let words = CommandLine::read(&known)?;
        let mode = words.value("mode", "fiber".to_owned())?;
        Ok(Self {
            megabytes: words.value("megabytes", 256)?,
            seconds: words.value("seconds", 10)?,
            schedulers: words.value("schedulers", 1)?,
            scanners: words.value("scanners", 3)?,
            quantum: Duration::from_millis(words.value("quantum", 4)?),
            mode: match mode.as_str() {
                "fiber" => Mode::Fiber,
                "thread" => Mode::Thread,
                _ => return Err("--mode is fiber or thread".into()),
            },
        })
    }

    fn introduce(&self, price_ns: u64) {
        println!(
            "process {}: {} × {} scans of {} MB, {} mode, quantum {:?}; a user switch takes {}",
            std::process::id(),
            self.schedulers,
            self.scanners,
            self.megabytes,
            match self.mode {
                Mode::Fiber => "fiber",
                Mode::Thread => "thread",
            },
            self.quantum,
            time(price_ns),
        );
        println!();
        println!(
            "              ╭──────── the scheduler counts ────────╮  ╭──── the kernel counts ────╮"
        );
        println!(
            "  time  sched │ switches/s   yields/s  self  mean run │  │ voluntary/s involuntary/s │   \
             CPU  switching     scanned  sleeper late"
        );
    }
}

/// Two workers of a separate runtime yield to each other: CPU time of the thread per switch that
/// the scheduler counted.
fn price_of_a_switch(mode: Mode) -> Result<u64, Failure> {
    const YIELDS: usize = 100_000;
    // The kernel adds the CPU time of a running thread at each tick, that of others at once.
    const UNTIL_BOOKED: Duration = Duration::from_millis(20);
    let runtime = Runtime::builder()
        .schedulers(1)
        .pinned(true)
        .mode(mode)
        .stall_threshold(Duration::ZERO)
        .build()?;
    let (page, schedulers) = own_page()?;
    let scheduler = *schedulers.first().ok_or("a runtime has a scheduler")?;
    let before = Both::of(&page.snapshot()?, scheduler);
    // Started by a worker: if started from outside, the first might end before the second begins.
    runtime.run(|| {
        let yielders = [(); 2].map(|()| spawn(|| (0..YIELDS).for_each(|_| yield_now())));
        for yielder in yielders.into_iter().flatten() {
            drop(yielder.join());
        }
    })?;
    thread::sleep(UNTIL_BOOKED);
    let spent = Both::of(&page.snapshot()?, scheduler) - before;
    Ok(spent.cpu_ns / spent.switches.max(1))
}

fn start(
    runtime: &Runtime,
    settings: &ScanSettings,
    table: &Arc<[u64]>,
    results: &Arc<SharedResults>,
) -> Result<Vec<JoinHandle<()>>, Failure> {
    let mut tasks = Vec::new();
    for scheduler in 0..u32::try_from(settings.schedulers)? {
        for scanner in 0..settings.scanners {
            let place = TaskBuilder::new()
                .name(&format!("scan {scanner}"))
                .on_scheduler(scheduler);
            let (table, results) = (table.clone(), results.clone());
            // Each scan begins at a different position.
            let first = table.len() / settings.scanners * scanner;
            tasks.push(runtime.spawn_with(place, move || scan(&table, first, &results))?);
        }
        let place = TaskBuilder::new().name("sleeper").on_scheduler(scheduler);
        let results = results.clone();
        tasks.push(runtime.spawn_with(place, move || wake_every_period(&results))?);
    }
    Ok(tasks)
}

/// Sums the table up, over and over, and never blocks.
fn scan(table: &[u64], first: usize, results: &SharedResults) {
    let (head, tail) = table.split_at(first);
    while !results.stop.load(Ordering::Relaxed) {
        for portion in tail.chunks(PORTION).chain(head.chunks(PORTION)) {
            black_box(portion.iter().copied().fold(0, u64::wrapping_add));
            let bytes = size_of_val(portion) as u64;
            results.scanned_bytes.fetch_add(bytes, Ordering::Relaxed);
            // This costs one load while the quantum is not used up.
            check_quantum();
            if results.stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

fn wake_every_period(results: &SharedResults) {
    while !results.stop.load(Ordering::Relaxed) {
        let due = Instant::now() + PERIOD;
        sleep(PERIOD);
        let late = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
        results.worst_delay_ns.fetch_max(late, Ordering::Relaxed);
    }
}

/// Prints a line per second for each scheduler.
fn report(settings: &ScanSettings, results: &SharedResults, price_ns: u64) -> Result<(), Failure> {
    let (page, schedulers) = own_page()?;
    let look = || -> Result<Vec<Both>, Failure> {
        let snapshot = page.snapshot()?;
        let each = schedulers.iter();
        Ok(each.map(|index| Both::of(&snapshot, *index)).collect())
    };
    let (mut before, began) = (look()?, Instant::now());
    let mut looked = began;
    for second in 1..=settings.seconds {
        let due = began + Duration::from_secs(second);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let (now, passed) = (look()?, looked.elapsed().as_secs_f64());
        looked = Instant::now();
        let scanned = results.scanned_bytes.swap(0, Ordering::Relaxed);
        let late = results.worst_delay_ns.swap(0, Ordering::Relaxed);
        for (number, (now, before)) in now.iter().zip(&before).enumerate() {
            let line = line(*now - *before, passed, price_ns);
            // What all schedulers share is printed in the first line.
            let shared = match number {
                0 => format!(
                    "{:>7.1} GB/s  {:>12}",
                    scanned as f64 / passed / 1e9,
                    time(late)
                ),
                _ => String::new(),
            };
            println!("{second:>4} s  {number:>5} {line}  {shared}");
        }
        before = now;
    }
    Ok(())
}

fn line(grown: Both, passed: f64, price_ns: u64) -> String {
    let rate = |count: u64| grouped(rounded(count as f64 / passed));
    let mean_run = grown.running_ns.checked_div(grown.switches).unwrap_or(0);
    let cpu = grown.cpu_ns as f64 / passed / 1e7;
    let switching = (grown.switches * price_ns) as f64 / grown.cpu_ns.max(1) as f64 * 100.0;
    format!(
        "│ {:>10} {:>10} {:>5} {:>9} │  │ {:>11} {:>13} │ {cpu:>4.0} %  {switching:>7.4} %",
        rate(grown.switches),
        rate(grown.yields),
        rate(grown.reselects),
        time(mean_run),
        rate(grown.voluntary),
        rate(grown.involuntary),
    )
}

/// Prints what the workers waited for in total: the scans waited only for their turn.
fn show_waits(page: &Page) -> Result<(), Failure> {
    println!(
        "\n  sched  waits                 count       total    of it for the turn     longest"
    );
    for row in page.snapshot()?.wait_stats {
        if row.completed_count > 0 {
            println!(
                "  {:>5}  {:<19} {:>7} {:>11} {:>21} {:>11}",
                row.scheduler,
                row.wait_type,
                grouped(row.completed_count),
                time(row.wait_time_ns),
                time(row.signal_wait_time_ns),
                time(row.max_wait_time_ns),
            );
        }
    }
    Ok(())
}

//! `cargo bench -p swtch-fiber --bench recorded`: the extra cost of a user switch while it is
//! recorded.
//!
//! Two workers yield to each other, in blocks of 20 ms, in one process. A block is measured in one
//! of three ways, always between two blocks without a recorder, and is compared with these two
//! only:
//!
//! ```text
//! plain  plain  plain     no recorder in all three: shows the noise
//! plain  events plain     switches are written into the ring; there is no reader
//! plain  swtch  plain     `swtch record -p` is attached: it reads ring and word on another CPU
//! ```
//!
//! The word that says which worker runs is published in all of them, because it is part of a
//! switch. The recorder reads the word at the kernel's switches only, so its effect on a *user*
//! switch is part of the third kind, with all else that a recorder does. The CPU time of the
//! scheduler's thread is measured. What this does *not* do: judge.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use swtch_core::cost::CONFIDENCE;
use swtch_core::stats::{median, sign_interval};
use swtch_fiber::observe::{Lease, Page};
use swtch_fiber::{Runtime, spawn, yield_now};

const HELP: &str = "cargo bench -p swtch-fiber --bench recorded -- [OPTIONS]

  --swtch FILE     the recorder (target/release/swtch); it needs root
  --rounds N       rounds of all three kinds (9)
  --block-ms N     length of a block (20)";

/// Blocks while a recorder is attached, because attaching takes half a second.
const BLOCKS_WHILE_RECORDED: usize = 5;

/// A recorder that has not attached by then has failed.
const FOUND_WITHIN: Duration = Duration::from_secs(10);

struct Options {
    swtch: PathBuf,
    rounds: usize,
    block: Duration,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() {
        // `cargo test --all-targets` runs benchmarks without arguments, for them to test
        // themselves.
        return ExitCode::SUCCESS;
    }
    if words.iter().any(|word| word == "--help") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match parse(words).and_then(|options| measure(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse(words: Vec<String>) -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        swtch: "target/release/swtch".into(),
        rounds: 9,
        block: Duration::from_millis(20),
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--bench" => {} // cargo's own
            "--swtch" => options.swtch = value()?.into(),
            "--rounds" => options.rounds = value()?.parse()?,
            "--block-ms" => options.block = Duration::from_millis(value()?.parse()?),
            _ => return Err(format!("no option {word:?}; --help lists them").into()),
        }
    }
    Ok(options)
}

/// Two workers on one scheduler, bound to a CPU.
struct WorkerPair {
    runtime: Runtime,
    yields: u64,
}

impl WorkerPair {
    /// Measures how many yields make a block.
    fn new(block: Duration) -> Result<Self, Box<dyn Error>> {
        // On a busy machine the thread may not be scheduled, which is not of interest here.
        let runtime = Runtime::builder()
            .schedulers(1)
            .pinned(true)
            .on_stall(|_| {})
            .build()?;
        let mut pair = Self {
            runtime,
            yields: 200_000,
        };
        // The first block is slow, because caches are cold.
        pair.block()?;
        let ns = pair.block()?;
        #[expect(clippy::cast_possible_truncation, reason = "about so many")]
        let half = (block.as_nanos() as f64 / ns / 2.0) as u64;
        pair.yields = half.max(1) * 2;
        Ok(pair)
    }

    /// Runs one block. Returns CPU time per yield, ns.
    fn block(&self) -> Result<f64, Box<dyn Error>> {
        let yields = self.yields;
        let used = self.runtime.run(move || {
            let one = move || (0..yields / 2).for_each(|_| yield_now());
            let workers = [spawn(one), spawn(one)];
            let start = cpu_time();
            for worker in workers {
                worker
                    .map_err(|error| error.to_string())?
                    .join()
                    .map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(cpu_time() - start)
        })??;
        Ok(used.as_nanos() as f64 / yields as f64)
    }
}

/// CPU time of the calling thread, which in fiber mode runs all workers.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live `timespec`, which the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The amount by which a kind of block cost more than the plain ones beside it, and the cost of those.
#[derive(Default)]
struct BlockCosts {
    plain: Vec<f64>,
    ns: Vec<f64>,
    more: Vec<f64>,
}

impl BlockCosts {
    fn add(&mut self, before: f64, blocks: &[f64], after: f64) {
        let plain = before.midpoint(after);
        let Some(ns) = median(blocks) else {
            return;
        };
        self.plain.push(plain);
        self.ns.push(ns);
        self.more.push(ns - plain);
    }

    fn tell(&self, name: &str) {
        let median = |values: &[f64]| median(values).unwrap_or(f64::NAN);
        let (low, high) = sign_interval(&self.more, CONFIDENCE, None)
            .map_or((f64::NAN, f64::NAN), |found| {
                (found.interval.low, found.interval.high)
            });
        println!(
            "{name:<8} {:>6} {:>9.2} {:>9.2} {:>9.2}   [{low:.2}, {high:.2}]",
            self.more.len(),
            median(&self.plain),
            median(&self.ns),
            median(&self.more),
        );
    }
}

fn measure(options: &Options) -> Result<(), Box<dyn Error>> {
    let pair = WorkerPair::new(options.block)?;
    let page = Page::of_process(std::process::id())?;
    let (mut plain, mut events, mut recorded) = (
        BlockCosts::default(),
        BlockCosts::default(),
        BlockCosts::default(),
    );
    let mut obstacle = None;
    let mut written = 0;
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        plain.add(pair.block()?, &[pair.block()?], pair.block()?);
        let (before, during) = (pair.block()?, while_written(&page, &pair, options.block)?);
        // Skipped if other threads kept the CPU until the lease had ended.
        events.add(before, during.as_slice(), pair.block()?);
        if obstacle.is_none() {
            let before = pair.block()?;
            match while_recorded(&options.swtch, &page, &pair) {
                Ok((blocks, seen)) => {
                    written += seen;
                    recorded.add(before, &blocks, pair.block()?);
                }
                Err(error) => obstacle = Some(error),
            }
        }
    }
    println!(
        "a worker gives way to another: ns of CPU time; interval of the median difference, 95 %"
    );
    println!("kind     rounds     plain        ns      more");
    plain.tell("plain");
    events.tell("events");
    match obstacle {
        Some(error) => println!("swtch    left out: {error}"),
        None => {
            recorded.tell("swtch");
            println!("{written} switches were written while it was attached");
        }
    }
    Ok(())
}

/// A block while switches are written into the ring without a reader; `None` when some were not
/// written.
fn while_written(
    page: &Page,
    pair: &WorkerPair,
    block: Duration,
) -> Result<Option<f64>, Box<dyn Error>> {
    let clock = page.clock().ok_or("the process is too young")?;
    let lease: Lease = page.lease()?;
    // Long enough for an interrupted block. A lease cannot be taken back, so it is waited out.
    let length = 10 * block;
    let until = now_ns() + u64::try_from(length.as_nanos())?;
    lease.renew(clock.ticks(until));
    let mut ring = page.ring(0).ok_or("there is no scheduler")?;
    let ns = pair.block()?;
    let read = ring.read(page, 0, |_| {});
    let are_all_written = read.lost + read.left >= pair.yields;
    while now_ns() < until {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(are_all_written.then_some(ns))
}

/// Blocks while a recorder is attached, and the number of switches written meanwhile.
fn while_recorded(
    swtch: &Path,
    page: &Page,
    pair: &WorkerPair,
) -> Result<(Vec<f64>, u64), Box<dyn Error>> {
    let place = std::env::temp_dir().join(format!("swtch-recorded-{}", std::process::id()));
    let recorder = RecorderProcess::attach(swtch, &place, page, pair)?;
    let mut ring = page.ring(0).ok_or("there is no scheduler")?;
    let blocks = (0..BLOCKS_WHILE_RECORDED).map(|_| pair.block());
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    let read = ring.read(page, 0, |_| {});
    drop(recorder);
    // Wait until the lease of the recorder has ended; it cannot be taken back.
    thread::sleep(Duration::from_millis(1_100));
    Ok((blocks, read.lost + read.left))
}

/// A running `swtch record`, attached to this process.
struct RecorderProcess {
    process: Child,
    trace: PathBuf,
}

impl RecorderProcess {
    /// Starts it, and waits until it records our switches.
    fn attach(
        swtch: &Path,
        trace: &Path,
        page: &Page,
        pair: &WorkerPair,
    ) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(swtch);
        command.args(["record", "-p", &std::process::id().to_string(), "-o"]);
        command.arg(trace).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command
            .spawn()
            .map_err(|error| format!("{}: {error}", swtch.display()))?;
        let mut recorder = Self {
            process,
            trace: trace.to_owned(),
        };
        let mut ring = page.ring(0).ok_or("there is no scheduler")?;
        let start = Instant::now();
        loop {
            pair.block()?;
            let read = ring.read(page, 0, |_| {});
            if read.lost + read.left > 0 {
                return Ok(recorder);
            }
            if let Some(status) = recorder.process.try_wait()? {
                return Err(format!("the recorder ended at once, {status}; it needs root").into());
            }
            if start.elapsed() > FOUND_WITHIN {
                return Err("the recorder did not find the scheduler".into());
            }
        }
    }
}

impl Drop for RecorderProcess {
    fn drop(&mut self) {
        // The recording itself is not needed.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Err(error) = fs::remove_dir_all(&self.trace)
            && error.kind() != io::ErrorKind::NotFound
        {
            eprintln!("{} was left: {error}", self.trace.display());
        }
    }
}

/// Reads the clock `CLOCK_MONOTONIC`, in nanoseconds.
fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live `timespec`, which the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

//! One program in both modes: workers as coroutines, and workers as threads that pass a baton.
//!
//! The program has two parts. In the first, two workers only yield to each other, so the cost of a
//! switch dominates. In the second, three scans use their quanta up, so that cost hardly matters.
//! The scheduler's counters have the same meaning in both modes. The kernel's do not: in thread
//! mode each user switch consists of switches of the kernel.
//!
//! ```text
//! cargo run --release -p swtch-fiber --example modes
//! ```
//!
//! `--help` shows the options.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::{Both, CommandLine, Failure, grouped, own_page, rounded, time};
use swtch_fiber::{Mode, Runtime, check_quantum, yield_now};

mod support;

const HELP: &str = "\
One program in both modes: workers as coroutines, and workers as threads that hand a baton.

cargo run --release -p swtch-fiber --example modes -- [OPTION N]...

  --rounds N    plays of each, in turn [3]
  --seconds N   how long each play is [1]
";

/// One part: how many workers, and what each does.
#[derive(Clone, Copy)]
struct WorkerProgram {
    name: &'static str,
    workers: usize,
    step: fn(),
}

const PROGRAMS: [WorkerProgram; 2] = [
    WorkerProgram {
        name: "2 workers that only yield",
        workers: 2,
        step: yield_now,
    },
    WorkerProgram {
        name: "3 workers that use their quanta up",
        workers: 3,
        step: || {
            black_box((0..2_000_u64).fold(0, |sum, number| black_box(sum + number)));
            check_quantum();
        },
    },
];

/// The results of one run, per second and per switch.
#[derive(Clone, Copy)]
struct RunResult {
    user_per_s: f64,
    os_per_s: f64,
    /// OS switches of one user switch.
    os_per_user: f64,
    /// CPU time of all threads of the scheduler per user switch.
    cpu_ns_per_user: f64,
}

fn main() -> ExitCode {
    support::exit_code(HELP, run)
}

fn run() -> Result<(), Failure> {
    let words = CommandLine::read(&["rounds", "seconds"])?;
    let rounds: usize = words.value("rounds", 3)?;
    let seconds: f64 = words.value("seconds", 1.0)?;
    println!(
        "one scheduler, bound to a CPU; medians of {rounds} rounds of {seconds} s, modes in turn"
    );
    for program in PROGRAMS {
        let (mut fiber, mut thread) = (Vec::new(), Vec::new());
        for _ in 0..rounds.max(1) {
            fiber.push(measure(Mode::Fiber, program, seconds)?);
            thread.push(measure(Mode::Thread, program, seconds)?);
        }
        show(program, &fiber, &thread);
    }
    Ok(())
}

fn measure(mode: Mode, program: WorkerProgram, seconds: f64) -> Result<RunResult, Failure> {
    // On one CPU, so that a hand-off between threads is a switch and not a wakeup of another CPU.
    let runtime = Runtime::builder()
        .schedulers(1)
        .pinned(true)
        .mode(mode)
        // Stalls on a busy machine are not of interest here.
        .stall_threshold(Duration::ZERO)
        .build()?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for _ in 0..program.workers {
        let stop = stop.clone();
        workers.push(runtime.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                (program.step)();
            }
        })?);
    }
    thread::sleep(Duration::from_millis(50)); // workers are made, caches are warm
    let (page, schedulers) = own_page()?;
    let scheduler = *schedulers.first().ok_or("a runtime has a scheduler")?;
    let (before, began) = (Both::of(&page.snapshot()?, scheduler), Instant::now());
    thread::sleep(Duration::from_secs_f64(seconds));
    let (after, passed) = (Both::of(&page.snapshot()?, scheduler), began.elapsed());
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join()?;
    }
    let (grown, passed) = (after - before, passed.as_secs_f64());
    let user = grown.switches.max(1) as f64;
    let os = (grown.voluntary + grown.involuntary) as f64;
    Ok(RunResult {
        user_per_s: user / passed,
        os_per_s: os / passed,
        os_per_user: os / user,
        cpu_ns_per_user: grown.cpu_ns as f64 / user,
    })
}

fn show(program: WorkerProgram, fiber: &[RunResult], thread: &[RunResult]) {
    let median = |results: &[RunResult], value: fn(&RunResult) -> f64| {
        let mut values: Vec<f64> = results.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let count = |number: f64| grouped(rounded(number));
    let length = |ns: f64| time(rounded(ns));
    println!(
        "\n{:<38} {:>14} {:>14}",
        program.name, "fiber mode", "thread mode"
    );
    println!("{}", "─".repeat(68));
    let row = |name: &str, value: fn(&RunResult) -> f64, word: &dyn Fn(f64) -> String| {
        let (fiber, thread) = (median(fiber, value), median(thread, value));
        println!("{name:<38} {:>14} {:>14}", word(fiber), word(thread));
    };
    row("user switches / s", |result| result.user_per_s, &count);
    row(
        "OS switches / s, same threads",
        |result| result.os_per_s,
        &count,
    );
    row(
        "OS switches per user switch",
        |result| result.os_per_user,
        &|ratio| format!("{ratio:.3}"),
    );
    row(
        "CPU time from switch to switch",
        |result| result.cpu_ns_per_user,
        &length,
    );
}

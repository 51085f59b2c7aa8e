//! The driver of a session: one process on one CPU, with a leader for each arm. It goes through the
//! rounds and writes a message for each block.
//!
//! A round is every timed operation once and the sentinel, in an order that changes from round to
//! round. The sentinel is the same user-mode loop and the same system calls every time: if its time
//! changes, the machine's speed has changed.

use std::hint::black_box;
use std::io::PipeWriter;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use swtch_core::cost::order::LatinSquare;
use swtch_core::units::Nanos;

use super::leader::Leader;
use super::message::{self, report};
use super::plan::{Ended, MissingArm, Plan, Sample, Sentinel};
use super::timed_operation::Timing;
use crate::error::Error;
use crate::signals_held::SignalsHeld;
use crate::{clock, cpu};

/// Longest time to wait until the sentinel is steady.
const WARM_UP: Duration = Duration::from_secs(1);

/// Consecutive readings of the sentinel that must agree within [`STEADY`].
const STEADY_READINGS: usize = 3;

/// Largest relative difference among [`STEADY_READINGS`] readings that count as steady.
const STEADY: f64 = 0.02;

/// A report of the driver to the session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DriverReport {
    /// The next leader is being started. Failures that follow are its own.
    Starting,
    /// The leader of an arm did not start.
    Missing(MissingArm),
    /// The first round follows.
    WarmedUp {
        /// True if the sentinel was steady.
        is_steady: bool,
    },
    /// A block is done.
    Sample(Sample),
    /// The machine's speed was measured.
    Sentinel(Sentinel),
    /// All is done.
    Ended(Ended),
}

/// A timed operation of a leader that has started, with the length of its blocks.
struct ReadyOperation {
    arm: usize,
    timed_operation: usize,
    /// Number of operations that take about the length of a block.
    operations: u64,
}

/// Goes through the rounds of `plan`. Ends early, without an error, when the reader closes the
/// pipe.
pub(super) fn run(plan: &Plan, seed: u64, out: PipeWriter) -> Result<(), Error> {
    message::set_members_fd(out.as_raw_fd());
    // Ctrl-C reaches the whole process group. The signal is held back, because a system call that
    // it interrupts would fail. The tree ends when the reader closes the pipe, and each member can
    // clean up first.
    let _held = SignalsHeld::hold()?;
    match rounds(plan, seed, &out) {
        Err(Error::Call { call: "write", .. }) => Ok(()),
        Err(error) => message::fail(&error),
        done => done,
    }
}

fn rounds(plan: &Plan, seed: u64, writer: &PipeWriter) -> Result<(), Error> {
    let start = Instant::now();
    if let Some(cpu) = plan.cpu {
        cpu::pin_and_remember(cpu as usize)?;
    }
    let mut leaders = start_leaders(plan, writer)?;
    let operations = calibrate(plan, &mut leaders)?;
    let square = LatinSquare::new(operations.len() + 1, seed);
    warm_up(&mut leaders, &operations, &square, writer)?;
    for round in 0..plan.rounds {
        if round >= plan.least_rounds && start.elapsed() >= plan.limit {
            return report(writer, &DriverReport::Ended(Ended::Limit));
        }
        for index in square.row(round) {
            let found = match operations.get(index) {
                None => DriverReport::Sentinel(sentinel(round)),
                Some(ready) => DriverReport::Sample(sample(round, &mut leaders, ready)?),
            };
            report(writer, &found)?;
        }
    }
    report(writer, &DriverReport::Ended(Ended::Done))
}

fn start_leaders(plan: &Plan, writer: &PipeWriter) -> Result<Vec<Option<Leader>>, Error> {
    let mut leaders = Vec::new();
    for (arm, spec) in plan.arms.iter().enumerate() {
        report(writer, &DriverReport::Starting)?;
        let started = Leader::start(spec);
        if let Err(error) = &started {
            let why = error.to_string();
            report(writer, &DriverReport::Missing(MissingArm { arm, why }))?;
        }
        leaders.push(started.ok());
    }
    Ok(leaders)
}

fn block(
    leaders: &mut [Option<Leader>],
    ready: &ReadyOperation,
    operations: u64,
) -> Result<Timing, Error> {
    let leader = leaders[ready.arm].as_mut();
    leader
        .expect("invariant: only operations of leaders that started are ready")
        .block(ready.timed_operation, operations)
}

fn sample(
    round: usize,
    leaders: &mut [Option<Leader>],
    ready: &ReadyOperation,
) -> Result<Sample, Error> {
    let timing = block(leaders, ready, ready.operations)?;
    Ok(Sample {
        round,
        arm: ready.arm,
        timed_operation: ready.timed_operation,
        operations: timing.operations,
        elapsed: timing.elapsed,
        counted: timing.counted,
        counted_over: timing.counted_over,
        live: timing.live,
    })
}

/// Determines for each timed operation how many repetitions make a block.
fn calibrate(plan: &Plan, leaders: &mut [Option<Leader>]) -> Result<Vec<ReadyOperation>, Error> {
    let mut calibrated = Vec::new();
    for (arm, spec) in plan.arms.iter().enumerate() {
        if leaders[arm].is_none() {
            continue;
        }
        let is_needed = |operation: &usize| !plan.unneeded.contains(&(arm, *operation));
        for timed_operation in (0..spec.timed_operation_count()).filter(is_needed) {
            let mut ready = ReadyOperation {
                arm,
                timed_operation,
                operations: 1,
            };
            ready.operations =
                operations_in(plan.block, |operations| block(leaders, &ready, operations))?;
            calibrated.push(ready);
        }
    }
    Ok(calibrated)
}

/// Doubles the operations until they take a quarter of a block, and extrapolates from there.
fn operations_in(
    length: Duration,
    mut block: impl FnMut(u64) -> Result<Timing, Error>,
) -> Result<u64, Error> {
    let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let mut operations = 1;
    loop {
        let timing = block(operations)?;
        let elapsed = timing.elapsed.as_ns().max(1);
        if elapsed >= length / 4 {
            return Ok((timing.operations * length / elapsed).max(1));
        }
        operations = (timing.operations * 2).max(timing.operations * length / elapsed / 4);
    }
}

/// Runs rounds, and discards them, until the sentinel is steady.
fn warm_up(
    leaders: &mut [Option<Leader>],
    operations: &[ReadyOperation],
    square: &LatinSquare,
    writer: &PipeWriter,
) -> Result<(), Error> {
    let start = Instant::now();
    let mut readings: Vec<f64> = Vec::new();
    for round in 0.. {
        for index in square.row(round) {
            if let Some(ready) = operations.get(index) {
                block(leaders, ready, ready.operations)?;
            }
        }
        readings.push(as_f64(sentinel_times().0));
        let is_steady = is_steady(&readings);
        if is_steady || start.elapsed() >= WARM_UP {
            return report(writer, &DriverReport::WarmedUp { is_steady });
        }
    }
    unreachable!("the rounds have no end")
}

fn is_steady(readings: &[f64]) -> bool {
    let Some(last) = readings.last_chunk::<STEADY_READINGS>() else {
        return false;
    };
    let lowest = last.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = last.iter().copied().fold(0.0, f64::max);
    highest <= lowest * (1.0 + STEADY)
}

fn sentinel(round: usize) -> Sentinel {
    let (user, calls) = sentinel_times();
    Sentinel { round, user, calls }
}

/// Time of a fixed loop in user mode (about 50 µs; the median of three), and of a hundred system
/// calls that do nothing.
fn sentinel_times() -> (Nanos, Nanos) {
    let mut loops = [(); 3].map(|()| {
        timed(|| {
            let mut state = black_box(1_u64);
            for _ in 0..40_000 {
                // A chain of dependent steps, which no compiler can shorten.
                state = black_box(
                    state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1),
                );
            }
        })
    });
    loops.sort();
    let calls = timed(|| {
        for _ in 0..100 {
            // SAFETY: getppid has no arguments and cannot fail.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    });
    (loops[1], calls)
}

fn timed(work: impl FnOnce()) -> Nanos {
    let start = clock::raw();
    work();
    clock::raw().since(start).unwrap_or_default()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "lengths below an hour are exact"
)]
fn as_f64(length: Nanos) -> f64 {
    length.as_ns() as f64
}

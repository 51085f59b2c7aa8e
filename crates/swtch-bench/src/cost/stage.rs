//! The driver of a session: one process on one CPU, with a leader for each arm. It goes through the
//! rounds and writes a line for each block. Names in the code and messages call it the stage.
//!
//! A round is every timed operation once and the sentinel, in an order that changes from round to
//! round. The sentinel is the same user-mode loop and the same system calls every time: if its time
//! changes, the machine's speed has changed.

use std::hint::black_box;
use std::io::{PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use swtch_core::cost::order::LatinSquare;
use swtch_core::units::Nanos;

use super::act::Timing;
use super::leader::{self, Leader};
use super::session::Plan;
use super::work::LiveRegisters;
use crate::error::Error;
use crate::signals_held::SignalsHeld;
use crate::{clock, cpu};

/// Longest time to wait until the sentinel is steady.
const WARM_UP: Duration = Duration::from_secs(1);

/// Consecutive readings of the sentinel that must agree within [`STEADY`].
const STEADY_READINGS: usize = 3;

/// Largest relative difference among [`STEADY_READINGS`] readings that count as steady.
const STEADY: f64 = 0.02;

/// A timed operation of a leader that has started, with the length of its blocks.
struct ReadyOperation {
    arm: usize,
    act: usize,
    /// Number of operations that take about the length of a block.
    operations: u64,
}

/// Goes through the rounds of `plan`. Ends early, without an error, when the reader closes the
/// pipe.
pub(super) fn run(plan: &Plan, seed: u64, out: PipeWriter) -> Result<(), Error> {
    leader::set_error_fd(out.as_raw_fd());
    // Ctrl-C reaches the whole process group. The signal is held back, because a system call that
    // it interrupts would fail. The tree ends when the reader closes the pipe, and each member can
    // clean up first.
    let _held = SignalsHeld::hold()?;
    match rounds(plan, seed, &mut SessionWriter(out)) {
        Err(Error::Call { call: "write", .. }) => Ok(()),
        Err(error) => leader::fail(&error),
        done => done,
    }
}

fn rounds(plan: &Plan, seed: u64, script: &mut SessionWriter) -> Result<(), Error> {
    let start = Instant::now();
    if let Some(cpu) = plan.cpu {
        cpu::move_from_all_to(cpu as usize)?;
    }
    let mut leaders = start_leaders(plan, script)?;
    let mut acts = calibrate(plan, &mut leaders)?;
    let square = LatinSquare::new(acts.len() + 1, seed);
    warm_up(&mut leaders, &acts, &square, script)?;
    for round in 0..plan.rounds {
        if round >= plan.least_rounds && start.elapsed() >= plan.limit {
            return script.line("ended limit");
        }
        for index in square.row(round) {
            match acts.get_mut(index) {
                None => script.sentinel(round)?,
                Some(ready) => {
                    let timing = block(&mut leaders, ready, ready.operations)?;
                    script.sample(round, ready, &timing)?;
                }
            }
        }
    }
    script.line("ended done")
}

fn start_leaders(plan: &Plan, script: &mut SessionWriter) -> Result<Vec<Option<Leader>>, Error> {
    let mut leaders = Vec::new();
    for (arm, spec) in plan.arms.iter().enumerate() {
        script.line(&format!("starting {arm}"))?;
        let started = Leader::start(spec);
        if let Err(error) = &started {
            script.line(&format!("missing {arm} {error}"))?;
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
        .expect("invariant: only acts of leaders that started are ready")
        .block(ready.act, operations)
}

/// Determines for each timed operation how many repetitions make a block.
fn calibrate(plan: &Plan, leaders: &mut [Option<Leader>]) -> Result<Vec<ReadyOperation>, Error> {
    let mut acts = Vec::new();
    for (arm, spec) in plan.arms.iter().enumerate() {
        if leaders[arm].is_none() {
            continue;
        }
        let is_needed = |act: &usize| !plan.unneeded.contains(&(arm, *act));
        for act in (0..spec.act_count()).filter(is_needed) {
            let mut ready = ReadyOperation {
                arm,
                act,
                operations: 1,
            };
            ready.operations =
                operations_in(plan.block, |operations| block(leaders, &ready, operations))?;
            acts.push(ready);
        }
    }
    Ok(acts)
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
    acts: &[ReadyOperation],
    square: &LatinSquare,
    script: &mut SessionWriter,
) -> Result<(), Error> {
    let start = Instant::now();
    let mut readings: Vec<f64> = Vec::new();
    for round in 0.. {
        for index in square.row(round) {
            if let Some(ready) = acts.get(index) {
                block(leaders, ready, ready.operations)?;
            }
        }
        readings.push(as_f64(sentinel().0));
        let is_steady = is_steady(&readings);
        if is_steady || start.elapsed() >= WARM_UP {
            let word = if is_steady { "steady" } else { "unsteady" };
            return script.line(&format!("warm {} {word}", round + 1));
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

/// Time of a fixed loop in user mode (about 50 µs; the median of three), and of a hundred system
/// calls that do nothing.
fn sentinel() -> (Nanos, Nanos) {
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

/// Writes the lines that `session` reads: a word and its values.
struct SessionWriter(PipeWriter);

impl SessionWriter {
    fn line(&mut self, line: &str) -> Result<(), Error> {
        let line = format!("{line}\n");
        self.0
            .write_all(line.as_bytes())
            .map_err(Error::calling("write"))
    }

    fn sample(
        &mut self,
        round: usize,
        ready: &ReadyOperation,
        timing: &Timing,
    ) -> Result<(), Error> {
        let [always, ever] = LiveRegisters::to_pair(timing.live);
        self.line(&format!(
            "sample {round} {} {} {} {} {} {} {} {always} {ever}",
            ready.arm,
            ready.act,
            timing.operations,
            timing.elapsed.as_ns(),
            timing.counted.voluntary,
            timing.counted.involuntary,
            timing.counted_over,
        ))
    }

    fn sentinel(&mut self, round: usize) -> Result<(), Error> {
        let (user, calls) = sentinel();
        self.line(&format!(
            "sentinel {round} {} {}",
            user.as_ns(),
            calls.as_ns()
        ))
    }
}

//! Rounds: in each round every arm runs once, one after the other on one CPU.
//!
//! ```text
//! start 1   all arms are started anew     round 1   A B C D …
//!                                         round 2   B C D … A      each letter a block of 20 ms
//! start 2   all arms are started anew     round 3   C D … A B
//! ```
//!
//! The speed of a machine drifts. Blocks of one round are close in time, so only those are divided
//! by each other. The placement of memory differs by process and not by block, so starts count as
//! independent, not rounds: an interval is computed from the medians of starts.

use std::io;

use crate::arms::{self, BenchArm};
use crate::build::PeerPrograms;
use crate::child::{ArmProcess, BlockResult};

/// Operations of a first try; all numbers of operations are multiples of it, because of pairs and
/// batches.
const STEP: u64 = 128;

/// The numbers of starts and rounds, and the length of the blocks that are measured.
#[derive(Clone, Copy, Debug)]
pub struct MeasurementPlan {
    /// The number of times that all arms are started anew.
    pub starts: usize,
    /// Number of rounds between two starts.
    pub rounds: usize,
    /// Length of a block, ns.
    pub block_ns: f64,
}

impl MeasurementPlan {
    /// Enough starts for an interval that does not depend on the extremes.
    pub const FULL: Self = Self {
        starts: 9,
        rounds: 2,
        block_ns: 20e6,
    };

    /// Tests that it works, not how fast.
    pub const QUICK: Self = Self {
        starts: 3,
        rounds: 1,
        block_ns: 5e6,
    };
}

/// All measurements of one arm.
#[derive(Debug)]
pub struct ArmMeasurements {
    /// The arm that was measured.
    pub arm: BenchArm,
    /// The name by which the arm announces itself.
    pub about: String,
    /// Its blocks: by start, then by round. All complete arms have the same shape.
    pub blocks: Vec<Vec<BlockResult>>,
    /// The reason why the arm is incomplete; its blocks must not be used then.
    pub failed: Option<String>,
    operations: u64,
}

impl ArmMeasurements {
    fn new(arm: BenchArm) -> Self {
        Self {
            arm,
            about: String::new(),
            blocks: Vec::new(),
            failed: None,
            operations: 0,
        }
    }

    /// Stores the error of `result`; an arm that failed once is not run any more.
    fn keep<T>(&mut self, result: io::Result<T>) -> Option<T> {
        result
            .inspect_err(|error| self.failed = Some(error.to_string()))
            .ok()
    }
}

/// Measures all arms in `wanted`.
pub fn measure(
    wanted: &[BenchArm],
    programs: &PeerPrograms,
    plan: MeasurementPlan,
) -> Vec<ArmMeasurements> {
    let mut records: Vec<ArmMeasurements> =
        wanted.iter().copied().map(ArmMeasurements::new).collect();
    for start in 0..plan.starts {
        let mut children: Vec<Option<ArmProcess>> = records
            .iter_mut()
            .map(|record| started(record, programs, plan))
            .collect();
        for round in 0..plan.rounds {
            let shift = start * plan.rounds + round;
            for place in 0..records.len() {
                let place = (place + shift) % records.len();
                let record = &mut records[place];
                let Some(child) = children[place].as_mut() else {
                    continue;
                };
                match record.keep(child.run(record.operations)) {
                    Some(block) => record.blocks[start].push(block),
                    None => children[place] = None,
                }
            }
        }
        eprint!("\rstart {} of {}", start + 1, plan.starts);
    }
    eprintln!();
    records
}

/// Starts the arm of `record` and warms it up; `None`, with the reason in the record, when that
/// fails.
fn started(
    record: &mut ArmMeasurements,
    programs: &PeerPrograms,
    plan: MeasurementPlan,
) -> Option<ArmProcess> {
    if record.failed.is_some() {
        return None;
    }
    record.blocks.push(Vec::new());
    let program = programs.get(record.arm.program).map_err(io::Error::other);
    let mut child =
        record.keep(program.and_then(|program| ArmProcess::start(&record.arm, program)))?;
    record.about.clone_from(&child.about);
    let operations = if record.operations == 0 {
        calibrated(&mut child, plan.block_ns)
    } else {
        child
            .run(record.operations / 8 / STEP * STEP)
            .map(|_| record.operations)
    };
    record.operations = record.keep(operations)?;
    Some(child)
}

/// The number of operations that takes about `block_ns`, found by ever longer tries.
fn calibrated(child: &mut ArmProcess, block_ns: f64) -> io::Result<u64> {
    let mut operations = STEP;
    loop {
        let block = child.run(operations)?;
        let times = block_ns / block.cpu_ns.max(1.0);
        if times < 1.5 {
            return Ok(operations);
        }
        // At most ten times the last one, because the first tries are slower than later ones.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a number of steps between 1 and ten times the last"
        )]
        let steps = (operations as f64 / STEP as f64 * times.min(10.0)) as u64;
        operations = steps.max(1) * STEP;
    }
}

/// The arms whose name or group is in `only`, or all; always with the first of their group and the
/// sentinel.
///
/// # Errors
/// When a word is neither a name nor a group.
pub fn chosen(only: &[String]) -> Result<Vec<BenchArm>, String> {
    let is = |arm: &BenchArm, word: &String| word == arm.name || word == arm.group.as_str();
    if let Some(word) = only
        .iter()
        .find(|word| !arms::ALL.iter().any(|arm| is(arm, word)))
    {
        return Err(format!("there is no arm and no group {word:?}"));
    }
    let named = |arm: &&BenchArm| only.is_empty() || only.iter().any(|word| is(arm, word));
    let groups: Vec<_> = arms::ALL
        .iter()
        .filter(named)
        .map(|arm| arm.group)
        .collect();
    let first = |arm: &BenchArm| {
        let of_group = arms::ALL.iter().find(|other| other.group == arm.group);
        of_group.is_some_and(|first| first.name == arm.name) && groups.contains(&arm.group)
    };
    let kept = |arm: &&BenchArm| named(arm) || first(arm) || arm.name == arms::SENTINEL;
    Ok(arms::ALL.iter().filter(kept).copied().collect())
}

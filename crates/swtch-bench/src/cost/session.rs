//! The caller's side of a session: starts the driver, reads its lines, and ends it.

use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use swtch_core::units::Nanos;

use super::arm::ArmSpec;
use super::stage;
use super::work::LiveRegisters;
use crate::error::Error;
use crate::outcome::SwitchCounts;
use crate::process::ForkedChild;
use crate::token::SysvSemaphore;

/// A plan: arms that are timed side by side, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The arms; other types refer to them by index.
    pub arms: Vec<ArmSpec>,
    /// Timed operations that are left out, as (arm, act). It saves time: a ring's hot baseline
    /// takes as long as the ring.
    pub unneeded: Vec<(usize, usize)>,
    /// The CPU of the driver and of arms that name none; `None` leaves both free.
    pub cpu: Option<u32>,
    /// Approximate length of a block. 1 ms is best; longer blocks pick up other noise.
    pub block: Duration,
    /// Largest number of rounds in one process tree.
    pub rounds: usize,
    /// Rounds that are completed even after `limit` has passed.
    pub least_rounds: usize,
    /// Time after which a process tree ends although rounds are left.
    pub limit: Duration,
}

/// One block of one timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Number of the round, from 0.
    pub round: usize,
    /// Index of the arm in [`Plan::arms`].
    pub arm: usize,
    /// Index of the timed operation within its arm ([`ArmSpec`] says what each is).
    pub act: usize,
    /// Number of operations that were timed.
    pub operations: u64,
    /// Wall time of all these operations.
    pub elapsed: Nanos,
    /// Switches of all members over exactly [`Self::counted_over`] operations, as the kernel
    /// counted them. For a ring of locks in which nobody should be preempted, the involuntary ones
    /// are those of the whole block.
    pub counted: SwitchCounts,
    /// The timed operations; for a ring of locks also those around them, because reading the
    /// counters of many threads would be part of the time.
    pub counted_over: u64,
    /// Registers of all members that were live at the hand-overs, for work that touches registers.
    pub live: Option<LiveRegisters>,
}

/// One measurement of the machine's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentinel {
    /// Number of the round, from 0.
    pub round: usize,
    /// Time of a fixed loop in user mode.
    pub user: Nanos,
    /// Time of a hundred system calls that do nothing.
    pub calls: Nanos,
}

/// The reason why a process tree ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All rounds of the plan were done.
    Done,
    /// The plan's limit of time was reached.
    Limit,
    /// The caller asked to stop.
    Stopped,
}

/// An arm that this machine cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingArm {
    /// Index of the arm in [`Plan::arms`].
    pub arm: usize,
    /// The reason, in the words of the failed member if it gave one.
    pub why: String,
}

/// The results of one new process tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// All blocks, in the order in which they were performed.
    pub samples: Vec<Sample>,
    /// All readings of the sentinel, in order.
    pub sentinels: Vec<Sentinel>,
    /// Arms that could not be started.
    pub missing: Vec<MissingArm>,
    /// Whether the sentinel was steady before the first round.
    pub was_steady: bool,
    /// The reason why the tree ended.
    pub ended: Ended,
}

impl Plan {
    /// Times all arms in one new process tree. `seed` determines the order of the rounds.
    ///
    /// Call it in a process that has no other thread. `stop` is checked after every block.
    /// `on_round` is called with the number of each round that begins.
    ///
    /// # Errors
    ///
    /// A process cannot be made, or one of the tree failed after it had started. An arm that cannot
    /// be started is no error ([`Tree::missing`]).
    pub fn time(
        &self,
        seed: u64,
        stop: &AtomicBool,
        mut on_round: impl FnMut(usize),
    ) -> Result<Tree, Error> {
        let (reader, writer) = pipe().map_err(Error::calling("pipe2"))?;
        let mut writer = Some(writer);
        let mut stage = ForkedChild::fork_surviving(|| {
            let writer = writer.take().expect("invariant: a process has one act");
            stage::run(self, seed, writer)
        })?;
        drop(writer);
        let mut sets = Vec::new();
        let tree = read(reader, stop, &mut on_round, &mut sets);
        stage.wait_at_most(Duration::from_secs(5));
        // If the driver was killed, its leaders died with it, and their semaphore sets were not
        // removed. After an orderly end the sets are gone, and removing them again does nothing.
        sets.into_iter().for_each(SysvSemaphore::remove);
        tree
    }
}

/// Reads all lines, or until `stop` is set. It closes the pipe on return, which ends the driver.
/// `sets` receives the semaphore sets that leaders have created.
fn read(
    reader: PipeReader,
    stop: &AtomicBool,
    on_round: &mut dyn FnMut(usize),
    sets: &mut Vec<i32>,
) -> Result<Tree, Error> {
    let mut tree = Tree {
        samples: Vec::new(),
        sentinels: Vec::new(),
        missing: Vec::new(),
        was_steady: false,
        ended: Ended::Stopped,
    };
    let mut complaint = None;
    let mut round = None;
    for line in BufReader::new(reader).lines() {
        if stop.load(Ordering::Relaxed) {
            return Ok(tree);
        }
        let line = line.map_err(Error::calling("read"))?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "sample" => tree.samples.push(sample(rest)),
            "sentinel" => tree.sentinels.push(sentinel(rest)),
            // The first failure is the cause of the others.
            "failed" => complaint = complaint.or_else(|| Some(rest.to_owned())),
            "set" => sets.extend(rest.parse::<i32>()),
            "starting" => complaint = None,
            "missing" => tree.missing.push(missing(rest, complaint.take())),
            "warm" => tree.was_steady = rest.ends_with(" steady"),
            "ended" => {
                tree.ended = if rest == "limit" {
                    Ended::Limit
                } else {
                    Ended::Done
                };
                return Ok(tree);
            }
            _ => unreachable!("the stage writes no other line: {line}"),
        }
        let now = tree.samples.last().map(|sample| sample.round);
        if now != round {
            round = now;
            on_round(now.unwrap_or_default());
        }
    }
    Err(Error::Member(complaint.unwrap_or_else(|| {
        "the process that measures is gone".to_owned()
    })))
}

fn numbers<const N: usize>(rest: &str) -> [u64; N] {
    let mut words = rest.split(' ').map(|word| {
        word.parse()
            .expect("invariant: the stage writes whole lines of numbers")
    });
    [(); N].map(|()| words.next().expect("invariant: as many as it reads"))
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("invariant: the stage counts in usize")
}

fn sample(rest: &str) -> Sample {
    let [
        round,
        arm,
        act,
        operations,
        ns,
        voluntary,
        involuntary,
        counted_over,
        always,
        ever,
    ] = numbers(rest);
    Sample {
        round: index(round),
        arm: index(arm),
        act: index(act),
        operations,
        elapsed: Nanos::from_ns(ns),
        counted: SwitchCounts {
            voluntary,
            involuntary,
        },
        counted_over,
        live: LiveRegisters::from_pair([always, ever]),
    }
}

fn sentinel(rest: &str) -> Sentinel {
    let [round, user, calls] = numbers(rest);
    Sentinel {
        round: index(round),
        user: Nanos::from_ns(user),
        calls: Nanos::from_ns(calls),
    }
}

/// Prefers the member's own message: the driver only saw that the member ended.
fn missing(rest: &str, complaint: Option<String>) -> MissingArm {
    let (arm, why) = rest.split_once(' ').unwrap_or((rest, ""));
    let [arm] = numbers(arm);
    MissingArm {
        arm: index(arm),
        why: complaint.unwrap_or_else(|| why.to_owned()),
    }
}

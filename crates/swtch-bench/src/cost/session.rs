//! The caller's side: starts a stage, reads its lines, and ends it.

use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use swtch_core::units::Nanos;

use super::arm::ArmSpec;
use super::stage;
use super::work::LiveRegisters;
use crate::error::Error;
use crate::outcome::Counted;
use crate::process::Child;
use crate::token::SysvSemaphore;

/// Arms that are timed side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The arms.
    pub arms: Vec<ArmSpec>,
    /// Acts that nobody needs, by arm: a ring's hot baseline takes as long as the ring.
    pub unneeded: Vec<(usize, usize)>,
    /// The CPU of the stage and of arms that name none; `None` leaves both free.
    pub cpu: Option<u32>,
    /// About how long a block takes: 1 ms is best. Longer blocks fall apart into other noise.
    pub block: Duration,
    /// Rounds of a tree.
    pub rounds: usize,
    /// Rounds that are done even when `limit` has passed.
    pub least_rounds: usize,
    /// When a tree ends before it has done all rounds.
    pub limit: Duration,
}

/// One block of one act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Number of the round.
    pub round: usize,
    /// Index into [`Plan::arms`].
    pub arm: usize,
    /// Which act of the arm ([`ArmSpec::act_count`]).
    pub act: usize,
    /// How many operations.
    pub operations: u64,
    /// Wall time of all of them.
    pub elapsed: Nanos,
    /// Switches of all members over exactly [`Self::counted_over`] operations, as the kernel counted
    /// them. Of a ring of locks that makes no involuntary ones, these are those of the whole block.
    pub counted: Counted,
    /// The timed operations, and for a ring of locks those around them: reading the counters of many
    /// threads would be part of the time.
    pub counted_over: u64,
    /// Registers of all members that were live at the hand-overs, for work that touches registers.
    pub live: Option<LiveRegisters>,
}

/// One look at the machine's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentinel {
    /// Number of the round.
    pub round: usize,
    /// A fixed loop in user mode.
    pub user: Nanos,
    /// A hundred system calls that do nothing.
    pub calls: Nanos,
}

/// How a tree ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All rounds were done.
    Done,
    /// The time was up.
    Limit,
    /// It was told to stop.
    Stopped,
}

/// An arm that this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Index into [`Plan::arms`].
    pub arm: usize,
    /// Why.
    pub why: String,
}

/// What one fresh process tree brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// All blocks, in the order in which they were done.
    pub samples: Vec<Sample>,
    /// All readings of the sentinel.
    pub sentinels: Vec<Sentinel>,
    /// Arms that could not be started.
    pub missing: Vec<Missing>,
    /// Whether the sentinel was steady before the first round.
    pub was_steady: bool,
    /// How it ended.
    pub ended: Ended,
}

impl Plan {
    /// Times all arms in one fresh process tree. `seed` draws the order of the rounds.
    ///
    /// Call it in a process that has no other thread. `stop` is looked at after every block.
    /// `on_round` hears the number of each round that begins.
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
        let mut stage = Child::fork_surviving(|| {
            let writer = writer.take().expect("invariant: a process has one act");
            stage::run(self, seed, writer)
        })?;
        drop(writer);
        let mut sets = Vec::new();
        let tree = read(reader, stop, &mut on_round, &mut sets);
        stage.wait_at_most(Duration::from_secs(5));
        // A stage that was killed has taken its leaders along, and nobody removed their sets. After an
        // orderly end they are gone, and removing them again does nothing.
        sets.into_iter().for_each(SysvSemaphore::remove);
        tree
    }
}

/// Reads all lines, or until it is told to stop. Closing the pipe tells the stage. `sets` are the
/// semaphore sets that leaders have made.
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
        counted: Counted {
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

/// The member's own words say more than the stage's, which only saw it go.
fn missing(rest: &str, complaint: Option<String>) -> Missing {
    let (arm, why) = rest.split_once(' ').unwrap_or((rest, ""));
    let [arm] = numbers(arm);
    Missing {
        arm: index(arm),
        why: complaint.unwrap_or_else(|| why.to_owned()),
    }
}

//! The caller's side of a session: starts the driver, reads its messages, and ends it.

use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::driver::{self, DriverReport};
use super::message::Message;
use super::plan::{Ended, MissingArm, Plan, Tree};
use crate::error::Error;
use crate::process::ForkedChild;
use crate::token::SysvSemaphore;

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
        let mut driver = ForkedChild::fork_surviving(|| {
            let writer = writer.take().expect("invariant: the child runs this once");
            driver::run(self, seed, writer)
        })?;
        drop(writer);
        let mut sets = Vec::new();
        let tree = read(reader, stop, &mut on_round, &mut sets);
        driver.wait_at_most(Duration::from_secs(5));
        // If the driver was killed, its leaders died with it, and their semaphore sets were not
        // removed. After an orderly end the sets are gone, and removing them again does nothing.
        sets.into_iter().for_each(SysvSemaphore::remove);
        tree
    }
}

/// Reads all messages, or until `stop` is set. It closes the pipe on return, which ends the driver.
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
    let mut failure = None;
    let mut round = None;
    for line in BufReader::new(reader).lines() {
        if stop.load(Ordering::Relaxed) {
            return Ok(tree);
        }
        let line = line.map_err(Error::calling("read"))?;
        // A line that is cut short comes of a process that was ended: the failure before it is why.
        let message = Message::from_line(&line);
        match message.map_err(|error| failure.take().map_or(error, Error::Member))? {
            // The first failure is the cause of the others.
            Message::Failed { why } => failure = failure.or(Some(why)),
            Message::SemaphoreSet { id } => sets.push(id),
            Message::Report(DriverReport::Starting) => failure = None,
            // The member's own reason is better: the driver only saw that the member ended.
            Message::Report(DriverReport::Missing(MissingArm { arm, why })) => {
                let why = failure.take().unwrap_or(why);
                tree.missing.push(MissingArm { arm, why });
            }
            Message::Report(DriverReport::WarmedUp { is_steady }) => tree.was_steady = is_steady,
            Message::Report(DriverReport::Sample(sample)) => tree.samples.push(sample),
            Message::Report(DriverReport::Sentinel(sentinel)) => tree.sentinels.push(sentinel),
            Message::Report(DriverReport::Ended(ended)) => {
                tree.ended = ended;
                return Ok(tree);
            }
        }
        let latest = tree.samples.last().map(|sample| sample.round);
        if latest != round {
            round = latest;
            on_round(latest.unwrap_or_default());
        }
    }
    Err(Error::Member(failure.unwrap_or_else(|| {
        "the process that measures is gone".to_owned()
    })))
}

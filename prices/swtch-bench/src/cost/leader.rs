//! A leader: the process of one arm. It waits for orders, performs a block, and reports the result.

use std::time::Duration;

use super::arm::ArmSpec;
use super::control_block::ControlBlock;
use super::message;
use super::timed_operation::{TIMING_WORDS, Timing};
use crate::error::Error;
use crate::process::ForkedChild;

/// Far longer than any block takes; a leader that exceeds it is stuck.
const LIMIT: Duration = Duration::from_secs(20);

/// Interval between checks that an awaited leader is still alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Interval between checks that a leader is still alive while it starts. It is short, because a leader that
/// cannot start (no permission for a cgroup) ends then, and nothing is being timed that the checks could disturb.
const CHECK_INTERVAL_AT_START: Duration = Duration::from_millis(5);

/// The block that driver and leader share: the order is the index of a timed operation and how many repetitions make
/// its block, the result is its timing.
type LeaderControl = ControlBlock<2, TIMING_WORDS>;

/// The driver's handle of a leader. Dropping it asks the leader to end and waits for it.
#[derive(Debug)]
pub(super) struct Leader {
    child: ForkedChild,
    control: LeaderControl,
}

impl Leader {
    /// Starts a leader in a process of its own. Returns when its timed operations are ready.
    pub(super) fn start(spec: &ArmSpec) -> Result<Self, Error> {
        let control = LeaderControl::new()?;
        let serve = || serve(spec, &control).inspect_err(|error| message::fail(error));
        let child = ForkedChild::fork(serve)?;
        let mut leader = Self { child, control };
        leader.wait_for_result(CHECK_INTERVAL_AT_START, spec.start_limit())?;
        Ok(leader)
    }

    /// Orders a block of one timed operation, and waits for the result.
    pub(super) fn block(
        &mut self,
        timed_operation: usize,
        operations: u64,
    ) -> Result<Timing, Error> {
        self.control.order([timed_operation as u64, operations])?;
        let words = self.wait_for_result(CHECK_INTERVAL, LIMIT)?;
        Ok(Timing::from_words(words))
    }

    fn wait_for_result(
        &mut self,
        interval: Duration,
        limit: Duration,
    ) -> Result<[u64; TIMING_WORDS], Error> {
        let child = &mut self.child;
        let check = || match child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Error::ProcessFailed {
                name: "leader".to_owned(),
                status,
            }),
        };
        self.control
            .wait_for_result_and_check(interval, limit, check)
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // A leader that is stuck or dead cannot end by itself; dropping `child` kills it.
        if self.control.ask_to_end().is_ok() {
            self.child.wait_at_most(Duration::from_secs(2));
        }
    }
}

fn serve(spec: &ArmSpec, control: &LeaderControl) -> Result<(), Error> {
    let mut timed_operations = spec.timed_operations()?;
    control.serve([0; TIMING_WORDS], |[index, operations]| {
        let index = usize::try_from(index).expect("invariant: the driver counts them in usize");
        let timing = timed_operations[index].block(operations)?;
        Ok(timing.to_words())
    })
}

//! A leader: the process of one arm. It waits for orders, performs a block, and reports the result.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use swtch_core::units::Nanos;

use super::act::Timing;
use super::arm::ArmSpec;
use super::work::LiveRegisters;
use crate::error::Error;
use crate::outcome::SwitchCounts;
use crate::process::ForkedChild;
use crate::shared::Shared;
use crate::token::{SharedFutex, SysvSemaphore, Token};

/// Far longer than any block takes; a leader that exceeds it is stuck.
const LIMIT: Duration = Duration::from_secs(20);

/// Interval between checks that an awaited leader is still alive.
const LOOK: Duration = Duration::from_millis(250);

/// The same interval while a leader starts. It is short, because a leader that cannot start (no
/// permission for a cgroup) ends then, and nothing is being timed that the checks could disturb.
const LOOK_AT_START: Duration = Duration::from_millis(5);

/// The descriptor to which members write their errors. It is set once, before any fork.
static COMPLAINTS: AtomicI32 = AtomicI32::new(2);

/// Sets the descriptor for errors of members: a pipe that all of them inherit.
pub(super) fn set_error_fd(fd: i32) {
    COMPLAINTS.store(fd, Ordering::Release);
}

/// Writes a line to the session. A failed write is ignored: then no reader is left.
fn say(line: &str) {
    // SAFETY: the bytes live across the call. A line this short arrives whole (`PIPE_BUF`).
    unsafe {
        libc::write(
            COMPLAINTS.load(Ordering::Acquire),
            line.as_ptr().cast(),
            line.len(),
        )
    };
}

/// Reports the semaphore set that a leader has created: the set outlives a leader that is killed.
pub(super) fn register_semaphore_set(set: &SysvSemaphore) {
    say(&format!("set {}\n", set.id()));
}

/// Reports why a member fails, and ends its process.
pub(super) fn fail(error: &Error) -> ! {
    say(&format!("failed {error}\n"));
    // SAFETY: _exit ends the process; what the parent's exit handlers would do stays undone.
    unsafe { libc::_exit(101) }
}

/// The driver's handle of a leader. Dropping it asks the leader to end and waits for it.
#[derive(Debug)]
pub(super) struct Leader {
    child: ForkedChild,
    control: std::sync::Arc<LeaderControl>,
}

/// Shared memory through which driver and leader exchange orders and results.
#[derive(Debug)]
struct LeaderControl {
    order: SharedFutex,
    /// Which timed operation is next, and how many repetitions make its block; `LEAVE` as the first
    /// number asks the leader to end.
    ordered: Shared<[AtomicU64; 2]>,
    done: SharedFutex,
    /// Operations, ns, voluntary, involuntary, operations over which these were counted, and two
    /// words of live registers.
    result: Shared<[AtomicU64; 7]>,
}

const LEAVE: u64 = u64::MAX;

impl Leader {
    /// Starts a leader in a process of its own. Returns when its timed operations are ready.
    pub(super) fn start(spec: &ArmSpec) -> Result<Self, Error> {
        let control = std::sync::Arc::new(LeaderControl {
            order: SharedFutex::new()?,
            ordered: Shared::new()?,
            done: SharedFutex::new()?,
            result: Shared::new()?,
        });
        let child = ForkedChild::fork(|| serve(spec, &control).inspect_err(|error| fail(error)))?;
        let mut leader = Self { child, control };
        leader.await_done(spec.start_limit(), LOOK_AT_START)?;
        Ok(leader)
    }

    /// Orders a block of one timed operation, and waits for the result.
    pub(super) fn block(&mut self, act: usize, operations: u64) -> Result<Timing, Error> {
        self.order(act as u64, operations)?;
        self.await_done(LIMIT, LOOK)?;
        let result = self.control.result.each_ref();
        let [
            operations,
            ns,
            voluntary,
            involuntary,
            counted_over,
            live @ ..,
        ] = result.map(|slot| slot.load(Ordering::Acquire));
        Ok(Timing {
            operations,
            elapsed: Nanos::from_ns(ns),
            counted: SwitchCounts {
                voluntary,
                involuntary,
            },
            counted_over,
            live: LiveRegisters::from_pair(live),
        })
    }

    fn order(&self, act: u64, operations: u64) -> Result<(), Error> {
        self.control.ordered[0].store(act, Ordering::Release);
        self.control.ordered[1].store(operations, Ordering::Release);
        self.control.order.pass()
    }

    fn await_done(&mut self, limit: Duration, look: Duration) -> Result<(), Error> {
        let mut waited = Duration::ZERO;
        while !self.control.done.take_within(look)? {
            waited += look;
            if let Some(status) = self.child.ended()? {
                return Err(Error::ProcessFailed {
                    name: "leader".to_owned(),
                    status,
                });
            }
            if waited >= limit {
                return Err(Error::Stuck { limit });
            }
        }
        Ok(())
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // A leader that is stuck or dead cannot end by itself; dropping `child` kills it.
        if self.order(LEAVE, 0).is_ok() {
            self.child.wait_at_most(Duration::from_secs(2));
        }
    }
}

fn serve(spec: &ArmSpec, control: &LeaderControl) -> Result<(), Error> {
    let mut acts = spec.acts()?;
    loop {
        control.done.pass()?;
        control.order.take()?;
        let [act, operations] = control
            .ordered
            .each_ref()
            .map(|slot| slot.load(Ordering::Acquire));
        if act == LEAVE {
            return Ok(());
        }
        let index = usize::try_from(act).expect("invariant: the stage counts acts in usize");
        let timing = acts[index].block(operations)?;
        let [always, ever] = LiveRegisters::to_pair(timing.live);
        let result = [
            timing.operations,
            timing.elapsed.as_ns(),
            timing.counted.voluntary,
            timing.counted.involuntary,
            timing.counted_over,
            always,
            ever,
        ];
        for (slot, value) in control.result.iter().zip(result) {
            slot.store(value, Ordering::Release);
        }
    }
}

//! Threads that give way by a call of their own: they lower their real-time priority below the
//! other's, in turn.
//!
//! ```text
//! left    50 ────▶ 48 │ waits              │ 48 ────▶ 46 │      a call that lowers the caller's
//! right   49  waits   │ 49 ────▶ 47 │ waits …               own priority: one switch each
//! ```
//!
//! At the lowest priority the running thread raises both, without a switch: it stays above the
//! other.

use std::sync::Barrier;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread;

use swtch_core::reason::Reason;

use super::Workload;
use crate::cpu::{self, CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::workers::{own_id, start};

pub(super) const POLICY: Workload = Workload {
    name: "policy",
    about: "two SCHED_FIFO threads on one CPU lower their priorities in turn",
    needs: Needs::Root,
    default_count: 500,
    count_is: "turns",
    run,
};

/// Upper bound of the priorities used: the upper half is left to the kernel's own threads.
const HIGHEST: i32 = 50;

/// State that both threads share. Only one of them runs at a time.
#[derive(Debug)]
struct PolicyState {
    /// Priority that the next caller takes; 0 if both must be raised first.
    next: AtomicI32,
    tids: [AtomicU32; 2],
    both_are_here: Barrier,
}

impl PolicyState {
    /// Takes `turns` steps down, in turn with the other thread.
    fn go_down(&self, me: usize, turns: u64) -> Result<(), Error> {
        self.tids[me].store(own_id().tid, Ordering::Relaxed);
        self.both_are_here.wait();
        (0..turns).try_for_each(|_| self.step_down(me))
    }

    fn step_down(&self, me: usize) -> Result<(), Error> {
        if self.next.load(Ordering::Relaxed) == 0 {
            cpu::set_fifo_priority(0, HIGHEST)?;
            let other = self.tids[1 - me].load(Ordering::Relaxed);
            // The other thread may have ended already, after its last turn.
            let _ended = cpu::set_fifo_priority(other, HIGHEST - 1);
            self.next.store(HIGHEST - 2, Ordering::Relaxed);
        }
        cpu::set_fifo_priority(0, self.next.fetch_sub(1, Ordering::Relaxed))
    }
}

/// A task that falls below a waiting task of its own class requests the reschedule itself
/// (`prio_changed_rt`, `kernel/sched/rt.c`, v5.15 to v6.18).
fn run(turns: u64) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Fifo)?;
    let state = PolicyState {
        next: AtomicI32::new(0),
        tids: [AtomicU32::new(0), AtomicU32::new(0)],
        both_are_here: Barrier::new(2),
    };
    let state = &state;
    thread::scope(|scope| {
        let left = start(scope, "left", || state.go_down(0, turns))?;
        let right = start(scope, "right", || state.go_down(1, turns))?;
        let threads = [left.finish()?, right.finish()?].map(|thread| {
            let because = "each call puts the caller below the other, which waits";
            let gives_way = Expect::between(Reason::Policy, turns - turns / 20, turns, because);
            let because = "the first to come waits for the other";
            thread.expecting(vec![
                gives_way,
                Expect::between(Reason::Futex, 0, 2, because),
            ])
        });
        Ok(WorkloadOutcome {
            threads: threads.into(),
        })
    })
}

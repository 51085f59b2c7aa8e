//! `sched_yield` by a lone thread, and by two threads that yield to each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use swtch_core::reason::Reason;

use super::Workload;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::workers::{own_switches, start};

pub(super) const ALONE: Workload = Workload {
    name: "yield-alone",
    about: "a thread yields with nobody to yield to: no switch, unless others run there",
    needs: Needs::Nothing,
    default_count: 10_000,
    count_is: "yields",
    run: alone,
};

pub(super) const PAIR: Workload = Workload {
    name: "yield",
    about: "two threads on one CPU yield to each other",
    needs: Needs::Nothing,
    default_count: 2000,
    count_is: "yields",
    run: pair,
};

/// Yields between two readings of the kernel's count.
const LOOK_EVERY: u64 = 16;

fn alone(yields: u64) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    thread::scope(|scope| {
        let yielder = start(scope, "yielder", || {
            (0..yields).for_each(|_| thread::yield_now());
            Ok(())
        })?;
        let yielder = yielder.finish()?;
        let switched = yielder.counted.involuntary;
        let because = "a yield is a switch only while another wants the CPU";
        let expect = Expect::between(Reason::Yield, 0, switched.min(yields), because);
        Ok(WorkloadOutcome {
            threads: vec![yielder.expecting(vec![expect])],
        })
    })
}

/// Says that a yielder is done, at the latest when it goes.
struct EndsAlways<'a>(&'a AtomicBool);

impl Drop for EndsAlways<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Both continue until both have yielded `yields` times, so that neither is alone once the other has begun, and until
/// the kernel has taken the CPU from each of them often enough.
///
/// A yield need not be a switch: from 6.6 to 6.18 (and not in the stable releases that have
/// 79104becf42b, "sched/fair: Forfeit vruntime on yield") `yield_task_fair` only moves the
/// deadline, and a task that is the only eligible one is picked again (`pick_eevdf`,
/// `kernel/sched/fair.c`, v6.16). A task that starts behind its peer then makes all its yields in
/// one go: seen on 6.16.12, 500 yields each with 2 and 3 switches.
fn pair(yields: u64) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let fewest_switches = yields / 10;
    let is_done = [AtomicBool::new(false), AtomicBool::new(false)];
    let work = |own: usize| {
        // Whatever happens here, the other ends.
        let _ends = EndsAlways(&is_done[own]);
        let mut made = 0;
        while !is_done.iter().all(|done| done.load(Ordering::Relaxed)) {
            thread::yield_now();
            made += 1;
            // The count is read seldom, so that most of the time goes into yielding.
            if made >= yields && made % LOOK_EVERY == 0 && !is_done[own].load(Ordering::Relaxed) {
                let switched = own_switches()?.involuntary >= fewest_switches;
                is_done[own].store(switched, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let first = start(scope, "yielder-1", || work(0))?;
        let second = start(scope, "yielder-2", || work(1)).inspect_err(|_| {
            // The first does not wait for one that never began.
            is_done[1].store(true, Ordering::Relaxed);
        })?;
        let workers = [first.finish()?, second.finish()?];
        let threads = workers.into_iter().map(|yielder| {
            let switched = yielder.counted.involuntary;
            // A tick or a bystander may come first, and each then costs one yield its switch. Which
            // yields switch is the scheduler's choice, so the kernel's own count is the measure.
            let because = "it leaves runnable only by yielding, or preempted by others";
            yielder.expecting(vec![
                Expect::at_least(
                    Reason::Yield,
                    fewest_switches * 9 / 10,
                    "it goes on until the kernel has taken the CPU away so often",
                ),
                Expect::between(Reason::Yield, switched * 99 / 100, switched, because),
            ])
        });
        Ok(WorkloadOutcome {
            threads: threads.collect(),
        })
    })
}

//! As many switches as the machine can make: on each CPU two threads yield to each other.

use std::thread;
use std::time::Duration;

use swtch_core::reason::Reason;

use super::Workload;
use crate::clock;
use crate::cpu::{self, CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::workers::start;

/// Number of yields between two readings of the clock; a reading costs a tenth of a yield.
const YIELDS_PER_LOOK: u32 = 64;

pub(super) const STORM: Workload = Workload {
    name: "storm",
    about: "on each CPU, two threads yield to each other as fast as they can",
    needs: Needs::Nothing,
    default_count: 1000,
    count_is: "ms",
    run,
};

fn run(ms: u64) -> Result<WorkloadOutcome, Error> {
    let cpus = cpu::allowed()?;
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let end = clock::after(Duration::from_millis(ms));
    let work = move || {
        while clock::now() < end {
            (0..YIELDS_PER_LOOK).for_each(|_| thread::yield_now());
        }
        Ok(())
    };
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for cpu in cpus {
            // Threads start on the CPU of their starter.
            cpu::move_to(0, cpu)?;
            for one in 1..=2 {
                workers.push(start(scope, format!("storm-{cpu}-{one}"), work)?);
            }
        }
        let threads = workers.into_iter().map(|yielder| {
            let yielder = yielder.finish()?;
            let switched = yielder.counted.involuntary;
            let because = "it leaves runnable only by yielding, or preempted by others";
            let expect = Expect::between(Reason::Yield, switched * 95 / 100, switched, because);
            Ok(yielder.expecting(vec![expect]))
        });
        Ok(WorkloadOutcome {
            threads: threads.collect::<Result<_, Error>>()?,
        })
    })
}

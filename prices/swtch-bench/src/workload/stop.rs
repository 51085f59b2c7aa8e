//! A process that is stopped and continued by signals.

use std::thread;

use swtch_core::reason::Reason;

use super::Workload;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::shared::{Shared, SharedNumbers};
use crate::workers::{start_process, switches_of};

pub(super) const STOP: Workload = Workload {
    name: "stop",
    about: "a running process is stopped by SIGSTOP and continued",
    needs: Needs::Nothing,
    default_count: 200,
    count_is: "stops",
    run,
};

fn run(stops: u64) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let may_end = Shared::<SharedNumbers<1>>::new()?;
    let stopped = start_process("stopped", || {
        while may_end.get() == [0] {
            std::hint::spin_loop();
        }
        Ok([])
    })?;
    for _ in 0..stops {
        let before = switches_of(stopped.pid())?.voluntary;
        stopped.child().stop()?;
        // The kernel reports a stop just before the task leaves the CPU. If it were continued in
        // between, it would not leave at all.
        while switches_of(stopped.pid())?.voluntary == before {
            thread::yield_now();
        }
        stopped.child().resume()?;
    }
    may_end.set([1]);
    let because = "each SIGSTOP was seen to take it off the CPU before it was continued";
    let expect = Expect::exactly(Reason::Stop, stops, because);
    Ok(WorkloadOutcome {
        threads: vec![stopped.finish()?.expecting(vec![expect])],
    })
}

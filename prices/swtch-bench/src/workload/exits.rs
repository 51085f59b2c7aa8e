//! Tasks that do nothing but end.

use std::thread;

use super::Workload;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::WorkloadOutcome;
use crate::workers::{start, start_process, together};

pub(super) const THREADS: Workload = Workload {
    name: "thread-exits",
    about: "threads that end as soon as they have started, one after the other",
    needs: Needs::Nothing,
    default_count: 200,
    count_is: "threads",
    run: threads,
};

pub(super) const PROCESSES: Workload = Workload {
    name: "process-exits",
    about: "processes that end as soon as they have started, one after the other",
    needs: Needs::Nothing,
    default_count: 200,
    count_is: "processes",
    run: processes,
};

fn threads(count: u64) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let ended = (0..count)
        .map(|_| thread::scope(|scope| start(scope, "short-thread", || Ok(()))?.finish()));
    let ended: Vec<_> = ended.collect::<Result<_, _>>()?;
    Ok(WorkloadOutcome {
        threads: vec![together("short-thread", ended, Vec::new())],
    })
}

fn processes(count: u64) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let ended = (0..count).map(|_| start_process("short-process", || Ok([]))?.finish());
    let ended: Vec<_> = ended.collect::<Result<_, _>>()?;
    Ok(WorkloadOutcome {
        threads: vec![together("short-process", ended, Vec::new())],
    })
}

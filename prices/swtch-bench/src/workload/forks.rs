//! A bounded fork bomb: very many short processes, a few dozen at a time.

use super::Workload;
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::workers::{WorkerProcess, start_process, together};

/// Number of processes that exist at once.
const WAVE: u64 = 50;

/// Most processes of one run: more would reuse process ids (`kernel.pid_max` is 32768 on small
/// machines).
const MOST: u64 = 20_000;

pub(super) const FORKS: Workload = Workload {
    name: "forks",
    about: "thousands of short processes, fifty at a time",
    needs: Needs::Nothing,
    default_count: 5000,
    count_is: "processes",
    run,
};

fn run(count: u64) -> Result<WorkloadOutcome, Error> {
    let mut left = count.min(MOST);
    let mut ended = Vec::new();
    while left > 0 {
        let wave = left.min(WAVE);
        let started = (0..wave).map(|_| start_process("short-process", || Ok([])));
        let started: Vec<_> = started.collect::<Result<_, _>>()?;
        for process in started.into_iter().map(WorkerProcess::finish) {
            ended.push(process?);
        }
        left -= wave;
    }
    Ok(WorkloadOutcome {
        threads: vec![together("short-process", ended, vec![Expect::balancing()])],
    })
}

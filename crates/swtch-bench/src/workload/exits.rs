//! Tasks that do nothing but end.

use std::thread;

use super::Workload;
use crate::cast::{start, start_process, together};
use crate::cpu::{Policy, Stage};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::Outcome;

pub(super) const THREADS: Workload = Workload {
    name: "thread-exits",
    about: "threads that end as soon as they have started, one after the other",
    needs: Needs::Nothing,
    default_count: 200,
    count_is: "threads",
    play: threads,
};

pub(super) const PROCESSES: Workload = Workload {
    name: "process-exits",
    about: "processes that end as soon as they have started, one after the other",
    needs: Needs::Nothing,
    default_count: 200,
    count_is: "processes",
    play: processes,
};

fn threads(count: u64) -> Result<Outcome, Error> {
    let _stage = Stage::at_home(Policy::Batch)?;
    let ended = (0..count)
        .map(|_| thread::scope(|scope| start(scope, "short-thread", || Ok(()))?.finish()));
    let ended: Vec<_> = ended.collect::<Result<_, _>>()?;
    Ok(Outcome {
        threads: vec![together("short-thread", ended, Vec::new())],
    })
}

fn processes(count: u64) -> Result<Outcome, Error> {
    let _stage = Stage::at_home(Policy::Batch)?;
    let ended = (0..count).map(|_| start_process("short-process", || Ok([]))?.finish());
    let ended: Vec<_> = ended.collect::<Result<_, _>>()?;
    Ok(Outcome {
        threads: vec![together("short-process", ended, Vec::new())],
    })
}

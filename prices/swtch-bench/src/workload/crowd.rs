//! Very many threads at once.

use std::iter;
use std::thread;
use std::time::Duration;

use swtch_core::reason::Reason;
use swtch_core::units::Nanos;

use super::Workload;
use crate::clock;
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::workers::{RunningWorker, sleep, start_small, together};

const SLEEPS: u64 = 3;
const NAP: Duration = Duration::from_millis(20);

/// Time to start one thread, twice what was seen on a slow machine in a debug build.
const TO_START: Duration = Duration::from_micros(200);

/// The smallest stack that glibc accepts on every architecture.
const STACK: usize = 128 * 1024;

pub(super) const CROWD: Workload = Workload {
    name: "crowd",
    about: "thousands of threads at once, each of which sleeps a few times",
    needs: Needs::Nothing,
    default_count: 10_000,
    count_is: "threads",
    run,
};

fn run(count: u64) -> Result<WorkloadOutcome, Error> {
    // No thread continues before all have been started, so that all exist at once.
    let all_there = clock::after(TO_START * u32::try_from(count).unwrap_or(u32::MAX));
    let work = || {
        let left = all_there.since(clock::now()).map_or(0, Nanos::as_ns);
        let first = Duration::from_nanos(left).max(NAP);
        let naps = (1..SLEEPS).map(|_| NAP);
        iter::once(first).chain(naps).map(sleep).sum()
    };
    thread::scope(|scope| {
        let workers = (0..count).map(|_| start_small(scope, "crowd", STACK, work));
        let workers: Vec<_> = workers.collect::<Result<_, _>>()?;
        let ended: Vec<_> = workers
            .into_iter()
            .map(RunningWorker::finish)
            .collect::<Result<_, _>>()?;
        let slept = ended.iter().map(|one| one.value).sum();
        let spared = ended.iter().map(|one| one.counted.involuntary).sum();
        let [sleeps, mostly] = Expect::sleeps(SLEEPS * count, slept, spared);
        let expect = vec![
            sleeps,
            mostly,
            Expect::at_least(
                Reason::Lock,
                0,
                "stacks are mapped and unmapped under one lock, which each thread takes when it ends",
            ),
            Expect::at_least(
                Reason::Futex,
                0,
                "the C library keeps its stacks in one list under one lock",
            ),
            Expect::balancing(),
        ];
        Ok(WorkloadOutcome {
            threads: vec![together("crowd", ended, expect)],
        })
    })
}

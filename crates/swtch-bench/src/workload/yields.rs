//! `sched_yield`, with nobody to yield to and with a peer that does the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use swtch_core::reason::Reason;

use super::Workload;
use crate::cast::start;
use crate::cpu::{Policy, Stage};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, Outcome};

pub(super) const ALONE: Workload = Workload {
    name: "yield-alone",
    about: "a thread yields with nobody to yield to: no switch, unless others run there",
    needs: Needs::Nothing,
    default_count: 10_000,
    count_is: "yields",
    play: alone,
};

pub(super) const PAIR: Workload = Workload {
    name: "yield",
    about: "two threads on one CPU yield to each other",
    needs: Needs::Nothing,
    default_count: 2000,
    count_is: "yields",
    play: pair,
};

fn alone(yields: u64) -> Result<Outcome, Error> {
    let _stage = Stage::at_home(Policy::Batch)?;
    thread::scope(|scope| {
        let yielder = start(scope, "yielder", || {
            (0..yields).for_each(|_| thread::yield_now());
            Ok(())
        })?;
        let yielder = yielder.finish()?;
        let switched = yielder.counted.involuntary;
        let because = "a yield is a switch only while another wants the CPU";
        let expect = Expect::between(Reason::Yield, 0, switched.min(yields), because);
        Ok(Outcome {
            threads: vec![yielder.expecting(vec![expect])],
        })
    })
}

/// Both go on until both have yielded `yields` times, so that neither is ever left alone.
fn pair(yields: u64) -> Result<Outcome, Error> {
    let _stage = Stage::at_home(Policy::Batch)?;
    let made = [AtomicU64::new(0), AtomicU64::new(0)];
    let act = |own: usize| {
        let fewest = || made.iter().map(|count| count.load(Ordering::Relaxed)).min();
        while fewest() < Some(yields) {
            thread::yield_now();
            made[own].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let first = start(scope, "yielder-1", || act(0))?;
        let second = start(scope, "yielder-2", || act(1))?;
        let cast = [first.finish()?, second.finish()?];
        let threads = cast.into_iter().map(|yielder| {
            let switched = yielder.counted.involuntary;
            // A tick or a bystander may come first; each costs one yield its switch. Before 6.6 the
            // yielder is let go on while the peer has had more CPU time (`pick_next_entity`,
            // kernel/sched/fair.c, v6.1), so the kernel's own count is the measure.
            let because = "it leaves runnable only by yielding, or preempted by others";
            yielder.expecting(vec![
                Expect::at_least(
                    Reason::Yield,
                    yields / 10,
                    "each yield finds the peer waiting, and often preferred",
                ),
                Expect::between(Reason::Yield, switched * 99 / 100, switched, because),
            ])
        });
        Ok(Outcome {
            threads: threads.collect(),
        })
    })
}

//! Threads that are moved to another CPU while they run: the kernel's stopper takes the CPU from
//! them and moves them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use swtch_core::reason::Reason;
use swtch_core::units::Timestamp;

use super::Workload;
use crate::clock::{self, Heartbeat};
use crate::cpu::{self, CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::workers::{own_id, start};

/// Time after which the hog gives up if nothing stops it.
const HOG_LIMIT: Duration = Duration::from_secs(60);

pub(super) const FLIPPED: Workload = Workload {
    name: "flipped",
    about: "a hog is moved between two CPUs by another thread",
    needs: Needs::TwoCpus,
    default_count: 200,
    count_is: "flips",
    run: flipped,
};

pub(super) const SELF_FLIPS: Workload = Workload {
    name: "self-flips",
    about: "a thread moves itself between two CPUs",
    needs: Needs::TwoCpus,
    default_count: 500,
    count_is: "flips",
    run: self_flips,
};

fn self_flips(flips: u64) -> Result<WorkloadOutcome, Error> {
    let pair = cpu_pair()?;
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    thread::scope(|scope| {
        let flipper = start(scope, "flipper", || {
            // The thread starts on the second CPU, so the first flip moves it away from there.
            pair.iter()
                .cycle()
                .take(count_of(flips))
                .try_for_each(|cpu| cpu::move_to(0, *cpu))
        })?;
        let moves = Expect::between(
            Reason::Migrate,
            flips,
            // Preempted by the stopper and, when moved, once more while waiting for its completion.
            2 * flips,
            "a running thread cannot be moved: it leaves, and the stopper moves it",
        );
        Ok(WorkloadOutcome {
            threads: vec![flipper.finish()?.expecting(vec![moves])],
        })
    })
}

/// The hog and the flipper move between two CPUs, the flipper always one step behind:
///
/// ```text
/// CPU 0   hog  ──flip──┐            flipper follows … and flips again
/// CPU 1   flipper      └▶ hog+flipper ──▶ hog
/// ```
fn flipped(flips: u64) -> Result<WorkloadOutcome, Error> {
    let pair = cpu_pair()?;
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let hog_tid = AtomicU32::new(0);
    let heartbeat = Heartbeat::default();
    thread::scope(|scope| {
        let hog = start(scope, "flipped-hog", || {
            hog_tid.store(own_id().tid, Ordering::Relaxed);
            heartbeat.beat(HOG_LIMIT);
            Ok(())
        })?;
        let flipper = start(scope, "flipper", || flip(&hog_tid, &heartbeat, pair, flips))?;
        let flipper = flipper.finish()?;
        let hog = hog.finish()?;
        // A flip that finds the hog preempted by a bystander moves it without a switch.
        let because = "it was seen running just before each flip, less those that met a preemption";
        let spared = flips / 10 + hog.counted.involuntary.saturating_sub(flips);
        // When the stopper comes to move the flipper, it may take the CPU from the hog instead. The
        // hog is not moved, but the rule `stopper` cannot tell the difference. Seen once in 200
        // flips, in 3 of 14 runs; the truth suite allows one wrong reason in a hundred.
        let moves = Expect::between(
            Reason::Migrate,
            flips.saturating_sub(spared),
            flips + flips / 100,
            because,
        );
        let because = "the flipper that is moved after it may be preferred where it arrives";
        let followed = Expect::between(Reason::Other, 0, flips, because);
        let because = "it follows after each flip, and came to its place before the first";
        let own_moves = Expect::at_least(Reason::Migrate, flips + 1, because);
        Ok(WorkloadOutcome {
            threads: vec![
                hog.expecting(vec![moves, followed]),
                flipper.expecting(vec![own_moves]),
            ],
        })
    })
}

fn flip(
    hog_tid: &AtomicU32,
    heartbeat: &Heartbeat,
    [first, home]: [usize; 2],
    flips: u64,
) -> Result<(), Error> {
    let _stops = heartbeat.stop_when_done();
    let mut own_cpu = first;
    cpu::move_to(0, own_cpu)?;
    for _ in 0..flips {
        wait_until_it_runs(heartbeat, clock::now());
        cpu::move_to(hog_tid.load(Ordering::Relaxed), own_cpu)?;
        own_cpu = if own_cpu == first { home } else { first };
        cpu::move_to(0, own_cpu)?;
    }
    Ok(())
}

fn wait_until_it_runs(heartbeat: &Heartbeat, since: Timestamp) {
    let limit = clock::after(HOG_LIMIT);
    while !heartbeat.ran_after(since) && clock::now() < limit {}
}

/// Two CPUs, of which the second is the home CPU.
fn cpu_pair() -> Result<[usize; 2], Error> {
    let cpus = cpu::allowed()?;
    match cpus[..] {
        [.., first, home] => Ok([first, home]),
        _ => Err(Error::Missing {
            workload: "flipped",
            needs: Needs::TwoCpus,
        }),
    }
}

fn count_of(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

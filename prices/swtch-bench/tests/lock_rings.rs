//! Checks that a ring of locks keeps its order, and that the kernel switches 1/k times per
//! hand-over with k spare locks, for every lock and for rings of up to 1024 threads.
//!
//! Timing needs a process that has no other thread, so this program is its own harness.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use swtch_bench::cost::{
    ArmSpec, LockKind, LockRingSpec, Plan, Sample, Tree, home, observe, order_violation,
};
use swtch_core::cost::Policy;

/// Largest tolerated deviation from the expected number of switches, as a share of it.
const TOLERANCE: f64 = 0.01;

fn main() -> ExitCode {
    let mut results = swtch_test::Results::from_args();
    let mut judge = |name: &str, test: &dyn Fn() -> Vec<String>| {
        if results.asks_for(name) {
            results.record(name, &test());
        }
    };
    judge("a_turn_is_one_switch", &a_turn_is_one_switch);
    judge(
        "every_lock_is_handed_on_in_the_order_of_the_ring",
        &every_lock_is_handed_on_in_the_order_of_the_ring,
    );
    judge("a_thousand_threads_go_round", &a_thousand_threads_go_round);
    judge("a_ring_that_cannot_move_is_refused", &{
        a_ring_that_cannot_move_is_refused
    });
    results.finish()
}

fn ring(lock: LockKind, count: u32, spare: u32, cpu: Option<u32>) -> LockRingSpec {
    LockRingSpec {
        lock,
        count,
        spare,
        policy: Policy::Batch,
        cpu,
    }
}

fn here() -> u32 {
    home().expect("invariant: the kernel says which CPUs may be used")
}

/// On one CPU under `SCHED_BATCH`, for any number of threads and of spare locks.
fn a_turn_is_one_switch() -> Vec<String> {
    let mut misses = Vec::new();
    for lock in LockKind::ALL {
        let rings: Vec<_> = [2, 8, 64]
            .into_iter()
            .flat_map(|count| [1, 2, 16].map(|spare| ring(*lock, count, spare, Some(here()))))
            .collect();
        match tree_of(&rings, 12) {
            Ok(tree) => misses.extend(misses_of_tree(&rings, &tree)),
            Err(why) => misses.push(why),
        }
    }
    misses
}

fn a_thousand_threads_go_round() -> Vec<String> {
    let rings = [1, 2, 16].map(|spare| ring(LockKind::Mutex, 1024, spare, Some(here())));
    match tree_of(&rings, 6) {
        Ok(tree) => misses_of_tree(&rings, &tree),
        Err(why) => vec![why],
    }
}

fn tree_of(rings: &[LockRingSpec], rounds: usize) -> Result<Tree, String> {
    let plan = Plan {
        arms: rings.iter().cloned().map(ArmSpec::LockRing).collect(),
        cpu: Some(here()),
        block: Duration::from_millis(2),
        rounds,
        unneeded: Vec::new(),
        least_rounds: 5,
        limit: Duration::from_secs(20),
    };
    let tree = plan.time(1, &AtomicBool::new(false), |_| {});
    tree.map_err(|error| error.to_string())
}

fn misses_of_tree(rings: &[LockRingSpec], tree: &Tree) -> Vec<String> {
    let missing = tree.missing.iter().map(|missing| missing.why.clone());
    let arms = rings.iter().enumerate();
    let wrong = arms.filter_map(|(arm, ring)| miss_of_arm(ring, arm, tree));
    missing.chain(wrong).collect()
}

/// Reports what is wrong with the switches of one ring: each undisturbed block must be right. On a
/// busy machine there may be no such block, and then a line says so.
#[expect(clippy::cast_precision_loss, reason = "counts below 2⁵³ are exact")]
fn miss_of_arm(ring: &LockRingSpec, arm: usize, tree: &Tree) -> Option<String> {
    let samples = tree.samples.iter();
    let blocks: Vec<_> = samples
        .filter(|sample| (sample.arm, sample.timed_operation) == (arm, 0))
        .collect();
    let is_undisturbed = |sample: &&&Sample| sample.counted.involuntary == 0;
    let undisturbed: Vec<_> = blocks.iter().filter(is_undisturbed).collect();
    let turns = |sample: &Sample| sample.counted_over as f64 / f64::from(ring.spare);
    let is_right = undisturbed.iter().all(|sample| {
        let ratio = sample.counted.voluntary as f64 / turns(sample);
        (ratio - 1.0).abs() <= TOLERANCE
    });
    let of = format!(
        "{} of {} blocks undisturbed",
        undisturbed.len(),
        blocks.len()
    );
    if undisturbed.is_empty() && !blocks.is_empty() {
        println!("    {ring:?}: {of}: not judged");
    }
    (blocks.is_empty() || !is_right).then(|| format!("{ring:?}: {of}: {undisturbed:?}"))
}

/// Checks rings on one CPU, and rings free on all of them.
fn every_lock_is_handed_on_in_the_order_of_the_ring() -> Vec<String> {
    let mut misses = Vec::new();
    for lock in LockKind::ALL {
        for (count, spare) in [(2, 1), (7, 3), (64, 1), (64, 16), (1024, 2)] {
            for cpu in [Some(here()), None] {
                let ring = ring(*lock, count, spare, cpu);
                misses.extend(miss_of_order(&ring));
            }
        }
    }
    misses
}

fn miss_of_order(ring: &LockRingSpec) -> Option<String> {
    const TURNS: u64 = 8;
    let observed = match observe(ring, TURNS) {
        Ok(observed) => observed,
        Err(error) => return Some(format!("{ring:?}: {error}")),
    };
    let least = TURNS * u64::from(ring.count) * u64::from(ring.spare);
    if (observed.hand_overs.len() as u64) < least {
        return Some(format!("{ring:?}: {} moves", observed.hand_overs.len()));
    }
    let violation = order_violation(ring, &observed.hand_overs);
    violation.map(|violation| format!("{ring:?}: {violation}"))
}

/// With one thread, or without a spare lock, the ring would wait for itself forever.
fn a_ring_that_cannot_move_is_refused() -> Vec<String> {
    let senseless = [(1, 1, "two threads"), (2, 0, "spare lock")];
    let accepted = senseless.into_iter().filter(|(count, spare, why)| {
        let observed = observe(&ring(LockKind::Mutex, *count, *spare, None), 1);
        !observed.is_err_and(|error| error.to_string().contains(why))
    });
    accepted.map(|refused| format!("{refused:?}")).collect()
}

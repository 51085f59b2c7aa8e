//! Checks that a hop is one switch, with every primitive, for threads and processes, in rings of
//! several sizes, by the kernel's own counters of all members.
//!
//! ```text
//! cargo test -p swtch-bench --test rings            all
//! cargo test -p swtch-bench --test rings -- pipe    those whose names contain "pipe"
//! ```
//!
//! Timing needs a process that has no other thread, so this program is its own harness.

use std::fs;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use swtch_bench::SwitchCounts;
use swtch_bench::cost::{ArmSpec, Plan, RingSpec, Tree};
use swtch_core::cost::{Members, Policy, Primitive};

/// Largest tolerated difference between switches and hops, as a share of the hops.
const TOLERANCE: f64 = 0.005;

/// Number of blocks without a preemption that suffice to judge a ring by them alone.
const LEAST_BLOCKS: usize = 5;

const COUNTS: [u32; 3] = [2, 8, 64];

fn main() -> ExitCode {
    let mut results = swtch_test::Results::from_args();
    let mut judge = |name: &str, test: &dyn Fn() -> Vec<String>| {
        if results.asks_for(name) {
            results.record(name, &test());
        }
    };
    for primitive in Primitive::ALL {
        judge(primitive.as_str(), &|| misses(*primitive));
    }
    judge("peer_that_fails_says_why", &peer_that_fails_says_why);
    results.finish()
}

/// Peers that cannot be moved to their CPU: only the arm is missing, and the run ends soon.
fn peer_that_fails_says_why() -> Vec<String> {
    const NO_CPU: u32 = 1023;
    let ring = |members| {
        let mut ring = RingSpec::pair(Primitive::Pipe, members, Policy::Batch, last_cpu());
        ring.cpus = Some((last_cpu(), NO_CPU));
        ArmSpec::Ring(ring)
    };
    // Far more than it takes: a run that only ends at its limit does not end soon.
    let limit = Duration::from_secs(300);
    let plan = Plan {
        arms: [Members::Threads, Members::Processes].map(ring).into(),
        limit,
        ..plan()
    };
    let start = Instant::now();
    let tree = plan.time(1, &AtomicBool::new(false), |_| {});
    let missing = tree.map(|tree| tree.missing).unwrap_or_default();
    let is_right = missing.len() == 2
        && missing
            .iter()
            .all(|missing| missing.why.contains("sched_setaffinity"))
        && start.elapsed() < limit;
    let miss = format!("{missing:?} after {:?}", start.elapsed());
    if is_right { Vec::new() } else { vec![miss] }
}

fn plan() -> Plan {
    Plan {
        arms: Vec::new(),
        cpu: Some(last_cpu()),
        block: Duration::from_millis(2),
        rounds: 20,
        unneeded: Vec::new(),
        least_rounds: 5,
        limit: Duration::from_secs(10),
    }
}

fn misses(primitive: Primitive) -> Vec<String> {
    let cpu = last_cpu();
    let ring = |members, count| {
        let pair = RingSpec::pair(primitive, members, Policy::Batch, cpu);
        RingSpec { count, ..pair }
    };
    let rings: Vec<_> = [Members::Threads, Members::Processes]
        .into_iter()
        .flat_map(|members| COUNTS.map(|count| ring(members, count)))
        .collect();
    let plan = Plan {
        arms: rings.iter().cloned().map(ArmSpec::Ring).collect(),
        ..plan()
    };
    let tree = match plan.time(1, &AtomicBool::new(false), |_| {}) {
        Ok(tree) => tree,
        Err(error) => return vec![error.to_string()],
    };
    let of_arm = |(arm, ring)| misses_of_arm(ring, arm, &tree);
    rings.iter().enumerate().filter_map(of_arm).collect()
}

/// Reports what is wrong with one ring.
fn misses_of_arm(ring: &RingSpec, arm: usize, tree: &Tree) -> Option<String> {
    let name = format!("{} {}", ring.count, ring.members);
    let missing = tree.missing.iter().find(|missing| missing.arm == arm);
    let is_impossible =
        (ring.primitive, ring.members) == (Primitive::FutexPrivate, Members::Processes);
    match missing {
        Some(missing) if is_impossible => {
            let says_why = missing.why.contains("private futex");
            return (!says_why).then(|| format!("{name}: {}", missing.why));
        }
        Some(missing) => return Some(format!("{name}: missing: {}", missing.why)),
        None => {}
    }
    let alone = sum(tree, arm, 1, |_| true);
    if alone.voluntary > 0.0 {
        return Some(format!("{name}: blocks without a peer: {alone:?}"));
    }
    let hops = sum(tree, arm, 0, |_| true);
    if !has_token(ring.primitive) {
        let switches = hops.voluntary + hops.involuntary;
        return (switches == 0.0).then(|| format!("{name}: {hops:?}"));
    }
    let undisturbed = sum(tree, arm, 0, |counted| counted.involuntary == 0);
    let is_right = if undisturbed.blocks >= LEAST_BLOCKS {
        (undisturbed.voluntary - 1.0).abs() <= TOLERANCE
    } else {
        // Bystanders use the CPU too, and each of their preemptions may spare a block.
        (1.0 - TOLERANCE - hops.involuntary..=1.0 + TOLERANCE).contains(&hops.voluntary)
    };
    (!is_right).then(|| format!("{name}: {hops:?}, undisturbed {undisturbed:?}"))
}

/// Returns true if a hop is a block by construction.
fn has_token(primitive: Primitive) -> bool {
    !matches!(primitive, Primitive::Yield | Primitive::MutexRing)
}

/// Switches per operation of several blocks.
#[derive(Debug)]
struct PerOperation {
    blocks: usize,
    voluntary: f64,
    involuntary: f64,
}

/// Switches per operation in a timed operation of an arm, over those of its blocks whose counts
/// `is_chosen` accepts.
#[expect(clippy::cast_precision_loss, reason = "counts below 2⁵³ are exact")]
fn sum(
    tree: &Tree,
    arm: usize,
    timed_operation: usize,
    is_chosen: fn(SwitchCounts) -> bool,
) -> PerOperation {
    let samples = tree.samples.iter().filter(|sample| {
        (sample.arm, sample.timed_operation) == (arm, timed_operation) && is_chosen(sample.counted)
    });
    let [mut operations, mut voluntary, mut involuntary] = [0; 3];
    let mut blocks = 0;
    for sample in samples {
        blocks += 1;
        operations += sample.operations;
        voluntary += sample.counted.voluntary;
        involuntary += sample.counted.involuntary;
    }
    PerOperation {
        blocks,
        voluntary: voluntary as f64 / operations as f64,
        involuntary: involuntary as f64 / operations as f64,
    }
}

/// The last CPU that this process may use.
fn last_cpu() -> u32 {
    let status = fs::read_to_string("/proc/self/status").expect("invariant: /proc is there");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("invariant: every kernel since 2.6.24 writes it");
    let last = list.rsplit([',', '-']).next().map(str::trim);
    last.and_then(|cpu| cpu.parse().ok())
        .expect("invariant: the list ends in a number")
}

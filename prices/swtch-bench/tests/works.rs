//! Checks that every work of a ring does what it says, for threads and processes, and that a work
//! that this machine cannot run is reported with the reason.
//!
//! Timing needs a process that has no other thread, so this program is its own harness.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use swtch_bench::arch::{self, ExtendedRegisters};
use swtch_bench::cost::{
    ArmSpec, MemorySharing, Mitigation, MitigationSpec, Order, PageSize, PatternSharing, Plan,
    Protected, RegisterEnding, RingCgroups, RingSpec, Sample, Tree, WorkSpec,
};
use swtch_core::cost::{Members, Policy, Primitive};

/// A test: its name, and a function that returns what is wrong.
type Test = (&'static str, fn() -> Result<(), String>);

const TESTS: [Test; 5] = [
    ("every_work_is_timed", every_work_is_timed),
    (
        "touched_registers_are_live_at_every_hand_over",
        touched_registers_are_live_at_every_hand_over,
    ),
    ("a_delay_is_found", a_delay_is_found),
    (
        "a_mitigation_is_timed_or_missing_with_the_reason",
        a_mitigation_is_timed_or_missing_with_the_reason,
    ),
    (
        "cgroups_are_timed_or_missing_with_the_reason",
        cgroups_are_timed_or_missing_with_the_reason,
    ),
];

fn main() -> ExitCode {
    let mut results = swtch_test::Results::from_args();
    for (name, test) in TESTS {
        if !results.asks_for(name) {
            continue;
        }
        results.record(name, test().err().as_slice());
    }
    results.finish()
}

fn ring(members: Members) -> RingSpec {
    let pair = RingSpec::pair(Primitive::FutexShared, members, Policy::Batch, 0);
    RingSpec { cpus: None, ..pair }
}

/// A ring of processes with two works.
fn two_works(work: WorkSpec, against: WorkSpec) -> RingSpec {
    RingSpec {
        work,
        against: Some(against),
        ..ring(Members::Processes)
    }
}

fn time(rings: &[RingSpec], rounds: usize) -> Result<Tree, String> {
    let plan = Plan {
        arms: rings.iter().cloned().map(ArmSpec::Ring).collect(),
        cpu: None,
        block: Duration::from_millis(1),
        rounds,
        unneeded: Vec::new(),
        least_rounds: rounds,
        limit: Duration::from_secs(20),
    };
    plan.time(1, &AtomicBool::new(false), |_| {})
        .map_err(|error| error.to_string())
}

fn blocks(tree: &Tree, arm: usize, timed_operation: usize) -> Vec<&Sample> {
    let samples = tree.samples.iter();
    samples
        .filter(|sample| (sample.arm, sample.timed_operation) == (arm, timed_operation))
        .collect()
}

/// All members run their works, and so does the hot baseline.
fn every_work_is_timed() -> Result<(), String> {
    let set = |sharing, order| WorkSpec::WorkingSet {
        bytes: 64 << 10,
        order,
        sharing,
    };
    let works = [
        WorkSpec::Nothing,
        set(MemorySharing::Private, Order::Random),
        set(MemorySharing::Shared, Order::Random),
        set(MemorySharing::Shared, Order::Sequential),
        WorkSpec::Pages {
            pages: 0,
            size: PageSize::Small,
        },
        WorkSpec::Pages {
            pages: 64,
            size: PageSize::Small,
        },
        WorkSpec::Branches {
            count: 100,
            patterns: PatternSharing::PerMember,
        },
        WorkSpec::Delay { loops: 10 },
    ];
    let rings: Vec<_> = [Members::Threads, Members::Processes]
        .into_iter()
        .flat_map(|members| works.map(|work| (members, work)))
        .map(|(members, work)| RingSpec {
            work,
            count: 3,
            ..ring(members)
        })
        .collect();
    let tree = time(&rings, 3)?;
    for (arm, ring) in rings.iter().enumerate() {
        let counts = [0, 1].map(|timed_operation| blocks(&tree, arm, timed_operation).len());
        if counts != [3, 3] {
            return Err(format!("{ring:?}: {counts:?} blocks, {:?}", tree.missing));
        }
    }
    Ok(())
}

/// XINUSE as each member finds it after a switch: the bits of the state are set in every lap of the
/// one work, and in none of the other.
fn touched_registers_are_live_at_every_hand_over() -> Result<(), String> {
    let states = [
        (ExtendedRegisters::Avx2, 0b100),
        (ExtendedRegisters::Avx512, 0b1110_0100),
    ];
    for (registers, bits) in states {
        if !arch::is_supported(registers) || arch::live_components().is_none() {
            continue;
        }
        let touch = |ending| WorkSpec::Registers { registers, ending };
        let tree = time(
            &[two_works(
                touch(RegisterEnding::Live),
                touch(RegisterEnding::Cleared),
            )],
            5,
        )?;
        for live in blocks(&tree, 0, 0).iter().map(|sample| sample.live) {
            if live.is_none_or(|live| live.always & bits != bits) {
                return Err(format!("{registers:?} was not live: {live:x?}"));
            }
        }
        for live in blocks(&tree, 0, 2).iter().map(|sample| sample.live) {
            if live.is_none_or(|live| live.ever & bits != 0) {
                return Err(format!("{registers:?} was live: {live:x?}"));
            }
        }
    }
    Ok(())
}

/// A delay as long as several hops, as the difference between the two works of one ring. Others only
/// ever make a block longer, so that the shortest of more and more trees approach the true ones.
fn a_delay_is_found() -> Result<(), String> {
    let spec = two_works(
        WorkSpec::Delay { loops: 5000 },
        WorkSpec::Delay { loops: 0 },
    );
    let (mut delayed, mut plain) = (u64::MAX, u64::MAX);
    for _ in 0..20 {
        let tree = time(std::slice::from_ref(&spec), 10)?;
        let quickest = |timed_operation| {
            let blocks = blocks(&tree, 0, timed_operation).into_iter();
            blocks
                .map(|sample| sample.elapsed.as_ns() / sample.operations)
                .min()
                .unwrap_or_default()
        };
        (delayed, plain) = (delayed.min(quickest(0)), plain.min(quickest(2)));
        // A multiplication takes three cycles or more, and no CPU runs ten cycles per nanosecond.
        if delayed >= plain + 1500 {
            return Ok(());
        }
    }
    Err(format!("{delayed} ns with 5000 steps, {plain} ns without"))
}

fn a_mitigation_is_timed_or_missing_with_the_reason() -> Result<(), String> {
    let all = [
        Mitigation::IndirectBranch,
        Mitigation::StoreBypass,
        Mitigation::L1dFlush,
    ];
    let rings = all.map(|mitigation| RingSpec {
        mitigation: Some(MitigationSpec {
            mitigation,
            members: Protected::One,
        }),
        ..ring(Members::Processes)
    });
    let tree = time(&rings, 2)?;
    for (arm, mitigation) in all.into_iter().enumerate() {
        let why = tree.missing.iter().find(|missing| missing.arm == arm);
        let is_told = match why {
            Some(missing) => missing.why.starts_with("not here: "),
            None => mitigation.check().is_ok() && !blocks(&tree, arm, 0).is_empty(),
        };
        if !is_told {
            return Err(format!("{mitigation:?}: {why:?}"));
        }
    }
    Ok(())
}

/// Without root no group can be created, and the error says why.
fn cgroups_are_timed_or_missing_with_the_reason() -> Result<(), String> {
    let rings = [RingCgroups::One, RingCgroups::Two].map(|groups| RingSpec {
        groups,
        ..ring(Members::Processes)
    });
    let tree = time(&rings, 2)?;
    for (arm, ring) in rings.iter().enumerate() {
        let why = tree.missing.iter().find(|missing| missing.arm == arm);
        let is_told = match why {
            Some(missing) => missing.why.contains("group"),
            None => !blocks(&tree, arm, 0).is_empty(),
        };
        if !is_told {
            return Err(format!("{:?}: {why:?}", ring.groups));
        }
    }
    Ok(())
}

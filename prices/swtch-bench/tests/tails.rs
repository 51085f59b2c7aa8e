//! Checks that every single hop has a length, with every primitive, on one CPU and across CPUs.
//!
//! Timing needs a process that has no other thread, so this program is its own harness.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use swtch_bench::Error;
use swtch_bench::cost::{Neighbour, RingSpec, Tails, home, neighbours, tails};
use swtch_core::Distribution;
use swtch_core::cost::{Members, Place, Policy, Primitive};

const HOPS: u64 = 2000;

/// A test: its name and its function.
type Test = (&'static str, fn(u32));

const TESTS: [Test; 7] = [
    ("every_hop_of_every_primitive_has_a_length", every_primitive),
    ("hops_across_cpus_have_lengths", across_cpus),
    ("a_ring_of_three_has_hops_of_three_members", three_members),
    ("what_passes_no_turn_has_no_hops", no_turn),
    ("the_clock_is_read_in_user_mode", clock),
    ("a_request_to_stop_leaves_what_was_measured", stopped),
    ("a_member_that_cannot_take_its_place_says_why", no_place),
];

fn main() -> ExitCode {
    let home = home().expect("the kernel says which CPUs may be used");
    let mut results = swtch_test::Results::from_args();
    for (name, test) in TESTS {
        if !results.asks_for(name) {
            continue;
        }
        test(home);
        results.record::<&str>(name, &[]);
    }
    results.finish()
}

fn of(spec: &RingSpec) -> Result<Tails, Error> {
    tails(spec, HOPS, &AtomicBool::new(false))
}

/// Each member of a pair gets about half of the hops. None is faster than a system call, and a
/// percentile never exceeds the next.
fn judge(spec: &RingSpec) {
    let tails = match of(spec) {
        Ok(tails) => tails,
        Err(error) if is_not_here(&error) => return println!("  without {spec:?}: {error}"),
        Err(error) => panic!("{spec:?}: {error}"),
    };
    let counts: Vec<u64> = tails.by_member().iter().map(Distribution::count).collect();
    assert_eq!(
        counts.iter().sum::<u64>() + tails.backwards(),
        HOPS,
        "{spec:?}"
    );
    assert!(
        counts.iter().all(|count| *count > HOPS / 3),
        "{spec:?} {counts:?}"
    );
    let all = tails.all();
    let shown = Distribution::PERCENTILES.map(|(percent, _)| all.percentile(percent));
    assert!(
        shown.is_sorted() && shown[3] <= all.longest(),
        "{spec:?} {shown:?}"
    );
    let median = all.percentile(50.0).expect("there are hops").as_ns();
    assert!(median > 20, "{spec:?} {median} ns");
}

/// Returns true if the error comes from something that a container or a kernel may lack.
fn is_not_here(error: &Error) -> bool {
    let words = error.to_string();
    ["mq_open", "semget", "not implemented"]
        .iter()
        .any(|call| words.contains(call))
}

fn every_primitive(home: u32) {
    for primitive in Primitive::ALL {
        for members in members_of(*primitive) {
            for policy in [Policy::Batch, Policy::Default] {
                judge(&RingSpec::pair(*primitive, *members, policy, home));
            }
        }
    }
}

const fn members_of(primitive: Primitive) -> &'static [Members] {
    match primitive {
        Primitive::MutexRing | Primitive::Yield => &[],
        Primitive::FutexPrivate => &[Members::Threads],
        _ => Members::ALL,
    }
}

fn across_cpus(home: u32) {
    for Neighbour { place, cpu } in neighbours(home).expect("the kernel says which CPUs there are")
    {
        let Ok(other) = cpu else { continue };
        for members in Members::ALL {
            judge(&RingSpec {
                place,
                cpus: Some((home, other)),
                ..RingSpec::pair(Primitive::Pipe, *members, Policy::Default, home)
            });
        }
    }
}

fn three_members(home: u32) {
    let spec = RingSpec {
        count: 3,
        place: Place::Free,
        cpus: None,
        ..RingSpec::pair(
            Primitive::FutexShared,
            Members::Processes,
            Policy::Default,
            home,
        )
    };
    let mut both = of(&spec).expect("a ring of three can be measured");
    assert_eq!(both.by_member().len(), 3);
    let count = both.all().count();
    let copy = both.clone();
    both.merge(&copy);
    assert_eq!(both.all().count(), 2 * count);
}

fn no_turn(home: u32) {
    for primitive in [Primitive::MutexRing, Primitive::Yield] {
        let spec = RingSpec::pair(primitive, Members::Threads, Policy::Batch, home);
        assert!(matches!(of(&spec), Err(Error::Senseless(_))), "{primitive}");
    }
}

fn clock(home: u32) {
    let spec = RingSpec::pair(
        Primitive::FutexShared,
        Members::Threads,
        Policy::Batch,
        home,
    );
    let read = of(&spec).expect("a pair can be measured").clock().as_ns();
    assert!((1..10_000).contains(&read), "{read} ns a read");
}

fn stopped(home: u32) {
    let spec = RingSpec::pair(Primitive::Pipe, Members::Threads, Policy::Batch, home);
    let none = tails(&spec, u64::MAX, &AtomicBool::new(true)).expect("it is no error");
    assert_eq!(none.all().count(), 0);
}

fn no_place(home: u32) {
    for members in Members::ALL {
        let spec = RingSpec {
            cpus: Some((home, 1023)),
            ..RingSpec::pair(Primitive::Pipe, *members, Policy::Batch, home)
        };
        let error = of(&spec).expect_err("no machine of ours has so many CPUs");
        assert!(error.to_string().contains("sched_setaffinity"), "{error}");
    }
}

//! Made-up scans: every window is a second long, and its counts are those of that second.

use super::exact::{SchedulerCounts, SchedulerEvent};
use super::script::{UserRun, WaitTypeTotals, WindowCounts};
use super::*;
use crate::claim::Verdict;

const SECOND: u64 = 1_000_000_000;

/// User and OS switches of each phase, in each of its ten windows of a second.
fn scanned(counts: [(u64, u64); 3]) -> Scanned {
    let phases = HogPhase::ALL.into_iter().zip(counts).enumerate();
    let windows = phases.flat_map(|(place, (phase, (user, os)))| {
        (0..10).map(move |window| {
            let from_ns = (place as u64 * 10 + window) * SECOND;
            WindowCounts {
                phase,
                from_ns,
                to_ns: from_ns + SECOND,
                growth: LevelCounts {
                    user,
                    involuntary: os,
                    ..LevelCounts::default()
                },
            }
        })
    });
    Scanned {
        windows: windows.collect(),
        ..Scanned::default()
    }
}

fn plays(workers: Scanned) -> TwoLevelsResults {
    TwoLevelsResults {
        workers: vec![workers],
        quantum: Nanos::from_ns(4_000_000),
        ..TwoLevelsResults::default()
    }
}

fn verdict(results: &TwoLevelsResults, claim: &str) -> Verdict {
    results.quantities().answer(claim).verdict
}

fn a7(counts: [(u64, u64); 3]) -> Verdict {
    verdict(&plays(scanned(counts)), "A7")
}

#[test]
fn counts_that_go_their_own_ways_are_two_things() {
    assert_eq!(a7([(250, 5), (200, 180), (250, 5)]), Verdict::Holds);
}

/// Counts as they would be if each user switch were one of the kernel's.
#[test]
fn counts_that_go_together_refute_it() {
    assert_eq!(
        a7([(250, 260), (120, 130), (250, 260)]),
        Verdict::DoesNotHold
    );
    assert_eq!(a7([(250, 50), (250, 50), (250, 50)]), Verdict::DoesNotHold);
    assert!(matches!(
        verdict(&TwoLevelsResults::default(), "A7"),
        Verdict::CannotBeTested(_)
    ));
}

fn counted(counts: SchedulerCounts) -> EventCounts {
    EventCounts {
        event: SchedulerEvent::YieldAlone,
        in_threads: false,
        made: 1_000,
        counts,
        os: 0,
    }
}

/// One switch in a thousand is one too many.
#[test]
fn a_yield_alone_that_counts_a_switch_refutes_it() {
    let right = SchedulerEvent::YieldAlone.expected(1_000);
    let of_counts = |counts| {
        let plays = TwoLevelsResults {
            counted: vec![counted(right), counted(counts)],
            ..TwoLevelsResults::default()
        };
        verdict(&plays, "A8")
    };
    assert_eq!(of_counts(right), Verdict::Holds);
    let wrong = SchedulerCounts {
        switches: 1,
        ..right
    };
    assert_eq!(of_counts(wrong), Verdict::DoesNotHold);
}

/// Sixty runs of this length, and what they waited.
fn a9(run_ns: u64, waits: &[(&str, u64, u64)]) -> Verdict {
    let mut scanned = scanned([(250, 5), (250, 5), (250, 5)]);
    scanned.runs = (0..60)
        .map(|number| UserRun {
            task: number % 3,
            from_ns: number * run_ns,
            to_ns: (number + 1) * run_ns,
        })
        .collect();
    let waited = waits
        .iter()
        .map(|(wait_type, wait_ns, signal_ns)| WaitTypeTotals {
            wait_type: (*wait_type).to_owned(),
            count: 60,
            wait_ns: *wait_ns,
            signal_ns: *signal_ns,
        });
    scanned.waits = waited.collect();
    verdict(&plays(scanned), "A9")
}

#[test]
fn a_scan_that_waits_for_its_turn_alone_holds() {
    let turn = ("SOS_SCHEDULER_YIELD", 480_000_000, 480_000_000);
    assert_eq!(a9(4_050_000, &[turn]), Verdict::Holds);
    assert_eq!(a9(8_000_000, &[turn]), Verdict::DoesNotHold);
    let mutex = ("MUTEX", 1_000, 10);
    assert_eq!(a9(4_050_000, &[turn, mutex]), Verdict::DoesNotHold);
    let blocked = ("SOS_SCHEDULER_YIELD", 480_000_000, 240_000_000);
    assert_eq!(a9(4_050_000, &[blocked]), Verdict::DoesNotHold);
}

/// A run in which the hog came is of neither phase.
#[test]
fn a_run_over_the_border_of_phases_is_of_none() {
    let mut scanned = scanned([(250, 5), (250, 5), (250, 5)]);
    let run = |from_ns, to_ns| UserRun {
        task: 1,
        from_ns,
        to_ns,
    };
    scanned.runs = vec![
        run(SECOND / 2, 2 * SECOND),
        run(9 * SECOND, 11 * SECOND),
        run(12 * SECOND, 13 * SECOND),
    ];
    assert_eq!(scanned.runs_of(HogPhase::Alone), [1.5e9]);
    assert_eq!(scanned.runs_of(HogPhase::Hog), [1e9]);
}

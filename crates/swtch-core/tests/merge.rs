//! The merge passes on the same records in the same order as a simple one that searches all streams
//! for each record.
#![allow(clippy::unwrap_used, reason = "tests")]

mod simple_merge;

use fastrand::Rng;
use simple_merge::{SimpleMerge, record};
use swtch_core::merge::Merge;
use swtch_core::{Event, Timestamp};

/// Moment and stream of a record.
fn of(event: &Event) -> (u64, u32) {
    match event {
        Event::Task(task) => (task.ts.as_ns(), task.task.get()),
        _ => unreachable!("only tasks are made"),
    }
}

/// Streams of any number and length, with equal moments, gaps, bursts, horizons between them, and
/// records that come late or before their stream's last one.
#[test]
fn order_is_that_of_looking_at_all_streams() {
    for seed in 0..2_000 {
        let mut dice = Rng::with_seed(seed);
        let streams = dice.usize(1..20);
        let mut clocks = vec![0; streams];
        let (mut merge, mut simple) = (Merge::default(), SimpleMerge::default());
        let (mut got, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..dice.usize(1..10) {
            for _ in 0..dice.usize(0..60) {
                let stream = dice.usize(0..streams);
                clocks[stream] += dice.u64(0..4);
                let ns = clocks[stream].saturating_sub(dice.u64(0..40) / 38);
                merge.push(stream, record(ns, stream));
                simple.push(stream, record(ns, stream));
            }
            let horizon = Timestamp::from_ns(dice.u64(0..80));
            merge.take_until(horizon, |event| got.push(of(&event)));
            simple.take_until(horizon, |event| expected.push(of(&event)));
            assert_eq!(got, expected, "seed {seed}");
        }
        merge.take_all(|event| got.push(of(&event)));
        simple.take_until(Timestamp::from_ns(u64::MAX), |event| {
            expected.push(of(&event))
        });
        assert_eq!(got, expected, "seed {seed}");
    }
}

//! Measures what an event costs in the merge, by number of streams: `cargo bench -p swtch-core --bench merge`.
//!
//! The streams are those of a machine whose CPUs are all busy: the events are spread over all
//! streams, in turn (the worst case) or in bursts of 64.
#![allow(missing_docs, reason = "a benchmark")]

use std::hint::black_box;
use std::time::Instant;

use swtch_core::merge::Merge;
use swtch_core::{CgroupId, Class, Event, Pid, TaskEvent, TaskEventKind, TaskKey, Tid, Timestamp};

/// Events of a round, and number of rounds, of which the fastest counts.
const EVENTS: u64 = 1 << 20;
const ROUNDS: usize = 7;

fn event(ns: u64) -> Event {
    Event::Task(TaskEvent {
        ts: Timestamp::from_ns(ns),
        kind: TaskEventKind::Seen,
        task: TaskKey::new(1),
        tid: Tid::new(1),
        pid: Pid::new(1),
        parent_pid: Pid::new(0),
        started_ns: 0,
        comm: Vec::new(),
        cgroup: CgroupId::new(0),
        class: Class::Fair,
        prio: 120,
        is_kthread: false,
        in_scope: true,
        voluntary_switches: 0,
        involuntary_switches: 0,
    })
}

/// The events of one stream: `burst` in a row, then those of all others.
fn stream(number: u64, streams: u64, burst: u64) -> impl Iterator<Item = Event> {
    let rounds = 0..EVENTS / burst / streams;
    rounds.flat_map(move |round| {
        let first = (round * streams + number) * burst;
        (first..first + burst).map(event)
    })
}

/// Nanoseconds per event in the fastest round.
#[expect(clippy::cast_precision_loss, reason = "a time for each of some events")]
fn measure(streams: u64, burst: u64) -> f64 {
    let round = || {
        let merge = Merge::new((0..streams).map(|number| stream(number, streams, burst)));
        let start = Instant::now();
        merge.for_each(|event| drop(black_box(event)));
        start.elapsed().as_secs_f64() * 1e9 / EVENTS as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn main() {
    println!("streams  events come     ns an event");
    for streams in [2, 16, 256, 1024, 2048] {
        for (burst, order) in [(1, "in turn"), (64, "in bursts of 64")] {
            println!("{streams:>7}  {order:<15}{:>12.1}", measure(streams, burst));
        }
    }
}

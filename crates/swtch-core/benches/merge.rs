//! What a record costs in the merge, by number of streams: `cargo bench -p swtch-core --bench
//! merge`. Beside it the simple merge that searches all streams for each record.
//!
//! The streams are those of a machine whose CPUs are all busy: the records of a round are spread
//! over all streams, in turn (the worst case) or in bursts of 64.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

#[path = "../tests/simple_merge/mod.rs"]
mod simple_merge;

use std::hint::black_box;
use std::time::Instant;

use simple_merge::{SimpleMerge, record};
use swtch_core::Timestamp;
use swtch_core::merge::Merge;

/// Records of a round, and number of rounds, of which the fastest counts.
const RECORDS: u64 = 1 << 16;
const ROUNDS: usize = 7;

/// The stream that the record of this moment belongs to.
fn stream_of(ns: u64, streams: u64, burst: u64) -> usize {
    usize::try_from(ns / burst % streams).unwrap()
}

/// Nanoseconds per record in the fastest of some rounds.
macro_rules! measure {
    ($merge:ty, $streams:expr, $burst:expr) => {{
        let round = || {
            let mut merge = <$merge>::default();
            for ns in 0..RECORDS {
                let stream = stream_of(ns, $streams, $burst);
                merge.push(stream, record(ns, stream));
            }
            let start = Instant::now();
            merge.take_until(Timestamp::from_ns(u64::MAX), |event| drop(black_box(event)));
            start.elapsed().as_secs_f64() * 1e9 / RECORDS as f64
        };
        (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
    }};
}

fn main() {
    println!("streams  records come    heap ns  all streams ns");
    for streams in [2, 16, 256] {
        for (burst, order) in [(1, "in turn"), (64, "in bursts of 64")] {
            let heap = measure!(Merge, streams, burst);
            let all = measure!(SimpleMerge, streams, burst);
            println!("{streams:>7}  {order:<15}{heap:>8.1}{all:>16.1}");
        }
    }
}

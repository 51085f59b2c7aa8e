//! Counts what perf lost, each loss once.
//!
//! The kernel writes `PERF_RECORD_LOST` when a ring has room again; it counts records of any kind.
//! perf adds `PERF_RECORD_LOST_SAMPLES` at the end, from the counters of the same losses
//! (`PERF_FORMAT_LOST`, `tools/perf/builtin-record.c`, v6.12). So the latter count only in a file
//! without any of the former.

use swtch_core::Gap;

/// Limit for the number of lost records: larger numbers are damage. The sum stays below it, so that
/// sums of gaps cannot overflow.
const MOST: u64 = 1 << 48;

/// The losses that a file reports.
#[derive(Debug, Default)]
pub struct Losses {
    count: u64,
    has_records: bool,
    /// From `LOST_SAMPLES`: whether they count is known at the end.
    waiting: Vec<Gap>,
}

impl Losses {
    /// Number of records that were lost so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns true if a `LOST_SAMPLES` would report a loss that nothing else has reported.
    pub fn want_samples(&self) -> bool {
        !self.has_records
    }

    /// Takes a `PERF_RECORD_LOST`; returns the gap to keep.
    pub fn add_records(&mut self, gap: Gap) -> Gap {
        self.has_records = true;
        self.waiting.clear();
        self.add(gap)
    }

    /// Takes a `PERF_RECORD_LOST_SAMPLES`, which may be dropped later.
    pub fn add_samples(&mut self, gap: Gap) {
        if self.want_samples() {
            self.waiting.push(gap);
        }
    }

    /// To be called at the end; returns the gaps from `LOST_SAMPLES` that count.
    pub fn settle(&mut self) -> Vec<Gap> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|gap| self.add(gap)).collect()
    }

    fn add(&mut self, gap: Gap) -> Gap {
        let lost = gap.lost.min(MOST - self.count);
        self.count += lost;
        Gap { lost, ..gap }
    }
}

#[cfg(test)]
mod tests {
    use swtch_core::{CpuId, Level, Timestamp};

    use super::*;

    fn gap(lost: u64) -> Gap {
        Gap {
            cpu: CpuId::new(0),
            start: Timestamp::from_ns(1),
            end: Timestamp::from_ns(2),
            lost,
            level: Level::Os,
        }
    }

    /// perf writes both for one loss, in either order after the records are sorted by time.
    #[test]
    fn a_loss_that_is_told_twice_counts_once() {
        for samples_first in [false, true] {
            let mut losses = Losses::default();
            if samples_first {
                losses.add_samples(gap(10));
            }
            assert_eq!(losses.add_records(gap(10)).lost, 10);
            if !samples_first {
                losses.add_samples(gap(10));
            }
            assert!(losses.settle().is_empty());
            assert_eq!(losses.count(), 10);
        }
    }

    #[test]
    fn samples_count_where_nothing_else_tells_the_loss() {
        let mut losses = Losses::default();
        losses.add_samples(gap(3));
        losses.add_samples(gap(4));
        assert_eq!(losses.count(), 0);
        assert_eq!(losses.settle(), [gap(3), gap(4)]);
        assert_eq!(losses.count(), 7);
    }

    /// Two flipped bytes must not overflow a sum.
    #[test]
    fn an_absurd_loss_ends_at_a_limit() {
        let mut losses = Losses::default();
        let kept: u64 = [u64::MAX, u64::MAX, 1]
            .map(|lost| losses.add_records(gap(lost)).lost)
            .iter()
            .sum();
        assert_eq!((kept, losses.count()), (MOST, MOST));
    }
}

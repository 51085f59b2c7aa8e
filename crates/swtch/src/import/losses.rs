//! What perf lost, counted once.
//!
//! The kernel writes `PERF_RECORD_LOST` when a ring has room again; it counts records of any kind. perf adds
//! `PERF_RECORD_LOST_SAMPLES` at the end, out of the counters of the same losses (`PERF_FORMAT_LOST`,
//! `tools/perf/builtin-record.c`, v6.12). So these count only in a file that has none of the first.

use swtch_core::Gap;

/// More is no number of records. The sum stays below it, so that sums of gaps cannot overflow.
const MOST: u64 = 1 << 48;

/// Losses of a file.
#[derive(Debug, Default)]
pub struct Losses {
    count: u64,
    has_records: bool,
    /// By `LOST_SAMPLES`: whether they count is known at the end.
    waiting: Vec<Gap>,
}

impl Losses {
    /// Records that were lost.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether a `LOST_SAMPLES` would tell a loss that nothing else has told.
    pub fn want_samples(&self) -> bool {
        !self.has_records
    }

    /// By `PERF_RECORD_LOST`; the gap to keep.
    pub fn add_records(&mut self, gap: Gap) -> Gap {
        self.has_records = true;
        self.waiting.clear();
        self.add(gap)
    }

    /// By `PERF_RECORD_LOST_SAMPLES`.
    pub fn add_samples(&mut self, gap: Gap) {
        if self.want_samples() {
            self.waiting.push(gap);
        }
    }

    /// No more will come; the gaps that are still to keep.
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

    /// perf writes both for one loss, in either order once the records are sorted by time.
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

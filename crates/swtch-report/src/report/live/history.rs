//! The rates of the last frames, by row: what the small curves on the screen show.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::frame::{LiveView, RateFrame, RowKey};

/// Switches per second of each row in the last frames.
#[derive(Debug, Default)]
pub struct RateHistory {
    frames: u64,
    rows: FxHashMap<RowKey, VecDeque<PastRate>>,
    total: VecDeque<PastRate>,
}

#[derive(Clone, Copy, Debug)]
struct PastRate {
    frame: u64,
    per_second: f32,
}

impl RateHistory {
    /// Number of frames that are remembered.
    pub const LENGTH: usize = 60;

    /// Takes the rates of all rows of a frame.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a curve of eight heights needs no more digits"
    )]
    pub fn meet(&mut self, frame: &RateFrame) {
        self.frames += 1;
        let number = self.frames;
        let past = |switches| PastRate {
            frame: number,
            per_second: frame.per_second(switches) as f32,
        };
        push(&mut self.total, past(frame.total.switches()));
        for row in LiveView::ALL.iter().flat_map(|view| frame.rows(*view)) {
            let rates = self.rows.entry(row.key).or_default();
            push(rates, past(row.sums.switches()));
        }
        // Rows of tasks that ended go some time after their last switch.
        if number.is_multiple_of(Self::LENGTH as u64) {
            let oldest = number - Self::LENGTH as u64;
            self.rows
                .retain(|_, rates| rates.back().is_some_and(|last| last.frame > oldest));
        }
    }

    /// The rates of a row in the last `most` frames, the oldest first; 0 where it did not switch.
    pub fn rates(&self, key: RowKey, most: usize) -> Vec<f32> {
        self.rows
            .get(&key)
            .map_or_else(Vec::new, |rates| self.last(rates, most))
    }

    /// The rates of all rows together in the last `most` frames, the oldest first.
    pub fn total(&self, most: usize) -> Vec<f32> {
        self.last(&self.total, most)
    }

    fn last(&self, rates: &VecDeque<PastRate>, most: usize) -> Vec<f32> {
        let most = most.min(Self::LENGTH) as u64;
        let first = self.frames.saturating_sub(most) + 1;
        let mut found = vec![0.0; usize::try_from(self.frames + 1 - first).unwrap_or(0)];
        for rate in rates.iter().filter(|rate| rate.frame >= first) {
            let place = usize::try_from(rate.frame - first).unwrap_or(usize::MAX);
            found[place] = rate.per_second;
        }
        found
    }
}

fn push(rates: &mut VecDeque<PastRate>, rate: PastRate) {
    if rates.len() == RateHistory::LENGTH {
        rates.pop_front();
    }
    rates.push_back(rate);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::live::drawn_live::{blocked_in_read, totals};
    use crate::report::live::{LiveCounts, LiveTasks};
    use swtch_core::{Arch, Nanos, TaskKey};

    fn frame(counts: &LiveCounts) -> RateFrame {
        let tasks = LiveTasks::default();
        let second = Nanos::from_ns(1_000_000_000);
        RateFrame::of(counts, &tasks, None, &[LiveView::Thread], second)
    }

    #[test]
    fn a_frame_without_switches_is_a_zero() {
        let (mut counts, mut history) = (LiveCounts::new(Arch::X86_64), RateHistory::default());
        for switches in [10, 10, 40] {
            counts.meet(0, &blocked_in_read(1), &totals(switches));
            history.meet(&frame(&counts));
            counts.end_frame();
        }
        let key = RowKey::Thread(TaskKey::new(1));
        assert_eq!(history.rates(key, 9), [10.0, 0.0, 30.0]);
        assert_eq!(history.rates(key, 2), [0.0, 30.0]);
        assert_eq!(history.total(9), [10.0, 0.0, 30.0]);
        assert!(history.rates(RowKey::Thread(TaskKey::new(2)), 9).is_empty());
    }

    #[test]
    fn rows_that_are_gone_are_forgotten() {
        let mut history = RateHistory::default();
        for task in 1..500 {
            let mut counts = LiveCounts::new(Arch::X86_64);
            counts.meet(0, &blocked_in_read(task), &totals(1));
            history.meet(&frame(&counts));
        }
        assert!(history.rows.len() <= 2 * RateHistory::LENGTH);
    }
}

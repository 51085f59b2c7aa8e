//! Finds out whether a machine ran at one speed or switched between two.
//!
//! A virtual machine may lose its core to another guest, or a core its turbo, for seconds at a
//! time: all times are then longer by a fixed factor, and no counter of the guest shows it. The
//! sentinel's times then form two clusters instead of one.
//!
//! The values are cut in two so that the sum of distances to the medians of both parts is least,
//! over all cuts that leave each part its least share: in one dimension an exact search over sorted
//! values with running sums. It is 2-means with medians in the place of means: with squares, a
//! single slow block would decide the cut, and the switch of speed would go unseen.
//!
//! Limit: this does not test whether there are two clusters or one broad one. If times spread so
//! widely that the medians of their halves lie that far apart, they are worth as little.

use serde::{Deserialize, Serialize};

/// The least distance between the medians of two speeds, in per cent of the lower one. Quiet machines spread within
/// 5 %; factors of 1.3 to 1.7 between two speeds have been seen.
pub const LEAST_GAP_PCT: f64 = 15.0;

/// The least share of the smaller part, in per cent: fewer values are outliers.
pub const LEAST_SHARE_PCT: f64 = 10.0;

/// The speeds at which a machine ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regimes {
    /// Number of speeds: one or two.
    pub count: u32,
    /// The extra time of the slower part, by medians, in per cent of the faster. Also given when it is too little to
    /// count as two speeds.
    pub gap_pct: f64,
    /// The share of the faster part, in per cent.
    pub fast_share_pct: f64,
    /// The share of the slower part, in per cent.
    pub slow_share_pct: f64,
}

impl Regimes {
    /// The regimes of `values`: times, in any unit. `None` with fewer than two, or if one is not a
    /// positive number.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.len() < 2 || !values.iter().all(|value| value.is_finite() && *value > 0.0) {
            return None;
        }
        let sorted = Sorted::new(values);
        let cut = sorted.best_cut();
        let fast = sorted.median(0, cut);
        let slow = sorted.median(cut, values.len());
        let gap_pct = (slow / fast - 1.0) * 100.0;
        let share_pct = |part: usize| 100.0 * part as f64 / values.len() as f64;
        Some(Self {
            count: if gap_pct > LEAST_GAP_PCT { 2 } else { 1 },
            gap_pct,
            fast_share_pct: share_pct(cut),
            slow_share_pct: share_pct(values.len() - cut),
        })
    }
}

/// Sorted values and their running sums: `sums[i]` is the sum of the first `i`.
struct Sorted {
    values: Vec<f64>,
    sums: Vec<f64>,
}

impl Sorted {
    fn new(values: &[f64]) -> Self {
        let mut values = values.to_vec();
        values.sort_unstable_by(f64::total_cmp);
        let mut sums = vec![0.0];
        let mut sum = 0.0;
        sums.extend(values.iter().map(|value| {
            sum += value;
            sum
        }));
        Self { values, sums }
    }

    /// Number of values in the faster part, for the best cut.
    fn best_cut(&self) -> usize {
        let count = self.values.len();
        let least = (count as f64 * LEAST_SHARE_PCT / 100.0).ceil();
        let least = super::interval::whole(least).max(1);
        (least..=count - least)
            .min_by(|a, b| self.distances(*a).total_cmp(&self.distances(*b)))
            .unwrap_or(count / 2)
    }

    fn distances(&self, cut: usize) -> f64 {
        self.distance(0, cut) + self.distance(cut, self.values.len())
    }

    /// The sum of distances of `from..to` to its median: the upper half less the lower half.
    fn distance(&self, from: usize, to: usize) -> f64 {
        let half = (to - from) / 2;
        let lower = self.sums[from + half] - self.sums[from];
        let upper = self.sums[to] - self.sums[to - half];
        upper - lower
    }

    fn median(&self, from: usize, to: usize) -> f64 {
        let below = self.values[from + (to - from - 1) / 2];
        let above = self.values[from + (to - from) / 2];
        f64::midpoint(below, above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(center: f64, count: usize) -> Vec<f64> {
        // From -1 % to +1 %, in an arbitrary order.
        (0..count)
            .map(|index| center * (1.0 + 0.01 * ((index * 7 % 11) as f64 / 5.0 - 1.0)))
            .collect()
    }

    #[test]
    fn a_steady_machine_has_one_regime() {
        let regimes = Regimes::of(&around(50.0, 60)).unwrap();
        assert_eq!(regimes.count, 1);
        assert!(regimes.gap_pct < 2.0, "{regimes:?}");
    }

    /// The factor of 1.7 that steal time did not show.
    #[test]
    fn a_flip_is_two_regimes() {
        let values = [around(50.0, 40), around(85.0, 20)].concat();
        let regimes = Regimes::of(&values).unwrap();
        assert_eq!(regimes.count, 2);
        assert!((regimes.gap_pct - 70.0).abs() < 1.0, "{regimes:?}");
        assert!((regimes.slow_share_pct - 100.0 / 3.0).abs() < 0.1);
    }

    #[test]
    fn a_few_slow_blocks_are_no_regime() {
        let values = [around(50.0, 60), around(85.0, 3)].concat();
        assert_eq!(Regimes::of(&values).unwrap().count, 1);
    }

    /// Squares would cut off the one slow block and miss the switch of speed.
    #[test]
    fn an_outlier_does_not_hide_a_flip() {
        let values = [around(50.0, 30), around(65.0, 30), vec![3000.0]].concat();
        let regimes = Regimes::of(&values).unwrap();
        assert_eq!(regimes.count, 2);
        assert!((regimes.gap_pct - 30.0).abs() < 1.0, "{regimes:?}");
    }

    #[test]
    fn what_is_no_time_has_no_regimes() {
        assert_eq!(Regimes::of(&[1.0]), None);
        assert_eq!(Regimes::of(&[1.0, 0.0]), None);
        assert_eq!(Regimes::of(&[1.0, f64::NAN]), None);
        assert_eq!(Regimes::of(&[1.0, 1.0]).unwrap().count, 1);
    }
}

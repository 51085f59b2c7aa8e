//! Time that counts once, however often it is asked for.

/// The most ranges that are kept of one task.
const MOST_RANGES: usize = 64;

/// Ranges of time that were counted, in order and apart from each other.
#[derive(Debug, Default)]
pub(super) struct CountedTime {
    ranges: Vec<(u64, u64)>,
}

impl CountedTime {
    /// Counts the time from then to then, and returns the parts of it that were not counted yet.
    pub(super) fn add(&mut self, from: u64, to: u64) -> Vec<(u64, u64)> {
        if from >= to {
            return Vec::new();
        }
        let first = self.ranges.partition_point(|range| range.1 < from);
        let mut merged = (from, to);
        let mut upto = from;
        let mut gaps = Vec::new();
        let mut end = first;
        while let Some(range) = self.ranges.get(end).filter(|range| range.0 <= to) {
            if upto < range.0 {
                gaps.push((upto, range.0));
            }
            upto = range.1;
            merged = (merged.0.min(range.0), merged.1.max(range.1));
            end += 1;
        }
        if upto < to {
            gaps.push((upto, to));
        }
        self.ranges.splice(first..end, [merged]);
        self.forget_the_oldest_gap();
        gaps
    }

    /// With too many ranges, the time between the two oldest is taken for counted: so the count stays a lower bound.
    fn forget_the_oldest_gap(&mut self) {
        if self.ranges.len() > MOST_RANGES {
            let oldest = self.ranges.remove(0);
            self.ranges[0].0 = oldest.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_counts_once() {
        let mut counted = CountedTime::default();
        assert_eq!(counted.add(20, 60), [(20, 60)]);
        assert_eq!(counted.add(80, 90), [(80, 90)]);
        assert_eq!(counted.add(10, 100), [(10, 20), (60, 80), (90, 100)]);
        assert_eq!(counted.add(30, 95), []);
        assert_eq!(counted.add(100, 100), []);
        assert_eq!(counted.ranges, [(10, 100)]);
    }

    #[test]
    fn many_ranges_are_bounded_and_no_moment_counts_twice() {
        let mut counted = CountedTime::default();
        for start in 0..1_000 {
            assert_eq!(
                counted.add(start * 10, start * 10 + 5),
                [(start * 10, start * 10 + 5)]
            );
        }
        assert_eq!(counted.ranges.len(), MOST_RANGES);
        assert_eq!(counted.add(0, 100), []);
        assert_eq!(
            counted.add(9_980, 10_000),
            [(9_985, 9_990), (9_995, 10_000)]
        );
    }
}

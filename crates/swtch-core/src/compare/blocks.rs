//! Estimates how well one run is known by itself, by a block bootstrap over stretches of its time.
//!
//! ```text
//! one run   │ block │ block │ block │ …      blocks drawn anew, with repetition, many times:
//!                                            how much does the figure vary?
//! ```
//!
//! What happens in a run depends on what happened just before, so single events may not be drawn;
//! blocks keep neighbours together. Where even blocks resemble their neighbours, they are worth
//! fewer ([`crate::stats::integrated_time`]), and the variance is larger by that factor.
//!
//! It does not say how much *another run* would differ. The draws have a fixed seed: the same
//! blocks give the same answer.
//!
//! Source: Efron and Tibshirani, "An Introduction to the Bootstrap", §8.6.

use fastrand::Rng;

use super::CompareScale;
use crate::stats::integrated_time;

/// The fewest blocks that say anything: fewer make no stable variance.
pub const LEAST_BLOCKS: usize = 10;

/// Draws for one figure. The variance of 400 draws is known within 7 %.
const DRAWS: usize = 400;

/// Any number; it is fixed, so that the same traces give the same answer.
const SEED: u64 = 0x0073_7774_6368;

/// A figure of one run, block by block.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockSeries {
    /// A sum, such as switches: the amount in each block.
    Sums(Vec<f64>),
    /// A percentile (0 to 100): in each block, the different values, rising, and how often each
    /// occurred.
    Percentile(f64, Vec<Vec<(u64, u64)>>),
}

/// The variance of a figure of one run, from its own blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WithinRun {
    /// Variance of the figure, as a part of its square.
    pub relative: f64,
    /// Variance of its logarithm; `None` if a draw was 0.
    pub of_logarithm: Option<f64>,
    /// The figure itself, which `relative` is a part of.
    pub figure: f64,
    /// The number of independent blocks that these are worth.
    pub worth: f64,
}

impl WithinRun {
    /// The variance of a figure from its blocks. `figure` is its value in the whole run, in any
    /// unit. `None` with fewer than [`LEAST_BLOCKS`] blocks, and for a percentile of nothing.
    pub fn of(series: &BlockSeries, figure: f64) -> Option<Self> {
        let amounts = series.amounts()?;
        if amounts.len() < LEAST_BLOCKS {
            return None;
        }
        if amounts.iter().all(|amount| *amount == 0.0) && matches!(series, BlockSeries::Sums(_)) {
            return Some(Self::nothing(amounts.len()));
        }
        let prepared = PreparedSeries::of(series);
        let whole = prepared.value(&vec![1; amounts.len()])?;
        let draws = prepared.draws(amounts.len());
        let time = integrated_time(&amounts).unwrap_or(1.0);
        let relative: Vec<f64> = draws.iter().map(|draw| draw / whole).collect();
        let logarithms: Option<Vec<f64>> = relative
            .iter()
            .map(|draw| (*draw > 0.0).then(|| draw.ln()))
            .collect();
        Some(Self {
            relative: variance(&relative) * time,
            of_logarithm: logarithms.map(|draws| variance(&draws) * time),
            figure,
            worth: amounts.len() as f64 / time,
        })
    }

    /// A run of so many blocks in which the figure is 0. What comes to be on the other side is
    /// judged by that side's blocks alone.
    const fn nothing(blocks: usize) -> Self {
        Self {
            relative: 0.0,
            of_logarithm: None,
            figure: 0.0,
            worth: blocks as f64,
        }
    }

    /// The variance on a scale, and its degrees of freedom.
    pub(super) fn variance(&self, scale: CompareScale) -> Option<(f64, f64)> {
        let variance = match scale {
            CompareScale::Logarithm => self.of_logarithm?,
            CompareScale::Linear => self.relative * self.figure * self.figure,
        };
        Some((variance, (self.worth - 1.0).max(1.0)))
    }
}

impl BlockSeries {
    /// The series by which blocks are judged to resemble their neighbours: the amounts; for a
    /// percentile, how many values of each block lie above it.
    fn amounts(&self) -> Option<Vec<f64>> {
        match self {
            Self::Sums(sums) => Some(sums.clone()),
            Self::Percentile(percent, blocks) => {
                let values = SortedValues::of(blocks);
                let whole = values.percentile(*percent, &vec![1; blocks.len()])?;
                let above = |block: &Vec<(u64, u64)>| {
                    let above = block.iter().filter(|(value, _)| *value as f64 > whole);
                    above.map(|(_, count)| *count as f64).sum()
                };
                Some(blocks.iter().map(above).collect())
            }
        }
    }
}

/// A series in the form in which a draw is cheap: values are sorted once, and not for each draw.
#[derive(Debug)]
enum PreparedSeries<'s> {
    Sums(&'s [f64]),
    Percentile(f64, SortedValues),
}

/// The values of all blocks.
#[derive(Debug)]
struct SortedValues {
    /// Rising values, each with its block and how often it occurs there.
    values: Vec<(u64, usize, u64)>,
    /// Number of values of each block.
    counts: Vec<u64>,
}

impl<'s> PreparedSeries<'s> {
    fn of(series: &'s BlockSeries) -> Self {
        match series {
            BlockSeries::Sums(sums) => Self::Sums(sums),
            BlockSeries::Percentile(percent, blocks) => {
                Self::Percentile(*percent, SortedValues::of(blocks))
            }
        }
    }

    /// The figure of a run that has each block as often as `times` says; `None` without values, or
    /// if it is 0.
    fn value(&self, times: &[u32]) -> Option<f64> {
        let value = match self {
            Self::Sums(sums) => {
                let parts = sums.iter().zip(times);
                parts.map(|(sum, times)| sum * f64::from(*times)).sum()
            }
            Self::Percentile(percent, values) => values.percentile(*percent, times)?,
        };
        (value > 0.0).then_some(value)
    }

    fn draws(&self, blocks: usize) -> Vec<f64> {
        let mut rng = Rng::with_seed(SEED);
        let mut times = vec![0; blocks];
        let draw = |_| {
            times.fill(0);
            for _ in 0..blocks {
                times[rng.usize(..blocks)] += 1;
            }
            self.value(&times).unwrap_or(0.0)
        };
        (0..DRAWS).map(draw).collect()
    }
}

impl SortedValues {
    fn of(blocks: &[Vec<(u64, u64)>]) -> Self {
        let each = blocks.iter().enumerate();
        let values = each.flat_map(|(block, values)| {
            let values = values.iter();
            values.map(move |(value, count)| (*value, block, *count))
        });
        let mut values: Vec<_> = values.collect();
        values.sort_unstable();
        let count = |block: &Vec<(u64, u64)>| block.iter().map(|(_, count)| count).sum();
        Self {
            values,
            counts: blocks.iter().map(count).collect(),
        }
    }

    /// The value that `percent` of all values do not exceed, if each block occurs as often as
    /// `times` says.
    fn percentile(&self, percent: f64, times: &[u32]) -> Option<f64> {
        let counts = self.counts.iter().zip(times);
        let all: u64 = counts.map(|(count, times)| count * u64::from(*times)).sum();
        let mut seen = 0;
        let reached = self.values.iter().find(|(_, block, count)| {
            seen += count * u64::from(times[*block]);
            all > 0 && seen as f64 >= percent / 100.0 * all as f64
        });
        reached.map(|(value, _, _)| *value as f64)
    }
}

fn variance(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    squares.sum::<f64>() / (count - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
    }

    /// Forty independent blocks of 100 ± 10: the mean of their sum is known within 10 % / √40.
    #[test]
    fn the_variance_of_a_sum_is_that_of_its_blocks() {
        let mut rng = Rng::with_seed(5);
        let sums: Vec<f64> = (0..40).map(|_| 100.0 + 10.0 * noise(&mut rng)).collect();
        let within = WithinRun::of(&BlockSeries::Sums(sums), 4000.0).unwrap();
        let error = within.of_logarithm.unwrap().sqrt();
        let expected = 0.1 / 40_f64.sqrt();
        assert!(
            (0.7..2.0).contains(&(error / expected)),
            "{error} {expected}"
        );
    }

    /// Blocks that drift together say less than their number.
    #[test]
    fn blocks_that_resemble_their_neighbours_are_worth_fewer() {
        let mut rng = Rng::with_seed(6);
        let mut drift = 0.0;
        let sums: Vec<f64> = (0..60)
            .map(|_| {
                drift = 0.9 * drift + noise(&mut rng);
                100.0 + drift
            })
            .collect();
        let within = WithinRun::of(&BlockSeries::Sums(sums), 6000.0).unwrap();
        assert!(within.worth < 15.0, "{}", within.worth);
    }

    #[test]
    fn too_few_or_empty_blocks_say_nothing() {
        assert_eq!(WithinRun::of(&BlockSeries::Sums(vec![1.0; 9]), 9.0), None);
        let empty = BlockSeries::Percentile(50.0, vec![Vec::new(); 20]);
        assert_eq!(WithinRun::of(&empty, 0.0), None);
    }

    /// One block with everything: many draws lack it, so the logarithm is not known.
    #[test]
    fn a_figure_of_one_block_has_no_logarithm() {
        let mut sums = vec![0.0; 20];
        sums[7] = 5.0;
        let within = WithinRun::of(&BlockSeries::Sums(sums), 5.0).unwrap();
        assert_eq!(within.of_logarithm, None);
        assert!(within.relative > 0.5, "{}", within.relative);
    }

    #[test]
    fn a_run_in_which_nothing_happened_is_known_by_its_blocks() {
        let within = WithinRun::of(&BlockSeries::Sums(vec![0.0; 20]), 0.0).unwrap();
        assert_eq!((within.relative, within.worth), (0.0, 20.0));
        assert_eq!(within.of_logarithm, None);
    }

    #[test]
    fn percentiles_are_those_of_all_values_together() {
        let blocks = vec![vec![(1, 50)], vec![(2, 40), (9, 10)]];
        let values = SortedValues::of(&blocks);
        let at = |percent| values.percentile(percent, &[1, 1]);
        assert_eq!(at(50.0), Some(1.0));
        assert_eq!(at(90.0), Some(2.0));
        assert_eq!(at(91.0), Some(9.0));
        assert_eq!(values.percentile(50.0, &[0, 1]), Some(2.0));
        assert_eq!(values.percentile(50.0, &[0, 0]), None);
    }

    #[test]
    fn the_same_blocks_give_the_same_answer() {
        let series = BlockSeries::Sums((0..30).map(f64::from).collect());
        assert_eq!(WithinRun::of(&series, 1.0), WithinRun::of(&series, 1.0));
    }
}

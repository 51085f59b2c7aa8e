//! The blocks of a group as series for estimates: by operation, by tree, by round.

use swtch_bench::cost::{ArmSpec, LiveRegisters, Sample, Tree};
use swtch_core::cost::{Block, Contrast, Dropped, Estimate, KeptBlocks, Policy, Primitive};

use super::measure::MeasuredGroup;
use super::menu::ArmGroup;

/// The number of the sentinel's series.
const SENTINEL: usize = usize::MAX;

/// One of the operations that an arm times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmOperation {
    /// Index of the arm in its group.
    pub arm: usize,
    /// Index of the operation in its arm. Of a ring: 0 is the main work, 1 its hot baseline, 2
    /// the other work.
    pub timed_operation: usize,
}

impl ArmOperation {
    /// The main work of an arm.
    pub const fn of(arm: usize) -> Self {
        Self {
            arm,
            timed_operation: 0,
        }
    }

    /// The hot baseline of a ring.
    pub const fn baseline(arm: usize) -> Self {
        Self {
            arm,
            timed_operation: 1,
        }
    }

    /// A ring with its other work.
    pub const fn other_work(arm: usize) -> Self {
        Self {
            arm,
            timed_operation: 2,
        }
    }

    /// Number of the series; no arm has more than four operations.
    const fn series(self) -> usize {
        self.arm * 4 + self.timed_operation
    }
}

/// Values of two series by tree and round: the same index is the same round.
pub type PairedSeries = (Vec<Vec<f64>>, Vec<Vec<f64>>);

/// All blocks of a group that count.
#[derive(Debug)]
pub struct Blocks<'m> {
    measured: &'m MeasuredGroup,
    trees: Vec<KeptBlocks>,
}

impl<'m> Blocks<'m> {
    /// Judges the blocks of every tree.
    pub fn of(measured: &'m MeasuredGroup) -> Self {
        let judge = |tree: &Tree| KeptBlocks::of(&blocks(&measured.group, tree));
        Self {
            measured,
            trees: measured.trees.iter().map(judge).collect(),
        }
    }

    /// The group that the blocks belong to.
    pub const fn group(&self) -> &'m ArmGroup {
        &self.measured.group
    }

    /// Blocks that were left out.
    pub fn dropped(&self) -> Dropped {
        let trees = self.trees.iter().map(KeptBlocks::dropped);
        trees.fold(Dropped::default(), Dropped::plus)
    }

    /// Blocks of one operation that were left out.
    pub fn dropped_of(&self, operation: ArmOperation) -> usize {
        let samples = self.measured.trees.iter().flat_map(|tree| &tree.samples);
        let all = samples.filter(|sample| is_of(sample, operation)).count();
        let kept = |tree: &KeptBlocks| {
            let [values] = tree.together([operation.series()]);
            values.len()
        };
        all - self.trees.iter().map(kept).sum::<usize>()
    }

    /// Time per operation, in ns.
    pub fn estimate(&self, operation: ArmOperation) -> Option<Estimate> {
        let tree = |tree: &KeptBlocks| {
            let [values] = tree.together([operation.series()]);
            values
        };
        Estimate::of_trees(&self.trees.iter().map(tree).collect::<Vec<_>>())
    }

    /// The rounds in which blocks of both operations count, by tree.
    pub fn pairs(&self, one: ArmOperation, other: ArmOperation) -> PairedSeries {
        self.series_pairs(one.series(), other.series())
    }

    fn series_pairs(&self, one: usize, other: usize) -> PairedSeries {
        let trees = self.trees.iter().map(|tree| {
            let [one, other] = tree.together([one, other]);
            (one, other)
        });
        trees.unzip()
    }

    /// Difference and ratio of `with` to `without`, paired by round.
    pub fn contrast(&self, without: ArmOperation, with: ArmOperation) -> Option<Contrast> {
        let (without, with) = self.pairs(without, with);
        Contrast::of_trees(&without, &with)
    }

    /// `with` less `without`, where the difference alone is needed.
    pub fn difference(&self, without: ArmOperation, with: ArmOperation) -> Option<Estimate> {
        let (without, with) = self.pairs(without, with);
        Estimate::of_differences(&without, &with)
    }

    /// The net cost of `ring` (less its hot baseline) beyond that of `plain`, round by round: what
    /// its work adds to a switch, without the work itself.
    pub fn net_beyond(&self, plain: usize, ring: usize) -> Option<Estimate> {
        let operations = [
            ArmOperation::of(ring),
            ArmOperation::baseline(ring),
            ArmOperation::of(plain),
            ArmOperation::baseline(plain),
        ];
        let trees = self.trees.iter().map(|tree| {
            let [ring, alone, plain, plain_alone] =
                tree.together(operations.map(ArmOperation::series));
            let rounds = ring.iter().zip(&alone).zip(plain.iter().zip(&plain_alone));
            let beyond = |((ring, alone), (plain, plain_alone)): ((&f64, &f64), (&f64, &f64))| {
                (ring - alone) - (plain - plain_alone)
            };
            rounds.map(beyond).collect()
        });
        Estimate::of_trees(&trees.collect::<Vec<Vec<f64>>>())
    }

    /// Time per operation of `operation`, in multiples of the sentinel's loop.
    pub fn over_sentinel(&self, operation: ArmOperation) -> Option<Estimate> {
        let (sentinel, operation) = self.series_pairs(SENTINEL, operation.series());
        Contrast::of_trees(&sentinel, &operation).map(|contrast| contrast.ratio)
    }

    /// Readings of the sentinel by tree, in ns.
    pub fn sentinels(&self) -> Vec<Vec<f64>> {
        let series = |tree: &KeptBlocks| {
            let [readings] = tree.together([SENTINEL]);
            readings
        };
        self.trees.iter().map(series).collect()
    }

    /// Register components that were in use at the switches of two operations; `None` where that
    /// was not recorded.
    pub fn proof(&self, without: ArmOperation, with: ArmOperation) -> Option<String> {
        let live = |operation| {
            let samples = self.measured.trees.iter().flat_map(|tree| &tree.samples);
            let live = samples
                .filter(|sample| is_of(sample, operation))
                .map(|sample| sample.live);
            live.reduce(LiveRegisters::of_both).flatten()
        };
        let (without, with) = (live(without)?, live(with)?);
        Some(format!(
            "in use at every switch: {:#x} with it, {:#x} without",
            with.always, without.ever
        ))
    }

    /// Voluntary and involuntary switches per operation, over the blocks in which no other task had
    /// the CPU.
    pub fn switches(&self, operation: ArmOperation) -> (f64, f64) {
        let group = &self.measured.group;
        let samples = self.measured.trees.iter().flat_map(|tree| &tree.samples);
        let mut sums = [0; 3];
        for sample in samples.filter(|sample| is_of(sample, operation)) {
            if unexpected(group, sample) == 0 {
                sums[0] += sample.counted_over;
                sums[1] += sample.counted.voluntary;
                sums[2] += sample.counted.involuntary;
            }
        }
        let [operations, voluntary, involuntary] = sums.map(as_f64);
        match sums[0] {
            0 => (0.0, 0.0),
            _ => (voluntary / operations, involuntary / operations),
        }
    }
}

fn is_of(sample: &Sample, operation: ArmOperation) -> bool {
    sample.arm == operation.arm && sample.timed_operation == operation.timed_operation
}

/// The blocks of a tree, the sentinel's too.
fn blocks(group: &ArmGroup, tree: &Tree) -> Vec<Block> {
    let of_acts = tree.samples.iter().map(|sample| Block {
        round: sample.round,
        series: ArmOperation {
            arm: sample.arm,
            timed_operation: sample.timed_operation,
        }
        .series(),
        ns_per_operation: as_f64(sample.elapsed.as_ns()) / as_f64(sample.operations),
        unexpected_switches: unexpected(group, sample),
    });
    let of_sentinel = tree.sentinels.iter().map(|reading| Block {
        round: reading.round,
        series: SENTINEL,
        ns_per_operation: as_f64(reading.user.as_ns()),
        unexpected_switches: 0,
    });
    of_acts.chain(of_sentinel).collect()
}

/// Involuntary switches in a ring that is built to have none: another task had the CPU meanwhile.
/// Members under the default policy preempt one another, and `sched_yield` counts as involuntary:
/// there the switches that other tasks caused cannot be told apart, and the result is 0.
fn unexpected(group: &ArmGroup, sample: &Sample) -> u64 {
    let is_told = match &group.arms[sample.arm].spec {
        ArmSpec::Ring(ring) if sample.timed_operation != 1 => {
            ring.policy != Policy::Default && ring.primitive != Primitive::Yield
        }
        ArmSpec::Ring(_)
        | ArmSpec::Uncontended { .. }
        | ArmSpec::Yardstick { .. }
        | ArmSpec::Coroutine { .. } => true,
        _ => false,
    };
    if is_told {
        sample.counted.involuntary
    } else {
        0
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and lengths are far below 2^53"
)]
const fn as_f64(number: u64) -> f64 {
    number as f64
}

//! Blocks of a group as series that can be estimated: by act, by tree, by round.

use swtch_bench::cost::{ArmSpec, LiveRegisters, Sample, Tree};
use swtch_core::cost::{Block, Contrast, Dropped, Estimate, Kept, Policy, Primitive};

use super::measure::Measured;
use super::menu::Group;

/// The number of the sentinel's series.
const SENTINEL: usize = usize::MAX;

/// One act of an arm, by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// The arm.
    pub arm: usize,
    /// 0 for what the arm is there for, 1 for the hot baseline of a ring, 2 for its other work.
    pub act: usize,
}

impl Act {
    /// What an arm is there for.
    pub const fn of(arm: usize) -> Self {
        Self { arm, act: 0 }
    }

    /// The hot baseline of a ring.
    pub const fn baseline(arm: usize) -> Self {
        Self { arm, act: 1 }
    }

    /// A ring with its other work.
    pub const fn other_work(arm: usize) -> Self {
        Self { arm, act: 2 }
    }

    /// No arm has more acts.
    const fn series(self) -> usize {
        self.arm * 4 + self.act
    }
}

/// Rounds by tree of one series, and of another: the same index is the same round.
pub type Paired = (Vec<Vec<f64>>, Vec<Vec<f64>>);

/// All blocks of a group that count.
#[derive(Debug)]
pub struct Blocks<'m> {
    measured: &'m Measured,
    trees: Vec<Kept>,
}

impl<'m> Blocks<'m> {
    /// Judges the blocks of every tree.
    pub fn of(measured: &'m Measured) -> Self {
        let judge = |tree: &Tree| Kept::of(&blocks(&measured.group, tree));
        Self {
            measured,
            trees: measured.trees.iter().map(judge).collect(),
        }
    }

    /// The group that they are of.
    pub const fn group(&self) -> &'m Group {
        &self.measured.group
    }

    /// Blocks that were left out.
    pub fn dropped(&self) -> Dropped {
        let trees = self.trees.iter().map(Kept::dropped);
        trees.fold(Dropped::default(), Dropped::plus)
    }

    /// Blocks of one act that were left out.
    pub fn dropped_of(&self, act: Act) -> usize {
        let samples = self.measured.trees.iter().flat_map(|tree| &tree.samples);
        let all = samples.filter(|sample| is_of(sample, act)).count();
        let kept = |tree: &Kept| {
            let [values] = tree.together([act.series()]);
            values.len()
        };
        all - self.trees.iter().map(kept).sum::<usize>()
    }

    /// ns per operation.
    pub fn estimate(&self, act: Act) -> Option<Estimate> {
        let tree = |tree: &Kept| {
            let [values] = tree.together([act.series()]);
            values
        };
        Estimate::of_trees(&self.trees.iter().map(tree).collect::<Vec<_>>())
    }

    /// Rounds by tree in which both count.
    pub fn pairs(&self, one: Act, other: Act) -> Paired {
        self.series_pairs(one.series(), other.series())
    }

    fn series_pairs(&self, one: usize, other: usize) -> Paired {
        let trees = self.trees.iter().map(|tree| {
            let [one, other] = tree.together([one, other]);
            (one, other)
        });
        trees.unzip()
    }

    /// `with` less `without`, and over it.
    pub fn contrast(&self, without: Act, with: Act) -> Option<Contrast> {
        let (without, with) = self.pairs(without, with);
        Contrast::of_trees(&without, &with)
    }

    /// `with` less `without`, where the difference alone is wanted.
    pub fn difference(&self, without: Act, with: Act) -> Option<Estimate> {
        let (without, with) = self.pairs(without, with);
        Estimate::of_differences(&without, &with)
    }

    /// What `ring` costs net of its hot baseline beyond what `plain` does, round by round: what its work
    /// adds to a switch, the work itself taken off.
    pub fn net_beyond(&self, plain: usize, ring: usize) -> Option<Estimate> {
        let acts = [
            Act::of(ring),
            Act::baseline(ring),
            Act::of(plain),
            Act::baseline(plain),
        ];
        let trees = self.trees.iter().map(|tree| {
            let [ring, alone, plain, plain_alone] = tree.together(acts.map(Act::series));
            let rounds = ring.iter().zip(&alone).zip(plain.iter().zip(&plain_alone));
            let beyond = |((ring, alone), (plain, plain_alone)): ((&f64, &f64), (&f64, &f64))| {
                (ring - alone) - (plain - plain_alone)
            };
            rounds.map(beyond).collect()
        });
        Estimate::of_trees(&trees.collect::<Vec<Vec<f64>>>())
    }

    /// The act in multiples of the sentinel's loop.
    pub fn over_sentinel(&self, act: Act) -> Option<Estimate> {
        let (sentinel, act) = self.series_pairs(SENTINEL, act.series());
        Contrast::of_trees(&sentinel, &act).map(|contrast| contrast.ratio)
    }

    /// Readings of the sentinel by tree, ns.
    pub fn sentinels(&self) -> Vec<Vec<f64>> {
        let series = |tree: &Kept| {
            let [readings] = tree.together([SENTINEL]);
            readings
        };
        self.trees.iter().map(series).collect()
    }

    /// Register components that were in use at the switches of two acts; `None` where nobody looked.
    pub fn proof(&self, without: Act, with: Act) -> Option<String> {
        let live = |act| {
            let samples = self.measured.trees.iter().flat_map(|tree| &tree.samples);
            let live = samples
                .filter(|sample| is_of(sample, act))
                .map(|sample| sample.live);
            live.reduce(LiveRegisters::of_both).flatten()
        };
        let (without, with) = (live(without)?, live(with)?);
        Some(format!(
            "in use at every switch: {:#x} with it, {:#x} without",
            with.always, without.ever
        ))
    }

    /// Voluntary and involuntary switches per operation, over the blocks in which nobody else had the
    /// CPU.
    pub fn switches(&self, act: Act) -> (f64, f64) {
        let group = &self.measured.group;
        let samples = self.measured.trees.iter().flat_map(|tree| &tree.samples);
        let mut sums = [0; 3];
        for sample in samples.filter(|sample| is_of(sample, act)) {
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

fn is_of(sample: &Sample, act: Act) -> bool {
    sample.arm == act.arm && sample.act == act.act
}

/// The blocks of a tree, the sentinel's too.
fn blocks(group: &Group, tree: &Tree) -> Vec<Block> {
    let of_acts = tree.samples.iter().map(|sample| Block {
        round: sample.round,
        series: Act {
            arm: sample.arm,
            act: sample.act,
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

/// Involuntary switches where construction makes none: somebody else had the CPU meanwhile. Members
/// under the default policy preempt one another, and `sched_yield` counts as involuntary: there a
/// stranger cannot be told.
fn unexpected(group: &Group, sample: &Sample) -> u64 {
    let is_told = match &group.arms[sample.arm].spec {
        ArmSpec::Ring(ring) if sample.act != 1 => {
            ring.policy != Policy::Default && ring.primitive != Primitive::Yield
        }
        ArmSpec::LockRing(ring) if sample.act == 0 => ring.is_exact(),
        ArmSpec::Ring(_)
        | ArmSpec::LockRing(_)
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

//! Error rates of the statistics, checked on simulated machines: how often a difference is claimed
//! where there is none, how often one is found, how often an interval holds the truth.

use fastrand::Rng;

use super::estimate::Contrast;
use super::verdict::{Difference, differs};

/// Random numbers from a fixed seed.
pub(crate) struct SeededNoise {
    pub(crate) rng: Rng,
}

impl SeededNoise {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
        }
    }

    /// Normal, with mean 0 and standard deviation 1 (Box and Muller, 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        let length = (-2.0 * (1.0 - self.rng.f64()).ln()).sqrt();
        length * (std::f64::consts::TAU * self.rng.f64()).cos()
    }

    /// AR(1), with mean 0 and standard deviation 1.
    pub(crate) fn autoregressive(&mut self, memory: f64) -> impl Iterator<Item = f64> {
        let mut state = self.normal();
        let step = (1.0 - memory * memory).sqrt();
        std::iter::repeat_with(move || {
            let now = state;
            state = memory * state + step * self.normal();
            now
        })
    }
}

/// A machine with two arms on it. All values are standard deviations, in per cent of the time of an
/// operation.
#[derive(Clone, Copy)]
struct Machine {
    /// Difference between the arms of one tree, constant for its whole life.
    offset_pct: f64,
    /// Drift from round to round that both arms share, AR(1) with 0.9.
    shared_drift_pct: f64,
    /// Drift from round to round of each arm alone, AR(1) with 0.9.
    own_drift_pct: f64,
    /// Variation from block to block.
    block_pct: f64,
    /// True difference: by how much arm b takes longer, in per cent.
    effect_pct: f64,
}

const BUSY: Machine = Machine {
    offset_pct: 0.7,
    shared_drift_pct: 5.0,
    own_drift_pct: 0.5,
    block_pct: 1.0,
    effect_pct: 0.0,
};

type Arms = [Vec<Vec<f64>>; 2];

impl Machine {
    fn trees(&self, noise: &mut SeededNoise, trees: usize, rounds: usize) -> Arms {
        let mut arms = [const { Vec::new() }; 2];
        for _ in 0..trees {
            let shared: Vec<f64> = noise.autoregressive(0.9).take(rounds).collect();
            for (arm, effect_pct) in arms.iter_mut().zip([0.0, self.effect_pct]) {
                // The difference of two arms is to have this deviation.
                let offset = self.offset_pct / std::f64::consts::SQRT_2 * noise.normal();
                let own: Vec<f64> = noise.autoregressive(0.9).take(rounds).collect();
                let tree = shared.iter().zip(own).map(|(shared, own)| {
                    let off_pct = offset
                        + self.shared_drift_pct * shared
                        + self.own_drift_pct * own
                        + self.block_pct * noise.normal();
                    1000.0 * (1.0 + effect_pct / 100.0) * (off_pct / 100.0).exp()
                });
                arm.push(tree.collect());
            }
        }
        arms
    }
}

/// Averages over many simulated measurements; shares from 0 to 1.
#[derive(Debug, Default)]
struct SimulationAverages {
    claimed: f64,
    found: f64,
    resolved: f64,
    covered: f64,
    confidence: f64,
    half_width_pct: f64,
}

/// Simulates many measurements; each has an A/A contrast if `with_a_a`.
fn simulate(machine: Machine, trees: usize, rounds: usize, with_a_a: bool) -> SimulationAverages {
    const TIMES: u32 = 400;
    let mut noise = SeededNoise::new(2024);
    let mut shares = SimulationAverages::default();
    let once = 1.0 / f64::from(TIMES);
    let identical = Machine {
        effect_pct: 0.0,
        ..machine
    };
    for _ in 0..TIMES {
        let [a, b] = machine.trees(&mut noise, trees, rounds);
        let contrast = Contrast::of_trees(&a, &b).unwrap();
        let a_a = with_a_a.then(|| {
            let [a, b] = identical.trees(&mut noise, trees, rounds);
            Contrast::of_trees(&a, &b).unwrap()
        });
        let said = differs(&contrast, a_a.as_ref());
        let truth = 1.0 + machine.effect_pct / 100.0;
        let share = |is_so: bool| once * f64::from(u8::from(is_so));
        shares.claimed += share(said.is_claim());
        shares.found += share(said == Difference::Larger);
        shares.resolved += share(said != Difference::Unresolved);
        shares.covered += share(contrast.ratio.interval().contains(truth));
        shares.confidence += once * contrast.ratio.confidence;
        shares.half_width_pct += once * contrast.ratio.half_width_pct().unwrap();
    }
    println!(
        "{trees} trees of {rounds} rounds, A/A {with_a_a}, drift of each arm {} %: {shares:.3?}",
        machine.own_drift_pct
    );
    shares
}

/// Identical arms that differ by 0.7 % from tree to tree, and drift.
#[test]
fn identical_arms_are_seldom_told_apart() {
    for trees in [1, 2, 3, 5, 6, 9, 12, 20, 24] {
        for with_a_a in [false, true] {
            let shares = simulate(BUSY, trees, 30, with_a_a);
            assert!(shares.claimed <= 0.05, "{trees} trees: {shares:?}");
        }
    }
}

/// The interval must hold the truth of all trees, not of those measured.
#[test]
fn the_interval_over_trees_holds_the_truth() {
    for trees in [6, 7, 9, 12, 20, 24] {
        for rounds in [10, 60] {
            let shares = simulate(BUSY, trees, rounds, false);
            assert!(shares.covered >= 0.93, "{trees} trees: {shares:?}");
        }
    }
}

/// A difference of one per cent, where trees do not differ otherwise.
#[test]
fn one_per_cent_is_found() {
    let machine = Machine {
        offset_pct: 0.0,
        effect_pct: 1.0,
        ..BUSY
    };
    for (trees, with_a_a) in [(12, false), (12, true), (20, false), (20, true)] {
        let shares = simulate(machine, trees, 30, with_a_a);
        assert!(shares.found >= 0.9, "{trees} trees: {shares:?}");
        assert!(shares.covered >= 0.93, "{trees} trees: {shares:?}");
    }
}

/// Swapping a and b reverses the verdict.
#[test]
fn arms_may_change_places() {
    let machine = Machine {
        effect_pct: 1.0,
        ..BUSY
    };
    let mut noise = SeededNoise::new(7);
    for _ in 0..100 {
        let [a, b] = machine.trees(&mut noise, 12, 20);
        let [there, back] =
            [(&a, &b), (&b, &a)].map(|(a, b)| differs(&Contrast::of_trees(a, b).unwrap(), None));
        let opposite = match there {
            Difference::Larger => Difference::Smaller,
            Difference::Smaller => Difference::Larger,
            same => same,
        };
        assert_eq!(back, opposite);
    }
}

/// Eight contrasts of identical arms at a time: in 400 families at most 5 % claim any.
#[test]
fn a_family_of_identical_arms_is_seldom_told_apart() {
    let mut noise = SeededNoise::new(11);
    let claimed = (0..400)
        .filter(|_| {
            let arms: [Arms; 8] = [(); 8].map(|()| BUSY.trees(&mut noise, 12, 10));
            let pairs = arms.each_ref().map(|[a, b]| (&a[..], &b[..]));
            let family = Contrast::of_family(&pairs, 0.05);
            let mut said = family.iter().flatten();
            said.any(|contrast| differs(contrast, None).is_claim())
        })
        .count();
    println!("families with a claim: {claimed} of 400");
    assert!(claimed <= 20, "{claimed} of 400");
}

/// A single tree has only its rounds. Their interval holds the truth of the tree while arms drift
/// together, and drift apart by no more than blocks of a tree do (0.2 %).
#[test]
fn the_interval_of_one_tree_holds_the_truth_of_that_tree() {
    for own_drift_pct in [0.0, 0.2] {
        let machine = Machine {
            offset_pct: 0.0,
            own_drift_pct,
            ..BUSY
        };
        for rounds in [10, 30, 60, 300] {
            let shares = simulate(machine, 1, rounds, false);
            assert!(shares.covered >= 0.93, "{rounds} rounds: {shares:?}");
        }
    }
}

/// Intervals fall short where arms of few trees drift apart; the margin still prevents false claims.
#[test]
fn arms_that_drift_apart_are_seldom_told_apart() {
    for own_drift_pct in [0.5, 1.0, 2.0] {
        let machine = Machine {
            own_drift_pct,
            ..BUSY
        };
        for (trees, rounds) in [
            (1, 10),
            (1, 20),
            (1, 30),
            (1, 60),
            (1, 300),
            (2, 10),
            (3, 10),
        ] {
            let shares = simulate(machine, trees, rounds, false);
            assert!(shares.claimed <= 0.05, "{own_drift_pct} %: {shares:?}");
        }
    }
}

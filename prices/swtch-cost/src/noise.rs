//! Gathers what is known about the machine during a session, for the verdict on noise.

use swtch_core::cost::{Contrast, Dropped, Noise, differs};
use swtch_core::stats::{Regimes, iqr_pct, lag1};

use super::measure::Measurements;
use super::series::Blocks;

/// Gathers the noise of a session. `twins` are the contrasts of all pairs of arms that do the same,
/// judged as one family. One of them is kept: one that differs if there is any, else the one whose
/// interval has the median width.
pub fn noise(measurements: &Measurements, blocks: &[Blocks<'_>], twins: &[Contrast]) -> Noise {
    let trees = || {
        measurements
            .measured
            .iter()
            .flat_map(|measured| &measured.trees)
    };
    let by_tree: Vec<Vec<f64>> = blocks.iter().flat_map(Blocks::sentinels).collect();
    let sentinels: Vec<f64> = by_tree.concat();
    let counters = &measurements.counters;
    let took_s = measurements.took.as_secs_f64();
    let unsteady = trees().filter(|tree| !tree.was_steady).count();
    Noise {
        trees: measurements
            .measured
            .iter()
            .map(|one| one.trees.len())
            .min()
            .unwrap_or_default(),
        blocks: trees().map(|tree| tree.samples.len()).sum(),
        dropped: blocks
            .iter()
            .map(Blocks::dropped)
            .fold(Dropped::default(), Dropped::plus),
        sentinel_iqr_pct: iqr_pct(&sentinels),
        regimes: Regimes::of(&sentinels),
        lag1: by_tree
            .iter()
            .filter_map(|tree| lag1(tree))
            .reduce(f64::max),
        // The unit of every interval is the tree, so the effective number of rounds plays no part.
        effective_n: None,
        steal_pct: counters.steal_s.map(|steal| steal * 100.0 / took_s),
        throttled: counters.throttled,
        interrupts_per_s: counters.interrupts.map(|count| count as f64 / took_s),
        foreign_switches: None,
        // One tree in four may start while the speed still changes; with more, the machine is
        // unsteady.
        was_steady: unsteady * 4 <= trees().count(),
        a_a: representative(twins),
    }
}

fn representative(twins: &[Contrast]) -> Option<Contrast> {
    let mut sorted = twins.to_vec();
    let width = |contrast: &Contrast| contrast.ratio.high - contrast.ratio.low;
    sorted.sort_by(|one, other| width(one).total_cmp(&width(other)));
    let differing = sorted.iter().find(|twin| differs(twin, None).is_claim());
    differing.or(sorted.get(sorted.len() / 2)).copied()
}

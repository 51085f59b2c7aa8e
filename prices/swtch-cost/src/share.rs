//! Measures how much of a switch is inside the scheduler: the kernel's own time in `__schedule()`, compared with the
//! net price of the same rings without probes.
//!
//! ```text
//! tree 0   plain ── with probes     plain:       hand-off, baseline, net
//! tree 1   with probes ── plain     with probes: share and the probes' own part, by round
//! …                                 both:        how much the probes slow a hand-off down
//! ```
//!
//! Only members of the rings have `SCHED_BATCH`, so the probes tell their switches from all others;
//! and a switch between threads stays in its process, so both rings of a tree are counted apart.
//!
//! For the probes, a round ends when the first line of the next round is read. The block that this
//! line reports is done by then, so the probes have its switches in the round before, and a round
//! may have none; each switch is in one round. Warm-up laps inside a block count too, calibration
//! and warm-up rounds do not.
//!
//! A check on the probes' own part, in every answer: a switch has four readings of the clock by
//! four programs, so the slow-down of a hand-off should be about four times what is subtracted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result};
use swtch_bench::cost::{Ended, RingSpec, Tree};
use swtch_capture::{Error, KernelShare, MeasuredTasks, ShareCounts, Shares};
use swtch_core::CpuId;
use swtch_core::cost::{
    Estimate, KernelShareRow, Members, MissingPrice, Policy, PriceList, Primitive,
};
use swtch_core::stats::median;

use super::machine::MachineCounters;
use super::measure::{MeasuredGroup, Measurements};
use super::menu::{Arm, ArmGroup, Effort, Menu, Role, Section};
use super::series::{ArmOperation, Blocks};

/// The word on the command line.
const NAME: &str = "kernel-share";

/// The number of `SCHED_BATCH` (`include/uapi/linux/sched.h`).
const SCHED_BATCH: u32 = 3;

/// The primitive with the least work of its own around the switch.
const PRIMITIVE: Primitive = Primitive::FutexShared;

/// The members of the group's rings, in the order of its arms.
const MEMBERS: [Members; 2] = [Members::Threads, Members::Processes];

/// The group that is measured with and without probes; `None` when there is no time for it.
pub fn group(effort: Effort, cpu: u32) -> Option<ArmGroup> {
    let (trees, rounds) = match effort {
        Effort::Quick => return None,
        Effort::Default => (10, 10),
        Effort::Thorough => (24, 20),
    };
    let mut group = ArmGroup::new(NAME, Section::Contrast);
    for members in MEMBERS {
        let ring = RingSpec::pair(PRIMITIVE, members, Policy::Batch, cpu);
        group.add(Arm::ring(ring, Role::Part));
    }
    group.has_all_baselines = true;
    (group.trees, group.rounds) = (trees, rounds);
    Some(group)
}

/// The rows of the kernel's share, or why there are none.
#[derive(Debug, Default)]
pub struct KernelShares {
    rows: Vec<KernelShareRow>,
    missing: Option<MissingPrice>,
}

impl KernelShares {
    /// Adds the rows to the price list.
    pub fn enter(self, list: &mut PriceList) {
        list.kernel_share = self.rows;
        list.missing.extend(self.missing);
    }

    fn missing(why: String) -> Self {
        Self {
            rows: Vec::new(),
            missing: Some(MissingPrice {
                kind: NAME.to_owned(),
                why,
            }),
        }
    }
}

/// Measures the share if the menu has it, and adds the trees without probes to `measurements`.
///
/// # Errors
///
/// A process cannot be started, or one that measures failed. Probes that are not allowed are no
/// error, but [`PriceList::missing`].
pub fn measure(
    menu: &Menu,
    measurements: &mut Measurements,
    stop: &AtomicBool,
) -> Result<KernelShares> {
    let Some(group) = &menu.share else {
        return Ok(KernelShares::default());
    };
    let cpu = CpuId::new(u16::try_from(menu.cpu).context("a CPU's number")?);
    if let Err(error) = attach(cpu) {
        return Ok(KernelShares::missing(reason(&error)));
    }
    let (start, before) = (Instant::now(), MachineCounters::read(menu.cpu));
    let pairs = grow_pairs(group, cpu, stop)?;
    measurements.took += start.elapsed();
    measurements.counters = measurements
        .counters
        .plus(MachineCounters::read(menu.cpu).since(before));
    if pairs.len() < group.trees {
        return Ok(KernelShares::missing("it was ended early".to_owned()));
    }
    let (outcome, plain) = judge(group, pairs);
    measurements.measured.push(plain);
    Ok(outcome)
}

/// The shares from all trees, and the measurement of those without probes.
fn judge(group: &ArmGroup, pairs: Vec<(Tree, Probed)>) -> (KernelShares, MeasuredGroup) {
    let (plain, probed): (Vec<Tree>, Vec<Probed>) = pairs.into_iter().unzip();
    let (trees, rounds): (Vec<Tree>, Vec<Vec<Shares>>) = probed.into_iter().unzip();
    let measured = |trees| MeasuredGroup {
        group: group.clone(),
        trees,
    };
    let (plain, with_probes) = (measured(plain), measured(trees));
    let outcome = outcome(&Blocks::of(&plain), &Blocks::of(&with_probes), &rounds);
    (outcome, plain)
}

fn attach(cpu: CpuId) -> Result<KernelShare, Error> {
    KernelShare::attach(cpu, MeasuredTasks::Policy(SCHED_BATCH))
}

/// Says why probes cannot be attached, and what helps.
pub(super) fn reason(error: &Error) -> String {
    match error.advice() {
        Some(advice) => format!("{error}; {advice}"),
        None => error.to_string(),
    }
}

/// A tree with probes, and what they counted in each of its rounds.
type Probed = (Tree, Vec<Shares>);

/// Trees without and with probes, side by side, in alternating order. Fewer than planned when
/// `stop` is set.
fn grow_pairs(group: &ArmGroup, cpu: CpuId, stop: &AtomicBool) -> Result<Vec<(Tree, Probed)>> {
    let mut pairs = Vec::new();
    for number in 0..group.trees {
        let seed = u64::try_from(number).unwrap_or_default();
        let plain = || -> Result<Tree> {
            let tree = group.plan(cpu.get().into()).time(seed, stop, |_| {});
            tree.with_context(|| format!("measuring {NAME}"))
        };
        let pair = if number % 2 == 0 {
            let plain = plain()?;
            (plain, grow_probed(group, cpu, seed, stop)?)
        } else {
            let probed = grow_probed(group, cpu, seed, stop)?;
            (plain()?, probed)
        };
        if stop.load(Ordering::Relaxed) || pair.0.ended == Ended::Stopped {
            break;
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

fn grow_probed(group: &ArmGroup, cpu: CpuId, seed: u64, stop: &AtomicBool) -> Result<Probed> {
    let failed = || format!("measuring {NAME}");
    let mut share = attach(cpu).with_context(failed)?;
    share.open();
    let mut rounds = Vec::new();
    let mut is_warm = false;
    let plan = group.plan(cpu.get().into());
    let tree = plan.time(seed, stop, |_| {
        // The first round begins: what was counted until now was warm-up.
        if is_warm {
            rounds.push(share.read());
        }
        is_warm = true;
        share.reset();
    });
    rounds.push(share.read());
    Ok((tree.with_context(failed)?, rounds))
}

fn outcome(plain: &Blocks<'_>, probed: &Blocks<'_>, rounds: &[Vec<Shares>]) -> KernelShares {
    let rows = MEMBERS.iter().enumerate().filter_map(|(arm, members)| {
        let rounds = of_members(rounds, *members);
        row(
            *members,
            ArmOperation::of(arm),
            ArmOperation::baseline(arm),
            plain,
            probed,
            &rounds,
        )
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return KernelShares::missing(
            "the probes counted nothing, or what they add themselves is not known: other \
             programs may be attached to the same tracepoints"
                .to_owned(),
        );
    }
    KernelShares {
        rows,
        missing: None,
    }
}

fn of_members(rounds: &[Vec<Shares>], members: Members) -> Vec<Vec<ShareCounts>> {
    let of = |shares: &Shares| match members {
        Members::Threads => shares.within.clone(),
        Members::Processes => shares.across.clone(),
    };
    let tree = |tree: &Vec<Shares>| tree.iter().map(of).collect();
    rounds.iter().map(tree).collect()
}

fn row(
    members: Members,
    ring: ArmOperation,
    baseline: ArmOperation,
    plain: &Blocks<'_>,
    probed: &Blocks<'_>,
    rounds: &[Vec<ShareCounts>],
) -> Option<KernelShareRow> {
    let shares = values(rounds, ShareCounts::share_ns);
    let probes = values(rounds, ShareCounts::probe_ns);
    let nets = tree_medians(&differences(plain.pairs(baseline, ring)));
    let slow_down = beside(
        &tree_medians(&probed.pairs(ring, ring).0),
        &tree_medians(&plain.pairs(ring, ring).0),
        |with, without| with - without,
    );
    let share_pct = beside(&tree_medians(&shares), &nets, |share, net| {
        share / net * 100.0
    });
    let all = rounds.iter().flatten().cloned();
    let all = all.reduce(|sum, round| sum.plus(&round))?;
    Some(KernelShareRow {
        kind: PRIMITIVE.as_str().to_owned(),
        members,
        policy: Policy::Batch,
        switches: all.switches,
        share_ns: Estimate::of_trees(&shares)?,
        probe_ns: Estimate::of_trees(&probes)?,
        p50_ns: all.quantile_ns(0.5),
        p99_ns: all.quantile_ns(0.99),
        net_ns: plain.difference(baseline, ring)?,
        hand_off_ns: plain.estimate(ring)?,
        share_pct_of_net: Estimate::of_trees(&share_pct)?,
        slow_down_ns: Estimate::of_trees(&slow_down)?,
    })
}

/// A value for each round of each tree that has one.
fn values(
    rounds: &[Vec<ShareCounts>],
    value: impl Fn(&ShareCounts) -> Option<f64>,
) -> Vec<Vec<f64>> {
    let tree = |tree: &Vec<ShareCounts>| tree.iter().filter_map(&value).collect();
    rounds.iter().map(tree).collect()
}

fn differences((without, with): (Vec<Vec<f64>>, Vec<Vec<f64>>)) -> Vec<Vec<f64>> {
    let tree = |(without, with): (Vec<f64>, Vec<f64>)| {
        let rounds = with.into_iter().zip(without);
        rounds.map(|(with, without)| with - without).collect()
    };
    without.into_iter().zip(with).map(tree).collect()
}

pub(super) fn tree_medians(trees: &[Vec<f64>]) -> Vec<Option<f64>> {
    trees.iter().map(|rounds| median(rounds)).collect()
}

/// One value for each pair of trees: they were measured beside each other, but their rounds are not
/// paired.
fn beside(
    one: &[Option<f64>],
    other: &[Option<f64>],
    value: impl Fn(f64, f64) -> f64,
) -> Vec<Vec<f64>> {
    let pairs = one.iter().zip(other);
    let tree = |(one, other): (&Option<f64>, &Option<f64>)| Some(value((*one)?, (*other)?));
    pairs.map(|pair| tree(pair).into_iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trees are paired by index: one without a neighbour has no value.
    #[test]
    fn trees_are_compared_with_the_tree_beside_them() {
        let one = [Some(300.0), None, Some(330.0)];
        let other = [Some(1000.0), Some(1000.0), Some(1100.0)];
        let pct = beside(&one, &other, |share, net| share / net * 100.0);
        assert_eq!(pct, [vec![30.0], vec![], vec![30.0]]);
    }

    #[test]
    fn a_net_price_is_a_difference_within_a_round() {
        let (alone, ring) = (vec![vec![100.0, 110.0]], vec![vec![1100.0, 1120.0]]);
        assert_eq!(differences((alone, ring)), [[1000.0, 1010.0]]);
    }

    #[test]
    fn quick_prices_do_without() {
        assert!(group(Effort::Quick, 0).is_none());
        let group = group(Effort::Default, 1).expect("it is part of a default run");
        assert_eq!(group.name, NAME);
        assert!(group.arms.iter().all(|arm| {
            let ring = arm.as_ring().expect("all are rings");
            ring.cpus == Some((1, 1)) && ring.policy == Policy::Batch
        }));
    }

    /// Both rings have a share, and it lies inside a hand-over.
    #[test]
    #[ignore = "needs root"]
    fn root_the_share_lies_inside_the_hand_off() {
        let home = swtch_bench::cost::home().expect("the kernel says which CPUs may be used");
        let cpu = CpuId::new(u16::try_from(home).expect("CPUs have small numbers"));
        if let Err(error @ Error::NoShareHook(_)) = attach(cpu) {
            swtch_test::skip!("{}", reason(&error));
        }
        // Rings into which others break count for nothing, and too few may be left.
        let _quiet = swtch_test::depends_on_quiet();
        let mut group = group(Effort::Default, home).expect("it is part of a default run");
        group.trees = 2;
        let pairs = grow_pairs(&group, cpu, &AtomicBool::new(false)).expect("root may");
        let (outcome, _) = judge(&group, pairs);
        assert_eq!(outcome.rows.len(), MEMBERS.len(), "{outcome:?}");
        for row in &outcome.rows {
            assert!(row.share_ns.point > 0.0, "{row:?}");
            assert!(row.share_ns.point < row.hand_off_ns.point, "{row:?}");
            assert!(row.switches > 1_000, "{row:?}");
        }
    }
}

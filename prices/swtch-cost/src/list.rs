//! Builds the price list from the blocks that were measured.

use std::thread;
use std::time::{Duration, Instant};

use swtch_bench::arch;
use swtch_bench::cost::{RingSpec, instruction_rate};
use swtch_core::cost::{
    Cliff, Contrast, Curve, MeasurementVerdict, MissingPrice, NamedContrast, PRICES_VERSION, Place,
    Point, Policy, Price, PriceFact, PriceList, PriceUnit, Primitive, REFERENCE, Session, differs,
};

use super::measure::{MeasuredGroup, Measurements};
use super::menu::{ArmPair, CurveName, Effort, Menu, PriceRow, Role, Section};
use super::noise;
use super::series::{ArmOperation, Blocks, PairedSeries};

/// A price is unresolved if half its interval is more than this percentage of its point.
const UNRESOLVED_PCT: f64 = 5.0;

/// The risk of any wrong claim among the contrasts of one family.
pub(super) const ALPHA: f64 = 0.05;

/// The list of all that was measured.
pub fn list(
    menu: &Menu,
    effort: Effort,
    measurements: &Measurements,
    was_interrupted: bool,
) -> PriceList {
    let origin = swtch_host::origin();
    let blocks: Vec<Blocks<'_>> = measurements.measured.iter().map(Blocks::of).collect();
    let groups: Vec<_> = measurements.measured.iter().zip(&blocks).collect();
    let prices: Vec<Price> = groups.iter().flat_map(|(m, b)| prices(m, b)).collect();
    let twins = twins(&groups);
    let all: Vec<Contrast> = twins.iter().map(|(_, contrast)| *contrast).collect();
    let noise = noise::noise(measurements, &blocks, &all);
    let verdict = MeasurementVerdict::of(&noise);
    let curves = curves(&groups);
    let cliff = cliff(&curves);
    PriceList {
        version: PRICES_VERSION,
        facts: facts(cliff.as_ref()),
        session: Session {
            effort: effort.as_str().to_owned(),
            id: format!("{}-{}", origin.measured_at, std::process::id()),
            seed: menu.seed,
            contrast_policy: Some(menu.steady),
            took_s: measurements.took.as_secs_f64(),
            reference: REFERENCE.to_owned(),
            twins: named(&twins),
            cpu: Some(menu.cpu),
            was_interrupted,
            is_resolved: !was_interrupted
                && prices.iter().all(is_narrow)
                && !matches!(verdict, MeasurementVerdict::Unresolved(_)),
            noise,
            verdict,
        },
        origin,
        prices: with_one_reference(prices),
        contrasts: contrasts(&groups),
        cliff,
        curves,
        kernel_share: Vec::new(),
        missing: missing(menu, measurements),
    }
}

/// Name of the fact that gives the rate of the CPU's clock counter.
pub const TICKS: &str = "clock_counter_ticks_per_s";

/// Name of the fact that gives the rate of instructions that wait for one another.
pub const CHAINED: &str = "instructions_chained_per_ns";

/// Name of the fact that gives the rate of instructions that wait for nothing.
pub const INDEPENDENT: &str = "instructions_independent_per_ns";

/// Facts of the machine, with those that only the CPU itself tells.
fn facts(cliff: Option<&Cliff>) -> Vec<PriceFact> {
    let mut facts = swtch_host::price_facts();
    let mut add = |name: &str, value: Option<String>, source: &str| {
        facts.push(PriceFact {
            name: name.to_owned(),
            value,
            source: source.to_owned(),
        });
    };
    add(
        TICKS,
        Some(ticks_per_second().to_string()),
        "the counter against CLOCK_MONOTONIC",
    );
    let area = arch::save_area_bytes();
    let bytes = area.map(|area| {
        area.compact_bytes
            .unwrap_or(area.standard_bytes)
            .to_string()
    });
    add("register_save_area_bytes", bytes, "CPUID leaf 0xd");
    match instruction_rate() {
        Ok(rate) => {
            let source = "hardware counter, a loop in user mode";
            add(CHAINED, Some(format!("{:.3}", rate.chained)), source);
            add(
                INDEPENDENT,
                Some(format!("{:.3}", rate.independent)),
                source,
            );
        }
        Err(why) => add(CHAINED, None, &why.to_string()),
    }
    if let Some(cliff) = cliff {
        let last = cliff.last_before.to_string();
        add("tlb_cliff_at", Some(last), "rings of processes, measured");
    }
    facts
}

/// Rate of the clock counter: as the CPU states it, else measured over a 50th of a second.
fn ticks_per_second() -> u64 {
    arch::ticks_per_second().unwrap_or_else(|| {
        let (start, before) = (Instant::now(), arch::ticks());
        thread::sleep(Duration::from_millis(20));
        let (elapsed, ticks) = (start.elapsed(), arch::ticks() - before);
        let per_second = u128::from(ticks) * 1_000_000_000 / elapsed.as_nanos().max(1);
        u64::try_from(per_second).unwrap_or(u64::MAX)
    })
}

/// Groups with their blocks.
pub type Groups<'a> = [(&'a MeasuredGroup, &'a Blocks<'a>)];

/// The prices of one group, in the order of its arms; none for an arm that was not measured.
pub fn prices(measured: &MeasuredGroup, blocks: &Blocks<'_>) -> Vec<Price> {
    let mut prices = Vec::new();
    for (index, arm) in measured.group.arms.iter().enumerate() {
        if matches!(arm.role, Role::Price | Role::Reference) {
            let rows = arm.rows().into_iter();
            prices.extend(rows.filter_map(|row| price(measured, blocks, index, row)));
        }
    }
    prices
}

/// The price of one row of an arm; `None` when it was not measured.
fn price(
    measured: &MeasuredGroup,
    blocks: &Blocks<'_>,
    arm: usize,
    row: PriceRow,
) -> Option<Price> {
    let operation = ArmOperation {
        arm,
        timed_operation: row.timed_operation,
    };
    let baseline = row.baseline.map(|timed_operation| ArmOperation {
        arm,
        timed_operation,
    });
    let reference = measured.group.reference().map(ArmOperation::of);
    let (voluntary, involuntary) = blocks.switches(operation);
    let ring = measured.group.arms[arm].as_ring();
    Some(Price {
        kind: row.kind,
        section: measured.group.arms[arm]
            .section(measured.group.section)
            .as_str()
            .to_owned(),
        members: ring.map(|ring| ring.members),
        count: ring.map(|ring| ring.count),
        place: ring.map(|ring| ring.place),
        policy: ring.map(|ring| ring.policy),
        hand_off_ns: blocks.estimate(operation)?,
        baseline_ns: baseline.and_then(|baseline| blocks.estimate(baseline)),
        net_ns: baseline.and_then(|baseline| blocks.difference(baseline, operation)),
        voluntary_per_op: voluntary,
        involuntary_per_op: involuntary,
        per: per(ring, voluntary + involuntary),
        system_calls: reference
            .and_then(|reference| blocks.contrast(reference, operation))
            .map(|contrast| contrast.ratio.point),
        relative: blocks.over_sentinel(operation),
        dropped_rounds: blocks.dropped_of(operation),
    })
}

/// A hop of a ring on one CPU is expected to be one switch; a hop across CPUs is no switch between
/// two tasks.
fn per(ring: Option<&RingSpec>, counted_per_op: f64) -> PriceUnit {
    match ring {
        None => PriceUnit::Operation("not a hand-over between tasks of the kernel".to_owned()),
        Some(ring) if ring.place != Place::SameCpu => PriceUnit::Operation(
            "a remote wake-up: an interrupt to another CPU and its exit from idle".to_owned(),
        ),
        Some(_) => PriceUnit::judge(counted_per_op, 1.0),
    }
}

/// Each group measures the system call; only the first such row is kept.
fn with_one_reference(prices: Vec<Price>) -> Vec<Price> {
    let mut kept: Vec<Price> = Vec::new();
    for price in prices {
        let is_again = price.members.is_none() && kept.iter().any(|one| one.kind == price.kind);
        if !is_again {
            kept.push(price);
        }
    }
    kept
}

/// Returns true if every price of a group has an interval that is narrow enough.
pub fn is_resolved(measured: &MeasuredGroup) -> bool {
    let blocks = Blocks::of(measured);
    prices(measured, &blocks).iter().all(is_narrow)
}

/// Only headline prices must be narrow: those of the section `Switch` under `SCHED_BATCH`. All
/// others show their interval and are no reason to measure longer.
fn is_narrow(price: &Price) -> bool {
    let is_headline =
        price.section == Section::Switch.as_str() && price.policy == Some(Policy::Batch);
    let half_width = price.hand_off_ns.half_width_pct();
    !is_headline || half_width.is_some_and(|half| half <= UNRESOLVED_PCT)
}

/// A pair, and its contrast.
type Compared = (ArmPair, Contrast);

/// Contrasts of arms that do the same, all of a session as one family: of many pairs some differ by
/// chance.
fn twins(groups: &Groups<'_>) -> Vec<Compared> {
    let mut pairs = Vec::new();
    let mut values = Vec::new();
    for (measured, blocks) in groups {
        for pair in measured.group.twins() {
            values.push(blocks.pairs(pair.without, pair.with));
            pairs.push(pair);
        }
    }
    let compared = pairs.into_iter().zip(family(&values));
    compared
        .filter_map(|(pair, contrast)| Some((pair, contrast?)))
        .collect()
}

/// A contrast for each pair of series, all judged as one family.
fn family(values: &[PairedSeries]) -> Vec<Option<Contrast>> {
    let pairs: Vec<_> = values
        .iter()
        .map(|(without, with)| (without.as_slice(), with.as_slice()))
        .collect();
    Contrast::of_family(&pairs, ALPHA)
}

fn named(twins: &[Compared]) -> Vec<NamedContrast> {
    let named = twins.iter().cloned();
    named
        .map(|(pair, contrast)| name(pair, &contrast, None))
        .collect()
}

/// The contrasts of each group are one family: the more of them, the wider the intervals (Holm).
/// Each contrast is judged beside two arms of its own group that do the same.
pub fn contrasts(groups: &Groups<'_>) -> Vec<NamedContrast> {
    let of_group = |(measured, blocks): &(&MeasuredGroup, &Blocks<'_>)| {
        let twin = |of: &ArmPair| {
            let twin = measured.group.twin_of(of)?;
            blocks.contrast(twin.without, twin.with)
        };
        let pairs = &measured.group.pairs;
        let values = pairs
            .iter()
            .map(|pair| blocks.pairs(pair.without, pair.with));
        let contrasts = family(&values.collect::<Vec<_>>());
        let compared = pairs.iter().cloned().zip(contrasts);
        let named = compared.filter_map(|(pair, contrast)| {
            let proof = blocks.proof(pair.without, pair.with);
            let twin = twin(&pair);
            let named = name(pair, &contrast?, twin.as_ref());
            Some(NamedContrast { proof, ..named })
        });
        let named: Vec<_> = named.collect();
        // Controls are dropped when nothing that they control was measured.
        let is_here = named.iter().any(|one| one.control_of.is_none());
        if is_here { named } else { Vec::new() }
    };
    groups.iter().flat_map(of_group).collect()
}

fn name(pair: ArmPair, contrast: &Contrast, twin: Option<&Contrast>) -> NamedContrast {
    NamedContrast {
        name: pair.name,
        about: pair.about,
        difference_ns: contrast.difference,
        ratio: contrast.ratio,
        p: contrast.p,
        control_of: pair.control_of,
        verdict: differs(contrast, twin),
        proof: None,
    }
}

fn curves(groups: &Groups<'_>) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    for (measured, blocks) in groups {
        for spot in &measured.group.spots {
            let operation = ArmOperation::of(spot.arm);
            let baseline = ArmOperation::baseline(spot.arm);
            let Some(net_ns) = blocks.difference(baseline, operation) else {
                continue;
            };
            let point = Point {
                size: spot.size as f64,
                net_ns,
                hot_ns: blocks.estimate(baseline),
            };
            curve_of(&mut curves, &spot.curve).points.push(point);
        }
    }
    curves
}

/// The step in the curves of rings without a working set, due to address-space identifiers alone.
fn cliff(curves: &[Curve]) -> Option<Cliff> {
    let named = |name| curves.iter().find(|curve| curve.name == name);
    Cliff::of(named("tlb-processes-0")?, named("tlb-threads-0")?)
}

fn curve_of<'c>(curves: &'c mut Vec<Curve>, name: &CurveName) -> &'c mut Curve {
    let position = curves.iter().position(|curve| curve.name == name.name);
    let position = position.unwrap_or_else(|| {
        curves.push(Curve {
            name: name.name.clone(),
            label: name.label.clone(),
            figure: name.figure.to_owned(),
            size_is: name.size_is.to_owned(),
            points: Vec::new(),
        });
        curves.len() - 1
    });
    &mut curves[position]
}

/// Lists what the menu knew to be missing, what could not be started, and what was not finished.
fn missing(menu: &Menu, measurements: &Measurements) -> Vec<MissingPrice> {
    let mut all = menu.missing.clone();
    for measured in &measurements.measured {
        for missing in measured.trees.iter().flat_map(|tree| &tree.missing) {
            let arm = &measured.group.arms[missing.arm];
            let one = MissingPrice {
                kind: match arm.role {
                    Role::Price => arm.describe(),
                    _ if Primitive::from_word(&arm.kind).is_some() => measured.group.name.clone(),
                    _ => arm.kind.clone(),
                },
                why: without_prefix(&missing.why).to_owned(),
            };
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    all.extend(measurements.unfinished.iter().map(|name| MissingPrice {
        kind: name.clone(),
        why: "it was ended before enough process trees were measured".to_owned(),
    }));
    all
}

/// Removes the words "not here", which the table adds itself.
fn without_prefix(why: &str) -> &str {
    why.strip_prefix("not here: ").unwrap_or(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_core::cost::{Members, Policy, Primitive};

    /// The unverified count is never called "per switch".
    #[test]
    fn a_count_that_is_off_by_more_than_half_a_percent_is_per_operation() {
        let ring = RingSpec::pair(Primitive::Pipe, Members::Threads, Policy::Batch, 0);
        assert_eq!(per(Some(&ring), 1.004), PriceUnit::Switch);
        for counted in [0.99, 1.006, 2.0, 0.0] {
            assert!(matches!(per(Some(&ring), counted), PriceUnit::Operation(_)));
        }
    }

    #[test]
    fn across_cpus_nothing_is_called_a_switch() {
        let ring = RingSpec {
            place: Place::SameCache,
            ..RingSpec::pair(Primitive::Pipe, Members::Threads, Policy::Batch, 0)
        };
        assert!(
            matches!(per(Some(&ring), 1.0), PriceUnit::Operation(why) if why.contains("remote"))
        );
    }
}

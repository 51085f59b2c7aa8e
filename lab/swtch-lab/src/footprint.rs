//! `footprint`: the indirect cost of a switch, by memory and by registers.
//!
//! ```text
//!  a hop with work  ─ the work, hot and alone ─▶ net ─ net of a ring without work ─▶ indirect
//!                     (a curve of `swtch cost`)         └ direct
//! ```
//!
//! Four groups. Working sets and registers are those of `swtch cost`, and strides are a curve of
//! the same ring. What no price list has is small: the second subtraction, and the last group, the
//! same ring on one CPU, on two, and free.
//!
//! Walks over memory that both processes share are the control: they must show no indirect cost,
//! because the processes warm the caches for each other.

use std::time::Duration;

use anyhow::{Result, ensure};
use swtch_bench::cost::{MemorySharing, Neighbour, Order, RingSpec, WorkSpec, home, neighbours};
use swtch_core::cost::{Estimate, Members, Place, Policy};

use super::context::ExperimentContext;
use super::findings::Findings;
use super::parameters::{ParameterValue, Parameters};
use super::quantities::Quantities;
use super::timed::{self, GroupPrices, Timed};
use swtch_cost::menu::{Arm, ArmGroup, Menu, Role, STRIDES, Section, WalkPattern};
use swtch_cost::series::{ArmOperation, Blocks};

mod answers;
mod shown;

/// Names of the groups; the third is the menu's.
const SETS: &str = "working sets";
const BY_STRIDE: &str = "strides";
const REGISTERS: &str = "registers";
const PLACES: &str = "places";

/// Largest working set in bytes; each of the two processes has one.
const MAX_BYTES: u64 = 256 << 20;

/// Second-level cache in bytes, where the kernel shows none.
const USUAL_CACHE: u64 = 512 << 10;

/// A line of the cache, in bytes.
const LINE: u64 = 64;

/// The parameters of the experiment, checked.
struct FootprintParameters {
    sizes: Vec<u64>,
    strides: Vec<u64>,
    /// Bytes over which the lines of all strides are spread.
    reach: u64,
    trees: usize,
}

/// The ring without work is the first arm of the groups that walk.
const PLAIN: usize = 0;

/// Runs the experiment.
///
/// # Errors
///
/// A parameter makes no sense, or no process can be started.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let asked = FootprintParameters::read(parameters)?;
    let groups = asked.groups(&Menu::of_groups(Vec::new(), home()?)?)?;
    let budget = Duration::from_secs(if context.is_quick { 18 } else { 55 });
    let timed = Timed::side_by_side(groups, budget, context)?;
    let mut findings = timed.findings();
    let mut quantities = Quantities::of_arms();
    let places = timed
        .group(PLACES)
        .map(|measured| place_costs(&Blocks::of(measured)));
    if let Some(prices) = timed.prices(SETS) {
        let sets = WorkingSetCosts::of(&prices);
        findings.tables.push(shown::sets_table(&sets));
        findings.pictures.push(shown::sets_picture(&sets));
        findings.sentences.extend(answers::control(&sets));
        answers::add_afterwards(&mut quantities, &sets, places.as_deref());
    }
    if let Some(measured) = timed.group(BY_STRIDE) {
        let strides = costs_of(&Blocks::of(measured), STRIDES);
        findings
            .tables
            .push(shown::strides_table(&strides, asked.reach));
        findings
            .pictures
            .push(shown::strides_picture(&strides, asked.reach));
    }
    if let Some(prices) = timed.prices(REGISTERS) {
        let contrasts = prices.contrasts();
        findings.tables.push(shown::registers_table(&contrasts));
        findings.pictures.push(shown::registers_picture(&contrasts));
        answers::add_registers(&mut quantities, &contrasts);
    }
    if let Some(places) = &places {
        findings.tables.push(shown::places_table(places));
    }
    findings.answers = quantities.answers("footprint");
    Ok(findings)
}

impl FootprintParameters {
    fn read(parameters: &Parameters) -> Result<Self> {
        let mut sizes = parameters.counts("sizes");
        sizes.extend(swtch_host::private_cache_bytes());
        sizes.sort_unstable();
        sizes.dedup();
        let reach = match parameters.find("reach") {
            Some(ParameterValue::Size(reach)) => *reach,
            other => unreachable!("the experiment's file has a size reach: {other:?}"),
        };
        for bytes in sizes.iter().chain([&reach]) {
            ensure!(
                (LINE..=MAX_BYTES).contains(bytes),
                "{} is not between one line of {LINE} bytes and 256 MiB",
                ParameterValue::Size(*bytes)
            );
        }
        let strides = parameters.counts("strides");
        for stride in &strides {
            ensure!(
                *stride > 0 && stride % LINE == 0 && *stride <= reach,
                "a stride of {} is no multiple of {LINE} bytes within the reach",
                ParameterValue::Size(*stride)
            );
        }
        Ok(Self {
            sizes,
            strides,
            reach,
            trees: timed::trees(parameters)?,
        })
    }

    fn groups(&self, menu: &Menu) -> Result<Vec<ArmGroup>> {
        let mut sets = self.group(SETS, menu);
        menu.add_working_sets(&mut sets, &self.sizes, &WalkPattern::ALL);
        let mut strides = self.group(BY_STRIDE, menu);
        menu.add_strides(&mut strides, self.reach, &self.strides);
        for group in [&mut sets, &mut strides] {
            timed::add_twin(group);
        }
        let registers = ArmGroup {
            // The effect is about a hundredth of a switch, so more trees and rounds are needed.
            trees: self.trees.max(10),
            rounds: 20,
            ..menu.registers()
        };
        Ok(vec![sets, strides, registers, self.places(menu)?])
    }

    /// A group that begins with the ring without work.
    fn group(&self, name: &str, menu: &Menu) -> ArmGroup {
        let mut group = ArmGroup::new(name, Section::Curve);
        (group.trees, group.rounds) = (self.trees, 6);
        group.add(Arm::ring(menu.ring(Members::Processes), Role::Price));
        group
    }

    /// Two rings for each place, on one CPU, on two, and free: one without work, and one that walks
    /// over half of the second-level cache, so that it fits where a process has such a cache to
    /// itself.
    fn places(&self, menu: &Menu) -> Result<ArmGroup> {
        let mut group = ArmGroup::new(PLACES, Section::Curve);
        (group.trees, group.rounds) = (self.trees, 8);
        group.has_all_baselines = true;
        let mut places = vec![(Place::SameCpu, Some((menu.cpu, menu.cpu)))];
        let near = neighbours(menu.cpu)?
            .into_iter()
            .find_map(|Neighbour { place, cpu }| Some((place, Some((menu.cpu, cpu.ok()?)))));
        places.extend(near);
        places.push((Place::Free, None));
        let walk = WorkSpec::WorkingSet {
            bytes: second_level_cache() / 2,
            order: Order::Random,
            sharing: MemorySharing::Private,
        };
        for (place, cpus) in places {
            for work in [WorkSpec::Nothing, walk] {
                let ring = RingSpec {
                    place,
                    cpus,
                    work,
                    policy: Policy::Default,
                    ..menu.ring(Members::Processes)
                };
                group.add(Arm::ring(ring, Role::Part));
            }
        }
        Ok(group)
    }
}

/// Bytes of the second-level cache.
fn second_level_cache() -> u64 {
    swtch_host::private_cache_bytes().unwrap_or(USUAL_CACHE)
}

/// What a switch costs afterwards at one point of a curve.
struct IndirectCost {
    /// Bytes of the working set, or from line to line.
    size: u64,
    /// Time of the walk, hot and alone.
    walk: Option<Estimate>,
    /// What a switch costs beyond the walk and beyond a switch without any.
    indirect: Option<Estimate>,
}

/// The points of the curve `name`, net of the ring without work.
fn costs_of(blocks: &Blocks<'_>, name: &str) -> Vec<IndirectCost> {
    let spots = blocks.group().spots.iter();
    let of_curve = spots.filter(|spot| spot.curve.name == name);
    let cost = of_curve.map(|spot| IndirectCost {
        size: spot.size,
        walk: blocks.estimate(ArmOperation::baseline(spot.arm)),
        indirect: blocks.net_beyond(PLAIN, spot.arm),
    });
    cost.collect()
}

/// The direct cost of a switch, and the indirect one by the size of the working set.
struct WorkingSetCosts {
    /// Net time of the ring without work.
    direct: Option<Estimate>,
    random: Vec<IndirectCost>,
    sequential: Vec<IndirectCost>,
    /// The control.
    shared: Vec<IndirectCost>,
}

impl WorkingSetCosts {
    fn of(prices: &GroupPrices<'_>) -> Self {
        let costs = |walk: WalkPattern| costs_of(&prices.blocks, walk.curve);
        Self {
            // The only price of the group: its other rings are points of curves.
            direct: prices.rows.first().and_then(|plain| plain.net_ns),
            random: costs(WalkPattern::RANDOM),
            sequential: costs(WalkPattern::SEQUENTIAL),
            shared: costs(WalkPattern::SHARED),
        }
    }
}

/// What hand-overs cost at one place.
struct PlaceCost {
    place: Place,
    direct: Option<Estimate>,
    indirect: Option<Estimate>,
}

/// The costs of each place, from its two rings.
fn place_costs(blocks: &Blocks<'_>) -> Vec<PlaceCost> {
    let arms = blocks.group().arms.iter().enumerate();
    let cost = arms.step_by(2).filter_map(|(plain, arm)| {
        Some(PlaceCost {
            place: arm.as_ring()?.place,
            direct: blocks.difference(ArmOperation::baseline(plain), ArmOperation::of(plain)),
            indirect: blocks.net_beyond(plain, plain + 1),
        })
    });
    cost.collect()
}

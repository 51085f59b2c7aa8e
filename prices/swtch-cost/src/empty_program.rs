//! Measures what one more eBPF program on `sched_switch` costs each switch, whatever it does: process trees with a
//! program attached that does nothing, between trees without it.
//!
//! ```text
//! turn 0   plain ── attached ── plain again      contrast: attached less plain
//! turn 1   attached ── plain again ── plain      control:  plain again less plain
//! …
//! ```
//!
//! A tree has one value, the median of its rounds. Programs of others that are attached meanwhile
//! are part of both: the answer is that of one more program on this machine as it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result};
use swtch_bench::cost::{Ended, RingSpec, Tree};
use swtch_capture::EmptyProgram;
use swtch_core::cost::{
    Contrast, EMPTY_PROGRAM, Members, MissingPrice, NamedContrast, Policy, PriceList, Primitive,
    differs,
};

use super::list::ALPHA;
use super::machine::MachineCounters;
use super::measure::{MeasuredGroup, Measurements};
use super::menu::{Arm, ArmGroup, Effort, Menu, Role, Section};
use super::series::{ArmOperation, Blocks};
use super::share::{reason, tree_medians};

/// Kinds of trees: plain, attached, and plain again.
const KINDS: usize = 3;

/// The kind with the program.
const ATTACHED: usize = 1;

/// The group that is measured with and without the program.
pub fn group(effort: Effort, policy: Policy, cpu: u32) -> ArmGroup {
    let mut group = ArmGroup::new(EMPTY_PROGRAM, Section::Contrast);
    let ring = RingSpec::pair(Primitive::FutexShared, Members::Threads, policy, cpu);
    group.add(Arm::ring(ring, Role::Part));
    (group.trees, group.rounds) = match effort {
        // Fewer trees leave the interval open for one that was disturbed.
        Effort::Quick | Effort::Default => (18, 10),
        Effort::Thorough => (36, 20),
    };
    group
}

/// The contrast and its control, or why there are none.
#[derive(Debug, Default)]
pub struct EmptyProgramPrice {
    contrasts: Vec<NamedContrast>,
    missing: Option<MissingPrice>,
}

impl EmptyProgramPrice {
    /// Adds it to the price list.
    pub fn enter(self, list: &mut PriceList) {
        list.contrasts.extend(self.contrasts);
        list.missing.extend(self.missing);
    }

    fn missing(why: String) -> Self {
        Self {
            contrasts: Vec::new(),
            missing: Some(MissingPrice {
                kind: EMPTY_PROGRAM.to_owned(),
                why,
            }),
        }
    }
}

/// Measures the price if the menu has it.
///
/// # Errors
///
/// A process cannot be started, or one that measures failed. A program that is not allowed is no
/// error, but [`PriceList::missing`].
pub fn measure(
    menu: &Menu,
    measurements: &mut Measurements,
    stop: &AtomicBool,
) -> Result<EmptyProgramPrice> {
    let Some(group) = &menu.empty_program else {
        return Ok(EmptyProgramPrice::default());
    };
    if let Err(error) = EmptyProgram::attach() {
        return Ok(EmptyProgramPrice::missing(reason(&error)));
    }
    let (start, before) = (Instant::now(), MachineCounters::read(menu.cpu));
    let kinds = grow(group, menu.cpu, stop)?;
    measurements.took += start.elapsed();
    measurements.counters = measurements
        .counters
        .plus(MachineCounters::read(menu.cpu).since(before));
    if kinds.iter().any(|trees| trees.len() < group.trees) {
        let why = "it was ended early".to_owned();
        return Ok(EmptyProgramPrice::missing(why));
    }
    Ok(judge(group, kinds))
}

/// Trees of each kind, one of each in a turn. Fewer than planned when `stop` is set.
fn grow(group: &ArmGroup, cpu: u32, stop: &AtomicBool) -> Result<[Vec<Tree>; KINDS]> {
    let mut kinds = [(); KINDS].map(|()| Vec::new());
    for number in 0..group.trees {
        for place in 0..KINDS {
            let kind = (number + place) % KINDS;
            let seed = u64::try_from(number).unwrap_or_default();
            let tree = grow_tree(group, kind, cpu, seed, stop)
                .with_context(|| format!("measuring {EMPTY_PROGRAM}"))?;
            if stop.load(Ordering::Relaxed) || tree.ended == Ended::Stopped {
                return Ok(kinds);
            }
            kinds[kind].push(tree);
        }
    }
    Ok(kinds)
}

fn grow_tree(
    group: &ArmGroup,
    kind: usize,
    cpu: u32,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Tree> {
    let _attached = (kind == ATTACHED).then(EmptyProgram::attach).transpose()?;
    Ok(group.plan(cpu).time(seed, stop, |_| {})?)
}

fn judge(group: &ArmGroup, kinds: [Vec<Tree>; KINDS]) -> EmptyProgramPrice {
    let [plain, attached, again] = kinds.map(|trees| hand_offs(group, trees));
    let pairs = [
        (plain.as_slice(), attached.as_slice()),
        (plain.as_slice(), again.as_slice()),
    ];
    let found = Contrast::of_family(&pairs, ALPHA);
    let [Some(contrast), Some(control)] = found.as_slice() else {
        return EmptyProgramPrice::missing("too much of it was disturbed".to_owned());
    };
    let of_control = NamedContrast {
        name: format!("{EMPTY_PROGRAM}-control"),
        about: "no program instead of none".to_owned(),
        control_of: Some(EMPTY_PROGRAM.to_owned()),
        ..named(control, None)
    };
    EmptyProgramPrice {
        contrasts: vec![named(contrast, Some(control)), of_control],
        missing: None,
    }
}

/// The median hand-off of each tree: rounds of two trees are not paired. All kinds have as many
/// trees, so that those of one turn stand beside each other.
fn hand_offs(group: &ArmGroup, trees: Vec<Tree>) -> Vec<Vec<f64>> {
    let group = group.clone();
    let measured = MeasuredGroup { group, trees };
    let operation = ArmOperation::of(0);
    let (rounds, _) = Blocks::of(&measured).pairs(operation, operation);
    let medians = tree_medians(&rounds).into_iter();
    medians.map(|median| median.into_iter().collect()).collect()
}

fn named(contrast: &Contrast, control: Option<&Contrast>) -> NamedContrast {
    NamedContrast {
        name: EMPTY_PROGRAM.to_owned(),
        about: "one more eBPF program on sched_switch, which does nothing".to_owned(),
        difference_ns: contrast.difference,
        ratio: contrast.ratio,
        p: contrast.p,
        control_of: None,
        proof: None,
        verdict: differs(contrast, control),
    }
}

#[cfg(test)]
mod tests {
    use super::super::menu::steady_policy;
    use super::*;

    /// A switch runs the program, which takes time; and the control is none.
    #[test]
    #[ignore = "needs root"]
    fn root_an_empty_program_has_a_price_and_its_control_has_none() {
        let cpu = swtch_bench::cost::home().expect("the kernel says which CPUs may be used");
        let _quiet = swtch_test::depends_on_quiet();
        let policy = steady_policy().expect("the policies that are allowed can be tried");
        let group = group(Effort::Default, policy, cpu);
        let kinds = grow(&group, cpu, &AtomicBool::new(false)).expect("root may");
        let found = judge(&group, kinds);
        let [price, control] = found.contrasts.as_slice() else {
            panic!("{found:?}");
        };
        assert!(price.difference_ns.low > 0.0, "{price:?}");
        assert!(
            control.difference_ns.low < price.difference_ns.low,
            "{control:?}"
        );
        assert_eq!(control.control_of.as_deref(), Some(EMPTY_PROGRAM));
    }
}

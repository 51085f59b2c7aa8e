//! `launch`: what it costs to start a task, beside a switch and a copy of memory.
//!
//! The prices are those of `swtch cost`, of entries that stand in several groups there. Here they
//! are in one group, so that any two can be compared, and the order that the textbooks give is
//! judged pair by pair.

use std::time::Duration;

use anyhow::Result;
use swtch_bench::cost::{LaunchEnd, Launcher, RingSpec, Yardstick, home};
use swtch_core::cost::{Members, Policy, Price, Primitive};
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Content, Dots, Measure, Scale};
use swtch_report::report::{Cell, Sheet};

use super::claim::{Verdict, all_of};
use super::context::ExperimentContext;
use super::findings::{Findings, FindingsTable};
use super::parameters::Parameters;
use super::quantities::Quantities;
use super::timed::{
    self, GroupPrices, Timed, WHISKERS, cell, cells, is_larger, is_within, named_dot, net_cost,
    subtitle, time, unpaired_difference,
};
use swtch_cost::menu::{Arm, ArmGroup, Role, Section};

const GROUP: &str = "launch";

/// Names of the rows whose order is judged.
const SWITCH: &str = "switch between threads, by pipes";
const COPY: &str = "copy of 64 KiB";
const THREAD: &str = "thread, created and joined";
const PROCESS: &str = "process, forked and waited for";

/// Runs the experiment.
///
/// # Errors
///
/// A parameter makes no sense, or no process can be started.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let group = group(timed::trees(parameters)?, home()?);
    let budget = Duration::from_secs(if context.is_quick { 8 } else { 24 });
    let timed = Timed::side_by_side(vec![group], budget, context)?;
    let mut findings = timed.findings();
    if let Some(prices) = timed.prices(GROUP) {
        findings.tables.push(table(&prices));
        findings.pictures.push(picture(&prices));
        findings.sentences.extend(sentence(&prices));
        let quantities = quantities(&prices);
        findings.answers = quantities.map_or_else(Vec::new, |all| all.answers(GROUP));
    }
    Ok(findings)
}

fn group(trees: usize, cpu: u32) -> ArmGroup {
    let mut group = ArmGroup::new(GROUP, Section::Launch);
    (group.trees, group.rounds) = (trees, 8);
    let pair = RingSpec::pair(Primitive::Pipe, Members::Threads, Policy::Batch, cpu);
    let launch = |how| Arm::launch(how, LaunchEnd::Joined, 0);
    for (kind, arm) in [
        (SWITCH, Arm::ring(pair, Role::Price)),
        (COPY, Arm::yardstick(Yardstick::Copy64Kib)),
        (THREAD, launch(Launcher::Thread)),
        ("bare thread (clone)", launch(Launcher::BareThread)),
        (PROCESS, launch(Launcher::Fork)),
        ("process by vfork", launch(Launcher::Vfork)),
        ("program by posix_spawn", launch(Launcher::PosixSpawn)),
    ] {
        group.add(arm.named(kind));
    }
    group.add(Arm::reference());
    timed::add_twin(&mut group);
    group
}

fn table(prices: &GroupPrices<'_>) -> FindingsTable {
    let mut sheet = Sheet::new(
        GROUP,
        &[
            "operation",
            "whole_ns",
            "cost_ns",
            "cost_half_width_ns",
            "cost_low_ns",
            "cost_high_ns",
            "switches",
            "in_switches",
        ],
    );
    sheet.not_in_tables = &["cost_low_ns", "cost_high_ns"];
    let row = |price: &Price| {
        let mut all = vec![
            Cell::text(price.kind.as_str()),
            cell(Some(&price.hand_off_ns)),
        ];
        all.extend(cells(Some(net_cost(price))));
        all.push(Cell::Ratio(
            price.voluntary_per_op + price.involuntary_per_op,
        ));
        let in_switches = prices.contrast(SWITCH, &price.kind);
        all.push(in_switches.map_or(Cell::Missing, |one| Cell::Ratio(one.ratio.point)));
        all
    };
    sheet.rows = prices.rows.iter().map(row).collect();
    sheet.notes.push(
        "The cost of the switch is net of writing and reading the pipe alone; the last column takes the whole \
         hand-over for one."
            .to_owned(),
    );
    FindingsTable::new("From the call until the end has been told", sheet)
}

fn sentence(prices: &GroupPrices<'_>) -> Option<String> {
    let cost_of = |kind| Some(time(net_cost(prices.find(kind)?)));
    Some(format!(
        "A switch takes {}, a copy of 64 KiB {}, a thread {}, a process {}.",
        cost_of(SWITCH)?,
        cost_of(COPY)?,
        cost_of(THREAD)?,
        cost_of(PROCESS)?
    ))
}

/// B2: switch < copy of 64 KiB < launch of a thread < launch of a process. The article's switch is
/// a whole hand-over by pipes. If the switch net of the pipe gives another verdict, the claim is
/// undecided.
fn quantities(prices: &GroupPrices<'_>) -> Option<Quantities> {
    let mut all = Quantities::of_arms();
    let twins = timed::twins(&prices.blocks);
    let mut in_order = Verdict::Holds;
    let steps = [
        ("copy", SWITCH, COPY),
        ("thread", COPY, THREAD),
        ("process", THREAD, PROCESS),
    ];
    for (name, small, large) in steps {
        let contrast = prices.contrast(small, large)?;
        all.number(name, Some(contrast.ratio));
        in_order = all_of([in_order, is_larger(&contrast, twins.as_ref())]);
    }
    let (net, copy) = (net_cost(prices.find(SWITCH)?), net_cost(prices.find(COPY)?));
    all.number("net", Some(*net));
    all.number("copy-alone", Some(*copy));
    let net_in_order = is_within(&unpaired_difference(copy, net), 0.0..f64::INFINITY);
    all.judge("B2", match (in_order, net_in_order) {
        (Verdict::DoesNotHold, Verdict::DoesNotHold) => Verdict::DoesNotHold,
        (Verdict::Holds, Verdict::Holds) => Verdict::Holds,
        (open @ Verdict::Undecided(_), _) => open,
        _ => Verdict::Undecided(
            "a switch and a copy change places, or nearly, when the pipe's own calls are taken off".to_owned(),
        ),
    });
    Some(all)
}

fn picture(prices: &GroupPrices<'_>) -> Picture {
    let dot = |price: &Price| named_dot(&price.kind, None, net_cost(price));
    Picture {
        name: GROUP.to_owned(),
        title: "What starting a task costs, beside a switch and a copy".to_owned(),
        subtitle: subtitle(),
        explanation: format!(
            "Launches until their end has been told; the switch net of its pipe. {WHISKERS}"
        ),
        notes: Vec::new(),
        content: Content::Dots(Dots {
            axis: Axis::new("time of one", Measure::Time, Scale::Logarithmic),
            rows: prices.rows.iter().map(dot).collect(),
        }),
    }
}

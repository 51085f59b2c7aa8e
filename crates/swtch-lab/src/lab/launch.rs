//! `launch`: what it costs to start a task, beside a switch and a copy of memory.
//!
//! All arms are in one group, and the order that the textbooks give is judged pair by pair.

use std::time::Duration;

use anyhow::Result;
use swtch_bench::cost::{ArmSpec, LaunchEnd, Launcher, RingSpec, Yardstick, home};
use swtch_core::cost::{Estimate, Members, Policy, Primitive};
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Content, Dots, Measure, NamedDot, Scale};
use swtch_report::report::{Cell, Sheet};

use super::claim::{Answer, Verdict, all_of};
use super::findings::{Findings, FindingsTable};
use super::parameters::Parameters;
use super::room::ExperimentContext;
use super::timed::{
    self, Timed, WHISKERS, cells, gap, is_larger, is_within, ratio, subtitle, time,
};
use crate::cost::menu::{Arm, ArmGroup, Role, Section};
use crate::cost::series::{ArmOperation, Blocks};

const GROUP: &str = "launch";

/// The arms, in the order of the table.
const SWITCH: usize = 0;
const COPY: usize = 1;
const THREAD: usize = 2;
const PROCESS: usize = 4;

/// Runs the experiment.
///
/// # Errors
///
/// A parameter makes no sense, or no process can be started.
pub fn run(parameters: &Parameters, room: &mut ExperimentContext) -> Result<Findings> {
    let group = group(timed::trees(parameters)?, home()?);
    let budget = Duration::from_secs(if room.is_quick { 8 } else { 24 });
    let timed = Timed::side_by_side(vec![group], budget, room)?;
    let mut findings = timed.findings();
    if let Some(measured) = timed.group(GROUP) {
        let blocks = Blocks::of(measured);
        findings.tables.push(table(&blocks));
        findings.pictures.push(picture(&blocks));
        findings.sentences.extend(sentence(&blocks));
        findings.answers.extend(answer(&blocks));
    }
    Ok(findings)
}

fn group(trees: usize, cpu: u32) -> ArmGroup {
    let mut group = ArmGroup::new(GROUP, Section::Launch);
    (group.trees, group.rounds) = (trees, 8);
    let pair = RingSpec::pair(Primitive::Pipe, Members::Threads, Policy::Batch, cpu);
    group.add(Arm {
        kind: "switch between threads, by pipes".to_owned(),
        ..Arm::ring(pair, Role::Price)
    });
    let mut add = |kind: &str, spec| {
        group.add(Arm {
            spec,
            kind: kind.to_owned(),
            role: Role::Price,
        })
    };
    let launch = |how| ArmSpec::Launch {
        how,
        until: LaunchEnd::Joined,
        ballast_mib: 0,
    };
    let yardstick = Yardstick::Copy64Kib;
    add("copy of 64 KiB", ArmSpec::Yardstick { yardstick });
    add("thread, created and joined", launch(Launcher::Thread));
    add("bare thread (clone)", launch(Launcher::BareThread));
    add("process, forked and waited for", launch(Launcher::Fork));
    add("process by vfork", launch(Launcher::Vfork));
    add("program by posix_spawn", launch(Launcher::PosixSpawn));
    group.add(Arm::reference());
    timed::add_twin(&mut group);
    group
}

/// The arms that are rows of the table: all but the twin.
fn rows<'b>(blocks: &'b Blocks<'_>) -> impl Iterator<Item = (usize, &'b Arm)> {
    let arms = blocks.group().arms.iter().enumerate();
    arms.filter(|(_, arm)| !matches!(arm.role, Role::Twin(_)))
}

/// The cost of a row; that of the switch is net of the pipe.
fn cost(blocks: &Blocks<'_>, arm: usize) -> Option<Estimate> {
    match arm {
        SWITCH => blocks.difference(ArmOperation::baseline(arm), ArmOperation::of(arm)),
        _ => blocks.estimate(ArmOperation::of(arm)),
    }
}

fn table(blocks: &Blocks<'_>) -> FindingsTable {
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
    let row = |(arm, of): (usize, &Arm)| {
        let whole = blocks.estimate(ArmOperation::of(arm));
        let mut all = vec![
            Cell::text(of.kind.as_str()),
            whole.map_or(Cell::Missing, |whole| Cell::Estimated(whole.point)),
        ];
        all.extend(cells(cost(blocks, arm).as_ref()));
        let (voluntary, involuntary) = blocks.switches(ArmOperation::of(arm));
        all.push(Cell::Ratio(voluntary + involuntary));
        let against = blocks.contrast(ArmOperation::of(SWITCH), ArmOperation::of(arm));
        all.push(against.map_or(Cell::Missing, |against| Cell::Ratio(against.ratio.point)));
        all
    };
    sheet.rows = rows(blocks).map(row).collect();
    sheet.notes.push(
        "The cost of the switch is net of writing and reading the pipe alone; the last column takes the whole \
         hand-over for one."
            .to_owned(),
    );
    FindingsTable {
        title: "From the call until the end has been told".to_owned(),
        sheet,
    }
}

fn sentence(blocks: &Blocks<'_>) -> Option<String> {
    let [switch, copy, thread, process] =
        [SWITCH, COPY, THREAD, PROCESS].map(|arm| cost(blocks, arm));
    Some(format!(
        "A switch takes {}, a copy of 64 KiB {}, a thread {}, a process {}.",
        time(&switch?),
        time(&copy?),
        time(&thread?),
        time(&process?)
    ))
}

/// B2: switch < copy of 64 KiB < launch of a thread < launch of a process. The article's switch is
/// a whole hand-over by pipes. If the switch net of the pipe gives another verdict, the claim is
/// undecided.
fn answer(blocks: &Blocks<'_>) -> Option<Answer> {
    let twins = timed::twins(blocks);
    let order = [
        ("switch", SWITCH),
        ("copy", COPY),
        ("thread", THREAD),
        ("process", PROCESS),
    ];
    let mut verdict = Verdict::Holds;
    let mut words = Vec::new();
    for pair in order.windows(2) {
        let [(small, one), (large, other)] = pair else {
            continue;
        };
        let contrast = blocks.contrast(ArmOperation::of(*one), ArmOperation::of(*other))?;
        words.push(format!("{large} / {small} {}", ratio(&contrast.ratio)));
        verdict = all_of([verdict, is_larger(&contrast, twins.as_ref())]);
    }
    let (net, copy) = (cost(blocks, SWITCH)?, cost(blocks, COPY)?);
    words.push(format!(
        "the switch net of its pipe {}, the copy {}",
        time(&net),
        time(&copy)
    ));
    Some(Answer {
        claim: "B2",
        ours: words.join(", "),
        verdict: match (verdict, is_within(&gap(&copy, &net), 0.0..f64::INFINITY)) {
            (Verdict::DoesNotHold, Verdict::DoesNotHold) => Verdict::DoesNotHold,
            (Verdict::Holds, Verdict::Holds) => Verdict::Holds,
            (open @ Verdict::Undecided(_), _) => open,
            _ => Verdict::Undecided(
                "a switch and a copy change places, or nearly, when the pipe's own calls are taken off".to_owned(),
            ),
        },
    })
}

fn picture(blocks: &Blocks<'_>) -> Picture {
    let dot = |(arm, of): (usize, &Arm)| {
        let cost = cost(blocks, arm)?;
        Some(NamedDot {
            label: of.kind.clone(),
            series: None,
            value: cost.point,
            interval: Some((cost.low, cost.high)),
        })
    };
    Picture {
        name: GROUP.to_owned(),
        title: "What starting a task costs, beside a switch and a copy".to_owned(),
        subtitle: subtitle(),
        explanation: format!(
            "Launches until their end has been told; the switch net of its pipe. {WHISKERS}"
        ),
        notes: Vec::new(),
        content: Content::Dots(Dots {
            axis: Axis {
                name: "time of one".to_owned(),
                measure: Measure::Time,
                scale: Scale::Logarithmic,
            },
            rows: rows(blocks).filter_map(dot).collect(),
        }),
    }
}

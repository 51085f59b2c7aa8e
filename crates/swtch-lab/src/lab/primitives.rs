//! `primitives`: what each synchronization primitive costs when it is uncontended.
//!
//! All are measured side by side in one group with the empty system call. Some never enter the
//! kernel, and that is most of the difference.

use std::time::Duration;

use anyhow::Result;
use swtch_bench::cost::{ArmSpec, Uncontended};
use swtch_core::cost::{Contrast, Estimate};
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Content, Dots, Measure, NamedDot, Scale};
use swtch_report::report::{Cell, Sheet};

use super::claim::Answer;
use super::findings::{Findings, FindingsTable};
use super::parameters::Parameters;
use super::room::ExperimentContext;
use super::timed::{self, Timed, WHISKERS, cells, is_within, ratio, subtitle, time};
use crate::cost::menu::{Arm, ArmGroup, Role, Section};
use crate::cost::series::{ArmOperation, Blocks};

const GROUP: &str = "primitives";

/// Runs the experiment.
///
/// # Errors
///
/// A parameter makes no sense, or no process can be started.
pub fn run(parameters: &Parameters, room: &mut ExperimentContext) -> Result<Findings> {
    let trees = timed::trees(parameters)?;
    let budget = Duration::from_secs(if room.is_quick { 6 } else { 18 });
    let timed = Timed::side_by_side(vec![group(trees)], budget, room)?;
    let mut findings = timed.findings();
    if let Some(measured) = timed.group(GROUP) {
        let blocks = Blocks::of(measured);
        let rows = rows(&blocks);
        findings.tables.push(table(&rows));
        findings.pictures.push(picture(&rows));
        findings.sentences.extend(sentence(&rows));
        findings.answers.extend(answer(&blocks));
    }
    Ok(findings)
}

fn group(trees: usize) -> ArmGroup {
    let mut group = ArmGroup::new(GROUP, Section::Yardstick);
    (group.trees, group.rounds) = (trees, 10);
    for what in Uncontended::ALL {
        group.add(Arm {
            spec: ArmSpec::Uncontended { what: *what },
            kind: names(*what).0.to_owned(),
            role: Role::Price,
        });
    }
    group.add(Arm::reference());
    timed::add_twin(&mut group);
    group
}

/// Name of a primitive, and the calls of one use.
const fn names(what: Uncontended) -> (&'static str, &'static str) {
    match what {
        Uncontended::SpinLock => ("spin lock", "atomic exchange, store"),
        Uncontended::FutexLock => ("futex word lock", "two atomic exchanges"),
        Uncontended::PthreadMutex => ("pthread mutex", "pthread_mutex_lock, _unlock"),
        Uncontended::StdMutex => ("Rust mutex", "std::sync::Mutex: lock, drop"),
        Uncontended::ReadLock => ("read lock", "pthread_rwlock_rdlock, _unlock"),
        Uncontended::WriteLock => ("write lock", "pthread_rwlock_wrlock, _unlock"),
        Uncontended::CondvarSignal => ("condvar signal", "pthread_cond_signal"),
        Uncontended::PosixSemaphore => ("POSIX semaphore", "sem_post, sem_wait"),
        Uncontended::SysvSemaphore => ("System V semaphore", "semop, semop"),
        Uncontended::Eventfd => ("eventfd", "write, read"),
        Uncontended::FutexWake => ("futex wake", "futex"),
        _ => ("pipe", "write, read"),
    }
}

/// System calls of one use when it is uncontended.
const fn system_calls(what: Uncontended) -> u64 {
    match what {
        Uncontended::SysvSemaphore | Uncontended::Eventfd | Uncontended::Pipe => 2,
        Uncontended::FutexWake => 1,
        _ => 0,
    }
}

struct PrimitiveRow {
    name: &'static str,
    calls: &'static str,
    system_calls: u64,
    cost: Estimate,
    /// Cost as a multiple of an empty system call.
    relative: Option<Contrast>,
}

/// A row for each primitive, the cheapest first.
fn rows(blocks: &Blocks<'_>) -> Vec<PrimitiveRow> {
    let reference = blocks.group().reference().map(ArmOperation::of);
    let relative = |arm| blocks.contrast(reference?, ArmOperation::of(arm));
    let uses = Uncontended::ALL
        .iter()
        .enumerate()
        .filter_map(|(arm, what)| {
            Some(PrimitiveRow {
                name: names(*what).0,
                calls: names(*what).1,
                system_calls: system_calls(*what),
                cost: blocks.estimate(ArmOperation::of(arm))?,
                relative: relative(arm),
            })
        });
    let mut rows: Vec<PrimitiveRow> = uses.collect();
    rows.extend(reference.and_then(|act| {
        Some(PrimitiveRow {
            name: "empty system call",
            calls: "getppid",
            system_calls: 1,
            cost: blocks.estimate(act)?,
            relative: None,
        })
    }));
    rows.sort_by(|one, other| one.cost.point.total_cmp(&other.cost.point));
    rows
}

fn table(rows: &[PrimitiveRow]) -> FindingsTable {
    let mut sheet = Sheet::new(
        GROUP,
        &[
            "primitive",
            "calls",
            "system_calls",
            "cost_ns",
            "cost_half_width_ns",
            "cost_low_ns",
            "cost_high_ns",
            "in_system_calls",
        ],
    );
    sheet.not_in_tables = &["cost_low_ns", "cost_high_ns"];
    let cells_of = |row: &PrimitiveRow| {
        let mut all = vec![
            Cell::text(row.name),
            Cell::text(row.calls),
            Cell::Count(row.system_calls),
        ];
        all.extend(cells(Some(&row.cost)));
        let relative = row.relative.map(|relative| relative.ratio.point);
        all.push(relative.map_or(Cell::Missing, Cell::Ratio));
        all
    };
    sheet.rows = rows.iter().map(cells_of).collect();
    FindingsTable {
        title: "One use, when nobody else is there".to_owned(),
        sheet,
    }
}

fn sentence(rows: &[PrimitiveRow]) -> Option<String> {
    let named = |name| rows.iter().find(|row| row.name == name);
    let (mutex, call) = (named("pthread mutex")?, named("empty system call")?);
    let last = rows.last()?;
    Some(format!(
        "A mutex that nobody else wants costs {}, an empty system call {}, the dearest ({}) {}.",
        time(&mutex.cost),
        time(&call.cost),
        last.name,
        time(&last.cost)
    ))
}

/// The least ratio that counts as an order of magnitude.
const TENFOLD: f64 = 10.0;

/// E2: uncontended primitives differ by an order of magnitude. Only primitives that block a task
/// when they are taken are compared: the article's own, and newer ones. Spin locks, signals that
/// wake nobody and bare system calls are left out.
fn answer(blocks: &Blocks<'_>) -> Option<Answer> {
    let blocking = [
        Uncontended::FutexLock,
        Uncontended::PthreadMutex,
        Uncontended::StdMutex,
        Uncontended::ReadLock,
        Uncontended::WriteLock,
        Uncontended::PosixSemaphore,
        Uncontended::SysvSemaphore,
        Uncontended::Eventfd,
        Uncontended::Pipe,
    ];
    let arm = |what: Uncontended| Uncontended::ALL.iter().position(|one| *one == what);
    let cost =
        |what: &Uncontended| Some((*what, blocks.estimate(ArmOperation::of(arm(*what)?))?.point));
    let mut costs: Vec<(Uncontended, f64)> = blocking.iter().filter_map(cost).collect();
    costs.sort_by(|one, other| one.1.total_cmp(&other.1));
    let ((fastest, _), (slowest, _)) = (*costs.first()?, *costs.last()?);
    let over =
        |one, other| blocks.contrast(ArmOperation::of(arm(one)?), ArmOperation::of(arm(other)?));
    let all = over(fastest, slowest)?.ratio;
    let of_article = over(Uncontended::PthreadMutex, Uncontended::SysvSemaphore)?.ratio;
    Some(Answer {
        claim: "E2",
        ours: format!(
            "the slowest ({}) takes {} times as long as the fastest ({}); a System V semaphore {} times as \
             long as a mutex",
            names(slowest).0,
            ratio(&all),
            names(fastest).0,
            ratio(&of_article)
        ),
        verdict: is_within(&all, TENFOLD..f64::INFINITY),
    })
}

fn picture(rows: &[PrimitiveRow]) -> Picture {
    let dot = |row: &PrimitiveRow| NamedDot {
        label: row.name.to_owned(),
        series: Some(
            match row.system_calls {
                0 => "stays in user mode",
                _ => "enters the kernel",
            }
            .to_owned(),
        ),
        value: row.cost.point,
        interval: Some((row.cost.low, row.cost.high)),
    };
    Picture {
        name: GROUP.to_owned(),
        title: "What it costs to meet nobody".to_owned(),
        subtitle: subtitle(),
        explanation: format!("One use of each, by a thread that is alone. {WHISKERS}"),
        notes: Vec::new(),
        content: Content::Dots(Dots {
            axis: Axis {
                name: "time of one use".to_owned(),
                measure: Measure::Time,
                scale: Scale::Logarithmic,
            },
            rows: rows.iter().map(dot).collect(),
        }),
    }
}

//! `primitives`: what each synchronization primitive costs when it is uncontended.
//!
//! The prices are measured as those of `swtch cost`, side by side with the empty system call. Some
//! primitives never enter the kernel, and that is most of the difference.

use std::time::Duration;

use anyhow::Result;
use swtch_bench::cost::Uncontended;
use swtch_core::cost::Price;
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Content, Dots, Measure, NamedDot, Scale};
use swtch_report::report::{Cell, Sheet};

use super::claim::Answer;
use super::context::ExperimentContext;
use super::findings::{Findings, FindingsTable};
use super::parameters::Parameters;
use super::timed::{
    self, GroupPrices, Timed, WHISKERS, cells, is_within, net_cost, ratio, subtitle, time,
};
use swtch_cost::menu::{ArmGroup, uncontended, uncontended_name};

const GROUP: &str = "primitives";

/// Runs the experiment.
///
/// # Errors
///
/// A parameter makes no sense, or no process can be started.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let mut group = ArmGroup {
        name: GROUP.to_owned(),
        trees: timed::trees(parameters)?,
        ..uncontended()
    };
    timed::add_twin(&mut group);
    let budget = Duration::from_secs(if context.is_quick { 6 } else { 18 });
    let timed = Timed::side_by_side(vec![group], budget, context)?;
    let mut findings = timed.findings();
    if let Some(prices) = timed.prices(GROUP) {
        let rows = rows(&prices);
        findings.tables.push(table(&rows));
        findings.pictures.push(picture(&rows));
        findings.sentences.extend(sentence(&rows));
        findings.answers.extend(answer(&prices));
    }
    Ok(findings)
}

/// The calls of one use, and how many system calls they make when the primitive is uncontended.
const fn calls_of(what: Uncontended) -> (&'static str, u64) {
    match what {
        Uncontended::SpinLock => ("atomic exchange, store", 0),
        Uncontended::FutexLock => ("two atomic exchanges", 0),
        Uncontended::PthreadMutex => ("pthread_mutex_lock, _unlock", 0),
        Uncontended::StdMutex => ("std::sync::Mutex: lock, drop", 0),
        Uncontended::ReadLock => ("pthread_rwlock_rdlock, _unlock", 0),
        Uncontended::WriteLock => ("pthread_rwlock_wrlock, _unlock", 0),
        Uncontended::CondvarSignal => ("pthread_cond_signal", 0),
        Uncontended::PosixSemaphore => ("sem_post, sem_wait", 0),
        Uncontended::SysvSemaphore => ("semop, semop", 2),
        Uncontended::Eventfd => ("write, read", 2),
        Uncontended::FutexWake => ("futex", 1),
        _ => ("write, read", 2),
    }
}

/// A price with its name and calls.
struct PrimitiveRow<'a> {
    name: &'a str,
    calls: &'a str,
    system_calls: u64,
    price: &'a Price,
    /// Cost as a multiple of an empty system call; `None` for that call itself.
    in_system_calls: Option<f64>,
}

/// A row for each price, the cheapest first.
fn rows<'a>(prices: &'a GroupPrices<'_>) -> Vec<PrimitiveRow<'a>> {
    let row = |price: &'a Price| {
        let name_of = |what: &&Uncontended| uncontended_name(**what) == price.kind;
        match Uncontended::ALL.iter().find(name_of) {
            Some(what) => {
                let (calls, system_calls) = calls_of(*what);
                PrimitiveRow {
                    name: &price.kind,
                    calls,
                    system_calls,
                    price,
                    in_system_calls: price.system_calls,
                }
            }
            None => PrimitiveRow {
                name: SYSTEM_CALL,
                calls: "getppid",
                system_calls: 1,
                price,
                in_system_calls: None,
            },
        }
    };
    let mut rows: Vec<PrimitiveRow<'_>> = prices.rows.iter().map(row).collect();
    rows.sort_by(|one, other| {
        net_cost(one.price)
            .point
            .total_cmp(&net_cost(other.price).point)
    });
    rows
}

/// Name of the one row that is no primitive.
const SYSTEM_CALL: &str = "empty system call";

fn table(rows: &[PrimitiveRow<'_>]) -> FindingsTable {
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
    let cells_of = |row: &PrimitiveRow<'_>| {
        let mut all = vec![
            Cell::text(row.name),
            Cell::text(row.calls),
            Cell::Count(row.system_calls),
        ];
        all.extend(cells(Some(net_cost(row.price))));
        all.push(row.in_system_calls.map_or(Cell::Missing, Cell::Ratio));
        all
    };
    sheet.rows = rows.iter().map(cells_of).collect();
    FindingsTable {
        title: "One use, when nobody else is there".to_owned(),
        sheet,
    }
}

fn sentence(rows: &[PrimitiveRow<'_>]) -> Option<String> {
    let cost_of = |name| {
        let row = rows.iter().find(|row| row.name == name)?;
        Some(time(net_cost(row.price)))
    };
    let last = rows.last()?;
    Some(format!(
        "A mutex that nobody else wants costs {}, an empty system call {}, the dearest ({}) {}.",
        cost_of(uncontended_name(Uncontended::PthreadMutex))?,
        cost_of(SYSTEM_CALL)?,
        last.name,
        time(net_cost(last.price))
    ))
}

/// The least ratio that counts as an order of magnitude.
const TENFOLD: f64 = 10.0;

/// The primitives that E2 compares: those that can block a task that takes them, the article's own
/// and newer ones. Spin locks, signals that wake nobody and bare system calls are left out.
const BLOCKING: [Uncontended; 9] = [
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

/// E2: uncontended primitives differ by an order of magnitude.
fn answer(prices: &GroupPrices<'_>) -> Option<Answer> {
    let mut blocking: Vec<&Price> = BLOCKING
        .iter()
        .filter_map(|what| prices.find(uncontended_name(*what)))
        .collect();
    blocking.sort_by(|one, other| net_cost(one).point.total_cmp(&net_cost(other).point));
    let (fastest, slowest) = (&blocking.first()?.kind, &blocking.last()?.kind);
    let all = prices.contrast(fastest, slowest)?.ratio;
    let [mutex, semaphore] =
        [Uncontended::PthreadMutex, Uncontended::SysvSemaphore].map(uncontended_name);
    let of_article = prices.contrast(mutex, semaphore)?.ratio;
    Some(Answer {
        claim: "E2",
        ours: format!(
            "the slowest ({slowest}) takes {} times as long as the fastest ({fastest}); a System V semaphore {} \
             times as long as a mutex",
            ratio(&all),
            ratio(&of_article)
        ),
        verdict: is_within(&all, TENFOLD..f64::INFINITY),
    })
}

fn picture(rows: &[PrimitiveRow<'_>]) -> Picture {
    let dot = |row: &PrimitiveRow<'_>| NamedDot {
        label: row.name.to_owned(),
        series: Some(
            match row.system_calls {
                0 => "stays in user mode",
                _ => "enters the kernel",
            }
            .to_owned(),
        ),
        value: net_cost(row.price).point,
        interval: Some((net_cost(row.price).low, net_cost(row.price).high)),
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

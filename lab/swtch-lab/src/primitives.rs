//! `primitives`: what each synchronization primitive costs when it is uncontended.
//!
//! The prices are measured as those of `swtch cost`, side by side with the empty system call. Some
//! primitives never enter the kernel, and that is most of the difference.

use std::time::Duration;

use anyhow::Result;
use swtch_bench::cost::Uncontended;
use swtch_core::cost::Price;
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Content, Dots, Measure, Scale};
use swtch_report::report::{Cell, Sheet};

use super::context::ExperimentContext;
use super::findings::{Findings, FindingsTable};
use super::parameters::Parameters;
use super::quantities::Quantities;
use super::timed::{
    self, GroupPrices, Timed, WHISKERS, cells, named_dot, net_cost, subtitle, time,
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
        let quantities = quantities(&prices);
        findings.answers = quantities.map_or_else(Vec::new, |all| all.answers(GROUP));
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
        Uncontended::Eventfd | Uncontended::Pipe => ("write, read", 2),
        Uncontended::FutexWake => ("futex", 1),
        // The enum is `#[non_exhaustive]`; all of its variants are listed above.
        _ => unreachable!(),
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
        let is_named = |what: &&Uncontended| uncontended_name(**what) == price.kind;
        match Uncontended::ALL.iter().find(is_named) {
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
    FindingsTable::new("One use, when nobody else is there", sheet)
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

/// The quantities of claim E2 (`experiments/claims.toml`): uncontended primitives differ by an order
/// of magnitude.
fn quantities(prices: &GroupPrices<'_>) -> Option<Quantities> {
    let mut all = Quantities::of_arms();
    let blocking = BLOCKING.iter();
    let mut blocking: Vec<&Price> = blocking
        .filter_map(|what| prices.find(uncontended_name(*what)))
        .collect();
    blocking.sort_by(|one, other| net_cost(one).point.total_cmp(&net_cost(other).point));
    let (fastest, slowest) = (&blocking.first()?.kind, &blocking.last()?.kind);
    let ratio = |one, other| Some(prices.contrast(one, other)?.ratio);
    all.number("dearest", ratio(fastest, slowest));
    all.words("fastest", fastest);
    all.words("slowest", slowest);
    let [mutex, semaphore] =
        [Uncontended::PthreadMutex, Uncontended::SysvSemaphore].map(uncontended_name);
    all.number("semaphore", ratio(mutex, semaphore));
    Some(all)
}

fn picture(rows: &[PrimitiveRow<'_>]) -> Picture {
    let dot = |row: &PrimitiveRow<'_>| {
        let series = match row.system_calls {
            0 => "stays in user mode",
            _ => "enters the kernel",
        };
        named_dot(row.name, Some(series), net_cost(row.price))
    };
    Picture {
        name: GROUP.to_owned(),
        title: "What it costs to meet nobody".to_owned(),
        subtitle: subtitle(),
        explanation: format!("One use of each, by a thread that is alone. {WHISKERS}"),
        notes: Vec::new(),
        content: Content::Dots(Dots {
            axis: Axis::new("time of one use", Measure::Time, Scale::Logarithmic),
            rows: rows.iter().map(dot).collect(),
        }),
    }
}

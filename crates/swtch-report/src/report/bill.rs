//! `report --bill`: what the switches of a trace cost, by reason, thread, process, stack, or pair
//! of tasks.
//!
//! ```text
//! rows ─▶ Departures ─▶ Accounts: how many of each case, for each group ─┐
//! price list ─▶ Prices ───────────────────────────────────────────────────┴─▶ Sheet
//! ```
//!
//! While rows are read, switches are only counted by what decides their price. They are priced
//! once, when all are counted.

use std::io::Write;

use anyhow::Result;
use rustc_hash::FxHashMap;
use serde_json::json;
use swtch_core::cost::PriceList;
use swtch_core::{Coverage, Reason, StackKind};
use swtch_output::sheet::{Cell, Sheet};
use swtch_store::{Columns, Trace};

use super::accounts::{Accounts, BillContext};
use super::departure::{Departure, Departures};
use super::filtered_trace::FilteredTrace;
use super::group::{self, Groups, KeyNames};
use super::head::ReportedSwitches;
use super::names::Names;
use super::pricing::Prices;
use super::stack::{self, Stacks, Symbols};
use super::{By, ReportAnswer, ReportRequest};

/// What a row of a bill stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BillBy {
    /// Why the task left its CPU.
    Reason,
    /// The process of the task that left.
    Process,
    /// The task that left.
    Thread,
    /// The user and kernel stack at which the task waited.
    Stack,
    /// The thread that left, and the thread that ran next.
    Pair,
}

impl BillBy {
    /// All of them, in the order in which help names them.
    pub const ALL: [Self; 5] = [
        Self::Reason,
        Self::Process,
        Self::Thread,
        Self::Stack,
        Self::Pair,
    ];

    /// The word on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reason => "reason",
            Self::Process => "process",
            Self::Thread => "thread",
            Self::Stack => "stack",
            Self::Pair => "pair",
        }
    }

    /// The variant with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.as_str() == word)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Reason => "bill.reason",
            Self::Process => "bill.process",
            Self::Thread => "bill.thread",
            Self::Stack => "bill.stack",
            Self::Pair => "bill.pair",
        }
    }

    const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Reason => &REASON_LABELS,
            Self::Process => Groups::label_columns(By::Process),
            Self::Thread => Groups::label_columns(By::Thread),
            Self::Stack => &["user_frames", "kernel_frames", "folded"],
            Self::Pair => &["thread", "tid", "pid", "next", "next_tid", "next_pid"],
        }
    }

    fn key(self, departure: &Departure, names: &Names, symbols: &Symbols) -> BillKey {
        match self {
            Self::Reason => BillKey::Reason(departure.case.reason),
            Self::Process => BillKey::Process(names.thread(departure.task).process),
            Self::Thread => BillKey::Thread(departure.task),
            Self::Stack => BillKey::Stacks(symbols.first_alike(departure.stacks)),
            Self::Pair => BillKey::Pair(departure.task, departure.next),
        }
    }
}

/// Labels of a bill by reason.
pub const REASON_LABELS: [&str; 2] = ["reason", "category"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum BillKey {
    Reason(Reason),
    Process(usize),
    Thread(usize),
    Stacks(Stacks),
    Pair(usize, Option<usize>),
}

/// Whether every run on every CPU has a row, so that it is known which tasks ran on a CPU in
/// between.
pub fn is_complete(filtered: &FilteredTrace<'_>) -> bool {
    filtered.coverage() == Coverage::EveryTask && filtered.head().lost() == 0
}

/// Columns that every bill reads; a bill by stack reads the stacks, too.
const COLUMNS: Columns = Columns::REASON
    .and(Columns::CPU)
    .and(Columns::RAN)
    .and(Columns::NEXT_TASK)
    .and(Columns::OFF_REASON)
    .and(Columns::OFF);

/// Writes the bill of a trace. `request.by` is ignored.
///
/// # Errors
///
/// When the trace cannot be read or `out` cannot be written.
pub fn bill(
    trace: &Trace,
    by: BillBy,
    request: &ReportRequest,
    list: &PriceList,
    out: &mut dyn Write,
) -> Result<()> {
    let mut filtered = FilteredTrace::open(trace, &request.filter)?;
    let prices = Prices::new(list, trace.meta());
    let symbols = match by {
        BillBy::Stack if filtered.head().meta.stacks.is_some() => filtered.symbols()?,
        _ => Symbols::default(),
    };
    let (accounts, rows) = accounts(&mut filtered, by, &prices, &symbols)?;
    let bill = BillContext::new(&prices, filtered.head(), &filtered.selection());
    let sheet = sheet(&accounts, by, &bill, &filtered, &symbols);
    let table = match by {
        BillBy::Stack => table_of_stacks,
        _ => Sheet::to_table,
    };
    let answer = ReportAnswer {
        head: filtered.head(),
        rows,
        sheet,
        top: request.top,
        table,
        below: String::new(),
        more: json!({ "prices": prices.to_json(&accounts.total().account) }),
    };
    answer.write(request.format, out)
}

fn accounts(
    filtered: &mut FilteredTrace<'_>,
    by: BillBy,
    prices: &Prices<'_>,
    symbols: &Symbols,
) -> Result<(Accounts<BillKey>, ReportedSwitches)> {
    let names = filtered.names();
    let columns = match by {
        BillBy::Stack => COLUMNS | Columns::STACKS,
        _ => COLUMNS,
    };
    let mut accounts = Accounts::default();
    let mut departures = Departures::new(&names, is_complete(filtered), prices.billing());
    let mut add = |one: &Departure| accounts.add(by.key(one, &names, symbols), one);
    // What a task's caches lost before the span may still slow it down inside the span.
    let rows = filtered.scan_from_start(columns, &mut |row, task, counted| {
        departures.add(row, task, counted, &names, &mut add);
    })?;
    departures.finish(&mut add);
    Ok((accounts, rows))
}

fn sheet(
    accounts: &Accounts<BillKey>,
    by: BillBy,
    bill: &BillContext<'_>,
    filtered: &FilteredTrace<'_>,
    symbols: &Symbols,
) -> Sheet {
    let names = filtered.names();
    let mut sheet = accounts.sheet(by.name(), by.labels(), bill, |key| {
        label(key, &names, symbols)
    });
    if by == BillBy::Stack && filtered.head().meta.stacks.is_none() {
        sheet.notes.push(stack::NO_STACKS.to_owned());
    }
    sheet
}

/// The cells that name a group, for the columns of [`BillBy::labels`].
fn label(key: BillKey, names: &Names, symbols: &Symbols) -> Vec<Cell> {
    let words = KeyNames {
        names,
        arch: None,
        cgroups: &FxHashMap::default(),
        places: None,
    };
    match key {
        BillKey::Reason(reason) => reason_label(reason),
        BillKey::Process(place) => words.label(group::GroupKey::Process(place)),
        BillKey::Thread(index) => words.label(group::GroupKey::Thread(index)),
        BillKey::Stacks(stacks) => stack_label(stacks, symbols),
        BillKey::Pair(task, next) => {
            let mut cells = task_label(Some(task), names).to_vec();
            cells.extend(task_label(next, names));
            cells
        }
    }
}

/// The cells that name a reason, for the columns of [`REASON_LABELS`].
pub fn reason_label(reason: Reason) -> Vec<Cell> {
    vec![
        Cell::text(reason.as_str()),
        Cell::text(reason.category().as_str()),
    ]
}

/// Name, thread and process id.
fn task_label(task: Option<usize>, names: &Names) -> [Cell; 3] {
    let Some(task) = task else {
        return [Cell::text("(unnamed)"), Cell::Missing, Cell::Missing];
    };
    let id = |number: Option<u32>| number.map_or(Cell::Missing, |n| Cell::Id(u64::from(n)));
    let (thread, process) = (names.thread(task), names.process_of(task));
    [
        Cell::text(&thread.comm),
        id(thread.tid.map(swtch_core::Tid::get)),
        id(process.pid.map(swtch_core::Pid::get)),
    ]
}

fn stack_label(stacks: Stacks, symbols: &Symbols) -> Vec<Cell> {
    let user = symbols.frames(StackKind::User, stacks.0);
    let kernel = symbols.frames(StackKind::Kernel, stacks.1);
    let folded = match stacks {
        (None, None) => "(no stack)".to_owned(),
        _ => stack::folded(&[], &user, &kernel),
    };
    vec![Cell::List(user), Cell::List(kernel), Cell::Text(folded)]
}

/// The first `most` stacks, each below a line with the cost of its switches.
fn table_of_stacks(sheet: &Sheet, most: usize) -> String {
    let mut page = String::new();
    for row in sheet.rows.iter().take(most) {
        page += &costs_line(row);
        let [user, kernel, folded, ..] = &row[..] else {
            unreachable!("a row has a cell for each column");
        };
        match (user, kernel) {
            (Cell::List(user), Cell::List(kernel)) if user.is_empty() && kernel.is_empty() => {
                page += &format!("  {}\n", folded.to_table());
            }
            _ => {
                page += &stack::frames_lines("kernel", kernel);
                page += &stack::frames_lines("user", user);
            }
        }
        page.push('\n');
    }
    match &sheet.total {
        Some(total) if !sheet.rows.is_empty() => page += &format!("total: {}", costs_line(total)),
        _ => page += "no rows\n",
    }
    page + &sheet.rest(most)
}

fn costs_line(row: &[Cell]) -> String {
    let measures = &row[BillBy::Stack.labels().len()..];
    let [
        switches,
        direct,
        low,
        high,
        indirect,
        wall,
        cpu,
        measured,
        ..,
    ] = measures
    else {
        unreachable!("a row has a cell for each column");
    };
    format!(
        "{} switches  direct {} ({} to {})  indirect up to {}  {} % of one CPU, {} % of its runs  \
         measured {} %\n",
        switches.to_table(),
        direct.to_table(),
        low.to_table(),
        high.to_table(),
        indirect.to_table(),
        wall.to_table(),
        cpu.to_table(),
        measured.to_table(),
    )
}

#[cfg(test)]
mod tests;

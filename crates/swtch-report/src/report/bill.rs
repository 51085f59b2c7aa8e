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
use swtch_output::column::Column;
use swtch_output::sheet::{Cell, Sheet};
use swtch_store::{Columns, Trace};

use super::accounts::{Accounts, BillContext, BillRow};
use super::departure::{Departure, Departures};
use super::filtered_trace::FilteredTrace;
use super::group::{self, GroupKey, KeyNames, OfGroup, or_missing};
use super::head::ReportedSwitches;
use super::names::Names;
use super::pricing::Prices;
use super::stack::{self, Stacks, Symbols};
use super::{By, ReportAnswer, ReportRequest, words};

/// The kind of thing that a row of a bill stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BillBy {
    /// The reason for which the task left its CPU.
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
    /// All kinds of rows of a bill, in the order in which help names them.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum BillKey {
    Reason(Reason),
    Process(usize),
    Thread(usize),
    Stacks(Stacks),
    Pair(usize, Option<usize>),
}

/// The kind of a key follows from the [`BillBy`] that made it, so each of these takes one kind only.
impl BillKey {
    fn reason(self) -> Reason {
        match self {
            Self::Reason(reason) => reason,
            other => unreachable!("{other:?} is no reason"),
        }
    }

    fn group(self) -> GroupKey {
        match self {
            Self::Process(place) => GroupKey::Process(place),
            Self::Thread(index) => GroupKey::Thread(index),
            other => unreachable!("{other:?} is no process or thread"),
        }
    }

    fn stacks(self) -> Stacks {
        match self {
            Self::Stacks(stacks) => stacks,
            other => unreachable!("{other:?} are no stacks"),
        }
    }

    fn pair(self) -> (usize, Option<usize>) {
        match self {
            Self::Pair(task, next) => (task, next),
            other => unreachable!("{other:?} is no pair"),
        }
    }
}

/// Returns true if every run on every CPU has a row, so that it is known which tasks ran on a CPU in between.
pub fn is_complete(filtered: &FilteredTrace<'_>) -> bool {
    filtered.coverage() == Coverage::EveryTask && filtered.head().lost() == 0
}

/// The note for a trace of which stacks were read while threads waited.
const SOME_STACKS: &str =
    "stacks were read of some waits only: the switches into all others stand at (no stack)";

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
    let key_names = KeyNames {
        names: &names,
        arch: None,
        cgroups: &FxHashMap::default(),
        places: None,
    };
    let named = |key| NamedGroup {
        key,
        names: &key_names,
    };
    let name = by.name();
    let mut sheet = match by {
        BillBy::Reason => accounts.sheet(name, reason_columns(), bill, BillKey::reason),
        BillBy::Process => {
            let labels = group::label_columns(By::Process);
            accounts.sheet(name, labels, bill, |key| named(key.group()))
        }
        BillBy::Thread => {
            let labels = group::label_columns(By::Thread);
            accounts.sheet(name, labels, bill, |key| named(key.group()))
        }
        BillBy::Stack => {
            let frames = |key: BillKey| StackNames::of(key.stacks(), symbols);
            accounts.sheet(name, stack_columns(), bill, frames)
        }
        BillBy::Pair => {
            let pair = |key: BillKey| Pair::of(key.pair(), &names);
            accounts.sheet(name, pair_columns(), bill, pair)
        }
    };
    if by == BillBy::Stack && filtered.head().meta.stacks.is_none() {
        sheet.notes.push(stack::NO_STACKS.to_owned());
    }
    if by == BillBy::Stack && filtered.head().meta.stacks.is_some_and(|how| how.by_looks) {
        sheet.notes.push(SOME_STACKS.to_owned());
    }
    sheet
}

/// A process or thread, with what names it.
struct NamedGroup<'a> {
    key: GroupKey,
    names: &'a KeyNames<'a>,
}

impl OfGroup for BillRow<NamedGroup<'_>> {
    fn key(&self) -> Option<GroupKey> {
        self.group.as_ref().map(|group| group.key)
    }

    fn names(&self) -> &KeyNames<'_> {
        self.group
            .as_ref()
            .expect("only a line that has a key is named")
            .names
    }
}

/// The columns that name a reason.
pub fn reason_columns() -> Vec<Column<BillRow<Reason>>> {
    vec![
        Column::new(words::REASON, |row| {
            or_missing(row.group, |reason| Cell::text(reason.as_str()))
        }),
        Column::new(words::CATEGORY, |row| {
            or_missing(row.group, |reason| Cell::text(reason.category().as_str()))
        }),
    ]
}

/// The stacks in which a task waited, by the names of their functions.
struct StackNames {
    user: Vec<String>,
    kernel: Vec<String>,
    folded: String,
}

impl StackNames {
    fn of(stacks: Stacks, symbols: &Symbols) -> Self {
        let user = symbols.frames(StackKind::User, stacks.0);
        let kernel = symbols.frames(StackKind::Kernel, stacks.1);
        let folded = match stacks {
            (None, None) => "(no stack)".to_owned(),
            _ => stack::folded(&[], &user, &kernel),
        };
        Self {
            user,
            kernel,
            folded,
        }
    }
}

fn stack_columns() -> Vec<Column<BillRow<StackNames>>> {
    vec![
        Column::new(words::USER_FRAMES, |row| {
            or_missing(row.group.as_ref(), |at| Cell::List(at.user.clone()))
        }),
        Column::new(words::KERNEL_FRAMES, |row| {
            or_missing(row.group.as_ref(), |at| Cell::List(at.kernel.clone()))
        }),
        Column::new(words::FOLDED, |row| {
            or_missing(row.group.as_ref(), |at| Cell::text(&at.folded))
        }),
    ]
}

/// The task that left a CPU and the one that came: name, thread and process id of each.
struct Pair {
    task: TaskCells,
    next: TaskCells,
}

type TaskCells = [Cell; 3];

impl Pair {
    fn of((task, next): (usize, Option<usize>), names: &Names) -> Self {
        Self {
            task: task_cells(Some(task), names),
            next: task_cells(next, names),
        }
    }
}

fn task_cells(task: Option<usize>, names: &Names) -> TaskCells {
    let Some(task) = task else {
        return [Cell::text("(unnamed)"), Cell::Missing, Cell::Missing];
    };
    [
        names.comm_cell(task),
        names.tid_cell(task),
        names.pid_cell(task),
    ]
}

fn pair_columns() -> Vec<Column<BillRow<Pair>>> {
    fn cell(row: &BillRow<Pair>, of: fn(&Pair) -> &Cell) -> Cell {
        or_missing(row.group.as_ref(), |pair| of(pair).clone())
    }
    vec![
        Column::new(words::THREAD, |row| cell(row, |pair| &pair.task[0])),
        Column::new(words::TID, |row| cell(row, |pair| &pair.task[1])),
        Column::new(words::PID, |row| cell(row, |pair| &pair.task[2])),
        Column::new(words::NEXT, |row| cell(row, |pair| &pair.next[0])),
        Column::new(words::NEXT_TID, |row| cell(row, |pair| &pair.next[1])),
        Column::new(words::NEXT_PID, |row| cell(row, |pair| &pair.next[2])),
    ]
}

/// The first `most` stacks, each below a line with the cost of its switches.
fn table_of_stacks(sheet: &Sheet, most: usize) -> String {
    let mut page = String::new();
    for row in sheet.rows.iter().take(most) {
        page += &costs_line(sheet, row);
        let cell = |word| sheet.cell_of(row, word);
        let (user, kernel) = (cell(words::USER_FRAMES), cell(words::KERNEL_FRAMES));
        match (user, kernel) {
            (Cell::List(user), Cell::List(kernel)) if user.is_empty() && kernel.is_empty() => {
                page += &format!("  {}\n", cell(words::FOLDED).to_table());
            }
            _ => {
                page += &stack::frames_lines("kernel", kernel);
                page += &stack::frames_lines("user", user);
            }
        }
        page.push('\n');
    }
    match &sheet.total {
        Some(total) if !sheet.rows.is_empty() => {
            page += &format!("total: {}", costs_line(sheet, total))
        }
        _ => page += "no rows\n",
    }
    page + &sheet.rest(most)
}

fn costs_line(sheet: &Sheet, row: &[Cell]) -> String {
    let cell = |word| sheet.cell_of(row, word).to_table();
    format!(
        "{} switches  direct {} ({} to {})  indirect up to {}  {} % of one CPU, {} % of its runs  \
         measured {} %\n",
        cell(words::SWITCHES),
        cell(words::DIRECT),
        cell(words::DIRECT_LOW),
        cell(words::DIRECT_HIGH),
        cell(words::INDIRECT_HIGH),
        cell(words::SHARE_OF_WALL),
        cell(words::SHARE_OF_CPU),
        cell(words::MEASURED),
    )
}

#[cfg(test)]
mod tests;

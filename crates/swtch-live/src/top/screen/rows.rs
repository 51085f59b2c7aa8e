//! Which rows are shown, and in which order.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;
use swtch_core::Pid;
use swtch_report::report::Cell;
use swtch_report::report::live::{LiveColumn, LiveRow, LiveView, RowKey};

use super::Shown;
use super::state::{ScreenState, Within};

/// A row, and how many rows above it are its ancestors.
#[derive(Clone, Copy, Debug)]
pub struct ChosenRow<'a> {
    pub row: &'a LiveRow,
    pub depth: usize,
}

/// Columns whose text a filter looks at.
const NAMES: [&str; 13] = [
    "lock",
    "process",
    "pid",
    "thread",
    "tid",
    "cgroup",
    "reason",
    "preemptor",
    "preemptor_tid",
    "preemptor_process",
    "preempted",
    "preempted_tid",
    "preempted_process",
];

/// The rows of the view that pass the filter, sorted.
pub fn chosen<'a>(state: &ScreenState, shown: &Shown<'a>) -> Vec<ChosenRow<'a>> {
    let rows = shown.made.frame.rows(state.view).iter();
    let rows = rows.filter(|row| is_within(state, shown, row) && passes(state, shown, row));
    let order = state.order();
    let column = &LiveColumn::of(state.view)[order.column];
    let cell = |row: &LiveRow| column.cell(row, &shown.made.frame, shown.names);
    let mut keyed: Vec<(Cell, &LiveRow)> = rows.map(|row| (cell(row), row)).collect();
    keyed.sort_by(|(a, of_a), (b, of_b)| {
        let by_cell = compared(a, b);
        let by_cell = if order.is_ascending {
            by_cell
        } else {
            by_cell.reverse()
        };
        by_cell.then(of_a.key.cmp(&of_b.key))
    });
    let sorted = keyed.into_iter().map(|(_, row)| row);
    if state.is_tree && state.view == LiveView::Process {
        return as_tree(sorted.collect(), shown);
    }
    sorted.map(|row| ChosenRow { row, depth: 0 }).collect()
}

fn is_within(state: &ScreenState, shown: &Shown<'_>, row: &LiveRow) -> bool {
    let (Some((_, within)), RowKey::Thread(key)) = (state.within, row.key) else {
        return true;
    };
    let task = shown.names.tasks.get(key);
    match within {
        Within::Process(pid) => task.map(|task| task.pid) == pid,
        Within::Cgroup(id) => task.map(|task| task.cgroup) == id,
        Within::Reason(reason) => row.sums.tally.reasons[reason.index()] > 0,
        Within::Lock(pid, futex) => {
            task.map(|task| task.pid) == pid && shown.made.frame.waits_for(key, futex)
        }
    }
}

fn passes(state: &ScreenState, shown: &Shown<'_>, row: &LiveRow) -> bool {
    if state.filter.is_empty() {
        return true;
    }
    let wanted = state.filter.to_lowercase();
    let mut names = LiveColumn::of(state.view)
        .iter()
        .filter(|column| NAMES.contains(&column.key));
    names.any(
        |column| match column.cell(row, &shown.made.frame, shown.names) {
            Cell::Id(id) => id.to_string() == wanted,
            Cell::Hex(word) => format!("{word:#x}") == wanted,
            // A container is found by what is shown, and by its path.
            cell => [text(&cell), Some(&cell.to_table())]
                .into_iter()
                .flatten()
                .any(|text| text.to_lowercase().contains(&wanted)),
        },
    )
}

/// The order of two cells of one column: what is missing is less than anything.
fn compared(a: &Cell, b: &Cell) -> Ordering {
    match (text(a), text(b)) {
        (Some(a), Some(b)) => b.cmp(a),
        _ => number(a).total_cmp(&number(b)),
    }
}

fn text(cell: &Cell) -> Option<&str> {
    match cell {
        Cell::Text(text) | Cell::Cgroup(text) => Some(text),
        _ => None,
    }
}

fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Count(number) | Cell::Id(number) | Cell::Hex(number) => *number as f64,
        Cell::Time(length) => length.as_ns() as f64,
        Cell::Percent(number)
        | Cell::Estimated(number)
        | Cell::Ratio(number)
        | Cell::Rate(number) => *number,
        Cell::Missing | Cell::Text(_) | Cell::Cgroup(_) | Cell::List(_) => f64::NEG_INFINITY,
    }
}

/// Puts each process below the nearest of its ancestors that has a row; the order among brothers
/// stays.
fn as_tree<'a>(rows: Vec<&'a LiveRow>, shown: &Shown<'a>) -> Vec<ChosenRow<'a>> {
    let pid_of = |row: &LiveRow| match row.key {
        RowKey::Process(pid) => pid,
        _ => None,
    };
    let places: FxHashMap<Pid, usize> = rows
        .iter()
        .enumerate()
        .filter_map(|(place, row)| Some((pid_of(row)?, place)))
        .collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    let mut roots = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let parent = pid_of(row).and_then(|pid| nearest_ancestor(pid, &places, shown));
        match parent {
            Some(parent) => children[parent].push(place),
            None => roots.push(place),
        }
    }
    let mut ordered = Vec::with_capacity(rows.len());
    let mut open: Vec<(usize, usize)> = roots.into_iter().rev().map(|root| (root, 0)).collect();
    while let Some((place, depth)) = open.pop() {
        ordered.push(ChosenRow {
            row: rows[place],
            depth,
        });
        let below = children[place].iter().rev();
        open.extend(below.map(|child| (*child, depth + 1)));
    }
    ordered
}

/// The place of the nearest ancestor that has a row. Ids are used again, so parents may form a ring:
/// the search ends after some steps, and only at an ancestor with a smaller start can it not come
/// back, so a process that would be its own ancestor is a root.
fn nearest_ancestor(pid: Pid, places: &FxHashMap<Pid, usize>, shown: &Shown<'_>) -> Option<usize> {
    const MOST_STEPS: usize = 64;
    let mut found = None;
    let mut at = pid;
    for _ in 0..MOST_STEPS {
        let Some(parent) = shown.names.tasks.parent_of(at) else {
            return found;
        };
        if parent == pid {
            return None;
        }
        if found.is_none() {
            found = places.get(&parent).copied();
        }
        at = parent;
    }
    None
}

//! The page of one thread: all its reasons, and who took its CPU.

use ratatui::text::{Line, Span};
use swtch_core::{Nanos, Reason, TaskKey};
use swtch_output::text::{cut, escaped, rate, width};
use swtch_report::report::Cell;
use swtch_report::report::live::{LiveColumn, LiveRow, LiveView, RowKey};

use super::Shown;
use super::page::curve;
use super::table::{self, ShownCell, ShownColumn};
use super::terminal::Look;

/// The page, with at most `room` lines.
pub fn lines(
    task: TaskKey,
    shown: &Shown<'_>,
    look: Look,
    wide: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let mut lines = vec![title(task, shown, look, wide)];
    let key = RowKey::Thread(task);
    let rows = shown.made.frame.rows(LiveView::Thread);
    match rows.iter().find(|row| row.key == key) {
        Some(row) => {
            lines.push(numbers(row, shown, wide));
            lines.push(history(row, shown, look, wide));
            lines.push(Line::default());
            lines.extend(reasons(row, shown, look, wide));
            lines.extend(takers(task, shown, look, wide));
        }
        None => lines.push(Line::styled(
            cut("it did not switch in this frame", wide),
            look.faint(),
        )),
    }
    lines.truncate(room);
    lines
}

fn title(task: TaskKey, shown: &Shown<'_>, look: Look, wide: usize) -> Line<'static> {
    let words = match shown.names.tasks.get(task) {
        Some(of) => {
            let process = shown.names.tasks.process_name(of.pid).unwrap_or("");
            let cgroup = shown.names.cgroups.get(&of.cgroup);
            let cgroup = cgroup.map_or_else(String::new, |of| format!(" · cgroup {}", of.path));
            format!(
                "thread {} {} of {process} {}{cgroup}",
                of.comm, of.tid, of.pid
            )
        }
        None => "a thread that has ended".to_owned(),
    };
    Line::styled(cut(&escaped(&words), wide), look.strong())
}

/// The columns of the view of threads in one line, as far as they fit.
fn numbers(row: &LiveRow, shown: &Shown<'_>, wide: usize) -> Line<'static> {
    let keys = [
        "switches_per_s",
        "cost_pct",
        "on_cpu_pct",
        "runq_pct",
        "runq_p50_below_ns",
        "runq_p99_below_ns",
        "own_process_per_s",
        "own_cgroup_per_s",
        "foreign_per_s",
    ];
    let columns = LiveColumn::of(LiveView::Thread).iter();
    let mut words: Vec<String> = Vec::new();
    for column in columns.filter(|column| keys.contains(&column.key)) {
        let cell = column.cell(row, &shown.made.frame, shown.names);
        if cell != Cell::Missing {
            words.push(format!("{} {}", column.head, cell.to_table()));
        }
    }
    while words.len() > 1 && width(&words.join(" · ")) > wide {
        words.pop();
    }
    Line::raw(cut(&words.join(" · "), wide))
}

fn history(row: &LiveRow, shown: &Shown<'_>, look: Look, wide: usize) -> Line<'static> {
    let rates = shown.history.rates(row.key, wide.saturating_sub(30));
    let highest = rates.iter().copied().fold(0.0, f32::max);
    let mut line = Line::styled(curve(&rates), look.curve());
    let words = format!("  up to {} switches/s", rate(highest.into()));
    let words = cut(&words, wide.saturating_sub(line.width()));
    line.push_span(Span::styled(words, look.faint()));
    line
}

/// Why it left its CPU, most often first.
fn reasons(row: &LiveRow, shown: &Shown<'_>, look: Look, wide: usize) -> Vec<Line<'static>> {
    let (frame, sums) = (&shown.made.frame, &row.sums);
    let mut found: Vec<(Reason, u64, Nanos)> = Reason::ALL
        .iter()
        .map(|reason| {
            let place = reason.index();
            (
                *reason,
                sums.by_reason[place],
                sums.blocked_by_reason[place],
            )
        })
        .filter(|(_, switches, _)| *switches > 0)
        .collect();
    found.sort_by_key(|(reason, switches, _)| (u64::MAX - switches, *reason));
    let column = |head: &str, cell: &dyn Fn(&(Reason, u64, Nanos)) -> Cell| ShownColumn {
        head: head.to_owned(),
        cells: found.iter().map(|one| ShownCell::of(&cell(one))).collect(),
        is_sorted: false,
        is_needed: false,
    };
    let all = sums.switches();
    let columns = [
        column("reason", &|(reason, ..)| Cell::text(reason.as_str())),
        column("switch/s", &|(_, switches, _)| {
            Cell::Rate(frame.per_second(*switches))
        }),
        column("share%", &|(_, switches, _)| Cell::share(*switches, all)),
        column("blocked%", &|(.., blocked)| {
            Cell::Percent(frame.share_pct(blocked.as_ns() as f64))
        }),
        column("why", &|(reason, ..)| Cell::text(reason.help())),
    ];
    table::lines(&columns, wide, (look.strong(), look.sorted()), None)
}

/// Who took its CPU, most often first.
fn takers(task: TaskKey, shown: &Shown<'_>, look: Look, wide: usize) -> Vec<Line<'static>> {
    let frame = &shown.made.frame;
    let rows = frame.rows(LiveView::Pair).iter();
    let mut rows: Vec<&LiveRow> = rows
        .filter(|row| matches!(row.key, RowKey::Pair(_, of, _) if of == task))
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    rows.sort_by_key(|row| (u64::MAX - row.sums.switches(), row.key));
    let wanted = [
        "preemptor",
        "preemptor_tid",
        "switches_per_s",
        "relation",
        "reason",
        "preemptor_process",
    ];
    let all = LiveColumn::of(LiveView::Pair).iter();
    let columns: Vec<ShownColumn> = all
        .filter(|column| wanted.contains(&column.key))
        .map(|column| ShownColumn {
            head: match column.key {
                "preemptor" => "CPU taken by".to_owned(),
                _ => column.head.to_owned(),
            },
            cells: rows
                .iter()
                .map(|row| ShownCell::of(&column.cell(row, frame, shown.names)))
                .collect(),
            is_sorted: false,
            is_needed: false,
        })
        .collect();
    let mut lines = vec![Line::default()];
    let styles = (look.strong(), look.sorted());
    lines.extend(table::lines(&columns, wide, styles, None));
    lines
}

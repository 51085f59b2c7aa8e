//! The page of one thread: all its reasons, and who took its CPU.

use ratatui::text::{Line, Span};
use swtch_core::{GroupCounts, Nanos, Reason, TaskKey};
use swtch_output::text::{cut, escaped, rate, width};
use swtch_report::report::live::{LiveColumn, LiveRow, LiveView, RowKey};
use swtch_report::report::{
    CALLER_LACKING, Cell, function_name, is_of_tracing, may_lack_a_caller, short_name,
};

use super::Shown;
use super::page::{curve, lock_in_words};
use super::table::{self, ShownCell, ShownColumn};
use super::terminal::Look;
use crate::top::stacks::{FUNCTIONS_NAMED, PlaceRates, ThreadPlace, ThreadPlaces};

/// The whole page.
pub fn lines(task: TaskKey, shown: &Shown<'_>, look: Look, wide: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(task, shown, look, wide)];
    let key = RowKey::Thread(task);
    let rows = shown.made.frame.rows(LiveView::Thread);
    lines.extend(open_wait(task, shown, look, wide));
    match rows.iter().find(|row| row.key == key) {
        Some(row) if row.sums.switches() > 0 => {
            lines.push(numbers(row, shown, wide));
            lines.push(history(row, shown, look, wide));
            lines.push(Line::default());
            lines.extend(reasons(row, shown, look, wide));
            lines.extend(places(task, shown, look, wide));
            lines.extend(takers(task, shown, look, wide));
            lines.extend(locks(task, shown, look, wide));
        }
        _ => {
            lines.push(Line::styled(
                cut("it did not switch in this frame", wide),
                look.faint(),
            ));
            lines.extend(places(task, shown, look, wide));
        }
    }
    lines.extend(whole_stack(task, shown, look, wide));
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

/// Says what it waits for at the end of the frame.
fn open_wait(task: TaskKey, shown: &Shown<'_>, look: Look, wide: usize) -> Option<Line<'static>> {
    let wait = shown.made.frame.open_wait(task)?;
    let lock = match wait.futex {
        0 => String::new(),
        futex => format!(" ({})", lock_in_words(futex)),
    };
    let words = format!(
        "now blocked for {}: {}{lock}",
        wait.lasts,
        wait.reason.help()
    );
    Some(Line::styled(cut(&words, wide), look.strong()))
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

/// Lists why it left its CPU, most often first.
fn reasons(row: &LiveRow, shown: &Shown<'_>, look: Look, wide: usize) -> Vec<Line<'static>> {
    let (frame, sums) = (&shown.made.frame, &row.sums);
    let mut found: Vec<(Reason, u64, Nanos)> = Reason::ALL
        .iter()
        .map(|reason| {
            let place = reason.index();
            (
                *reason,
                sums.tally.reasons[place],
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

/// Lists who took its CPU, most often first.
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

/// Places that have a line each.
const MOST_PLACES: usize = 8;

fn places_of<'a>(task: TaskKey, shown: &Shown<'a>) -> Option<&'a ThreadPlaces> {
    let places = shown.made.places.as_ref();
    places.filter(|places| places.task == task)
}

/// Shows the places where it left its CPU since the page was opened, those with the most blocked time first.
fn places(task: TaskKey, shown: &Shown<'_>, look: Look, wide: usize) -> Vec<Line<'static>> {
    let Some(places) = places_of(task, shown).filter(|places| !places.rates.is_empty()) else {
        return Vec::new();
    };
    let seconds = places.watched.as_ns() as f64 / 1e9;
    let rows = by_functions(&places.rates);
    let column = |head: String, cell: &dyn Fn(&FunctionsRow<'_>) -> Cell| ShownColumn {
        head,
        cells: rows.iter().map(|one| ShownCell::of(&cell(one))).collect(),
        is_sorted: false,
        is_needed: false,
    };
    let head = format!("where, < its caller (of {seconds:.0} s)");
    let columns = [
        column("reason".to_owned(), &|row| Cell::text(row.reason.as_str())),
        column("switch/s".to_owned(), &|row| {
            Cell::Rate(row.switches as f64 / seconds)
        }),
        column("blocked%".to_owned(), &|row| {
            Cell::Percent(row.blocked.as_ns() as f64 / 1e7 / seconds)
        }),
        column(head, &|row| Cell::text(row.functions.as_str())),
    ];
    let mut lines = vec![Line::default()];
    let styles = (look.strong(), look.sorted());
    lines.extend(table::lines(&columns, wide, styles, None));
    if !places.has_names {
        let words = "its functions have no names: top gave up the right to look into the process. Start it with --stacks";
        lines.push(Line::styled(cut(words, wide), look.faint()));
    }
    lines
}

/// Places that look the same in one line.
struct FunctionsRow<'a> {
    reason: Reason,
    functions: String,
    switches: u64,
    blocked: Nanos,
    /// The first of the places that look the same.
    place: &'a ThreadPlace,
}

/// The rows with the most blocked time, then those with the most switches.
fn by_functions(rates: &[PlaceRates]) -> Vec<FunctionsRow<'_>> {
    let mut rows: Vec<FunctionsRow<'_>> = Vec::new();
    for one in rates {
        let functions = functions(&one.place);
        let known = rows
            .iter_mut()
            .find(|row| row.reason == one.reason && row.functions == functions);
        match known {
            Some(row) => {
                row.switches += one.switches;
                row.blocked += one.blocked;
            }
            None => rows.push(FunctionsRow {
                reason: one.reason,
                functions,
                switches: one.switches,
                blocked: one.blocked,
                place: &one.place,
            }),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse((row.blocked, row.switches)));
    rows.truncate(MOST_PLACES);
    rows
}

/// The functions of the program, the innermost first; where none has a name, those of the kernel.
fn functions(place: &ThreadPlace) -> String {
    match &place.functions {
        Some(own) => own.to_string(),
        None => {
            let kernel = place
                .kernel
                .iter()
                .skip_while(|frame| is_of_scheduler(frame));
            let names = kernel.map(|frame| short_name(function_name(frame)));
            names.take(FUNCTIONS_NAMED).collect::<Vec<_>>().join(" < ")
        }
    }
}

/// Returns true if each stack of a switch has such a frame, so that it says nothing of this one.
fn is_of_scheduler(frame: &str) -> bool {
    let starts = ["__traceiter_", "__schedule", "schedule", "preempt_schedule"];
    starts.iter().any(|start| frame.starts_with(start))
}

/// All frames of the place where it is now, or was most.
fn whole_stack(task: TaskKey, shown: &Shown<'_>, look: Look, wide: usize) -> Vec<Line<'static>> {
    let Some(places) = places_of(task, shown) else {
        return Vec::new();
    };
    let (words, place) = match &places.now {
        Some(now) => ("stack of the wait that lasts", now),
        None => match by_functions(&places.rates).first() {
            Some(first) => ("stack of the first of these places", first.place),
            None => return stack_from_elsewhere(task, shown, look, wide),
        },
    };
    let mut lines = vec![
        Line::default(),
        Line::styled(cut(words, wide), look.strong()),
    ];
    let kernel = place.kernel.iter().filter(|frame| !is_of_tracing(frame));
    let frames = kernel.chain(place.user.iter());
    lines.extend(frames.map(|frame| Line::raw(cut(&format!("  {}", escaped(frame)), wide))));
    if may_lack_a_caller(&place.user) {
        lines.push(Line::raw(cut(&format!("  ({CALLER_LACKING})"), wide)));
    }
    lines
}

/// A thread that has not switched since its page was opened has no stack here.
fn stack_from_elsewhere(
    task: TaskKey,
    shown: &Shown<'_>,
    look: Look,
    wide: usize,
) -> Vec<Line<'static>> {
    let Some(of) = shown.names.tasks.get(task) else {
        return Vec::new();
    };
    let words = format!(
        "where it is shows when it switches next; at once: swtch explain --backend proc -p {} -d 1",
        of.pid
    );
    vec![Line::styled(cut(&words, wide), look.faint())]
}

/// The locks that it waited for, those with the most blocked time first.
fn locks(task: TaskKey, shown: &Shown<'_>, look: Look, wide: usize) -> Vec<Line<'static>> {
    let frame = &shown.made.frame;
    let mut waited: Vec<(u64, &GroupCounts)> = frame.futexes_of(task).collect();
    if waited.is_empty() {
        return Vec::new();
    }
    waited.sort_by_key(|(futex, sums)| (std::cmp::Reverse(sums.blocked()), *futex));
    let column = |head: &str, cell: &dyn Fn(&(u64, &GroupCounts)) -> Cell| ShownColumn {
        head: head.to_owned(),
        cells: waited.iter().map(|one| ShownCell::of(&cell(one))).collect(),
        is_sorted: false,
        is_needed: false,
    };
    let columns = [
        column("waited for", &|(futex, _)| {
            Cell::text(lock_in_words(*futex))
        }),
        column("wait/s", &|(_, sums)| {
            Cell::Rate(frame.per_second(sums.switches))
        }),
        column("blocked%", &|(_, sums)| {
            Cell::Percent(frame.share_pct(sums.blocked().as_ns() as f64))
        }),
    ];
    let mut lines = vec![Line::default()];
    let styles = (look.strong(), look.sorted());
    lines.extend(table::lines(&columns, wide, styles, None));
    lines
}

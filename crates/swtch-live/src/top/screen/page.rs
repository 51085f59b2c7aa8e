//! The page as lines: what the machine does, the table, and what keys do.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use swtch_core::FUTEX_OF_MANY;
use swtch_output::text::{cut, escaped, rate, width};
use swtch_report::report::Cell;
use swtch_report::report::live::{LiveColumn, LiveView, RowKey};

use super::rows::{self, ChosenRow};
use super::state::{ScreenState, Within};
use super::table::{self, ShownCell, ShownColumn};
use super::terminal::Look;
use super::{Shown, detail, help};

/// Characters of a small curve, from nothing to the highest.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Below this height only the rates and the rows are shown.
const LOW: usize = 12;

/// The whole page in this size.
pub fn lines(
    state: &ScreenState,
    shown: &Shown<'_>,
    look: Look,
    wide: u16,
    high: u16,
) -> Vec<Line<'static>> {
    let (wide, high) = (usize::from(wide), usize::from(high));
    if let Some(first) = state.help {
        return help::lines(state, look, first, wide, high);
    }
    let is_low = high < LOW;
    let mut lines = if is_low {
        vec![short_head(shown, look, wide)]
    } else {
        head(state, shown, look, wide)
    };
    let foot = if is_low { 0 } else { 2 };
    let room = high.saturating_sub(lines.len() + foot);
    match state.detail {
        Some(task) => {
            let page = detail::lines(task, shown, look, wide);
            let most = page.len().saturating_sub(room);
            lines.extend(page.into_iter().skip(state.scrolled.min(most)));
        }
        None => lines.extend(view(state, shown, look, wide, room)),
    }
    lines.truncate(high.saturating_sub(foot));
    if !is_low {
        lines.resize(high - foot, Line::default());
        lines.extend(footer(state, shown, look, wide));
    }
    lines
}

/// A curve of rates, as high as the highest of them.
pub fn curve(rates: &[f32]) -> String {
    let highest = rates.iter().copied().fold(0.0, f32::max);
    let height = |rate: &f32| {
        if highest <= 0.0 {
            return HEIGHTS[0];
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 7"
        )]
        let place = (rate / highest * 7.0).round() as usize;
        HEIGHTS[place.min(7)]
    };
    rates.iter().map(height).collect()
}

/// The most kinds of spans that have a line above the rows; all are in JSON and in the stream.
const MOST_SPANS_SHOWN: usize = 3;

fn short_head(shown: &Shown<'_>, look: Look, wide: usize) -> Line<'static> {
    let frame = &shown.made.frame;
    let rate = rate(frame.per_second(frame.total.switches()));
    Line::styled(cut(&format!("{rate} switches/s"), wide), look.strong())
}

fn head(state: &ScreenState, shown: &Shown<'_>, look: Look, wide: usize) -> Vec<Line<'static>> {
    let made = shown.made;
    let frozen = if state.is_frozen { "FROZEN · " } else { "" };
    let title = format!("swtch top · {frozen}{}", escaped(shown.heading));
    let rates = if made.frame.interval.as_ns() == 0 {
        "counting …".to_owned()
    } else {
        made.rates_in_words()
    };
    let mut lines = vec![
        Line::styled(cut(&title, wide), look.faint()),
        with_curve(&rates, shown, look, wide),
        Line::raw(cut(&made.cost_in_words(), wide)),
    ];
    let spans = made.spans_in_words().take(MOST_SPANS_SHOWN);
    lines.extend(spans.map(|told| Line::raw(cut(&told, wide))));
    if let Some(loss) = made.loss_in_words() {
        lines.push(Line::styled(cut(&loss, wide), look.alarm()));
    }
    if !shown.absent_hooks.is_empty() {
        let absent = shown.absent_hooks.join(", ");
        let note = format!(
            "without {absent} (missing in this kernel, or left out): reasons that need it are inferred"
        );
        lines.push(Line::styled(cut(&note, wide), look.faint()));
    }
    lines.push(tabs(state, shown, look, wide));
    lines
}

fn with_curve(rates: &str, shown: &Shown<'_>, look: Look, wide: usize) -> Line<'static> {
    let text = cut(rates, wide);
    let room = wide.saturating_sub(width(&text) + 2);
    let mut line = Line::styled(text, look.strong());
    if room >= 8 {
        let curve = curve(&shown.history.total(room.min(60)));
        line.push_span(Span::styled(format!("  {curve}"), look.curve()));
    }
    line
}

const fn title(view: LiveView) -> &'static str {
    match view {
        LiveView::Process => "process",
        LiveView::Thread => "thread",
        LiveView::Cgroup => "cgroup",
        LiveView::Reason => "reason",
        LiveView::Pair => "who took whose CPU",
        LiveView::Cpu => "CPU",
        LiveView::Lock => "lock",
    }
}

/// The views with their keys, and what limits the rows.
fn tabs(state: &ScreenState, shown: &Shown<'_>, look: Look, wide: usize) -> Line<'static> {
    let mut line = Line::default();
    for (number, view) in (1..).zip(LiveView::ALL) {
        let is_shown = view == state.view;
        // The brackets tell it where nothing can be reversed.
        let words = if is_shown {
            format!("[{number} {}]", title(view))
        } else {
            format!(" {number} {} ", title(view))
        };
        let style = if is_shown {
            look.chosen()
        } else {
            Style::new()
        };
        if line.width() + width(&words) <= wide {
            line.push_span(Span::styled(words, style));
        }
    }
    let mut limits = Vec::new();
    if let Some((_, within)) = state.within {
        limits.push(within_in_words(within, shown));
    }
    if state.is_typing || !state.filter.is_empty() {
        let end = if state.is_typing { "_" } else { "" };
        limits.push(format!("/{}{end}", escaped(&state.filter)));
    }
    if !limits.is_empty() {
        let words = format!("  {}", limits.join(" · "));
        let room = wide.saturating_sub(line.width());
        // Somebody who types must see what: the views make room.
        if room < width(&words) {
            line = Line::default();
        }
        let room = wide.saturating_sub(line.width());
        line.push_span(Span::styled(cut(&words, room), look.strong()));
    }
    line
}

fn within_in_words(within: Within, shown: &Shown<'_>) -> String {
    match within {
        Within::Process(Some(pid)) => {
            let name = shown.names.tasks.process_name(pid).unwrap_or("");
            format!("threads of {} {pid}", escaped(name))
        }
        Within::Cgroup(Some(id)) => {
            let path = shown.names.cgroups.get(&id);
            let path = path.map_or_else(|| id.to_string(), |limits| limits.path.clone());
            format!("threads in {}", escaped(&path))
        }
        Within::Process(None) | Within::Cgroup(None) => "threads without a name".to_owned(),
        Within::Reason(reason) => format!("threads that left for {reason}"),
        Within::Lock(_, futex) => format!("threads that wait for {}", lock_in_words(futex)),
    }
}

/// A futex word as the view of locks names it.
pub fn lock_in_words(futex: u64) -> String {
    match futex {
        FUTEX_OF_MANY => "more locks".to_owned(),
        futex => format!("the futex at {futex:#x}"),
    }
}

/// The table of the view, with as many rows as there is room for.
fn view(
    state: &ScreenState,
    shown: &Shown<'_>,
    look: Look,
    wide: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let all = rows::chosen(state, shown);
    let keys: Vec<RowKey> = all.iter().map(|row| row.row.key).collect();
    let place = state.place(&keys);
    // One line is the head of the table.
    let most = room.saturating_sub(1);
    // The chosen row stays on the page.
    let first = (place + 1).saturating_sub(most);
    let rows = &all[first.min(all.len())..(first + most).min(all.len())];
    if rows.is_empty() {
        let words = match (shown.made.frame.interval.as_ns(), state.filter.is_empty()) {
            (0, _) => "the first frame comes at the end of the interval",
            _ if !shown.made.frame.has(state.view) => "this view comes with the next frame",
            (_, true) if state.view == LiveView::Lock => "no thread waited for a lock",
            (_, true) => {
                "nothing switched (what hangs since before: swtch explain --backend proc -p PID)"
            }
            (_, false) => "no row has this in its names (Esc shows all)",
        };
        return vec![Line::styled(cut(words, wide), look.faint())];
    }
    let columns = columns(state, shown, look, rows, wide);
    let styles = (look.strong(), look.sorted());
    table::lines(&columns, wide, styles, Some((place - first, look.chosen())))
}

/// From this width on there are curves.
const WITH_CURVES: usize = 70;

fn columns(
    state: &ScreenState,
    shown: &Shown<'_>,
    look: Look,
    rows: &[ChosenRow<'_>],
    wide: usize,
) -> Vec<ShownColumn> {
    let order = state.order();
    let mut columns = Vec::new();
    for (place, column) in LiveColumn::of(state.view).iter().enumerate() {
        let is_sorted = place == order.column;
        // The screen shows rates; totals of a frame are for scripts.
        if column.key == "switches" && !is_sorted {
            continue;
        }
        let head = match (is_sorted, order.is_ascending) {
            (true, true) => format!("{}▲", column.head),
            (true, false) => format!("{}▼", column.head),
            (false, _) => column.head.to_owned(),
        };
        let cell = |row: &ChosenRow<'_>| {
            let cell = column.cell(row.row, &shown.made.frame, shown.names);
            let mut shown = ShownCell::of(&cell);
            if place == 0 && row.depth > 0 {
                shown.text = format!("{}└ {}", "  ".repeat(row.depth - 1), shown.text);
            }
            if column.key.starts_with("throttled") && !matches!(cell, Cell::Rate(0.0)) {
                shown.style = look.alarm();
            }
            shown
        };
        columns.push(ShownColumn {
            head,
            cells: rows.iter().map(cell).collect(),
            is_sorted,
            is_needed: place == 0,
        });
        if column.key == "switches_per_s" && wide >= WITH_CURVES {
            columns.push(curves(shown, look, rows, wide));
        }
    }
    columns
}

fn curves(shown: &Shown<'_>, look: Look, rows: &[ChosenRow<'_>], wide: usize) -> ShownColumn {
    let length = if wide >= 120 { 20 } else { 8 };
    let cell = |row: &ChosenRow<'_>| {
        let curve = curve(&shown.history.rates(row.row.key, length));
        ShownCell {
            // The last frame stands at the right, also while there are few.
            text: format!("{curve:>length$}"),
            is_number: true,
            style: look.curve(),
        }
    };
    ShownColumn {
        head: "trend".to_owned(),
        cells: rows.iter().map(cell).collect(),
        is_sorted: false,
        is_needed: false,
    }
}

fn footer(state: &ScreenState, shown: &Shown<'_>, look: Look, wide: usize) -> [Line<'static>; 2] {
    let keys = match (state.is_typing, state.detail.is_some()) {
        (true, _) => "type a part of a name, or an id · Enter keeps it · Esc shows all rows",
        (_, true) => "Esc back · ↑↓ scroll · space freeze · ? help · q quit",
        _ if wide >= 100 => {
            "? help · 1-7 Tab view · ←→ sort · r reverse · / filter · Enter open · t tree · space freeze · q quit"
        }
        _ => "? help · 1-7 view · ←→ sort · / filter · Enter open · space freeze · q quit",
    };
    [
        Line::styled(cut(&shown.made.own_cost_in_words(), wide), look.faint()),
        Line::styled(cut(keys, wide), look.faint()),
    ]
}

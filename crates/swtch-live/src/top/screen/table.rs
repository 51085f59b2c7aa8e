//! A table that fits: columns are taken from the left as long as there is room, and the column by
//! which the rows are sorted always.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use swtch_output::text::{cut, width};
use swtch_report::report::Cell;

/// A column with the cells of the rows that are shown.
#[derive(Clone, Debug)]
pub struct ShownColumn {
    pub head: String,
    pub cells: Vec<ShownCell>,
    /// True if rows are sorted by it.
    pub is_sorted: bool,
    /// True if it is left out only where there is no room for anything else.
    pub is_needed: bool,
}

/// A cell, and how it looks.
#[derive(Clone, Debug)]
pub struct ShownCell {
    pub text: String,
    pub is_number: bool,
    pub style: Style,
}

impl ShownCell {
    /// The cell as tables have it, escaped.
    pub fn of(cell: &Cell) -> Self {
        Self {
            text: cell.to_table(),
            is_number: !matches!(
                cell,
                Cell::Missing | Cell::Text(_) | Cell::Cgroup(_) | Cell::List(_)
            ),
            style: Style::new(),
        }
    }

    fn is_missing(&self) -> bool {
        self.text == "-"
    }
}

/// The widest that a column is made, but for the last: a cgroup's path may be long.
const WIDEST: usize = 40;

const GAP: &str = "  ";

impl ShownColumn {
    fn natural_width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| width(&cell.text));
        cells.max().unwrap_or(0).max(width(&self.head))
    }

    fn width(&self) -> usize {
        self.natural_width().min(WIDEST)
    }

    fn is_of_numbers(&self) -> bool {
        let mut known = self.cells.iter().filter(|cell| !cell.is_missing());
        known.next().is_some_and(|cell| cell.is_number)
    }

    /// Returns true if it says nothing of any row.
    fn is_empty(&self) -> bool {
        !self.is_sorted && !self.cells.is_empty() && self.cells.iter().all(ShownCell::is_missing)
    }
}

/// The columns that fit into this width, in their order, each with its width. Those that are needed
/// come first; if even they do not fit, the first of them, a name, is cut.
fn fitting(columns: &[ShownColumn], total: usize) -> Vec<(&ShownColumn, usize)> {
    let is_needed = |place: &usize| columns[*place].is_needed || columns[*place].is_sorted;
    let (needed, others): (Vec<usize>, Vec<usize>) =
        (0..columns.len()).partition(|place| is_needed(place));
    let of_needed = needed.iter().map(|place| columns[*place].width());
    let too_wide = (of_needed.sum::<usize>() + GAP.len() * needed.len().saturating_sub(1))
        .saturating_sub(total);
    let mut taken: Vec<(usize, usize)> = Vec::new();
    let mut used = 0;
    for place in needed.into_iter().chain(others) {
        let column = &columns[place];
        if column.is_empty() {
            continue;
        }
        let (gap, width) = if taken.is_empty() {
            (0, cut_by(column.width(), too_wide).min(total))
        } else {
            (GAP.len(), column.width())
        };
        if used + gap + width <= total {
            used += gap + width;
            taken.push((place, width));
        }
    }
    taken.sort_unstable();
    // Words in the last column may be long, and nothing else wants the room.
    if let Some((place, width)) = taken.last_mut()
        && *width == WIDEST
    {
        *width = columns[*place].natural_width().min(total - used + WIDEST);
    }
    taken
        .into_iter()
        .map(|(place, width)| (&columns[place], width))
        .collect()
}

/// A name that is cut further than this says nothing.
const LEAST_NAME: usize = 6;

fn cut_by(width: usize, too_wide: usize) -> usize {
    let cut = width.saturating_sub(too_wide);
    if cut >= LEAST_NAME { cut } else { width }
}

/// The head and the rows, as lines of at most this width. The row at `chosen` is shown in this style.
pub fn lines(
    columns: &[ShownColumn],
    total: usize,
    styles: (Style, Style),
    chosen: Option<(usize, Style)>,
) -> Vec<Line<'static>> {
    let (plain_head, sorted_head) = styles;
    let fitting = fitting(columns, total);
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let mut lines = Vec::with_capacity(rows + 1);
    let heads = fitting.iter().map(|(column, width)| {
        let style = if column.is_sorted {
            sorted_head
        } else {
            plain_head
        };
        (set(&column.head, *width, column.is_of_numbers()), style)
    });
    lines.push(line_of(heads));
    for row in 0..rows {
        let cells = fitting.iter().map(|(column, width)| {
            let cell = &column.cells[row];
            (set(&cell.text, *width, cell.is_number), cell.style)
        });
        let line = line_of(cells);
        lines.push(match chosen {
            Some((place, style)) if place == row => filled(line, total).style(style),
            _ => line,
        });
    }
    lines
}

/// The text in this width: numbers to the right, words to the left.
fn set(text: &str, wide: usize, is_number: bool) -> String {
    let text = cut(text, wide);
    let blanks = " ".repeat(wide.saturating_sub(width(&text)));
    if is_number {
        blanks + &text
    } else {
        text + &blanks
    }
}

fn line_of(cells: impl Iterator<Item = (String, Style)>) -> Line<'static> {
    let mut spans = Vec::new();
    for (text, style) in cells {
        if !spans.is_empty() {
            spans.push(Span::raw(GAP));
        }
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}

/// The line with blanks up to this width: a bar goes over the whole row.
fn filled(mut line: Line<'static>, total: usize) -> Line<'static> {
    let blanks = total.saturating_sub(line.width());
    line.push_span(Span::raw(" ".repeat(blanks)));
    line
}

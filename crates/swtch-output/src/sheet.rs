//! A table before it has a format: named columns, rows of cells, and the columns that people are
//! shown.
//!
//! ```text
//!              ┌─▶ table: people read it; lengths in the unit that fits, the first N rows
//! Sheet ───────┼─▶ json:  one object; keys are the column names with their units, raw numbers
//!              └─▶ csv:   RFC 4180; the same columns, raw numbers
//! ```
//!
//! A column's name is its key in JSON and CSV and ends in the unit (`off_ns`); the table's head is
//! made from it (`off`), because there each length carries its own unit.

use std::io;

use serde_json::{Map, Value};
use swtch_core::{Nanos, cgroup_words};

use crate::column::{Holds, Word};
use crate::csv::{self, CsvWriter};
use crate::text::{self, CellAlignment};

/// Number of columns at the left that are never dropped.
const FIXED: usize = 2;

/// One value of a table, in its raw unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// A value that is not known, or does not apply.
    #[default]
    Missing,
    /// Text that may come from outside: tables and CSV escape it.
    Text(String),
    /// The path of a cgroup: tables name the container instead, where it is one.
    Cgroup(String),
    /// Several texts, as the frames of a stack.
    List(Vec<String>),
    /// A count, which tables write with grouped digits.
    Count(u64),
    /// A number that is a name, such as a thread id.
    Id(u64),
    /// An address or inode number.
    Hex(u64),
    /// A length of time.
    Time(Nanos),
    /// A share of a whole, from 0 to 100.
    Percent(f64),
    /// An estimated length in ns, perhaps negative or a fraction.
    Estimated(f64),
    /// A ratio of two numbers, without a unit.
    Ratio(f64),
    /// A number of events per second.
    Rate(f64),
}

impl Cell {
    /// A cell of text.
    pub fn text(words: impl Into<String>) -> Self {
        Self::Text(words.into())
    }

    /// A length that may not be known.
    pub fn time(length: Option<Nanos>) -> Self {
        length.map_or(Self::Missing, Self::Time)
    }

    /// `part` of `whole` in percent; missing if `whole` is zero.
    pub fn share(part: u64, whole: u64) -> Self {
        percent(part, whole).map_or(Self::Missing, Self::Percent)
    }

    /// Returns true if a column that holds this may have the cell.
    pub(crate) const fn fits(&self, holds: Holds) -> bool {
        match self {
            Self::Missing => true,
            Self::Text(_) | Self::Cgroup(_) => matches!(holds, Holds::Text),
            Self::List(_) => matches!(holds, Holds::Texts),
            Self::Count(_) => matches!(holds, Holds::Count),
            Self::Id(_) => matches!(holds, Holds::Id),
            Self::Hex(_) => matches!(holds, Holds::Address),
            Self::Time(_) | Self::Estimated(_) => matches!(holds, Holds::Time),
            Self::Percent(_) => matches!(holds, Holds::Percent),
            Self::Ratio(_) | Self::Rate(_) => matches!(holds, Holds::Number),
        }
    }

    fn is_missing(&self) -> bool {
        match self {
            Self::Missing => true,
            Self::List(words) => words.is_empty(),
            _ => false,
        }
    }

    /// The text of the cell in a table.
    pub fn to_table(&self) -> String {
        match self {
            Self::Missing => "-".to_owned(),
            Self::Text(words) => text::escaped(words).into_owned(),
            Self::Cgroup(path) => text::escaped(&cgroup_words(path)).into_owned(),
            Self::List(words) if words.is_empty() => "-".to_owned(),
            Self::List(words) => text::escaped(&words.join(", ")).into_owned(),
            Self::Count(count) => text::grouped(*count),
            Self::Id(id) => id.to_string(),
            Self::Hex(number) => format!("{number:#x}"),
            Self::Time(length) => length.to_string(),
            Self::Percent(share) => format!("{share:.1}"),
            Self::Estimated(ns) => text::nanos(*ns),
            Self::Ratio(ratio) => format!("{ratio:.3}"),
            Self::Rate(rate) => text::rate(*rate),
        }
    }

    fn write_csv(&self, csv: &mut CsvWriter<'_>) -> io::Result<()> {
        match self {
            Self::Missing => csv.empty(),
            Self::Text(words) | Self::Cgroup(words) => csv.text(words),
            Self::List(words) => csv.text(&words.join(";")),
            Self::Count(number) | Self::Id(number) => csv.plain(number),
            Self::Hex(number) => csv.plain(format_args!("{number:#x}")),
            Self::Time(length) => csv.plain(length.as_ns()),
            Self::Percent(share) => csv.plain(format_args!("{share:.4}")),
            Self::Estimated(ns) => csv.plain(format_args!("{ns:.3}")),
            Self::Ratio(ratio) => csv.plain(format_args!("{ratio:.5}")),
            Self::Rate(rate) => csv.plain(format_args!("{rate:.3}")),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Missing => Value::Null,
            Self::Text(words) | Self::Cgroup(words) => Value::from(words.as_str()),
            Self::List(words) => Value::from(words.as_slice()),
            Self::Count(number) | Self::Id(number) => Value::from(*number),
            // A double cannot hold every 64-bit address.
            Self::Hex(number) => Value::from(format!("{number:#x}")),
            Self::Time(length) => Value::from(length.as_ns()),
            Self::Percent(share) => Value::from((share * 1e4).round() / 1e4),
            Self::Estimated(number) | Self::Rate(number) => {
                Value::from((number * 1e3).round() / 1e3)
            }
            Self::Ratio(ratio) => Value::from((ratio * 1e5).round() / 1e5),
        }
    }

    const fn side(&self) -> CellAlignment {
        match self {
            Self::Missing | Self::Text(_) | Self::Cgroup(_) | Self::List(_) => CellAlignment::Left,
            _ => CellAlignment::Right,
        }
    }
}

/// `part` of `whole` in percent; `None` if `whole` is zero.
#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
pub fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

/// A table made of some of the columns.
#[derive(Clone, Copy, Debug)]
pub struct SheetTable {
    /// Heading above the table; empty for the first.
    pub title: &'static str,
    /// Its columns, from left to right.
    pub columns: &'static [&'static str],
}

/// A table as people read it: words in cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedTable {
    /// Heading above the table; empty for the first.
    pub title: &'static str,
    /// Names of the columns, and to which side each is set.
    pub head: Vec<(String, CellAlignment)>,
    /// Rows of text, each with one cell per column.
    pub rows: Vec<Vec<String>>,
    /// The sums of the rows, in columns where a sum makes sense.
    pub total: Option<Vec<String>>,
}

impl RenderedTable {
    fn lines(&self) -> Vec<String> {
        text::columns(&self.head, &self.rows, self.total.as_deref())
    }

    /// Drops columns until the table fits into `width`, first those of `dropped_first`, then from
    /// the right, and returns their names. The first two stay: they say what a row is about, and
    /// how many.
    fn narrow(&mut self, width: usize, dropped_first: &[&str]) -> Vec<String> {
        let mut left_out = Vec::new();
        let is_too_wide = |shown: &Self| shown.lines().iter().any(|line| text::width(line) > width);
        while self.head.len() > FIXED && is_too_wide(self) {
            let place = |key: &&str| {
                let mut places = FIXED..self.head.len();
                places.find(|place| self.head[*place].0 == **key)
            };
            let least = dropped_first.iter().filter_map(place).next();
            left_out.push(self.leave_out(least.unwrap_or(self.head.len() - 1)));
        }
        left_out
    }

    fn leave_out(&mut self, place: usize) -> String {
        for row in self.rows.iter_mut().chain(&mut self.total) {
            row.remove(place);
        }
        self.head.remove(place).0
    }
}

/// Columns, rows, and how they are shown as a table.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// The thing that a row stands for; the name of the JSON schema ends with it.
    pub name: &'static str,
    /// Keys of the columns, as JSON and CSV write them.
    pub columns: Vec<&'static str>,
    /// The words for what the columns hold and mean, where that is said ([`Column`](crate::column::Column)).
    pub words: Vec<Word>,
    /// Rows, each with one cell per column.
    pub rows: Vec<Vec<Cell>>,
    /// The sums of the rows, in columns where a sum makes sense.
    pub total: Option<Vec<Cell>>,
    /// Tables that show it; if empty, one table shows all columns.
    pub views: Vec<SheetTable>,
    /// Columns that tables leave out, to fit on a screen.
    pub not_in_tables: &'static [&'static str],
    /// Heads of columns that a table drops when it is too wide, the least important first.
    pub dropped_first: &'static [&'static str],
    /// Notes that a reader needs to read the numbers correctly, one sentence each.
    pub notes: Vec<String>,
}

impl Sheet {
    /// An empty sheet of `name`.
    pub fn new(name: &'static str, columns: &[&'static str]) -> Self {
        Self {
            name,
            columns: columns.to_vec(),
            words: Vec::new(),
            rows: Vec::new(),
            total: None,
            views: Vec::new(),
            not_in_tables: &[],
            dropped_first: &[],
            notes: Vec::new(),
        }
    }

    /// The cell of a row in this column, which the table must have.
    ///
    /// # Panics
    /// When it has no such column.
    pub fn cell_of<'c>(&self, row: &'c [Cell], word: Word) -> &'c Cell {
        let place = self.columns.iter().position(|key| *key == word.key);
        &row[place.expect("the table has the column")]
    }

    /// Keeps the first `most` rows. The total remains that of all rows.
    #[must_use]
    pub fn with_most(mut self, most: Option<usize>) -> Self {
        if let Some(most) = most {
            self.rows.truncate(most);
        }
        self
    }

    /// The tables with the first `most` rows, one for each view. Columns without any value are left
    /// out.
    pub fn shown(&self, most: usize) -> Vec<RenderedTable> {
        if self.views.is_empty() {
            return vec![self.shown_as("", &self.columns, most)];
        }
        let views = self.views.iter();
        views
            .map(|view| self.shown_as(view.title, view.columns, most))
            .collect()
    }

    /// The tables with the first `most` rows, as wide as they are, and what follows them.
    pub fn to_table(&self, most: usize) -> String {
        self.to_table_in(usize::MAX, most)
    }

    /// The tables with the first `most` rows, and what follows them. If they are wider than
    /// `width`, the least important columns are left out, and a line says which.
    pub fn to_table_in(&self, width: usize, most: usize) -> String {
        if self.rows.is_empty() {
            return format!("no rows\n{}", self.rest(most));
        }
        let mut page = String::new();
        for mut table in self.shown(most) {
            if !table.title.is_empty() {
                page += &format!("\n{}\n", table.title);
            }
            let left_out = table.narrow(width, self.dropped_first);
            for line in table.lines() {
                page += &line;
                page.push('\n');
            }
            if !left_out.is_empty() {
                let left_out = left_out.join(", ");
                page += &format!(
                    "(too narrow for: {left_out}; a wider terminal, or COLUMNS=N, shows more)\n"
                );
            }
        }
        page + &self.rest(most)
    }

    /// The first table with its first `most` rows, in lines that fit into `width`.
    pub fn fitted(&self, most: usize, width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for mut table in self.shown(most).into_iter().take(1) {
            table.narrow(width, self.dropped_first);
            lines.extend(table.lines());
        }
        if let Some(hidden) = self
            .rows
            .len()
            .checked_sub(most)
            .filter(|hidden| *hidden > 0)
        {
            lines.push(format!("({hidden} more)"));
        }
        lines
    }

    /// The lines that follow the rows: how many are hidden, and the notes.
    pub fn rest(&self, most: usize) -> String {
        let mut lines = String::new();
        let hidden = self.rows.len().saturating_sub(most);
        if hidden > 0 {
            let rows = text::counted(u64::try_from(hidden).unwrap_or(u64::MAX), "more row");
            lines += &format!("({rows}: --top {} shows all)\n", self.rows.len());
        }
        for note in &self.notes {
            lines += &format!("note: {}\n", text::escaped(note));
        }
        lines
    }

    fn shown_as(
        &self,
        title: &'static str,
        columns: &[&'static str],
        most: usize,
    ) -> RenderedTable {
        let rows = &self.rows[..most.min(self.rows.len())];
        let places: Vec<usize> = columns
            .iter()
            .filter(|key| !self.not_in_tables.contains(key))
            .filter_map(|key| self.columns.iter().position(|column| column == key))
            .filter(|place| !rows.iter().all(|row| row[*place].is_missing()))
            .collect();
        let head = |place: &usize| (head_of(self.columns[*place]), self.side(rows, *place));
        let line = |row: &Vec<Cell>| places.iter().map(|p| row[*p].to_table()).collect();
        // A dash stands for "not known"; in the line of sums it would only distract.
        let blank = |cell: &Cell| match cell {
            Cell::Missing => String::new(),
            cell => cell.to_table(),
        };
        // A line of totals needs at least one sum after the word "total"; percentiles have none.
        let has_sums = |total: &&Vec<Cell>| places.iter().skip(1).any(|p| !total[*p].is_missing());
        let total = |total: &Vec<Cell>| places.iter().map(|p| blank(&total[*p])).collect();
        RenderedTable {
            title,
            head: places.iter().map(head).collect(),
            rows: rows.iter().map(line).collect(),
            total: self.total.as_ref().filter(has_sums).map(total),
        }
    }

    fn side(&self, rows: &[Vec<Cell>], place: usize) -> CellAlignment {
        let cells = rows.iter().map(|row| &row[place]);
        let mut known = cells.filter(|cell| !cell.is_missing());
        known.next().map_or(CellAlignment::Left, Cell::side)
    }

    /// The sheet as CSV: one record for the head, and one for each row.
    pub fn to_csv(&self) -> String {
        csv::text_of(|csv| {
            csv.record(&self.columns)?;
            self.write_csv_rows(csv)
        })
    }

    /// The rows as CSV, for a stream that has had its head.
    pub fn to_csv_rows(&self) -> String {
        csv::text_of(|csv| self.write_csv_rows(csv))
    }

    fn write_csv_rows(&self, csv: &mut CsvWriter<'_>) -> io::Result<()> {
        for row in &self.rows {
            row.iter().try_for_each(|cell| cell.write_csv(csv))?;
            csv.end_record()?;
        }
        Ok(())
    }

    /// The rows as JSON objects.
    pub fn to_json_rows(&self) -> Vec<Value> {
        self.rows.iter().map(|row| self.to_json(row)).collect()
    }

    /// The sums as a JSON object.
    pub fn to_json_total(&self) -> Option<Value> {
        self.total.as_ref().map(|total| self.to_json(total))
    }

    fn to_json(&self, row: &[Cell]) -> Value {
        let cells = self.columns.iter().zip(row);
        let object: Map<_, _> = cells
            .map(|(key, cell)| ((*key).to_owned(), cell.to_json()))
            .collect();
        Value::Object(object)
    }
}

/// Head of a column: its key in words, without the unit that the cells carry. The column of half an
/// interval has the head `±`, and stands behind its value.
pub(crate) fn head_of(key: &str) -> String {
    let words = key.strip_suffix("_ns").unwrap_or(key).replace('_', " ");
    let words = words.replace("p99 9", "p99.9").replace("cpu", "CPU");
    if words.ends_with("half width") {
        return "±".to_owned();
    }
    match words.strip_suffix(" pct") {
        Some(words) => format!("{words} %"),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let mut sheet = Sheet::new("thread", &["comm", "switches", "share_pct", "off_ns"]);
        sheet.rows = vec![
            vec![
                Cell::text("a\u{1b}[31m,\"b\""),
                Cell::Count(1500),
                Cell::share(3, 4),
                Cell::Time(Nanos::from_ns(1_234_567)),
            ],
            vec![
                Cell::text("idle\n"),
                Cell::Count(500),
                Cell::share(1, 4),
                Cell::Missing,
            ],
        ];
        sheet
    }

    #[test]
    fn a_table_is_aligned_and_harmless() {
        let expected = "\
comm           switches  share %      off
─────────────────────────────────────────
a\\x1b[31m,\"b\"     1,500     75.0  1.23 ms
idle\\x0a            500     25.0        -
";
        assert_eq!(sheet().to_table(20), expected);
    }

    /// A path of 150 characters would leave no room for figures; JSON and CSV have it.
    #[test]
    fn tables_name_the_container_of_a_cgroup() {
        let path = format!("/system.slice/docker-{}.scope/\u{1b}b", "3f2a".repeat(16));
        let mut sheet = Sheet::new("cgroup", &["cgroup"]);
        sheet.rows = vec![vec![Cell::Cgroup(path.clone())]];
        let table = sheet.to_table(1);
        assert!(table.ends_with("\ndocker:3f2a3f2a3f2a/\\x1bb\n"), "{table}");
        assert!(sheet.to_csv().contains("/system.slice/docker-3f2a"));
        assert_eq!(sheet.to_json_rows()[0]["cgroup"], path);
    }

    #[test]
    fn a_cut_table_says_how_to_see_the_rest() {
        let table = sheet().to_table(1);
        assert!(
            table.ends_with("(1 more row: --top 2 shows all)\n"),
            "{table}"
        );
        assert!(!table.contains("idle"));
    }

    #[test]
    fn csv_holds_every_column_in_raw_units() {
        let expected = "comm,switches,share_pct,off_ns\r\n\
            \"a\\x1b[31m,\"\"b\"\"\",1500,75.0000,1234567\r\n\
            idle\\x0a,500,25.0000,\r\n";
        assert_eq!(sheet().to_csv(), expected);
        let rows = expected.split_once("\r\n").unwrap().1;
        assert_eq!(sheet().to_csv_rows(), rows);
    }

    #[test]
    fn json_rows_are_keyed_by_column_and_keep_the_name() {
        let rows = sheet().to_json_rows();
        assert_eq!(rows[0]["comm"], "a\u{1b}[31m,\"b\"");
        assert_eq!(rows[0]["off_ns"], 1_234_567);
        assert_eq!(rows[1]["off_ns"], Value::Null);
    }

    #[test]
    fn heads_drop_the_unit_that_cells_carry() {
        assert_eq!(head_of("run_p99_9_ns"), "run p99.9");
        assert_eq!(head_of("share_pct"), "share %");
        assert_eq!(head_of("net_half_width_ns"), "±");
    }
}

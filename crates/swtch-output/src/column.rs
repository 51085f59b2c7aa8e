//! A column of a table, said once: its key, what it holds and means, and its cell of a row. Tables, JSON, CSV
//! and their explanations are made of the same list, so no cell can stand below the wrong name.
//!
//! ```text
//! [Column<Row>] + rows ─▶ Sheet ─▶ table, JSON, CSV
//!        └ Word ─▶ help, `columns` of JSON
//! ```

use serde_json::{Value, json};

use crate::sheet::{Cell, Sheet, head_of};

/// The kind of a column's values. The end of a key says the unit (`_ns`, `_pct`, `_per_s`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Words, which may come from outside.
    Text,
    /// Several words.
    Texts,
    /// A number of things.
    Count,
    /// A number that is a name, such as a thread id.
    Id,
    /// An address or an inode number, as `0x…`.
    Address,
    /// A length of time, in ns.
    Time,
    /// A share of a whole, in percent.
    Percent,
    /// A number without a unit, or of events a second.
    Number,
}

impl Holds {
    /// The word for it in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Texts => "texts",
            Self::Count => "count",
            Self::Id => "id",
            Self::Address => "address",
            Self::Time => "time",
            Self::Percent => "percent",
            Self::Number => "number",
        }
    }
}

/// The name of a column, with its meaning: the same in every table that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Its key in JSON and CSV, which ends in the unit.
    pub key: &'static str,
    /// The kind of its values.
    pub holds: Holds,
    /// Its meaning, in one sentence without a stop.
    pub help: &'static str,
}

impl Word {
    /// A column's name, what it holds and means.
    pub const fn new(key: &'static str, holds: Holds, help: &'static str) -> Self {
        Self { key, holds, help }
    }

    /// The same column in a table where it means something narrower.
    #[must_use]
    pub const fn saying(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// Its head in a table.
    pub fn head(&self) -> String {
        head_of(self.key)
    }
}

/// A column of a table whose rows are made of an `R` each.
#[derive(Debug)]
pub struct Column<R> {
    /// Its name and meaning.
    pub word: Word,
    is_in_total: bool,
    cell: fn(&R) -> Cell,
}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Column<R> {}

impl<R> Column<R> {
    /// A column whose cell in the line of totals is empty.
    pub const fn new(word: Word, cell: fn(&R) -> Cell) -> Self {
        Self {
            word,
            is_in_total: false,
            cell,
        }
    }

    /// A column that has a cell in the line of totals, too: a sum, or what stands for all rows.
    pub const fn in_total(word: Word, cell: fn(&R) -> Cell) -> Self {
        Self {
            word,
            is_in_total: true,
            cell,
        }
    }

    /// Its cell of a row.
    pub fn cell(&self, row: &R) -> Cell {
        let cell = (self.cell)(row);
        debug_assert!(cell.fits(self.word.holds), "{}: {cell:?}", self.word.key);
        cell
    }
}

impl Sheet {
    /// A table of these columns, with a row for each of `rows`.
    pub fn of<R>(
        name: &'static str,
        columns: &[Column<R>],
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let keys: Vec<_> = columns.iter().map(|column| column.word.key).collect();
        let mut sheet = Self::new(name, &keys);
        sheet.words = columns.iter().map(|column| column.word).collect();
        let cells = |row: R| columns.iter().map(|column| column.cell(&row)).collect();
        sheet.rows = rows.into_iter().map(cells).collect();
        sheet
    }

    /// Describes the columns for answers in JSON: key, head, what they hold and mean, and the titles of the tables that
    /// show them, of which there may be none.
    pub fn to_json_columns(&self) -> Vec<Value> {
        let describe = |word: &Word| {
            json!({
                "key": word.key,
                "head": word.head(),
                "holds": word.holds.as_str(),
                "help": word.help,
                "tables": self.tables_with(word.key),
            })
        };
        self.words.iter().map(describe).collect()
    }

    fn tables_with(&self, key: &str) -> Vec<&'static str> {
        if self.not_in_tables.contains(&key) {
            return Vec::new();
        }
        if self.views.is_empty() {
            return vec![""];
        }
        let shows = self.views.iter().filter(|view| view.columns.contains(&key));
        shows.map(|view| view.title).collect()
    }

    /// With a line of totals: the word `total`, and the cells of `all` in the columns that have one there.
    /// `columns` are those that the table was made of.
    #[must_use]
    pub fn with_total<R>(mut self, columns: &[Column<R>], all: &R) -> Self {
        let cells =
            columns
                .iter()
                .enumerate()
                .map(|(place, column)| match (place, column.is_in_total) {
                    (0, _) => Cell::text("total"),
                    (_, true) => column.cell(all),
                    (_, false) => Cell::Missing,
                });
        self.total = Some(cells.collect());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Word = Word::new("name", Holds::Text, "who");
    const RUNS: Word = Word::new("run_count", Holds::Count, "how often");
    const SHARE: Word = Word::new("share_pct", Holds::Percent, "of all");

    struct Walker {
        name: &'static str,
        runs: u64,
    }

    #[test]
    fn a_sum_stands_only_where_one_makes_sense() {
        let columns = [
            Column::new(NAME, |walker: &Walker| Cell::text(walker.name)),
            Column::in_total(RUNS, |walker: &Walker| Cell::Count(walker.runs)),
            Column::new(SHARE, |walker: &Walker| Cell::share(walker.runs, 4)),
        ];
        let row = |name, runs| Walker { name, runs };
        let sheet = Sheet::of("walker", &columns, [row("a", 3), row("b", 1)])
            .with_total(&columns, &row("", 4));
        assert_eq!(sheet.columns, ["name", "run_count", "share_pct"]);
        assert_eq!(
            sheet.to_csv(),
            "name,run_count,share_pct\r\na,3,75.0000\r\nb,1,25.0000\r\n"
        );
        let total = [Cell::text("total"), Cell::Count(4), Cell::Missing];
        assert_eq!(sheet.total, Some(total.to_vec()));
        let said = &sheet.to_json_columns()[2];
        assert_eq!(
            (&said["head"], &said["holds"]),
            (&json!("share %"), &json!("percent"))
        );
        assert_eq!(said["tables"], json!([""]));
    }
}

//! Answers: what a verb has to say, and the one way in which it leaves the program.
//!
//! ```text
//!                ┌─ to_table ─▶ text for people ──┐
//! VerbAnswer ────┼─ to_json ──▶ one object ───────┼─▶ written ─▶ stdout, or a file
//!                └─ to_csv ───▶ records ──────────┘
//! ```
//!
//! Only the form that was asked for is made: a trace may have a hundred thousand threads. Most
//! answers are one table below a few lines, a [`SheetAnswer`]; those that are pages of text
//! implement [`VerbAnswer`] themselves.

use std::io::Write;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::format::{Format, write_answer};
use crate::sheet::Sheet;
use crate::text::json_text;

/// The answer of a verb, in each format.
pub trait VerbAnswer {
    /// The text for people, escaped.
    fn to_table(&self) -> String;

    /// The JSON object, in raw units.
    fn to_json(&self) -> Value;

    /// The table that CSV holds.
    ///
    /// # Errors
    /// When the answer has no CSV form.
    fn to_csv(&self) -> Result<String>;
}

/// The answer in a format, as it is written.
///
/// # Errors
/// When the answer has no such form.
pub fn written(answer: &dyn VerbAnswer, format: Format) -> Result<String> {
    match format {
        Format::Table => Ok(answer.to_table()),
        Format::Json => Ok(json_text(&answer.to_json())),
        Format::Csv => answer.to_csv(),
    }
}

/// Writes the answer in a format.
///
/// # Errors
/// When the answer has no such form, or `out` cannot be written. It is no error if the reader of
/// `out` has gone away.
pub fn write(answer: &dyn VerbAnswer, format: Format, out: &mut dyn Write) -> Result<()> {
    let text = written(answer, format)?;
    write_answer(out, text.as_bytes()).context("writing the answer")
}

/// An answer that is one table below some lines.
#[derive(Clone, Debug)]
pub struct SheetAnswer<'a> {
    /// The lines above the table, escaped, each with its line break.
    pub head: String,
    /// The members of the JSON object before its rows: an object.
    pub members: Value,
    /// The table.
    pub sheet: &'a Sheet,
}

impl VerbAnswer for SheetAnswer<'_> {
    fn to_table(&self) -> String {
        self.head.clone() + &self.sheet.to_table(usize::MAX)
    }

    fn to_json(&self) -> Value {
        let mut object = self.members.clone();
        object["rows"] = self.sheet.to_json_rows().into();
        object["notes"] = self.sheet.notes.clone().into();
        object
    }

    fn to_csv(&self) -> Result<String> {
        Ok(self.sheet.to_csv())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::Cell;
    use serde_json::json;

    #[test]
    fn a_sheet_is_an_answer_in_every_format() {
        let mut sheet = Sheet::new("thread", &["comm", "switches"]);
        sheet.rows = vec![vec![Cell::text("a\u{1b}"), Cell::Count(1500)]];
        sheet.notes = vec!["sampled".to_owned()];
        let answer = SheetAnswer {
            head: "host   db1\n\n".to_owned(),
            members: json!({ "schema": "x/1" }),
            sheet: &sheet,
        };
        let written = |format| written(&answer, format).unwrap();
        let table =
            "host   db1\n\ncomm   switches\n───────────────\na\\x1b     1,500\nnote: sampled\n";
        assert_eq!(written(Format::Table), table);
        assert_eq!(written(Format::Csv), "comm,switches\r\na\\x1b,1500\r\n");
        let json = written(Format::Json);
        assert!(!json.contains('\u{1b}'), "{json}");
        let rows = json!([{ "comm": "a\u{1b}", "switches": 1500 }]);
        let object = json!({ "schema": "x/1", "rows": rows, "notes": ["sampled"] });
        let back: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(back, object);
    }
}

//! CSV by RFC 4180: the one writer of answers, exports and saved tables.
//!
//! ```text
//! empty │ plain │ words │ text   one field after the other ─▶ end_record ─▶ a,b,"c, d"\r\n
//! ```

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use crate::text::escaped;

/// Writes records, field by field.
pub struct CsvWriter<'w> {
    out: &'w mut dyn Write,
    /// True if the record has a field already, so that a comma comes before the next.
    has_field: bool,
}

impl std::fmt::Debug for CsvWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CsvWriter").finish_non_exhaustive()
    }
}

impl<'w> CsvWriter<'w> {
    /// A writer whose first record begins where `out` is.
    pub fn new(out: &'w mut dyn Write) -> Self {
        Self {
            out,
            has_field: false,
        }
    }

    /// A value that is not known, or does not apply: nothing between two commas.
    ///
    /// # Errors
    /// When it cannot be written; so with all methods.
    pub fn empty(&mut self) -> io::Result<()> {
        self.plain("")
    }

    /// A number, or a word of ours that needs no quotes.
    ///
    /// # Errors
    /// As [`Self::empty`].
    pub fn plain(&mut self, value: impl Display) -> io::Result<()> {
        if std::mem::replace(&mut self.has_field, true) {
            self.out.write_all(b",")?;
        }
        write!(self.out, "{value}")
    }

    /// A text of ours, quoted if necessary.
    ///
    /// # Errors
    /// As [`Self::empty`].
    pub fn words(&mut self, words: &str) -> io::Result<()> {
        self.plain(quoted(&escaped(words)))
    }

    /// A text from outside, escaped as in tables. Spreadsheet programs take a cell that begins with
    /// `=`, `+`, `-` or `@` for a formula and compute it (OWASP, "CSV Injection"; a tab and a
    /// carriage return, which it names too, are escaped), and any process can choose such a name.
    /// Such a text gets an apostrophe before it, and so does one that begins with an apostrophe:
    /// removing one leading apostrophe always gives the text again.
    ///
    /// # Errors
    /// As [`Self::empty`].
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        let text = escaped(text);
        if text.starts_with(['=', '+', '-', '@', '\'']) {
            self.plain(quoted(&format!("'{text}")))
        } else {
            self.plain(quoted(&text))
        }
    }

    /// Ends the record.
    ///
    /// # Errors
    /// As [`Self::empty`].
    pub fn end_record(&mut self) -> io::Result<()> {
        self.has_field = false;
        self.out.write_all(b"\r\n")
    }

    /// A whole record of names, such as those of the columns.
    ///
    /// # Errors
    /// As [`Self::empty`].
    pub fn record(&mut self, names: &[&str]) -> io::Result<()> {
        names.iter().try_for_each(|name| self.plain(name))?;
        self.end_record()
    }
}

/// The records that `write` writes, as one text.
pub fn text_of(write: impl FnOnce(&mut CsvWriter<'_>) -> io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut CsvWriter::new(&mut bytes)).expect("writing to memory cannot fail");
    String::from_utf8(bytes).expect("only text was written")
}

fn quoted(text: &str) -> Cow<'_, str> {
    if text.contains(['"', ',', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_rfc_4180_asks_for_it() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,b"), "\"a,b\"");
        assert_eq!(quoted("say \"no\""), "\"say \"\"no\"\"\"");
        assert_eq!(quoted("two\nlines"), "\"two\nlines\"");
    }

    /// A spreadsheet must not compute the name of a process.
    #[test]
    fn texts_are_no_formulas() {
        let text = |text: &str| text_of(|csv| csv.text(text));
        for formula in ["=1+1", "+1", "-1", "@a", "'a"] {
            assert_eq!(text(formula), format!("'{formula}"));
        }
        assert_eq!(text("=a,\"b\""), "\"'=a,\"\"b\"\"\"");
        assert_eq!(text("a=b"), "a=b");
        assert_eq!(text(""), "");
    }

    #[test]
    fn a_record_ends_in_a_line_break_and_the_next_begins_without_a_comma() {
        let csv = text_of(|csv| {
            csv.record(&["a", "b"])?;
            csv.empty()?;
            csv.plain(-1)?;
            csv.end_record()
        });
        assert_eq!(csv, "a,b\r\n,-1\r\n");
    }
}

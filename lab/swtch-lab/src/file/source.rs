//! The text of a file, and errors that point into it.

use std::error::Error;
use std::fmt;
use std::ops::Range;

/// The text of a file, and its name.
#[derive(Clone, Debug)]
pub struct SourceText {
    /// Name of the file, as it was typed.
    pub name: String,
    pub text: String,
}

/// Characters of a line that are shown with a mistake in it.
const MAX_SHOWN: usize = 160;

/// What serde says in words of Rust, and what is said instead.
const PLAIN_WORDS: [(&str, &str); 5] = [
    ("expected u32", "expected a number from 0 to 4294967295"),
    ("expected u64", "expected a number from 0 on"),
    ("expected i32", "expected a whole number"),
    (
        "expected a sequence",
        "expected a list: […], or tables with [[…]]",
    ),
    ("invalid type: map", "invalid type: table"),
];

/// The most characters of such a message that are shown; the longest list of words has 250.
const MAX_CHARACTERS: usize = 400;

/// A range of bytes of the text.
pub type Span = Range<usize>;

/// What is wrong with a file, and where:
///
/// ```text
/// hogs.toml:12:9: count must be at least 1
///    12 | count = 0
///       |         ^
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadFileError {
    file: String,
    /// Both from 1 on; columns are characters.
    line: usize,
    column: usize,
    /// Characters of `text` before the mark, and under it.
    indent: usize,
    width: usize,
    /// The line, or the part of a long one that holds the mistake.
    text: String,
    why: String,
}

impl SourceText {
    /// A mistake at `span`, for this reason.
    pub fn mistake(&self, span: &Span, why: impl Into<String>) -> LoadFileError {
        let start = self.boundary(span.start);
        let end = self.boundary(span.end).max(start);
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default();
        let marked = self.text[start..end].lines().next().unwrap_or_default();
        let column = self.text[line_start..start].chars().count();
        let part = LinePart::around(line, column);
        let width = marked.trim_end().chars().count().max(1);
        LoadFileError {
            file: self.name.clone(),
            line: before.matches('\n').count() + 1,
            column: column + 1,
            indent: part.column,
            width: width.min(MAX_SHOWN),
            text: part.text,
            why: why.into(),
        }
    }

    /// A mistake that TOML or serde found.
    pub fn mistake_of_toml(&self, error: &toml::de::Error) -> LoadFileError {
        let span = error.span().unwrap_or_default();
        let mut why = error.message().trim_end().replace('\n', ", ");
        for (rust, plain) in PLAIN_WORDS {
            why = why.replace(rust, plain);
        }
        // It may repeat a word of the file that is a megabyte long.
        if let Some((end, _)) = why.char_indices().nth(MAX_CHARACTERS) {
            why.truncate(end);
            why.push('…');
        }
        self.mistake(&span, why)
    }

    /// The last place at or before `byte` where a character begins.
    fn boundary(&self, byte: usize) -> usize {
        let at_most = byte.min(self.text.len());
        let found = (0..=at_most)
            .rev()
            .find(|at| self.text.is_char_boundary(*at));
        found.unwrap_or_default()
    }
}

/// A part of a line.
struct LinePart {
    text: String,
    /// Where the mistake begins in it.
    column: usize,
}

impl LinePart {
    /// The whole line if it is short; else the part around the mistake, with dots where text is
    /// left out.
    fn around(line: &str, column: usize) -> Self {
        let characters = line.chars().count();
        if characters <= MAX_SHOWN {
            let text = line.to_owned();
            return Self { text, column };
        }
        let first = column.saturating_sub(MAX_SHOWN / 4);
        let part: String = line.chars().skip(first).take(MAX_SHOWN).collect();
        let dots = |is_cut: bool| if is_cut { "…" } else { "" };
        let (before, after) = (dots(first > 0), dots(first + MAX_SHOWN < characters));
        Self {
            text: format!("{before}{part}{after}"),
            column: column - first + before.chars().count(),
        }
    }
}

impl Error for LoadFileError {}

impl fmt::Display for LoadFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            indent,
            width,
            text,
            why,
        } = self;
        // A tab would put the mark elsewhere.
        let text = text.replace('\t', " ");
        let (indent, marks) = (" ".repeat(*indent), "^".repeat(*width));
        writeln!(f, "{file}:{line}:{column}: {why}")?;
        writeln!(f, "{line:>5} | {text}")?;
        write!(f, "      | {indent}{marks}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_shows_its_line_and_points_into_it() {
        let source = SourceText {
            name: "a.toml".to_owned(),
            text: "one = 1\nµ = [\"two\", 3]\n".to_owned(),
        };
        let at = source.text.find("\"two\"").unwrap();
        let mistake = source.mistake(&(at..at + 5), "no");
        assert_eq!(
            mistake.to_string(),
            "a.toml:2:6: no\n    2 | µ = [\"two\", 3]\n      |      ^^^^^"
        );
    }

    /// A file may be one line of a megabyte.
    #[test]
    fn of_a_long_line_only_the_part_around_the_mistake_is_shown() {
        let long = "x".repeat(5_000);
        let source = SourceText {
            name: "a".to_owned(),
            text: format!("name = \"{long}!{long}\""),
        };
        let at = source.text.find('!').unwrap();
        let shown = source.mistake(&(at..at + 5_000), "no").to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "a:1:5009: no");
        let mark = lines[2].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[1].chars().nth(mark), Some('!'), "{shown}");
        assert!(shown.chars().count() < 500, "{shown}");
    }

    #[test]
    fn the_end_of_a_text_can_be_pointed_at() {
        let source = SourceText {
            name: "a".to_owned(),
            text: "x =".to_owned(),
        };
        assert_eq!(
            source.mistake(&(3..3), "no").to_string(),
            "a:1:4: no\n    1 | x =\n      |    ^"
        );
    }
}

//! Text for output: escapes hostile names, aligns columns, wraps lines.
//!
//! A process may choose any name, and its name ends up in somebody's terminal. Characters that move
//! the cursor, turn the direction of reading or cannot be seen are shown by their number: `\x1b`,
//! `\u{202e}`, and a byte that is not UTF-8 as `\xff`. All else stays as it is, the backslash too,
//! so that names such as `dev-disk\x2dby.swap` can be read.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// True if a character must not be shown as it is.
pub fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Direction of reading.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
            // Characters without width, or blank without being a space.
            | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
            // Line and paragraph ends.
            | '\u{2028}' | '\u{2029}')
}

/// As [`escaped`], but keeps line breaks: for texts of ours with several lines.
pub fn escaped_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(escaped).collect();
    lines.join("\n")
}

/// The text with every hostile character shown by its number.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if !is_hostile(c) {
            shown.push(c);
        } else if u32::from(c) < 0x100 {
            push(&mut shown, format_args!("\\x{:02x}", u32::from(c)));
        } else {
            push(&mut shown, format_args!("\\u{{{:x}}}", u32::from(c)));
        }
    }
    Cow::Owned(shown)
}

/// Bytes as text; those that are not UTF-8 are shown by their number.
pub fn from_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            push(&mut text, format_args!("\\x{byte:02x}"));
        }
    }
    text
}

/// A JSON value, indented over several lines, with no hostile character in it. Only strings can
/// hold one, so each becomes its JSON escape and the value stays the same.
pub fn json_text(value: &serde_json::Value) -> String {
    let json = format!("{value:#}\n");
    let mut shown = String::with_capacity(json.len());
    push_json(&mut shown, &json);
    shown
}

fn push_json(shown: &mut String, json: &str) {
    for c in json.chars() {
        if c == '\n' || !is_hostile(c) {
            shown.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            push(shown, format_args!("\\u{unit:04x}"));
        }
    }
}

/// As [`json_text`], in one line: for streams of values, of which each line is one.
pub fn json_line(value: &serde_json::Value) -> String {
    let line = value.to_string();
    let mut shown = String::with_capacity(line.len() + 1);
    push_json(&mut shown, &line);
    shown.push('\n');
    shown
}

/// A count with thousands separators: `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A number of events per second: whole ones with thousands separators, few with a decimal.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is rounded, and a cast that does not fit gives the nearest that does"
)]
pub fn rate(per_second: f64) -> String {
    if per_second < 9.95 && per_second != 0.0 {
        return format!("{per_second:.1}");
    }
    grouped(per_second.round() as u64)
}

/// A count and the noun for it: `1 wait`, `2 waits`, `2 processes`.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = match count {
        1 => "",
        _ if noun.ends_with('s') || noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {noun}{plural}", grouped(count))
}

/// A length of time with three digits and its unit; in `ns` below 10 µs, so that numbers in a
/// column can be compared.
pub fn nanos(ns: f64) -> String {
    let size = ns.abs();
    if size < 9.995 {
        format!("{ns:.2} ns")
    } else if size < 99.95 {
        format!("{ns:.1} ns")
    } else if size < 9_999.5 {
        format!("{ns:.0} ns")
    } else if size < 999_950.0 {
        format!("{:.1} µs", ns / 1e3)
    } else {
        format!("{:.2} ms", ns / 1e6)
    }
}

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellAlignment {
    /// Left-aligned, for columns of words.
    Left,
    /// Right-aligned, for columns of numbers.
    Right,
}

/// The widest that a column is made for its cells. Names come from outside: one of a million
/// characters must not make every other line a million characters long.
const WIDEST_COLUMN: usize = 400;

/// Aligns columns: the head, a rule, the rows, and the total after another rule. Two spaces between
/// columns, none at the end of a line. A cell that is wider than `WIDEST_COLUMN` is shown whole
/// and moves the rest of its own line only.
pub fn columns(
    head: &[(String, CellAlignment)],
    rows: &[Vec<String>],
    total: Option<&[String]>,
) -> Vec<String> {
    let width_of = |column: usize| {
        let cells = rows.iter().map(Vec::as_slice).chain(total);
        let widest = cells.map(|row| width(&row[column])).max();
        let widest = widest.unwrap_or(0).max(width(&head[column].0));
        widest.min(WIDEST_COLUMN)
    };
    let widths: Vec<usize> = (0..head.len()).map(width_of).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for ((cell, wide), (_, side)) in cells.zip(&widths).zip(head) {
            let blanks = " ".repeat(wide.saturating_sub(width(cell)));
            match side {
                CellAlignment::Left => push(&mut line, format_args!("{cell}{blanks}  ")),
                CellAlignment::Right => push(&mut line, format_args!("{blanks}{cell}  ")),
            }
        }
        line.trim_end().to_owned()
    };
    let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    let rule = rule.join("──");
    let mut lines = vec![
        line(&mut head.iter().map(|name| name.0.as_str())),
        rule.clone(),
    ];
    for row in rows {
        lines.push(line(&mut row.iter().map(String::as_str)));
    }
    if let Some(total) = total {
        lines.push(rule);
        lines.push(line(&mut total.iter().map(String::as_str)));
    }
    lines
}

/// The widest that running text is set: longer lines are hard to read.
const WIDEST: usize = 100;

/// Narrower terminals are treated as if they had this width.
const NARROWEST: usize = 40;

/// The width for running text: that of the terminal, but at most `WIDEST`.
pub fn page_width() -> usize {
    told_width().map_or(WIDEST, |width| width.clamp(NARROWEST, WIDEST))
}

/// The width for tables: that of the terminal, without a limit for a file or a pipe.
pub fn table_width() -> usize {
    told_width().map_or(usize::MAX, |width| width.max(NARROWEST))
}

/// The width in `COLUMNS`, otherwise that of the terminal; `None` if stdout is not a terminal.
fn told_width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok();
    let said = said.and_then(|words| words.parse().ok());
    said.filter(|width| *width > 0).or_else(|| {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|width| *width > 0)
    })
}

/// Columns that a text takes on a terminal: characters of Chinese, Japanese or Korean, and most
/// emoji, take two.
pub fn width(text: &str) -> usize {
    text.width()
}

/// A text that takes at most `most` columns; if it is cut, it ends in `…`.
pub fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= most
    };
    let kept: String = text.chars().take_while(fits).collect();
    format!("{}…", kept.trim_end())
}

/// Breaks a text between words into lines of at most `most` columns. A longer word gets a line of
/// its own. Hostile characters are shown by their number.
pub fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut used = 0;
    // Line breaks in the source, such as in the lab's files, are not those of the answer.
    let mut words = text
        .split([' ', '\n'])
        .filter(|word| !word.is_empty())
        .peekable();
    while let Some(word) = words.next() {
        let mut word = escaped(word);
        // A number and its unit stay in one line.
        if let Some(unit) =
            words.next_if(|next| word.ends_with(|c: char| c.is_ascii_digit()) && is_unit(next))
        {
            word = format!("{word} {unit}").into();
        }
        let length = width(&word);
        match lines.last_mut() {
            Some(line) if used + 1 + length <= most => {
                line.push(' ');
                line.push_str(&word);
                used += 1 + length;
            }
            _ => {
                lines.push(word.into_owned());
                used = length;
            }
        }
    }
    lines
}

fn is_unit(word: &str) -> bool {
    let word = word.trim_end_matches(|c: char| c.is_ascii_punctuation() && c != '%');
    matches!(word, "%" | "ns" | "µs" | "ms" | "s")
}

/// A text after a label, in lines of at most `width` columns; further lines are indented by the
/// width of the label.
pub fn hung(label: &str, text: &str, width: usize) -> Vec<String> {
    let indent = self::width(label);
    let lines = wrapped(text, width.saturating_sub(indent).max(1));
    let line = |(number, line): (usize, String)| match number {
        0 => format!("{label}{line}"),
        _ => format!("{:indent$}{line}", ""),
    };
    lines.into_iter().enumerate().map(line).collect()
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing to a string cannot fail");
}

/// A path quoted as one word for a shell.
pub fn shell_word(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    if path.chars().all(is_plain) {
        path.into_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimated_lengths_have_three_digits() {
        let shown = [1.234, 12.34, 123.4, 1_234.0, 12_345.0, 1_234_567.0].map(nanos);
        assert_eq!(
            shown,
            [
                "1.23 ns", "12.3 ns", "123 ns", "1234 ns", "12.3 µs", "1.23 ms"
            ]
        );
        assert_eq!(nanos(-15.04), "-15.0 ns");
    }

    #[test]
    fn a_name_cannot_reach_the_terminal() {
        assert_eq!(escaped("\u{1b}[2J\n\t\u{7f}"), "\\x1b[2J\\x0a\\x09\\x7f");
        assert_eq!(escaped("C1 \u{9b}31m"), "C1 \\x9b31m");
        assert_eq!(escaped("plain"), "plain");
    }

    #[test]
    fn a_name_cannot_turn_or_hide_text() {
        assert_eq!(escaped("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(escaped("a\u{200b}b\u{feff}"), "a\\u{200b}b\\u{feff}");
        assert_eq!(escaped("x\u{2028}y\u{e0041}"), "x\\u{2028}y\\u{e0041}");
    }

    #[test]
    fn letters_of_any_language_stay() {
        assert_eq!(escaped("größe 日本 عربى"), "größe 日本 عربى");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_by_number() {
        assert_eq!(from_bytes(b"a\xff\xfeb"), "a\\xff\\xfeb");
        assert_eq!(from_bytes("ü".as_bytes()), "ü");
    }

    /// The value a JSON reader gets is the one that went in.
    #[test]
    fn json_shows_nothing_hostile_and_keeps_the_value() {
        let name = "a\u{1b}\u{7f}\u{9b}\u{202e}\u{e0041}\"\\z";
        let shown = json_text(&serde_json::Value::from(vec![name]));
        assert!(
            !shown.chars().any(|c| c != '\n' && is_hostile(c)),
            "{shown}"
        );
        let back: Vec<String> = serde_json::from_str(&shown).unwrap();
        assert_eq!(back, [name]);
        let line = json_line(&serde_json::Value::from(vec![name]));
        assert_eq!(line.lines().count(), 1);
        assert!(!line.trim_end().chars().any(is_hostile), "{line}");
    }

    #[test]
    fn counts_are_set_in_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
        assert_eq!(counted(1, "wait"), "1 wait");
        assert_eq!(counted(2000, "wait"), "2,000 waits");
        assert_eq!(counted(2, "process"), "2 processes");
    }

    #[test]
    fn few_a_second_have_a_decimal() {
        let shown = [0.0, 0.04, 0.5, 9.94, 9.96, 1234.5].map(rate);
        assert_eq!(shown, ["0", "0.0", "0.5", "9.9", "10", "1,235"]);
    }

    #[test]
    fn running_text_is_broken_between_words() {
        let lines = wrapped("each takes  the\nreference time", 14);
        assert_eq!(lines, ["each takes the", "reference time"]);
        assert_eq!(
            wrapped("a incomprehensible b", 5),
            ["a", "incomprehensible", "b"]
        );
        assert_eq!(wrapped("a\u{1b}[2J", 40), ["a\\x1b[2J"]);
        assert_eq!(wrapped("", 40), [""; 0]);
    }

    #[test]
    fn lines_after_the_first_hang_below_the_text() {
        let lines = hung("A1  ", "every thread takes it", 16);
        assert_eq!(lines, ["A1  every thread", "    takes it"]);
    }

    #[test]
    fn columns_are_in_line() {
        let head = [
            ("name".to_owned(), CellAlignment::Left),
            ("n".to_owned(), CellAlignment::Right),
        ];
        let rows = [
            vec!["a".to_owned(), "1".to_owned()],
            vec!["größer".to_owned(), "100".to_owned()],
        ];
        let total = ["all".to_owned(), "101".to_owned()];
        let lines = columns(&head, &rows, Some(&total));
        let expected = "\
name      n
───────────
a         1
größer  100
───────────
all     101";
        assert_eq!(lines.join("\n"), expected);
    }

    /// `format!` takes widths of at most 65,535, and panics at more.
    #[test]
    fn one_very_wide_cell_widens_no_other_line() {
        let head = [
            ("name".to_owned(), CellAlignment::Left),
            ("n".to_owned(), CellAlignment::Right),
        ];
        let long = "x".repeat(70_000);
        let rows = [
            vec![long.clone(), "1".to_owned()],
            vec!["a".to_owned(), "2".to_owned()],
        ];
        let lines = columns(&head, &rows, None);
        assert_eq!(lines[2], format!("{long}  1"));
        let blanks = " ".repeat(WIDEST_COLUMN - 1);
        assert_eq!(lines[3], format!("a{blanks}  2"));
    }

    #[test]
    fn a_path_with_blanks_is_one_word_of_the_shell() {
        assert_eq!(shell_word(Path::new("/usr/bin/swtch")), "/usr/bin/swtch");
        assert_eq!(shell_word(Path::new("/my dir/it's")), r"'/my dir/it'\''s'");
    }
}

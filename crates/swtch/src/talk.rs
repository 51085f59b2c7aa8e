//! What the program says on stderr: progress, warnings, errors.
//!
//! `eprintln!` panics when stderr cannot be written: a pipe whose reader has gone, a full disk. A
//! recorder would lose the exit code of its command by that, and a server would end. Nobody listens
//! then, so what cannot be said is left out. Clippy refuses `eprintln!` in this crate (`print_stderr`).

use std::fmt;
use std::io::{Write as _, stderr};

/// Says a line on stderr, if anybody listens. Arguments are those of `format!`.
macro_rules! talk {
    ($($words:tt)*) => {
        $crate::talk::say(format_args!($($words)*), "\n")
    };
}

/// As `talk!`, without the end of the line.
macro_rules! talk_part {
    ($($words:tt)*) => {
        $crate::talk::say(format_args!($($words)*), "")
    };
}

/// Says words and their end in one write, so that two processes do not mix their lines.
pub fn say(words: fmt::Arguments<'_>, end: &str) {
    let line = format!("{words}{end}");
    // There is nowhere else to say that it could not be said.
    let _ = stderr().write_all(line.as_bytes());
}

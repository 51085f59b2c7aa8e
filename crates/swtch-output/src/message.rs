//! Messages on stderr: warnings, errors.
//!
//! `eprintln!` panics when stderr cannot be written, because the reader of a pipe has gone or a
//! disk is full. A recorder would lose the exit code of its command by that, and a server would
//! end. So a message that cannot be written is dropped. Clippy refuses `eprintln!` in the program
//! and in the crates that it consists of (`print_stderr`).

use std::fmt;
use std::io::{Write as _, stderr};

/// Prints a line on stderr. Arguments are those of `format!`.
#[macro_export]
macro_rules! message {
    ($($words:tt)*) => {
        $crate::message::write(format_args!($($words)*), "\n")
    };
}

/// Writes text and its end in one call, so that two processes do not mix their lines.
pub fn write(words: fmt::Arguments<'_>, end: &str) {
    let line = format!("{words}{end}");
    // An error cannot be reported: stderr is the place for that.
    let _ = stderr().write_all(line.as_bytes());
}

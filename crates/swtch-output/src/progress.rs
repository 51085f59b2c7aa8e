//! The progress line: what goes on now, in one line of the terminal that is written over.

use std::io::{IsTerminal as _, stderr};

use crate::{message, text};

/// A line on stderr that the next one overwrites; nothing where stderr is not a terminal.
#[derive(Clone, Copy, Debug)]
pub struct ProgressLine {
    is_shown: bool,
}

impl ProgressLine {
    /// A line that shows nothing yet.
    pub fn on_stderr() -> Self {
        Self {
            is_shown: stderr().is_terminal(),
        }
    }

    /// Shows the words in place of those before, escaped. They are made only where they are seen.
    pub fn show(self, words: impl FnOnce() -> String) {
        if self.is_shown {
            let words = words();
            // Without line breaks (DECAWM): what a narrow terminal cannot show is cut off.
            let line = format_args!("\r\x1b[K\x1b[?7l{}\x1b[?7h", text::escaped(&words));
            message::write(line, "");
        }
    }

    /// Clears the line.
    pub fn clear(self) {
        if self.is_shown {
            message::write(format_args!("\r\x1b[K"), "");
        }
    }
}

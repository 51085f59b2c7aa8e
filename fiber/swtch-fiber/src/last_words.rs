//! The message that is written right before `abort`, without memory allocation, locks or buffers.
//!
//! This is the one place of this crate that writes to standard error because no caller is left to
//! return an error to. All of it may run in a signal handler, and in a child of `fork` whose other
//! threads are gone while the locks they held stay locked.

use std::fmt::{self, Write};

/// A text of bounded length; what does not fit is cut.
#[derive(Debug)]
pub(crate) struct LastWords {
    bytes: [u8; 1024],
    length: usize,
}

impl LastWords {
    fn new() -> Self {
        Self {
            bytes: [0; 1024],
            length: 0,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for LastWords {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.length;
        let taken = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.length..self.length + taken.len()].copy_from_slice(taken);
        self.length += taken.len();
        Ok(())
    }
}

/// Writes the reason and aborts: for errors that no caller could handle.
pub(crate) fn abort(why: &str) -> ! {
    abort_with(|words| words.write_str(why))
}

/// Writes what `speak` formats to standard error, and ends the process with `SIGABRT`, so that a
/// core dump and the exit status show the failure as well.
pub(crate) fn abort_with(speak: impl FnOnce(&mut LastWords) -> fmt::Result) -> ! {
    let mut words = LastWords::new();
    // If the formatting fails half way, what it wrote so far is still printed.
    let _ = speak(&mut words);
    let _ = words.write_str("\n");
    let mut rest = words.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the pointer and the length are those of a slice.
        let written = unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(count) if count > 0 => rest = &rest[count..],
            _ => break,
        }
    }
    // SAFETY: abort(3) may be called at any time, also in a signal handler.
    unsafe { libc::abort() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of tasks come from the program and can have any length.
    #[test]
    fn text_that_does_not_fit_is_cut() {
        let mut words = LastWords::new();
        for _ in 0..100 {
            write!(words, "{:>20}", "x").unwrap();
        }
        assert_eq!(words.as_bytes().len(), 1024);
    }
}

//! Names in the page: bytes in words of eight, padded with zeros.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::NAME_BYTES;

/// Writes `name`, cut at a character border if it is too long.
pub fn store(words: &[AtomicU64], name: &str) {
    let mut end = name.len().min(words.len() * 8);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let bytes = &name.as_bytes()[..end];
    for (place, word) in words.iter().enumerate() {
        let mut eight = [0; 8];
        let rest = bytes.get(place * 8..).unwrap_or_default();
        let count = rest.len().min(8);
        eight[..count].copy_from_slice(&rest[..count]);
        word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
    }
}

/// Reads a name; bytes that are not UTF-8 are replaced.
pub fn load(words: &[AtomicU64]) -> String {
    let mut bytes = Vec::with_capacity(words.len() * 8);
    for word in words {
        bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Writes a name in quotes and a space after it; nothing if the name is empty. Neither allocates
/// nor locks.
pub fn write(words: &[AtomicU64; NAME_BYTES / 8], out: &mut dyn fmt::Write) -> fmt::Result {
    let mut bytes = [0; NAME_BYTES];
    for (eight, word) in bytes.chunks_exact_mut(8).zip(words) {
        eight.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    match std::str::from_utf8(&bytes[..end]) {
        Ok("") => Ok(()),
        Ok(name) => write!(out, "\"{}\" ", name.escape_debug()),
        Err(_) => out.write_str("(its name is being changed) "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of tasks are shown in other processes.
    #[test]
    fn a_name_comes_back_and_a_long_one_is_cut_between_characters() {
        let words = [const { AtomicU64::new(u64::MAX) }; 2];
        store(&words, "scan");
        assert_eq!(load(&words), "scan");
        store(&words, "fünfzehn Zeichenää");
        assert_eq!(load(&words), "fünfzehn Zeiche");
    }

    /// Names come from the program: in a message they must not start a new line.
    #[test]
    fn a_name_in_last_words_is_quoted_and_escaped() {
        let words = [const { AtomicU64::new(0) }; NAME_BYTES / 8];
        let written = || {
            let mut out = String::new();
            write(&words, &mut out).unwrap();
            out
        };
        assert_eq!(written(), "");
        store(&words, "a\nb");
        assert_eq!(written(), "\"a\\nb\" ");
    }
}

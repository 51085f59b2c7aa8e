//! Functions that a process has compiled while it ran, by the file in which its runtime lists them: `/tmp/perf-PID.map`, a
//! line `START SIZE NAME` each (`tools/perf/Documentation/jit-interface.txt`, v6.18).
//!
//! Anyone may write such a file, so what is no line is passed over, and there is a most of all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};

/// The most bytes of a file that are read, and of a line.
const MOST_BYTES: u64 = 64 << 20;
const LONGEST_LINE: usize = 4096;

/// The functions of a process, by the addresses where they begin.
#[derive(Debug, Default)]
pub struct CompiledFunctions(BTreeMap<u64, (u64, String)>);

/// A function, and where it is in the source if its name says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledFunction {
    pub name: String,
    pub file: Option<String>,
    pub line: Option<u32>,
}

impl CompiledFunctions {
    /// Those that a file lists, of which so many bytes are read at most, and how many were. Where one has taken the place of
    /// others, the last line holds.
    pub fn of(mut file: &File, most: u64) -> (Self, u64) {
        let mut functions = Self::default();
        let mut read = 0;
        if file.rewind().is_err() {
            return (functions, read);
        }
        for line in BufReader::new(file.take(most.min(MOST_BYTES))).split(b'\n') {
            // What cannot be read has no names.
            let Ok(line) = line else { break };
            read += line.len() as u64 + 1;
            let function = std::str::from_utf8(&line).ok().and_then(parsed);
            if let Some((start, function)) = function.filter(|_| line.len() <= LONGEST_LINE) {
                functions.put(start, function);
            }
        }
        (functions, read)
    }

    fn put(&mut self, start: u64, function: (u64, String)) {
        let end = start.saturating_add(function.0);
        if let Some((before, (bytes, _))) = self.0.range_mut(..start).next_back() {
            *bytes = (*bytes).min(start - before);
        }
        let gone: Vec<u64> = self.0.range(start..end).map(|(start, _)| *start).collect();
        for start in gone {
            self.0.remove(&start);
        }
        self.0.insert(start, function);
    }

    /// The function that has this address.
    pub fn at(&self, address: u64) -> Option<CompiledFunction> {
        let (start, (bytes, name)) = self.0.range(..=address).next_back()?;
        (address - start < *bytes).then(|| CompiledFunction::named(name))
    }
}

fn parsed(line: &str) -> Option<(u64, (u64, String))> {
    let mut words = line.splitn(3, ' ');
    let mut number = || {
        let word = words.next()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, bytes) = (number()?, number()?);
    Some((start, (bytes, words.next()?.trim_end().to_owned())))
}

/// What V8 puts before the name of a function of a program, and a sign of how it was compiled behind that
/// (`src/logging/log.cc`, V8 11).
const OF_V8: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Eval:", "Script:"];
const SIGNS_OF_V8: [char; 4] = ['*', '~', '^', '+'];

impl CompiledFunction {
    fn named(words: &str) -> Self {
        let of_v8 = OF_V8.iter().find_map(|kind| words.strip_prefix(kind));
        match of_v8 {
            Some(words) => Self::of_v8(words.trim_start_matches(SIGNS_OF_V8)),
            None => Self {
                name: without_result(words).to_owned(),
                ..Self::default()
            },
        }
    }

    /// `take /app/server.js:12:7`; a function without a name has none before its place.
    fn of_v8(words: &str) -> Self {
        let (name, place) = words.rsplit_once(' ').unwrap_or((words, ""));
        let mut parts = place.rsplitn(3, ':');
        let (_, line, file) = (parts.next(), parts.next(), parts.next());
        let name = if name.is_empty() { "(anonymous)" } else { name };
        Self {
            name: name.to_owned(),
            file: file.map(str::to_owned),
            line: line.and_then(|line| line.parse().ok()),
        }
    }
}

/// Java's names begin with what a method returns: `java.lang.Object shop.Orders.take(int)`.
fn without_result(words: &str) -> &str {
    let end = words.find('(').unwrap_or(words.len());
    let start = words[..end].rfind(' ').map_or(0, |space| space + 1);
    if end < words.len() {
        &words[start..]
    } else {
        words
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn function(name: &str, place: Option<(&str, u32)>) -> CompiledFunction {
        CompiledFunction {
            name: name.to_owned(),
            file: place.map(|(file, _)| file.to_owned()),
            line: place.map(|(_, line)| line),
        }
    }

    #[test]
    fn a_function_is_found_by_an_address_in_it() {
        let mut file = tempfile::tempfile().unwrap();
        let lines = "1000 20 JS:*take /app/server.js:12:7\n\
                     no line\n\
                     1020 10 JS:~ node:internal/timers:5:1\n\
                     0x1030 0x10 java.lang.Object shop.Orders.take(int)\n\
                     1040 10 Builtin:ArrayPush\n\
                     1000 8 JS:^get other file:///app/a.js:3:1\n\
                     1038 10 later\n";
        file.write_all(lines.as_bytes()).unwrap();
        let (functions, read) = CompiledFunctions::of(&file, u64::MAX);
        assert_eq!(read, lines.len() as u64);
        let other = function("get other", Some(("file:///app/a.js", 3)));
        assert_eq!(functions.at(0x1007), Some(other));
        assert_eq!(functions.at(0x1008), None, "the one that was there before");
        let anonymous = function("(anonymous)", Some(("node:internal/timers", 5)));
        assert_eq!(functions.at(0x1020), Some(anonymous));
        let take = function("shop.Orders.take(int)", None);
        assert_eq!(functions.at(0x1037), Some(take));
        let later = Some(function("later", None));
        assert_eq!(
            [0x1038, 0x1047].map(|at| functions.at(at)),
            [later.clone(), later]
        );
        assert_eq!(
            functions.at(0x1048),
            None,
            "Builtin:ArrayPush was there before"
        );
        assert_eq!(functions.at(0xfff), None);
    }
}

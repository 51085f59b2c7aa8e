//! Functions that a process has compiled while it ran, from the file in which its runtime lists them:
//! `/tmp/perf-PID.map`, a line `START SIZE NAME` each (`tools/perf/Documentation/jit-interface.txt`, v6.18).
//!
//! Any user can write a file of that name. So a line that has another form is passed over, and the length of a file
//! and that of a line have limits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};

/// The most bytes of a file that are read.
const MOST_BYTES: u64 = 64 << 20;

/// The most bytes of a line that is taken.
const LONGEST_LINE: usize = 4096;

/// The functions of a process, by the addresses where they begin.
#[derive(Debug, Default)]
pub struct CompiledFunctions(BTreeMap<u64, PerfMapFunction>);

/// A function as a line of the file names it.
#[derive(Debug)]
struct PerfMapFunction {
    /// Length of its code.
    bytes: u64,
    name: String,
}

/// A function, and where it is in the source if its name says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledFunction {
    pub name: String,
    pub file: Option<String>,
    pub line: Option<u32>,
}

impl CompiledFunctions {
    /// Reads the functions that a file lists, from its first `most` bytes. Returns them, and how many bytes were
    /// read. Where the code of a function lies over that of others, the later line holds: a runtime uses memory again,
    /// and lists what it puts there at the end of the file.
    pub fn of(mut file: &File, most: u64) -> (Self, u64) {
        let mut functions = Self::default();
        let mut read = 0;
        if file.rewind().is_err() {
            return (functions, read);
        }
        let mut lines = BufReader::new(file.take(most.min(MOST_BYTES)));
        let mut line = Vec::new();
        // A file that cannot be read further lists no more functions.
        while let Ok(length @ 1..) = lines.read_until(b'\n', &mut line) {
            read += length as u64;
            let text = std::str::from_utf8(&line).ok();
            let text = text.map(|text| text.strip_suffix('\n').unwrap_or(text));
            let text = text.filter(|text| text.len() <= LONGEST_LINE);
            if let Some((start, function)) = text.and_then(parsed) {
                functions.put(start, function);
            }
            line.clear();
        }
        (functions, read)
    }

    /// Adds a function. One that reaches into it from before ends where it begins, and those that begin in it are
    /// removed.
    fn put(&mut self, start: u64, function: PerfMapFunction) {
        let end = start.saturating_add(function.bytes);
        if let Some((before, earlier)) = self.0.range_mut(..start).next_back() {
            earlier.bytes = earlier.bytes.min(start - before);
        }
        let gone: Vec<u64> = self.0.range(start..end).map(|(start, _)| *start).collect();
        for start in gone {
            self.0.remove(&start);
        }
        self.0.insert(start, function);
    }

    /// The function that has this address.
    pub fn at(&self, address: u64) -> Option<CompiledFunction> {
        let (start, function) = self.0.range(..=address).next_back()?;
        (address - start < function.bytes).then(|| CompiledFunction::named(&function.name))
    }
}

/// The start of a function and the function, as a line names them. `None` for a line of another form, and for a
/// function without code: that one has no address, and must not end the function in which it would begin.
fn parsed(line: &str) -> Option<(u64, PerfMapFunction)> {
    let mut words = line.splitn(3, ' ');
    let mut number = || {
        let word = words.next()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, bytes) = (number()?, number()?);
    let name = words.next()?.trim_end().to_owned();
    (bytes > 0).then_some((start, PerfMapFunction { bytes, name }))
}

/// What V8 puts before the name of a function of a program (`src/logging/log.cc`, V8 11).
const V8_PREFIXES: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Eval:", "Script:"];

/// What V8 puts between that prefix and the name. It says which of its tiers has compiled the function: `*` the
/// optimizing compiler (`TurboFan`), `+` the middle one (Maglev), `^` the baseline compiler (Sparkplug), `~` none, since
/// the interpreter runs it.
const V8_TIERS: [char; 4] = ['*', '+', '^', '~'];

/// What the place of a function of V8 begins with, after the blank that ends the name.
const V8_PLACES: [&str; 3] = [" /", " file://", " node:"];

impl CompiledFunction {
    fn named(words: &str) -> Self {
        let of_v8 = V8_PREFIXES
            .iter()
            .find_map(|prefix| words.strip_prefix(prefix));
        match of_v8 {
            Some(words) => Self::of_v8(words.trim_start_matches(V8_TIERS)),
            None => Self {
                name: without_result(words).to_owned(),
                ..Self::default()
            },
        }
    }

    /// The function of `take /app/server.js:12:7`. One without a name has none before the blank. Both the name and the
    /// path may hold blanks, as in `get other /srv/my app/server.js:12:7`, so the place begins where a path does.
    fn of_v8(words: &str) -> Self {
        let places = V8_PLACES.iter();
        let blank = places.filter_map(|place| words.find(place)).min();
        let blank = blank.or_else(|| words.rfind(' '));
        let (name, place) = blank.map_or((words, ""), |at| (&words[..at], &words[at + 1..]));
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

/// Cuts off the type of what a method of Java returns, with which its name begins:
/// `java.lang.Object shop.Orders.take(int)`. Names of other languages stay whole, also those with blanks and brackets.
fn without_result(words: &str) -> &str {
    let signature = words
        .split_once('(')
        .filter(|(_, parameters)| parameters.ends_with(')') && !parameters.contains('('));
    match signature.and_then(|(head, _)| head.rsplit_once(' ')) {
        Some((result, method)) if is_java_type(result) && !method.is_empty() => {
            &words[result.len() + 1..]
        }
        _ => words,
    }
}

/// Whether it is a type of Java, such as `int`, `java.util.Map$Entry` or `byte[][]`.
fn is_java_type(word: &str) -> bool {
    let is_letter = |c: char| c.is_alphabetic() || c == '_' || c == '$';
    let mut identifiers = word.trim_end_matches("[]").split('.');
    identifiers.all(|identifier| {
        identifier.starts_with(is_letter)
            && identifier.chars().all(|c| is_letter(c) || c.is_numeric())
    })
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

    /// The callers take what was read from what they may still read.
    #[test]
    fn a_last_line_without_an_end_is_counted_as_long_as_it_is() {
        let mut file = tempfile::tempfile().unwrap();
        let lines = b"1000 20 first\n1020 10 last";
        file.write_all(lines).unwrap();
        let (functions, read) = CompiledFunctions::of(&file, u64::MAX);
        assert_eq!(read, lines.len() as u64);
        assert_eq!(functions.at(0x1020), Some(function("last", None)));
        let (_, read) = CompiledFunctions::of(&file, 16);
        assert_eq!(read, 16);
    }

    #[test]
    fn a_function_without_code_changes_no_other() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"1000 20 first\n1010 0 empty\n1000 0 empty\n")
            .unwrap();
        let (functions, _) = CompiledFunctions::of(&file, u64::MAX);
        let first = Some(function("first", None));
        assert_eq!(
            [0x1000, 0x1010, 0x101f].map(|at| functions.at(at)),
            [first.clone(), first.clone(), first]
        );
    }

    #[test]
    fn the_place_of_a_function_of_v8_may_hold_blanks() {
        let named = CompiledFunction::named;
        assert_eq!(
            named("JS:*take /srv/my app/server.js:12:7"),
            function("take", Some(("/srv/my app/server.js", 12)))
        );
        assert_eq!(
            named("JS:^get other file:///srv/my app/a.js:3:1"),
            function("get other", Some(("file:///srv/my app/a.js", 3)))
        );
        assert_eq!(
            named("Script:~ node:internal/my timers:5:1"),
            function("(anonymous)", Some(("node:internal/my timers", 5)))
        );
        assert_eq!(
            named("Eval:+get other evalmachine.<anonymous>:2:1"),
            function("get other", Some(("evalmachine.<anonymous>", 2)))
        );
    }

    #[test]
    fn only_a_method_of_java_loses_what_it_returns() {
        for (words, method) in [
            ("void shop.Orders.<init>()", "shop.Orders.<init>()"),
            (
                "java.util.Map$Entry[] shop.Orders.all(int, byte[])",
                "shop.Orders.all(int, byte[])",
            ),
        ] {
            assert_eq!(without_result(words), method);
        }
        for whole in [
            "shop.Orders.take(int)",
            "RegExp:^GET (\\w+)",
            "py::main:/srv/My App (1)/x.py",
            "py::main:/srv/My App (1)",
            "std::function<void (int)>::operator()(int)",
            "GET (all)",
            "two words",
        ] {
            assert_eq!(without_result(whole), whole);
        }
    }
}

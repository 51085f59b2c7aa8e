//! A type name means one thing in the workspace, so that a reader who meets it knows which.
//!
//! Names are found where types are defined, at any depth of a file. The models of the scheduler
//! (`tests/models`) define stand-ins with the names of what they stand for, and are left out.

use std::collections::BTreeMap;

/// Names that several types may have, because the module says which is meant.
const SHARED: &[(&str, &str)] = &[
    ("Error", "each library has one"),
    ("Options", "each command of a benchmark has its own"),
    (
        "Event",
        "the core's, and the one to wait for of `swtch-fiber`, which is a library in its own right",
    ),
    ("Ucontext", "of the C library, one for each processor"),
];

/// Code that is not looked at.
const LEFT_OUT: &str = "tests/models/";

/// A line that defines a type begins with one of these words, after its visibility.
const KEYWORDS: &[&str] = &["struct", "enum", "trait", "union"];

/// A complaint for each name that several types have. `files` are paths and texts of source files.
pub fn complaints<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in files.filter(|(path, _)| !path.contains(LEFT_OUT)) {
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = defined(line) {
                let place = format!("{path}:{}", number + 1);
                places.entry(name).or_default().push(place);
            }
        }
    }
    let is_shared = |name: &str| SHARED.iter().any(|(shared, _)| *shared == name);
    places
        .into_iter()
        .filter(|(name, places)| places.len() > 1 && !is_shared(name))
        .map(|(name, places)| format!("several types are called {name}: {}", places.join(", ")))
        .collect()
}

/// The name of the type that a line begins to define.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    let mut words = line.split_whitespace().skip_while(|word| *word == "unsafe");
    KEYWORDS.contains(&words.next()?).then_some(())?;
    let end = |c: char| !c.is_alphanumeric() && c != '_';
    let name = words.next()?.split(end).next()?;
    name.starts_with(char::is_uppercase).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_found_in_any_form() {
        for (line, name) in [
            ("struct Wait;", Some("Wait")),
            ("    pub(crate) enum Wait<T> {", Some("Wait")),
            ("pub unsafe trait Wait: Sync {", Some("Wait")),
            ("pub(in crate::report) struct Wait(u32);", Some("Wait")),
            ("// struct of waits", None),
            ("let union = Wait;", None),
            ("struct wait {", None),
        ] {
            assert_eq!(defined(line), name, "{line}");
        }
    }

    #[test]
    fn a_name_of_two_types_is_a_complaint() {
        let files = [
            ("a.rs", "struct Wait;\nstruct Error;"),
            ("b.rs", "enum Error {}\nenum Wait {}"),
            ("tests/models/a.rs", "struct Wait;"),
        ];
        let complaints = complaints(files.into_iter());
        assert_eq!(
            complaints,
            ["several types are called Wait: a.rs:1, b.rs:2"]
        );
    }
}

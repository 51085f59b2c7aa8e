//! The docs name only what exists: source files, folders of the tree, targets of the Makefile.
//!
//! Checked are the words between backticks, and for `make TARGET` also the lines of code blocks. A
//! word is taken for a path of the tree if it ends in `.rs` or begins with one of its folders. It
//! exists if a path of the tree equals it or ends with it, so `rules.rs`, `swtch-core/src/rules.rs`
//! and the full path are all good names. `*` stands for any name, `{a,b}` for each of several, and
//! a name in capitals (`NAME.rs`) for one that the reader chooses: its folder must exist.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A word that begins with one of these folders is taken for a path of the tree.
const FOLDERS: &[&str] = &[
    "bench/",
    "crates/",
    "docs/",
    "fiber/",
    "fixtures/",
    "lab/",
    "prices/",
    "scripts/",
    "xtask/",
    ".ci/",
];

/// Directories that do not belong to the tree.
const SKIPPED: &[&str] = &["target", ".git", "node_modules"];

/// Every path of the tree, relative to its root.
#[derive(Debug)]
pub struct TreePaths(Vec<String>);

impl TreePaths {
    /// A tree of these paths.
    #[cfg(test)]
    pub fn of(paths: &[&str]) -> Self {
        Self(paths.iter().map(|path| (*path).to_owned()).collect())
    }

    /// Reads the names of all files and folders below `root`.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub fn read(root: &Path) -> Result<Self> {
        let mut paths = Vec::new();
        collect(root, "", &mut paths)?;
        Ok(Self(paths))
    }

    /// The pages to check, which are all Markdown files.
    pub fn pages(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .map(String::as_str)
            .filter(|path| path.ends_with(".md"))
    }

    /// The files with Rust code.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        let paths = self.0.iter().map(String::as_str);
        paths.filter(|path| path.ends_with(".rs"))
    }

    /// Whether this is the whole path of a file or folder.
    pub fn contains(&self, path: &str) -> bool {
        self.0.iter().any(|known| known == path)
    }

    /// Whether a path is this one or ends with it.
    fn has(&self, path: &str) -> bool {
        let wanted: Vec<&str> = path.trim_end_matches('/').split('/').collect();
        self.0.iter().any(|known| {
            let known: Vec<&str> = known.split('/').collect();
            known.len() >= wanted.len()
                && known[known.len() - wanted.len()..]
                    .iter()
                    .zip(&wanted)
                    .all(|(name, pattern)| matches_name(pattern, name))
        })
    }
}

fn collect(directory: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(directory)
        .with_context(|| format!("reading the folder {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), paths)?;
        }
        paths.push(path);
    }
    Ok(())
}

/// Compares one name with a pattern that has at most one `*`.
fn matches_name(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
        None => pattern == name,
    }
}

/// The names of the targets of a Makefile.
pub fn make_targets(makefile: &str) -> Vec<String> {
    let is_target = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    makefile
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, rest)| is_target(name) && !rest.starts_with('='))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Names on a page that the tree does not have, as complaints.
pub fn complaints(page: &str, text: &str, tree: &TreePaths, targets: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, code) in pieces_of_code(text) {
        if let Some(target) = make_target(code.text)
            && !targets.iter().any(|known| known == target)
        {
            complaints.push(format!("{page}:{number}: no target `make {target}`"));
        }
        if code.in_block {
            continue;
        }
        for path in code
            .text
            .split_whitespace()
            .filter(|word| is_path_of_ours(word))
        {
            let missing = alternatives(path)
                .into_iter()
                .filter(|one| !exists(tree, one));
            complaints.extend(missing.map(|one| format!("{page}:{number}: no file `{one}`")));
        }
    }
    complaints
}

/// A line of a code block, or the text between two backticks.
struct Code<'a> {
    text: &'a str,
    in_block: bool,
}

fn pieces_of_code(text: &str) -> Vec<(usize, Code<'_>)> {
    let mut pieces = Vec::new();
    let mut in_block = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            pieces.push((
                number,
                Code {
                    text: line,
                    in_block,
                },
            ));
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            pieces.extend(spans.map(|text| (number, Code { text, in_block })));
        }
    }
    pieces
}

/// The target of a command `make TARGET`, which may follow a prompt or sudo.
fn make_target(code: &str) -> Option<&str> {
    let mut words = code
        .split_whitespace()
        .skip_while(|word| matches!(*word, "$" | "#" | "sudo"));
    (words.next()? == "make")
        .then(|| words.next())?
        .filter(|word| *word != "TARGET")
}

fn is_path_of_ours(word: &str) -> bool {
    // `core::fmt` and `--file=x.rs` are not paths; `.rs` alone is a file name extension.
    let looks_like_a_path =
        !word.contains("::") && !word.starts_with(['-', '.', '/']) || word.starts_with(".ci/");
    looks_like_a_path
        && (word.ends_with(".rs") || FOLDERS.iter().any(|folder| word.starts_with(folder)))
}

/// Expands braces: `a/{b,c}.rs` becomes `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let parts = path
        .split_once('{')
        .and_then(|(start, rest)| Some((start, rest.split_once('}')?)));
    match parts {
        Some((start, (choices, end))) => choices
            .split(',')
            .map(|choice| format!("{start}{choice}{end}"))
            .collect(),
        None => vec![path.to_owned()],
    }
}

fn exists(tree: &TreePaths, path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.split('.').next().unwrap_or(name);
    let is_chosen_by_reader =
        !folder.is_empty() && !stem.is_empty() && stem.chars().all(|c| c.is_ascii_uppercase());
    tree.has(path) || is_chosen_by_reader && name.contains(".rs") && tree.has(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> TreePaths {
        TreePaths::of(&[
            "crates",
            "crates/core",
            "crates/core/src",
            "crates/core/src/rules.rs",
            "crates/core/src/units.rs",
            "docs",
            "docs/METHODS.md",
        ])
    }

    fn complaints_of(text: &str) -> Vec<String> {
        complaints(
            "page.md",
            text,
            &tree(),
            &make_targets("help: ## x\n\techo a: b\nA := 1\n"),
        )
    }

    #[test]
    fn paths_that_exist_are_good() {
        let text = "`crates/core/src/rules.rs`, `core/src/rules.rs`, `rules.rs`, `docs/METHODS.md`,
            `crates/core/`, `crates/*/src`, `core/src/{rules,units}.rs`, `core/src/NAME.rs`";
        assert_eq!(complaints_of(text), Vec::<String>::new());
    }

    #[test]
    fn file_that_is_not_there_is_a_complaint() {
        assert_eq!(
            complaints_of("a\nsee `core/src/rule.rs`"),
            ["page.md:2: no file `core/src/rule.rs`"]
        );
        assert_eq!(
            complaints_of("`docs/SCHEMA.md`"),
            ["page.md:1: no file `docs/SCHEMA.md`"]
        );
        assert_eq!(
            complaints_of("`crates/x/`"),
            ["page.md:1: no file `crates/x/`"]
        );
    }

    #[test]
    fn end_of_a_name_is_not_the_name() {
        assert_eq!(complaints_of("`les.rs`").len(), 1);
    }

    #[test]
    fn each_alternative_must_exist() {
        assert_eq!(
            complaints_of("`core/src/{rules,merge}.rs`"),
            ["page.md:1: no file `core/src/merge.rs`"]
        );
    }

    #[test]
    fn chosen_name_needs_its_folder() {
        assert_eq!(complaints_of("`core/workload/NAME.rs`").len(), 1);
    }

    #[test]
    fn kernel_sources_and_paths_of_types_are_not_ours() {
        assert!(complaints_of("`kernel/sched/core.c`, `core::fmt`, `--list=x.rs`").is_empty());
    }

    #[test]
    fn target_that_is_not_there_is_a_complaint() {
        assert!(complaints_of("`make help`\n```\n$ sudo make help\n```").is_empty());
        assert_eq!(
            complaints_of("`make demo`"),
            ["page.md:1: no target `make demo`"]
        );
        assert_eq!(
            complaints_of("```\nmake tset\n```"),
            ["page.md:2: no target `make tset`"]
        );
    }
}

//! Files that describe loads: read and checked as before a run, but not run.

use std::fs;
use std::path::{Path, PathBuf};

use fastrand::Rng;

use super::{FuzzSubject, mutate};

/// Words that have a meaning in load files, for the mutator.
const WORDS: [&str; 36] = [
    "title",
    "about",
    "parameters",
    "group",
    "variant",
    "name",
    "members",
    "count",
    "cpus",
    "class",
    "nice",
    "priority",
    "slice",
    "body",
    "spin",
    "work",
    "repeat",
    "lock",
    "unlock",
    "wait",
    "signal",
    "take",
    "pass",
    "sleep",
    "watch",
    "read",
    "touch",
    "limit",
    "locks",
    "events",
    "rings",
    "tokens",
    "$count",
    "\"1s\"",
    "threads",
    "processes",
];

/// A load file that uses every step once.
const EVERY_STEP: &str = r#"
title = "every step"
limit = "10s"
locks = { a = "mutex" }
events = { go = "pipe" }
rings = { r = { tokens = 1, by = "futex" } }
[parameters.count]
about = "how many"
default = 2
[[group]]
name = "g"
count = "$count"
cpus = "round-robin"
body = [
  "yield",
  { work = "1ms" },
  { spin = 1000, kernel = "add" },
  { repeat = 3, body = [ { lock = "a" }, { unlock = "a" }, { repeat = 2, body = ["yield"] } ] },
  { sleep = "1ms" },
  { watch = "1ms" },
  { signal = "go" },
  { touch = "1MB", stride = 64 },
]
[[group]]
name = "h"
members = "processes"
count = 2
body = [ { wait = "go" }, { take = "r" }, { pass = "r" } ]
"#;

/// The load files of the lab's experiments, and one with every step.
#[derive(Debug)]
pub struct LoadFiles {
    corpus: Vec<Vec<u8>>,
    file: PathBuf,
}

impl LoadFiles {
    /// The file under test is written to this directory.
    pub fn new(directory: &Path) -> Self {
        let mut corpus: Vec<_> = swtch_lab::texts()
            .map(|text| text.as_bytes().to_vec())
            .collect();
        corpus.push(EVERY_STEP.as_bytes().to_vec());
        Self {
            corpus,
            file: directory.join("load.toml"),
        }
    }
}

impl FuzzSubject for LoadFiles {
    fn draw(&mut self, random: &mut Rng) -> Vec<u8> {
        // Half of the inputs come from the last file, the one with every step.
        let place = random.usize(..2 * self.corpus.len());
        let mut text = self.corpus[place.min(self.corpus.len() - 1)].clone();
        mutate::text(random, &mut text, &WORDS);
        text
    }

    fn run(&mut self, input: &[u8]) {
        fs::write(&self.file, input).expect("a scratch file");
        if let Err(error) = swtch_lab::read_every_variant(&self.file) {
            // The error as `main` prints it.
            drop(swtch_output::text::escaped_lines(&format!("{error:#}")));
        }
    }
}

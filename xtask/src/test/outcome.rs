//! The sum of all suites: what passed, failed, was passed over, and was disturbed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

use super::suite::{Suite, SuiteRun};

/// A test that is disturbed in as many runs in a row is a fault of the test.
const TOO_OFTEN: u32 = 3;

/// Characters of what is repeated at the end of a test that failed.
const LONGEST_REASON: usize = 800;

/// The sum so far.
#[derive(Debug, Default)]
pub struct TestOutcome {
    counts: TestCounts,
    /// `NAME: WHY` of tests that could not run here.
    not_run_here: Vec<String>,
    needing_root: Vec<String>,
    /// The failures, with why where no test says it.
    failures: Vec<String>,
    disturbed: Vec<Disturbed>,
    /// The outcome of each test that was disturbed.
    settled: Vec<String>,
    disturbed_names: Vec<String>,
    times: Vec<(String, Duration, Duration)>,
}

/// A test that failed while others took the CPUs.
#[derive(Debug)]
pub struct Disturbed {
    pub suite: Suite,
    pub name: String,
    figure: String,
}

/// Sums of `test result:` lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TestCounts {
    passed: u32,
    failed: u32,
    ignored: u32,
    /// Of harnesses that count tests which cannot run here; the standard one calls them passed.
    skipped: u32,
}

/// The output of a suite, read line by line.
#[derive(Debug, Default)]
struct Told {
    counts: TestCounts,
    /// Names, and what is said of each in its own line.
    failed: Vec<(String, String)>,
    disturbed: Vec<(String, String)>,
    skipped: Vec<String>,
    ignored: Vec<String>,
}

impl Told {
    fn by(lines: &[String]) -> Self {
        let mut told = Self::default();
        for line in lines {
            told.take(&without_colours(line));
        }
        told
    }

    fn take(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.counts.add(TestCounts::of_result(result));
        }
        let Some((name, what)) = line
            .strip_prefix("test ")
            .and_then(|line| line.split_once(" ... "))
        else {
            return;
        };
        if let Some(why) = what.strip_prefix("FAILED") {
            let why = why.trim_start_matches(':').trim();
            self.failed.push((name.to_owned(), why.to_owned()));
        } else if let Some(figure) = what.strip_prefix("disturbed: ") {
            self.disturbed.push((name.to_owned(), figure.to_owned()));
        } else if let Some(why) = what.strip_prefix("skipped") {
            self.skipped.push(format!("{name}{why}"));
        } else if what.starts_with("ignored") {
            self.ignored.push(name.to_owned());
        }
    }
}

impl TestCounts {
    /// Reads `ok. 5 passed; 0 failed; 2 ignored; …`.
    fn of_result(result: &str) -> Self {
        let words: Vec<&str> = result.split([' ', ';']).filter(|w| !w.is_empty()).collect();
        let of = |word: &str| {
            let at = words.iter().position(|other| *other == word)?;
            words.get(at.checked_sub(1)?)?.parse().ok()
        };
        Self {
            passed: of("passed").unwrap_or(0),
            failed: of("failed").unwrap_or(0),
            ignored: of("ignored").unwrap_or(0),
            skipped: of("skipped").unwrap_or(0),
        }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skipped += other.skipped;
    }
}

impl TestOutcome {
    /// Something failed that is no test.
    pub fn fail(&mut self, what: &str, why: &str) {
        self.counts.failed += 1;
        self.failures.push(format!("{what}: {why}"));
    }

    pub fn note_time(&mut self, what: &str, took: Duration, cpu: Duration) {
        self.times.push((what.to_owned(), took, cpu));
    }

    pub fn ran_any(&self) -> bool {
        self.counts.passed + self.counts.failed > 0 || !self.disturbed.is_empty()
    }

    pub fn add(&mut self, run: SuiteRun) {
        self.note_time(&run.suite.name, run.took, run.cpu);
        let mut told = Told::by(&run.lines);
        // A suite that ends with an error says by its tests why, unless none of them failed.
        let is_told = told.counts.failed > 0;
        let disturbed: Vec<(String, String)> = told
            .disturbed
            .drain(..)
            .filter(|(name, _)| told.failed.iter().any(|(failed, _)| failed == name))
            .collect();
        for (name, figure) in disturbed {
            told.failed.retain(|(failed, _)| *failed != name);
            told.counts.failed = told.counts.failed.saturating_sub(1);
            self.disturbed.push(Disturbed {
                suite: run.suite.clone(),
                name,
                figure,
            });
        }
        if let Some(why) = run.trouble.filter(|_| !is_told) {
            self.fail(&run.suite.name, &why);
        }
        let named = u32::try_from(told.failed.len()).unwrap_or(u32::MAX);
        for (name, why) in told.failed {
            let why = if why.is_empty() {
                panic_of(&run.lines, &name)
            } else {
                why
            };
            self.failures
                .push(cut(format!("{} {name}: {why}", run.suite.name)));
        }
        if told.counts.failed > named {
            let more = told.counts.failed - named;
            let what = format!(
                "{}: {more} failed without a name (see above)",
                run.suite.name
            );
            self.failures.push(what);
        }
        self.counts.add(told.counts);
        // The standard harness counts a test that returned early as passed, others as skipped.
        let skipped = u32::try_from(told.skipped.len()).unwrap_or(u32::MAX);
        let called_passed = skipped.saturating_sub(told.counts.skipped);
        self.counts.passed = self.counts.passed.saturating_sub(called_passed);
        self.not_run_here.append(&mut told.skipped);
        self.needing_root.append(&mut told.ignored);
    }

    /// Those that are to be run again, alone.
    pub fn take_disturbed(&mut self) -> Vec<Disturbed> {
        std::mem::take(&mut self.disturbed)
    }

    /// Adds what became of a disturbed test when it ran alone.
    pub fn settle(&mut self, test: &Disturbed, run: &SuiteRun) {
        let told = Told::by(&run.lines);
        let again = told.disturbed.iter().find(|(name, _)| *name == test.name);
        let Disturbed { name, figure, .. } = test;
        self.disturbed_names.push(name.clone());
        if run.trouble.is_none() && told.counts.passed == 1 {
            self.counts.passed += 1;
            self.settled
                .push(format!("{name}: passed alone (before: {figure})"));
        } else if let Some((_, now)) = again {
            self.not_run_here
                .push(format!("{name}: disturbed, twice: {figure}; alone: {now}"));
        } else {
            self.fail(name, &format!("failed alone, too (before: {figure})"));
        }
    }

    /// Keeps in `memory`, in the build folder, how often in a row tests were disturbed.
    pub fn remember_disturbed(&mut self, memory: &Path) -> Result<()> {
        let known = fs::read_to_string(memory).unwrap_or_default();
        let known = runs_in_a_row(&known);
        let mut text = String::new();
        for name in std::mem::take(&mut self.disturbed_names) {
            let runs = known.get(name.as_str()).unwrap_or(&0) + 1;
            text.push_str(&format!("{runs} {name}\n"));
            if runs >= TOO_OFTEN {
                self.fail(
                    &name,
                    &format!("disturbed in {runs} runs in a row: mend the test"),
                );
            }
        }
        fs::write(memory, text).with_context(|| format!("writing {}", memory.display()))
    }

    /// Prints what to know, and the sum as the last line. `no_root`: why tests were passed over.
    pub fn report(mut self, no_root: Option<&str>) -> ExitCode {
        self.print_times();
        print_list("disturbed, and run again", &mut self.settled);
        print_list("could not run here", &mut self.not_run_here);
        if let Some(why) = no_root {
            print_list(&format!("need root ({why})"), &mut self.needing_root);
        }
        print_list("FAILED", &mut self.failures);
        println!("\n{}", self.sum(no_root));
        ExitCode::from(u8::from(self.counts.failed > 0))
    }

    /// Returns what failed, each with its reason.
    #[cfg(test)]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// `N passed, N failed`, and `, N skipped` when there are any.
    pub fn sum(&self, no_root: Option<&str>) -> String {
        let TestCounts {
            passed,
            failed,
            ignored,
            ..
        } = self.counts;
        let needing_root = no_root.map_or(0, |_| ignored as usize);
        match self.not_run_here.len() + needing_root {
            0 => format!("{passed} passed, {failed} failed"),
            skipped => format!("{passed} passed, {failed} failed, {skipped} skipped"),
        }
    }

    /// The longest first.
    fn print_times(&mut self) {
        self.times
            .sort_by_key(|(_, took, _)| std::cmp::Reverse(*took));
        println!("\n   wall s   CPU s  suite");
        for (name, took, cpu) in &self.times {
            println!(
                "{:9.1}{:8.1}  {name}",
                took.as_secs_f64(),
                cpu.as_secs_f64()
            );
        }
    }
}

/// Returns what the standard harness repeats of a test that panicked: where, and the message.
fn panic_of(lines: &[String], name: &str) -> String {
    let begin = format!("thread '{name}' ");
    let lines = lines.iter().map(|line| without_colours(line));
    let mut lines = lines.skip_while(|line| !line.starts_with(&begin));
    let first = lines.next().unwrap_or_default();
    let Some((_, place)) = first.split_once(" panicked at ") else {
        return "it said nothing".to_owned();
    };
    let is_said =
        |line: &String| !line.starts_with("stack backtrace:") && !line.starts_with("note: ");
    let said: Vec<String> = lines.take_while(is_said).collect();
    format!("{place} {}", said.join(" "))
}

/// The beginning of a long text.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_REASON) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn print_list(head: &str, lines: &mut [String]) {
    if lines.is_empty() {
        return;
    }
    lines.sort();
    println!("\n{head}: {}", lines.len());
    for line in lines {
        println!("  {line}");
    }
}

fn runs_in_a_row(memory: &str) -> BTreeMap<&str, u32> {
    let lines = memory.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(runs, name)| Some((name, runs.parse().ok()?)))
        .collect()
}

/// Without the escapes that set colours (`ESC [ … m`).
pub fn without_colours(line: &str) -> String {
    let mut pieces = line.split("\x1b[");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |mut text, piece| {
        let rest = piece.split_once('m').map_or(piece, |(_, rest)| rest);
        text.push_str(rest);
        text
    })
}

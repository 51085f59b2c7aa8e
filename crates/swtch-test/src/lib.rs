//! Lets tests say of themselves that they cannot run here, that they need the machine, or that they were disturbed.
//!
//! A test that cannot run here is counted as skipped and not as passed.
//!
//! The standard harness knows tests that are ignored at compile time, but none that find out while
//! they run that the machine lacks what they need (perf, a cgroup controller, a hook of the
//! kernel). Such a test returns early, and the harness counts it as passed. [`skip!`] prints one
//! line before it returns:
//!
//! ```text
//! test it::counts::root_a_cgroup_is_recorded ... skipped: no cgroup hierarchy with cpu controller
//! ```
//!
//! The line is written to the real standard error, since the harness shows the output of failed
//! tests only. `scripts/test.sh` subtracts these lines from the passed tests and lists them. A test
//! program with a harness of its own uses [`Results`], which prints the same lines and a result as
//! the standard harness does.
//!
//! Tests that cannot run beside others take a turn on the machine ([`alone`]); those whose statement
//! holds only where others leave them the CPUs say so ([`depends_on_quiet`]).
#![forbid(unsafe_code)]

mod machine;
mod quiet;

pub use machine::{MachineTurn, alone, beside_others};
pub use quiet::{ProcessTime, QuietReading, depends_on_quiet};

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Once;

/// Ends the calling test, which cannot run here. The arguments are those of `format!`: what is
/// missing, and what to do to have the test run.
///
/// The macro returns from the function it is used in: the test itself, or one after which the test
/// returns at once.
///
/// ```
/// fn reads_what_perf_wrote() {
///     if std::env::var_os("PERF").is_none() {
///         swtch_test::skip!("PERF is not set");
///     }
///     // …
/// }
/// # reads_what_perf_wrote();
/// ```
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {
        return $crate::skipped(&format!($($why)*))
    };
}

/// Reports that the calling test cannot run here, for helpers that cannot end the test themselves:
/// the test must return right afterwards, without a check that could fail.
///
/// The harness names the thread of a test after it. With `--test-threads=1` all tests run in the
/// main thread, and the place of the call is printed instead.
#[track_caller]
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    match thread.name().filter(|name| *name != "main") {
        Some(name) => print_skipped(name, why),
        None => print_skipped(&std::panic::Location::caller().to_string(), why),
    }
}

/// Writes one line to standard error, past the harness, which captures what `eprint!` writes.
///
/// # Panics
/// When standard error cannot be written: a test that is not counted as skipped must not pass.
fn print_skipped(name: &str, why: &str) {
    let line = skipped_line(name, why);
    // A single write: other threads and programs write to the same pipe.
    let written = io::stderr().write_all(line.as_bytes());
    written.expect("a skipped test can say so on standard error");
}

/// Begins with a line break, since the harness may have written the beginning of a line of its own.
fn skipped_line(name: &str, why: &str) -> String {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("\ntest {name} ... skipped: {why}\n")
}

/// From now on, a test that panics prints its message at once, in one line; the harness repeats it
/// when all tests of the program are over. That later list is missing if the program is killed
/// before its end, and it stands far from the name of the test in a long log.
///
/// Tests call it before they start; calls after the first have no effect.
pub fn tell_failures_at_once() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let harness = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("of no name");
            // What cannot be written here is still in the list of the harness.
            let _ = io::stderr().write_all(failed_line(name, &panic.to_string()).as_bytes());
            harness(panic);
        }));
    });
}

/// One line, so that a log keeps it together. Begins with a line break, as [`skipped_line`] does.
fn failed_line(thread: &str, panic: &str) -> String {
    const LONGEST: usize = 2000;
    let panic = panic.split_whitespace().collect::<Vec<_>>().join(" ");
    let panic: String = panic.chars().take(LONGEST).collect();
    format!("\nthread {thread} {panic}\n")
}

/// Counts and prints the results of a test program with a harness of its own, in the wording of the
/// standard one. It understands those arguments of the standard harness that `scripts/test.sh`
/// uses.
#[derive(Debug, Default)]
pub struct Results {
    filters: Vec<String>,
    only_ignored: bool,
    passed: u32,
    failed: u32,
    ignored: u32,
    skipped: u32,
}

impl Results {
    /// A new count, with the filters and options of the command line.
    pub fn from_args() -> Self {
        Self::with_arguments(std::env::args().skip(1))
    }

    fn with_arguments(arguments: impl Iterator<Item = String>) -> Self {
        let (options, filters) = arguments.partition::<Vec<_>, _>(|word| word.starts_with('-'));
        Self {
            filters,
            only_ignored: options.iter().any(|option| option == "--ignored"),
            ..Self::default()
        }
    }

    /// True if the command line asks for this test, which runs without root.
    pub fn asks_for(&self, name: &str) -> bool {
        self.is_named(name) && !self.only_ignored
    }

    /// True if the command line asks for this test, which needs root. `scripts/test.sh` runs such
    /// tests separately, with `--ignored`, when it is not root itself.
    pub fn asks_for_privileged(&self, name: &str) -> bool {
        self.is_named(name)
    }

    fn is_named(&self, name: &str) -> bool {
        let mut filters = self.filters.iter();
        self.filters.is_empty() || filters.any(|filter| name.contains(filter))
    }

    /// Counts a test that ran. It failed if there are any `complaints`, which are printed in its line: the
    /// runner repeats them at the end.
    pub fn record<Complaint: Display>(&mut self, name: &str, complaints: &[Complaint]) {
        if complaints.is_empty() {
            println!("test {name} ... ok");
            self.passed += 1;
        } else {
            println!("{}", complaining_line(name, complaints));
            self.failed += 1;
        }
    }

    /// Counts a test that needs root and was started without it.
    pub fn ignore(&mut self, name: &str) {
        println!("test {name} ... ignored, needs root");
        self.ignored += 1;
    }

    /// Counts a test that cannot run here for another reason than missing rights.
    pub fn skip(&mut self, name: &str, why: &str) {
        print_skipped(name, why);
        self.skipped += 1;
    }

    /// Prints the result line, which `scripts/test.sh` adds up. The exit code is 1 if any test
    /// failed, otherwise 0.
    #[must_use]
    pub fn finish(self) -> ExitCode {
        let verdict = if self.failed == 0 { "ok" } else { "FAILED" };
        println!(
            "\ntest result: {verdict}. {} passed; {} failed; {} ignored; {} skipped; own harness",
            self.passed, self.failed, self.ignored, self.skipped
        );
        ExitCode::from(u8::from(self.failed != 0))
    }
}

fn complaining_line<Complaint: Display>(name: &str, complaints: &[Complaint]) -> String {
    let complaints: Vec<_> = complaints.iter().map(Complaint::to_string).collect();
    let said = complaints.join("; ");
    let said: Vec<_> = said.split_whitespace().collect();
    format!("test {name} ... FAILED: {}", said.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_complains_of_stands_in_its_line() {
        assert_eq!(
            complaining_line("a", &["no\n  rows", "2 lost"]),
            "test a ... FAILED: no rows; 2 lost"
        );
    }

    /// `scripts/test.sh` looks for this text at the beginning of a line.
    #[test]
    fn a_skipped_test_is_one_line_of_its_own() {
        assert_eq!(
            skipped_line("it::a", "no perf:\n  install it"),
            "\ntest it::a ... skipped: no perf: install it\n"
        );
    }

    #[test]
    fn a_failed_test_is_one_line_of_its_own() {
        assert_eq!(
            failed_line("it::a", "panicked at a.rs:1:\nleft: 1\nright: 2"),
            "\nthread it::a panicked at a.rs:1: left: 1 right: 2\n"
        );
    }

    /// `scripts/test.sh` runs all tests without root and then, with sudo, those that need root, so
    /// that none runs twice.
    #[test]
    fn tests_without_root_are_not_asked_for_again_with_it() {
        let arguments =
            |words: &[&str]| Results::with_arguments(words.iter().map(|&word| word.to_owned()));
        assert!(arguments(&[]).asks_for("pipe"));
        assert!(arguments(&["--include-ignored", "pip"]).asks_for("pipe"));
        assert!(!arguments(&["futex"]).asks_for("pipe"));
        assert!(!arguments(&["--ignored"]).asks_for("pipe"));
        assert!(arguments(&["--ignored"]).asks_for_privileged("class"));
        assert!(!arguments(&["--ignored", "pipe"]).asks_for_privileged("class"));
    }
}

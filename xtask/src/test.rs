//! Builds the tests and runs all of them: those of the crates, of the page, of the Python package,
//! and recordings on other kernels.
//!
//! ```text
//! cargo build ─▶ programs ─┬▶ side by side: quick suites, page, Python, other kernels
//!                          └▶ then one by one: those that need the machine (swtch, capture, bench)
//!                                └▶ again, alone: tests that failed and were disturbed
//! ```
//!
//! What a suite prints is read through a pipe and counted in memory, so no file can be lost between
//! a suite and the sum. A suite that ends without a result has failed.
//!
//! `cargo test` would run all programs one after the other, most of which wait most of the time.
//! nextest would run each test as a process of its own, so that recordings and price lists, which
//! tests of one program share, would be made again for each test.

mod build;
mod outcome;
mod suite;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::check::WORKSPACES;
use build::Built;
use outcome::TestOutcome;
use suite::{Suite, SuiteRun};

/// Suites side by side. One more than the two CPUs of our CI, because most of them wait most of
/// the time.
const SIDE_BY_SIDE: usize = 3;

/// The options of a run of the tests: how those that need root are run, and what else is asked for.
#[derive(Debug, Default)]
pub struct Options {
    /// Lints of the compiler are told as failures; rustdoc and the check of the half that reads run beside the
    /// tests.
    lints: bool,
    /// The names of what has failed before, and is to be counted.
    failed_before: Vec<String>,
    rights: Rights,
}

/// The rights, as the caller found them out (`scripts/test.sh`).
#[derive(Debug, Default, Clone)]
enum Rights {
    /// All tests run as they are.
    #[default]
    Root,
    /// Those that need root are run by `sudo -n -E`, after the others.
    Sudo,
    /// Those that need root are passed over, for this reason.
    None(String),
}

impl Options {
    /// Reads the words after `test`.
    pub fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "--lints" => options.lints = true,
                "--failed" => match words.next() {
                    Some(what) => options.failed_before.push(what.to_owned()),
                    None => bail!("--failed needs a name"),
                },
                "--sudo" => options.rights = Rights::Sudo,
                "--no-root" => match words.next() {
                    Some(why) => options.rights = Rights::None(why.to_owned()),
                    None => bail!("--no-root needs the reason"),
                },
                other => bail!("xtask test does not know {other:?}"),
            }
        }
        Ok(options)
    }
}

/// Runs everything; the last line is `N passed, N failed` or `N passed, N failed, N skipped`.
pub fn run(options: &Options) -> Result<ExitCode> {
    let root = crate::check::root();
    let start = Instant::now();
    let built = build::build(&root)?;
    let mut outcome = TestOutcome::default();
    outcome.note_time("compiling", start.elapsed(), cpu_of_children());
    if !built.complete {
        outcome.fail("the workspace", "some of it does not build (see above)");
    }
    if options.lints && built.warnings > 0 {
        let why = format!("{} warnings of the compiler (see above)", built.warnings);
        outcome.fail("lints", &why);
    }
    for what in &options.failed_before {
        outcome.fail(what, "failed before the tests (see above)");
    }
    let (needing, beside): (Vec<Suite>, Vec<Suite>) = suites(&root, &built, options)
        .into_iter()
        .partition(|suite| suite.needs_machine);
    for run in run_side_by_side(beside) {
        outcome.add(run);
    }
    for suite in needing {
        outcome.add(suite.run(true));
    }
    ensure!(outcome.ran_any(), "no test ran");
    run_disturbed_again(&mut outcome, &built.target_dir.join("disturbed-tests"))?;
    Ok(outcome.report(match &options.rights {
        Rights::None(why) => Some(why),
        Rights::Root | Rights::Sudo => None,
    }))
}

/// Longest first, so that nothing long is left when the others are through.
fn suites(root: &Path, built: &Built, options: &Options) -> Vec<Suite> {
    let script = |name: &str, words: &[&str]| Suite::script(root, name, words);
    let mut suites = vec![
        script("the Python package", &["scripts/python.sh", "test"]),
        script("the page", &["scripts/web.sh", "test"]),
    ];
    if std::env::var("SWTCH_VM").is_ok_and(|value| value == "1") {
        // The oldest that Debian still ships, the last that does not say who asked for a reschedule
        // (its verifier is another than that of 6.1), the first that does, and the newest.
        let words = ["scripts/vm-test", "--tests", "6.1", "6.16", "6.17", "7.3"];
        suites.push(script("other kernels", &words));
    }
    if options.lints {
        suites.extend(WORKSPACES.map(|folder| Suite::rustdoc(root, folder)));
        suites.push(Suite::reading_half(root));
    }
    suites.push(Suite::causes(root, &options.rights));
    let target = &built.target_dir;
    suites.extend(WORKSPACES.map(|folder| Suite::examples_in_docs(root, folder, target)));
    for program in &built.programs {
        suites.extend(Suite::of_program(program, &options.rights));
    }
    suites
}

/// Runs suites on as many threads as may run side by side; each is printed when it is over.
fn run_side_by_side(suites: Vec<Suite>) -> Vec<SuiteRun> {
    let waiting = Mutex::new(VecDeque::from(suites));
    let over = Mutex::new(Vec::new());
    let next = || waiting.lock().expect("no thread panics here").pop_front();
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(suite) = next() {
                    let run = suite.run(false);
                    over.lock().expect("no thread panics here").push(run);
                }
            });
        }
    });
    over.into_inner().expect("no thread panics here")
}

/// Tests that failed and were disturbed, once more, each alone. How often that happened in a row is
/// kept in the file `memory`.
fn run_disturbed_again(outcome: &mut TestOutcome, memory: &Path) -> Result<()> {
    for test in outcome.take_disturbed() {
        let run = test.suite.only(&test.name).run(true);
        outcome.settle(&test, &run);
    }
    outcome.remember_disturbed(memory)
}

/// CPU time of all children that were waited for.
fn cpu_of_children() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else {
        return Duration::ZERO;
    };
    let whole = |time: nix::sys::time::TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(micros.try_into().unwrap_or(0))
    };
    whole(usage.user_time()) + whole(usage.system_time())
}

/// The path of a program that cargo made, and where its tests expect to be started.
#[derive(Clone, Debug)]
pub struct TestProgram {
    package: String,
    target: String,
    path: PathBuf,
    folder: PathBuf,
}

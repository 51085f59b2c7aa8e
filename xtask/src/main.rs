//! Checks of the project itself, for which `cargo` has no command.
//!
//! - `check`: the crates depend on each other as `ARCHITECTURE.md` says, the docs name only what
//!   exists, every dependency has a licence that `deny.toml` allows.
//! - `test`: builds all tests and runs them, side by side where they do not need the machine.
//!
//! Nothing here is part of the program, and the program never calls it.
#![forbid(unsafe_code)]

mod check;
mod test;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
xtask VERB …

  check                       rooms, names in the docs, licences
  test [OPTIONS]              builds all tests and runs them; the last line is the sum
      --lints                 warnings of the compiler fail, and rustdoc is run (as .ci/run does)
      --failed WHAT           counts something that has failed before
      --sudo                  tests that need root are run by `sudo -n -E`, after the others
      --no-root WHY           tests that need root are passed over";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[String]) -> Result<ExitCode> {
    let (verb, rest) = match words.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("help", words),
    };
    match verb {
        "check" => check::run(),
        "test" => test::run(&test::Options::parse(rest)?),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("no verb {other:?}\n\n{HELP}"),
    }
}

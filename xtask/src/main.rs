//! Checks and measurements of the project itself, for which `cargo` has no command.
//!
//! - `check`: the crates depend on each other as `ARCHITECTURE.md` says, the docs name only what
//!   exists, every dependency has a licence that `deny.toml` allows.
//! - `test`: builds all tests and runs them, side by side where they do not need the machine.
//! - `bench-record`: what recording costs, compared with other recorders.
//! - `bench-cost`: whether the prices of switches are right, and how they compare with those of
//!   other programs.
//! - `bench-read`: how long the answers about a large trace take, and how much memory.
//! - `cputime`: runs a command and writes the CPU time that it used to a file; `bench-record` puts
//!   it between a tool and the benchmark, so that the two can be told apart.
//! - `hog`: uses a CPU; `bench-cost` starts one on each.
//!
//! Nothing here is part of the program, and the program never calls it.
#![forbid(unsafe_code)]

mod bench_cost;
mod bench_read;
mod bench_record;
mod check;
mod cputime;
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
      --no-root WHY           tests that need root are passed over
  bench-record [OPTIONS]      what recording costs, beside perf and libbpf-tools (needs root)
      --rounds N              interleaved rounds, at least 5 (default 5)
      --quick                 a tenth of the work, 2 rounds: does the harness run?
      --peers-only            leave swtch out
      --swtch PATH            the swtch to measure (default: beside this program)
      --json FILE             every run and the summary
      --markdown FILE         the table for docs/METHODS.md
  bench-cost [OPTIONS]        are the prices of switches right? Markdown on stdout
      --part PART             peers, alarms, resolution, injected or coverage; again for more
                              (default: all)
      --runs N                rounds of peers (default 7), runs of the self-check (default 20)
      --cpu N                 the CPU to measure on (default: the last that may be used)
      --swtch PATH            the swtch to measure with (default: beside this program)
      --json FILE             every run
  bench-read [OPTIONS]        how long the answers about a large trace take; Markdown on stdout
      --switches N            size of the made-up traces (default 10,000,000); again for more sizes
      --trace PATH            read this trace instead; again for more
      --rounds N              interleaved rounds (default 5)
      --swtch PATH            the swtch to measure; again to compare (default: beside this program)
      --json FILE             every run
  cputime FILE -- CMD…        run CMD, write its CPU time, switches and memory to FILE as JSON
  hog SECONDS                 use a CPU";

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
        "bench-record" => bench_record::run(&bench_record::Options::parse(rest)?),
        "bench-cost" => bench_cost::run(&bench_cost::Options::parse(rest)?),
        "bench-read" => bench_read::run(&bench_read::Options::parse(rest)?),
        "cputime" => cputime::run(rest),
        "hog" => bench_cost::run_hog(rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("no verb {other:?}\n\n{HELP}"),
    }
}

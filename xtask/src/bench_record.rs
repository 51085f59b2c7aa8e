//! `xtask bench-record`: what recording costs on this machine now, compared with other recorders.
//!
//! One benchmark is run bare and under each tool, in rounds. Every arm runs once a round, in an
//! order that is rotated from round to round, and is compared only with the bare run of its own
//! round. Machines change speed between minutes, so numbers from "before" and "after" that were
//! measured apart are not comparable (seen on the virtual machine this was written on: 1.7× with
//! nothing else running).
//!
//! ```text
//! round 1   bare  swtch  stacks  perf  …      ratio of swtch = swtch / bare, within the round
//! round 2   swtch  stacks  perf  …  bare      reported: median (min–max) over the rounds
//! ```
//!
//! The CPU time that counts is the benchmark's own (see `cputime.rs`): a tool slows the switching
//! tasks down from inside the kernel. What the tool itself uses, to drain and to write, is in a
//! column of its own. The numbers are printed beside their targets; they do *not* decide the exit
//! code.

mod benchmark;
pub(crate) mod host;
mod measure;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod tool;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::geteuid;
use serde_json::{Value, json};

use benchmark::Benchmark;
use host::HostFacts;
use measure::{Measurer, RunMeasurements};
use summary::{TargetNumber, ToolSummary};
use tool::{RecorderPaths, Tool};

/// Fewer rounds than this do not show the spread.
const LEAST_ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 2;

/// The options of `xtask bench-record`.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    rounds: usize,
    quick: bool,
    peers_only: bool,
    swtch: Option<PathBuf>,
    json: Option<PathBuf>,
    markdown: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments after `bench-record`.
    ///
    /// # Errors
    /// On an unknown argument, a missing value, or too few rounds.
    pub fn parse(words: &[String]) -> Result<Self> {
        let mut rounds = None;
        let mut options = Self {
            rounds: 0,
            quick: false,
            peers_only: false,
            swtch: None,
            json: None,
            markdown: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} needs a value"))
            };
            match word.as_str() {
                "--quick" => options.quick = true,
                "--peers-only" => options.peers_only = true,
                "--rounds" => rounds = Some(value()?.parse().context("--rounds takes a number")?),
                "--swtch" => options.swtch = Some(value()?.into()),
                "--json" => options.json = Some(value()?.into()),
                "--markdown" => options.markdown = Some(value()?.into()),
                other => bail!("bench-record knows no {other:?} (see xtask help)"),
            }
        }
        let least = if options.quick { 1 } else { LEAST_ROUNDS };
        options.rounds = rounds.unwrap_or(if options.quick {
            QUICK_ROUNDS
        } else {
            LEAST_ROUNDS
        });
        ensure!(
            options.rounds >= least,
            "at least {least} rounds (fewer only with --quick)"
        );
        Ok(options)
    }
}

/// One run with its place in the experiment.
#[derive(Debug)]
pub struct PlacedRun {
    round: usize,
    benchmark: Benchmark,
    tool: Tool,
    run: RunMeasurements,
}

/// Measures, prints the tables to stdout, and writes the files that were asked for.
///
/// # Errors
/// Without root or perf, when a tool fails, on Ctrl-C, or when a file cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    ensure!(
        geteuid().is_root(),
        "recording needs root: sudo, or `make bench-record`"
    );
    let programs = RecorderPaths::find(options.swtch.as_deref(), options.peers_only)?;
    let host = HostFacts::read(programs.with_versions())?;
    for missing in programs.missing() {
        eprintln!("not installed, left out: {missing}");
    }
    let trials = measure_all(options, &programs)?;
    let summaries = summary::of(&trials);
    let targets = summary::targets(&summaries);
    println!("{}", text_report(options, &host, &summaries, &targets));
    if let Some(path) = &options.json {
        let json = json_report(options, &host, &summaries, &targets, &trials);
        write(path, &serde_json::to_string_pretty(&json)?)?;
    }
    if let Some(path) = &options.markdown {
        write(path, &markdown_report(options, &host, &summaries, &targets))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure_all(options: &Options, programs: &RecorderPaths) -> Result<Vec<PlacedRun>> {
    let measurer = Measurer::new(programs, options.quick)?;
    let mut trials = Vec::new();
    for round in 0..options.rounds {
        for benchmark in Benchmark::ALL {
            for tool in rotated(programs.tools_for(benchmark), round) {
                eprint!(
                    "round {}/{}: {benchmark} under {tool} … ",
                    round + 1,
                    options.rounds
                );
                let run = measurer
                    .measure(benchmark, tool)
                    .inspect_err(|_| eprintln!("failed"))
                    .with_context(|| format!("{benchmark} under {tool}"))?;
                eprintln!("{:.0} ms of CPU", millis(run.benchmark.cpu_ns));
                trials.push(PlacedRun {
                    round,
                    benchmark,
                    tool,
                    run,
                });
            }
        }
    }
    Ok(trials)
}

/// Every arm has every position in the order once in as many rounds as there are arms.
fn rotated(mut tools: Vec<Tool>, round: usize) -> Vec<Tool> {
    if !tools.is_empty() {
        let places = round % tools.len();
        tools.rotate_left(places);
    }
    tools
}

fn heading(options: &Options) -> String {
    let quick = if options.quick {
        ", quick: not a measurement"
    } else {
        ""
    };
    format!(
        "{} interleaved rounds, median (min–max){quick}",
        options.rounds
    )
}

fn text_report(
    options: &Options,
    host: &HostFacts,
    summaries: &[ToolSummary],
    targets: &[TargetNumber],
) -> String {
    let costs = table::costs(summaries).to_text();
    let targets = table::targets(targets).to_text();
    format!("{host}\n{}\n\n{costs}\n{targets}", heading(options))
}

fn markdown_report(
    options: &Options,
    host: &HostFacts,
    summaries: &[ToolSummary],
    targets: &[TargetNumber],
) -> String {
    let costs = table::costs(summaries).to_markdown();
    let targets = table::targets(targets).to_markdown();
    format!("{host}. {}.\n\n{costs}\n{targets}", heading(options))
}

fn json_report(
    options: &Options,
    host: &HostFacts,
    summaries: &[ToolSummary],
    targets: &[TargetNumber],
    trials: &[PlacedRun],
) -> Value {
    let summaries: Vec<Value> = summaries.iter().map(ToolSummary::to_json).collect();
    let targets: Vec<Value> = targets.iter().map(TargetNumber::to_json).collect();
    let runs: Vec<Value> = trials
        .iter()
        .map(|trial| {
            let mut run = trial.run.to_json();
            run["round"] = json!(trial.round + 1);
            run["benchmark"] = json!(trial.benchmark.to_string());
            run["tool"] = json!(trial.tool.to_string());
            run
        })
        .collect();
    json!({
        "schema": "swtch.bench-record/1",
        "host": host.to_json(),
        "rounds": options.rounds,
        "quick": options.quick,
        "summary": summaries,
        "targets": targets,
        "runs": runs,
    })
}

fn write(path: &PathBuf, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Options::parse(&words)
    }

    #[test]
    fn five_rounds_are_the_least() {
        assert_eq!(parse(&[]).unwrap().rounds, 5);
        assert_eq!(parse(&["--rounds", "9"]).unwrap().rounds, 9);
        assert!(parse(&["--rounds", "4"]).is_err());
        assert_eq!(parse(&["--quick", "--rounds", "1"]).unwrap().rounds, 1);
    }

    #[test]
    fn unknown_and_unfinished_options_are_refused() {
        assert!(parse(&["--fast"]).is_err());
        assert!(parse(&["--json"]).is_err());
        assert!(parse(&["--rounds", "many"]).is_err());
    }

    #[test]
    fn each_arm_is_first_in_one_round() {
        let tools = vec![Tool::Bare, Tool::Swtch, Tool::PerfSched];
        let first: Vec<Tool> = (0..3)
            .map(|round| rotated(tools.clone(), round)[0])
            .collect();
        assert_eq!(first, tools);
        assert_eq!(rotated(tools.clone(), 3), tools);
    }
}

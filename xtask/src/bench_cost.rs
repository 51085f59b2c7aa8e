//! `xtask bench-cost`: checks whether `swtch cost` is right, and compares it with other programs.
//!
//! ```text
//! peers       rounds: swtch and each peer once, on one CPU   ratio within the round
//! alarms      runs of `swtch cost self-check`                equal arms must not differ
//! resolution    "                                            how narrow their interval is
//! injected      "                                            1 % more to do must be found
//! coverage      "                                            intervals hold the long-run median
//! ```
//!
//! The last four read the same runs, so all of them cost no more than one. Alarms and resolution
//! are measured a second time with a hog on each CPU. This program runs everything, one program
//! after the other, and prints a report in Markdown on stdout. It does *not* judge the numbers.

pub(crate) mod command;
mod hogs;
mod peers;
mod price;
mod self_check;
mod share;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::bench_record::host::HostFacts;
use crate::bench_record::tool::{find_swtch, installed};
use command::Runner;
pub use hogs::run as run_hog;
use self_check::{BackgroundLoad, SelfCheckRuns};

/// Time limit of each program: a check takes 2 s, and 4 s with a hog on its CPU.
const LIMIT: Duration = Duration::from_secs(180);

/// Rounds of peers by default; fewer say little about the spread of a ratio.
const LEAST_ROUNDS: usize = 7;

/// Number of runs of the self-check, unless another is given.
const RUNS: usize = 20;

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportPart {
    /// Our hand-off compared with that of other programs.
    Peers,
    /// How often two equal arms are reported to differ.
    Alarms,
    /// How narrow the interval of the difference between two equal arms is.
    Resolution,
    /// How often an injected delay of 1 % is found.
    Injected,
    /// How often an interval holds the median of many runs.
    Coverage,
}

impl ReportPart {
    const ALL: [Self; 5] = [
        Self::Peers,
        Self::Alarms,
        Self::Resolution,
        Self::Injected,
        Self::Coverage,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Peers => "peers",
            Self::Alarms => "alarms",
            Self::Resolution => "resolution",
            Self::Injected => "injected",
            Self::Coverage => "coverage",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Peers => "Beside other programs",
            Self::Alarms => "False alarms: arms that do the same are said to differ",
            Self::Resolution => "Resolution: half the interval between arms that do the same",
            Self::Injected => "An injected delay of 1 % is found",
            Self::Coverage => "Coverage: an interval holds what many runs come to",
        }
    }

    fn from_word(word: &str) -> Result<Self> {
        let part = Self::ALL.into_iter().find(|part| part.as_str() == word);
        part.with_context(|| {
            let all = Self::ALL.map(Self::as_str).join(", ");
            format!("there is no part {word:?}; parts are: {all}")
        })
    }
}

/// The options of `xtask bench-cost`.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    parts: Vec<ReportPart>,
    runs: Option<usize>,
    cpu: Option<u32>,
    swtch: Option<PathBuf>,
    json: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments after `bench-cost`.
    ///
    /// # Errors
    /// On an unknown argument, a missing value, or no runs.
    pub fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self {
            parts: Vec::new(),
            runs: None,
            cpu: None,
            swtch: None,
            json: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next();
            let value = value.with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--part" => options.parts.push(ReportPart::from_word(value?)?),
                "--runs" => options.runs = Some(value?.parse().context("--runs takes a number")?),
                "--cpu" => options.cpu = Some(value?.parse().context("--cpu takes a number")?),
                "--swtch" => options.swtch = Some(value?.into()),
                "--json" => options.json = Some(value?.into()),
                other => bail!("bench-cost knows no {other:?} (see xtask help)"),
            }
        }
        ensure!(options.runs != Some(0), "--runs takes a number above 0");
        if options.parts.is_empty() {
            options.parts = ReportPart::ALL.to_vec();
        }
        Ok(options)
    }

    fn wants(&self, part: ReportPart) -> bool {
        self.parts.contains(&part)
    }

    /// The number of interleaved rounds of peers.
    fn rounds(&self) -> usize {
        self.runs.unwrap_or(LEAST_ROUNDS)
    }

    /// The loads under which the self-check runs: idle for every part that needs it, and hogs for
    /// alarms and resolution.
    fn loads(&self) -> &'static [BackgroundLoad] {
        let has_hogs = self.wants(ReportPart::Alarms) || self.wants(ReportPart::Resolution);
        let has_any = self.wants(ReportPart::Injected) || self.wants(ReportPart::Coverage);
        match (has_hogs, has_any) {
            (true, _) => &[BackgroundLoad::Idle, BackgroundLoad::Hogs],
            (false, true) => &[BackgroundLoad::Idle],
            (false, false) => &[],
        }
    }
}

/// All measurements that the report and the JSON file are made from.
#[derive(Debug)]
struct CostMeasurements {
    rounds: Vec<peers::Round>,
    runs: Vec<SelfCheckRuns>,
}

/// Measures, prints the report to stdout, and writes the JSON file if one was asked for.
///
/// # Errors
/// When a program is missing or fails, on Ctrl-C, or when the file cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    installed("taskset").context("no taskset: install util-linux")?;
    let swtch = find_swtch(options.swtch.as_deref())?;
    let versions = [installed("perf"), Some(swtch.clone())];
    let host = HostFacts::read(versions.iter().flatten().map(PathBuf::as_path))?;
    let cpus = hogs::allowed_cpus()?;
    let cpu = options.cpu.or_else(|| cpus.last().copied());
    let cpu = cpu.context("this process may use no CPU")?;
    let runner = Runner::new(&interrupted, LIMIT);
    let mut measured = CostMeasurements {
        rounds: Vec::new(),
        runs: Vec::new(),
    };
    if options.wants(ReportPart::Peers) {
        measured.rounds = peers::measure(&runner, &swtch, cpu, options.rounds())?;
    }
    for load in options.loads() {
        let runs = options.runs.unwrap_or(RUNS);
        let runs = self_check::measure(&runner, &swtch, (cpu, &cpus), *load, runs)?;
        measured.runs.push(runs);
    }
    println!("{}", report(options, &host, cpu, &measured));
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&to_json(&host, cpu, &measured))?;
        fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The report in Markdown: the host, and a table for each part.
fn report(options: &Options, host: &HostFacts, cpu: u32, measured: &CostMeasurements) -> String {
    let mut report = format!("{host}. Measured on CPU {cpu}.\n");
    let of_parts = ReportPart::ALL
        .into_iter()
        .filter(|part| options.wants(*part));
    for part in of_parts {
        let runs = &measured.runs;
        let table = match part {
            ReportPart::Peers => peers::table(&measured.rounds),
            ReportPart::Alarms => self_check::alarms_table(runs),
            ReportPart::Resolution => self_check::resolution_table(runs),
            ReportPart::Injected => self_check::injected_table(runs),
            ReportPart::Coverage => self_check::coverage_table(runs),
        };
        report.push_str(&format!(
            "\n### {}\n\n{}",
            part.title(),
            table.to_markdown()
        ));
    }
    report.push_str("\nMedian (min–max) unless said otherwise.");
    report
}

fn to_json(host: &HostFacts, cpu: u32, measured: &CostMeasurements) -> Value {
    let peers: Vec<Value> = measured
        .rounds
        .iter()
        .map(|round| round.to_json())
        .collect();
    let of_load = |runs: &SelfCheckRuns| {
        let lists: Vec<&Value> = runs.lists.iter().map(|list| &list.json).collect();
        json!({ "load": runs.load.title(), "lists": lists })
    };
    let self_checks: Vec<Value> = measured.runs.iter().map(of_load).collect();
    json!({
        "schema": "swtch.bench-cost/1",
        "host": host.to_json(),
        "cpu": cpu,
        "peers": peers,
        "self_checks": self_checks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Options::parse(&words)
    }

    #[test]
    fn all_parts_are_measured_when_none_is_named() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.parts, ReportPart::ALL);
        assert_eq!(options.rounds(), LEAST_ROUNDS);
        assert_eq!(
            options.loads(),
            [BackgroundLoad::Idle, BackgroundLoad::Hogs]
        );
    }

    #[test]
    fn only_the_runs_that_the_parts_need_are_done() {
        let peers = parse(&["--part", "peers", "--runs", "9"]).unwrap();
        assert_eq!((peers.rounds(), peers.loads()), (9, [].as_slice()));
        let injected = parse(&["--part", "injected"]).unwrap();
        assert_eq!(injected.loads(), [BackgroundLoad::Idle]);
        assert!(!injected.wants(ReportPart::Peers));
        assert_eq!(
            parse(&["--part", "alarms"]).unwrap().loads(),
            [BackgroundLoad::Idle, BackgroundLoad::Hogs]
        );
    }

    #[test]
    fn unknown_and_unfinished_options_are_refused() {
        for words in [
            ["--part", "all"].as_slice(),
            &["--part"],
            &["--runs", "0"],
            &["--runs", "many"],
            &["--fast", "1"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    /// Without a run there is a table that says so, and no panic.
    #[test]
    fn a_report_has_a_table_for_each_part_that_was_asked_for() {
        let options = parse(&["--part", "alarms", "--part", "coverage"]).unwrap();
        let host = HostFacts::read([]).unwrap();
        let measured = CostMeasurements {
            rounds: Vec::new(),
            runs: vec![SelfCheckRuns {
                load: BackgroundLoad::Idle,
                lists: Vec::new(),
            }],
        };
        let report = report(&options, &host, 1, &measured);
        assert!(report.contains("### False alarms") && report.contains("### Coverage"));
        assert!(report.contains("no runs") && !report.contains("### Beside"));
    }
}

//! `xtask bench-read`: how long the answers about a large trace take, and how much memory.
//!
//! The traces are made up by the example `make_trace`, so that everybody has the same ones: 400
//! tasks whose CPUs are idle for half of the time, and 400 tasks that crowd two CPUs, where each
//! wait in a run queue spans the runs of fifty others, as in `perf bench sched messaging`. Each round asks every question of every
//! trace once with each program, in an order that is rotated from round to round. Before the first
//! round each trace is read once, so that all rounds find it in the page cache.
//!
//! Time and memory are those of the process itself (see `cputime.rs`), and `swtch` writes its
//! answer to a file. The numbers do *not* decide the exit code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use tempfile::TempDir;

use crate::bench_cost::command::Runner;
use crate::bench_record::host::HostFacts;
use crate::bench_record::summary::Spread;
use crate::bench_record::table::{TextTable, spread};
use crate::bench_record::tool::{RecordingTotals, find_swtch, swtch_recorded};
use crate::cputime::CpuTime;

/// Rounds that are measured if no number is given.
const ROUNDS: usize = 5;

/// Switches of a made-up trace if no number is given.
const SWITCHES: u64 = 10_000_000;

/// The longest that one program may take: making a trace of 100 million rows takes minutes.
const LIMIT: Duration = Duration::from_secs(1800);

/// What is asked of each trace, as words of the command line before the trace.
const QUESTIONS: [&[&str]; 3] = [
    &["explain"],
    &["report", "--by", "preemptor"],
    &["report", "--by", "reason"],
];

/// The made-up loads: their names, and what `make_trace` is told.
const LOADS: [(&str, &[&str]); 2] = [
    ("half idle", &["--threads", "400", "--cpus", "16"]),
    (
        "crowded",
        &["--threads", "400", "--cpus", "2", "--crowded", "50"],
    ),
];

/// The options of `xtask bench-read`.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    rounds: usize,
    /// Sizes of the made-up traces.
    switches: Vec<u64>,
    /// Traces that exist already, to be read instead of made-up ones.
    traces: Vec<PathBuf>,
    /// The programs to compare; the one beside this program if there are none.
    programs: Vec<PathBuf>,
    json: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments after `bench-read`.
    ///
    /// # Errors
    /// On an unknown argument or a missing value.
    pub fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self {
            rounds: ROUNDS,
            switches: Vec::new(),
            traces: Vec::new(),
            programs: Vec::new(),
            json: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} needs a value"))
            };
            match word.as_str() {
                "--rounds" => {
                    options.rounds = value()?.parse().context("--rounds takes a number")?;
                }
                "--switches" => {
                    let switches = value()?.parse().context("--switches takes a number")?;
                    options.switches.push(switches);
                }
                "--trace" => options.traces.push(value()?.into()),
                "--swtch" => options.programs.push(value()?.into()),
                "--json" => options.json = Some(value()?.into()),
                other => bail!("bench-read knows no {other:?} (see xtask help)"),
            }
        }
        ensure!(options.rounds > 0, "at least one round");
        if options.switches.is_empty() {
            options.switches.push(SWITCHES);
        }
        Ok(options)
    }
}

/// A trace that is read.
#[derive(Debug)]
struct MeasuredTrace {
    name: String,
    path: PathBuf,
    totals: RecordingTotals,
}

/// One program asked one question about one trace, over all rounds.
#[derive(Debug)]
struct ReadArm<'a> {
    trace: &'a MeasuredTrace,
    question: &'static [&'static str],
    program: &'a Path,
    runs: Vec<CpuTime>,
}

/// Measures, prints the table to stdout, and writes the JSON file if one was asked for.
///
/// # Errors
/// When a program is missing or fails, on Ctrl-C, or when a file cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let runner = Runner::new(&interrupted, LIMIT);
    let programs = match options.programs.as_slice() {
        [] => vec![find_swtch(None)?],
        some => some.to_vec(),
    };
    let host = HostFacts::read(programs.iter().map(PathBuf::as_path))?;
    let room = tempfile::Builder::new().prefix("swtch-read-").tempdir()?;
    let traces = match options.traces.as_slice() {
        [] => make_traces(&runner, &options.switches, &room)?,
        some => some
            .iter()
            .map(|path| existing(path))
            .collect::<Result<_>>()?,
    };
    let mut arms = arms(&traces, &programs);
    for round in 0..=options.rounds {
        let first = round % arms.len();
        for place in 0..arms.len() {
            let arm = (first + place) % arms.len();
            let used = arms[arm].ask(&runner, &room)?;
            // Round 0 brings the traces into the page cache.
            if round > 0 {
                arms[arm].runs.push(used);
            }
        }
    }
    println!("{host}\n\n{}", table(&arms).to_markdown());
    if let Some(path) = &options.json {
        let arms: Vec<Value> = arms.iter().map(ReadArm::to_json).collect();
        let json = serde_json::to_string_pretty(&json!({ "host": host.to_string(), "arms": arms }));
        fs::write(path, json?).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a trace of each load in each size.
fn make_traces(runner: &Runner<'_>, sizes: &[u64], room: &TempDir) -> Result<Vec<MeasuredTrace>> {
    let maker = std::env::current_exe()?.with_file_name("examples/make_trace");
    ensure!(
        maker.is_file(),
        "no {}: cargo build --release -p swtch --examples",
        maker.display()
    );
    let mut traces = Vec::new();
    for switches in sizes {
        for (name, load) in LOADS {
            let path = room.path().join(format!("{}.swtch", traces.len()));
            let number = switches.to_string();
            let mut words = vec![text(&maker), text(&path), "--switches".to_owned(), number];
            words.extend(load.iter().map(|&word| word.to_owned()));
            // A million switches a second is a busy machine.
            let seconds = (switches / 1_000_000).max(1).to_string();
            words.extend(["--seconds".to_owned(), seconds]);
            runner.run(&words)?.expecting(&[0])?;
            traces.push(MeasuredTrace {
                name: name.to_owned(),
                totals: swtch_recorded(&path)?,
                path,
            });
        }
    }
    Ok(traces)
}

fn existing(path: &Path) -> Result<MeasuredTrace> {
    let name = path.file_stem().unwrap_or(path.as_os_str());
    Ok(MeasuredTrace {
        name: name.to_string_lossy().into_owned(),
        path: path.to_owned(),
        totals: swtch_recorded(path)?,
    })
}

fn arms<'a>(traces: &'a [MeasuredTrace], programs: &'a [PathBuf]) -> Vec<ReadArm<'a>> {
    let mut arms = Vec::new();
    for trace in traces {
        for question in QUESTIONS {
            for program in programs {
                arms.push(ReadArm {
                    trace,
                    question,
                    program,
                    runs: Vec::new(),
                });
            }
        }
    }
    arms
}

impl ReadArm<'_> {
    /// Asks once, as a person does.
    fn ask(&self, runner: &Runner<'_>, room: &TempDir) -> Result<CpuTime> {
        let used = room.path().join("used.json");
        let myself = std::env::current_exe()?;
        let mut words = vec![
            text(&myself),
            "cputime".to_owned(),
            text(&used),
            "--".to_owned(),
            text(self.program),
        ];
        words.extend(self.question.iter().map(|&word| word.to_owned()));
        words.push(text(&self.trace.path));
        runner.run(&words)?.expecting(&[0])?;
        CpuTime::read(&used)
    }

    fn spread(&self, of: impl Fn(&CpuTime) -> f64) -> Option<Spread> {
        Spread::of(self.runs.iter().map(of))
    }

    fn bytes_per_switch(&self) -> f64 {
        as_number(self.trace.totals.bytes) / as_number(self.trace.totals.switches)
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.trace.name.clone(),
            self.trace.totals.switches.to_string(),
            format!("{:.1}", self.bytes_per_switch()),
            self.question.join(" "),
            text(self.program),
            spread(self.spread(|run| seconds(run.wall_ns)), 2),
            spread(self.spread(|run| seconds(run.cpu_ns)), 2),
            spread(self.spread(|run| as_number(run.peak_bytes) / 1e6), 0),
        ]
    }

    fn to_json(&self) -> Value {
        let runs = self.runs.iter().map(|run| {
            json!({
                "wall_ns": run.wall_ns,
                "cpu_ns": run.cpu_ns,
                "peak_bytes": run.peak_bytes,
            })
        });
        json!({
            "trace": self.trace.name,
            "switches": self.trace.totals.switches,
            "bytes": self.trace.totals.bytes,
            "question": self.question,
            "program": text(self.program),
            "runs": runs.collect::<Vec<_>>(),
        })
    }
}

fn table(arms: &[ReadArm<'_>]) -> TextTable {
    let mut table = TextTable::new(&[
        "trace",
        "switches",
        "bytes/switch",
        "swtch …",
        "program",
        "wall, s",
        "CPU, s",
        "peak MB",
    ]);
    for arm in arms {
        table.push(arm.cells());
    }
    table
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn seconds(ns: u64) -> f64 {
    as_number(ns) / 1e9
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes, rows and ns of a run are far below 2⁵³"
)]
fn as_number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_record::tool::Lost;

    fn parsed(line: &str) -> Result<Options> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn options_have_defaults_and_lists() {
        let options = parsed("").unwrap();
        assert_eq!(
            (options.rounds, &*options.switches),
            (ROUNDS, &[SWITCHES][..])
        );
        let options = parsed("--swtch a --swtch b --switches 5 --rounds 2").unwrap();
        assert_eq!(options.programs, [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!((options.rounds, &*options.switches), (2, &[5][..]));
    }

    #[test]
    fn what_is_unknown_or_cut_is_refused() {
        for line in ["--fast", "--rounds", "--rounds 0", "--switches many"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_program_is_asked_everything_about_every_trace() {
        let trace = |name: &str| MeasuredTrace {
            name: name.to_owned(),
            path: name.into(),
            totals: RecordingTotals {
                switches: 10,
                bytes: 125,
                lost: Lost {
                    count: 0,
                    unit: "switches",
                },
            },
        };
        let traces = [trace("a"), trace("b")];
        let programs = [PathBuf::from("old"), PathBuf::from("new")];
        let arms = arms(&traces, &programs);
        assert_eq!(arms.len(), 2 * QUESTIONS.len() * 2);
        assert_eq!(arms[0].cells()[2], "12.5");
    }
}

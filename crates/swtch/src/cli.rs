//! Definition of the command line. Parsers of single values are in [`values`]; which recording is asked
//! for is decided in [`recording`]; what an option does is in the module of its command.

mod live;
mod program_cost;
mod recording;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use swtch_core::{Nanos, Pid, Reason};
use swtch_lab::LabVerb;
use swtch_live::fiber;
use swtch_output::format::Format;
use swtch_record::dump::DumpRequest;
use swtch_report::export::{self, ExportFormat};
use swtch_report::import;
use swtch_report::report::{ALL_COLUMNS, Asker, BillBy, By, Filter, LeastWait, Moment, Per};

use crate::built_for::long_version;
use crate::user_switch;

use swtch_view::ViewRequest;

use live::{Agent, Top};
use program_cost::ProgramCost;
use recording::{Explain, Record};
use values::{by, id_of_span, interval, length, per, percent, pid, reason, to};

pub use recording::AskedRecording;

/// Context switches on Linux: how many, why, who took the CPU and for how long.
#[derive(Debug, Parser)]
#[command(name = "swtch", version, long_version = long_version(), about, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Say why threads left the CPU, and what can be changed: of a program that is recorded now, or of a trace.
    Explain(Explain),
    /// Record a program into a trace.
    Record(Record),
    /// Write down what a flight recorder has (record --ring), which goes on.
    Dump(Dump),
    /// Answer one question about a trace: by reason, thread, waker, lock, stack, and so on.
    Report(Report),
    /// Say what changed between two traces, or two sets of them, and how sure that is.
    Diff(Diff),
    /// Write a trace in a format that other tools read.
    Export(Export),
    /// Turn what perf recorded into a trace.
    Import(Import),
    /// Show rates of switches while they happen: by process, thread, cgroup, reason, preemptor.
    Top(Top),
    /// Serve rates of switches as metrics, for Prometheus: by reason and cgroup, with waits, prices and pressure.
    Agent(Agent),
    /// Show a trace in the browser.
    View(ViewArgs),
    /// Measure what each kind of switch costs on this machine, or what a switch costs one program (--of).
    Cost(Cost),
    /// Show the user-mode schedulers of a process (those of swtch-fiber), beside the kernel's.
    Fiber(FiberArgs),
    /// Run the classic experiments on this machine, and check the claims of textbooks with them.
    Lab(Lab),
    /// Ask traces in SQL, keep those of many hosts together, and ask them all; let an assistant ask (MCP).
    ///
    /// By the Python package swtch: `swtch lake query SQL NAME.swtch`, `swtch lake add`, `swtch lake fleet`, `swtch lake
    /// mcp`; docs/PYTHON.md, docs/LAKE.md.
    #[command(disable_help_flag = true)]
    Lake(PythonWords),
    /// Check what swtch can record on this machine, and which settings of it affect the answers.
    Doctor(Doctor),
    /// Print what makes a shell complete swtch's words.
    Completions(Completions),
    /// Write the manual pages, as packages have them.
    #[command(hide = true)]
    ManPages(ManPages),
    /// Run the load of an experiment: what `swtch lab` starts.
    #[command(hide = true)]
    LabPlay(LabPlay),
    /// Run workers beside threads: what `swtch lab two-levels` starts.
    #[command(hide = true)]
    LabLevels(LabPlay),
    /// Look for user-mode schedulers: what `swtch record` starts.
    #[command(hide = true)]
    FindSchedulers,
    /// Look for processes that publish contexts: what `swtch record --span otel` starts.
    #[command(hide = true)]
    FindContexts,
    /// Read stacks of threads that wait: what `swtch record` starts.
    #[command(hide = true)]
    ReadStacks,
    /// Run a workload that makes a known number of switches of known kinds, as the tests do.
    #[command(hide = true)]
    Workload(WorkloadArgs),
}

/// Ask a flight recorder for what it has.
#[derive(Debug, Args)]
pub struct Dump {
    /// The trace that swtch record --ring writes.
    #[arg(value_name = "NAME.swtch")]
    pub trace: PathBuf,
    /// Only what was recorded in so much time (10s, 500ms), and a little more [default: all that is kept].
    #[arg(long, value_name = "TIME", value_parser = length)]
    pub last: Option<Nanos>,
    /// Why, in words; the dump tells it.
    #[arg(long, value_name = "TEXT")]
    pub because: Option<String>,
    /// Where the dump goes, as a trace in its final form [default: NAME.swtch/dumps/, as it was recorded]. Where no
    /// recorder is asked (a segment of a ring, NAME.swtch/segments/00000017; what a killed one left), it is made of what
    /// is on disk.
    #[arg(short, long, value_name = "OUT.swtch")]
    pub output: Option<PathBuf>,
}

impl Dump {
    pub fn to_request(&self) -> DumpRequest {
        DumpRequest {
            trace: self.trace.clone(),
            last: self.last,
            because: self.because.clone(),
            output: self.output.clone(),
        }
    }
}

/// What the columns of answers mean, below the long help.
fn columns_in_words() -> String {
    let columns = ALL_COLUMNS.iter();
    let lines = columns.map(|word| format!("  {:<22} {}", word.key, word.help));
    let lines: Vec<_> = lines.collect();
    format!(
        "Columns by their keys in JSON and CSV, each in the answers that have it:\n{}",
        lines.join("\n")
    )
}

/// Report on a trace.
#[derive(Debug, Args)]
#[command(after_long_help = columns_in_words())]
pub struct Report {
    /// The trace.
    #[arg(value_name = "NAME.swtch")]
    pub trace: PathBuf,
    /// What a row stands for; without it, the page that explain shows. A bill can be by reason (the
    /// default), process, thread, stack, or pair: who left and who came.
    #[arg(long, value_name = "WHAT", value_parser = by())]
    pub by: Option<String>,
    /// Show what the switches cost, by this machine's saved price list (swtch cost --save).
    #[arg(long, group = "priced")]
    pub bill: bool,
    /// Price list to use (default: this machine's saved one).
    #[arg(long, value_name = "FILE.json", requires = "priced")]
    pub prices: Option<PathBuf>,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parser())]
    pub format: Format,
    /// Write a file instead: FILE.html is one page with everything, which needs no network and can be sent to
    /// others; FILE.svg or FILE.png are pictures, one file each (timeline, rate, lengths).
    #[arg(short, long, value_name = "FILE", group = "priced",
          conflicts_with_all = ["by", "bill", "format", "top", "symbols"])]
    pub output: Option<PathBuf>,
    /// Name functions by the files in this directory that have the same build ids: for a trace of programs that
    /// were stripped.
    #[arg(long, value_name = "DIR")]
    pub symbols: Option<PathBuf>,
    /// What is counted.
    #[command(flatten)]
    pub chosen: FilterArgs,
    /// Only the request of which a published id (record --span otel) begins with these digits: its switches in all
    /// threads, and the waits that began with them. By thread, wait, reason, waker and so on.
    #[arg(long, value_name = "ID", requires = "by", value_parser = id_of_span)]
    pub only_span: Option<String>,
    /// Show at most N rows (default: 20 in a table, all elsewhere).
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
}

/// Compare traces.
#[derive(Debug, Args)]
pub struct Diff {
    /// The traces of A (before) and B (after): two of them, or all of A, then -- and all of B. Several of
    /// each, recorded in turns, show how much runs differ by themselves.
    #[arg(value_name = "A.swtch", required = true, num_args = 1..)]
    pub traces: Vec<PathBuf>,
    /// The traces of B, after those of A.
    #[arg(last = true, value_name = "B.swtch")]
    pub after: Vec<PathBuf>,
    /// Exit with 1 if a figure is surely worse by more than this (5 or 5%; 0 for any sure change).
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub fail_over: Option<f64>,
    /// Divide amounts by spans (the default where all traces have some), turns, or the time recorded (second), or compare
    /// whole runs of the same work (run).
    #[arg(long, value_name = "WHAT", value_parser = per())]
    pub per: Option<Per>,
    /// Show all figures: those that did not change, too, and those that could not be judged.
    #[arg(long)]
    pub full: bool,
    /// Price list to use (default: this machine's saved one, where there is one).
    #[arg(long, value_name = "FILE.json")]
    pub prices: Option<PathBuf>,
    /// Write the comparison as one HTML file, too, which can be sent to others: the answer, a timeline of each
    /// side, and a flame graph of what changed (for traces that have stacks).
    #[arg(short, long, value_name = "FILE.html")]
    pub output: Option<PathBuf>,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parser())]
    pub format: Format,
    /// What is counted.
    #[command(flatten)]
    pub chosen: FilterArgs,
}

impl Diff {
    /// The traces of A and those of B.
    ///
    /// # Errors
    /// When it is not clear which is which, or an option makes no sense with several traces.
    pub fn sides(&self) -> anyhow::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        anyhow::ensure!(
            self.chosen.pid.is_empty(),
            "--pid picks a process of one trace, and its number is another one in each run: use --comm NAME"
        );
        if let Some(option) = self.after.iter().find(|path| is_option(path)) {
            anyhow::bail!(
                "{} stands after --, where only traces of B are: put options before the first trace",
                option.display()
            );
        }
        match (&self.traces[..], &self.after[..]) {
            (before, after) if !after.is_empty() => Ok((before.to_vec(), after.to_vec())),
            ([before, after], _) => Ok((vec![before.clone()], vec![after.clone()])),
            ([_], _) => anyhow::bail!(
                "one trace has nothing to be compared with: give two (swtch diff BEFORE AFTER)"
            ),
            (several, _) => anyhow::bail!(
                "{} traces, and it is not clear which are before and which after: put -- between them \
                 (swtch diff A1 A2 A3 -- B1 B2 B3)",
                several.len()
            ),
        }
    }
}

/// Whether this looks like an option and is no trace.
fn is_option(path: &std::path::Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(b"--") && !path.exists()
}

/// Which switches of a trace.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Only these processes.
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = pid)]
    pub pid: Vec<Pid>,
    /// Only threads whose name contains this (with * or ?: matches the whole name); earlier names count.
    #[arg(long, value_name = "NAME")]
    pub comm: Vec<String>,
    /// Only these reasons.
    #[arg(long, value_name = "REASON", value_delimiter = ',', value_parser = reason())]
    pub reason: Vec<Reason>,
    /// Only from this moment on, since the start of the trace (1.5, 250ms).
    #[arg(long, value_name = "MOMENT")]
    pub since: Option<Moment>,
    /// Only before this moment.
    #[arg(long, value_name = "MOMENT")]
    pub until: Option<Moment>,
    /// Only waits that took at least so long (1ms); their switches are counted all the same.
    #[arg(long, value_name = "LENGTH")]
    pub min_wait: Option<LeastWait>,
}

impl FilterArgs {
    /// As reports and exports take it.
    pub fn to_filter(&self) -> Filter {
        Filter {
            pids: self.pid.clone(),
            comms: self.comm.clone(),
            reasons: self.reason.clone(),
            since: self.since,
            until: self.until,
            min_wait: self.min_wait.clone(),
            only_span: None,
            asker: Asker::default(),
        }
    }
}

/// Export a trace.
#[derive(Debug, Args)]
pub struct Export {
    /// The trace.
    #[arg(value_name = "NAME.swtch")]
    pub trace: PathBuf,
    /// Format of the file.
    #[arg(long, value_name = "FORMAT", value_parser = to())]
    pub to: ExportFormat,
    /// File to write (default: stdout); with .gz at the end of its name it is compressed.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What is written.
    #[command(flatten)]
    pub chosen: FilterArgs,
}

impl Export {
    pub fn to_request(&self) -> export::ExportRequest {
        export::ExportRequest {
            trace: self.trace.clone(),
            to: self.to,
            output: self.output.clone(),
            filter: self.chosen.to_filter(),
        }
    }
}

/// Import what perf, ftrace or Perfetto recorded.
#[derive(Debug, Args)]
pub struct Import {
    /// What perf sched record wrote (also into a pipe), text of ftrace (trace-cmd report), a trace of Perfetto; .gz or .zst.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where the trace goes (default: the file's name with .swtch, in this directory).
    #[arg(short, long, value_name = "NAME.swtch")]
    pub output: Option<PathBuf>,
}

impl Import {
    pub fn to_request(&self) -> import::ImportRequest {
        import::ImportRequest {
            file: self.file.clone(),
            output: self.output.clone(),
        }
    }
}

/// What a report answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// All at once.
    Page,
    /// Counts and times by one thing.
    By(By),
    /// What switches cost, by one thing.
    Bill(BillBy),
}

impl Report {
    /// Which rows are asked for.
    pub fn to_filter(&self) -> Filter {
        Filter {
            only_span: self.only_span.clone(),
            ..self.chosen.to_filter()
        }
    }

    /// What is asked.
    ///
    /// # Errors
    /// When there is no such report.
    pub fn question(&self) -> anyhow::Result<Question> {
        match (self.by.as_deref(), self.bill) {
            (None, false) => Ok(Question::Page),
            (None, true) => Ok(Question::Bill(BillBy::Reason)),
            (Some(word), false) => match By::from_word(word) {
                Some(by) => Ok(Question::By(by)),
                None => anyhow::bail!("--by {word} is for bills: add --bill"),
            },
            (Some(word), true) => match BillBy::from_word(word) {
                Some(by) => Ok(Question::Bill(by)),
                None => anyhow::bail!(
                    "a bill cannot be by {word}: give {}",
                    BillBy::ALL.map(BillBy::as_str).join(", ")
                ),
            },
        }
    }
}

/// Look at a trace.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// The trace; one that is being recorded is followed.
    #[arg(value_name = "NAME.swtch")]
    pub trace: PathBuf,
    /// Print the address, and open no browser.
    #[arg(long)]
    pub no_open: bool,
    /// Port to serve on (default: any that is free).
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Price list to use (default: this machine's saved one).
    #[arg(long, value_name = "FILE.json")]
    pub prices: Option<PathBuf>,
}

impl ViewArgs {
    pub fn to_request(&self) -> ViewRequest {
        ViewRequest {
            trace: self.trace.clone(),
            port: self.port,
            open: !self.no_open,
            prices: self.prices.clone(),
        }
    }
}

/// Measure prices.
#[derive(Debug, Args)]
pub struct Cost {
    /// Kinds or sections to measure (such as pipe, switch, address-space); all, when none is named. With `tails` before
    /// them: how long single switches take (percentiles).
    #[arg(value_name = "KIND")]
    pub kinds: Vec<String>,
    /// Only what explain needs, in ten seconds.
    #[arg(long, conflicts_with = "thorough")]
    pub quick: bool,
    /// All sizes and narrow intervals, in minutes.
    #[arg(long)]
    pub thorough: bool,
    /// Keep the list as this machine's: explain and report --bill use it.
    #[arg(long)]
    pub save: bool,
    /// Write the list to a file: .json holds all of it, .csv and .parquet the prices (curves and
    /// contrasts in files beside it), .svg and .png show the curves (one file per figure). May be given several times.
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Compare two saved lists instead of measuring.
    #[arg(long, value_names = ["BEFORE", "AFTER"], num_args = 2,
          conflicts_with_all = ["kinds", "quick", "thorough", "save", "output", "cpu"])]
    pub compare: Option<Vec<PathBuf>>,
    /// Measure on this CPU (default: the last that may be used).
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<u32>,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parser())]
    pub format: Format,
    /// One program, whose prices are measured instead.
    #[command(flatten)]
    pub program: ProgramCost,
}

/// The first of the kinds, where percentiles are asked for.
const TAILS: &str = "tails";

impl Cost {
    /// What is asked for.
    ///
    /// # Errors
    /// When two options cannot be had together.
    pub fn to_request(&self) -> anyhow::Result<swtch_cost::CostRequest> {
        let kinds = self.kinds.strip_prefix(&[TAILS.to_owned()]);
        anyhow::ensure!(
            kinds.is_none() || !self.save && self.output.is_empty(),
            "percentiles of single switches make no price list: leave out --save and -o (--format json writes them to \
             stdout)"
        );
        Ok(swtch_cost::CostRequest {
            effort: match (self.quick, self.thorough) {
                (true, _) => swtch_cost::Effort::Quick,
                (_, true) => swtch_cost::Effort::Thorough,
                _ => swtch_cost::Effort::Default,
            },
            tails: kinds.is_some(),
            cpu: self.cpu,
            kinds: kinds.unwrap_or(&self.kinds).to_vec(),
            format: self.format,
            save: self.save,
            output: self.output.clone(),
        })
    }
}

/// Complete words in a shell.
#[derive(Debug, Args)]
#[command(
    after_help = "For this shell alone:     source <(swtch completions bash)\n\
    From now on, in bash:     swtch completions bash > ~/.local/share/bash-completion/completions/swtch\n\
    From now on, in fish:     swtch completions fish > ~/.config/fish/completions/swtch.fish\n\
    In zsh, in a directory that fpath names:   swtch completions zsh > _swtch"
)]
pub struct Completions {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// What the Python package is asked.
#[derive(Debug, Args)]
pub struct PythonWords {
    /// Words for it; --help tells them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Write manual pages.
#[derive(Debug, Args)]
pub struct ManPages {
    /// The directory they go to, which must be there.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Look at user-mode schedulers.
#[derive(Debug, Args)]
pub struct FiberArgs {
    /// The process; without one, those that have schedulers are listed.
    #[arg(value_name = "PID", value_parser = pid)]
    pub pid: Option<Pid>,
    /// What to show; without it, switches per second of both levels, side by side.
    #[arg(value_name = "VIEW", requires = "pid")]
    pub view: Option<fiber::View>,
    /// Time between two readings (10ms or more; a number alone: seconds).
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = interval,
          conflicts_with = "view")]
    pub interval: Duration,
    /// Stop after N readings (default: when the process ends; json: after one).
    #[arg(long, value_name = "N", conflicts_with = "view",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parser())]
    pub format: Format,
}

impl FiberArgs {
    pub fn to_request(&self) -> fiber::FiberRequest {
        fiber::FiberRequest {
            pid: self.pid.map(Pid::get),
            view: self.view,
            format: self.format,
            interval: self.interval,
            count: self.count,
            user_switch_ns: user_switch::measured_ns,
        }
    }
}

/// The experiments.
#[derive(Debug, Args)]
pub struct Lab {
    /// What to do; without it, the list of experiments.
    #[command(subcommand)]
    pub verb: Option<LabVerb>,
}

/// A load to play.
#[derive(Debug, Args)]
pub struct LabPlay {
    /// The load, as JSON.
    pub load: PathBuf,
    /// Where to leave what came of it, as JSON.
    pub result: PathBuf,
}

/// Doctor.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Show all hooks and settings of the kernel, and all facts of this host that change answers.
    #[arg(long)]
    pub full: bool,
    /// Format of the output: table or json.
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parser())]
    pub format: Format,
}

/// A workload.
#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// Name of the workload; without one, all are listed.
    pub name: Option<String>,
    /// How often it repeats its step.
    #[arg(long)]
    pub count: Option<u64>,
    /// Do not print what a trace of it must hold.
    #[arg(long)]
    pub quiet: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    /// A condition is judged as one, and not taken for an option, whatever it begins with.
    #[test]
    fn a_condition_may_begin_with_a_hyphen() {
        let words = |when| ["swtch", "record", "-a", "--ring", "5m", "--when", when];
        let said = Cli::try_parse_from(words("-1s > runq")).map(drop);
        let said = said.unwrap_err().to_string();
        assert!(said.contains("runq, off, blocked"), "{said}");
        assert!(Cli::try_parse_from(words("runq > 1s")).is_ok());
    }

    #[test]
    fn a_bill_has_groups_of_its_own() {
        let question = |words: &[&str]| {
            let words = ["swtch", "report", "t.swtch"].iter().chain(words);
            let Verb::Report(report) = Cli::parse_from(words).verb else {
                panic!("report")
            };
            report.question().map_err(|error| error.to_string())
        };
        assert_eq!(question(&[]), Ok(Question::Page));
        assert_eq!(question(&["--by", "cpu"]), Ok(Question::By(By::Cpu)));
        assert_eq!(question(&["--bill"]), Ok(Question::Bill(BillBy::Reason)));
        let pair = question(&["--bill", "--by", "pair"]);
        assert_eq!(pair, Ok(Question::Bill(BillBy::Pair)));
        let refusal = question(&["--by", "pair"]).unwrap_err();
        assert_eq!(refusal, "--by pair is for bills: add --bill");
        let refusal = question(&["--bill", "--by", "cpu"]).unwrap_err();
        assert!(
            refusal.contains("reason, process, thread, stack, pair"),
            "{refusal}"
        );
    }

    #[test]
    fn two_traces_or_two_sets_are_compared() {
        let sides = |words: &[&str]| {
            let words = ["swtch", "diff"].iter().chain(words);
            let Verb::Diff(diff) = Cli::parse_from(words).verb else {
                panic!("diff")
            };
            let names = |paths: Vec<PathBuf>| {
                let names = paths.iter().map(|path| path.display().to_string());
                names.collect::<Vec<_>>().join(" ")
            };
            let sides = diff.sides().map_err(|error| error.to_string());
            sides.map(|(a, b)| (names(a), names(b)))
        };
        let of = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(sides(&["a", "b"]), of("a", "b"));
        assert_eq!(sides(&["a", "--fail-over", "5%", "b"]), of("a", "b"));
        assert_eq!(sides(&["a1", "a2", "--", "b1"]), of("a1 a2", "b1"));
        let misplaced = sides(&["a", "--", "b", "--full"]).unwrap_err();
        assert!(misplaced.contains("--full stands after --"), "{misplaced}");
        assert!(sides(&["a"]).unwrap_err().contains("BEFORE AFTER"));
        assert!(sides(&["a", "b", "c"]).unwrap_err().contains("put --"));
        assert!(
            sides(&["a", "b", "--pid", "7"])
                .unwrap_err()
                .contains("--comm")
        );
    }

    #[test]
    fn prices_are_for_bills() {
        let words = ["swtch", "report", "t.swtch", "--prices", "p.json"];
        assert!(Cli::try_parse_from(words).is_err());
    }
}

//! The words of `swtch record` and `swtch explain`, and the one recording that they ask for.
//!
//! clap refuses what has no form (two targets, a ring's options without a ring). Which ways to record
//! and which options cannot be had together is said in one place here, `refuse_for`.

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use swtch_capture::probe::HOOKS;
use swtch_capture::{Children, SpanChoice};
use swtch_core::{Nanos, Pid, Trigger};
use swtch_live::summary::SummaryRequest;
use swtch_output::format::Format;
use swtch_record::record::{
    CaptureRequest, KeptSize, RecordRequest, RingRequest, StackBudget, Target, TraceBy,
};

use super::values::{duration, kept, length, percent, pid, size};

/// The CPU time that stacks may take unless another is asked for, in percent of one CPU.
const STACK_BUDGET_PCT: f64 = 1.0;

/// By what switches are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendChoice {
    /// The one that tells most of those that are allowed here.
    Auto,
    /// eBPF programs: every reason, waker and preemptor. Takes root.
    Ebpf,
    /// Perf events of own processes: when threads leave and come back, and whether they could have run on.
    Perf,
    /// The counters in /proc of own processes: how many switches, and no trace (explain only).
    Proc,
}

/// How and whose switches are recorded.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Where the trace goes (default: a name with the date in this directory).
    #[arg(short, long, value_name = "NAME.swtch")]
    pub output: Option<PathBuf>,
    /// Stop after this time (10s, 5m; a number alone: seconds); the command goes on.
    #[arg(short = 'd', long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Do not read the stacks of threads that wait: no function is named then.
    #[arg(long)]
    pub no_stacks: bool,
    /// CPU time for reading the stacks of threads that wait, of one CPU [default: 1%; at most fifty times a second].
    #[arg(long, value_name = "PERCENT", conflicts_with = "no_stacks", value_parser = percent)]
    pub stack_budget: Option<f64>,
    /// Also record when threads come from one place of a program to another: `postgres` (statements of the server that
    /// runs), `FILE:FUNCTION` (from its call to its return) or `FILE:BEGIN..END`, where BEGIN and END are functions or
    /// markers (`usdt:PROVIDER:NAME`). explain tells how long these spans took, and why the slowest did. Every process
    /// that runs FILE is stopped there for a moment. `otel` stops nobody: it takes requests by the ids that programs
    /// publish (OpenTelemetry's thread context). May be given more than once.
    #[arg(long, value_name = "SPAN")]
    pub span: Vec<SpanChoice>,
    /// Memory for records on their way to the disk, of all CPUs together (for tests of losses) [default: 112MB, or
    /// 1MB a CPU if that is more].
    #[arg(long, value_name = "SIZE", hide = true, value_parser = size)]
    pub buffer: Option<u64>,
    /// Record these processes with all their threads, and the processes below them: those that live
    /// already (the backends of a server, the jobs of a shell), and those started later. The recorder
    /// itself is left out where it is one of them, as when it is started by the shell that is recorded.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', num_args = 1..,
          conflicts_with_all = ["all", "cgroup", "command"], value_parser = pid)]
    pub pid: Vec<Pid>,
    /// Record the processes of -p alone, without those below them.
    #[arg(long, requires = "pid")]
    pub no_children: bool,
    /// Record the whole system, the recorder included.
    #[arg(short, long, conflicts_with_all = ["cgroup", "command"])]
    pub all: bool,
    /// Record the tasks of this cgroup and of those below it. May be given more than once.
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    pub cgroup: Vec<PathBuf>,
    /// By what switches are recorded: auto takes what tells most of what is allowed here.
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    pub backend: BackendChoice,
    /// Treat a hook as missing (for tests of what older kernels give).
    #[arg(long, value_name = "HOOK", hide = true)]
    pub without_hook: Vec<String>,
    /// Attach to a hook that is left out because this kernel can crash by it. swtch doctor names it, where there is
    /// one.
    #[arg(long, value_name = "HOOK", hide = true)]
    pub with_hook: Vec<String>,
    /// Stop when the process with this id, which started the recorder, has ended.
    #[arg(long, value_name = "PID", hide = true, value_parser = pid)]
    pub with_parent: Option<Pid>,
    /// The command to run and record.
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Record.
#[derive(Debug, Args)]
pub struct Record {
    /// What to record.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Count switches in the kernel and print tables at the end, instead of writing a trace: little
    /// memory and CPU, for hours and for many CPUs. There are no stacks and no timeline then.
    #[arg(long)]
    pub summary: bool,
    /// Format of the summary.
    #[arg(long, value_name = "FORMAT", default_value = "table", requires = "summary",
          value_parser = Format::parser())]
    pub format: Format,
    /// Keep only what was recorded last, for hours or days: so much time (30s, 5m, 2h) or so much disk
    /// (512MB). A dump writes it down while the recording goes on: kill -USR2, swtch dump, --when.
    #[arg(long, value_name = "TIME|SIZE", conflicts_with = "summary", value_parser = kept)]
    pub ring: Option<KeptSize>,
    /// Make a dump of the ring when a switch meets this: 'runq > 20ms', 'reason = throttle',
    /// 'off > 1s & comm ~ ^web', 'switches/s > 200k'. Fields: runq, off, blocked, ran, reason, comm, pid,
    /// tid, cpu, switches/s. May be given several times.
    #[arg(long, value_name = "CONDITION", requires = "ring", allow_hyphen_values = true,
          value_parser = |words: &str| words.parse::<Trigger>())]
    pub when: Vec<Trigger>,
    /// Shortest time between two dumps by --when or a signal (for tests).
    #[arg(long, value_name = "TIME", requires = "ring", default_value = "10s", hide = true, value_parser = length)]
    pub dump_every: Nanos,
    /// Number of dumps that are kept; the oldest goes when one more comes.
    #[arg(long, value_name = "N", requires = "ring", default_value = "10",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub keep_dumps: u16,
    /// Most groups of equal switches that the summary counts: thread, reason, system call, and who
    /// took the CPU; each takes 700 bytes of the kernel's memory. Who runs out of them is told of it.
    #[arg(long, value_name = "N", default_value = "65536", hide = true, requires = "summary",
          value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub groups: u32,
}

/// Record and explain.
#[derive(Debug, Args)]
pub struct Explain {
    /// Explain this trace again, instead of recording.
    #[arg(value_name = "NAME.swtch",
          conflicts_with_all = ["output", "duration", "no_stacks", "stack_budget", "buffer", "pid", "no_children", "all", "cgroup",
                                "backend", "without_hook", "with_hook", "with_parent", "command"])]
    pub trace: Option<PathBuf>,
    /// What to record.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Show all tables, not only what fits on one screen.
    #[arg(long)]
    pub full: bool,
    /// Format of the output (csv: use report).
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parser())]
    pub format: Format,
    /// Leave out what the switches cost, and measure no prices.
    #[arg(long)]
    pub no_bill: bool,
    /// So many requests, or other units of work, were done meanwhile: says what one of them took.
    #[arg(long, value_name = "N")]
    pub unit: Option<NonZeroU64>,
}

/// What the words ask for.
#[derive(Clone, Debug)]
pub enum AskedRecording {
    /// A trace.
    Trace(RecordRequest),
    /// Counts of switches, made in the kernel.
    Summary(SummaryRequest),
    /// The counters that the kernel keeps of tasks anyway, which are no recording.
    Counters {
        /// The tasks.
        target: Target,
        /// Look for so long.
        duration: Option<Duration>,
    },
}

/// What a recording leaves behind, which decides what it can be asked for besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftBehind {
    Trace,
    Ring,
    Summary,
    Explanation,
}

impl Record {
    /// What is asked for.
    ///
    /// # Errors
    /// When nothing to record is named, or two options cannot be had together.
    pub fn to_recording(&self) -> Result<AskedRecording> {
        let asked = &self.record;
        if self.summary {
            asked.refuse_for(LeftBehind::Summary)?;
            return Ok(AskedRecording::Summary(SummaryRequest {
                capture: asked.capture()?,
                duration: asked.duration,
                with_parent: asked.with_parent,
                format: self.format,
                groups: self.groups,
                spans: asked.span.clone(),
            }));
        }
        let Some(size) = self.ring else {
            asked.refuse_for(LeftBehind::Trace)?;
            return asked.recording();
        };
        asked.refuse_for(LeftBehind::Ring)?;
        asked.trace(TraceBy::Ring(RingRequest {
            size,
            when: self.when.clone(),
            dump_every: Duration::from_nanos(self.dump_every.as_ns()),
            keep_dumps: usize::from(self.keep_dumps),
        }))
    }
}

impl Explain {
    /// What is asked for, where no trace is named.
    ///
    /// # Errors
    /// As [`Record::to_recording`].
    pub fn to_recording(&self) -> Result<AskedRecording> {
        self.record.refuse_for(LeftBehind::Explanation)?;
        self.record.recording()
    }
}

impl RecordArgs {
    /// Refuses what cannot be had together, before anything starts, and says what to leave out.
    fn refuse_for(&self, outcome: LeftBehind) -> Result<()> {
        use LeftBehind::{Explanation, Ring, Summary};
        let (has_stacks, has_spans) = (self.stack_budget.is_some(), !self.span.is_empty());
        let (is_perf, is_proc) = (
            self.backend == BackendChoice::Perf,
            self.backend == BackendChoice::Proc,
        );
        let refusals = [
            (
                outcome == Summary && self.output.is_some(),
                "--summary writes no trace, so there is nothing to put into -o: send its answer to a file with >, \
                 or leave out --summary",
            ),
            (
                outcome == Summary && has_stacks,
                "--summary keeps no stacks: leave out --stack-budget, or leave out --summary to record a trace with stacks",
            ),
            (
                outcome == Summary && (is_perf || is_proc),
                "--summary counts in the kernel, which takes eBPF programs: leave out --backend, or leave out --summary",
            ),
            (
                outcome == Ring && has_stacks,
                "--ring keeps no stacks: leave out --stack-budget, or leave out --ring",
            ),
            (
                outcome == Ring && (is_perf || is_proc),
                "--ring records by eBPF programs: leave out --backend, or leave out --ring",
            ),
            (
                has_spans && (outcome == Ring || is_perf || is_proc),
                "spans are recorded by eBPF programs, beside all switches: leave out --span, or --ring and --backend",
            ),
            (
                outcome == Summary && self.span.contains(&SpanChoice::Contexts),
                "the ids that programs publish are read for each switch, and --summary keeps none: leave out --span otel, \
                 or --summary",
            ),
            (
                is_proc && outcome != Explanation,
                "the counters in /proc tell how many switches there were, and not when: they make no trace. Use \
                 swtch explain --backend proc",
            ),
            (
                is_proc && has_stacks,
                "the counters in /proc tell no stacks of waits: leave out --stack-budget, or record as root",
            ),
            (
                is_proc && self.output.is_some(),
                "the counters in /proc make no trace, so there is nothing to put into -o: leave it out",
            ),
            (
                is_proc && (self.all || !self.cgroup.is_empty()),
                "the kernel counts for tasks only: name a command or a process (-p)",
            ),
        ];
        match refusals.iter().find(|(is_asked, _)| *is_asked) {
            Some((_, words)) => bail!("{words}"),
            None => Ok(()),
        }
    }

    /// What is asked for by `--backend`.
    fn recording(&self) -> Result<AskedRecording> {
        let stacks = match self.no_stacks {
            true => None,
            false => Some(self.budget_of_stacks()?),
        };
        match self.backend {
            // Perf events tell no spans.
            BackendChoice::Auto if !self.span.is_empty() => self.trace(TraceBy::Ebpf { stacks }),
            BackendChoice::Auto => self.trace(TraceBy::Auto { stacks }),
            BackendChoice::Ebpf => self.trace(TraceBy::Ebpf { stacks }),
            BackendChoice::Perf => self.trace(TraceBy::Perf { stacks }),
            BackendChoice::Proc => Ok(AskedRecording::Counters {
                target: self.target()?,
                duration: self.duration,
            }),
        }
    }

    fn budget_of_stacks(&self) -> Result<StackBudget> {
        let percent = self.stack_budget.unwrap_or(STACK_BUDGET_PCT);
        ensure!(
            (0.1..=100.0).contains(&percent),
            "--stack-budget {percent}%: give 0.1% to 100% of one CPU, or --no-stacks"
        );
        // As whole thousandths, of which there are 1 to 1000.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is in this range"
        )]
        let cpu_thousandths = (percent * 10.0).round() as u32;
        Ok(StackBudget { cpu_thousandths })
    }

    fn trace(&self, by: TraceBy) -> Result<AskedRecording> {
        Ok(AskedRecording::Trace(RecordRequest {
            capture: self.capture()?,
            by,
            output: self.output.clone(),
            duration: self.duration,
            with_parent: self.with_parent,
            spans: self.span.clone(),
        }))
    }

    fn capture(&self) -> Result<CaptureRequest> {
        let request = capture_with(self.target()?, &self.without_hook, &self.with_hook)?;
        Ok(CaptureRequest {
            buffer: self.buffer,
            ..request
        })
    }

    fn target(&self) -> Result<Target> {
        if self.all {
            Ok(Target::All)
        } else if let Some(target) = running(&self.pid, self.no_children, &self.cgroup) {
            Ok(target)
        } else if !self.command.is_empty() {
            Ok(Target::Command(self.command.clone()))
        } else {
            bail!(
                "nothing to record is named: give a command after --, -p PID, --cgroup PATH or -a"
            )
        }
    }
}

/// What runs already: the processes of `-p`, or the cgroups of `--cgroup`; `None` if neither was named.
pub fn running(pids: &[Pid], no_children: bool, cgroups: &[PathBuf]) -> Option<Target> {
    if !pids.is_empty() {
        return Some(Target::Processes {
            pids: pids.to_vec(),
            children: match no_children {
                true => Children::LeftOut,
                false => Children::Recorded,
            },
        });
    }
    (!cgroups.is_empty()).then(|| Target::Cgroups(cgroups.to_vec()))
}

/// A capture with the default buffer.
///
/// # Errors
/// When a hook is not known.
pub fn capture_with(target: Target, without: &[String], with: &[String]) -> Result<CaptureRequest> {
    for hook in with {
        ensure!(
            HOOKS.iter().any(|known| known.name == hook),
            "--with-hook {hook}: no such hook; swtch doctor lists them"
        );
    }
    Ok(CaptureRequest {
        target,
        buffer: None,
        without_hooks: without.to_vec(),
        with_hooks: with.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Cli, Verb};
    use super::*;

    fn asked(words: &[&str]) -> Result<AskedRecording, String> {
        let cli = Cli::parse_from(["swtch"].iter().chain(words));
        let recording = match cli.verb {
            Verb::Record(words) => words.to_recording(),
            Verb::Explain(words) => words.to_recording(),
            _ => panic!("{words:?}"),
        };
        recording.map_err(|error| error.to_string())
    }

    #[test]
    fn what_comes_after_the_dashes_is_the_command() {
        let Ok(AskedRecording::Trace(request)) =
            asked(&["record", "-o", "x", "--", "ls", "-p", "1"])
        else {
            panic!("a trace")
        };
        let Target::Command(words) = request.capture.target else {
            panic!("{request:?}")
        };
        assert_eq!(words, ["ls", "-p", "1"]);
    }

    /// Perf events may take the place of eBPF programs only where all that is asked for can be had of them.
    #[test]
    fn a_trace_is_made_by_what_can_hold_what_is_asked_for() {
        let by = |words: &[&str]| match asked(words) {
            Ok(AskedRecording::Trace(request)) => format!("{:?}", request.by),
            other => format!("{other:?}"),
        };
        let by_default = "Auto { stacks: Some(StackBudget { cpu_thousandths: 10 }) }";
        assert_eq!(by(&["record", "-a"]), by_default);
        assert_eq!(by(&["explain", "-p", "1"]), by_default);
        assert_eq!(
            by(&["record", "-a", "--no-stacks"]),
            "Auto { stacks: None }"
        );
        let with_budget = by(&["record", "-a", "--stack-budget", "2.5%"]);
        assert_eq!(
            with_budget,
            "Auto { stacks: Some(StackBudget { cpu_thousandths: 25 }) }"
        );
        let ebpf = by(&["explain", "--backend", "ebpf", "--no-stacks", "-a"]);
        assert_eq!(ebpf, "Ebpf { stacks: None }");
        let perf = by(&["record", "--backend", "perf", "-p", "1"]);
        assert!(perf.starts_with("Perf { stacks: Some("), "{perf}");
        let ring = by(&["record", "-a", "--ring", "5m"]);
        assert!(ring.starts_with("Ring("), "{ring}");
        let counters = by(&["explain", "--backend", "proc", "-p", "1"]);
        assert!(counters.starts_with("Ok(Counters"), "{counters}");
        let summary = by(&["record", "--summary", "-a"]);
        assert!(summary.starts_with("Ok(Summary"), "{summary}");
    }

    #[test]
    fn what_cannot_be_had_together_is_refused_by_the_option_that_can_go() {
        for (words, says) in [
            (&["record", "--summary", "-o", "x"][..], "into -o"),
            (
                &["record", "--summary", "--stack-budget=2"],
                "leave out --stack-budget",
            ),
            (
                &["record", "--summary", "--backend", "proc"],
                "leave out --backend",
            ),
            (
                &["record", "--ring", "5m", "--stack-budget=2"],
                "leave out --stack-budget",
            ),
            (
                &["record", "--ring", "5m", "--backend", "perf"],
                "leave out --backend",
            ),
            (&["record", "--backend", "proc"], "explain --backend proc"),
            (
                &["explain", "--backend", "proc", "--stack-budget=2"],
                "leave out --stack-budget",
            ),
            (&["explain", "--backend", "proc", "-o", "x"], "leave it out"),
            (&["record", "--stack-budget", "0"], "or --no-stacks"),
        ] {
            let refusal = asked(&[words, &["--", "true"]].concat()).unwrap_err();
            assert!(refusal.contains(says), "{words:?}: {refusal}");
        }
        let all = asked(&["explain", "--backend", "proc", "-a"]).unwrap_err();
        assert!(all.contains("for tasks only"), "{all}");
        let nothing = asked(&["record"]).unwrap_err();
        assert!(nothing.contains("nothing to record"), "{nothing}");
        let hook = asked(&["record", "-a", "--with-hook", "x"]).unwrap_err();
        assert!(hook.contains("no such hook"), "{hook}");
    }
}

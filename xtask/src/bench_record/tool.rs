//! The recorders: how each is started, and what can be learnt about its recording afterwards.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::benchmark::Benchmark;

/// An arm of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    Bare,
    /// Nothing records, once more: its ratio to `Bare` is the noise of the machine.
    BareAgain,
    /// `swtch record`: every switch with reason and waker.
    Swtch,
    /// `swtch record --stacks`: also the stacks of blocked switches.
    SwtchStacks,
    /// `swtch record --summary`: counts in the kernel, and no trace.
    SwtchSummary,
    /// `perf sched record`: every scheduler event, without analysis.
    PerfSched,
    /// Histogram of run-queue latency in the kernel (libbpf-tools).
    Runqlat,
    /// Off-CPU time by stack in the kernel (libbpf-tools).
    Offcputime,
}

/// How a tool and a benchmark are run together.
#[derive(Debug, PartialEq, Eq)]
pub enum ToolInvocation {
    /// The benchmark runs without a tool.
    Alone,
    /// The tool, with these arguments, starts the command that follows them.
    Around(Vec<String>),
    /// The tool runs beside the benchmark and ends on SIGINT.
    Beside(Vec<String>),
}

/// What a finished recording holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingTotals {
    pub switches: u64,
    /// Its size on disk when it is finished.
    pub bytes: u64,
    /// The losses that the tool reports.
    pub lost: Lost,
}

/// Losses in the tool's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    pub count: u64,
    /// The unit: switches, or perf's chunks and samples, which say less.
    pub unit: &'static str,
}

impl Tool {
    /// How the tool is run with a benchmark; its recording goes to `output`.
    pub fn way(self, programs: &RecorderPaths, output: &Path) -> ToolInvocation {
        let output = output.to_string_lossy().into_owned();
        let words = |program: &Path, words: &[&str]| {
            let program = program.to_string_lossy().into_owned();
            [program]
                .into_iter()
                .chain(words.iter().map(|&word| word.to_owned()))
                .collect()
        };
        match self {
            Self::Bare | Self::BareAgain => ToolInvocation::Alone,
            Self::Swtch => {
                ToolInvocation::Around(words(programs.swtch(), &["record", "-o", &output, "--"]))
            }
            Self::SwtchStacks => ToolInvocation::Around(words(
                programs.swtch(),
                &["record", "--stacks", "-o", &output, "--"],
            )),
            Self::SwtchSummary => {
                ToolInvocation::Around(words(programs.swtch(), &["record", "--summary", "--"]))
            }
            Self::PerfSched => ToolInvocation::Around(words(
                &programs.perf,
                &["sched", "record", "-o", &output, "--"],
            )),
            Self::Runqlat => ToolInvocation::Beside(words(programs.libbpf(self), &[])),
            Self::Offcputime => ToolInvocation::Beside(words(programs.libbpf(self), &[])),
        }
    }

    /// Reads what the finished recording at `output` holds; `None` for a tool that keeps none. The
    /// file `talk` has the messages of the tool.
    ///
    /// # Errors
    /// When there is no recording, or it does not say what it holds.
    pub fn recorded(
        self,
        programs: &RecorderPaths,
        output: &Path,
        talk: &Path,
    ) -> Result<Option<RecordingTotals>> {
        match self {
            Self::Swtch | Self::SwtchStacks => swtch_recorded(output).map(Some),
            Self::PerfSched => perf_recorded(&programs.perf, output, talk).map(Some),
            Self::Bare
            | Self::BareAgain
            | Self::SwtchSummary
            | Self::Runqlat
            | Self::Offcputime => Ok(None),
        }
    }

    /// True if it records the benchmark alone, so that its count must equal the kernel's count.
    pub fn records_the_command_only(self) -> bool {
        matches!(self, Self::Swtch | Self::SwtchStacks)
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bare => "bare",
            Self::BareAgain => "bare again",
            Self::Swtch => "swtch record",
            Self::SwtchStacks => "swtch record --stacks",
            Self::SwtchSummary => "swtch record --summary",
            Self::PerfSched => "perf sched record",
            Self::Runqlat => "runqlat",
            Self::Offcputime => "offcputime",
        })
    }
}

/// What the finished trace of `swtch` holds.
///
/// # Errors
/// When a file of it cannot be read.
pub fn swtch_recorded(trace: &Path) -> Result<RecordingTotals> {
    let path = trace.join("meta.json");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let meta: Value = serde_json::from_str(&text).context("reading meta.json")?;
    let count = |name: &str| {
        meta["counts"][name]
            .as_u64()
            .with_context(|| format!("meta.json has no counts.{name}"))
    };
    Ok(RecordingTotals {
        switches: count("stored")?,
        bytes: bytes_in(trace)?,
        lost: Lost {
            count: count("lost")?,
            unit: "switches",
        },
    })
}

fn bytes_in(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            bytes_in(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}

fn perf_recorded(perf: &Path, data: &Path, talk: &Path) -> Result<RecordingTotals> {
    let output = Command::new(perf)
        .args(["report", "--stats", "-i"])
        .arg(data)
        .output()
        .context("starting perf report")?;
    ensure!(
        output.status.success(),
        "perf report: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let stats = String::from_utf8_lossy(&output.stdout);
    let said = fs::read_to_string(talk).context("reading what perf said")?;
    Ok(RecordingTotals {
        switches: switches_in(&stats).context("perf report --stats tells no sched_switch")?,
        bytes: fs::metadata(data)?.len(),
        lost: lost_by_perf(&said),
    })
}

/// The number of `sched_switch` samples in what `perf report --stats` prints.
fn switches_in(stats: &str) -> Option<u64> {
    let mut lines = stats
        .lines()
        .skip_while(|line| !line.starts_with("sched:sched_switch stats:"));
    lines.next()?;
    lines.next()?.split_whitespace().last()?.parse().ok()
}

/// perf prints `lost 3 chunks!` or `lost 12 samples`, and nothing when nothing was lost.
fn lost_by_perf(stderr: &str) -> Lost {
    let words: Vec<&str> = stderr.split_whitespace().collect();
    let said = words.windows(3).find_map(|three| match three {
        ["lost", count, unit] => Some((count.parse().ok()?, *unit)),
        _ => None,
    });
    match said {
        Some((count, unit)) if unit.starts_with("chunk") => Lost {
            count,
            unit: "chunks",
        },
        Some((count, _)) => Lost {
            count,
            unit: "samples",
        },
        None => Lost {
            count: 0,
            unit: "chunks",
        },
    }
}

/// Paths of the programs; `None` for one that is not measured or not installed.
#[derive(Debug)]
pub struct RecorderPaths {
    /// The path of `perf`, which is both benchmark and peer.
    pub perf: PathBuf,
    swtch: Option<PathBuf>,
    runqlat: Option<PathBuf>,
    offcputime: Option<PathBuf>,
}

impl RecorderPaths {
    /// Finds each program; `swtch` is the given path or the file beside this program.
    ///
    /// # Errors
    /// Without perf or taskset, or without swtch unless only the peers are asked for.
    pub fn find(swtch: Option<&Path>, peers_only: bool) -> Result<Self> {
        let perf = installed("perf")
            .context("no perf: install linux-perf (Debian) or linux-tools-generic (Ubuntu)")?;
        installed("taskset").context("no taskset: install util-linux")?;
        let swtch = if peers_only {
            None
        } else {
            Some(find_swtch(swtch)?)
        };
        let (runqlat, offcputime) = (installed("runqlat"), installed("offcputime"));
        Ok(Self {
            perf,
            swtch,
            runqlat,
            offcputime,
        })
    }

    /// The peers that are not installed, with the package that has them.
    pub fn missing(&self) -> Vec<&'static str> {
        let peers = [
            (&self.runqlat, "runqlat (package libbpf-tools)"),
            (&self.offcputime, "offcputime (package libbpf-tools)"),
        ];
        peers
            .into_iter()
            .filter(|(path, _)| path.is_none())
            .map(|(_, name)| name)
            .collect()
    }

    /// The arms of a benchmark, bare first. `Storm` tests the recorder and has no other arm than
    /// swtch.
    pub fn tools_for(&self, benchmark: Benchmark) -> Vec<Tool> {
        let has_swtch = self.swtch.is_some();
        let arms = [
            (Tool::Bare, true),
            (Tool::BareAgain, true),
            (Tool::Swtch, has_swtch),
            (Tool::SwtchStacks, has_swtch),
            (Tool::SwtchSummary, has_swtch),
            (Tool::PerfSched, true),
            (Tool::Runqlat, self.runqlat.is_some()),
            (Tool::Offcputime, self.offcputime.is_some()),
        ];
        arms.into_iter()
            .filter(|&(tool, is_here)| {
                is_here && (benchmark != Benchmark::Storm || tool == Tool::Swtch)
            })
            .map(|(tool, _)| tool)
            .collect()
    }

    /// The programs whose versions belong to the numbers.
    pub fn with_versions(&self) -> impl Iterator<Item = &Path> {
        [Some(self.perf.as_path()), self.swtch_path()]
            .into_iter()
            .flatten()
    }

    /// The path of the swtch to measure; `None` if it is not measured.
    pub fn swtch_path(&self) -> Option<&Path> {
        self.swtch.as_deref()
    }

    fn swtch(&self) -> &Path {
        self.swtch_path()
            .expect("arms of swtch exist only when swtch was found")
    }

    fn libbpf(&self, tool: Tool) -> &Path {
        let path = if tool == Tool::Runqlat {
            &self.runqlat
        } else {
            &self.offcputime
        };
        path.as_deref()
            .expect("an arm exists only when its tool was found")
    }
}

/// The given swtch, or the one beside this program.
///
/// # Errors
/// When there is none.
pub fn find_swtch(said: Option<&Path>) -> Result<PathBuf> {
    let path = match said {
        Some(path) => path.to_owned(),
        None => env::current_exe()?.with_file_name("swtch"),
    };
    ensure!(
        path.is_file(),
        "no swtch at {}: cargo build --release -p swtch, or --swtch PATH",
        path.display()
    );
    Ok(path)
}

/// Searches `PATH` and the directories of system programs, which sudo may leave out.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of perf 6.1.
    const STATS: &str = "
Aggregated stats:
           TOTAL events:     140457
          SAMPLE events:     140125  (99.8%)
sched:sched_switch stats:
          SAMPLE events:      60025
sched:sched_stat_runtime stats:
          SAMPLE events:      40082
";

    #[test]
    fn only_samples_of_sched_switch_are_switches() {
        assert_eq!(switches_in(STATS), Some(60_025));
        assert_eq!(switches_in("Aggregated stats:\n"), None);
    }

    #[test]
    fn lost_chunks_are_read_from_perfs_warning() {
        let warning =
            "Warning:\nProcessed 1007272 events and lost 3 chunks!\n\nCheck IO/CPU overload!";
        assert_eq!(
            lost_by_perf(warning),
            Lost {
                count: 3,
                unit: "chunks"
            }
        );
        assert_eq!(lost_by_perf("[ perf record: Woken up 8 times ]").count, 0);
    }

    #[test]
    fn trace_is_counted_with_all_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let meta = r#"{"counts":{"stored":10,"lost":2}}"#;
        fs::write(dir.path().join("meta.json"), meta).unwrap();
        fs::create_dir(dir.path().join("switch")).unwrap();
        fs::write(dir.path().join("switch/0.parquet"), [0; 100]).unwrap();
        let recorded = swtch_recorded(dir.path()).unwrap();
        assert_eq!(recorded.switches, 10);
        assert_eq!(recorded.bytes, 100 + meta.len() as u64);
        assert_eq!(recorded.lost.count, 2);
    }

    #[test]
    fn trace_without_counts_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("meta.json"), r#"{"counts":{"stored":10}}"#).unwrap();
        let error = swtch_recorded(dir.path()).unwrap_err();
        assert!(error.to_string().contains("counts.lost"), "{error}");
    }

    #[test]
    fn storm_is_run_under_swtch_only() {
        let programs = |swtch: Option<&str>| RecorderPaths {
            perf: "perf".into(),
            swtch: swtch.map(PathBuf::from),
            runqlat: Some("runqlat".into()),
            offcputime: None,
        };
        assert_eq!(
            programs(Some("swtch")).tools_for(Benchmark::Storm),
            [Tool::Swtch]
        );
        assert_eq!(programs(None).tools_for(Benchmark::Storm), []);
        assert_eq!(
            programs(None).tools_for(Benchmark::Pipe),
            [Tool::Bare, Tool::BareAgain, Tool::PerfSched, Tool::Runqlat]
        );
    }
}

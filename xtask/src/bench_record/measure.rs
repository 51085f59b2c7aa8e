//! One run of a benchmark under a tool.
//!
//! The benchmark's CPU time comes from `xtask cputime` around it; the tool's is what all children
//! used minus that. In bare runs this difference is the floor (the wrapper itself, 1 to 2 ms). The
//! tool's peak memory is its own `VmHWM`, read while it runs: the kernel's `ru_maxrss` of a child
//! would be the maximum over the child and its children.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use tempfile::TempDir;

use super::benchmark::Benchmark;
use super::tool::{RecorderPaths, RecordingTotals, Tool, ToolInvocation};
use crate::cputime::{CpuTime, cpu_ns_of_children};

/// Time for a tool that runs beside the benchmark to attach (libbpf-tools take 0.3 s here).
const TIME_TO_ATTACH: Duration = Duration::from_secs(1);

/// A process that is interrupted gets this long before it is killed.
const TIME_TO_END: Duration = Duration::from_secs(2);

/// Pause between two readings of a running tool's memory.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The measurements of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunMeasurements {
    /// CPU time, wall time and switches of the benchmark itself.
    pub benchmark: CpuTime,
    pub tool_cpu_ns: u64,
    /// Peak memory of the tool; `None` when bare.
    pub tool_peak_rss_bytes: Option<u64>,
    /// What was recorded; `None` for a tool that keeps no recording.
    pub recorded: Option<RecordingTotals>,
}

impl RunMeasurements {
    /// The run as an entry of `runs` in the JSON file.
    pub fn to_json(self) -> Value {
        json!({
            "benchmark_cpu_ns": self.benchmark.cpu_ns,
            "benchmark_wall_ns": self.benchmark.wall_ns,
            "benchmark_switches": self.benchmark.switches,
            "tool_cpu_ns": self.tool_cpu_ns,
            "tool_peak_rss_bytes": self.tool_peak_rss_bytes,
            "recorded_switches": self.recorded.map(|recorded| recorded.switches),
            "recorded_bytes": self.recorded.map(|recorded| recorded.bytes),
            "lost": self.recorded.map(|recorded| recorded.lost.count),
            "lost_unit": self.recorded.map(|recorded| recorded.lost.unit),
        })
    }
}

/// Runs benchmarks under tools. Each run has a temporary directory for its recording.
#[derive(Debug)]
pub struct Measurer<'a> {
    programs: &'a RecorderPaths,
    quick: bool,
    myself: PathBuf,
    /// Set by Ctrl-C and SIGTERM, so that temporary directories are removed before the program
    /// ends.
    interrupted: Arc<AtomicBool>,
}

impl<'a> Measurer<'a> {
    /// From now on Ctrl-C makes the current run fail, instead of killing this process.
    ///
    /// # Errors
    /// When the signals cannot be caught.
    pub fn new(programs: &'a RecorderPaths, quick: bool) -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        Ok(Self {
            programs,
            quick,
            myself: std::env::current_exe()?,
            interrupted,
        })
    }

    /// Runs `benchmark` once under `tool`.
    ///
    /// # Errors
    /// When either fails, or on Ctrl-C.
    pub fn measure(&self, benchmark: Benchmark, tool: Tool) -> Result<RunMeasurements> {
        let room = RunDirectory::new()?;
        let command = self.benchmark_command(benchmark, &room);
        let before = cpu_ns_of_children()?;
        let peak = match tool.way(self.programs, &room.recording()) {
            ToolInvocation::Alone => {
                MonitoredChild::start(&command, &room.talk("benchmark"))?
                    .finish(&self.interrupted)?;
                None
            }
            ToolInvocation::Around(words) => {
                let words = [words, command].concat();
                Some(MonitoredChild::start(&words, &room.talk("tool"))?.finish(&self.interrupted)?)
            }
            ToolInvocation::Beside(words) => Some(self.run_beside(&words, &command, &room)?),
        };
        let all = cpu_ns_of_children()? - before;
        let benchmark = CpuTime::read(&room.used())?;
        Ok(RunMeasurements {
            benchmark,
            tool_cpu_ns: all.saturating_sub(benchmark.cpu_ns),
            tool_peak_rss_bytes: peak,
            recorded: tool.recorded(self.programs, &room.recording(), &room.talk("tool"))?,
        })
    }

    fn benchmark_command(&self, benchmark: Benchmark, room: &RunDirectory) -> Vec<String> {
        let used = room.used();
        let wrapper = [
            self.myself.as_path(),
            Path::new("cputime"),
            &used,
            Path::new("--"),
        ];
        let mut words = wrapper
            .map(|word| word.to_string_lossy().into_owned())
            .to_vec();
        let swtch = self.programs.swtch_path();
        words.extend(benchmark.command(self.quick, &self.programs.perf, swtch));
        words
    }

    /// Starts the tool before the benchmark, and interrupts it afterwards.
    fn run_beside(&self, tool: &[String], command: &[String], room: &RunDirectory) -> Result<u64> {
        let mut tool = MonitoredChild::start(tool, &room.talk("tool"))?;
        thread::sleep(TIME_TO_ATTACH);
        ensure!(
            tool.is_running()?,
            "the tool ended before the benchmark: {}",
            tool.said()
        );
        MonitoredChild::start(command, &room.talk("benchmark"))?.finish(&self.interrupted)?;
        tool.look_at_memory();
        tool.interrupt()?;
        tool.finish(&self.interrupted)
    }
}

/// A temporary directory with the files of one run, removed when this is dropped.
#[derive(Debug)]
struct RunDirectory(TempDir);

impl RunDirectory {
    fn new() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("swtch-bench-").tempdir();
        directory.map(Self).context("making a temporary directory")
    }

    /// The path for the tool's recording. Nothing is there yet: swtch overwrites nothing.
    fn recording(&self) -> PathBuf {
        self.0.path().join("recording.swtch")
    }

    fn used(&self) -> PathBuf {
        self.0.path().join("used.json")
    }

    /// The file with the messages of `who` on stderr.
    fn talk(&self, who: &str) -> PathBuf {
        self.0.path().join(format!("{who}.stderr"))
    }
}

/// A child process. Dropping this ends it.
#[derive(Debug)]
struct MonitoredChild {
    program: String,
    child: Child,
    talk: PathBuf,
    peak_rss_bytes: u64,
}

impl MonitoredChild {
    fn start(words: &[String], talk: &Path) -> Result<Self> {
        let (program, arguments) = words.split_first().context("no words to run")?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(talk)?)
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        Ok(Self {
            program: program.clone(),
            child,
            talk: talk.to_owned(),
            peak_rss_bytes: 0,
        })
    }

    /// Waits for the process to end, and reads its memory meanwhile. Returns the peak in bytes.
    fn finish(mut self, interrupted: &AtomicBool) -> Result<u64> {
        loop {
            if interrupted.load(Ordering::Relaxed) {
                // Dropping `self` kills the process; the recording goes with the temporary
                // directory.
                bail!("interrupted");
            }
            self.look_at_memory();
            if let Some(status) = self.ended()? {
                ensure!(
                    status.success(),
                    "{}: {status}\n{}",
                    self.program,
                    self.said()
                );
                return Ok(self.peak_rss_bytes);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .with_context(|| format!("waiting for {}", self.program))
    }

    fn is_running(&mut self) -> Result<bool> {
        Ok(self.ended()?.is_none())
    }

    fn interrupt(&self) -> Result<()> {
        let pid =
            i32::try_from(self.child.id()).expect("the kernel's process ids are positive ints");
        kill(Pid::from_raw(pid), Signal::SIGINT).with_context(|| format!("ending {}", self.program))
    }

    /// A process that has just ended has no memory any more: the reading before counts.
    fn look_at_memory(&mut self) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let peak = status
            .ok()
            .and_then(|status| peak_rss_bytes(&status))
            .unwrap_or(0);
        self.peak_rss_bytes = self.peak_rss_bytes.max(peak);
    }

    /// The last lines of its messages.
    fn said(&self) -> String {
        let text = fs::read_to_string(&self.talk).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for MonitoredChild {
    /// After an error or Ctrl-C: first with SIGINT, on which a recorder ends its command and
    /// detaches. A signal that cannot be sent means that the process has ended, which is what is
    /// wanted.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let _ = self.interrupt();
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < TIME_TO_END {
            thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses `VmHWM` of `/proc/PID/status` (`man 5 proc_pid_status`), which is in KiB.
fn peak_rss_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn peak_is_read_in_kib() {
        assert_eq!(
            peak_rss_bytes("Name:\tx\nVmHWM:\t    12 kB\nVmRSS:\t 8 kB\n"),
            Some(12_288)
        );
        assert_eq!(peak_rss_bytes("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn process_does_not_outlive_its_handle() {
        let room = RunDirectory::new().unwrap();
        let running = MonitoredChild::start(&words("sleep 60"), &room.talk("tool")).unwrap();
        let pid = Pid::from_raw(i32::try_from(running.child.id()).unwrap());
        assert!(kill(pid, None).is_ok());
        drop(running);
        assert!(kill(pid, None).is_err());
    }

    /// A recorder that catches SIGINT and goes on must not outlive the measurement.
    #[test]
    fn process_that_ignores_sigint_is_killed() {
        let room = RunDirectory::new().unwrap();
        let stubborn = ["sh", "-c", "trap '' INT; exec sleep 60"].map(str::to_owned);
        let running = MonitoredChild::start(&stubborn, &room.talk("tool")).unwrap();
        let pid = Pid::from_raw(i32::try_from(running.child.id()).unwrap());
        thread::sleep(Duration::from_millis(200));
        drop(running);
        assert!(kill(pid, None).is_err());
    }

    #[test]
    fn directory_of_a_run_is_removed() {
        let room = RunDirectory::new().unwrap();
        let path = room.0.path().to_owned();
        fs::write(room.recording(), "x").unwrap();
        drop(room);
        assert!(!path.exists());
    }

    #[test]
    fn failing_process_is_an_error_with_what_it_said() {
        let room = RunDirectory::new().unwrap();
        let running =
            MonitoredChild::start(&words("ls /no/such/file"), &room.talk("tool")).unwrap();
        let error = running.finish(&AtomicBool::new(false)).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/file"), "{error:#}");
    }

    #[test]
    fn interrupt_ends_the_process_at_once() {
        let room = RunDirectory::new().unwrap();
        let running = MonitoredChild::start(&words("sleep 60"), &room.talk("tool")).unwrap();
        let pid = Pid::from_raw(i32::try_from(running.child.id()).unwrap());
        assert!(running.finish(&AtomicBool::new(true)).is_err());
        assert!(kill(pid, None).is_err());
    }
}

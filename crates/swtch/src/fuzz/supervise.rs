//! Starts workers, watches them, and reports at the end what was found.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use swtch_core::ProcessStat;
use tempfile::TempDir;

use super::FuzzTarget;
use super::worker::{self, FuzzJob, Progress};

/// The time that a run takes unless `make fuzz` asks for more.
const SHORT: Duration = Duration::from_secs(3);

/// An input that takes more CPU time than this counts as a hang.
const MOST_CPU: Duration = Duration::from_secs(10);

/// An input that takes longer than this without using the CPU counts as a hang, too. The limit is
/// large because other work on the machine may delay it.
const MOST_TIME: Duration = Duration::from_secs(120);

/// Time between two looks at the worker.
const LOOK: Duration = Duration::from_millis(50);

/// A long run reports its state this often.
const TELL: Duration = Duration::from_secs(60);

/// Ticks of `/proc/PID/stat` in a second: `USER_HZ`, which is 100 on every architecture of Linux
/// that this program runs on.
const TICKS_PER_SECOND: u64 = 100;

/// Environment variables with which `make fuzz` asks for a longer or another run.
const SECONDS: &str = "SWTCH_FUZZ_SECONDS";
const SEED: &str = "SWTCH_FUZZ_SEED";
const INPUT: &str = "SWTCH_FUZZ_INPUT";

/// The way in which an input made the code under test fail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FuzzFailure {
    /// A panic, with its place in the source.
    Panic(String),
    /// It took longer than [`MOST_CPU`] or [`MOST_TIME`].
    Hang,
    /// It asked for more memory than [`worker::MOST_MEMORY`].
    OutOfMemory,
    /// The process ended in another way, such as by a stack overflow.
    Death(String),
}

impl fmt::Display for FuzzFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic(place) => write!(f, "panic at {place}"),
            Self::Hang => f.write_str("hang"),
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::Death(how) => write!(f, "death: {how}"),
        }
    }
}

/// The results of a run so far.
#[derive(Debug, Default)]
struct FuzzResults {
    executions: u64,
    faults: BTreeMap<FuzzFailure, (u64, Vec<PathBuf>)>,
    slowest: Duration,
    peak_rss_bytes: u64,
}

impl FuzzResults {
    fn count(&self, is_meant: impl Fn(&FuzzFailure) -> bool) -> u64 {
        let counts = self.faults.iter().filter(|(fault, _)| is_meant(fault));
        counts.map(|(_, (count, _))| count).sum()
    }

    fn print_faults(&self) {
        for (fault, (count, inputs)) in &self.faults {
            println!("  {count} x {fault}");
            for input in inputs {
                println!("    {}", input.display());
            }
        }
    }

    fn add(&mut self, fault: FuzzFailure, count: u64, input: Option<PathBuf>) {
        let found = self.faults.entry(fault).or_default();
        found.0 += count;
        found.1.extend(input);
    }
}

impl fmt::Display for FuzzResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            executions,
            slowest,
            peak_rss_bytes,
            ..
        } = self;
        let panics = self.count(|fault| matches!(fault, FuzzFailure::Panic(_)));
        let hangs = self.count(|fault| matches!(fault, FuzzFailure::Hang));
        let starved = self.count(|fault| matches!(fault, FuzzFailure::OutOfMemory));
        let deaths = self.count(|fault| matches!(fault, FuzzFailure::Death(_)));
        write!(
            f,
            "{executions} executions, {panics} panics, {hangs} hangs, {starved} out of memory, {deaths} other \
             deaths, slowest {:.2} s of CPU, peak RSS {} MB",
            slowest.as_secs_f64(),
            peak_rss_bytes / 1_000_000
        )
    }
}

/// Runs a target for the time that was asked for. In a worker process, runs the worker's job
/// instead.
///
/// # Panics
/// When an input was found at which the code under test fails.
pub fn supervise(target: FuzzTarget) {
    if let Some(job) = FuzzJob::from_environment() {
        worker::run(target, &job);
        return;
    }
    let number = |name| env::var(name).ok().map(|text| parsed(name, &text));
    let length = number(SECONDS).map_or(SHORT, Duration::from_secs);
    let seed = number(SEED).unwrap_or(1);
    let input = env::var_os(INPUT).map(PathBuf::from);
    let found = found_inputs(target);
    let directory = scratch();
    let job = FuzzJob {
        directory: directory.path().to_owned(),
        found,
        seed,
        first: 0,
        length,
        input,
    };
    let tally = run(target, job);
    println!("{}: seed {seed}: {tally}", target.as_str());
    tally.print_faults();
    assert!(
        tally.faults.is_empty(),
        "{}: the inputs are kept",
        target.as_str()
    );
}

fn parsed(name: &str, text: &str) -> u64 {
    text.parse()
        .unwrap_or_else(|_| panic!("{name} must be a number, not {text}"))
}

/// A scratch directory, in memory where possible: an hour of inputs would wear a disk.
fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = tempfile::Builder::new().prefix("swtch-fuzz-").tempdir_in(
        match fs::metadata(memory).is_ok() {
            true => memory.to_owned(),
            false => env::temp_dir(),
        },
    );
    made.expect("a temporary directory can be made")
}

/// The directory for inputs that fail: `target/fuzz/TARGET`, found from this program's path.
fn found_inputs(target: FuzzTarget) -> PathBuf {
    let program = env::current_exe().expect("the system names the running program");
    let build = program.ancestors().nth(3).unwrap_or(Path::new("."));
    build.join("fuzz").join(target.as_str())
}

fn run(target: FuzzTarget, mut job: FuzzJob) -> FuzzResults {
    let began = Instant::now();
    let mut tally = FuzzResults::default();
    let mut told = began;
    loop {
        let left = job.length.saturating_sub(began.elapsed());
        if left.is_zero() && job.first > 0 {
            return tally;
        }
        let progress = FuzzProcess::start(target, &job, left).watch(&job, &mut tally);
        job.first = progress.next.max(job.first);
        if job.input.is_some() {
            return tally;
        }
        if told.elapsed() > TELL {
            told = Instant::now();
            let seconds = began.elapsed().as_secs();
            println!("{}: after {seconds} s: {tally}", target.as_str());
            tally.print_faults();
        }
    }
}

/// A worker process that is running.
struct FuzzProcess {
    child: Child,
    /// The scratch directory, in which the worker writes its progress.
    directory: PathBuf,
}

impl FuzzProcess {
    fn start(target: FuzzTarget, job: &FuzzJob, left: Duration) -> Self {
        let directory = job.directory.clone();
        Progress::default().write(&directory);
        let errors = File::create(directory.join("stderr")).expect("a scratch file can be made");
        let program = env::current_exe().expect("the system names the running program");
        let mut command = Command::new(program);
        command
            .args(["--exact", &format!("fuzz::{}", target.as_str())])
            .args(["--nocapture", "--test-threads=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        let job = FuzzJob {
            length: left,
            ..job.clone()
        };
        job.to_environment(&mut command);
        Self {
            child: command.spawn().expect("this program can be started again"),
            directory,
        }
    }

    /// Waits for the worker to end, and returns how far it came.
    fn watch(mut self, job: &FuzzJob, tally: &mut FuzzResults) -> Progress {
        let mut seen = (u64::MAX, Instant::now(), Duration::ZERO);
        let (status, is_hang) = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break (status, false);
            }
            let pid = self.child.id();
            tally.peak_rss_bytes = tally.peak_rss_bytes.max(peak_rss_bytes(pid));
            let (now, cpu) = (Progress::read(&self.directory), cpu_time(pid));
            if now.next != seen.0 {
                seen = (now.next, Instant::now(), cpu);
            }
            // Before the first input the worker makes the corpus, which may take as long as an
            // input.
            if cpu.saturating_sub(seen.2) > MOST_CPU || seen.1.elapsed() > MOST_TIME {
                self.child.kill().expect("a child can be killed");
                let status = self.child.wait().expect("a child can be waited for");
                break (status, true);
            }
            thread::sleep(LOOK);
        };
        let mut progress = Progress::read(&self.directory);
        let fault = match is_hang {
            true => Some(FuzzFailure::Hang),
            false => self.fault(status),
        };
        if let Some(fault) = fault {
            let input = self.keep_input(job, &fault, progress.next);
            tally.add(fault, 1, input);
            progress.next += 1;
        }
        tally.executions += progress.executions;
        tally.slowest = tally
            .slowest
            .max(Duration::from_micros(progress.slowest_us));
        self.add_panics(job, tally);
        progress
    }

    /// The fault that ended the worker; `None` if it ended well.
    fn fault(&self, status: ExitStatus) -> Option<FuzzFailure> {
        if status.success() {
            return None;
        }
        let said = fs::read(self.directory.join("stderr")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        if said.contains("memory allocation of") {
            return Some(FuzzFailure::OutOfMemory);
        }
        let last = said.lines().last().unwrap_or_default();
        let how = match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("{status}"),
        };
        Some(FuzzFailure::Death(
            format!("{how} {last}").trim_end().to_owned(),
        ))
    }

    fn keep_input(&self, job: &FuzzJob, fault: &FuzzFailure, number: u64) -> Option<PathBuf> {
        let input = fs::read(self.directory.join("input")).ok()?;
        let word = match fault {
            FuzzFailure::Panic(_) => "panic",
            FuzzFailure::Hang => "hang",
            FuzzFailure::OutOfMemory => "memory",
            FuzzFailure::Death(_) => "death",
        };
        Some(job.keep(word, number, &input))
    }

    /// Adds the panics that the worker caught and wrote to a file: one line `FILE<tab>PLACE` for
    /// each.
    fn add_panics(&self, job: &FuzzJob, tally: &mut FuzzResults) {
        let list = self.directory.join("panics");
        let Ok(lines) = fs::read_to_string(&list) else {
            return;
        };
        for line in lines.lines() {
            let (file, place) = line.split_once('\t').unwrap_or(("", line));
            let input = (!file.is_empty()).then(|| job.found.join(file));
            tally.add(FuzzFailure::Panic(place.to_owned()), 1, input);
        }
        fs::remove_file(list).expect("a scratch file can be removed");
    }
}

/// User and system time of a process, from `/proc/PID/stat`.
fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks = ProcessStat::parse(&stat).and_then(|stat| stat.cpu_ticks());
    Duration::from_millis(ticks.unwrap_or(0) * 1000 / TICKS_PER_SECOND)
}

fn peak_rss_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

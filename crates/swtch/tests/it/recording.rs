//! Runs `swtch record` in a temporary directory and reads the trace.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use swtch_core::{Gap, Switch, TaskEvent, TaskEventKind, TaskKey};
use swtch_store::{Columns, Completeness, Counts, Meta, RecordingState, Trace};
use tempfile::TempDir;

use crate::machine::{TestProcess, wait_until};

/// The path of the program under test.
pub const SWTCH: &str = env!("CARGO_BIN_EXE_swtch");

/// The path of an example: cargo builds them together with the tests.
pub fn example(name: &str) -> PathBuf {
    let path = Path::new(SWTCH).with_file_name("examples").join(name);
    assert!(
        path.exists(),
        "cargo build -p swtch --examples makes {}",
        path.display()
    );
    path
}

/// A command `swtch` with these arguments, without the variables of `sudo`.
pub fn swtch<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Command {
    let mut command = Command::new(SWTCH);
    command.args(words);
    // Tests may run through sudo: without its variables the program takes itself for root's own.
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    command
}

/// The text that a run printed on stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("the program says only valid text")
}

/// The text that a run printed on stdout.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("the program says only valid text")
}

/// A temporary directory for a trace, removed with the test.
#[derive(Debug)]
pub struct TraceDir {
    dir: TempDir,
}

impl TraceDir {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// One of this user, who calls `sudo`.
    pub fn of(user: u32) -> Self {
        let place = Self::new();
        chown(place.dir(), Some(user), Some(user)).unwrap();
        place
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn trace(&self) -> PathBuf {
        self.dir().join("t.swtch")
    }

    /// `swtch record -o TRACE OPTIONS…`, ready to run here.
    pub fn record(&self, options: &[&str]) -> Command {
        let mut command = swtch(["record", "-o"]);
        command
            .arg(self.trace())
            .args(options)
            .current_dir(self.dir());
        command
    }

    /// Runs a script of the shell here, in a mount namespace of its own.
    pub fn run_with_own_mounts(&self, script: &str) -> Output {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--mount", "sh", "-c", script])
            .current_dir(self.dir());
        unshare.output().expect("unshare is part of util-linux")
    }
}

/// Starts a recorder and waits until it records.
pub fn start_recorder(place: &TraceDir, words: &[&str]) -> TestProcess {
    let recorder = TestProcess::start(&mut minding_signals(&place.record(words)));
    wait_until("the trace is there", || {
        place.trace().join("frame.arrows").exists()
    });
    // The signals are caught before the trace is made; the command is released just after that.
    thread::sleep(Duration::from_millis(100));
    recorder
}

/// The command with default signal actions, as if started at a terminal: `nohup` and the background
/// jobs of scripts pass ignored signals on, and a recorder passes them on to its command.
pub fn minding_signals(command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal=HUP,INT,TERM")
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(place) = command.get_current_dir() {
        env.current_dir(place);
    }
    env
}

/// The output and the trace of a recording that has ended.
#[derive(Debug)]
pub struct Recording {
    pub place: TraceDir,
    pub output: Output,
}

impl Recording {
    /// Records `words` (options, `--`, a command) to the end.
    pub fn of(words: &[&str]) -> Self {
        let place = TraceDir::new();
        let output = place.record(words).output().unwrap();
        Self { place, output }
    }

    /// Records `words` to the end; panics with the program's messages if it failed.
    pub fn that_succeeds(words: &[&str]) -> Self {
        let recording = Self::of(words);
        let output = &recording.output;
        assert!(output.status.success(), "{}", stderr(output));
        recording
    }

    /// Opens the trace; panics with the program's messages if there is none.
    pub fn read(&self) -> TraceContents {
        let trace = Trace::open(&self.place.trace());
        TraceContents::new(
            trace.unwrap_or_else(|error| panic!("{error}: {}", stderr(&self.output))),
        )
    }

    /// Runs `swtch report` on the trace of this recording.
    pub fn report(&self, words: &[&str]) -> Output {
        report(&self.place.trace(), words)
    }
}

/// The least memory that `--buffer` accepts on this machine.
pub fn least_buffer() -> String {
    let refused = Recording::of(&["--buffer", "1KB", "--", "true"]);
    assert_eq!(refused.output.status.code(), Some(2));
    let said = stderr(&refused.output);
    let least = said.split_once("which need ").expect(&said).1;
    format!("{}KB", least.split_once(" KB").expect(&said).0)
}

/// Runs `swtch report` on a trace, with these arguments.
pub fn report(trace: &Path, words: &[&str]) -> Output {
    let mut command = swtch(["report"]);
    command.arg(trace).args(words).output().unwrap()
}

/// The contents of a trace, all in memory.
#[derive(Debug)]
pub struct TraceContents {
    pub meta: Meta,
    pub completeness: Completeness,
    pub tasks: Vec<TaskEvent>,
    pub gaps: Vec<Gap>,
    pub switches: Vec<Switch>,
    /// The places in `tasks` of each thread's events: one of a million threads is not looked for among all.
    lives: HashMap<Ids, Vec<usize>>,
}

/// The ids of a thread: those of its process and of the thread itself.
pub type Ids = (u32, u32);

impl TraceContents {
    pub fn new(trace: Trace) -> Self {
        let mut switches = Vec::new();
        trace
            .scan(Columns::all(), None, &mut |switch| switches.push(*switch))
            .unwrap();
        // They come CPU by CPU: of a task that moved, an older event may come last.
        let mut tasks = trace.tasks().unwrap();
        tasks.sort_by_key(|event| event.ts);
        let mut lives: HashMap<Ids, Vec<usize>> = HashMap::new();
        for (place, event) in tasks.iter().enumerate() {
            let ids = (event.pid.get(), event.tid.get());
            lives.entry(ids).or_default().push(place);
        }
        Self {
            meta: trace.meta().clone(),
            completeness: trace.completeness(),
            tasks,
            gaps: trace.gaps().unwrap(),
            switches,
            lives,
        }
    }

    pub fn counts(&self) -> &Counts {
        &self.meta.counts
    }

    /// The moments of the first and the last row, in ns; panics if there is none.
    pub fn span_ns(&self) -> (u64, u64) {
        let moments = || self.switches.iter().map(|row| row.ts.as_ns());
        (moments().min().unwrap(), moments().max().unwrap())
    }

    /// The process and thread id of each task.
    pub fn identities(&self) -> BTreeMap<TaskKey, Ids> {
        let ids = |event: &TaskEvent| (event.task, (event.pid.get(), event.tid.get()));
        self.tasks.iter().map(ids).collect()
    }

    /// The rows of each thread in scope, in order of time.
    pub fn by_thread(&self) -> BTreeMap<Ids, Vec<&Switch>> {
        let ids = self.identities();
        let asked: BTreeMap<_, _> = self.tasks.iter().map(|t| (t.task, t.in_scope)).collect();
        let mut threads: BTreeMap<Ids, Vec<&Switch>> = BTreeMap::new();
        for switch in self
            .switches
            .iter()
            .filter(|row| asked.get(&row.task) == Some(&true))
        {
            threads.entry(ids[&switch.task]).or_default().push(switch);
        }
        threads
    }

    /// The recorded events of a thread's life.
    pub fn life_of(&self, ids: Ids) -> impl Iterator<Item = &TaskEvent> {
        let places = self.lives.get(&ids).into_iter().flatten();
        places.map(|&place| &self.tasks[place])
    }

    /// The number of rows from the first record of a thread to its exit, and what the kernel
    /// counted; `None` if its end is not in the trace. Ids are used again within a second where
    /// many threads start: each thread that had them is counted by itself.
    pub fn rows_and_kernel_count(&self, ids: Ids, rows: &[&Switch]) -> Option<(u64, u64)> {
        let tasks: BTreeSet<TaskKey> = self.life_of(ids).map(|event| event.task).collect();
        let ended = tasks
            .iter()
            .filter_map(|task| self.of_one(ids, *task, rows));
        ended.reduce(|sums, one| (sums.0 + one.0, sums.1 + one.1))
    }

    fn of_one(&self, ids: Ids, task: TaskKey, rows: &[&Switch]) -> Option<(u64, u64)> {
        let life = || self.life_of(ids).filter(|event| event.task == task);
        let total = |event: &TaskEvent| event.voluntary_switches + event.involuntary_switches;
        // A record that came late is stored where it came.
        let first = life().min_by_key(|event| event.ts)?;
        let exit = life().find(|event| event.kind == TaskEventKind::Exit)?;
        let between = rows
            .iter()
            .filter(|row| row.task == task && first.ts < row.ts && row.ts < exit.ts);
        let rows = u64::try_from(between.count()).unwrap();
        Some((rows, total(exit) - total(first)))
    }

    /// Panics unless every switch that was seen was stored, filtered out, or is in a gap.
    pub fn assert_accounted(&self) {
        let counts = self.counts();
        let went = counts.stored + counts.filtered + counts.lost + counts.unnamed;
        assert_eq!(counts.switches_seen, went, "{counts:?}");
        assert_eq!(self.switches.len(), usize::try_from(counts.stored).unwrap());
        let in_gaps: u64 = self.gaps.iter().map(|gap| gap.lost).sum();
        assert_eq!(in_gaps, counts.lost, "{:?}", self.gaps);
        assert_eq!(self.meta.state, RecordingState::Finished);
        assert_eq!(self.completeness, Completeness::Finished);
    }

    /// Panics unless every switch that was seen is accounted for and none is missing by the
    /// kernel's own count.
    pub fn assert_balanced(&self) {
        assert_eq!(self.imbalance(), [""; 0]);
        assert_eq!(self.meta.state, RecordingState::Finished);
        assert_eq!(self.completeness, Completeness::Finished);
    }

    /// The counts that do not add up; empty if the trace is complete.
    pub fn imbalance(&self) -> Vec<String> {
        let counts = self.counts();
        let went = counts.stored + counts.filtered + counts.lost;
        let rows = u64::try_from(self.switches.len()).unwrap();
        let checks = [
            ("lost", counts.lost, 0),
            ("unnamed", counts.unnamed, 0),
            ("not written", counts.storage_failed, 0),
            ("uncaught by the kernel's count", counts.uncaught, 0),
            (
                "seen, against stored + filtered + lost",
                counts.switches_seen,
                went,
            ),
            ("rows, against stored", rows, counts.stored),
        ];
        checks
            .into_iter()
            .filter(|(_, is, should)| is != should)
            .map(|(what, is, should)| format!("{is} {what}, not {should}"))
            .collect()
    }
}

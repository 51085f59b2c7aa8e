//! Judges traces of workloads: does each switch have the reason that follows from how its workload
//! is built? It is meant for traces from elsewhere, such as those of another kernel in a virtual
//! machine (`scripts/vm-test`).
//!
//! ```text
//! DIR/MODEL/SCOPE/trace.swtch      a recording, in which workloads ran one after another
//!                /ran              the names of these workloads
//!                /futex.outcome    what `swtch workload futex` printed
//!                /exit, talk       the recorder's exit code, and what it said
//!
//! cargo run -p swtch --example judge -- DIR         one line a recording; exit 1 when one is wrong
//!                                       --each      and one line a workload
//!                                       --rows      and the rows that no rule explains
//!                                       --head      the line above the table, too
//!                                       --rung WORDS    the first column
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use swtch_bench::{ReasonTally, WorkloadOutcome};
use swtch_core::evidence::Cause;
use swtch_core::{Certainty, Reason, Switch, TaskEvent, TaskKey};
use swtch_store::{Columns, Meta, Trace};

/// Share of a workload's rows whose reason must be right, in percent: where the kernel says who
/// asked for the CPU, and where that is inferred.
const RIGHT_PCT: u64 = 99;
const RIGHT_INFERRED_PCT: u64 = 95;

/// This many wrong rows are allowed in a workload that has few rows.
const FORGIVEN: u64 = 2;

/// The thread of the workload `sampler` that makes a cgroup of its own, below the root.
const MOVES: &str = "hog-on-quota";

/// Without this hook, causes of preemption are inferred.
const CAUSE_HOOK: &str = "sched_set_need_resched_tp";

/// Widths of the columns before the numbers: rung, model, scope.
const LABEL_WIDTHS: [usize; 3] = [12, 10, 8];

fn main() -> ExitCode {
    let judged =
        JudgeRequest::of_words(std::env::args().skip(1)).and_then(|request| judge(&request));
    match judged {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

#[derive(Default)]
struct JudgeRequest {
    dir: PathBuf,
    rung: String,
    with_head: bool,
    with_workloads: bool,
    with_rows: bool,
}

impl JudgeRequest {
    fn of_words(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut request = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--head" => request.with_head = true,
                "--each" => request.with_workloads = true,
                "--rows" => request.with_rows = true,
                "--rung" => request.rung = words.next().context("--rung needs words")?,
                dir if !dir.starts_with('-') => request.dir = dir.into(),
                _ => bail!("no option {word}; see the top of examples/judge.rs"),
            }
        }
        if request.dir.as_os_str().is_empty() {
            bail!("usage: judge [--head] [--each] [--rows] [--rung WORDS] DIR");
        }
        Ok(request)
    }
}

/// Judges every recording in the directory and prints the table. True if all of them are right.
fn judge(request: &JudgeRequest) -> Result<bool> {
    if request.with_head {
        print_labels(["kernel", "preempt", "scope"]);
        println!("{}  verdict", LineSums::HEAD);
    }
    let mut all_right = true;
    for model in dirs_in(&request.dir)? {
        for scope in dirs_in(&model)? {
            all_right &= judge_recording(request, &name_of(&model), &scope);
        }
    }
    Ok(all_right)
}

/// Judges one recording and prints its line, then what is wrong with it. A recording that cannot be
/// read counts as wrong, and the others are still judged.
fn judge_recording(request: &JudgeRequest, model: &str, dir: &Path) -> bool {
    print_labels([&request.rung, model, &name_of(dir)]);
    let recording = match JudgedTrace::read(dir) {
        Ok(recording) => recording,
        Err(error) => {
            println!("{}  WRONG", LineSums::default());
            println!("    WRONG {error:#}");
            return false;
        }
    };
    let wrongs = recording.wrongs();
    let verdict = if wrongs.is_empty() { "ok" } else { "WRONG" };
    println!("{}  {verdict}", recording.sums());
    for wrong in &wrongs {
        println!("    WRONG {wrong}");
    }
    for run in &recording.runs {
        if request.with_workloads {
            println!("    {:<18} {}  {}", run.name, run.sums(), run.reasons());
            for note in run.notes() {
                println!("    {:<18} note: {note}", "");
            }
        }
        if request.with_rows {
            recording.print_unexplained(run);
        }
    }
    wrongs.is_empty()
}

fn print_labels(labels: [&str; 3]) {
    for (label, width) in labels.iter().zip(LABEL_WIDTHS) {
        print!("{label:<width$} ");
    }
}

/// The directories in a directory, sorted by name. `lost+found` is left out: the directory may be a
/// disk image.
fn dirs_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let reading = || format!("reading {}", dir.display());
    let mut dirs = Vec::new();
    for entry in fs::read_dir(dir).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        let is_disk_only = path.file_name().is_some_and(|name| name == "lost+found");
        if path.is_dir() && !is_disk_only {
            dirs.push(path);
        }
    }
    if dirs.is_empty() {
        bail!("there is no recording in {}", dir.display());
    }
    dirs.sort();
    Ok(dirs)
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The numbers of one line of the table.
#[derive(Clone, Copy, Default)]
struct LineSums {
    rows: u64,
    wrong: u64,
    inferred: u64,
    unknown: u64,
    lost: u64,
}

impl LineSums {
    const HEAD: &str = "switches  right % inferred % unknown %   lost";

    fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            wrong: self.wrong + other.wrong,
            inferred: self.inferred + other.inferred,
            unknown: self.unknown + other.unknown,
            lost: self.lost + other.lost,
        }
    }
}

impl fmt::Display for LineSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>8} {:>8} {:>10} {:>9} {:>6}",
            self.rows,
            percent(self.rows.saturating_sub(self.wrong), self.rows),
            percent(self.inferred, self.rows),
            percent(self.unknown, self.rows),
            self.lost
        )
    }
}

/// One trace, and the workloads that ran in it.
struct JudgedTrace {
    meta: Meta,
    exit_code: String,
    /// All rows of the trace, including those of other threads.
    stored: u64,
    runs: Vec<WorkloadRun>,
    names: BTreeMap<TaskKey, String>,
}

impl JudgedTrace {
    fn read(dir: &Path) -> Result<Self> {
        let text = |name: &str| {
            fs::read_to_string(dir.join(name)).with_context(|| format!("reading {name}"))
        };
        let ran = text("ran").context("no workload was started")?;
        let mut runs = Vec::new();
        for name in ran.lines() {
            runs.push(WorkloadRun::read(name, &text(&format!("{name}.outcome"))?)?);
        }
        let path = dir.join("trace.swtch");
        let trace = Trace::open(&path)
            .with_context(|| text("talk").unwrap_or_else(|_| "the recorder said nothing".into()))?;
        let tasks = trace.tasks()?;
        let mut threads = BTreeMap::new();
        for (index, run) in runs.iter().enumerate() {
            let of_run = threads_of(&run.outcome, &tasks).into_iter();
            threads.extend(of_run.map(|(task, thread)| (task, (index, thread))));
        }
        let mut stored = 0;
        trace.scan(Columns::all(), None, &mut |switch| {
            stored += 1;
            if let Some((run, thread)) = threads.get(&switch.task) {
                runs[*run].rows[*thread].push(*switch);
            }
        })?;
        if trace.meta().scope.starts_with("cgroup ") {
            runs.iter_mut()
                .for_each(WorkloadRun::leave_out_those_that_move);
        }
        Ok(Self {
            meta: trace.meta().clone(),
            exit_code: text("exit")?.trim().to_owned(),
            stored,
            runs,
            names: names_of(&tasks),
        })
    }

    fn sums(&self) -> LineSums {
        let of_runs = self.runs.iter().map(WorkloadRun::sums);
        LineSums {
            lost: self.meta.counts.lost,
            ..of_runs.fold(LineSums::default(), LineSums::plus)
        }
    }

    fn is_inferring(&self) -> bool {
        let hooks = &self.meta.hooks;
        let mut missing = hooks.missing.iter().chain(&hooks.left_out);
        missing.any(|hook| hook == CAUSE_HOOK)
    }

    /// Lists what is wrong with the recording, in words; empty if it is right.
    fn wrongs(&self) -> Vec<String> {
        let right_pct = match self.is_inferring() {
            true => RIGHT_INFERRED_PCT,
            false => RIGHT_PCT,
        };
        let of_run = |run: &WorkloadRun| {
            let wrongs = run.wrongs(right_pct).into_iter();
            let name = run.name.clone();
            wrongs.map(move |wrong| format!("{name}: {wrong}"))
        };
        let exit = (self.exit_code != "0").then(|| format!("exit code {}", self.exit_code));
        let of_runs = self.runs.iter().flat_map(of_run);
        exit.into_iter()
            .chain(self.imbalance())
            .chain(of_runs)
            .collect()
    }

    fn imbalance(&self) -> Vec<String> {
        let counts = &self.meta.counts;
        let checks = [
            ("lost", counts.lost, 0),
            ("without a name", counts.unnamed, 0),
            ("not counted by the kernel", counts.uncaught, 0),
            ("not written", counts.storage_failed, 0),
            ("rows, against stored", self.stored, counts.stored),
            (
                "stored + filtered + lost, against seen",
                counts.stored + counts.filtered + counts.lost,
                counts.switches_seen,
            ),
        ];
        let unequal = checks.into_iter().filter(|(_, is, should)| is != should);
        unequal
            .map(|(what, is, should)| format!("{is} {what}, and not {should}"))
            .collect()
    }

    /// Prints the rows that no rule explains, or only as `other`; equal ones are counted together.
    fn print_unexplained(&self, run: &WorkloadRun) {
        let mut alike: BTreeMap<String, u64> = BTreeMap::new();
        for row in run.all_rows() {
            if matches!(row.rule.reason, Reason::Unknown | Reason::Other) {
                *alike.entry(self.describe(row)).or_default() += 1;
            }
        }
        for (row, count) in alike {
            println!("{:<18} {count:>4} × {row}", "");
        }
    }

    fn describe(&self, row: &Switch) -> String {
        let name = |task| self.names.get(&task).map_or("?", String::as_str);
        let evidence = &row.evidence;
        format!(
            "{} → {}: {}, state {:#x}, call {:?}, {}",
            name(row.task),
            row.next_task.map_or("idle", name),
            row.rule.name,
            evidence.state,
            evidence.syscall,
            evidence.bits
        )
    }
}

/// One workload: the expected result, and the rows of the threads that it watches.
struct WorkloadRun {
    name: String,
    outcome: WorkloadOutcome,
    /// The rows of each thread, in the order of `outcome.threads`.
    rows: Vec<Vec<Switch>>,
}

impl WorkloadRun {
    fn read(name: &str, outcome: &str) -> Result<Self> {
        let outcome: WorkloadOutcome = serde_json::from_str(outcome).with_context(|| {
            format!("{name} did not play to its end (see {name}.talk), and said {outcome:?}")
        })?;
        Ok(Self {
            name: name.to_owned(),
            rows: vec![Vec::new(); outcome.threads.len()],
            outcome,
        })
    }

    /// In a recording of a cgroup, a thread that moves to another cgroup leaves the scope. Only
    /// those of its switches are recorded for whose CPU a task in scope waited.
    fn leave_out_those_that_move(&mut self) {
        let threads = std::mem::take(&mut self.outcome.threads);
        let pairs = threads.into_iter().zip(std::mem::take(&mut self.rows));
        let stayed = pairs.filter(|(thread, _)| thread.name != MOVES);
        (self.outcome.threads, self.rows) = stayed.unzip();
    }

    fn tallies(&self) -> Vec<ReasonTally> {
        let reasons = |rows: &Vec<Switch>| rows.iter().map(|row| row.rule.reason).collect();
        self.rows.iter().map(reasons).collect()
    }

    fn all_rows(&self) -> impl Iterator<Item = &Switch> {
        self.rows.iter().flatten()
    }

    fn count(&self, is_counted: impl Fn(&Switch) -> bool) -> u64 {
        count(self.all_rows().filter(|row| is_counted(row)))
    }

    fn wrong_rows(&self) -> u64 {
        let pairs = self.outcome.threads.iter().zip(&self.rows);
        let wrong = pairs.map(|(thread, rows)| {
            thread.wrong_rows(&rows.iter().map(|row| row.rule.reason).collect())
        });
        wrong.sum()
    }

    fn sums(&self) -> LineSums {
        LineSums {
            rows: count(self.all_rows()),
            wrong: self.wrong_rows(),
            inferred: self.count(|row| row.rule.certainty == Certainty::Inferred),
            unknown: self.count(|row| row.rule.reason == Reason::Unknown),
            lost: 0,
        }
    }

    fn reasons(&self) -> String {
        let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
        self.all_rows()
            .for_each(|row| *reasons.entry(row.rule.reason).or_default() += 1);
        let words: Vec<_> = reasons
            .iter()
            .map(|(reason, rows)| format!("{reason} {rows}"))
            .collect();
        words.join(", ")
    }

    /// Lists what is wrong with its rows, in words; empty if they are right.
    fn wrongs(&self, right_pct: u64) -> Vec<String> {
        self.missing_rows()
            .into_iter()
            .chain(self.too_many_wrong(right_pct))
            .chain(self.wrongly_certain())
            .collect()
    }

    /// Statements of the workload that do not hold. Its exact numbers are meant for a real and
    /// quiet machine: an emulated CPU stops for milliseconds, and a timer expires before its task
    /// sleeps.
    fn notes(&self) -> Vec<String> {
        let pairs = self.outcome.threads.iter().zip(self.tallies());
        pairs
            .flat_map(|(thread, tally)| thread.misses(&tally))
            .collect()
    }

    fn missing_rows(&self) -> Vec<String> {
        let pairs = self.outcome.threads.iter().zip(&self.rows);
        let lacking = pairs.filter(|(thread, rows)| count(rows.iter()) < thread.counted.total());
        lacking
            .map(|(thread, rows)| {
                let (rows, counted) = (rows.len(), thread.counted.total());
                format!("{}: {rows} rows, the kernel counted {counted}", thread.name)
            })
            .collect()
    }

    fn too_many_wrong(&self, right_pct: u64) -> Option<String> {
        let (rows, wrong) = (count(self.all_rows()), self.wrong_rows());
        (wrong > FORGIVEN && wrong * 100 > rows * (100 - right_pct)).then(|| {
            format!("{wrong} of {rows} rows are wrong: fewer than {right_pct} % are right")
        })
    }

    /// Without the hook, no preemption by a wakeup or by the tick can be certain.
    fn wrongly_certain(&self) -> Option<String> {
        let needs_hook = |row: &Switch| {
            row.evidence.cause == Cause::NoHook
                && matches!(row.rule.reason, Reason::Slice | Reason::Wakeup)
        };
        let rows = self.count(|row| needs_hook(row) && row.rule.certainty == Certainty::Certain);
        (rows > 0).then(|| format!("{rows} rows are called certain and cannot be"))
    }
}

/// The index in `outcome.threads` for each task that belongs to it.
fn threads_of(outcome: &WorkloadOutcome, tasks: &[TaskEvent]) -> BTreeMap<TaskKey, usize> {
    let entry_of = |event: &TaskEvent| {
        let is_it =
            |id: &swtch_bench::ThreadId| (id.pid, id.tid) == (event.pid.get(), event.tid.get());
        let mut threads = outcome.threads.iter();
        let thread = threads.position(|thread| thread.ids.iter().any(is_it))?;
        event.in_scope.then_some((event.task, thread))
    };
    tasks.iter().filter_map(entry_of).collect()
}

/// The last name of each task.
fn names_of(tasks: &[TaskEvent]) -> BTreeMap<TaskKey, String> {
    let name = |event: &TaskEvent| event.comm.escape_ascii().to_string();
    tasks
        .iter()
        .map(|event| (event.task, name(event)))
        .collect()
}

fn count<T>(rows: impl Iterator<Item = T>) -> u64 {
    u64::try_from(rows.count()).unwrap_or(u64::MAX)
}

/// With two digits, rounded towards 0, so that 100.00 means all.
fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => {
            let hundredths = part * 10_000 / whole;
            format!("{}.{:02}", hundredths / 100, hundredths % 100)
        }
    }
}

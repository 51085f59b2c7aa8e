//! Judges traces of workloads: does each switch have the reason that follows from how its workload
//! is built? For traces that were taken elsewhere, such as on another kernel in a virtual machine
//! (`scripts/vm-test`).
//!
//! ```text
//! DIR/futex.outcome    what `swtch workload futex` printed
//! DIR/futex.swtch      the trace that was recorded meanwhile
//!
//! cargo run -p swtch --example judge -- DIR             one line a workload; exit 1 when one is wrong
//! cargo run -p swtch --example judge -- --rows DIR      and the rows that no rule explains
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use swtch_bench::{Outcome, Tally};
use swtch_core::evidence::Cause;
use swtch_core::{Certainty, Reason, Switch, TaskEvent, TaskKey};
use swtch_store::{Columns, Meta, Trace};

/// Share of a workload's rows whose reason must be right, where the kernel says who asked for the
/// CPU, and where that is inferred.
const RIGHT_PCT: u64 = 99;
const RIGHT_INFERRED_PCT: u64 = 95;

/// So many wrong rows are forgiven where a workload has few.
const FORGIVEN: u64 = 2;

/// Without it causes of preemption are inferred.
const CAUSE_HOOK: &str = "sched_set_need_resched_tp";

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let judged = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [dir] => judge(Path::new(dir), false),
        ["--rows", dir] => judge(Path::new(dir), true),
        _ => Err(anyhow::anyhow!("usage: judge [--rows] DIR")),
    };
    match judged {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Judges every workload in `dir` and prints the table; whether all are right.
fn judge(dir: &Path, show_rows: bool) -> Result<bool> {
    let runs = runs_in(dir)?;
    println!(
        "{:<18} {:>8} {:>8} {:>9} {:>10} {:>6}  rows by reason",
        "workload", "switches", "right %", "unknown %", "inferred %", "lost"
    );
    let mut all_right = true;
    for (name, outcome) in &runs {
        let run = Run::read(dir, name, outcome).with_context(|| format!("judging {name}"))?;
        println!("{name:<18} {}", run.line());
        for wrong in run.wrongs() {
            println!("{:<18} WRONG {wrong}", "");
            all_right = false;
        }
        for note in run.notes() {
            println!("{:<18} note: {note}", "");
        }
        if show_rows {
            run.print_unexplained();
        }
    }
    Ok(all_right)
}

/// The workloads with an outcome, by name.
fn runs_in(dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let reading = || format!("reading {}", dir.display());
    let mut runs = BTreeMap::new();
    for entry in fs::read_dir(dir).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        if path.extension().is_some_and(|ending| ending == "outcome") {
            let name = path.file_stem().expect("it has an ending, so a stem");
            runs.insert(name.to_string_lossy().into_owned(), path);
        }
    }
    if runs.is_empty() {
        bail!("there is no *.outcome in {}", dir.display());
    }
    Ok(runs)
}

/// One workload: what must be found, and the rows of the threads that it watches.
struct Run {
    meta: Meta,
    outcome: Outcome,
    /// Rows of each entry of `outcome.threads`.
    rows: Vec<Vec<Switch>>,
    /// All rows of the trace, those of bystanders too.
    stored: u64,
    names: BTreeMap<TaskKey, String>,
}

impl Run {
    fn read(dir: &Path, name: &str, outcome: &Path) -> Result<Self> {
        let text = fs::read_to_string(outcome).context("reading its outcome")?;
        let outcome: Outcome = serde_json::from_str(&text)
            .with_context(|| format!("it did not play to its end, and said {text:?}"))?;
        let trace = Trace::open(&dir.join(format!("{name}.swtch")))?;
        let tasks = trace.tasks()?;
        let threads = threads_of(&outcome, &tasks);
        let mut rows = vec![Vec::new(); outcome.threads.len()];
        let mut stored = 0;
        trace.scan(Columns::all(), None, &mut |switch| {
            stored += 1;
            if let Some(thread) = threads.get(&switch.task) {
                rows[*thread].push(*switch);
            }
        })?;
        Ok(Self {
            meta: trace.meta().clone(),
            outcome,
            rows,
            stored,
            names: names_of(&tasks),
        })
    }

    fn tallies(&self) -> Vec<Tally> {
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
        let pairs = self.outcome.threads.iter().zip(self.tallies());
        pairs.map(|(thread, tally)| thread.wrong_rows(&tally)).sum()
    }

    fn line(&self) -> String {
        let rows = count(self.all_rows());
        let unknown = self.count(|row| row.rule.reason == Reason::Unknown);
        let inferred = self.count(|row| row.rule.certainty == Certainty::Inferred);
        format!(
            "{rows:>8} {:>8} {:>9} {:>10} {:>6}  {}",
            percent(rows.saturating_sub(self.wrong_rows()), rows),
            percent(unknown, rows),
            percent(inferred, rows),
            self.meta.counts.lost,
            self.reasons()
        )
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

    /// What must not be, in words; nothing when the trace is right.
    fn wrongs(&self) -> Vec<String> {
        self.imbalance()
            .into_iter()
            .chain(self.missing_rows())
            .chain(self.too_many_wrong())
            .chain(self.wrongly_certain())
            .collect()
    }

    /// Statements of the workload that do not hold. Its exact numbers are for a machine that is its
    /// own: an emulated CPU stands still for milliseconds, and a timer is over before its task sleeps.
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

    fn is_inferring(&self) -> bool {
        self.meta
            .hooks
            .missing
            .iter()
            .any(|hook| hook == CAUSE_HOOK)
    }

    fn too_many_wrong(&self) -> Option<String> {
        let (rows, wrong) = (count(self.all_rows()), self.wrong_rows());
        let right_pct = match self.is_inferring() {
            true => RIGHT_INFERRED_PCT,
            false => RIGHT_PCT,
        };
        (wrong > FORGIVEN && wrong * 100 > rows * (100 - right_pct)).then(|| {
            format!("{wrong} of {rows} rows are wrong: fewer than {right_pct} % are right")
        })
    }

    /// Without the hook nothing says for certain who won the CPU by waking or by the tick.
    fn wrongly_certain(&self) -> Option<String> {
        let needs_hook = |row: &Switch| {
            row.evidence.cause == Cause::NoHook
                && matches!(row.rule.reason, Reason::Slice | Reason::Wakeup)
        };
        let rows = self.count(|row| needs_hook(row) && row.rule.certainty == Certainty::Certain);
        (rows > 0).then(|| format!("{rows} rows are called certain and cannot be"))
    }

    fn imbalance(&self) -> Vec<String> {
        let counts = &self.meta.counts;
        let checks = [
            ("lost", counts.lost, 0),
            ("without a name", counts.unnamed, 0),
            ("not counted by the kernel", counts.uncaught, 0),
            ("refused by task storage", counts.storage_failed, 0),
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

    /// Rows that no rule explains, alike ones together.
    fn print_unexplained(&self) {
        let mut alike: BTreeMap<String, u64> = BTreeMap::new();
        for row in self.all_rows() {
            if row.rule.reason == Reason::Unknown {
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

/// Which entry of the outcome a task belongs to.
fn threads_of(outcome: &Outcome, tasks: &[TaskEvent]) -> BTreeMap<TaskKey, usize> {
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

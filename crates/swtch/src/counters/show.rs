//! Writes what was counted as a table, JSON or CSV, with the limits of such counts.

use std::ffi::OsString;
use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;
use swtch_core::Nanos;
use swtch_host::Host;
use swtch_host::ability::Obstacle;
use swtch_output::format::{Format, write_answer};
use swtch_output::text::{
    CellAlignment, columns, counted, csv_text, escaped, grouped, json_escaped,
};

use super::sample::SampledThread;
use super::{Count, CountersTarget};

/// Threads shown in the table; JSON and CSV hold all.
const SHOWN: usize = 20;

/// What counters can never tell, printed with every answer.
const CANNOT_TELL: &[&str] = &[
    "why a switch happened: counters know only \"asleep\" and \"still runnable\"",
    "who took the CPU, and who woke whom",
    "how long one wait was: run-queue time is a sum, blocked time is not counted",
    "what was waited for: lock, pipe, socket, disk or timer",
];

const VOLUNTARY: &str = "left asleep: it blocked, slept or ended";
const INVOLUNTARY: &str = "left runnable: preempted, quota used up, or sched_yield";

pub(super) fn write(
    count: &Count,
    format: Format,
    obstacles: &[Obstacle],
    out: &mut dyn Write,
) -> Result<()> {
    let mut answer = Vec::new();
    match format {
        Format::Table => write_table(count, obstacles, &mut answer)?,
        Format::Json => write_json(count, obstacles, &mut answer)?,
        Format::Csv => write_csv(count, &mut answer)?,
    }
    write_answer(out, &answer).context("writing the answer")
}

/// One thread as a row of the answer. The keys are the columns of the CSV.
#[derive(Debug, Serialize)]
struct CountedThread<'a> {
    pid: u32,
    tid: u32,
    comm: &'a str,
    switches: u64,
    voluntary: u64,
    involuntary: u64,
    ran_ns: Option<u64>,
    runq_ns: Option<u64>,
    ended: bool,
}

impl<'a> CountedThread<'a> {
    const COLUMNS: &'static str =
        "pid,tid,comm,switches,voluntary,involuntary,ran_ns,runq_ns,ended";

    fn new(thread: &'a SampledThread) -> Self {
        let counters = thread.counters();
        Self {
            pid: thread.pid.get(),
            tid: thread.tid.get(),
            comm: &thread.name,
            switches: counters.switches(),
            voluntary: counters.voluntary,
            involuntary: counters.involuntary,
            ran_ns: counters.runs.map(|runs| runs.ran.as_ns()),
            runq_ns: counters.runs.map(|runs| runs.runq.as_ns()),
            ended: thread.ended,
        }
    }

    fn csv(&self) -> String {
        let or_empty = |ns: Option<u64>| ns.map_or(String::new(), |ns| ns.to_string());
        let name = escaped(self.comm);
        format!(
            "{},{},{},{},{},{},{},{},{}",
            self.pid,
            self.tid,
            csv_text(&name),
            self.switches,
            self.voluntary,
            self.involuntary,
            or_empty(self.ran_ns),
            or_empty(self.runq_ns),
            self.ended
        )
    }

    fn cells(&self) -> Vec<String> {
        let length =
            |ns: Option<u64>| ns.map_or("unknown".to_owned(), |ns| Nanos::from_ns(ns).to_string());
        vec![
            self.pid.to_string(),
            self.tid.to_string(),
            escaped(self.comm).into_owned(),
            grouped(self.switches),
            grouped(self.voluntary),
            grouped(self.involuntary),
            length(self.ran_ns),
            length(self.runq_ns),
            if self.ended { "yes" } else { "" }.to_owned(),
        ]
    }
}

/// The object `trace` of the JSON answer: how the counts were made.
#[derive(Debug, Serialize)]
struct CountersTrace {
    source: &'static str,
    command: Option<Vec<String>>,
    exit_code: Option<u8>,
    left_running: Option<usize>,
    pids: Option<Vec<u32>>,
    ended: Option<usize>,
    duration_ns: u64,
    switches: u64,
    voluntary: u64,
    involuntary: u64,
    is_exact: bool,
    user_ns: Option<u64>,
    system_ns: Option<u64>,
    sampled_switches: u64,
    sampled_ran_ns: Option<u64>,
    sampled_runq_ns: Option<u64>,
    samples: u64,
    longest_gap_ns: u64,
    threads_ended: usize,
    threads_unreadable: u64,
    overhead_cpu_ns: u64,
}

impl CountersTrace {
    fn new(count: &Count) -> Self {
        let sampled = count.tally.sum();
        let (command, exit_code, left_running, pids, ended) = match &count.subject {
            CountersTarget::Command {
                words,
                exit_code,
                left_running,
            } => (
                Some(texts(words)),
                Some(*exit_code),
                Some(*left_running),
                None,
                None,
            ),
            CountersTarget::Processes { pids, ended } => (
                None,
                None,
                None,
                Some(pids.iter().map(|pid| pid.get()).collect()),
                Some(*ended),
            ),
        };
        Self {
            source: "kernel counters",
            command,
            exit_code,
            left_running,
            pids,
            ended,
            duration_ns: count.duration.as_ns(),
            switches: count.totals.switches(),
            voluntary: count.totals.voluntary,
            involuntary: count.totals.involuntary,
            is_exact: count.totals.is_exact,
            user_ns: count.totals.user.map(Nanos::as_ns),
            system_ns: count.totals.system.map(Nanos::as_ns),
            sampled_switches: sampled.switches(),
            sampled_ran_ns: sampled.runs.map(|runs| runs.ran.as_ns()),
            sampled_runq_ns: sampled.runs.map(|runs| runs.runq.as_ns()),
            samples: count.samples,
            longest_gap_ns: count.longest_gap.as_ns(),
            threads_ended: count.tally.ended(),
            threads_unreadable: count.tally.unreadable,
            overhead_cpu_ns: count.overhead.as_ns(),
        }
    }
}

fn texts(words: &[OsString]) -> Vec<String> {
    words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

#[derive(Debug, Serialize)]
struct CountersJson<'a> {
    schema: &'static str,
    host: Host,
    trace: CountersTrace,
    rows: Vec<CountedThread<'a>>,
    cannot_tell: &'static [&'static str],
    obstacles: &'a [Obstacle],
}

fn rows(count: &Count) -> Vec<CountedThread<'_>> {
    count
        .tally
        .threads()
        .into_iter()
        .map(CountedThread::new)
        .collect()
}

fn write_json(count: &Count, obstacles: &[Obstacle], out: &mut dyn Write) -> Result<()> {
    let answer = CountersJson {
        schema: "swtch.counters/1",
        host: Host::read(),
        trace: CountersTrace::new(count),
        rows: rows(count),
        cannot_tell: CANNOT_TELL,
        obstacles,
    };
    let json = serde_json::to_string_pretty(&answer)?;
    writeln!(out, "{}", json_escaped(&json))?;
    Ok(())
}

fn write_csv(count: &Count, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}", CountedThread::COLUMNS)?;
    for row in rows(count) {
        writeln!(out, "{}", row.csv())?;
    }
    Ok(())
}

fn write_table(count: &Count, obstacles: &[Obstacle], out: &mut dyn Write) -> Result<()> {
    write_head(count, out)?;
    write_totals(count, out)?;
    write_threads(count, out)?;
    writeln!(out, "\nWhat counters cannot tell")?;
    for gap in CANNOT_TELL {
        writeln!(out, "  - {gap}")?;
    }
    writeln!(out, "\nTo learn it, record the switches")?;
    if obstacles.is_empty() {
        writeln!(
            out,
            "  > swtch explain … (nothing stands in the way here: see swtch doctor)"
        )?;
    }
    for Obstacle { why, remedies } in obstacles {
        writeln!(out, "  {}", escaped(why))?;
        for remedy in remedies {
            writeln!(out, "  > {}", escaped(remedy))?;
        }
    }
    Ok(())
}

fn write_head(count: &Count, out: &mut dyn Write) -> Result<()> {
    let Host {
        hostname,
        kernel_release,
        cpus,
        ..
    } = Host::read();
    writeln!(
        out,
        "First answer from the kernel's counters. No switch was recorded: no reasons."
    )?;
    let cpus = counted(cpus as u64, "CPU");
    let head = format!(
        "host {hostname}, Linux {kernel_release}, {cpus}; {}, {} switches, lost unknown; \
         swtch itself took {} of CPU time",
        count.duration,
        grouped(count.totals.switches()),
        count.overhead
    );
    writeln!(out, "{}", escaped(&head))?;
    let subject = match &count.subject {
        CountersTarget::Command {
            words, exit_code, ..
        } => {
            format!("command: {} (exit {exit_code})", texts(words).join(" "))
        }
        CountersTarget::Processes { pids, ended } => {
            let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
            format!("processes: {} ({ended} ended meanwhile)", pids.join(" "))
        }
    };
    writeln!(out, "{}\n", escaped(&subject))?;
    Ok(())
}

fn write_totals(count: &Count, out: &mut dyn Write) -> Result<()> {
    let totals = &count.totals;
    let rows = [
        ("voluntary", totals.voluntary, VOLUNTARY.to_owned()),
        ("involuntary", totals.involuntary, INVOLUNTARY.to_owned()),
        ("all", totals.switches(), origin(count)),
    ];
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(kind, switches, meaning)| vec![kind.to_owned(), grouped(switches), meaning])
        .collect();
    let head = [
        ("kind", CellAlignment::Left),
        ("switches", CellAlignment::Right),
        ("meaning", CellAlignment::Left),
    ];
    write_columns(&head, &rows, out)?;
    writeln!(out)?;
    if let (Some(user), Some(system)) = (totals.user, totals.system) {
        let all = user + system;
        writeln!(
            out,
            "CPU time        {all} (user {user}, system {system}), exact as the switches"
        )?;
    }
    match count.tally.sum().runs {
        Some(runs) => {
            writeln!(
                out,
                "run-queue time  {} beside {} of run time, sampled",
                runs.runq, runs.ran
            )?;
        }
        None => writeln!(
            out,
            "run-queue time  unknown: this kernel does not account for it"
        )?,
    }
    Ok(())
}

/// The words that say for what the totals hold.
fn origin(count: &Count) -> String {
    match &count.subject {
        CountersTarget::Command {
            left_running: 0, ..
        } => "exact: the kernel's own sum for the command and all children that were waited for"
            .into(),
        CountersTarget::Command { left_running, .. } => format!(
            "exact for the command and children that were waited for; not for {left_running} left \
             running"
        ),
        CountersTarget::Processes { .. } if count.tally.ended() == 0 => {
            "sum over the threads; one that came and went between two samples is missing".into()
        }
        CountersTarget::Processes { .. } => format!(
            "at least: {} ended, each without up to its last {}",
            counted(count.tally.ended() as u64, "thread"),
            count.longest_gap
        ),
    }
}

fn write_threads(count: &Count, out: &mut dyn Write) -> Result<()> {
    let all = rows(count);
    let sampled = count.tally.sum().switches();
    let share = share_pct(sampled, count.totals.switches());
    writeln!(
        out,
        "\nThreads, sampled: may miss the last moments (up to {}) and threads that lived shorter.",
        count.longest_gap
    )?;
    writeln!(
        out,
        "{} seen in {}; they hold {} switches, {share} of all.",
        counted(all.len() as u64, "thread"),
        counted(count.samples, "sample"),
        grouped(sampled)
    )?;
    if count.tally.unreadable > 0 {
        let failed = counted(count.tally.unreadable, "sample");
        writeln!(
            out,
            "{failed} of threads could not be read (another user's?)."
        )?;
    }
    writeln!(out)?;
    let head = [
        ("pid", CellAlignment::Right),
        ("tid", CellAlignment::Right),
        ("comm", CellAlignment::Left),
        ("switches", CellAlignment::Right),
        ("voluntary", CellAlignment::Right),
        ("involuntary", CellAlignment::Right),
        ("ran", CellAlignment::Right),
        ("run-queue", CellAlignment::Right),
        ("ended", CellAlignment::Left),
    ];
    let shown: Vec<_> = all.iter().take(SHOWN).map(CountedThread::cells).collect();
    write_columns(&head, &shown, out)?;
    if all.len() > SHOWN {
        writeln!(
            out,
            "… and {} more: --format json or csv shows all",
            all.len() - SHOWN
        )?;
    }
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "one digit after the point is shown"
)]
fn share_pct(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", 100.0 * part as f64 / whole as f64)
}

fn write_columns(
    head: &[(&str, CellAlignment)],
    rows: &[Vec<String>],
    out: &mut dyn Write,
) -> Result<()> {
    let head: Vec<_> = head
        .iter()
        .map(|&(name, side)| (name.to_owned(), side))
        .collect();
    for line in columns(&head, rows, None) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

//! Writes what was counted as a table, JSON or CSV, with the limits of such counts.

use std::ffi::OsString;
use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use swtch_core::Nanos;
use swtch_host::Host;
use swtch_host::ability::Obstacle;
use swtch_output::answer::{self, VerbAnswer};
use swtch_output::format::Format;
use swtch_output::host::HostWords;
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text::{CellAlignment, columns, counted, escaped, grouped};

use super::sample::SampledThread;
use super::{Count, CountersTarget};

mod waits;

use waits::{WaitsJson, waits_text};

/// Threads shown in the table; JSON and CSV hold all.
const SHOWN: usize = 20;

/// The things that counters can never tell, printed with every answer.
const CANNOT_TELL: &[&str] = &[
    "why a switch happened: counters know only \"asleep\" and \"still runnable\"",
    "who took the CPU, and who woke whom",
    "how long one wait was: run-queue time and blocked time are sums of a thread",
    "what short waits were for: looks meet long ones",
];

const VOLUNTARY: &str = "left asleep: it blocked, slept or ended";
const INVOLUNTARY: &str = "left runnable: preempted, quota used up, or sched_yield";

pub(super) fn write(
    count: &Count,
    format: Format,
    obstacles: &[Obstacle],
    out: &mut dyn Write,
) -> Result<()> {
    answer::write(&CountersAnswer { count, obstacles }, format, out)
}

/// The counts, before they have a format.
struct CountersAnswer<'a> {
    count: &'a Count,
    /// The reasons why no switch was recorded.
    obstacles: &'a [Obstacle],
}

impl VerbAnswer for CountersAnswer<'_> {
    fn to_table(&self) -> String {
        let count = self.count;
        let mut page = head_text(count) + &totals_text(count) + &threads_text(count);
        page += &waits_text(&count.waits);
        page += "\nWhat counters cannot tell\n";
        for gap in CANNOT_TELL {
            page += &format!("  - {gap}\n");
        }
        page += "\nTo learn it, record the switches\n";
        if self.obstacles.is_empty() {
            page += "  > swtch explain … (nothing stands in the way here: see swtch doctor)\n";
        }
        for Obstacle { why, remedies } in self.obstacles {
            page += &format!("  {}\n", escaped(why));
            for remedy in remedies {
                page += &format!("  > {}\n", escaped(remedy));
            }
        }
        page
    }

    fn to_json(&self) -> Value {
        let answer = CountersJson {
            schema: "swtch.counters/1",
            host: Host::read(),
            trace: CountersTrace::new(self.count),
            rows: rows(self.count),
            waits: WaitsJson::new(&self.count.waits),
            cannot_tell: CANNOT_TELL,
            obstacles: self.obstacles,
        };
        serde_json::to_value(answer).expect("plain data has a JSON form")
    }

    /// Unlike the CSV of the other verbs, its lines end in a line feed alone.
    fn to_csv(&self) -> Result<String> {
        let mut sheet = Sheet::new("counters", &CountedThread::COLUMNS);
        let rows = rows(self.count);
        sheet.rows = rows.iter().map(CountedThread::raw_cells).collect();
        Ok(sheet.to_csv().replace("\r\n", "\n"))
    }
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
    const COLUMNS: [&'static str; 9] = [
        "pid",
        "tid",
        "comm",
        "switches",
        "voluntary",
        "involuntary",
        "ran_ns",
        "runq_ns",
        "ended",
    ];

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

    fn raw_cells(&self) -> Vec<Cell> {
        let length = |ns: Option<u64>| Cell::time(ns.map(Nanos::from_ns));
        vec![
            Cell::Id(self.pid.into()),
            Cell::Id(self.tid.into()),
            Cell::text(self.comm),
            Cell::Count(self.switches),
            Cell::Count(self.voluntary),
            Cell::Count(self.involuntary),
            length(self.ran_ns),
            length(self.runq_ns),
            Cell::text(self.ended.to_string()),
        ]
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
    waits: WaitsJson<'a>,
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

fn head_text(count: &Count) -> String {
    let host = Host::read();
    let host = HostWords {
        machine: None,
        ..host.words()
    };
    let head = format!(
        "host {}; {}, {} switches, lost unknown; swtch itself took {} of CPU time",
        host.to_list(),
        count.duration,
        grouped(count.totals.switches()),
        count.overhead
    );
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
    format!(
        "First answer from the kernel's counters. No switch was recorded; what long waits were for is estimated.\n{}\n{}\n\n",
        escaped(&head),
        escaped(&subject)
    )
}

fn totals_text(count: &Count) -> String {
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
    let mut text = columns_text(&head, &rows) + "\n";
    if let (Some(user), Some(system)) = (totals.user, totals.system) {
        let all = user + system;
        text += &format!(
            "CPU time        {all} (user {user}, system {system}), the kernel's own sum\n"
        );
    }
    text + &match count.tally.sum().runs {
        Some(runs) => format!(
            "run-queue time  {} beside {} of run time, sampled\n",
            runs.runq, runs.ran
        ),
        None => "run-queue time  unknown: this kernel does not account for it\n".to_owned(),
    }
}

/// The words that say for what the totals hold.
fn origin(count: &Count) -> String {
    match &count.subject {
        CountersTarget::Command {
            left_running: 0, ..
        } => "the kernel's own sum for the command and all children that were waited for".into(),
        CountersTarget::Command { left_running, .. } => format!(
            "the kernel's own sum for the command and children that were waited for; without \
             {left_running} left running"
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

fn threads_text(count: &Count) -> String {
    let all = rows(count);
    let sampled = count.tally.sum().switches();
    let share = share_pct(sampled, count.totals.switches());
    let mut text = format!(
        "\nThreads, sampled: may miss the last moments (up to {}) and threads that lived shorter.\n\
         {} seen in {}; they hold {} switches, {share} of all.\n",
        count.longest_gap,
        counted(all.len() as u64, "thread"),
        counted(count.samples, "sample"),
        grouped(sampled)
    );
    if count.tally.unreadable > 0 {
        let failed = counted(count.tally.unreadable, "sample");
        text += &format!("{failed} of threads could not be read (another user's?).\n");
    }
    text.push('\n');
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
    text += &columns_text(&head, &shown);
    if all.len() > SHOWN {
        text += &format!(
            "… and {} more: --format json or csv shows all\n",
            all.len() - SHOWN
        );
    }
    text
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

fn columns_text(head: &[(&str, CellAlignment)], rows: &[Vec<String>]) -> String {
    let head: Vec<_> = head
        .iter()
        .map(|&(name, side)| (name.to_owned(), side))
        .collect();
    let lines = columns(&head, rows, None);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

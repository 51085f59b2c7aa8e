//! Reports: from a trace to an answer.
//!
//! ```text
//! Trace ──scan──▶ Switch ─▶ Selection (what counts of it?) ─▶ one aggregator ─▶ Sheet ─▶ table
//!    │                                                         reason, group,            json
//!    └─ tasks, gaps ─▶ Names, TraceHead                        preemptor, waker,         csv
//!                                                              wait, stack, level
//! ```
//!
//! - `filtered_trace` opens the trace for one question: the names of its tasks, which rows count, the
//!   head.
//! - Each aggregator takes rows one by one and keeps counts, never rows: a trace may be larger
//!   than memory.
//! - A [`Sheet`] knows the three formats. Nothing else does, except stacks, which are not a table.
//! - All reports count switches of the kernel; only `level` reads those of user-mode schedulers,
//!   too.
//! - [`KernelSummary`] shows what was counted in the kernel, where there is no trace; [`live`] shows it
//!   as rates, while it is counted.
//! - [`bill()`] joins rows with prices, which are not part of a trace, to say what switches cost.
//! - [`compare()`] compares traces; it reads what the reports read, one trace after the other.
//! - [`FlameNode`] is the tree of a flame graph, of one trace or of several.
//! - [`explain()`] puts the main reports together and ends with findings (`verdict`).
//!
//! To add a report: a variant of [`By`], a file with an aggregator that ends in a [`Sheet`],
//! and its arm in `sheet_of`.

mod accounts;
mod bill;
mod departure;
mod diff;
mod empty;
mod ends;
mod explain;
mod filter;
mod filtered_trace;
mod fired;
mod flame;
mod followed;
mod group;
mod head;
mod kernel_summary;
mod last;
mod lasting;
mod level;
pub mod live;
mod names;
mod neighbour;
mod per_unit;
mod preemptor;
mod pricing;
mod programs;
mod published;
mod reason;
mod screen;
mod slow_spans;
mod spans;
mod stack;
mod summary;
mod tally;
mod turns;
mod verdict;
mod wait;
mod waker;
mod whose;
mod words;
mod workers;
mod worth;

#[cfg(test)]
pub mod drawn;

use std::io::Write;

use anyhow::Result;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::cost::PriceList;
use swtch_core::{Contention, Coverage, CpuTopology, Gap, Nanos, Switch, Timestamp};
use swtch_output::answer::{self, VerbAnswer};
use swtch_output::column::Column;
use swtch_output::format::Format;
use swtch_output::text;
use swtch_store::{Columns, Meta, Trace};

pub use bill::{BillBy, bill};
pub use departure::successor;
pub use diff::{
    DiffAnswer, DiffFlames, DiffOutcome, DiffPageParts, DiffRequest, FrameChange, FrameDiff, Per,
    compare, time_words,
};
pub use empty::{is_failure, why_empty};
pub use explain::{BESIDES, ExplainAsked, ExplainPageParts, Extent, FindingText, explain, parts};
pub use filter::{Asker, EmptySpan, Filter, GivenUp, LeastWait, Moment, Selection, takes_task};
pub use filtered_trace::{FilteredTrace, coverage};
pub use flame::{FlameNaming, FlameNode, FrameKind};
pub use group::RowSyscall;
pub use kernel_summary::{KernelSummary, spans_json};
pub use names::Names;
pub use programs::Programs;
pub use spans::SpansByThread;
pub use stack::{
    CALLER_LACKING, Stacks, Symbols, frame_words, is_of_tracing, may_lack_a_caller, seen_at,
};
pub use swtch_output::sheet::{Cell, RenderedTable, Sheet, SheetTable};
pub use wait::{Object, ObjectWaits, Objects, object_of};
pub use whose::{function_name, short_name};
pub use words::ALL as ALL_COLUMNS;

use group::{Groups, KeyNames, reason_of_open};
use head::TraceHead;
pub use head::{
    ReportedSwitches, host_words, lost_in_words, lost_names_in_words, lost_records,
    untraced_in_words,
};
pub use screen::in_hundredths;

use neighbour::Neighbours;
use preemptor::Preemptors;
use reason::ByReason;
use stack::StackCounts;
use waker::Wakers;

/// Rows that a table shows if `top` does not say otherwise.
const ROWS_OF_TABLE: usize = 20;

/// A report that a person asked for.
#[derive(Clone, Debug)]
pub struct ReportRequest {
    /// The kind of thing that a row stands for.
    pub by: By,
    /// The format on stdout.
    pub format: Format,
    /// The rows that count.
    pub filter: Filter,
    /// Number of rows to show; `None` means 20 in a table, and all in other formats.
    pub top: Option<usize>,
}

/// The kind of thing that a row of a report stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The reason for which the task left its CPU.
    Reason,
    /// The process of the task that left.
    Process,
    /// The task that left.
    Thread,
    /// The task that had the CPU while others were runnable.
    Preemptor,
    /// The task or interrupt that made blocked tasks runnable.
    Waker,
    /// The system call in which the task left.
    Syscall,
    /// The object that was waited for.
    Wait,
    /// The user and kernel stack at which the task waited.
    Stack,
    /// The CPU that it left.
    Cpu,
    /// The cgroup of the task.
    Cgroup,
    /// The cgroup that had the CPU while tasks of another were runnable.
    Neighbour,
    /// A span of a thread, from one place of its program to another.
    Span,
    /// The level: the kernel, or a user-mode scheduler.
    Level,
}

impl By {
    /// All kinds of rows, in the order in which help names them.
    pub const ALL: [Self; 13] = [
        Self::Reason,
        Self::Process,
        Self::Thread,
        Self::Preemptor,
        Self::Waker,
        Self::Syscall,
        Self::Wait,
        Self::Stack,
        Self::Cpu,
        Self::Cgroup,
        Self::Neighbour,
        Self::Span,
        Self::Level,
    ];

    /// The word on the command line, with which the name of the JSON schema ends, too.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reason => "reason",
            Self::Process => "process",
            Self::Thread => "thread",
            Self::Preemptor => "preemptor",
            Self::Waker => "waker",
            Self::Syscall => "syscall",
            Self::Wait => "wait",
            Self::Stack => "stack",
            Self::Cpu => "cpu",
            Self::Cgroup => "cgroup",
            Self::Neighbour => "neighbour",
            Self::Span => "span",
            Self::Level => "level",
        }
    }

    /// The variant with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.as_str() == word)
    }
}

/// Writes the report that `request` asks for.
///
/// # Errors
///
/// When the trace cannot be read or `out` cannot be written. It is not an error if the reader of
/// `out` has gone away.
pub fn report(trace: &Trace, request: &ReportRequest, out: &mut dyn Write) -> Result<()> {
    if request.by == By::Level {
        return level::report(trace, request, out);
    }
    let mut filtered = FilteredTrace::open(trace, &request.filter)?;
    let (sheet, rows) = sheet_of(&mut filtered, request.by)?;
    let table: TableOfSheet = match request.by {
        By::Stack => stack::to_table,
        _ => |sheet, most| sheet.to_table_in(text::table_width(), most),
    };
    let answer = ReportAnswer {
        head: filtered.head(),
        rows,
        sheet,
        top: request.top,
        table,
        below: String::new(),
        more: json!({}),
    };
    answer.write(request.format, out)
}

/// The first lines of every report, and how many records were lost.
#[derive(Clone, Debug)]
pub struct FirstLines {
    /// The lines of text, without empty ones.
    pub lines: Vec<String>,
    /// Number of records that were lost.
    pub lost: u64,
    /// Number of switches that the kernel did not report to tracing.
    pub untraced: u64,
}

/// The first lines of a report that counts `rows`. `duration` is the length of a trace that does
/// not tell its own end.
///
/// # Errors
///
/// When the trace cannot be read.
pub fn first_lines(trace: &Trace, rows: ReportedSwitches, duration: Nanos) -> Result<FirstLines> {
    let filtered = FilteredTrace::open(trace, &Filter::default())?;
    let mut head = filtered.head().clone();
    head.duration = duration;
    Ok(FirstLines {
        lines: head
            .to_text(rows)
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect(),
        lost: head.lost(),
        untraced: head.meta.counts.untraced,
    })
}

/// Says what differs between the machine of a price list and that of a trace, one sentence each.
pub fn warnings(trace: &Trace, list: &PriceList) -> Vec<String> {
    pricing::warnings(&list.origin, trace.meta())
}

/// The first rows of a sheet, for people.
type TableOfSheet = fn(&Sheet, usize) -> String;

/// A report before it has a format.
struct ReportAnswer<'a> {
    head: &'a TraceHead,
    rows: ReportedSwitches,
    sheet: Sheet,
    /// Number of rows to show, as [`ReportRequest::top`].
    top: Option<usize>,
    table: TableOfSheet,
    /// The text that people read below the table.
    below: String,
    /// Further members of the JSON object.
    more: Value,
}

impl ReportAnswer<'_> {
    fn write(mut self, format: Format, out: &mut dyn Write) -> Result<()> {
        if format != Format::Table {
            self.sheet = self.sheet.with_most(self.top);
        }
        answer::write(&self, format, out)
    }
}

impl VerbAnswer for ReportAnswer<'_> {
    fn to_table(&self) -> String {
        let most = self.top.unwrap_or(ROWS_OF_TABLE);
        self.head.to_text(self.rows) + &(self.table)(&self.sheet, most) + &self.below
    }

    fn to_json(&self) -> Value {
        let sheet = &self.sheet;
        let mut object = json!({
            "schema": format!("swtch.report.{}/1", sheet.name),
            "host": self.head.to_json_host(),
            "trace": self.head.to_json_trace(self.rows),
            "columns": sheet.to_json_columns(),
            "rows": sheet.to_json_rows(),
            "total": sheet.to_json_total(),
            "notes": sheet.notes,
        });
        if let (Value::Object(object), Value::Object(more)) = (&mut object, &self.more) {
            object.extend(more.clone());
        }
        object
    }

    fn to_csv(&self) -> Result<String> {
        self.head.tell_missing();
        Ok(self.sheet.to_csv())
    }
}

/// Heads of columns that a table drops on a narrow terminal, the least important first.
const DROPPED_FIRST: [&str; 21] = [
    "neighbour pod uid",
    "pod uid",
    "neighbour id",
    "cgroup id",
    "earlier names",
    "command",
    "category",
    "number",
    "waker pid",
    "woken pid",
    "last wakers",
    "certain %",
    "main reason %",
    "off",
    "voluntary",
    "on CPU",
    "ran",
    "waits",
    "per second",
    "process",
    "pid",
];

/// A table of a report.
fn report_sheet<R>(
    name: &'static str,
    columns: &[Column<R>],
    rows: impl IntoIterator<Item = R>,
) -> Sheet {
    Sheet {
        dropped_first: &DROPPED_FIRST,
        ..Sheet::of(name, columns, rows)
    }
}

fn sheet_of(filtered: &mut FilteredTrace<'_>, by: By) -> Result<(Sheet, ReportedSwitches)> {
    match by {
        By::Reason => by_reason(filtered),
        By::Preemptor => by_preemptor(filtered),
        By::Neighbour => by_neighbour(filtered),
        By::Waker => by_waker(filtered),
        By::Wait => by_wait(filtered),
        By::Stack => by_stack(filtered),
        By::Span => by_span(filtered),
        By::Process | By::Thread | By::Syscall | By::Cpu | By::Cgroup => by_group(filtered, by),
        By::Level => unreachable!("it reads both levels and has a function of its own"),
    }
}

/// Columns of the wait before a run.
const WAIT: Columns = Columns::OFF_REASON.and(Columns::OFF).and(Columns::RUNQ);

/// Columns of the object that a task began to wait for.
const WAIT_OBJECT: Columns = Columns::WAIT_OBJECT
    .and(Columns::WAIT_KEY)
    .and(Columns::SYSCALL)
    .and(Columns::BITS)
    .and(Columns::ARGS);

/// Columns that are needed to split run-queue waits among the holders of the CPU.
pub const CONTENTION: Columns = Columns::TS
    .and(Columns::CPU)
    .and(Columns::TASK)
    .and(Columns::RAN)
    .and(Columns::IRQ)
    .and(Columns::STOLEN)
    .and(Columns::NEXT_TASK)
    .and(Columns::WAKE_CPU)
    .and(Columns::MOVED)
    .and(WAIT);

fn by_reason(filtered: &mut FilteredTrace<'_>) -> Result<(Sheet, ReportedSwitches)> {
    let columns = Columns::RULE | Columns::BITS | Columns::RAN | WAIT;
    let mut by = ByReason::default();
    let rows = filtered.scan(columns, &mut |row, _, counted| by.add(row, counted))?;
    for open in filtered.opens()? {
        if let Some(reason) = reason_of_open(&open) {
            by.add_open(reason, &open);
        }
    }
    Ok((by.sheet(), rows))
}

fn by_group(filtered: &mut FilteredTrace<'_>, by: By) -> Result<(Sheet, ReportedSwitches)> {
    let own = match by {
        By::Cpu => Columns::CPU,
        By::Cgroup => Columns::CGROUP,
        By::Syscall => Columns::SYSCALL,
        _ => Columns::NONE,
    };
    let columns = Columns::REASON | Columns::BITS | Columns::RAN | WAIT | own;
    let names = filtered.names();
    let mut groups = Groups::new(by, &names);
    let add = &mut |row: &_, task, counted| groups.add(row, task, counted, &names);
    // A wait belongs to the call of the switch-out before it, which may lie before the span.
    let rows = match by {
        By::Syscall => filtered.scan_from_start(columns, add)?,
        _ => filtered.scan(columns, add)?,
    };
    for open in filtered.opens()? {
        groups.add_open(&open, &names);
    }
    let cgroups: FxHashMap<_, _> = match by {
        By::Cgroup => filtered.cgroups()?,
        _ => FxHashMap::default(),
    };
    let topology = filtered.head().meta.host.topology.as_ref();
    let places = topology.map(CpuTopology::places);
    let words = KeyNames {
        names: &names,
        arch: filtered.arch(),
        cgroups: &cgroups,
        places: places.as_ref(),
    };
    Ok((groups.sheet(&words), rows))
}

fn by_preemptor(filtered: &mut FilteredTrace<'_>) -> Result<(Sheet, ReportedSwitches)> {
    let columns = Columns::REASON | Columns::NOMINATOR | CONTENTION;
    let names = filtered.names();
    let mut preemptors = Preemptors::new(contention_of(filtered), &names);
    let rows = filtered.scan_from_start(columns, &mut |row, task, counted| {
        preemptors.add(row, task, counted, &names);
    })?;
    preemptors.finish(&names);
    Ok((preemptors.sheet(&names), rows))
}

fn by_neighbour(filtered: &mut FilteredTrace<'_>) -> Result<(Sheet, ReportedSwitches)> {
    let columns = Columns::REASON | Columns::CGROUP | CONTENTION;
    let names = filtered.names();
    let mut neighbours = Neighbours::new(contention_of(filtered), &names);
    let rows = filtered.scan_from_start(columns, &mut |row, task, counted| {
        neighbours.add(row, task, counted, &names);
    })?;
    neighbours.finish(&names);
    Ok((neighbours.sheet(&filtered.cgroups()?), rows))
}

fn contention_of(filtered: &FilteredTrace<'_>) -> Contention {
    let head = filtered.head();
    contention(filtered.coverage(), &head.meta, &head.gaps)
}

/// Splits the run-queue waits of a trace among those who had the CPU.
pub fn contention(coverage: Coverage, meta: &Meta, gaps: &[Gap]) -> Contention {
    let cpus = usize::try_from(meta.host.cpus).unwrap_or(1);
    Contention::new(coverage, cpus, gaps)
}

fn by_waker(filtered: &mut FilteredTrace<'_>) -> Result<(Sheet, ReportedSwitches)> {
    let columns = Columns::REASON | Columns::WAKER | WAIT;
    let names = filtered.names();
    let mut wakers = Wakers::new(&names);
    let rows = filtered.scan(columns, &mut |row, task, counted| {
        if counted.wait {
            wakers.add(row, task, &names);
        }
    })?;
    Ok((wakers.sheet(&names), rows))
}

fn by_wait(filtered: &mut FilteredTrace<'_>) -> Result<(Sheet, ReportedSwitches)> {
    let (stacks, symbols) = match filtered.head().meta.stacks {
        Some(_) => (Columns::WAKER_STACKS, Some(filtered.symbols()?)),
        None => (Columns::NONE, None),
    };
    let (objects, rows) = waits_by_object(filtered, stacks, &mut |_, _| ())?;
    Ok((objects.sheet(&filtered.names(), symbols.as_ref()), rows))
}

/// Counts waits by what was waited for. `each` gets every counted wait as the row that ends it,
/// with `more` of its columns.
///
/// # Errors
///
/// When the trace cannot be read.
pub fn waits_by_object(
    filtered: &mut FilteredTrace<'_>,
    more: Columns,
    each: &mut dyn FnMut(Object, &Switch),
) -> Result<(Objects, ReportedSwitches)> {
    let columns = Columns::REASON | WAIT_OBJECT | Columns::WAKER | WAIT | more;
    let names = filtered.names();
    let mut objects = Objects::new(&names);
    let rows = filtered.scan_from_start(columns, &mut |row, task, counted| {
        if let Some(object) = objects.add(row, task, counted, &names) {
            each(object, row);
        }
    })?;
    objects.finish();
    Ok((objects, rows))
}

fn by_span(filtered: &mut FilteredTrace<'_>) -> Result<(Sheet, ReportedSwitches)> {
    let mut spans = filtered.spans()?;
    let (stacks, symbols) = match filtered.head().meta.stacks {
        Some(_) => (Columns::STACKS, filtered.symbols()?),
        None => (Columns::NONE, Symbols::default()),
    };
    let columns = Columns::REASON | Columns::TS | Columns::RAN | Columns::NEXT_TASK;
    let columns = columns | Columns::WAKER | WAIT | stacks;
    let names = filtered.names();
    // A span may begin in a wait that began before the time that was asked for.
    let rows = filtered.scan_from_start(columns, &mut |row, task, _| {
        spans.add(row, task, &names);
    })?;
    if filtered.selection().to() == Timestamp::from_ns(u64::MAX) {
        for open in filtered.opens()?.iter().chain(&filtered.open_runs()?) {
            spans.add_open(open, names.index(open.task));
        }
    }
    spans.finish();
    let meta = &filtered.head().meta;
    let mut sheet = spans.sheet(&names, &symbols, Timestamp::from_ns(meta.start_ns));
    if sheet.rows.is_empty() && meta.spans.is_none() {
        let how = "no spans were recorded: record with --span (swtch record --help)";
        sheet.notes.push(how.to_owned());
    }
    Ok((sheet, rows))
}

fn by_stack(filtered: &mut FilteredTrace<'_>) -> Result<(Sheet, ReportedSwitches)> {
    let columns = Columns::REASON | Columns::STACKS | WAIT;
    let names = filtered.names();
    let mut places = StackCounts::default();
    let rows = filtered.scan(columns, &mut |row, task, counted| {
        if counted.wait {
            places.add(row, task, &names);
        }
    })?;
    let asked = filtered.head().meta.stacks.is_some();
    let symbols = if asked {
        filtered.symbols()?
    } else {
        Symbols::default()
    };
    Ok((places.sheet(&symbols, &names, asked), rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, head, row, seen};
    use serde_json::Value;
    use std::io;
    use swtch_core::{CgroupId, CpuId, Reason, TaskEvent};
    use swtch_store::Writer;

    /// A finished trace of four rows, of which the last is of a task out of scope, and its
    /// directory.
    fn trace(meta: &Meta) -> (Trace, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let mut writer = Writer::create(&path, meta).unwrap();
        let hostile = seen(1, 10, 10, "\u{1b}[31m,\"a\"\n");
        let other = TaskEvent {
            in_scope: false,
            ..seen(2, 20, 20, "other")
        };
        writer.push_task(&hostile).unwrap();
        writer.push_task(&other).unwrap();
        writer.push_cgroup(CgroupId::new(1), "/a\u{202e}b").unwrap();
        let mut rows = [
            row(1, Reason::Pipe),
            after(row(1, Reason::Wakeup), Reason::Pipe, 40_000, 10_000),
            after(row(1, Reason::Pipe), Reason::Wakeup, 0, 20_000),
            row(2, Reason::Slice),
        ];
        for (row, ms) in rows.iter_mut().zip(1..) {
            row.ts = Timestamp::from_ns(1_000_000_000 + ms * 1_000_000);
            writer.push_switch(row).unwrap();
        }
        writer
            .push_gap(&Gap {
                cpu: CpuId::new(1),
                start: Timestamp::from_ns(1),
                end: Timestamp::from_ns(2),
                lost: 5,
                level: swtch_core::Level::Os,
            })
            .unwrap();
        writer.finish(meta, &mut |_, _| ()).unwrap();
        (Trace::open(&path).unwrap(), dir)
    }

    fn written(by: By, format: Format, filter: Filter) -> String {
        let request = ReportRequest {
            by,
            format,
            filter,
            top: None,
        };
        let mut out = Vec::new();
        let (trace, _dir) = trace(&head().meta);
        report(&trace, &request, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn json(by: By, filter: Filter) -> Value {
        serde_json::from_str(&written(by, Format::Json, filter)).unwrap()
    }

    #[test]
    fn every_report_has_every_format_and_shows_nothing_hostile() {
        for by in By::ALL {
            for format in Format::ALL {
                let text = written(by, format, Filter::default());
                let is_plain =
                    |c: char| c == '\n' || c == '\r' || !swtch_output::text::is_hostile(c);
                assert!(text.chars().all(is_plain), "{by:?} {format:?}: {text}");
            }
            let json = json(by, Filter::default());
            assert_eq!(json["schema"], format!("swtch.report.{}/1", by.as_str()));
            assert_eq!(json["trace"]["lost"], 5);
        }
    }

    #[test]
    fn tasks_out_of_scope_are_in_no_count() {
        let json = json(By::Reason, Filter::default());
        assert_eq!(json["total"]["switches"], 3);
        assert_eq!(json["trace"]["switches"], 3);
        assert_eq!(json["trace"]["rows"], 4);
        assert_eq!(json["trace"]["rows_out_of_scope"], 1);
        for by in [By::Process, By::Thread, By::Syscall, By::Cpu, By::Cgroup] {
            assert_eq!(json_total(by), 3, "{by:?}");
        }
    }

    fn json_total(by: By) -> Value {
        json(by, Filter::default())["total"]["switches"].clone()
    }

    /// Rows at 1, 2 and 3 ms after the start.
    #[test]
    fn a_span_of_time_counts_only_what_lies_in_it() {
        let at = |words: &str| Some(words.parse::<Moment>().unwrap());
        let filter = Filter {
            since: at("1.5ms"),
            until: at("0.003"),
            ..Filter::default()
        };
        let json = json(By::Syscall, filter);
        assert_eq!(json["total"]["switches"], 1);
        assert_eq!(json["total"]["off_ns"], 50_000);
        assert_eq!(json["trace"]["filter"], "--since 0.0015 --until 0.003");
    }

    #[test]
    fn a_gap_is_said_before_the_numbers() {
        let table = written(By::Reason, Format::Table, Filter::default());
        let note = "note: 5 records lost in 1 gap";
        assert!(
            table.find(note).unwrap() < table.find("reason").unwrap(),
            "{table}"
        );
    }

    #[test]
    fn a_page_is_written_and_csv_of_it_is_refused() {
        let mut request = ReportRequest {
            by: By::Reason,
            format: Format::Table,
            filter: Filter::default(),
            top: None,
        };
        let (trace, _dir) = trace(&head().meta);
        let mut out = Vec::new();
        explain(&trace, &request, None, Extent::Full, &mut out).unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(
            page.contains("\nwhy tasks left the CPU\n") && page.contains("\nverdict\n"),
            "{page}"
        );
        request.format = Format::Csv;
        let refusal = explain(&trace, &request, None, Extent::Full, &mut io::sink()).unwrap_err();
        assert!(refusal.to_string().contains("report --by"), "{refusal}");
    }

    /// The cost of a wait is the time after the switch: 0 + 20 µs for the wakeup.
    #[test]
    fn time_by_reason_survives_the_disk() {
        let json = json(By::Reason, Filter::default());
        let wakeup = json["rows"].as_array().unwrap();
        let wakeup = wakeup.iter().find(|row| row["reason"] == "wakeup").unwrap();
        assert_eq!(wakeup["runq_ns"], Nanos::from_ns(20_000).as_ns());
        assert_eq!(wakeup["blocked_ns"], 0);
    }
}

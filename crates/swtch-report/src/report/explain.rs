//! `explain`: why a trace switched, on one screen ([`screen`]) or with all tables, and a verdict in
//! plain words.
//!
//! One scan feeds all aggregators, on three threads of about equal work ([`ExplainPage::visitors`]),
//! and the answer is written from their counts. The whole of it:
//!
//! ```text
//! head · balance          what was recorded, and that nothing is missing
//! by reason               why tasks switched
//! processes, threads      which tasks switched
//! who had the CPU         which tasks ran during the run-queue time of others
//! waits, wakers           what tasks waited for, and what ended the waits
//! blocked all the time    threads that made no switch, if the recorder looked for them
//! the bill                what the switches cost, if there are prices
//! verdict                 what stands out, with its numbers, and what could be changed
//! ```

use std::cmp::Reverse;
use std::io::Write;
use std::num::NonZeroU64;
use std::path::Path;

use anyhow::{Result, anyhow};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::cost::PriceList;
use swtch_core::{
    Arch, AwaitedThing, CgroupId, Contention, LostTime, Nanos, Open, Pid, Reason, Timestamp,
    UntoldSpans,
};
use swtch_output::answer::{self, VerbAnswer};
use swtch_output::format::Format;
use swtch_output::sheet::Sheet;
use swtch_output::text::{self, grouped};
use swtch_store::{Columns, Trace};

use super::accounts::BillContext;
use super::bill::is_complete;
use super::empty::{why_empty, why_filtered};
use super::filter::Filter;
use super::filtered_trace::{CountedRows, FilteredTrace, PieceVisitor};
use super::fired::FiredWait;
use super::group::{Groups, KeyNames, reason_of_open};
use super::head::{ReportedSwitches, TraceHead};
use super::lasting::LastingThreads;
use super::names::Names;
use super::per_unit::PerUnit;
use super::preemptor::Preemptors;
use super::pricing::Prices;
use super::programs::Programs;
use super::reason::ByReason;
use super::screen::{self, Screen};
use super::stack::{self, StackCounts, Symbols};
use super::summary::Summary;
use super::turns::ProgramTurns;
use super::verdict::{
    self, AdviceText, BlockedLoops, BusiestThread, Details, Finding, FindingKind, LongestWait,
    PartFacts, RecordedMachine, SerialWork, StackLockTime, TimeAtLocks, TurnTime, VerdictInput,
};
use super::wait::Objects;
use super::waker::Wakers;
use super::workers::WorkerTimes;
use super::worth::{Billed, Saving, SwitchPricing};
use super::{By, CONTENTION, ReportRequest, WAIT_OBJECT, contention_of};
use swtch_core::Tally;

/// Rows of each table of the page.
const ROWS: usize = 8;

/// Heading of what happens often, or for long, without losing time.
pub const BESIDES: &str = "What else it leaves the CPU for, by which no time is known to be lost:";

/// Heading of the table of threads that made no switch.
const BLOCKED_ALL_THE_TIME: &str = "threads that were blocked all the time";

/// From this share of one CPU on, which the interval of the price must reach, what switching takes is a cause.
const DEAR_PCT: f64 = 3.0;

/// Most stacks that the page shows.
const STACKS: usize = 3;

#[derive(Debug)]
struct ExplainPage<'p> {
    reasons: ByReason,
    processes: Groups,
    threads: Groups,
    calls: Groups,
    preemptors: Preemptors,
    objects: Objects,
    wakers: Wakers,
    places: StackCounts,
    details: Details,
    worth: Option<SwitchPricing<'p>>,
    /// Of a flight recorder's dump: the switch for which it was made.
    fired: Option<FiredWait>,
    /// The time of goroutines.
    workers: WorkerTimes,
}

/// The page's tables and findings, made from the counts.
#[derive(Debug)]
pub struct Explanation {
    reasons: Sheet,
    processes: Sheet,
    threads: Sheet,
    preemptors: Sheet,
    waits: Sheet,
    wakers: Sheet,
    stacks: Option<Sheet>,
    summary: Summary,
    summary_lines: Vec<String>,
    switches: u64,
    /// The time of programs, by where it went.
    pub lost: LostTime,
    /// The text if there is no cause.
    nothing: String,
    /// The thread that ran nearly all the time, if there is one.
    busiest: Option<BusiestThread>,
    /// What is said of threads of a runtime's own that are not read.
    unread_workers: Option<String>,
    /// The numbered causes first.
    findings: Vec<Finding>,
    /// The number of findings that are numbered: time was lost by them, or switching itself takes as much.
    numbered: usize,
    /// For each finding, the longest wait for its reason.
    longest: Vec<Option<LongestWait>>,
    /// The text for a page without findings.
    pub without_findings: String,
    /// Words on the switch for which a flight recorder made this dump.
    pub fired: Option<String>,
    /// Threads that were blocked all the time; `None` if it is not known.
    lasting: Option<LastingAnswer>,
    billed: Option<Billed>,
    /// The turns of programs, the one with the most first.
    turns: Vec<ProgramTurns>,
    /// What was counted of programs for each reason, the most frequent first.
    of_programs: Vec<(Reason, Tally)>,
    /// The counts for the first screen.
    pub screen: Screen,
}

/// Threads that were blocked all the time.
#[derive(Debug)]
struct LastingAnswer {
    /// The main ones in sentences.
    told: Vec<String>,
    sheet: Sheet,
}

/// The part of the answer that is written for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// One screen of this width.
    Screen(usize),
    /// The head, all tables, and the verdict.
    Full,
}

/// What is asked of an explanation.
#[derive(Clone, Copy, Debug)]
pub struct ExplainAsked {
    /// What is written for people.
    pub extent: Extent,
    /// The number of requests, or other units of work, that were done meanwhile: somebody has counted them.
    pub units: Option<NonZeroU64>,
}

impl From<Extent> for ExplainAsked {
    fn from(extent: Extent) -> Self {
        Self {
            extent,
            units: None,
        }
    }
}

/// Writes what explains a trace, and with `prices` also what its switches cost. `request.by` is
/// ignored.
///
/// # Errors
///
/// When the trace cannot be read or `out` cannot be written, and for CSV, which cannot hold a
/// page.
pub fn explain(
    trace: &Trace,
    request: &ReportRequest,
    prices: Option<&PriceList>,
    asked: impl Into<ExplainAsked>,
    out: &mut dyn Write,
) -> Result<()> {
    let ExplainAsked { extent, units } = asked.into();
    if request.format == Format::Csv {
        return Err(no_csv());
    }
    let mut filtered = FilteredTrace::open(trace, &request.filter)?;
    let prices = prices.map(|list| Prices::new(list, trace.meta()));
    let (page, rows) = ExplainPage::read(&mut filtered, prices.as_ref())?;
    let explained = page.explained(&filtered, rows, prices.as_ref())?;
    let answer = ExplainAnswer {
        explained: &explained,
        head: filtered.head(),
        rows,
        path: trace.path(),
        top: request.top,
        extent,
        units,
    };
    answer::write(&answer, request.format, out)
}

/// The page before it has a format.
struct ExplainAnswer<'a> {
    explained: &'a Explanation,
    head: &'a TraceHead,
    rows: ReportedSwitches,
    path: &'a Path,
    /// Number of rows of each table.
    top: Option<usize>,
    extent: Extent,
    units: Option<NonZeroU64>,
}

impl VerbAnswer for ExplainAnswer<'_> {
    fn to_table(&self) -> String {
        let Extent::Screen(width) = self.extent else {
            let most = self.top.unwrap_or(ROWS);
            let mut page = self.explained.to_text(self.head, self.rows, most);
            for line in self.units_and_turns() {
                page += &format!("{}\n", text::escaped(&line));
            }
            return page;
        };
        let besides = self.units_and_turns();
        let lines = screen::lines(
            self.explained,
            self.head,
            self.rows,
            &besides,
            self.path,
            width,
        );
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn to_json(&self) -> Value {
        let mut answer = self.explained.to_json(self.head, self.rows, self.top);
        answer["per_unit"] = json!(self.per_unit().map(|one| one.to_json()));
        answer
    }

    fn to_csv(&self) -> Result<String> {
        Err(no_csv())
    }
}

impl ExplainAnswer<'_> {
    fn per_unit(&self) -> Option<PerUnit<'_>> {
        Some(PerUnit {
            units: self.units?,
            reasons: &self.explained.of_programs,
            lost: &self.explained.lost,
            wall: self.head.duration(),
        })
    }

    /// What one unit of work took, and what is said of turns.
    fn units_and_turns(&self) -> Vec<String> {
        let units = self.per_unit().map(|one| one.words());
        let turns = self.explained.turns(self.head);
        units.into_iter().chain(turns).collect()
    }
}

fn no_csv() -> anyhow::Error {
    anyhow!("a page of several tables has no CSV form; use `swtch report --by X --format csv`")
}

/// The parts of a page of HTML that explains a trace.
#[derive(Debug)]
pub struct ExplainPageParts {
    /// The first lines of every report.
    pub head: Vec<String>,
    /// The balance of switches, which tells where each went, as the head words it.
    pub balance: String,
    /// Tables, each with its heading.
    pub tables: Vec<(&'static str, Sheet)>,
    /// The main reasons, in a few lines.
    pub summary: Vec<String>,
    /// The findings, the dearest first.
    pub findings: Vec<FindingText>,
    /// The text where there is no numbered cause.
    pub without_findings: Option<String>,
}

/// One finding as sentences, for a page.
#[derive(Clone, Debug)]
pub struct FindingText {
    /// Its number among the causes; `None` for what only happens often.
    pub number: Option<usize>,
    /// Words for what was seen, with its numbers.
    pub seen: String,
    /// The places that it comes from: threads, calls, functions and wakers.
    pub places: Vec<String>,
    /// Words for what removing it would save.
    pub worth: Option<String>,
    /// Advice on what a person could change, and when not to.
    pub advice: Option<AdviceText>,
}

/// The parts of the page that explains a trace.
///
/// # Errors
///
/// When the trace cannot be read.
pub fn parts(
    trace: &Trace,
    filter: &Filter,
    prices: Option<&PriceList>,
) -> Result<ExplainPageParts> {
    let mut filtered = FilteredTrace::open(trace, filter)?;
    let prices = prices.map(|list| Prices::new(list, trace.meta()));
    let (page, rows) = ExplainPage::read(&mut filtered, prices.as_ref())?;
    let explained = page.explained(&filtered, rows, prices.as_ref())?;
    let head = filtered.head().to_text(rows);
    Ok(ExplainPageParts {
        head: head
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect(),
        balance: filtered.head().balance(),
        summary: explained.summary_lines.clone(),
        findings: explained.told(),
        without_findings: explained.first_sentence(),
        tables: explained.into_tables(),
    })
}

impl<'p> ExplainPage<'p> {
    fn read(
        filtered: &mut FilteredTrace<'_>,
        prices: Option<&'p Prices<'p>>,
    ) -> Result<(Self, ReportedSwitches)> {
        let names = filtered.names();
        let has_stacks = filtered.head().meta.stacks.is_some();
        let worth = prices.map(|prices| SwitchPricing::new(prices, &names, is_complete(filtered)));
        let part = PartFacts {
            began: filtered.began(),
            arch: filtered.arch(),
            recorder: filtered.head().meta.recorder_pid.map(Pid::new),
        };
        let mut details = Details::new(&names, part);
        details.spans = filtered.spans()?;
        let mut page = Self::new(&names, contention_of(filtered), details, worth);
        let fired = filtered.head().meta.ring.as_ref();
        let fired = fired.and_then(|ring| ring.fired);
        page.fired = fired.map(|fired| FiredWait::new(fired, contention_of(filtered)));
        let [mut first, further @ ..] = page.visitors(&names);
        let columns = columns(has_stacks);
        let rows = filtered.scan_from_start_with(columns, &mut first, further.into())?;
        drop(first);
        page.finish(&names);
        page.workers = filtered.worker_times()?;
        page.add_open(filtered, &names)?;
        page.details.spans.finish();
        Ok((page, rows))
    }

    /// Adds what no row tells: the waits and runs that were open at the end.
    fn add_open(&mut self, filtered: &FilteredTrace<'_>, names: &Names) -> Result<()> {
        let opens = filtered.opens()?;
        for open in &opens {
            if let Some(reason) = reason_of_open(open) {
                self.reasons.add_open(reason, open);
                self.processes.add_open(open, names);
                self.threads.add_open(open, names);
            }
        }
        let selection = filtered.selection();
        if selection.to() < Timestamp::from_ns(u64::MAX) {
            self.objects.finish_chains(&[], &[], names);
            return Ok(());
        }
        let runs = filtered.open_runs()?;
        self.objects.finish_chains(&opens, &runs, names);
        let is_taken = |run: &&Open| selection.takes_task(names.index(run.task));
        for open in opens.iter().chain(&runs) {
            self.details.spans.add_open(open, names.index(open.task));
        }
        for open in opens.iter().chain(runs.iter().filter(is_taken)) {
            self.details.add_open(open, names.index(open.task));
        }
        self.preemptors.add_open(&runs, &opens, names);
        Ok(())
    }

    fn new(
        names: &Names,
        contention: Contention,
        details: Details,
        worth: Option<SwitchPricing<'p>>,
    ) -> Self {
        Self {
            reasons: ByReason::default(),
            processes: Groups::new(By::Process, names),
            threads: Groups::new(By::Thread, names),
            calls: Groups::new(By::Syscall, names),
            preemptors: Preemptors::new(contention, names),
            objects: Objects::with_chains(names),
            wakers: Wakers::new(names),
            places: StackCounts::default(),
            details,
            worth,
            fired: None,
            workers: WorkerTimes::default(),
        }
    }

    /// Returns the visitors that take the rows. No two of these share anything, so each may run on a thread of its own.
    fn visitors<'a>(&'a mut self, names: &'a Names) -> [PieceVisitor<'a>; 4] {
        let Self {
            reasons,
            processes: _,
            threads,
            calls,
            preemptors,
            objects,
            wakers,
            places,
            details,
            worth,
            fired,
            workers: _,
        } = self;
        let counts = move |rows: CountedRows<'_>| {
            for (row, task, counted) in rows.iter() {
                reasons.add(row, counted);
                threads.add(row, task, counted, names);
                calls.add(row, task, counted, names);
                details.add(row, task, counted, names);
            }
        };
        let waits = move |rows: CountedRows<'_>| {
            for (row, task, counted) in rows.iter() {
                objects.add(row, task, counted, names);
            }
        };
        let prices = move |rows: CountedRows<'_>| {
            if let Some(worth) = worth {
                for (row, task, counted) in rows.iter() {
                    worth.add(row, task, counted, names);
                }
            }
            for (row, task, counted) in rows.iter() {
                if counted.wait {
                    wakers.add(row, task, names);
                }
            }
            for (row, task, counted) in rows.iter() {
                if counted.wait {
                    places.add(row, task, names);
                }
            }
        };
        let holders = move |rows: CountedRows<'_>| {
            for (row, task, counted) in rows.iter() {
                preemptors.add(row, task, counted, names);
            }
            if let Some(fired) = fired {
                rows.iter().for_each(|(row, ..)| fired.add(row));
            }
        };
        [
            Box::new(waits),
            Box::new(counts),
            Box::new(prices),
            Box::new(holders),
        ]
    }

    /// Counts what can be told only after the last row.
    fn finish(&mut self, names: &Names) {
        self.preemptors.finish(names);
        self.objects.finish();
        self.details.finish();
        self.worth.iter_mut().for_each(SwitchPricing::finish);
        self.fired.iter_mut().for_each(FiredWait::finish);
        self.processes = self.threads.by_process(names);
    }

    fn explained(
        &self,
        filtered: &FilteredTrace<'_>,
        rows: ReportedSwitches,
        prices: Option<&Prices<'_>>,
    ) -> Result<Explanation> {
        let head = filtered.head();
        let cgroups = filtered.cgroups()?;
        let symbols = match head.meta.stacks {
            Some(_) => Some(filtered.symbols()?),
            None => None,
        };
        let names = &filtered.names();
        let selection = filtered.selection();
        // The machine's counters were read at the start and the end: they say nothing of a part.
        let busy_pct = if selection.is_of_a_span() {
            None
        } else {
            head.busy_pct()
        };
        let machine = RecordedMachine {
            cpus: head.meta.cpus_of_the_recorded(),
            busy_pct,
            quotas: &head.meta.quotas,
            disks: &head.meta.disks,
            memory_limits: &head.meta.memory_limits,
            wall: head.duration_of(&selection),
            recorder: head.meta.recorder_pid.map(Pid::new),
        };
        let bill = prices.map(|prices| BillContext::new(prices, head, &selection));
        let bill = bill.as_ref();
        let mut explained = self.conclude(
            names,
            filtered.arch(),
            &cgroups,
            machine,
            symbols.as_ref(),
            bill,
        );
        let start = Timestamp::from_ns(head.meta.start_ns);
        explained.fired = self
            .fired
            .as_ref()
            .and_then(|fired| fired.told(names, start));
        let lasting = LastingThreads::of(&head.meta, filtered.filter(), filtered.arch());
        explained.lasting = lasting.map(|lasting| LastingAnswer {
            // Without a switch they are all that is known, be they idle or not.
            told: lasting.told(rows.counted == 0),
            sheet: lasting.sheet(),
        });
        // A turn consists of switches for all reasons.
        if !filtered.filter().reasons.is_empty() {
            explained.turns.clear();
        }
        if let Some(why) = why_nothing(head, rows) {
            explained.without_findings = why;
            // Of threads that made no switch nothing was measured.
            explained.lost = LostTime::default();
        }
        Ok(explained)
    }

    fn conclude(
        &self,
        names: &Names,
        arch: Option<Arch>,
        cgroups: &FxHashMap<CgroupId, String>,
        machine: RecordedMachine<'_>,
        symbols: Option<&Symbols>,
        bill: Option<&BillContext<'_>>,
    ) -> Explanation {
        let programs = Programs::new(names);
        let runs_goroutines =
            |process: usize| self.workers.are_known_of(names.process(process).pid);
        let at_locks = TimeAtLocks::of(&self.objects, arch, runs_goroutines);
        let (details, objects) = (&self.details, &self.objects);
        let stack_locks = StackLockTime::of(objects, arch, symbols);
        let known = at_locks.lost() + stack_locks.sum() + self.workers.at_locks();
        let serial = SerialWork::of(details, objects, known, names, machine.wall);
        let loops = BlockedLoops::of(details, arch);
        let blocked = |reason| details.of_programs(&self.reasons, reason).blocked_in_all();
        let turns = TurnTime::of(details, blocked, &loops, symbols);
        let mut lost = details.lost_time(&at_locks, &stack_locks, serial.as_ref(), &loops);
        turns.take_from(&mut lost);
        lost.workers = self.workers.lost();
        let picture = VerdictInput {
            reasons: &self.reasons,
            processes: &self.processes,
            threads: &self.threads,
            calls: &self.calls,
            preemptors: &self.preemptors,
            objects: &self.objects,
            details: &self.details,
            names,
            programs: &programs,
            symbols,
            arch,
            cgroups,
            cpus: machine.cpus,
            busy_pct: machine.busy_pct,
            quotas: machine.quotas,
            disks: machine.disks,
            memory_limits: machine.memory_limits,
            wall: machine.wall,
            recorder: machine.recorder,
            lost,
            workers: &self.workers,
            serial,
            loops,
            turns,
            at_locks,
            stack_locks,
            busiest: BusiestThread::of(&self.details, names, &self.wakers, machine.wall),
        };
        let words = KeyNames {
            names,
            arch,
            cgroups,
            places: None,
        };
        let mut turns = self.details.spans.by_program(names, &programs, symbols);
        let inferred = &self.details.turns;
        turns.extend(inferred.by_program(names, &programs, runs_goroutines));
        let of_programs = self.details.all_of_programs(&self.reasons);
        let total = self.reasons.total();
        let summary = Summary::new(&self.reasons);
        let mut reasons = self.reasons.sheet();
        reasons.views.truncate(1);
        let findings = verdict::findings(&picture);
        let worth = self.worth.as_ref().zip(bill);
        let billed = worth.map(|(worth, bill)| worth.conclude(bill, &findings, names, symbols));
        let (findings, billed, numbered) = in_order(findings, billed);
        let by_switches = |tally: &Tally| tally.switches;
        let screen = Screen::new(
            programs.ranked(&self.processes, by_switches),
            self.reasons.ranked(),
            total.clone(),
        );
        Explanation {
            reasons,
            processes: self.processes.sheet(&words),
            threads: self.threads.sheet(&words),
            preemptors: self.preemptors.sheet(names),
            waits: self.objects.sheet(names, symbols),
            wakers: self.wakers.sheet(names),
            stacks: symbols.map(|symbols| self.places.sheet(symbols, names, true)),
            summary_lines: summary.lines(&total),
            summary,
            switches: total.switches,
            longest: findings
                .iter()
                .map(|finding| self.details.longest(finding.reason?))
                .collect(),
            findings,
            numbered,
            lost: picture.lost,
            nothing: picture.nothing_is_lost(),
            unread_workers: picture.unread_workers(),
            busiest: picture.busiest,
            without_findings: verdict::nothing_stands_out(),
            fired: None,
            lasting: None,
            billed,
            turns,
            of_programs,
            screen,
        }
    }
}

/// The most kinds of spans that are told in words.
const MOST_SPANS: usize = 3;

/// What is said of spans that a trace does not hold; `None` if nothing is.
fn words_of_untold(untold: UntoldSpans) -> Option<String> {
    let parts = untold.reasons();
    let parts: Vec<_> = parts
        .map(|(count, why)| format!("{} {why}", grouped(count)))
        .collect();
    (!parts.is_empty()).then(|| format!("Spans that are not told: {}.", parts.join(", ")))
}

fn lost_json(lost: &LostTime) -> Value {
    json!({
        "ran_ns": lost.ran.as_ns(),
        "no_cpu_ns": lost.no_cpu.as_ns(),
        "no_cpu_at_end_ns": lost.no_cpu_at_end.as_ns(),
        "in_work_ns": lost.blocked(AwaitedThing::Work).as_ns(),
        "workers_ns": lost.workers.as_ns(),
        "for_own_ns": lost.blocked(AwaitedThing::Own).as_ns(),
        "for_others_ns": lost.blocked(AwaitedThing::Others).as_ns(),
        "until_a_time_ns": lost.blocked(AwaitedThing::Clock).as_ns(),
        "untold_ns": lost.blocked(AwaitedThing::Untold).as_ns(),
    })
}

/// Findings whose switches alone take more of a CPU than other causes lose come before these, and such that
/// take [`DEAR_PCT`] of a CPU come before those that only happen often. Returns how many are numbered.
fn in_order(
    findings: Vec<Finding>,
    mut billed: Option<Billed>,
) -> (Vec<Finding>, Option<Billed>, usize) {
    let savings = billed
        .as_mut()
        .map_or_else(Vec::new, |billed| std::mem::take(&mut billed.savings));
    let savings = savings.into_iter().map(Some).chain(std::iter::repeat(None));
    let mut told: Vec<_> = findings
        .into_iter()
        .zip(savings.map(Option::flatten))
        .map(|(finding, saving)| {
            let taken = saving
                .as_ref()
                .map_or(Nanos::ZERO, |one| one.at_least(DEAR_PCT));
            let weight = finding.time.max(taken);
            let is_numbered = finding.kind == FindingKind::Lost || taken > Nanos::ZERO;
            (is_numbered, weight, finding, saving)
        })
        .collect();
    told.sort_by_key(|(is_numbered, weight, ..)| (!is_numbered, Reverse(*weight)));
    let numbered = told.iter().filter(|one| one.0).count();
    let (findings, savings) = told
        .into_iter()
        .map(|(_, _, finding, saving)| (finding, saving))
        .unzip();
    if let Some(billed) = &mut billed {
        billed.savings = savings;
    }
    (findings, billed, numbered)
}

/// Says why there is no switch to judge; `None` if there is one.
fn why_nothing(head: &TraceHead, rows: ReportedSwitches) -> Option<String> {
    match &head.filter {
        Some(filter) if rows.counted == 0 && head.rows > 0 => Some(why_filtered(filter, head.rows)),
        _ => why_empty(&head.meta, rows.counted),
    }
}

/// Columns that the one scan reads.
fn columns(has_stacks: bool) -> Columns {
    let stacks = if has_stacks {
        Columns::STACKS | Columns::WAKER_STACKS
    } else {
        Columns::NONE
    };
    Columns::RULE
        | Columns::BITS
        | Columns::SYSCALL
        | WAIT_OBJECT
        | Columns::WAKER
        | Columns::NOMINATOR
        | Columns::CGROUP
        | Columns::CLASS
        | CONTENTION
        | stacks
}

impl Explanation {
    fn to_text(&self, head: &TraceHead, rows: ReportedSwitches, most: usize) -> String {
        let width = text::table_width();
        let mut page = head.to_text(rows);
        page += &format!("balance: {}\n", head.balance());
        page += "\nwhy tasks left the CPU\n";
        page += &self.reasons.to_table_in(width, usize::MAX);
        for (title, sheet) in self.further_tables() {
            if !sheet.rows.is_empty() {
                page += &format!("\n{title}\n");
                // Notes on sums stand below the first table only.
                page += &without_notes_of(sheet, &self.reasons).to_table_in(width, most);
            }
        }
        if let Some(stacks) = self.stacks.as_ref().filter(|sheet| !sheet.rows.is_empty()) {
            page += "\nplaces that waited longest\n";
            page += &stack::to_table(stacks, STACKS.min(most));
        }
        if let Some(lasting) = self
            .lasting
            .as_ref()
            .filter(|one| !one.sheet.rows.is_empty())
        {
            page += &format!("\n{BLOCKED_ALL_THE_TIME}\n");
            page += &lasting.sheet.to_table_in(width, most);
        }
        if let Some(billed) = &self.billed {
            page += "\nwhat the switches cost\n";
            page += &billed.sheet.to_table_in(width, most);
        }
        page + &self.verdict_text()
    }

    /// The tables after the first that are written alike.
    const fn further_tables(&self) -> [(&'static str, &Sheet); 5] {
        [
            ("processes with the most switches", &self.processes),
            ("threads with the most switches", &self.threads),
            (
                "who had the CPU while tasks were runnable",
                &self.preemptors,
            ),
            ("what was waited for", &self.waits),
            ("who woke whom", &self.wakers),
        ]
    }

    /// All tables that have rows.
    fn into_tables(self) -> Vec<(&'static str, Sheet)> {
        let further = self
            .further_tables()
            .map(|(title, sheet)| (title, without_notes_of(sheet, &self.reasons)));
        let mut tables = vec![("why tasks left the CPU", self.reasons)];
        tables.extend(further);
        tables.extend(
            self.stacks
                .map(|sheet| ("places that waited longest", sheet)),
        );
        tables.extend(
            self.lasting
                .map(|lasting| (BLOCKED_ALL_THE_TIME, lasting.sheet)),
        );
        tables.extend(
            self.billed
                .map(|billed| ("what the switches cost", billed.sheet)),
        );
        tables.retain(|(_, sheet)| !sheet.rows.is_empty());
        tables
    }

    /// What is said of spans, and of the turns of the program with the most of them.
    fn turns(&self, head: &TraceHead) -> Vec<String> {
        let start = Timestamp::from_ns(head.meta.start_ns);
        let (spans, turns): (Vec<_>, Vec<_>) =
            self.turns.iter().partition(|program| program.are_spans());
        let more = spans.len().saturating_sub(MOST_SPANS);
        let more = (more > 0).then(|| format!("{more} more kinds of spans: --format json."));
        let told = spans.into_iter().take(MOST_SPANS);
        let told = told.chain(turns.into_iter().take(1));
        let told = told.map(|program| program.words(head.duration(), start));
        let untold = head.meta.spans.and_then(words_of_untold);
        told.chain(more).chain(untold).collect()
    }

    /// The main threads that were blocked all the time, in sentences.
    pub fn lasting(&self) -> &[String] {
        self.lasting.as_ref().map_or(&[], |lasting| &lasting.told)
    }

    /// The findings in words, the weightiest first.
    pub fn told(&self) -> Vec<FindingText> {
        let findings = self.findings.iter().enumerate();
        let told = findings.map(|(place, finding)| FindingText {
            number: self.number(place),
            seen: finding.seen.clone(),
            places: finding.places.clone(),
            worth: self.saving(place).map(Saving::to_words),
            advice: finding.advice.clone(),
        });
        told.collect()
    }

    fn verdict_text(&self) -> String {
        let mut lines = vec![String::new(), "verdict".to_owned()];
        lines.extend(self.summary_lines.iter().cloned());
        lines.extend(
            self.fired
                .iter()
                .map(|told| text::escaped(told).into_owned()),
        );
        if let Some(first) = self.first_sentence() {
            lines.push(text::escaped(&first).into_owned());
        }
        let beside = self.beside_causes();
        lines.extend(beside.iter().map(|told| text::escaped(told).into_owned()));
        for (place, finding) in self.findings.iter().enumerate() {
            if place == self.numbered {
                lines.push(format!("\n{}", BESIDES));
            }
            let mark = match self.number(place) {
                Some(number) => format!("{number}."),
                None => "-".to_owned(),
            };
            lines.push(format!("\n{mark} {}", text::escaped(&finding.seen)));
            let places = finding.places.iter();
            lines.extend(places.map(|line| format!("   {}", text::escaped(line))));
            if let Some(saving) = self.saving(place) {
                lines.push(format!("   costs: {}", text::escaped(&saving.to_words())));
            }
            if let Some(advice) = &finding.advice {
                lines.push(format!(
                    "   to change it: {}",
                    text::escaped(&advice.change)
                ));
                lines.push(format!("   unless {}", advice.unless));
            }
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The number of the finding at this place among the causes; `None` for what only happens often.
    fn number(&self, place: usize) -> Option<usize> {
        (place < self.numbered).then_some(place + 1)
    }

    /// Returns what is said before the causes: that there is none, or that no time is lost.
    pub fn first_sentence(&self) -> Option<String> {
        match self.numbered {
            0 if self.lost.whole() == Nanos::ZERO => Some(self.without_findings.clone()),
            0 => Some(self.nothing.clone()),
            _ => None,
        }
    }

    /// Returns what is said, where there are causes, of a thread that ran nearly all the time nevertheless, and of
    /// threads that are not read.
    pub fn beside_causes(&self) -> Vec<String> {
        if self.numbered == 0 {
            return Vec::new();
        }
        let busiest = self.busiest.as_ref().map(BusiestThread::words);
        let told = [busiest, self.unread_workers.clone()];
        told.into_iter().flatten().collect()
    }

    /// Says what all switches together cost; `None` without prices, or if it is too little to mention.
    pub fn cost(&self) -> Option<String> {
        let all = self.billed.as_ref()?.all.as_ref()?;
        Some(all.to_words())
    }

    /// Returns what removing the finding at this place in the list would save.
    fn saving(&self, place: usize) -> Option<&Saving> {
        self.billed.as_ref()?.savings.get(place)?.as_ref()
    }

    fn to_json(&self, head: &TraceHead, rows: ReportedSwitches, top: Option<usize>) -> Value {
        let rows_of = |sheet: &Sheet| sheet.clone().with_most(top).to_json_rows();
        let start = Timestamp::from_ns(head.meta.start_ns);
        let findings = self.findings.iter().enumerate();
        let findings: Vec<_> = findings
            .map(|(place, one)| {
                let longest = self.longest[place].map(|longest| longest.to_json(start));
                one.to_json(
                    self.number(place),
                    self.switches,
                    &self.lost,
                    self.saving(place),
                    json!(longest),
                )
            })
            .collect();
        let billed = self.billed.as_ref();
        json!({
            "schema": "swtch.explain/1",
            "host": head.to_json_host(),
            "trace": head.to_json_trace(rows),
            "balance": head.to_json_balance(),
            "reasons": rows_of(&self.reasons),
            "reasons_total": self.reasons.to_json_total(),
            "processes": rows_of(&self.processes),
            "threads": rows_of(&self.threads),
            "preemptors": rows_of(&self.preemptors),
            "preemptors_total": self.preemptors.to_json_total(),
            "waits": rows_of(&self.waits),
            "wakers": rows_of(&self.wakers),
            "stacks": self.stacks.as_ref().map(rows_of),
            "lasting": self.lasting.as_ref().map(|lasting| rows_of(&lasting.sheet)),
            "bill": billed.map(|billed| rows_of(&billed.sheet)),
            "bill_total": billed.map(|billed| billed.sheet.to_json_total()),
            "bill_notes": billed.map(|billed| &billed.sheet.notes),
            "prices": billed.map(|billed| &billed.prices),
            "summary": self.summary.to_json(),
            "fired": self.fired,
            "lost": lost_json(&self.lost),
            "turns": self.turns.iter().map(|program| program.to_json(start)).collect::<Vec<_>>(),
            "findings": findings,
            "without_findings": self.first_sentence(),
        })
    }
}

fn without_notes_of(sheet: &Sheet, first: &Sheet) -> Sheet {
    let mut sheet = sheet.clone();
    sheet.notes.retain(|note| !first.notes.contains(note));
    sheet
}

#[cfg(test)]
mod tests;

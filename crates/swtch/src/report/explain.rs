//! `explain`: the main reports of one trace in one page, and a verdict in plain words.
//!
//! One scan feeds all aggregators; the page is then written from the counts:
//!
//! ```text
//! head · balance          what was recorded, and that nothing is missing
//! by reason               why
//! threads                 who
//! who had the CPU         to whom the run-queue time went
//! waits, wakers           for what, ended by whom
//! the bill                what the switches cost, when there are prices
//! verdict                 what stands out, with its numbers, and what could be changed
//! ```

use std::io::Write;

use anyhow::{Context as _, Result, bail};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::cost::PriceList;
use swtch_core::{Arch, CgroupId, Reason, Switch};
use swtch_store::{Columns, Trace};

use super::accounts::Bill;
use super::bill::is_complete;
use super::filter::{Counted, Filter, Selection};
use super::group::{Groups, Words, reason_of_open};
use super::head::{Head, Rows};
use super::names::Names;
use super::preemptor::Preemptors;
use super::pricing::Prices;
use super::reason::ByReason;
use super::session::Session;
use super::sheet::Sheet;
use super::stack::{self, Places, Symbols};
use super::summary::Summary;
use super::verdict::{self, Details, Finding, Picture};
use super::wait::Objects;
use super::waker::Wakers;
use super::worth::{Billed, Saving, Worth};
use super::{By, CONTENTION, Request, WAIT_OBJECT, contention_of, write_json};
use crate::format::{Format, write_answer};
use crate::text;

/// Rows of each table of the page.
const ROWS: usize = 8;

/// Stacks on the page.
const STACKS: usize = 3;

/// Everything the page counts.
#[derive(Debug)]
struct Page<'p> {
    reasons: ByReason,
    threads: Groups,
    calls: Groups,
    preemptors: Preemptors,
    objects: Objects,
    wakers: Wakers,
    places: Places,
    details: Details,
    worth: Option<Worth<'p>>,
}

/// The page's tables and findings, made from the counts.
#[derive(Debug)]
struct Explained {
    reasons: Sheet,
    threads: Sheet,
    preemptors: Sheet,
    waits: Sheet,
    wakers: Sheet,
    stacks: Option<Sheet>,
    summary: Summary,
    summary_lines: Vec<String>,
    switches: u64,
    findings: Vec<Finding>,
    billed: Option<Billed>,
}

/// Writes the page that explains a trace; with `prices`, what its switches cost too. `request.by`
/// plays no part.
///
/// # Errors
///
/// When the trace cannot be read or `out` cannot be written, and for CSV, which cannot hold a
/// page.
pub fn explain(
    trace: &Trace,
    request: &Request,
    prices: Option<&PriceList>,
    out: &mut dyn Write,
) -> Result<()> {
    if request.format == Format::Csv {
        bail!("a page of several tables has no CSV form; use `swtch report --by X --format csv`");
    }
    let mut session = Session::open(trace, &request.filter)?;
    let prices = prices.map(|list| Prices::new(list, trace.meta()));
    let (page, rows) = Page::read(&mut session, prices.as_ref())?;
    let explained = page.explained(&session, prices.as_ref())?;
    let mut written = Vec::new();
    if request.format == Format::Json {
        let object = explained.to_json(session.head(), rows, request.top);
        write_json(&object, &mut written)?;
    } else {
        let most = request.top.unwrap_or(ROWS);
        explained.write(session.head(), rows, most, &mut written)?;
    }
    write_answer(out, &written).context("writing the page")
}

/// What a page that is sent is made of.
#[derive(Debug)]
pub struct Parts {
    /// The first lines of every report.
    pub head: Vec<String>,
    /// Where every switch went.
    pub balance: String,
    /// Tables and what they show.
    pub tables: Vec<(&'static str, Sheet)>,
    /// All of it in a few lines.
    pub summary: Vec<String>,
    /// What stands out.
    pub findings: Vec<Told>,
}

/// A finding in words.
#[derive(Clone, Debug)]
pub struct Told {
    /// What was seen, with its numbers.
    pub seen: String,
    /// Where it comes from.
    pub places: Vec<String>,
    /// What removing it would save.
    pub worth: Option<String>,
    /// What a person could change.
    pub advice: Option<String>,
}

/// The parts of the page that explains a trace.
///
/// # Errors
///
/// When the trace cannot be read.
pub fn parts(trace: &Trace, filter: &Filter, prices: Option<&PriceList>) -> Result<Parts> {
    let mut session = Session::open(trace, filter)?;
    let prices = prices.map(|list| Prices::new(list, trace.meta()));
    let (page, rows) = Page::read(&mut session, prices.as_ref())?;
    let explained = page.explained(&session, prices.as_ref())?;
    let mut head = Vec::new();
    session.head().write(rows, &mut head)?;
    let head = String::from_utf8_lossy(&head);
    Ok(Parts {
        head: head
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect(),
        balance: session.head().balance(),
        summary: explained.summary_lines.clone(),
        findings: explained.told(),
        tables: explained.into_tables(),
    })
}

impl<'p> Page<'p> {
    fn read(session: &mut Session<'_>, prices: Option<&'p Prices<'p>>) -> Result<(Self, Rows)> {
        let (names, selection) = (session.names(), session.selection());
        let has_stacks = session.head().meta.stacks.is_some();
        let mut page = Self {
            reasons: ByReason::default(),
            threads: Groups::new(By::Thread, &names),
            calls: Groups::new(By::Syscall, &names),
            preemptors: Preemptors::new(contention_of(session), &names),
            objects: Objects::new(&names),
            wakers: Wakers::default(),
            places: Places::default(),
            details: Details::default(),
            worth: prices.map(|prices| Worth::new(prices, &names, is_complete(session))),
        };
        let rows = session.scan_from_start(columns(has_stacks), &mut |row, task, counted| {
            page.add(row, task, counted, &names, &selection);
        })?;
        page.preemptors.finish(&names, &selection);
        page.worth.iter_mut().for_each(Worth::finish);
        for open in session.opens()? {
            if let Some(reason) = reason_of_open(&open) {
                page.reasons.add_open(reason, &open);
                page.threads.add_open(&open, &names);
            }
        }
        Ok((page, rows))
    }

    fn add(
        &mut self,
        row: &Switch,
        task: usize,
        counted: Counted,
        names: &Names,
        selection: &Selection,
    ) {
        self.reasons.add(row, counted);
        self.threads.add(row, task, counted, names);
        self.calls.add(row, task, counted, names);
        self.preemptors.add(row, task, counted, names, selection);
        self.objects.add(row, task, counted, names);
        if let Some(worth) = &mut self.worth {
            worth.add(row, task, counted, names);
        }
        if counted.switch {
            self.details.add_switch(row);
        }
        if counted.wait {
            self.details.add_wait(row);
            self.wakers.add(row, task, names);
            self.places.add(row, task, names);
        }
    }

    fn explained(&self, session: &Session<'_>, prices: Option<&Prices<'_>>) -> Result<Explained> {
        let head = session.head();
        let needs_paths = self.reasons.of(Reason::Throttle).tally.waits > 0;
        let cgroups = match needs_paths {
            true => session.cgroups()?,
            false => FxHashMap::default(),
        };
        let symbols = match head.meta.stacks {
            Some(_) => Some(session.symbols()?),
            None => None,
        };
        let names = &session.names();
        let cpus = head.meta.host.cpus;
        let selection = session.selection();
        let bill = prices.map(|prices| Bill::new(prices, head, &selection));
        let bill = bill.as_ref();
        Ok(self.conclude(
            names,
            session.arch(),
            &cgroups,
            cpus,
            symbols.as_ref(),
            bill,
        ))
    }

    fn conclude(
        &self,
        names: &Names,
        arch: Option<Arch>,
        cgroups: &FxHashMap<CgroupId, String>,
        cpus: u32,
        symbols: Option<&Symbols>,
        bill: Option<&Bill<'_>>,
    ) -> Explained {
        let picture = Picture {
            reasons: &self.reasons,
            threads: &self.threads,
            calls: &self.calls,
            preemptors: &self.preemptors,
            wakers: &self.wakers,
            objects: &self.objects,
            details: &self.details,
            names,
            arch,
            cgroups,
            cpus,
        };
        let words = Words {
            names,
            arch,
            cgroups,
        };
        let total = self.reasons.total();
        let summary = Summary::new(&self.reasons);
        let mut reasons = self.reasons.sheet();
        reasons.views.truncate(1);
        let findings = verdict::findings(&picture);
        let worth = self.worth.as_ref().zip(bill);
        let billed = worth.map(|(worth, bill)| worth.conclude(bill, &findings, names, symbols));
        Explained {
            reasons,
            threads: self.threads.sheet(&words),
            preemptors: self.preemptors.sheet(names),
            waits: self.objects.sheet(names),
            wakers: self.wakers.sheet(names),
            stacks: symbols.map(|symbols| self.places.sheet(symbols, names, true)),
            summary_lines: summary.lines(&total),
            summary,
            switches: total.switches,
            findings,
            billed,
        }
    }
}

/// Columns of the one scan.
fn columns(has_stacks: bool) -> Columns {
    let stacks = if has_stacks {
        Columns::STACKS
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
        | CONTENTION
        | stacks
}

impl Explained {
    fn write(&self, head: &Head, rows: Rows, most: usize, out: &mut Vec<u8>) -> Result<()> {
        head.write(rows, out)?;
        writeln!(out, "balance: {}", head.balance())?;
        writeln!(out, "\nwhy tasks left the CPU")?;
        self.reasons.write_table(usize::MAX, out)?;
        for (title, sheet) in self.further_tables() {
            if !sheet.rows.is_empty() {
                writeln!(out, "\n{title}")?;
                // Notes on sums stand under the first table.
                without_notes_of(sheet, &self.reasons).write_table(most, out)?;
            }
        }
        if let Some(stacks) = self.stacks.as_ref().filter(|sheet| !sheet.rows.is_empty()) {
            writeln!(out, "\nplaces that waited longest")?;
            stack::write_table(stacks, STACKS.min(most), out)?;
        }
        if let Some(billed) = &self.billed {
            writeln!(out, "\nwhat the switches cost")?;
            billed.sheet.write_table(most, out)?;
        }
        self.write_verdict(out)
    }

    /// The tables after the first that have one form everywhere.
    const fn further_tables(&self) -> [(&'static str, &Sheet); 4] {
        [
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
            self.billed
                .map(|billed| ("what the switches cost", billed.sheet)),
        );
        tables.retain(|(_, sheet)| !sheet.rows.is_empty());
        tables
    }

    /// The findings in words.
    fn told(&self) -> Vec<Told> {
        let findings = self.findings.iter().enumerate();
        let told = findings.map(|(place, finding)| Told {
            seen: finding.seen.clone(),
            places: finding.places.clone(),
            worth: self.saving(place).map(Saving::to_words),
            advice: finding.advice.clone(),
        });
        told.collect()
    }

    fn write_verdict(&self, out: &mut Vec<u8>) -> Result<()> {
        writeln!(out, "\nverdict")?;
        for line in &self.summary_lines {
            writeln!(out, "{line}")?;
        }
        if self.findings.is_empty() {
            writeln!(out, "{}", verdict::nothing_stands_out())?;
        }
        for (place, finding) in self.findings.iter().enumerate() {
            writeln!(out, "\n{}. {}", place + 1, text::escaped(&finding.seen))?;
            for line in &finding.places {
                writeln!(out, "   {}", text::escaped(line))?;
            }
            if let Some(saving) = self.saving(place) {
                writeln!(out, "   worth: {}", text::escaped(&saving.to_words()))?;
            }
            if let Some(advice) = &finding.advice {
                writeln!(out, "   to change it: {}", text::escaped(advice))?;
            }
        }
        Ok(())
    }

    /// What the finding at this place is worth.
    fn saving(&self, place: usize) -> Option<&Saving> {
        self.billed.as_ref()?.savings.get(place)?.as_ref()
    }

    fn to_json(&self, head: &Head, rows: Rows, top: Option<usize>) -> Value {
        let rows_of = |sheet: &Sheet| sheet.clone().with_most(top).to_json_rows();
        let findings = self.findings.iter().enumerate();
        let findings: Vec<_> = findings
            .map(|(place, one)| one.to_json(self.switches, self.saving(place)))
            .collect();
        let billed = self.billed.as_ref();
        json!({
            "schema": "swtch.explain/1",
            "host": head.to_json_host(),
            "trace": head.to_json_trace(rows),
            "balance": head.to_json_balance(),
            "reasons": rows_of(&self.reasons),
            "reasons_total": self.reasons.to_json_total(),
            "threads": rows_of(&self.threads),
            "preemptors": rows_of(&self.preemptors),
            "preemptors_total": self.preemptors.to_json_total(),
            "waits": rows_of(&self.waits),
            "wakers": rows_of(&self.wakers),
            "stacks": self.stacks.as_ref().map(rows_of),
            "bill": billed.map(|billed| rows_of(&billed.sheet)),
            "bill_total": billed.map(|billed| billed.sheet.to_json_total()),
            "bill_notes": billed.map(|billed| &billed.sheet.notes),
            "prices": billed.map(|billed| &billed.prices),
            "summary": self.summary.to_json(),
            "findings": findings,
        })
    }
}

fn without_notes_of(sheet: &Sheet, first: &Sheet) -> Sheet {
    let mut sheet = sheet.clone();
    sheet.notes.retain(|note| !first.notes.contains(note));
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, head, names, prices, row, seen, woken_by};
    use crate::report::filter::Filter;
    use swtch_core::rules::rule_named;
    use swtch_core::{Contention, Coverage, CpuId, Nanos, TaskEvent, TaskKey, Timestamp};

    /// Rows of a small machine, one after the other on its CPUs.
    struct Drawing {
        names: Names,
        rows: Vec<Switch>,
    }

    impl Drawing {
        fn new() -> Self {
            Self {
                names: names(),
                rows: Vec::new(),
            }
        }

        fn of(events: &[TaskEvent]) -> Self {
            Self {
                names: Names::new(events),
                rows: Vec::new(),
            }
        }

        /// A run of `task` on CPU 0 of `ran_ns` after the last one there; `next` comes after it.
        fn run(&mut self, mut row: Switch, ran_ns: u64, next: u32) -> &mut Self {
            let last = self.rows.last().map_or(1_000_000, |row| row.ts.as_ns());
            row.ts = Timestamp::from_ns(last + ran_ns);
            row.ran = Some(Nanos::from_ns(ran_ns));
            row.cpu = CpuId::new(0);
            row.next_task = Some(TaskKey::new(next));
            self.rows.push(row);
            self
        }

        fn page<'p>(&self, worth: Option<Worth<'p>>) -> Page<'p> {
            let names = &self.names;
            let selection = Selection::new(&Filter::default(), names, Timestamp::default());
            let contention = Contention::new(Coverage::EveryTask, 1, &[]);
            let mut page = Page {
                reasons: ByReason::default(),
                threads: Groups::new(By::Thread, names),
                calls: Groups::new(By::Syscall, names),
                preemptors: Preemptors::new(contention, names),
                objects: Objects::new(names),
                wakers: Wakers::default(),
                places: Places::default(),
                details: Details::default(),
                worth,
            };
            for row in &self.rows {
                let task = names.index(row.task);
                page.add(row, task, selection.counts(row, task), names, &selection);
            }
            page.preemptors.finish(names, &selection);
            page
        }

        fn explained(&self) -> Explained {
            let (page, names) = (self.page(None), &self.names);
            let cgroups = [(CgroupId::new(1), "/limited".to_owned())]
                .into_iter()
                .collect();
            page.conclude(names, Some(Arch::X86_64), &cgroups, 2, None, None)
        }

        /// The page with a bill of a recording of so many ms.
        fn billed(&self, wall_ms: u64) -> Explained {
            let (meta, list) = (head().meta, prices());
            let prices = Prices::new(&list, &meta);
            let names = &self.names;
            let mut page = self.page(Some(Worth::new(&prices, names, true)));
            page.worth.iter_mut().for_each(Worth::finish);
            let bill = Bill {
                prices: &prices,
                wall: Nanos::from_ns(wall_ms * MS),
                lost: 0,
            };
            let arch = Some(Arch::X86_64);
            page.conclude(names, arch, &FxHashMap::default(), 2, None, Some(&bill))
        }

        fn findings(&self) -> Vec<Finding> {
            self.explained().findings
        }

        fn names_of_findings(&self) -> Vec<&'static str> {
            self.findings().iter().map(|finding| finding.name).collect()
        }

        fn verdict(&self) -> String {
            let mut out = Vec::new();
            self.explained().write_verdict(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        }
    }

    fn by_rule(mut row: Switch, rule: &str) -> Switch {
        row.rule = rule_named(rule).unwrap();
        row
    }

    fn in_call(mut row: Switch, number: u32) -> Switch {
        row.evidence.syscall = Some(number);
        row
    }

    fn on(mut row: Switch, key: u64) -> Switch {
        row.evidence.wait_key = Some(key);
        row
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn nothing_stands_out_in_a_quiet_trace() {
        let mut drawing = Drawing::new();
        drawing.run(row(1, Reason::Sleep), 10 * MS, 0);
        drawing.run(
            after(row(1, Reason::Sleep), Reason::Sleep, 50 * MS, 1_000),
            10 * MS,
            0,
        );
        assert_eq!(drawing.findings(), []);
        assert!(
            drawing.verdict().contains("Nothing stands out"),
            "{}",
            drawing.verdict()
        );
    }

    #[test]
    fn an_empty_trace_has_a_verdict_and_no_finding() {
        let expected = "\nverdict\nNothing stands out: no cause that could be changed makes 10 % \
            of the switches or costs 1 % of the time in which tasks ran or wanted to run.\n";
        assert_eq!(Drawing::new().verdict(), expected);
    }

    /// Two threads of one process take turns on one CPU.
    #[test]
    fn own_threads_that_crowd_a_cpu_are_told_to_be_fewer() {
        let mut drawing = Drawing::new();
        drawing.run(row(1, Reason::Slice), 3 * MS, 2);
        drawing.run(row(2, Reason::Slice), 3 * MS, 1);
        for turn in 0..6 {
            let (task, next) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
            let taken = after(row(task, Reason::Slice), Reason::Slice, 0, 3 * MS);
            drawing.run(taken, 3 * MS, next);
        }
        let expected = "
verdict
Most switches: slice 100.0 % (8).
Most time runnable but not running, after: slice 100.0 % (18.0 ms).

1. Time slice used up while others waited: 8 switches (100.0 %), and 18.0 ms in the run queue after them.
   threads: server/10 50.0 %, worker/11 50.0 %
   in: (none) 100.0 %
   took the CPU: server/10 from worker/11 4 times, worker/11 from server/10 4 times
   to change it: the program's own threads had the CPU for 100.0 % of that time: run no more busy \
threads than the 2 CPUs it has, or give batch work a longer slice (sched_runtime of \
sched_setattr, Linux 6.12 and later)
";
        assert_eq!(drawing.verdict(), expected);
    }

    #[test]
    fn a_hog_of_another_process_is_named_and_not_the_program() {
        let mut drawing = Drawing::new();
        drawing.run(row(1, Reason::Slice), 3 * MS, 3);
        drawing.run(row(3, Reason::Slice), 9 * MS, 1);
        drawing.run(
            after(row(1, Reason::Sleep), Reason::Slice, 0, 9 * MS),
            3 * MS,
            3,
        );
        let findings = drawing.findings();
        assert_eq!(findings[0].name, "slice_preemption");
        let advice = findings[0].advice.as_deref().unwrap();
        assert!(
            advice.starts_with("other programs had the CPU for 100.0 %"),
            "{advice}"
        );
    }

    /// A consumer takes the CPU at each message of the producer.
    #[test]
    fn a_woken_task_that_takes_the_cpu_is_named_with_its_count() {
        let mut drawing = Drawing::new();
        for _ in 0..100 {
            let producer = after(row(1, Reason::Wakeup), Reason::Wakeup, 0, 1_000);
            drawing.run(in_call(producer, 1), 2_000, 2);
            let consumer = woken_by(after(row(2, Reason::Pipe), Reason::Pipe, 2_000, 0), 1);
            drawing.run(in_call(consumer, 0), 1_000, 1);
        }
        let names = drawing.names_of_findings();
        assert_eq!(names, ["wakeup_preemption", "pipe_conversation"]);
        let findings = drawing.findings();
        let advice = findings[0].advice.as_deref().unwrap();
        let expected = "worker/11 took the CPU from server/10 100 times as it was woken";
        assert!(advice.starts_with(expected), "{advice}");
        assert_eq!(
            findings[1].places,
            [
                "threads: worker/11 100.0 %",
                "in: read 100.0 %",
                "main wakeups: server/10 → worker/11 100 times",
            ]
        );
    }

    /// Each waits for the word and wakes the other.
    #[test]
    fn a_word_whose_waiters_wake_each_other_is_contended() {
        let mut drawing = Drawing::new();
        for turn in 0..200 {
            let (task, other) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
            let wait = after(row(task, Reason::Futex), Reason::Futex, 5_000, 0);
            drawing.run(on(woken_by(wait, other), 0xf00), 1_000, other);
        }
        let findings = drawing.findings();
        assert_eq!(findings[0].name, "futex_contention");
        let seen = &findings[0].seen;
        assert!(
            seen.contains("0xf00 in server/10: 200 switch-outs"),
            "{seen}"
        );
        assert!(seen.contains("by 2 threads"), "{seen}");
    }

    /// One waits, another that never waits wakes it: no lock, so no talk of one.
    #[test]
    fn a_word_that_others_wake_is_a_hand_over() {
        let mut drawing = Drawing::new();
        for _ in 0..200 {
            let wait = after(row(1, Reason::Futex), Reason::Futex, 5_000, 0);
            drawing.run(on(woken_by(wait, 2), 0xf00), 1_000, 0);
        }
        let findings = drawing.findings();
        assert_eq!(findings[0].name, "futex_hand_over");
        assert_eq!(findings[0].time, Nanos::ZERO);
        assert!(!findings[0].advice.as_deref().unwrap().contains("split"));
    }

    /// Forty pairs, each seen a few times: a name would be an accident.
    #[test]
    fn preemptions_spread_over_many_pairs_name_nobody() {
        let events: Vec<_> = (1..=80).map(|key| seen(key, 10, 9 + key, "w")).collect();
        let mut drawing = Drawing::of(&events);
        for turn in 0..400 {
            let pair = turn % 40 * 2;
            let from = after(row(pair + 1, Reason::Wakeup), Reason::Wakeup, 0, 1_000);
            drawing.run(from, 1_000, pair + 2);
            drawing.run(row(pair + 2, Reason::Sleep), 1_000, 0);
        }
        let findings = drawing.findings();
        assert_eq!(
            findings[0].places[0],
            "threads: 40, none with more than 2.5 %"
        );
        assert_eq!(
            findings[0].places[2],
            "took the CPU: 40, none with more than 2.5 %"
        );
        assert!(
            findings[0]
                .advice
                .as_deref()
                .unwrap()
                .starts_with("wake tasks less often")
        );
    }

    #[test]
    fn a_used_up_quota_is_named_with_its_cgroup_and_time() {
        let mut drawing = Drawing::new();
        drawing.run(by_rule(row(1, Reason::Throttle), "quota_used"), 20 * MS, 0);
        drawing.run(
            after(row(1, Reason::Sleep), Reason::Throttle, 0, 80 * MS),
            5 * MS,
            0,
        );
        let findings = drawing.findings();
        assert_eq!(findings[0].name, "throttle");
        assert_eq!(findings[0].time, Nanos::from_ns(80 * MS));
        assert!(
            findings[0]
                .places
                .contains(&"throttled: /limited 80.0 ms".to_owned())
        );
        assert!(
            findings[0]
                .advice
                .as_deref()
                .unwrap()
                .contains("up to 80.0 ms of waiting")
        );
    }

    /// Real-time throttling is a throttle, and no cgroup quota would change it.
    #[test]
    fn no_quota_is_blamed_that_was_not_used_up() {
        let mut drawing = Drawing::new();
        drawing.run(by_rule(row(1, Reason::Throttle), "lower_class"), 20 * MS, 0);
        drawing.run(
            after(row(1, Reason::Sleep), Reason::Throttle, 0, 80 * MS),
            5 * MS,
            0,
        );
        assert_eq!(drawing.findings()[0].advice, None);
    }

    #[test]
    fn a_task_of_a_higher_class_is_named() {
        let mut drawing = Drawing::new();
        drawing.run(row(1, Reason::Class), 5 * MS, 3);
        drawing.run(row(3, Reason::Sleep), 5 * MS, 1);
        drawing.run(
            after(row(1, Reason::Sleep), Reason::Class, 0, 5 * MS),
            5 * MS,
            0,
        );
        let findings = drawing.findings();
        assert_eq!(findings[0].name, "class_preemption");
        assert!(
            findings[0]
                .advice
                .as_deref()
                .unwrap()
                .starts_with("hog/30 runs in a higher class")
        );
    }

    #[test]
    fn unknown_reasons_are_said_with_the_rule_that_gave_up() {
        let mut drawing = Drawing::new();
        drawing.run(by_rule(row(1, Reason::Unknown), "call_without_rule"), MS, 0);
        drawing.run(row(1, Reason::Sleep), MS, 0);
        let findings = drawing.findings();
        assert_eq!(findings[0].name, "unknown");
        assert!(findings[0].places[0].starts_with("1 call_without_rule: blocked in a system call"));
    }

    #[test]
    fn interrupts_and_steal_are_told_by_their_time() {
        let mut drawing = Drawing::new();
        let mut hog = row(3, Reason::Sleep);
        (hog.irq, hog.stolen) = (Nanos::from_ns(2 * MS), Nanos::from_ns(4 * MS));
        drawing.run(hog, 8 * MS, 1);
        drawing.run(
            after(row(1, Reason::Sleep), Reason::Sleep, 0, 8 * MS),
            MS,
            0,
        );
        assert_eq!(drawing.names_of_findings(), ["steal", "interrupts"]);
    }

    #[test]
    fn a_hostile_name_is_harmless_in_the_verdict() {
        let mut drawing = Drawing::of(&[seen(1, 10, 10, "\u{1b}[31m\nroot"), seen(2, 11, 11, "b")]);
        drawing.run(row(1, Reason::Class), 5 * MS, 2);
        drawing.run(row(2, Reason::Sleep), 5 * MS, 1);
        drawing.run(
            after(row(1, Reason::Sleep), Reason::Class, 0, 5 * MS),
            5 * MS,
            0,
        );
        let verdict = drawing.verdict();
        assert!(
            verdict.contains("b/11 from \\x1b[31m\\x0aroot/10"),
            "{verdict}"
        );
    }

    #[test]
    fn the_page_is_the_same_each_time_and_balances() {
        let mut drawing = Drawing::new();
        drawing.run(row(1, Reason::Slice), 3 * MS, 2);
        drawing.run(
            after(row(2, Reason::Slice), Reason::Futex, MS, 3 * MS),
            3 * MS,
            1,
        );
        let page = || {
            let mut out = Vec::new();
            let rows = Rows {
                counted: 2,
                out_of_scope: 0,
            };
            drawing
                .explained()
                .write(&head(), rows, ROWS, &mut out)
                .unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(page(), page());
        assert!(
            page().contains("\nbalance: 15 seen = 13 stored"),
            "{}",
            page()
        );
    }

    /// 200 switches of 1 µs ± 10 % in 20 ms.
    #[test]
    fn a_finding_says_what_its_change_would_save() {
        let mut drawing = Drawing::new();
        for turn in 0..200 {
            let (task, other) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
            let wait = after(row(task, Reason::Futex), Reason::Futex, 5_000, 0);
            drawing.run(on(woken_by(wait, other), 0xf00), 1_000, other);
        }
        let explained = drawing.billed(20);
        let mut out = Vec::new();
        let rows = Rows::default();
        explained.write(&head(), rows, ROWS, &mut out).unwrap();
        let page = String::from_utf8(out).unwrap();
        let worth = "\n   worth: the futex at 0xf00 of server/10: 10,000 switches/s, direct 1.0 % ± \
                     0.1 % of one CPU\n";
        assert!(page.contains(worth), "{page}");
        assert!(page.contains("\nwhat the switches cost\nreason"), "{page}");
        let json = explained.to_json(&head(), rows, None);
        assert_eq!(json["bill"][0]["direct_ns"], 200_000);
        assert_eq!(json["bill_total"]["switches"], 200);
        assert_eq!(
            json["findings"][0]["worth"]["direct_share_of_wall_pct"],
            1.0
        );
        assert_eq!(json["prices"]["origin"]["hostname"], "db1");
    }

    #[test]
    fn without_prices_the_page_has_no_bill() {
        let mut drawing = Drawing::new();
        drawing.run(row(1, Reason::Slice), 3 * MS, 2);
        let json = drawing.explained().to_json(&head(), Rows::default(), None);
        assert!(json["bill"].is_null() && json["prices"].is_null());
    }

    #[test]
    fn json_holds_findings_with_their_numbers() {
        let mut drawing = Drawing::new();
        drawing.run(row(1, Reason::Slice), 3 * MS, 3);
        drawing.run(row(3, Reason::Slice), 9 * MS, 1);
        drawing.run(
            after(row(1, Reason::Sleep), Reason::Slice, 0, 9 * MS),
            3 * MS,
            3,
        );
        let json = drawing.explained().to_json(&head(), Rows::default(), None);
        assert_eq!(json["schema"], "swtch.explain/1");
        assert_eq!(json["findings"][0]["name"], "slice_preemption");
        assert_eq!(json["findings"][0]["time_ns"], 9 * MS);
        assert_eq!(json["preemptors_total"]["runq_ns"], 9 * MS);
        assert_eq!(json["summary"]["runq_ns_by_reason"]["slice"], 9 * MS);
    }
}

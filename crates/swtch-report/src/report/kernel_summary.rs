//! The answer of `record --summary`: what the kernel side counted, without a trace.
//!
//! ```text
//! groups of switches ─▶ rules: a reason each ─┬▶ by reason      ─┐
//!      (counted)                              ├▶ by thread       ├▶ table, json
//!                                             ├▶ who took the    │
//!                                             │  CPU from whom  ─┘
//!                                             └▶ every group ────▶ csv
//! ```
//!
//! The columns are those of the reports on traces, with the same meaning. A column that needs more
//! than was counted is not there, and [`NOT_KNOWN`] says what that is.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::{
    Arch, Cause, Distribution, GroupTotals, JudgedGroup, Nanos, Reason, SwitchGroup, SyscallTable,
    Tally, TaskEvent,
};
use swtch_output::answer::VerbAnswer;
use swtch_output::column::Column;
use swtch_output::sheet::{Cell, Sheet, SheetTable};
use swtch_output::text::{self, counted, escaped, grouped, table_width};
use swtch_store::Meta;

use super::group::{self, GroupKey, Groups, KeyNames, OfGroup, RowSyscall, or_missing};
use super::head::{ReportedSwitches, TraceHead, host_words, lost_in_words};
use super::names::Names;
use super::per_unit::reasons_of_each;
use super::reason::{self, ByReason, OneReason, ReasonRow};
use super::screen::{in_hundredths, per_second};
use super::tally::{self, OfTally};
use super::{By, ROWS_OF_TABLE, report_sheet, words};

/// Things that a summary cannot tell, and a trace can.
const NOT_KNOWN: [&str; 6] = [
    "when each switch happened: there is no timeline",
    "stacks, and the objects that were waited for",
    "who woke whom",
    "who had the CPU while a thread waited for it: only who took it",
    "which CPU, and which cgroup",
    "first waits of new threads, and switches of user-mode schedulers",
];

/// How many spans of each kind were counted, and how long they took, for JSON.
pub fn spans_json(spans: &[(String, Distribution)]) -> Vec<Value> {
    let spans = spans.iter().map(|(kind, lengths)| {
        let length = |percent| lengths.percentile(percent).map(Nanos::as_ns);
        json!({
            "span": kind,
            "count": lengths.count(),
            "p50_ns": length(50.0),
            "p99_ns": length(99.0),
        })
    });
    spans.collect()
}

const REASON_VIEWS: [SheetTable; 2] = [
    SheetTable {
        title: "",
        columns: &[
            "reason",
            "category",
            "switches",
            "share_pct",
            "certain_pct",
            "voluntary",
            "involuntary",
            "ran_ns",
            "off_ns",
            "blocked_ns",
            "runq_ns",
        ],
    },
    SheetTable {
        title: "length of the wait that followed, below these powers of two",
        columns: &[
            "reason",
            "waits",
            "runq_p50_below_ns",
            "runq_p99_below_ns",
            "runq_max_ns",
            "off_p50_below_ns",
            "off_p99_below_ns",
            "off_max_ns",
        ],
    },
];

/// The counts of the kernel, judged by the rules.
#[derive(Debug)]
pub struct KernelSummary {
    head: TraceHead,
    names: Names,
    arch: Arch,
    groups: Vec<CountedGroup>,
    /// The lengths of spans, by their kind.
    spans: Vec<(String, Distribution)>,
}

/// A group of switches, and what was counted of it.
#[derive(Clone, Copy, Debug)]
struct CountedGroup {
    of: JudgedGroup,
    totals: GroupTotals,
}

impl KernelSummary {
    /// Judges the groups. `meta` says what was recorded and what that cost, `tasks` are the names,
    /// in order of time.
    pub fn new(
        meta: Meta,
        arch: Arch,
        counted: &[(SwitchGroup, GroupTotals)],
        tasks: &[TaskEvent],
    ) -> Self {
        let calls = SyscallTable::of(arch);
        let judged = counted.iter().map(|(group, totals)| CountedGroup {
            of: JudgedGroup::of(group, &calls),
            totals: *totals,
        });
        let mut groups: Vec<_> = judged.collect();
        let names = Names::new(tasks);
        groups.sort_by_key(|one| {
            let (group, most) = (&one.of.group, u64::MAX - one.totals.counts.switches);
            (most, group.task, group.next_task, one.of.rule.name)
        });
        Self {
            head: TraceHead {
                rows: meta.counts.stored,
                meta,
                ..TraceHead::default()
            },
            names,
            arch,
            groups,
            spans: Vec::new(),
        }
    }

    /// As it is, and what was counted is told for each of these spans, too: their lengths, by their kind.
    pub fn divided_by(self, spans: Vec<(String, Distribution)>) -> Self {
        Self { spans, ..self }
    }

    /// What is told for each span of a kind.
    fn of_each(&self, (kind, lengths): &(String, Distribution)) -> String {
        let spans = lengths.count();
        let length = |percent| lengths.percentile(percent).unwrap_or(Nanos::ZERO);
        if spans == 0 {
            return format!("{}: no span has ended.", escaped(kind));
        }
        let mut all = Tally::default();
        let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
        for one in &self.groups {
            all.add_counted(&one.of, &one.totals.counts);
            *reasons.entry(one.of.rule.reason).or_default() += one.totals.counts.switches;
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(reason, switches)| (Reverse(*switches), *reason));
        let each = |time: Nanos| Nanos::from_ns(time.as_ns() / spans);
        format!(
            "{} took {} (median), {} (99 %): {}, {} a second. To each, of all that was counted: {} switches{}, {} on a \
             CPU, {} without one.",
            escaped(kind),
            length(50.0),
            length(99.0),
            counted(spans, "span"),
            grouped(per_second(spans, self.head.duration()).unwrap_or(0)),
            in_hundredths(all.switches, spans),
            reasons_of_each(reasons.into_iter(), spans),
            each(all.ran),
            each(all.runq),
        )
    }

    fn switches(&self) -> u64 {
        let groups = self.groups.iter();
        groups.map(|one| one.totals.counts.switches).sum()
    }

    fn reported(&self) -> ReportedSwitches {
        ReportedSwitches {
            counted: self.switches(),
            out_of_scope: 0,
        }
    }

    fn by_reason(&self) -> Sheet {
        let mut reasons = ByReason::<GroupTotals>::default();
        let mut all = OneReason::<GroupTotals>::default();
        for one in &self.groups {
            for sums in [reasons.of_mut(one.of.rule.reason), &mut all] {
                sums.tally.add_counted(&one.of, &one.totals.counts);
                sums.lengths.add(&one.totals);
            }
        }
        let mut sheet = reasons.sheet_of(&reason_columns(), &all);
        sheet.views = REASON_VIEWS.to_vec();
        sheet
    }

    fn by_thread(&self) -> Sheet {
        let mut groups = Groups::new(By::Thread, &self.names);
        for one in &self.groups {
            let task = self.names.index(one.of.group.task);
            groups.add_counted(task, &one.of, &one.totals.counts);
        }
        let mut sheet = groups.sheet(&self.key_names(&FxHashMap::default()));
        // They are those of the table of reasons.
        sheet.notes.clear();
        sheet
    }

    /// Makes the table of who took the CPU from whom, most often first.
    fn by_pair(&self) -> Sheet {
        let mut pairs: BTreeMap<PairKey, u64> = BTreeMap::new();
        let mut all = 0;
        for one in self.groups.iter().filter(|one| one.of.is_preemption()) {
            let (group, switches) = (&one.of.group, one.totals.counts.switches);
            let next = group.next_task;
            let next = next.map_or_else(Names::nameless, |next| self.names.index(next));
            let task = self.names.index(group.task);
            let key = (next, task, one.of.rule.reason, group.evidence.cause);
            *pairs.entry(key).or_default() += switches;
            all += switches;
        }
        let mut ranked: Vec<_> = pairs.into_iter().collect();
        ranked.sort_by_key(|(key, switches)| (u64::MAX - switches, *key));
        let columns = pair_columns();
        let row = |(key, switches)| PairRow {
            key,
            switches,
            all,
            names: &self.names,
        };
        let rows = ranked.into_iter();
        let rows = rows.map(|(key, switches)| row((Some(key), switches)));
        report_sheet("preemptor", &columns, rows).with_total(&columns, &row((None, all)))
    }

    /// Every group: task × rule × system call × who took the CPU.
    fn by_group(&self) -> Sheet {
        let cgroups = FxHashMap::default();
        let key_names = self.key_names(&cgroups);
        let rows = self.groups.iter().map(|one| CountedRow {
            of: &one.of,
            totals: &one.totals,
            tally: one.tally(),
            task: self.names.index(one.of.group.task),
            names: &key_names,
        });
        report_sheet("summary", &group_columns(), rows)
    }

    const fn key_names<'a>(
        &'a self,
        cgroups: &'a FxHashMap<swtch_core::CgroupId, String>,
    ) -> KeyNames<'a> {
        KeyNames {
            names: &self.names,
            arch: Some(self.arch),
            cgroups,
            places: None,
        }
    }

    fn sheets(&self) -> [(&'static str, Sheet); 3] {
        [
            ("why threads left the CPU", self.by_reason()),
            ("which threads left it", self.by_thread()),
            ("who took the CPU from whom", self.by_pair()),
        ]
    }

    fn head_lines(&self) -> String {
        let head = &self.head;
        let host = host_words(&head.meta.host).to_line();
        let what = format!("{} · {}", head.duration(), head.what());
        let mut lines = vec![
            format!("host     {}", escaped(&host)),
            format!(
                "summary  {} · counted in the kernel, no trace",
                escaped(&what)
            ),
            format!(
                "{} · {} · recorder: {}",
                counted(self.switches(), "context switch"),
                lost_in_words(head.lost(), head.meta.counts.untraced),
                head.overhead(),
            ),
        ];
        let warnings = head.warnings(self.reported());
        lines.extend(
            warnings
                .iter()
                .map(|line| format!("note: {}", escaped(line))),
        );
        for spans in &self.spans {
            lines.extend(text::hung(
                "span     ",
                &self.of_each(spans),
                text::page_width(),
            ));
        }
        lines.join("\n") + "\n\n"
    }
}

impl CountedGroup {
    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        tally.add_counted(&self.of, &self.totals.counts);
        tally
    }
}

/// A row that shows sums of the kernel side.
trait OfTotals {
    fn totals(&self) -> &GroupTotals;
}

impl OfTotals for ReasonRow<'_, GroupTotals> {
    fn totals(&self) -> &GroupTotals {
        self.lengths()
    }
}

fn reason_columns<'a>() -> Vec<Column<ReasonRow<'a, GroupTotals>>> {
    reason::sums().chain(runs()).chain(lengths()).collect()
}

/// The columns of what was counted of runs besides their time.
fn runs<R: OfTotals>() -> [Column<R>; 2] {
    [
        Column::in_total(words::IRQ, |row| Cell::Time(row.totals().irq)),
        Column::in_total(words::RUN_MAX, |row| Cell::Time(row.totals().longest_run)),
    ]
}

/// The columns from `off_p50_below_ns` to `runq_max_ns`.
fn lengths<R: OfTotals>() -> [Column<R>; 6] {
    fn longest(longest: Nanos, number: u64) -> Cell {
        Cell::time((number > 0).then_some(longest))
    }
    [
        Column::in_total(words::OFF_P50_BELOW, |row| {
            Cell::time(row.totals().off_lengths.percentile_below(50))
        }),
        Column::in_total(words::OFF_P99_BELOW, |row| {
            Cell::time(row.totals().off_lengths.percentile_below(99))
        }),
        Column::in_total(words::OFF_MAX, |row| {
            longest(row.totals().longest_off, row.totals().counts.waits)
        }),
        Column::in_total(words::RUNQ_P50_BELOW, |row| {
            Cell::time(row.totals().runq_lengths.percentile_below(50))
        }),
        Column::in_total(words::RUNQ_P99_BELOW, |row| {
            Cell::time(row.totals().runq_lengths.percentile_below(99))
        }),
        Column::in_total(words::RUNQ_MAX, |row| {
            longest(row.totals().longest_runq, row.totals().counts.split_waits)
        }),
    ]
}

/// The task that took the CPU, the one that lost it, why, and who asked for it.
type PairKey = (usize, usize, Reason, Cause);

/// A row of the table of who took the CPU from whom.
struct PairRow<'a> {
    /// `None` in the line of sums.
    key: Option<PairKey>,
    switches: u64,
    all: u64,
    names: &'a Names,
}

impl PairRow<'_> {
    fn cell(&self, cell: fn(&Names, PairKey) -> Cell) -> Cell {
        or_missing(self.key, |key| cell(self.names, key))
    }
}

fn pair_columns<'a>() -> [Column<PairRow<'a>>; 9] {
    [
        Column::new(words::PREEMPTOR, |row| {
            row.cell(|names, key| names.comm_cell(key.0))
        }),
        Column::new(words::TID, |row| {
            row.cell(|names, key| names.tid_cell(key.0))
        }),
        Column::new(words::PID, |row| {
            row.cell(|names, key| names.pid_cell(key.0))
        }),
        Column::new(words::PREEMPTED, |row| {
            row.cell(|names, key| names.comm_cell(key.1))
        }),
        Column::new(words::PREEMPTED_TID, |row| {
            row.cell(|names, key| names.tid_cell(key.1))
        }),
        Column::new(words::REASON, |row| {
            row.cell(|_, key| Cell::text(key.2.as_str()))
        }),
        Column::new(words::CAUSE, |row| {
            row.cell(|_, key| Cell::text(key.3.as_str()))
        }),
        Column::in_total(words::SWITCHES, |row| Cell::Count(row.switches)),
        Column::in_total(words::SHARE, |row| Cell::share(row.switches, row.all)),
    ]
}

/// A row of the table of all groups.
struct CountedRow<'a> {
    of: &'a JudgedGroup,
    totals: &'a GroupTotals,
    tally: Tally,
    task: usize,
    names: &'a KeyNames<'a>,
}

impl OfGroup for CountedRow<'_> {
    fn key(&self) -> Option<GroupKey> {
        Some(GroupKey::Thread(self.task))
    }

    fn names(&self) -> &KeyNames<'_> {
        self.names
    }
}

impl OfTally for CountedRow<'_> {
    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn all(&self) -> u64 {
        self.tally.switches
    }
}

impl OfTotals for CountedRow<'_> {
    fn totals(&self) -> &GroupTotals {
        self.totals
    }
}

impl CountedRow<'_> {
    /// A cell about who took the CPU.
    fn of_preemptor(&self, cell: fn(&Names, usize) -> Cell) -> Cell {
        let next = self.of.group.next_task.filter(|_| self.of.is_preemption());
        let names = self.names.names;
        or_missing(next, |next| cell(names, names.index(next)))
    }
}

fn group_columns<'a>() -> Vec<Column<CountedRow<'a>>> {
    let thread = group::label_columns(By::Thread).into_iter().take(4);
    let rest: [Column<CountedRow<'_>>; 8] = [
        Column::new(words::REASON, |row| Cell::text(row.of.rule.reason.as_str())),
        Column::new(words::CATEGORY, |row| {
            Cell::text(row.of.rule.reason.category().as_str())
        }),
        Column::new(words::RULE, |row| Cell::text(row.of.rule.name)),
        Column::new(words::CERTAINTY, |row| {
            Cell::text(row.of.rule.certainty.as_str())
        }),
        Column::new(words::CAUSE, |row| {
            Cell::text(row.of.group.evidence.cause.as_str())
        }),
        Column::new(words::SYSCALL, |row| {
            let call = RowSyscall::of_evidence(&row.of.group.evidence);
            Cell::text(call.name(row.names.arch))
        }),
        Column::new(words::PREEMPTOR, |row| row.of_preemptor(Names::comm_cell)),
        Column::new(words::PREEMPTOR_TID, |row| {
            row.of_preemptor(Names::tid_cell)
        }),
    ];
    let [switches, _share] = tally::counts();
    let [ran, waits @ ..] = tally::times();
    let sums = [switches].into_iter().chain(tally::kinds()).chain([ran]);
    let sums = sums.chain(runs()).chain(waits).chain(lengths());
    thread.chain(rest).chain(sums).collect()
}

impl VerbAnswer for KernelSummary {
    fn to_table(&self) -> String {
        let mut page = self.head_lines();
        for (title, sheet) in self.sheets() {
            page += &format!(
                "{title}\n{}\n",
                sheet.to_table_in(table_width(), ROWS_OF_TABLE)
            );
        }
        page += "not known, because nothing is kept of a single switch (swtch record without --summary keeps it):\n";
        for words in NOT_KNOWN {
            page += &format!("  {words}\n");
        }
        page
    }

    fn to_json(&self) -> Value {
        let [reasons, threads, pairs] = self.sheets().map(|(_, sheet)| {
            json!({
                "rows": sheet.to_json_rows(),
                "total": sheet.to_json_total(),
                "notes": sheet.notes,
            })
        });
        json!({
            "schema": "swtch.summary/1",
            "host": self.head.to_json_host(),
            "summary": self.head.to_json_trace(self.reported()),
            "balance": self.head.to_json_balance(),
            "reasons": reasons,
            "threads": threads,
            "preemptions": pairs,
            "spans": spans_json(&self.spans),
            "not_known": NOT_KNOWN,
        })
    }

    fn to_csv(&self) -> anyhow::Result<String> {
        self.head.tell_missing();
        Ok(self.by_group().to_csv())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::seen;
    use swtch_core::{
        Class, Evidence, EvidenceBits, GroupCounts, LengthHistogram, TaskKey, WaitObject,
    };

    const TASK_INTERRUPTIBLE: u32 = 1;

    fn totals(switches: u64, off: u64, runq: u64) -> GroupTotals {
        let mut off_lengths = LengthHistogram::default();
        off_lengths.0[2] = switches;
        GroupTotals {
            counts: GroupCounts {
                switches,
                ran: Nanos::from_ns(100 * switches),
                waits: switches,
                off: Nanos::from_ns(off),
                split_waits: switches,
                split_off: Nanos::from_ns(off),
                runq: Nanos::from_ns(runq),
                ..GroupCounts::default()
            },
            longest_off: Nanos::from_ns(off),
            off_lengths,
            ..GroupTotals::default()
        }
    }

    fn group(task: u32, next_task: u32, evidence: Evidence) -> SwitchGroup {
        SwitchGroup {
            task: TaskKey::new(task),
            next_task: Some(TaskKey::new(next_task)),
            futex: 0,
            evidence,
        }
    }

    /// The server blocks in `read` of a pipe, and is preempted by the hog, which it had woken.
    fn summary() -> KernelSummary {
        let asleep = Evidence {
            state: TASK_INTERRUPTIBLE,
            bits: EvidenceBits::VOLUNTARY,
            syscall: Some(0),
            wait_object: WaitObject::Fifo,
            class: Class::Idle,
            next_class: Class::Idle,
            ..Evidence::RUNNABLE
        };
        let preempted = Evidence {
            cause: Cause::Wakeup,
            ..Evidence::RUNNABLE
        };
        let groups = [
            (group(1, 0, asleep), totals(30, 900_000, 100_000)),
            (group(1, 3, preempted), totals(8, 40_000, 40_000)),
            (group(2, 3, preempted), totals(2, 2_000, 2_000)),
        ];
        let tasks = [
            seen(1, 10, 10, "server"),
            seen(2, 10, 11, "worker"),
            seen(3, 30, 30, "hog"),
        ];
        KernelSummary::new(Meta::default(), Arch::X86_64, &groups, &tasks)
    }

    fn cells(sheet: &Sheet, row: usize, columns: &[&str]) -> Vec<String> {
        let place = |column: &&str| sheet.columns.iter().position(|c| c == column).unwrap();
        let places = columns.iter().map(place);
        places
            .map(|place| sheet.rows[row][place].to_table())
            .collect()
    }

    #[test]
    fn a_group_counts_for_the_reason_that_the_rules_give_it() {
        let sheet = summary().by_reason();
        let columns = [
            "reason",
            "switches",
            "blocked_ns",
            "runq_ns",
            "off_p50_below_ns",
        ];
        let expected = ["pipe", "30", "800 µs", "100 µs", "1.02 µs"];
        assert_eq!(cells(&sheet, 0, &columns), expected);
        let expected = ["wakeup", "10", "0 ns", "42.0 µs", "1.02 µs"];
        assert_eq!(cells(&sheet, 1, &columns), expected);
        assert_eq!(sheet.total.unwrap()[2], Cell::Count(40));
    }

    #[test]
    fn who_took_the_cpu_is_told_beside_who_lost_it() {
        let sheet = summary().by_pair();
        let columns = ["preemptor", "preempted", "cause", "switches", "share_pct"];
        let first = ["hog", "server", "wakeup", "8", "80.0"];
        assert_eq!(cells(&sheet, 0, &columns), first);
        assert_eq!(sheet.rows.len(), 2);
    }

    #[test]
    fn threads_and_groups_have_all_switches() {
        let summary = summary();
        let columns = ["thread", "switches", "main_reason"];
        let server = ["server", "38", "pipe"];
        assert_eq!(cells(&summary.by_thread(), 0, &columns), server);
        let groups = summary.by_group();
        let columns = ["thread", "rule", "syscall", "preemptor", "switches"];
        let asleep = ["server", "pipe_file", "read", "-", "30"];
        assert_eq!(cells(&groups, 0, &columns), asleep);
        let table = summary.to_table();
        assert!(table.contains("there is no timeline"), "{table}");
    }
}

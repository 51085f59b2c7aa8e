//! `report --by span`: the spans that took longest, and what each of them waited for.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use swtch_core::{Nanos, ProgramSpan, Reason, SpanPiece, TaskKey, Timestamp, TurnSum};
use swtch_output::column::Column;
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text::{counted, grouped};

use super::group::or_missing;
use super::names::Names;
use super::published::PublishedTraces;
use super::stack::{Stacks, Symbols};
use super::waker::Waker;
use super::{report_sheet, words};

/// The spans of a kind that are kept: the slowest. One takes about 150 bytes.
const MOST_KEPT: usize = 10_000;

/// Functions of a place that are named.
const FUNCTIONS_NAMED: usize = 3;

/// A cause is named if it is that of at least this part of the slowest spans, in percent.
const LEAST_OF_SLOWEST_PCT: usize = 25;

/// What a row tells of the wait before its run, beside how long that was.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowOfSpan {
    /// Where the thread waited.
    pub stacks: Stacks,
    /// Who ended the wait.
    pub waker: Option<Waker>,
    /// The task that took the CPU, if the thread had not left to wait.
    pub taker: Option<TaskKey>,
}

/// The longest waits of one span.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanWaits {
    blocked: Option<BlockedInSpan>,
    /// The longest time without a CPU, and who had taken it.
    no_cpu: (Nanos, Option<TaskKey>),
}

/// A wait, as far as it lies in a span.
#[derive(Clone, Copy, Debug)]
struct BlockedInSpan {
    reason: Reason,
    length: Nanos,
    stacks: Stacks,
    waker: Option<Waker>,
}

impl SpanWaits {
    /// Adds a piece of the span, of which a row tells this.
    pub fn add(&mut self, piece: SpanPiece, length: Nanos, row: &RowOfSpan) {
        match piece {
            SpanPiece::Waits(reason) if length > self.longest_blocked() => {
                self.blocked = Some(BlockedInSpan {
                    reason,
                    length,
                    stacks: row.stacks,
                    waker: row.waker,
                });
            }
            SpanPiece::HasNoCpu if length > self.no_cpu.0 => self.no_cpu = (length, row.taker),
            SpanPiece::Waits(_) | SpanPiece::HasNoCpu | SpanPiece::Runs => {}
        }
    }

    fn merge(&mut self, other: Self) {
        if other.longest_blocked() > self.longest_blocked() {
            self.blocked = other.blocked;
        }
        if other.no_cpu.0 > self.no_cpu.0 {
            self.no_cpu = other.no_cpu;
        }
    }

    fn longest_blocked(&self) -> Nanos {
        self.blocked.map_or(Nanos::ZERO, |blocked| blocked.length)
    }
}

/// A span that took long.
#[derive(Clone, Debug)]
pub struct SlowSpan {
    task: usize,
    span: ProgramSpan,
    parts: TurnSum,
    waits: SpanWaits,
}

impl SlowSpan {
    /// A span of the task with this index, which is made of these parts.
    pub const fn new(task: usize, span: ProgramSpan, parts: TurnSum, waits: SpanWaits) -> Self {
        Self {
            task,
            span,
            parts,
            waits,
        }
    }

    /// The number of the trace that it is a part of.
    pub const fn trace(&self) -> Option<u32> {
        self.span.trace
    }

    /// What it is made of.
    pub const fn parts(&self) -> &TurnSum {
        &self.parts
    }

    /// Adds another stretch of the same trace.
    pub fn merge(&mut self, other: Self) {
        if other.span.begin < self.span.begin {
            (self.task, self.span) = (other.task, other.span);
        }
        self.parts.merge(&other.parts);
        self.waits.merge(other.waits);
    }

    /// All stretches were added: they are one span.
    pub fn be_one(&mut self, span: ProgramSpan) {
        self.span = ProgramSpan {
            trace: self.span.trace,
            ..span
        };
        self.parts.turns = 1;
    }

    /// The longest first, and of equals the one that began first.
    fn rank(&self) -> (Reverse<Nanos>, Timestamp, usize) {
        (Reverse(self.span.length()), self.span.begin, self.task)
    }

    /// The longest thing that it was kept waiting by, in words.
    fn cause<'p>(
        &self,
        program: &impl Fn(usize) -> &'p str,
        index: &impl Fn(TaskKey) -> usize,
        symbols: Option<&Symbols>,
    ) -> String {
        let (no_cpu, taker) = self.waits.no_cpu;
        match self.waits.blocked {
            Some(blocked) if blocked.length >= no_cpu => {
                let place = symbols.and_then(|symbols| {
                    symbols.functions_with_line(blocked.stacks.0?, FUNCTIONS_NAMED)
                });
                let place = place.map_or_else(String::new, |place| format!(" in {place}"));
                format!("blocked ({}){place}", blocked.reason)
            }
            _ if no_cpu > Nanos::ZERO => match taker {
                Some(taker) => format!("without a CPU, which {} took", program(index(taker))),
                None => "without a CPU".to_owned(),
            },
            _ => "on a CPU".to_owned(),
        }
    }
}

/// The slowest spans of each kind.
#[derive(Debug, Default)]
pub struct SlowestSpans {
    by_kind: FxHashMap<usize, Vec<SlowSpan>>,
}

/// What is needed to name what is in a row.
#[derive(Debug)]
pub struct SpanNames<'a> {
    /// Names of tasks.
    pub names: &'a Names,
    /// Functions of stacks.
    pub symbols: &'a Symbols,
    /// How the kinds of spans are called, by their place.
    pub kinds: &'a [String],
    /// The traces that they are parts of.
    pub traces: &'a PublishedTraces,
    /// The start of the trace.
    pub start: Timestamp,
}

/// A row of the table.
struct SpanRowTold<'a> {
    slow: &'a SlowSpan,
    kind: usize,
    told: &'a SpanNames<'a>,
}

impl SpanRowTold<'_> {
    fn blocked(&self) -> Option<BlockedInSpan> {
        self.slow.waits.blocked
    }

    fn place(&self) -> Option<String> {
        let stack = self.blocked()?.stacks.0?;
        self.told
            .symbols
            .functions_with_line(stack, FUNCTIONS_NAMED)
    }
}

fn columns<'a>() -> [Column<SpanRowTold<'a>>; 16] {
    [
        Column::new(words::SPAN, |row| {
            Cell::text(row.told.kinds[row.kind].as_str())
        }),
        Column::new(words::TRACE_ID, |row| {
            let id = row.slow.trace().and_then(|trace| row.told.traces.id(trace));
            or_missing(id, Cell::text)
        }),
        Column::new(words::THREAD, |row| row.told.names.comm_cell(row.slow.task)),
        Column::new(words::TID, |row| row.told.names.tid_cell(row.slow.task)),
        Column::new(words::BEGAN, |row| {
            let began = row.slow.span.begin.since(row.told.start);
            Cell::Time(began.unwrap_or(Nanos::ZERO))
        }),
        Column::new(words::LENGTH, |row| Cell::Time(row.slow.span.length())),
        Column::new(words::RAN, |row| Cell::Time(row.slow.parts.ran)),
        Column::new(words::RUNQ, |row| Cell::Time(row.slow.parts.no_cpu)),
        Column::new(words::BLOCKED, |row| {
            Cell::Time(row.slow.parts.all_blocked())
        }),
        Column::new(words::SWITCHES, |row| Cell::Count(row.slow.parts.switches)),
        Column::new(words::REASON.saying("why it waited longest"), |row| {
            or_missing(row.blocked(), |blocked| Cell::text(blocked.reason.as_str()))
        }),
        Column::new(words::LONGEST_WAIT, |row| {
            or_missing(row.blocked(), |blocked| Cell::Time(blocked.length))
        }),
        Column::new(words::WAITED_IN, |row| or_missing(row.place(), Cell::Text)),
        Column::new(words::WAKER.saying("who ended its longest wait"), |row| {
            let waker = row.blocked().and_then(|blocked| blocked.waker);
            or_missing(waker, |waker| Cell::Text(waker.label(row.told.names)))
        }),
        Column::new(words::LONGEST_RUNQ, |row| {
            Cell::Time(row.slow.waits.no_cpu.0)
        }),
        Column::new(
            words::TAKER.saying("who took the CPU from it before that"),
            |row| {
                let names = row.told.names;
                let taker = row.slow.waits.no_cpu.1;
                or_missing(taker, |taker| Cell::Text(names.label(names.index(taker))))
            },
        ),
    ]
}

impl SlowestSpans {
    /// Adds a span of this kind.
    pub fn push(&mut self, kind: usize, span: SlowSpan) {
        let kept = self.by_kind.entry(kind).or_default();
        kept.push(span);
        if kept.len() >= 2 * MOST_KEPT {
            kept.select_nth_unstable_by_key(MOST_KEPT, SlowSpan::rank);
            kept.truncate(MOST_KEPT);
        }
    }

    /// What most of the slowest `count` spans of a kind were kept waiting by longest, in words; those of the tasks that
    /// `takes` says. `None` where no cause is that of many.
    pub fn causes<'p>(
        &self,
        kind: usize,
        count: u64,
        takes: impl Fn(usize) -> bool,
        program: &impl Fn(usize) -> &'p str,
        (names, symbols): (&Names, Option<&Symbols>),
    ) -> Option<String> {
        let of_kind = self.by_kind.get(&kind)?.iter();
        let mut slowest: Vec<_> = of_kind.filter(|span| takes(span.task)).collect();
        slowest.sort_unstable_by_key(|span| span.rank());
        slowest.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        let mut causes: BTreeMap<String, usize> = BTreeMap::new();
        for span in &slowest {
            let cause = span.cause(program, &|key| names.index(key), symbols);
            *causes.entry(cause).or_default() += 1;
        }
        let (cause, of) = causes.into_iter().max_by_key(|(_, count)| *count)?;
        let is_many = of * 100 >= slowest.len() * LEAST_OF_SLOWEST_PCT;
        is_many.then(|| {
            let all = grouped(slowest.len() as u64);
            format!(
                "Longest at a time, in {} of the {all} slowest: {cause}.",
                grouped(of as u64)
            )
        })
    }

    /// The table. There are `count` spans, and more that are not known whole.
    pub fn sheet(&self, told: &SpanNames<'_>, (count, broken): (u64, u64)) -> Sheet {
        let of_kinds = self.by_kind.iter();
        let rows = of_kinds.flat_map(|(kind, spans)| {
            spans.iter().map(|slow| SpanRowTold {
                slow,
                kind: *kind,
                told,
            })
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable_by_key(|row| (row.slow.rank(), row.kind));
        let shown = rows.len() as u64;
        let mut sheet = report_sheet("span", &columns(), rows);
        if shown < count {
            sheet.notes.push(format!(
                "the slowest {} of {} are kept",
                grouped(shown),
                counted(count, "span")
            ));
        }
        if broken > 0 {
            sheet.notes.push(format!(
                "{} not known whole: a record is missing, or the thread did not leave the CPU near it",
                counted(broken, "more span")
            ));
        }
        sheet
    }
}

#[cfg(test)]
mod tests {
    use swtch_core::{Pid, Tid};
    use swtch_store::SpanRow;

    use super::*;
    use crate::report::drawn::{after, names, row, woken_by};
    use crate::report::spans::{ReadSpans, SpansByThread};

    const MS: u64 = 1_000_000;

    /// Two spans of `server`: of the first, most is a wait for the disk; in the second `hog` takes the CPU.
    fn spans() -> SpansByThread {
        let names = names();
        let mut read = ReadSpans::new(&names, |_| true);
        for (begin, end) in [(0, 10), (20, 40)] {
            read.add(&SpanRow {
                begin: Timestamp::from_ns(begin * MS),
                end: Timestamp::from_ns(end * MS),
                pid: Pid::new(10),
                tid: Tid::new(10),
                name: "query".to_owned(),
                ..SpanRow::default()
            });
        }
        let mut spans = read.by_thread();
        let ends = |mut row: swtch_core::Switch, ran_ms: u64, at_ms: u64| {
            row.ts = Timestamp::from_ns(at_ms * MS);
            row.ran = Some(Nanos::from_ns(ran_ms * MS));
            row
        };
        let mut taken = row(1, Reason::Wakeup);
        taken.next_task = Some(TaskKey::new(3));
        let rows = [
            ends(row(1, Reason::Io), 2, 2),
            ends(
                woken_by(after(row(1, Reason::Sleep), Reason::Io, 7 * MS, 0), 3),
                3,
                12,
            ),
            ends(after(taken, Reason::Sleep, 8 * MS, 0), 4, 24),
            ends(
                after(row(1, Reason::Sleep), Reason::Wakeup, 0, 15 * MS),
                6,
                45,
            ),
        ];
        rows.iter()
            .for_each(|row| spans.add(row, names.index(row.task), &names));
        spans
    }

    #[test]
    fn the_slowest_comes_first_with_its_parts_and_its_longest_waits() {
        let sheet = spans().sheet(&names(), &Symbols::default(), Timestamp::default());
        let rows = sheet.to_json_rows();
        let of = |row: usize, keys: &[&str]| -> Vec<_> {
            keys.iter().map(|key| rows[row][*key].clone()).collect()
        };
        let parts = ["length_ns", "ran_ns", "runq_ns", "blocked_ns", "switches"];
        assert_eq!(of(0, &parts), [20 * MS, 5 * MS, 15 * MS, 0, 1]);
        assert_eq!(of(1, &parts), [10 * MS, 3 * MS, 0, 7 * MS, 1]);
        assert_eq!(of(0, &["longest_runq_ns", "began_ns"]), [15 * MS, 20 * MS]);
        assert_eq!(of(0, &["taker", "span"]), ["hog/30", "query"]);
        assert_eq!(of(1, &["reason", "waker"]), ["io", "hog/30"]);
        assert!(sheet.notes.is_empty(), "{:?}", sheet.notes);
    }

    #[test]
    fn the_cause_is_that_of_many_and_of_the_slowest_alone() {
        let slowest = spans();
        let names = names();
        let cause = |count| {
            slowest
                .slowest()
                .causes(0, count, |_| true, &|_| "hog", (&names, None))
                .unwrap()
        };
        let taken = "Longest at a time, in 1 of the 1 slowest: without a CPU, which hog took.";
        assert_eq!(cause(1), taken);
        assert!(
            cause(2).contains(" in 1 of the 2 slowest: "),
            "{}",
            cause(2)
        );
    }

    #[test]
    fn no_more_than_the_slowest_are_kept() {
        let mut slowest = SlowestSpans::default();
        let all = 3 * MOST_KEPT as u64;
        for number in 0..all {
            let length = number.wrapping_mul(7919) % all;
            let span = ProgramSpan {
                begin: Timestamp::from_ns(number),
                end: Timestamp::from_ns(number + length),
                trace: None,
            };
            slowest.push(
                0,
                SlowSpan::new(1, span, TurnSum::default(), SpanWaits::default()),
            );
        }
        let kept = &slowest.by_kind[&0];
        assert!(kept.len() < 2 * MOST_KEPT);
        let longest = kept.iter().map(|span| span.span.length().as_ns());
        let longest = longest.filter(|length| *length >= all - MOST_KEPT as u64);
        assert_eq!(longest.count(), MOST_KEPT);
    }
}

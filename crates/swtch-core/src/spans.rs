//! Spans of a thread between two moments that its program tells: what each is made of.
//!
//! ```text
//!   switches   │ blocked │ no CPU │ run │ blocked │ no CPU │   run    │
//!   span               ├─────────────────────────────────────────┤
//! ```
//!
//! The rows of a thread are cut at both ends of a span. The parts of a span sum to its length exactly; one of which a row
//! is missing is counted apart ([`TurnSums::broken`]). Of spans within each other the outermost counts.

use serde::{Deserialize, Serialize};

use crate::ids::TaskKey;
use crate::reason::Reason;
use crate::switch::{Open, Switch};
use crate::turns::{TurnSum, TurnSums};
use crate::units::{Nanos, Timestamp};

/// A span that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSpan {
    /// When it began.
    pub begin: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// The number of the trace that it is a part of, where the program publishes that.
    pub trace: Option<u32>,
}

impl ProgramSpan {
    /// How long it took.
    pub fn length(&self) -> Nanos {
        self.end.since(self.begin).unwrap_or(Nanos::ZERO)
    }

    /// One that is as long, and begins at this moment.
    pub fn moved_to(self, begin: Timestamp) -> Self {
        Self {
            begin,
            end: begin.after(self.length()),
            ..self
        }
    }
}

/// Spans that are not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UntoldSpans {
    /// Ends for which there was no room.
    pub lost: u64,
    /// Ends of which no begin was seen.
    pub without_begin: u64,
    /// Begins that were left without an end, as the thread's next begin has shown.
    pub without_end: u64,
    /// Begins within eight spans of the same kind that were open; more are not kept open. 0 in traces of older programs.
    pub too_deep: u64,
}

impl UntoldSpans {
    /// How many there are of each kind that there is, and why they are not told, in words after that number.
    pub fn reasons(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let all = [
            (self.lost, "were lost for want of room"),
            (self.without_begin, "ended of which no begin was seen"),
            (self.without_end, "began and were left without an end"),
            (self.too_deep, "began within eight others that were open"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0)
    }
}

/// The spans of one kind of one thread.
#[derive(Clone, Debug)]
pub struct ThreadSpans {
    task: TaskKey,
    /// One after the other.
    spans: Vec<ProgramSpan>,
    /// The first that has not ended yet, and what it is made of so far.
    next: usize,
    sum: TurnSum,
    /// The number of those within others.
    nested: u64,
    ended: TurnSums,
}

/// What a thread does in a piece of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanPiece {
    /// It runs.
    Runs,
    /// It could run, and has no CPU.
    HasNoCpu,
    /// It waits for this reason.
    Waits(Reason),
}

/// What a row tells of the spans that it lies in.
#[derive(Clone, Copy, Debug)]
pub enum SpanEvent<'a> {
    /// A piece of the span that is open.
    Piece(SpanPiece, Nanos),
    /// The span has ended. If it is known whole, these are its parts.
    Ended(ProgramSpan, Option<&'a TurnSum>),
}

impl ThreadSpans {
    /// Those of this thread, in any order.
    pub fn new(task: TaskKey, mut spans: Vec<ProgramSpan>) -> Self {
        spans.sort_unstable_by_key(|span| (span.begin, std::cmp::Reverse(span.end)));
        let (all, mut until) = (spans.len(), Timestamp::default());
        spans.retain(|span| {
            let is_outermost = span.begin >= until && span.begin < span.end;
            if is_outermost {
                until = span.end;
            }
            is_outermost
        });
        Self {
            task,
            nested: u64::try_from(all - spans.len()).unwrap_or(u64::MAX),
            spans,
            next: 0,
            sum: TurnSum::default(),
            ended: TurnSums::default(),
        }
    }

    /// Adds a row of this thread, which come in the order of time. `each` gets what it tells of spans.
    pub fn add(&mut self, row: &Switch, each: &mut dyn FnMut(SpanEvent<'_>)) {
        let Some(ran) = row.ran else {
            return;
        };
        let run = row.ts.before(ran);
        // Where a wakeup was not seen, all of the wait is told as blocked.
        let ready = run.before(row.wait.runq.unwrap_or(Nanos::ZERO));
        if let (Some(reason), Some(off)) = (row.wait.reason, row.wait.off) {
            self.cover(run.before(off), ready, SpanPiece::Waits(reason), each);
        }
        self.cover(ready, run, SpanPiece::HasNoCpu, each);
        self.cover(run, row.ts, SpanPiece::Runs, each);
        let is_within = self.spans.get(self.next);
        if is_within.is_some_and(|span| span.begin < row.ts && row.ts < span.end) {
            self.sum.switches += 1;
        }
    }

    /// Adds what no row tells, after all rows: the last wait of the thread, and the run after it.
    pub fn add_open(&mut self, open: &Open, each: &mut dyn FnMut(SpanEvent<'_>)) {
        let end = open.end();
        match open.reason {
            Some(reason) => {
                let ready = end.before(open.runq.unwrap_or(Nanos::ZERO));
                self.cover(open.since, ready, SpanPiece::Waits(reason), each);
                self.cover(ready, end, SpanPiece::HasNoCpu, each);
            }
            None => self.cover(open.since, end, SpanPiece::Runs, each),
        }
    }

    fn cover(
        &mut self,
        from: Timestamp,
        to: Timestamp,
        piece: SpanPiece,
        each: &mut dyn FnMut(SpanEvent<'_>),
    ) {
        while let Some(span) = self.spans.get(self.next).copied() {
            if span.begin >= to {
                return;
            }
            let (begin, end) = (span.begin.max(from), span.end.min(to));
            if let Some(length) = end.since(begin).filter(|length| *length > Nanos::ZERO) {
                match piece {
                    SpanPiece::Runs => self.sum.ran += length,
                    SpanPiece::HasNoCpu => self.sum.no_cpu += length,
                    SpanPiece::Waits(reason) => self.sum.add_blocked(reason, length),
                }
                each(SpanEvent::Piece(piece, length));
            }
            if span.end > to {
                return;
            }
            self.end(span, each);
        }
    }

    fn end(&mut self, span: ProgramSpan, each: &mut dyn FnMut(SpanEvent<'_>)) {
        let mut sum = std::mem::take(&mut self.sum);
        sum.turns = 1;
        let is_whole = self.ended.add(self.task, span.begin, span.length(), &sum);
        each(SpanEvent::Ended(span, is_whole.then_some(&sum)));
        self.next += 1;
    }

    /// All of them, after the last row. What no row has reached is not known whole.
    pub fn sums(&self) -> TurnSums {
        let mut sums = self.ended.clone();
        let left = self.spans.len() - self.next;
        sums.broken += u64::try_from(left).unwrap_or(u64::MAX);
        sums
    }

    /// The thread.
    pub const fn task(&self) -> TaskKey {
        self.task
    }

    /// Those that are not within others, one after the other.
    pub fn outermost(&self) -> &[ProgramSpan] {
        &self.spans
    }

    /// The number of spans that are not counted, because they are within others.
    pub const fn nested(&self) -> u64 {
        self.nested
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::all_rules;
    use crate::wait::Wait;

    const TASK: TaskKey = TaskKey::new(1);

    const fn at(ns: u64) -> Timestamp {
        Timestamp::from_ns(ns)
    }

    const fn ns(ns: u64) -> Nanos {
        Nanos::from_ns(ns)
    }

    const fn span(begin: u64, end: u64) -> ProgramSpan {
        ProgramSpan {
            begin: at(begin),
            end: at(end),
            trace: None,
        }
    }

    /// A row that ends at `ts`: a wait, without a CPU after it, and a run.
    fn row(ts: u64, (reason, blocked, runq, ran): (Reason, u64, u64, u64)) -> Switch {
        let rule = all_rules().find(|rule| rule.reason == Reason::Io);
        let mut row = Switch::blank(rule.unwrap());
        row.ts = at(ts);
        row.task = TASK;
        row.ran = Some(ns(ran));
        row.wait = Wait {
            reason: Some(reason),
            off: Some(ns(blocked + runq)),
            runq: Some(ns(runq)),
            ..Wait::default()
        };
        row
    }

    fn sums(spans: &[ProgramSpan], rows: &[Switch]) -> TurnSums {
        let mut thread = ThreadSpans::new(TASK, spans.to_vec());
        rows.iter().for_each(|row| thread.add(row, &mut |_| ()));
        thread.sums()
    }

    /// Of 1,000 ns from 1,000 on: blocked 300 to 1,100, no CPU to 1,200, runs to 1,500, blocked to 1,800, runs to 2,500.
    fn rows() -> [Switch; 2] {
        [
            row(1_500, (Reason::Net, 800, 100, 300)),
            row(2_500, (Reason::Io, 300, 0, 700)),
        ]
    }

    #[test]
    fn rows_are_cut_at_both_ends_of_a_span() {
        let sums = sums(&[span(1_000, 2_000)], &rows());
        let (all, _) = sums.slowest(1.0);
        assert_eq!((all.turns, all.switches, all.length()), (1, 1, ns(1_000)));
        assert_eq!((all.ran, all.no_cpu), (ns(500), ns(100)));
        assert_eq!(all.blocked, [(Reason::Net, ns(100)), (Reason::Io, ns(300))]);
        let longest = sums.longest.unwrap();
        assert_eq!((longest.began, longest.length), (at(1_000), ns(1_000)));
    }

    #[test]
    fn a_wait_whose_wakeup_was_not_seen_is_blocked_time() {
        let mut unseen = row(2_500, (Reason::Io, 300, 0, 700));
        unseen.wait.runq = None;
        let sums = sums(&[span(1_700, 2_000)], &[rows()[0], unseen]);
        let (all, _) = sums.slowest(1.0);
        assert_eq!(
            (all.ran, all.blocked),
            (ns(200), vec![(Reason::Io, ns(100))])
        );
    }

    #[test]
    fn several_spans_in_one_run_are_each_told() {
        let sums = sums(
            &[span(1_810, 1_850), span(1_850, 1_900), span(2_000, 2_500)],
            &rows(),
        );
        let (all, _) = sums.slowest(1.0);
        assert_eq!((all.turns, all.switches, all.ran), (3, 0, ns(590)));
        assert_eq!((all.length(), sums.broken), (ns(590), 0));
    }

    #[test]
    fn of_spans_within_each_other_the_outermost_counts() {
        let spans = [
            span(1_300, 1_400),
            span(1_200, 1_450),
            span(1_440, 1_480),
            span(7, 7),
        ];
        let thread = ThreadSpans::new(TASK, spans.to_vec());
        assert_eq!((thread.spans.len(), thread.nested()), (1, 3));
        assert_eq!(sums(&spans, &rows()).count(), 1);
    }

    #[test]
    fn a_span_of_which_a_row_is_missing_is_told_apart() {
        let lost = [rows()[0], row(9_000, (Reason::Io, 10, 0, 20))];
        let sums = sums(
            &[span(1_400, 2_000), span(8_985, 8_990), span(9_500, 9_600)],
            &lost,
        );
        assert_eq!((sums.count(), sums.broken), (1, 2));
    }

    #[test]
    fn the_wait_and_the_run_at_the_end_have_no_row() {
        let open = |reason, since, lasted, runq| Open {
            task: TASK,
            reason,
            since: at(since),
            lasted: ns(lasted),
            runq,
            cpu: None,
        };
        let mut thread = ThreadSpans::new(TASK, vec![span(2_400, 2_600)]);
        rows().iter().for_each(|row| thread.add(row, &mut |_| ()));
        thread.add_open(
            &open(Some(Reason::Io), 2_500, 40, Some(ns(10))),
            &mut |_| (),
        );
        thread.add_open(&open(None, 2_540, 500, None), &mut |_| ());
        let sums = thread.sums();
        let (all, _) = sums.slowest(1.0);
        assert_eq!((all.ran, all.switches), (ns(160), 1));
        assert_eq!(
            (all.no_cpu, all.blocked),
            (ns(10), vec![(Reason::Io, ns(30))])
        );
    }
}

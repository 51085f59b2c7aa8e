//! `report --by reason`: how many switches for each reason, and what they cost in time.
//!
//! The run of a row counts for the reason that ended it. Its wait counts for the reason of the
//! switch-out that began it. So `off` and `runq` beside a reason are the time that leaving for it
//! cost.

use swtch_core::{Certainty, Distribution, Open, Reason, Switch};
use swtch_output::column::Column;
use swtch_output::sheet::{Cell, Sheet, SheetTable};
use swtch_output::text;

use super::filter::CountedParts;
use super::tally::{self, OfTally, Tally};
use super::{report_sheet, words};

/// A row of the table.
struct ReasonRow<'a> {
    reason: Reason,
    one: &'a OneReason,
    all: u64,
}

impl OfTally for ReasonRow<'_> {
    fn tally(&self) -> &Tally {
        &self.one.tally
    }

    fn all(&self) -> u64 {
        self.all
    }
}

impl OfReason for ReasonRow<'_> {
    fn reason(&self) -> Reason {
        self.reason
    }

    fn certain(&self) -> u64 {
        self.one.certain
    }
}

/// A row of a table by reason.
pub trait OfReason: OfTally {
    fn reason(&self) -> Reason;

    /// Switches whose reason the kernel itself gave.
    fn certain(&self) -> u64;
}

/// The columns that name a reason.
pub fn label_columns<R: OfReason>() -> [Column<R>; 2] {
    [
        Column::new(words::REASON, |row| Cell::text(row.reason().as_str())),
        Column::new(words::CATEGORY, |row| {
            Cell::text(row.reason().category().as_str())
        }),
    ]
}

/// The columns with sums by reason: from its name to `open_ns`.
pub fn sums<R: OfReason>() -> impl Iterator<Item = Column<R>> {
    let certain = Column::in_total(words::CERTAIN, |row: &R| {
        Cell::share(row.certain(), row.tally().switches)
    });
    let counts = label_columns().into_iter().chain(tally::counts());
    counts
        .chain([certain])
        .chain(tally::kinds())
        .chain(tally::times())
}

/// The percentiles of lengths, in the order of [`Distribution::PERCENTILES`], and the longest.
fn lengths<'a>() -> impl Iterator<Item = Column<ReasonRow<'a>>> {
    let lengths: [[Column<ReasonRow<'_>>; 5]; 3] = [
        [
            Column::new(words::RUN_P50, |row| percentile(&row.one.run, 0)),
            Column::new(words::RUN_P90, |row| percentile(&row.one.run, 1)),
            Column::new(words::RUN_P99, |row| percentile(&row.one.run, 2)),
            Column::new(words::RUN_P99_9, |row| percentile(&row.one.run, 3)),
            Column::new(words::RUN_MAX, |row| Cell::time(row.one.run.longest())),
        ],
        [
            Column::new(words::RUNQ_P50, |row| percentile(&row.one.runq, 0)),
            Column::new(words::RUNQ_P90, |row| percentile(&row.one.runq, 1)),
            Column::new(words::RUNQ_P99, |row| percentile(&row.one.runq, 2)),
            Column::new(words::RUNQ_P99_9, |row| percentile(&row.one.runq, 3)),
            Column::new(words::RUNQ_MAX, |row| Cell::time(row.one.runq.longest())),
        ],
        [
            Column::new(words::OFF_P50, |row| percentile(&row.one.off, 0)),
            Column::new(words::OFF_P90, |row| percentile(&row.one.off, 1)),
            Column::new(words::OFF_P99, |row| percentile(&row.one.off, 2)),
            Column::new(words::OFF_P99_9, |row| percentile(&row.one.off, 3)),
            Column::new(words::OFF_MAX, |row| Cell::time(row.one.off.longest())),
        ],
    ];
    lengths.into_iter().flatten()
}

fn percentile(lengths: &Distribution, place: usize) -> Cell {
    Cell::time(lengths.percentile(Distribution::PERCENTILES[place].0))
}

const VIEWS: [SheetTable; 4] = [
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
        title: "length of the run that ended",
        columns: &[
            "reason",
            "run_p50_ns",
            "run_p90_ns",
            "run_p99_ns",
            "run_p99_9_ns",
            "run_max_ns",
        ],
    },
    SheetTable {
        title: "run-queue time of the wait that followed",
        columns: &[
            "reason",
            "runq_p50_ns",
            "runq_p90_ns",
            "runq_p99_ns",
            "runq_p99_9_ns",
            "runq_max_ns",
        ],
    },
    SheetTable {
        title: "off-CPU time of the wait that followed",
        columns: &[
            "reason",
            "off_p50_ns",
            "off_p90_ns",
            "off_p99_ns",
            "off_p99_9_ns",
            "off_max_ns",
        ],
    },
];

#[derive(Debug)]
pub struct ByReason {
    reasons: Vec<OneReason>,
    unrecorded: u64,
}

/// What is counted for one reason.
#[derive(Clone, Debug, Default)]
pub struct OneReason {
    pub tally: Tally,
    /// Switches whose reason the kernel itself gave.
    pub certain: u64,
    /// Lengths of the runs that ended.
    pub run: Distribution,
    /// Run-queue times of the waits.
    pub runq: Distribution,
    /// Off-CPU times of the waits.
    pub off: Distribution,
}

impl Default for ByReason {
    fn default() -> Self {
        Self {
            reasons: vec![OneReason::default(); Reason::ALL.len()],
            unrecorded: 0,
        }
    }
}

impl ByReason {
    /// Adds what counts of a row.
    pub fn add(&mut self, row: &Switch, counted: CountedParts) {
        if counted.switch {
            self.reasons[row.rule.reason.index()].add_switch(row);
        }
        if counted.wait && row.wait.length().is_some() {
            self.unrecorded += u64::from(row.wait.reason.is_none());
            let reason = row.wait.reason.unwrap_or(Reason::Unknown);
            self.reasons[reason.index()].add_wait(row);
        }
    }

    /// Adds a wait that was open at the end.
    pub fn add_open(&mut self, reason: Reason, open: &Open) {
        self.reasons[reason.index()].tally.add_open(open);
    }

    /// What was counted for a reason.
    pub fn of(&self, reason: Reason) -> &OneReason {
        &self.reasons[reason.index()]
    }

    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for one in &self.reasons {
            total.add(&one.tally);
        }
        total
    }

    /// Reasons that occur, most switches first.
    pub fn ranked(&self) -> Vec<(Reason, Tally)> {
        let met = Reason::ALL.iter().zip(&self.reasons);
        let met = met.filter(|(_, one)| one.tally.switches > 0);
        let mut ranked: Vec<_> = met
            .map(|(reason, one)| (*reason, one.tally.clone()))
            .collect();
        ranked.sort_by(|a, b| b.1.switches.cmp(&a.1.switches).then(a.0.cmp(&b.0)));
        ranked
    }

    /// Switches whose reason the kernel itself gave.
    pub fn certain(&self) -> u64 {
        self.reasons.iter().map(|one| one.certain).sum()
    }

    /// The report: most frequent reason first.
    pub fn sheet(&self) -> Sheet {
        let total = self.total();
        let mut shown: Vec<_> = Reason::ALL
            .iter()
            .zip(&self.reasons)
            .filter(|(_, one)| !one.tally.is_empty())
            .collect();
        shown.sort_by(|a, b| {
            b.1.tally
                .switches
                .cmp(&a.1.tally.switches)
                .then(a.0.cmp(b.0))
        });
        let columns: Vec<_> = sums().chain(lengths()).collect();
        let row = |(reason, one): (&Reason, _)| ReasonRow {
            reason: *reason,
            one,
            all: total.switches,
        };
        let sums = OneReason {
            tally: total.clone(),
            certain: self.certain(),
            ..OneReason::default()
        };
        let sums = row((&Reason::Unknown, &sums));
        let mut sheet = report_sheet("reason", &columns, shown.into_iter().map(row))
            .with_total(&columns, &sums);
        sheet.views = VIEWS.to_vec();
        sheet.notes = total.notes();
        if self.unrecorded > 0 {
            sheet.notes.push(format!(
                "{} without a reason, counted as unknown: the thread was new, or left before the recording began",
                text::counted(self.unrecorded, "wait")
            ));
        }
        sheet
    }
}

impl OneReason {
    fn add_switch(&mut self, row: &Switch) {
        self.tally.add_switch(row);
        self.certain += u64::from(row.rule.certainty == Certainty::Certain);
        if let Some(ran) = row.ran {
            self.run.record(ran);
        }
    }

    fn add_wait(&mut self, row: &Switch) {
        self.tally.add_wait(row);
        if let Some(off) = row.wait.length() {
            self.off.record(off);
        }
        if let Some(runq) = row.wait.runq {
            self.runq.record(runq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, row};

    const BOTH: CountedParts = CountedParts {
        switch: true,
        wait: true,
    };

    fn drawn() -> ByReason {
        let mut by = ByReason::default();
        by.add(&row(1, Reason::Pipe), BOTH);
        by.add(
            &after(row(1, Reason::Wakeup), Reason::Pipe, 40_000, 10_000),
            BOTH,
        );
        by.add(
            &after(row(1, Reason::Pipe), Reason::Wakeup, 0, 20_000),
            BOTH,
        );
        by
    }

    fn cell<'a>(sheet: &'a Sheet, row: usize, key: &str) -> &'a Cell {
        let place = sheet.columns.iter().position(|column| *column == key);
        &sheet.rows[row][place.unwrap()]
    }

    /// The run ends for one reason, the wait before it began for another.
    #[test]
    fn a_wait_belongs_to_the_reason_it_began_with() {
        let sheet = drawn().sheet();
        assert_eq!(cell(&sheet, 0, "reason"), &Cell::text("pipe"));
        assert_eq!(cell(&sheet, 0, "switches"), &Cell::Count(2));
        assert_eq!(
            cell(&sheet, 0, "off_ns"),
            &Cell::time(Some(swtch_core::Nanos::from_ns(50_000)))
        );
        assert_eq!(cell(&sheet, 1, "reason"), &Cell::text("wakeup"));
        assert_eq!(
            cell(&sheet, 1, "runq_ns"),
            &Cell::time(Some(swtch_core::Nanos::from_ns(20_000)))
        );
        assert_eq!(
            cell(&sheet, 1, "blocked_ns"),
            &Cell::time(Some(swtch_core::Nanos::ZERO))
        );
    }

    #[test]
    fn the_table_shows_sums_and_percentiles() {
        let table = drawn().sheet().to_table(20);
        let expected = "\
reason  category    switches  share %  certain %  voluntary  involuntary     ran      off  blocked     runq
───────────────────────────────────────────────────────────────────────────────────────────────────────────
pipe    io                 2     66.7      100.0          2            0  200 µs  50.0 µs  40.0 µs  10.0 µs
wakeup  preemption         1     33.3      100.0          0            1  100 µs  20.0 µs     0 ns  20.0 µs
───────────────────────────────────────────────────────────────────────────────────────────────────────────
total                      3    100.0      100.0          2            1  300 µs  70.0 µs  40.0 µs  30.0 µs
";
        assert_eq!(table.split("\nlength").next(), Some(expected));
        assert!(
            table.contains("reason  run p50  run p90  run p99  run p99.9  run max"),
            "{table}"
        );
    }

    #[test]
    fn a_wait_after_a_lost_switch_is_unknown_and_said() {
        let mut lost = after(row(1, Reason::Pipe), Reason::Pipe, 10, 5);
        lost.wait.reason = None;
        let mut by = ByReason::default();
        by.add(&lost, BOTH);
        assert_eq!(by.of(Reason::Unknown).tally.waits, 1);
        assert!(by.sheet().notes[0].contains("1 wait without a reason"));
    }
}

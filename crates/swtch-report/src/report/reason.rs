//! `report --by reason`: how many switches for each reason, and what they cost in time.
//!
//! The run of a row counts for the reason that ended it. Its wait counts for the reason of the
//! switch-out that began it. So `off` and `runq` beside a reason are the time that leaving for it
//! cost.

use swtch_core::{Distribution, Open, Reason, Switch, Tally};
use swtch_output::column::Column;
use swtch_output::sheet::{Cell, Sheet, SheetTable};
use swtch_output::text;

use super::filter::CountedParts;
use super::tally::{self, OfTally};
use super::{report_sheet, words};

/// A row of a table by reason.
pub struct ReasonRow<'a, L> {
    reason: Reason,
    of: &'a OneReason<L>,
    /// Number of switches of all reasons, of which the row shows its share.
    all: u64,
}

impl<L> ReasonRow<'_, L> {
    /// Returns the lengths of its runs and waits.
    pub const fn lengths(&self) -> &L {
        &self.of.lengths
    }
}

impl<L> OfTally for ReasonRow<'_, L> {
    fn tally(&self) -> &Tally {
        &self.of.tally
    }

    fn all(&self) -> u64 {
        self.all
    }
}

/// The columns with sums by reason: from its name to `open_ns`.
pub fn sums<'a, L: 'a>() -> impl Iterator<Item = Column<ReasonRow<'a, L>>> {
    let labels = [
        Column::new(words::REASON, |row: &ReasonRow<'a, L>| {
            Cell::text(row.reason.as_str())
        }),
        Column::new(words::CATEGORY, |row: &ReasonRow<'a, L>| {
            Cell::text(row.reason.category().as_str())
        }),
    ];
    let counts = labels.into_iter().chain(tally::counts());
    counts
        .chain([tally::certain()])
        .chain(tally::kinds())
        .chain(tally::times())
}

/// The columns with the percentiles of lengths and the longest of them.
fn lengths<'a>() -> impl Iterator<Item = Column<ReasonRow<'a, RowLengths>>> {
    let lengths: [[Column<ReasonRow<'_, RowLengths>>; 5]; 3] = [
        [
            Column::new(words::RUN_P50, |row| percentile(&row.lengths().run, 0)),
            Column::new(words::RUN_P90, |row| percentile(&row.lengths().run, 1)),
            Column::new(words::RUN_P99, |row| percentile(&row.lengths().run, 2)),
            Column::new(words::RUN_P99_9, |row| percentile(&row.lengths().run, 3)),
            Column::new(words::RUN_MAX, |row| {
                Cell::time(row.lengths().run.longest())
            }),
        ],
        [
            Column::new(words::RUNQ_P50, |row| percentile(&row.lengths().runq, 0)),
            Column::new(words::RUNQ_P90, |row| percentile(&row.lengths().runq, 1)),
            Column::new(words::RUNQ_P99, |row| percentile(&row.lengths().runq, 2)),
            Column::new(words::RUNQ_P99_9, |row| percentile(&row.lengths().runq, 3)),
            Column::new(words::RUNQ_MAX, |row| {
                Cell::time(row.lengths().runq.longest())
            }),
        ],
        [
            Column::new(words::OFF_P50, |row| percentile(&row.lengths().off, 0)),
            Column::new(words::OFF_P90, |row| percentile(&row.lengths().off, 1)),
            Column::new(words::OFF_P99, |row| percentile(&row.lengths().off, 2)),
            Column::new(words::OFF_P99_9, |row| percentile(&row.lengths().off, 3)),
            Column::new(words::OFF_MAX, |row| {
                Cell::time(row.lengths().off.longest())
            }),
        ],
    ];
    lengths.into_iter().flatten()
}

/// The cell of a percentile, by its index in [`Distribution::PERCENTILES`].
fn percentile(lengths: &Distribution, place: usize) -> Cell {
    Cell::time(lengths.percentile(Distribution::PERCENTILES[place].0))
}

/// The tables of the report on a terminal, which would be too wide as one.
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

/// Sums by reason. `L` is what is kept of the lengths of runs and waits.
#[derive(Debug)]
pub struct ByReason<L = RowLengths> {
    /// The sums of each reason, at [`Reason::index`].
    reasons: Vec<OneReason<L>>,
    /// Number of waits whose reason is not recorded, which count as [`Reason::Unknown`].
    unrecorded: u64,
}

/// The counts for one reason.
#[derive(Clone, Debug, Default)]
pub struct OneReason<L = RowLengths> {
    pub tally: Tally,
    pub lengths: L,
}

/// The lengths of runs and waits of a trace's rows.
#[derive(Clone, Debug, Default)]
pub struct RowLengths {
    /// Lengths of the runs that ended.
    pub run: Distribution,
    /// Run-queue times of the waits.
    pub runq: Distribution,
    /// Off-CPU times of the waits.
    pub off: Distribution,
}

impl<L: Clone + Default> Default for ByReason<L> {
    fn default() -> Self {
        Self {
            reasons: vec![OneReason::default(); Reason::ALL.len()],
            unrecorded: 0,
        }
    }
}

impl<L> ByReason<L> {
    /// Returns the counts for a reason.
    pub fn of(&self, reason: Reason) -> &OneReason<L> {
        &self.reasons[reason.index()]
    }

    /// Returns the counts for a reason, to add to them.
    pub fn of_mut(&mut self, reason: Reason) -> &mut OneReason<L> {
        &mut self.reasons[reason.index()]
    }

    /// Returns the sums of all reasons.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        for one in &self.reasons {
            total.add(&one.tally);
        }
        total
    }

    /// Reasons for which a switch or a wait was counted, most switches first.
    fn counted(&self) -> Vec<(Reason, &OneReason<L>)> {
        let counted = Reason::ALL.iter().copied().zip(&self.reasons);
        let mut counted: Vec<_> = counted.filter(|(_, one)| !one.tally.is_empty()).collect();
        counted.sort_by_key(|(reason, one)| (u64::MAX - one.tally.switches, *reason));
        counted
    }

    /// Reasons for which there was a switch, most switches first. Unlike [`Self::counted`], this
    /// leaves out reasons of which there are only waits.
    pub fn ranked(&self) -> Vec<(Reason, Tally)> {
        let occurring = self.counted().into_iter();
        let occurring = occurring.filter(|(_, one)| one.tally.switches > 0);
        occurring
            .map(|(reason, one)| (reason, one.tally.clone()))
            .collect()
    }

    /// Makes a table of these columns, the most frequent reason first. `sums` are those of all
    /// reasons, for the line of totals.
    pub fn sheet_of<'a>(
        &'a self,
        columns: &[Column<ReasonRow<'a, L>>],
        sums: &'a OneReason<L>,
    ) -> Sheet {
        let row = |(reason, of)| ReasonRow {
            reason,
            of,
            all: sums.tally.switches,
        };
        let rows = self.counted().into_iter().map(row);
        // The line of totals shows the word `total` in place of its reason.
        let mut sheet = report_sheet("reason", columns, rows)
            .with_total(columns, &row((Reason::Unknown, sums)));
        sheet.notes = tally::notes(&sums.tally);
        sheet
    }
}

impl ByReason {
    /// Adds the parts of a row that `counted` names.
    pub fn add(&mut self, row: &Switch, counted: CountedParts) {
        if counted.switch {
            let one = self.of_mut(row.rule.reason);
            one.tally.add_switch(row);
            if let Some(ran) = row.ran {
                one.lengths.run.record(ran);
            }
        }
        if counted.wait
            && let Some(off) = row.wait.length()
        {
            self.unrecorded += u64::from(row.wait.reason.is_none());
            let one = self.of_mut(row.wait.reason.unwrap_or(Reason::Unknown));
            one.tally.add_wait(row);
            one.lengths.off.record(off);
            if let Some(runq) = row.wait.runq {
                one.lengths.runq.record(runq);
            }
        }
    }

    /// Adds a wait that was open at the end.
    pub fn add_open(&mut self, reason: Reason, open: &Open) {
        self.of_mut(reason).tally.add_open(open);
    }

    /// Makes the report, the most frequent reason first.
    pub fn sheet(&self) -> Sheet {
        let columns: Vec<_> = sums().chain(lengths()).collect();
        let sums = OneReason {
            tally: self.total(),
            lengths: RowLengths::default(),
        };
        let mut sheet = self.sheet_of(&columns, &sums);
        sheet.views = VIEWS.to_vec();
        if self.unrecorded > 0 {
            sheet.notes.push(format!(
                "{} without a reason, counted as unknown: the thread was new, or left before the recording began",
                text::counted(self.unrecorded, "wait")
            ));
        }
        sheet
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

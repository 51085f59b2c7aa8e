//! `report --by reason`: how many switches for each reason, and what they cost in time.
//!
//! The run of a row counts for the reason that ended it. Its wait counts for the reason of the
//! switch-out that began it. So `off` and `runq` beside a reason are the time that leaving for it
//! cost.

use swtch_core::{Certainty, Distribution, Open, Reason, Switch};
use swtch_output::sheet::{Cell, Sheet, SheetTable};
use swtch_output::text;

use super::empty_sheet;
use super::filter::CountedParts;
use super::tally::Tally;

const COLUMNS: [&str; 29] = [
    "reason",
    "category",
    "switches",
    "share_pct",
    "certain_pct",
    "voluntary",
    "involuntary",
    "ran_ns",
    "waits",
    "off_ns",
    "blocked_ns",
    "runq_ns",
    "open_waits",
    "open_ns",
    "run_p50_ns",
    "run_p90_ns",
    "run_p99_ns",
    "run_p99_9_ns",
    "run_max_ns",
    "runq_p50_ns",
    "runq_p90_ns",
    "runq_p99_ns",
    "runq_p99_9_ns",
    "runq_max_ns",
    "off_p50_ns",
    "off_p90_ns",
    "off_p99_ns",
    "off_p99_9_ns",
    "off_max_ns",
];

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
        let mut sheet = empty_sheet("reason", &COLUMNS);
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
        sheet.rows = shown
            .iter()
            .map(|(reason, one)| one.cells(**reason, total.switches))
            .collect();
        sheet.total = Some(total_cells(&total, self.certain()));
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

    fn cells(&self, reason: Reason, all: u64) -> Vec<Cell> {
        let mut cells = vec![
            Cell::text(reason.as_str()),
            Cell::text(reason.category().as_str()),
        ];
        cells.extend(sum_cells(&self.tally, self.certain, all));
        for lengths in [&self.run, &self.runq, &self.off] {
            let percentiles = Distribution::PERCENTILES.iter();
            cells.extend(percentiles.map(|(percent, _)| Cell::time(lengths.percentile(*percent))));
            cells.push(Cell::time(lengths.longest()));
        }
        cells
    }
}

/// Cells from `switches` to `open_ns`.
pub fn sum_cells(tally: &Tally, certain: u64, all: u64) -> [Cell; 12] {
    [
        Cell::Count(tally.switches),
        Cell::share(tally.switches, all),
        Cell::share(certain, tally.switches),
        Cell::Count(tally.voluntary),
        Cell::Count(tally.switches - tally.voluntary),
        Cell::Time(tally.ran),
        Cell::Count(tally.waits),
        Cell::Time(tally.off),
        tally.blocked_cell(),
        tally.runq_cell(),
        Cell::Count(tally.open_waits),
        Cell::Time(tally.open),
    ]
}

fn total_cells(total: &Tally, certain: u64) -> Vec<Cell> {
    let mut cells = vec![Cell::text("total"), Cell::Missing];
    cells.extend(sum_cells(total, certain, total.switches));
    cells.resize(COLUMNS.len(), Cell::Missing);
    cells
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
    fn every_row_has_a_cell_for_every_column() {
        let sheet = drawn().sheet();
        for row in sheet.rows.iter().chain(&sheet.total) {
            assert_eq!(row.len(), sheet.columns.len());
        }
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

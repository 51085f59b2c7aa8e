//! Lines of a bill: switches are counted by group and by what decides their price. They are priced
//! once, when all are counted.
//!
//! The direct cost is given as two shares:
//!
//! - of **wall time**: one CPU, for the length of the recording or of the part that `--since` and
//!   `--until` select.
//! - of **CPU time**: the runs that these switches ended. The runs of a CPU touch each other, so
//!   the time of a switch is part of a run, and not beside it.

use std::hash::Hash;

use rustc_hash::FxHashMap;
use swtch_core::Nanos;
use swtch_core::cost::{Account, Amount};
use swtch_output::column::Column;
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text;

use super::departure::Departure;
use super::filter::Selection;
use super::head::{TraceHead, lost_records};
use super::pricing::Prices;
use super::{report_sheet, words};

/// Switches of one group, and the runs that they ended.
#[derive(Clone, Debug, Default)]
pub struct BillLine {
    pub account: Account,
    ran: Nanos,
    unknown_runs: u64,
}

impl BillLine {
    fn add(&mut self, departure: &Departure) {
        self.account.add(departure.case, departure.indirect_high);
        match departure.ran {
            Some(ran) => self.ran += ran,
            None => self.unknown_runs += 1,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.account.merge(&other.account);
        self.ran += other.ran;
        self.unknown_runs += other.unknown_runs;
    }
}

/// A row of a bill: whatever names the group, and its line.
pub struct BillRow<G> {
    /// `None` in the line of sums.
    pub group: Option<G>,
    /// Time of the runs that its switches ended.
    ran: Nanos,
    amount: Amount,
    wall: Nanos,
}

impl<G> BillRow<G> {
    /// A cost; missing if no switch has a price.
    fn direct(&self, ns: f64) -> Cell {
        if self.is_known() {
            Cell::Time(Nanos::from_rounded(ns))
        } else {
            Cell::Missing
        }
    }

    /// The cost as a share of a time, likewise.
    fn share_of(&self, time: Nanos) -> Cell {
        let share = percent(self.amount.direct.point_ns, time).filter(|_| self.is_known());
        share.map_or(Cell::Missing, Cell::Percent)
    }

    fn is_known(&self) -> bool {
        self.amount.switches == 0 || self.amount.is_priced()
    }
}

/// Columns of a bill, behind those that name the group.
fn measures<G>() -> [Column<BillRow<G>>; 10] {
    [
        Column::in_total(words::SWITCHES, |row| Cell::Count(row.amount.switches)),
        Column::in_total(words::DIRECT, |row| row.direct(row.amount.direct.point_ns)),
        Column::in_total(words::DIRECT_LOW, |row| {
            row.direct(row.amount.direct.low_ns)
        }),
        Column::in_total(words::DIRECT_HIGH, |row| {
            row.direct(row.amount.direct.high_ns)
        }),
        Column::in_total(words::INDIRECT_HIGH, |row| {
            Cell::time(row.amount.indirect_high)
        }),
        Column::in_total(words::SHARE_OF_WALL, |row| row.share_of(row.wall)),
        Column::in_total(words::SHARE_OF_CPU, |row| row.share_of(row.ran)),
        Column::in_total(words::MEASURED, |row| {
            row.amount
                .measured_pct()
                .map_or(Cell::Missing, Cell::Percent)
        }),
        Column::in_total(words::RAN, |row| Cell::Time(row.ran)),
        Column::in_total(words::UNPRICED, |row| Cell::Count(row.amount.unpriced)),
    ]
}

/// `part_ns` as a percentage of `whole`; `None` if `whole` is zero.
#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
pub fn percent(part_ns: f64, whole: Nanos) -> Option<f64> {
    (whole > Nanos::ZERO).then(|| part_ns * 100.0 / whole.as_ns() as f64)
}

#[derive(Debug)]
pub struct Accounts<K> {
    places: FxHashMap<K, usize>,
    lines: Vec<(K, BillLine)>,
    /// The group found last, kept because rows come in bursts of one group.
    recent: Option<(K, usize)>,
}

impl<K> Default for Accounts<K> {
    fn default() -> Self {
        Self {
            places: FxHashMap::default(),
            lines: Vec::new(),
            recent: None,
        }
    }
}

impl<K: Copy + Ord + Hash> Accounts<K> {
    /// Adds a switch to a group.
    pub fn add(&mut self, key: K, departure: &Departure) {
        let place = self.place(key);
        self.lines[place].1.add(departure);
    }

    /// The line of a group.
    pub fn line(&self, key: K) -> Option<&BillLine> {
        let place = self.places.get(&key)?;
        Some(&self.lines[*place].1)
    }

    pub fn total(&self) -> BillLine {
        let mut total = BillLine::default();
        for (_, line) in &self.lines {
            total.merge(line);
        }
        total
    }

    /// The bill as a sheet, the most expensive group first. `labels` are the columns that name a group,
    /// and stand before the measures; `group` makes of a key what they read.
    pub fn sheet<G>(
        &self,
        name: &'static str,
        labels: Vec<Column<BillRow<G>>>,
        bill: &BillContext<'_>,
        group: impl Fn(K) -> G,
    ) -> Sheet {
        let billing = bill.prices.billing();
        let lines = self.lines.iter();
        let mut ranked: Vec<_> = lines
            .map(|(key, line)| (*key, line, billing.amount(&line.account)))
            .collect();
        ranked.sort_by(|a, b| {
            let by_cost = b.2.direct.point_ns.total_cmp(&a.2.direct.point_ns);
            let by_number = || b.2.switches.cmp(&a.2.switches);
            by_cost.then_with(by_number).then(a.0.cmp(&b.0))
        });
        let mut columns = labels;
        columns.extend(measures());
        let row = |group, line: &BillLine, amount| BillRow {
            group,
            ran: line.ran,
            amount,
            wall: bill.wall,
        };
        let rows = ranked.into_iter();
        let rows = rows.map(|(key, line, amount)| row(Some(group(key)), line, amount));
        let sheet = report_sheet(name, &columns, rows);
        let total = self.total();
        let amount = billing.amount(&total.account);
        let unpriced = amount.unpriced;
        let mut sheet = sheet.with_total(&columns, &row(None, &total, amount));
        sheet.not_in_tables = if unpriced > 0 {
            &["ran_ns", "earlier_names", "folded"]
        } else {
            &["ran_ns", "earlier_names", "folded", "unpriced"]
        };
        sheet.notes = bill.notes(&total);
        sheet
    }

    fn place(&mut self, key: K) -> usize {
        if let Some((_, place)) = self.recent.filter(|recent| recent.0 == key) {
            return place;
        }
        let next = self.lines.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.lines.push((key, BillLine::default()));
        }
        self.recent = Some((key, place));
        place
    }
}

/// The prices, length and losses that a bill needs besides the switches.
#[derive(Debug)]
pub struct BillContext<'a> {
    pub prices: &'a Prices<'a>,
    /// Length of the billed part of the recording; zero if it is not known.
    pub wall: Nanos,
    /// What was lost, in words. If there is anything, the bill is a lower bound.
    pub lost: Option<String>,
}

impl<'a> BillContext<'a> {
    /// For a trace whose rows have been read: before that, the length of an unfinished trace is
    /// unknown.
    pub fn new(prices: &'a Prices<'a>, head: &TraceHead, selection: &Selection) -> Self {
        Self {
            prices,
            wall: head.duration_of(selection),
            lost: (head.lost() > 0).then(|| lost_records(&head.meta, head.lost())),
        }
    }

    fn notes(&self, total: &BillLine) -> Vec<String> {
        let mut notes = self.prices.notes(&total.account);
        if let Some(lost) = &self.lost {
            notes.push(format!("{lost} lost: the bill is a lower bound"));
        }
        let amount = self.prices.billing().amount(&total.account);
        let is_known = total.unknown_runs == 0 && total.ran > Nanos::ZERO;
        if is_known && Nanos::from_rounded(amount.direct.low_ns) > total.ran {
            notes.push(
                "even the low end is more than the runs took in which these switches happened: the \
                 prices do not hold for this trace"
                    .to_owned(),
            );
        }
        if self.wall == Nanos::ZERO {
            notes
                .push("the length of the recording is not known: no share of wall time".to_owned());
        }
        if total.unknown_runs > 0 {
            notes.push(format!(
                "{} with unknown start: left out of the shares of CPU time",
                text::counted(total.unknown_runs, "run")
            ));
        }
        notes
    }
}

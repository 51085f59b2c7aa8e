//! What most reports count of a group of rows: switches, and what their runs and waits lasted.

use swtch_core::{EvidenceBits, Nanos, Open, Reason, Switch};
use swtch_output::column::Column;
use swtch_output::sheet::Cell;

use super::words;

/// Counts and sums of one group.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub switches: u64,
    /// Of these, switch-outs that the kernel counts as voluntary (`nvcsw`).
    pub voluntary: u64,
    /// Switch-outs by reason, at [`Reason::index`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Time on a CPU, of runs whose length is known.
    pub ran: Nanos,
    /// Waits that have ended in a run.
    pub waits: u64,
    /// Sum of their lengths; for a new task, the time until its first run.
    pub off: Nanos,
    /// Blocked time of these waits, of those that could be split.
    pub blocked: Nanos,
    /// Run-queue time of these waits, of those that could be split.
    pub runq: Nanos,
    /// Of [`Self::waits`], those whose wakeup was not seen, so that their time cannot be split.
    pub unsplit: u64,
    /// Waits that were open when the trace ended.
    pub open_waits: u64,
    /// Time from their switch-out until the trace ended.
    pub open: Nanos,
}

/// A row of a table that shows what was counted of a group.
pub trait OfTally {
    fn tally(&self) -> &Tally;

    /// Number of switches of which a share is one: mostly those of all rows.
    fn all(&self) -> u64;
}

/// The columns that say how many switches there were.
pub fn counts<R: OfTally>() -> [Column<R>; 2] {
    [
        Column::in_total(words::SWITCHES, |row| Cell::Count(row.tally().switches)),
        Column::in_total(words::SHARE, |row| {
            Cell::share(row.tally().switches, row.all())
        }),
    ]
}

/// The columns that say how many of them were voluntary.
pub fn kinds<R: OfTally>() -> [Column<R>; 2] {
    [
        Column::in_total(words::VOLUNTARY, |row| Cell::Count(row.tally().voluntary)),
        Column::in_total(words::INVOLUNTARY, |row| {
            Cell::Count(row.tally().involuntary())
        }),
    ]
}

/// The columns that say how long runs and waits took.
pub fn times<R: OfTally>() -> [Column<R>; 7] {
    [
        Column::in_total(words::RAN, |row| Cell::Time(row.tally().ran)),
        Column::in_total(words::WAITS, |row| Cell::Count(row.tally().waits)),
        Column::in_total(words::OFF, |row| Cell::Time(row.tally().off)),
        Column::in_total(words::BLOCKED, |row| row.tally().blocked_cell()),
        Column::in_total(words::RUNQ, |row| row.tally().runq_cell()),
        Column::in_total(words::OPEN_WAITS, |row| Cell::Count(row.tally().open_waits)),
        Column::in_total(words::OPEN, |row| Cell::Time(row.tally().open)),
    ]
}

/// The columns that say for which reason most of them were.
pub fn main_reason<R: OfTally>() -> [Column<R>; 2] {
    [
        Column::in_total(words::MAIN_REASON, |row| {
            let main = row.tally().main_reason();
            main.map_or(Cell::Missing, |main| Cell::text(main.0.as_str()))
        }),
        Column::in_total(words::MAIN_REASON_PCT, |row| {
            let main = row.tally().main_reason();
            main.map_or(Cell::Missing, |main| {
                Cell::share(main.1, row.tally().switches)
            })
        }),
    ]
}

/// All that most tables show of a group, behind its name.
pub fn measures<R: OfTally>() -> impl Iterator<Item = Column<R>> {
    let counts = counts().into_iter().chain(kinds());
    counts.chain(main_reason()).chain(times())
}

impl Tally {
    /// Adds a switch-out and the run that it ended.
    pub fn add_switch(&mut self, row: &Switch) {
        self.switches += 1;
        self.voluntary += u64::from(row.evidence.bits.has(EvidenceBits::VOLUNTARY));
        self.reasons[row.rule.reason.index()] += 1;
        self.ran += row.ran.unwrap_or(Nanos::ZERO);
    }

    /// Adds the wait before the row's run, if one is known.
    pub fn add_wait(&mut self, row: &Switch) {
        let Some(off) = row.wait.length() else {
            return;
        };
        self.waits += 1;
        self.off += off;
        match row.wait.runq {
            Some(runq) => {
                self.runq += runq;
                self.blocked += off.saturating_sub(runq);
            }
            None => self.unsplit += 1,
        }
    }

    /// Adds a wait that was open at the end.
    pub fn add_open(&mut self, open: &Open) {
        self.open_waits += 1;
        self.open += open.lasted;
    }

    /// Adds all of another group.
    pub fn add(&mut self, other: &Self) {
        self.switches += other.switches;
        self.voluntary += other.voluntary;
        for (sum, more) in self.reasons.iter_mut().zip(other.reasons) {
            *sum += more;
        }
        self.ran += other.ran;
        self.waits += other.waits;
        self.off += other.off;
        self.blocked += other.blocked;
        self.runq += other.runq;
        self.unsplit += other.unsplit;
        self.open_waits += other.open_waits;
        self.open += other.open;
    }

    /// Subtracts a group that is a part of this one.
    pub fn subtract(&mut self, part: &Self) {
        self.switches -= part.switches;
        self.voluntary -= part.voluntary;
        for (sum, less) in self.reasons.iter_mut().zip(part.reasons) {
            *sum -= less;
        }
        self.ran = self.ran.saturating_sub(part.ran);
        self.waits -= part.waits;
        self.off = self.off.saturating_sub(part.off);
        self.blocked = self.blocked.saturating_sub(part.blocked);
        self.runq = self.runq.saturating_sub(part.runq);
        self.unsplit -= part.unsplit;
        self.open_waits -= part.open_waits;
        self.open = self.open.saturating_sub(part.open);
    }

    pub const fn is_empty(&self) -> bool {
        self.switches == 0 && self.waits == 0 && self.open_waits == 0
    }

    /// The most frequent reason and how often; on a tie the first of the list.
    pub fn main_reason(&self) -> Option<(Reason, u64)> {
        let reasons = Reason::ALL.iter().copied().zip(self.reasons);
        let counted = reasons.filter(|(_, count)| *count > 0);
        counted.max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)))
    }

    /// Switch-outs that the kernel counts as involuntary (`nivcsw`).
    pub const fn involuntary(&self) -> u64 {
        self.switches - self.voluntary
    }

    /// The blocked time; missing if no wait could be split, because then 0 is not its value.
    pub fn blocked_cell(&self) -> Cell {
        self.of_split_waits(self.blocked)
    }

    /// The run-queue time, likewise.
    pub fn runq_cell(&self) -> Cell {
        self.of_split_waits(self.runq)
    }

    fn of_split_waits(&self, time: Nanos) -> Cell {
        match self.unsplit > 0 && self.unsplit == self.waits {
            true => Cell::Missing,
            false => Cell::Time(time),
        }
    }

    /// What a reader must know to read the sums correctly.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.unsplit > 0 {
            notes.push(format!(
                "{}: the wake-up was not recorded; their time is counted in off only, neither in blocked nor in runq",
                swtch_output::text::counted(self.unsplit, "wait")
            ));
        }
        if self.open_waits > 0 {
            notes.push(format!(
                "{} still open at the end of the trace ({} in all) are counted apart, as open",
                swtch_output::text::counted(self.open_waits, "wait"),
                self.open
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, row};

    #[test]
    fn parts_of_a_wait_sum_to_it() {
        let mut tally = Tally::default();
        tally.add_wait(&after(row(1, Reason::Futex), Reason::Pipe, 700, 300));
        assert_eq!(tally.off, Nanos::from_ns(1000));
        assert_eq!(tally.blocked + tally.runq, tally.off);
    }

    #[test]
    fn a_wait_without_a_wakeup_is_off_time_that_is_not_split() {
        let mut unseen = after(row(1, Reason::Futex), Reason::Pipe, 700, 300);
        unseen.wait.runq = None;
        let mut tally = Tally::default();
        tally.add_wait(&unseen);
        assert_eq!(
            (tally.off, tally.blocked),
            (Nanos::from_ns(1000), Nanos::ZERO)
        );
        assert_eq!(tally.notes().len(), 1);
    }

    #[test]
    fn the_main_reason_is_the_most_frequent() {
        let mut tally = Tally::default();
        for reason in [Reason::Pipe, Reason::Wakeup, Reason::Pipe] {
            tally.add_switch(&row(1, reason));
        }
        assert_eq!(tally.main_reason(), Some((Reason::Pipe, 2)));
        assert_eq!((tally.voluntary, tally.switches), (2, 3));
    }
}

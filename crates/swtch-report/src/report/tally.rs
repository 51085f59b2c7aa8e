//! The columns of a [`Tally`]: what most reports show of a group of switches.

use swtch_core::{Nanos, Tally};
use swtch_output::column::Column;
use swtch_output::sheet::Cell;

use super::words;

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

/// The column that says of how many the kernel itself gave the reason.
pub fn certain<R: OfTally>() -> Column<R> {
    Column::in_total(words::CERTAIN, |row: &R| {
        Cell::share(row.tally().certain, row.tally().switches)
    })
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
        Column::in_total(words::BLOCKED, |row| blocked_cell(row.tally())),
        Column::in_total(words::RUNQ, |row| runq_cell(row.tally())),
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

/// The blocked time; missing if no wait could be split, because then 0 is not its value.
pub fn blocked_cell(tally: &Tally) -> Cell {
    of_split_waits(tally, tally.blocked)
}

/// The run-queue time, likewise.
pub fn runq_cell(tally: &Tally) -> Cell {
    of_split_waits(tally, tally.runq)
}

const fn of_split_waits(tally: &Tally, time: Nanos) -> Cell {
    if tally.is_unsplit() {
        Cell::Missing
    } else {
        Cell::Time(time)
    }
}

/// Says what a reader must know to read the sums correctly.
pub fn notes(tally: &Tally) -> Vec<String> {
    let mut notes = Vec::new();
    if tally.unsplit > 0 {
        notes.push(format!(
            "{}: the wake-up was not recorded; their time is counted in off only, neither in blocked nor in runq",
            swtch_output::text::counted(tally.unsplit, "wait")
        ));
    }
    if tally.open_waits > 0 {
        notes.push(format!(
            "{} still open at the end of the trace ({} in all) are counted apart, as open",
            swtch_output::text::counted(tally.open_waits, "wait"),
            tally.open
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, row};
    use swtch_core::Reason;

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
        assert_eq!(notes(&tally).len(), 1);
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

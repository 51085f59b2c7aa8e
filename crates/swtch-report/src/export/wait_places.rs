//! The time that threads did not run, by the place where they waited: what formats of stacks hold.

use anyhow::Result;
use swtch_core::places::PlaceSums;
use swtch_core::{CgroupId, Level, Nanos};

use super::life::name_of_wait;
use super::rows::ExportRows;
use crate::report::{Stacks, seen_at};

/// Waits that have this in common: the index of the thread, why it did not run, and its cgroup.
pub type WaitGroup = (usize, &'static str, CgroupId);

/// Of each group, the time by place: off-CPU, and the blocked and the run-queue time in it.
pub type WaitPlaces = PlaceSums<WaitGroup, Stacks, 3>;

/// Sums the waits that `rows` has.
///
/// # Errors
/// When the trace cannot be read.
pub fn sum(rows: &mut ExportRows<'_>) -> Result<WaitPlaces> {
    let mut places = WaitPlaces::default();
    let names = rows.names();
    rows.scan(&mut |row, taken| {
        if let (Level::Os, true, Some(length)) = (row.level, taken.wait, row.wait.length()) {
            let group = (names.index(row.task), name_of_wait(row), row.cgroup);
            let blocked = row.wait.blocked().unwrap_or(Nanos::ZERO);
            let runq = row.wait.runq.unwrap_or(Nanos::ZERO);
            places.add(group, [length, blocked, runq], seen_at(row, length));
        }
        Ok(())
    })?;
    Ok(places)
}

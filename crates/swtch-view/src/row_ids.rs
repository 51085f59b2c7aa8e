//! Ids by which the page knows rows. They stay the same while a trace grows.
//!
//! Rows of one task are adjacent in the table, so a new row moves all rows of the tasks behind it. But
//! what the page has drawn, selected or linked must still mean the same row:
//!
//! ```text
//!  read first     A A A │ B B               ids 0 1 2 │ 3 4
//!  read again     A A A A │ B B B │ C       ids 0 1 2 5 │ 3 4 6 │ 7
//! ```
//!
//! If a row comes late, before others of its task, the rows behind it get new ids. Their old
//! ids then mean nothing, and never another row.

use super::timeline::{LevelRows, NO_ROW};

/// Ids of the rows of one level.
#[derive(Debug, Default)]
pub struct RowIds {
    /// The id of each row. If this is empty, the id of a row is its index.
    ids: Vec<u32>,
    /// The row of each id, or [`NO_ROW`].
    rows: Vec<u32>,
}

impl RowIds {
    /// Ids for a trace that was read `before` and has grown since. Old rows keep their ids.
    pub fn after_growth(&self, before: &LevelRows, now: &LevelRows) -> Self {
        let mut next = match self.rows.is_empty() {
            true => before.rows().len(),
            false => self.rows.len(),
        };
        let mut ids = vec![NO_ROW; now.rows().len()];
        for track in now.tracks() {
            let old_track = before.track(track.task);
            for (index, row) in track.rows().enumerate() {
                let old_row = old_track
                    .filter(|old| index < old.len)
                    .map(|old| old.first + index)
                    .filter(|old| before.rows().ended_ns(*old) == now.rows().ended_ns(row));
                ids[row] = match old_row {
                    Some(old) => self.id(old),
                    None => {
                        next += 1;
                        narrow(next - 1)
                    }
                };
            }
        }
        let mut rows = vec![NO_ROW; next];
        // Rows without an id belong to no track: they were counted in the first pass and not read
        // in the second, because the recorder wrote between the two.
        let numbered = ids.iter().enumerate().filter(|(_, id)| **id != NO_ROW);
        for (row, id) in numbered {
            rows[widen(*id)] = narrow(row);
        }
        Self { ids, rows }
    }

    /// The id of a row.
    pub fn id(&self, row: usize) -> u32 {
        self.ids.get(row).copied().unwrap_or_else(|| narrow(row))
    }

    /// The row with an id. As long as ids are indexes, it may lie behind the last row.
    pub fn row(&self, id: u32) -> Option<usize> {
        match self.rows.is_empty() {
            true => Some(widen(id)),
            false => {
                let row = self.rows.get(widen(id)).copied();
                row.filter(|row| *row != NO_ROW).map(widen)
            }
        }
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("rows are counted with 32 bits")
}

fn widen(number: u32) -> usize {
    usize::try_from(number).expect("at least 32-bit addresses")
}

#[cfg(test)]
mod tests {
    use crate::Loaded;
    use swtch_core::{Level, Reason, Switch, Timestamp};
    use swtch_fixtures::{meta, row};
    use swtch_store::{RecordingState, Writer};

    /// The task of a row, and when the row ended.
    fn row_of(loaded: &Loaded, id: u32) -> (u32, u64) {
        let os = &loaded.levels.os;
        let row = loaded.row(Level::Os, id).unwrap();
        let task = os.track_of(row).unwrap().task;
        (task.get(), os.rows().ended_ns(row))
    }

    /// A page that is opened during a recording keeps showing what a person has selected.
    #[test]
    fn rows_keep_their_ids_while_a_trace_grows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let mut meta = meta();
        meta.state = RecordingState::Recording;
        let mut writer = Writer::create(&path, &meta).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut readings: Vec<Loaded> = Vec::new();
        let mut known = Vec::new();
        for generation in 0..5_u64 {
            for number in 0..40 {
                let ts = meta.start_ns + (generation * 40 + number + 1) * 1000;
                // New tasks appear over time.
                let task = random.u32(1..=2 + u32::try_from(generation).unwrap());
                writer
                    .push_switch(&Switch {
                        ts: Timestamp::from_ns(ts),
                        ..row(task, Reason::Futex)
                    })
                    .unwrap();
            }
            writer.flush().unwrap();
            let now = match readings.last() {
                Some(last) => last.read_again(&path).unwrap(),
                None => Loaded::read(&path, 1).unwrap(),
            };
            for (id, meant) in &known {
                assert_eq!(row_of(&now, *id), *meant, "{id} in {generation}");
            }
            let rows = 0..now.levels.os.rows().len();
            known = rows
                .map(|row| now.id(Level::Os, row))
                .map(|id| (id, row_of(&now, id)))
                .collect();
            known.sort_unstable();
            known.dedup_by_key(|(id, _)| *id);
            assert_eq!(known.len(), now.levels.os.rows().len(), "each has its own");
            assert_eq!(now.row(Level::Os, 40 * 5), None);
            readings.push(now);
        }
        meta.state = RecordingState::Finished;
        writer.finish(&meta, &mut |_, _| ()).unwrap();
        let finished = readings.last().unwrap().read_again(&path).unwrap();
        for (id, meant) in &known {
            assert_eq!(row_of(&finished, *id), *meant, "{id}");
        }
    }
}

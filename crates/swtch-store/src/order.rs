//! Puts the batches of a stream in order of time.
//!
//! A recorder writes rows in order, except for some that came late from another CPU. So a stream is
//! nearly sorted, and each batch may hold a few rows that belong before the end of the one before.
//! The *floor* of a batch is the earliest moment in it and in all later ones: rows up to the next
//! batch's floor can be passed on, the rest is held back and merged with that batch.
//!
//! ```text
//! batch 1   10 20 30 40 60      goes on: 10 20 30 40   held: 60
//! batch 2   50 70 80            goes on: 50 60 70 80
//!           └ floor 50
//! ```
//!
//! A batch that is in order and ends before the next floor is passed on unchanged. Memory holds
//! only the rows that are out of order, at worst the whole stream.

use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{RecordBatch, UInt64Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;

use crate::error::Error;

/// The column by which rows are ordered.
pub(crate) const TIME: &str = "ts_ns";

/// The facts about a stream that must be known before its rows can be put in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeOrder {
    /// The floor of each batch, in ns.
    floors: Vec<u64>,
    /// Number of rows in the stream.
    pub(crate) rows: u64,
}

impl TimeOrder {
    /// Computes the floors from all batches of a stream.
    pub(crate) fn of(
        path: &Path,
        batches: impl Iterator<Item = Result<RecordBatch, Error>>,
    ) -> Result<Self, Error> {
        let mut order = Self::default();
        for batch in batches {
            let batch = batch?;
            let earliest = moments(path, &batch)?
                .iter()
                .map(|ts| ts.cast_unsigned())
                .min();
            order.floors.push(earliest.unwrap_or(u64::MAX));
            order.rows += u64::try_from(batch.num_rows()).expect("a length fits 64 bits");
        }
        let mut floor = u64::MAX;
        for earliest in order.floors.iter_mut().rev() {
            floor = floor.min(*earliest);
            *earliest = floor;
        }
        Ok(order)
    }

    /// The batches of the same stream, in order of time. Rows of one moment keep their order.
    pub(crate) fn apply<I>(&self, path: &Path, batches: I) -> InOrder<'_, I> {
        InOrder {
            path: path.to_owned(),
            batches,
            floors: self.floors.get(1..).unwrap_or_default(),
            held: None,
        }
    }
}

fn moments<'a>(path: &Path, batch: &'a RecordBatch) -> Result<&'a [i64], Error> {
    let column = batch.column_by_name(TIME);
    let times = column.and_then(|array| array.as_primitive_opt::<Int64Type>());
    let times = times.ok_or_else(|| Error::decode(path, "a batch has no ts_ns"))?;
    Ok(times.values())
}

/// Iterator over batches in order of time.
#[derive(Debug)]
pub(crate) struct InOrder<'a, I> {
    path: PathBuf,
    batches: I,
    /// Floors of the batches after the next one.
    floors: &'a [u64],
    held: Option<RecordBatch>,
}

impl<I: Iterator<Item = Result<RecordBatch, Error>>> Iterator for InOrder<'_, I> {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let ready = match self.batches.next()? {
                Ok(batch) => self.merge(batch),
                Err(err) => Err(err),
            };
            match ready {
                Ok(ready) if ready.num_rows() == 0 => {}
                ready => return Some(ready),
            }
        }
    }
}

impl<I> InOrder<'_, I> {
    /// Merges a batch with the rows held back, and returns the rows that can be passed on.
    fn merge(&mut self, batch: RecordBatch) -> Result<RecordBatch, Error> {
        let floor = self.next_floor();
        let batch = match self.held.take() {
            Some(held) => concat_batches(&batch.schema(), [&held, &batch])
                .map_err(|err| Error::decode(&self.path, err))?,
            None => batch,
        };
        let batch = self.sorted(batch)?;
        let times = moments(&self.path, &batch)?;
        let ready = times.partition_point(|ts| ts.cast_unsigned() <= floor);
        let later = batch.num_rows() - ready;
        if later > 0 {
            self.held = Some(batch.slice(ready, later));
        }
        Ok(batch.slice(0, ready))
    }

    fn next_floor(&mut self) -> u64 {
        match self.floors.split_first() {
            Some((floor, rest)) => {
                self.floors = rest;
                *floor
            }
            None => u64::MAX,
        }
    }

    fn sorted(&self, batch: RecordBatch) -> Result<RecordBatch, Error> {
        let times = moments(&self.path, &batch)?;
        if times.is_sorted_by_key(|ts| ts.cast_unsigned()) {
            return Ok(batch);
        }
        let mut places: Vec<(u64, u64)> =
            times.iter().map(|ts| ts.cast_unsigned()).zip(0..).collect();
        // By moment, then by position in the batch: rows of one moment keep their order.
        places.sort_unstable();
        let places: UInt64Array = places.into_iter().map(|row| row.1).collect();
        take_record_batch(&batch, &places).map_err(|err| Error::decode(&self.path, err))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array};

    use super::*;

    fn stream(batches: &[&[i64]]) -> Vec<RecordBatch> {
        let batch = |times: &&[i64]| {
            let times: ArrayRef = Arc::new(Int64Array::from(times.to_vec()));
            RecordBatch::try_from_iter([(TIME, times)]).unwrap()
        };
        batches.iter().map(batch).collect()
    }

    fn in_order(batches: &[&[i64]]) -> Vec<Vec<i64>> {
        let path = Path::new("switch.arrows");
        let batches = stream(batches);
        let order = TimeOrder::of(path, batches.iter().cloned().map(Ok)).unwrap();
        order
            .apply(path, batches.into_iter().map(Ok))
            .map(|batch| moments(path, &batch.unwrap()).unwrap().to_vec())
            .collect()
    }

    #[test]
    fn batches_in_order_pass_as_they_are() {
        assert_eq!(
            in_order(&[&[1, 2], &[2, 3], &[4]]),
            [vec![1, 2], vec![2, 3], vec![4]]
        );
    }

    #[test]
    fn a_late_row_goes_to_its_place() {
        let sorted = in_order(&[&[10, 20, 30, 40, 60], &[50, 70, 80]]);
        assert_eq!(sorted, [vec![10, 20, 30, 40], vec![50, 60, 70, 80]]);
    }

    /// The late row may belong several batches earlier.
    #[test]
    fn a_row_that_is_late_by_several_batches_goes_to_its_place() {
        let sorted = in_order(&[&[10, 30, 20], &[40, 50], &[], &[60, 5]]);
        assert_eq!(sorted.concat(), [5, 10, 20, 30, 40, 50, 60]);
    }
}

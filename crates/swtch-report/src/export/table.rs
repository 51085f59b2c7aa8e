//! One row per switch-out, with names in place of numbers, as CSV or as a Parquet file: the
//! `switch` table of a trace, joined with `task` and `cgroup`.
//!
//! [`COLUMNS`] is the only list of columns; `docs/EXPORTS.md` shows it, and a test compares the
//! two. The rows are those whose switch-out a report with the same filter counts, and those of
//! user-mode schedulers, which the column `level` tells apart.

mod columns;

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use swtch_output::csv::CsvWriter;
use swtch_store::{PlainColumn, PlainTable, PlainWriter};

use super::rows::ExportRows;
use super::sink::Sink;
pub use columns::COLUMNS;

use columns::{CellValue, Known};

/// Rows that are gathered for one part of a Parquet file.
const ROWS_A_PART: usize = 1 << 16;

/// Writes CSV (RFC 4180), with a header.
///
/// # Errors
/// When the trace cannot be read or `out` not be written.
pub fn write_csv(rows: &mut ExportRows<'_>, out: &mut dyn Write) -> Result<()> {
    let known = Known::new(rows)?;
    let header: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
    let mut csv = CsvWriter::new(out);
    csv.record(&header)?;
    rows.scan(&mut |row, taken| {
        if !taken.switch {
            return Ok(());
        }
        for column in COLUMNS {
            match (column.value)(row, &known) {
                CellValue::Text(Some(text)) => csv.text(&text)?,
                CellValue::Count(Some(count)) => csv.plain(count)?,
                CellValue::Text(None) | CellValue::Count(None) => csv.empty()?,
            }
        }
        Ok(csv.end_record()?)
    })
}

/// Writes a Parquet file, with the meaning of each column in its footer. Names are not escaped: a
/// table is data, and the program that shows it escapes.
///
/// # Errors
/// When the trace cannot be read or `sink` not be written.
pub fn write_parquet(rows: &mut ExportRows<'_>, sink: Sink, path: &Path) -> Result<Sink> {
    let known = Known::new(rows)?;
    let mut part = RowGroup::new(&known);
    let meanings = COLUMNS.iter();
    let meanings =
        meanings.map(|column| (format!("swtch.{}", column.name), column.help.to_owned()));
    let empty = PlainTable {
        metadata: meanings.collect(),
        ..part.take()
    };
    let mut writer = PlainWriter::new(sink, path, &empty)?;
    rows.scan(&mut |row, taken| {
        if taken.switch {
            part.columns
                .iter_mut()
                .zip(COLUMNS)
                .for_each(|(values, column)| push(values, (column.value)(row, &known)));
            part.rows += 1;
        }
        if part.rows == ROWS_A_PART {
            writer.write(&part.take())?;
        }
        Ok(())
    })?;
    writer.write(&part.take())?;
    Ok(writer.finish()?)
}

/// Rows gathered for one part of a Parquet file.
struct RowGroup {
    columns: Vec<PlainColumn>,
    blank: Vec<PlainColumn>,
    rows: usize,
}

impl RowGroup {
    /// An empty part. The kind of each column is taken from an example value.
    fn new(known: &Known) -> Self {
        let example = known.example();
        let blank = COLUMNS
            .iter()
            .map(|column| match (column.value)(&example, known) {
                CellValue::Text(_) => PlainColumn::Text(Vec::new()),
                CellValue::Count(_) => PlainColumn::Count(Vec::new()),
            });
        let blank: Vec<_> = blank.collect();
        Self {
            columns: blank.clone(),
            blank,
            rows: 0,
        }
    }

    fn take(&mut self) -> PlainTable {
        self.rows = 0;
        let columns = std::mem::replace(&mut self.columns, self.blank.clone());
        PlainTable {
            columns: COLUMNS
                .iter()
                .map(|column| column.name)
                .zip(columns)
                .collect(),
            metadata: Vec::new(),
        }
    }
}

fn push(values: &mut PlainColumn, value: CellValue) {
    match (values, value) {
        (PlainColumn::Text(values), CellValue::Text(value)) => values.push(value),
        (PlainColumn::Count(values), CellValue::Count(value)) => values.push(value),
        _ => unreachable!("a column has values of one kind"),
    }
}

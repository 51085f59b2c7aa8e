//! A small table apart from any trace: named columns of plain values, as one Parquet file.
//!
//! It is for results that people query beside traces, such as a list of prices. Nothing here knows
//! what the columns mean. Facts that hold for all rows are stored as keys and values in the file's
//! footer (`parquet_kv_metadata` in `DuckDB`, `schema.metadata` in pyarrow).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;

use crate::error::Error;
use crate::parquet_table::{properties, write_error};

/// The values of a column, one per row; `None` is null.
#[derive(Clone, Debug, PartialEq)]
pub enum PlainColumn {
    /// Text in UTF-8 of any length.
    Text(Vec<Option<String>>),
    /// Numbers with a fraction (`f64`), Arrow `Float64`.
    Number(Vec<Option<f64>>),
    /// Whole numbers with a sign, Arrow `Int64`.
    Count(Vec<Option<i64>>),
    /// Yes or no, Arrow `Boolean`.
    Flag(Vec<Option<bool>>),
}

impl PlainColumn {
    /// Number of rows in the column.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Number(values) => values.len(),
            Self::Count(values) => values.len(),
            Self::Flag(values) => values.len(),
        }
    }

    /// Returns true if the column has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn arrow_type(&self) -> DataType {
        match self {
            Self::Text(_) => DataType::Utf8,
            Self::Number(_) => DataType::Float64,
            Self::Count(_) => DataType::Int64,
            Self::Flag(_) => DataType::Boolean,
        }
    }

    fn to_arrow(&self) -> ArrayRef {
        match self {
            Self::Text(values) => Arc::new(values.iter().collect::<StringArray>()),
            Self::Number(values) => Arc::new(values.iter().copied().collect::<Float64Array>()),
            Self::Count(values) => Arc::new(values.iter().copied().collect::<Int64Array>()),
            Self::Flag(values) => Arc::new(values.iter().copied().collect::<BooleanArray>()),
        }
    }
}

/// A table of plain columns, all of one length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlainTable {
    /// Names and values of the columns, from left to right. All must have the same number of rows.
    pub columns: Vec<(&'static str, PlainColumn)>,
    /// Keys and values that hold for all rows.
    pub metadata: Vec<(String, String)>,
}

impl PlainTable {
    /// Number of rows in the table.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// Writes the table as a Parquet file into `out`, and returns `out`. Errors name `path`.
    ///
    /// # Errors
    /// [`Error::Write`] when `out` cannot be written, [`Error::Encode`] when the columns differ in
    /// length.
    pub fn write_parquet<W: Write + Send>(&self, out: W, path: &Path) -> Result<W, Error> {
        let mut writer = PlainWriter::new(out, path, self)?;
        writer.write(self)?;
        writer.finish()
    }

    fn to_schema(&self) -> SchemaRef {
        let columns = self.columns.iter();
        let fields = columns.map(|(name, column)| Field::new(*name, column.arrow_type(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn to_batch(&self, path: &Path) -> Result<RecordBatch, Error> {
        let arrays = self.columns.iter().map(|(_, column)| column.to_arrow());
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows()));
        RecordBatch::try_new_with_options(self.to_schema(), arrays.collect(), &options)
            .map_err(|err| Error::encode(path, err))
    }
}

/// Writes a table part by part, for one that is larger than memory.
#[derive(Debug)]
pub struct PlainWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
    path: PathBuf,
}

impl<W: Write + Send> PlainWriter<W> {
    /// Begins a Parquet file with the columns and the metadata of `first`, whose rows are not
    /// written. Errors name `path`.
    ///
    /// # Errors
    /// [`Error::Write`] when `out` cannot be written.
    pub fn new(out: W, path: &Path, first: &PlainTable) -> Result<Self, Error> {
        let schema = first.to_schema();
        let properties = properties(&schema);
        let writer = ArrowWriter::try_new(out, schema, Some(properties));
        let mut writer = writer.map_err(|err| write_error(path, err))?;
        for (key, value) in &first.metadata {
            writer.append_key_value_metadata(KeyValue::new(key.clone(), value.clone()));
        }
        Ok(Self {
            writer,
            path: path.to_owned(),
        })
    }

    /// Adds rows. The columns must be those with which the file was begun.
    ///
    /// # Errors
    /// As [`PlainTable::write_parquet`].
    pub fn write(&mut self, part: &PlainTable) -> Result<(), Error> {
        let batch = part.to_batch(&self.path)?;
        let written = self.writer.write(&batch);
        written.map_err(|err| write_error(&self.path, err))
    }

    /// Writes the footer, without which the file cannot be read.
    ///
    /// # Errors
    /// [`Error::Write`] when `out` cannot be written.
    pub fn finish(self) -> Result<W, Error> {
        let finished = self.writer.into_inner();
        finished.map_err(|err| write_error(&self.path, err))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use arrow_array::cast::AsArray;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    fn table() -> PlainTable {
        PlainTable {
            columns: vec![
                (
                    "kind",
                    PlainColumn::Text(vec![Some("pipe".into()), Some("yield".into())]),
                ),
                ("net_ns", PlainColumn::Number(vec![Some(812.5), None])),
                ("rounds", PlainColumn::Count(vec![Some(240), Some(-1)])),
                ("is_switch", PlainColumn::Flag(vec![Some(true), None])),
            ],
            metadata: vec![("origin.boot_id".into(), "8d9f".into())],
        }
    }

    #[test]
    fn values_nulls_and_metadata_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.parquet");
        table()
            .write_parquet(File::create(&path).unwrap(), &path)
            .unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        let pairs = reader.metadata().file_metadata().key_value_metadata();
        let expected = KeyValue::new("origin.boot_id".to_owned(), "8d9f".to_owned());
        assert!(pairs.unwrap().contains(&expected));
        let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
        let [batch] = batches.as_slice() else {
            panic!("one batch, not {}", batches.len());
        };
        assert_eq!(*batch, table().to_batch(&path).unwrap());
        assert_eq!(batch.column(0).as_string::<i32>().value(1), "yield");
    }

    #[test]
    fn parts_become_one_table() {
        let mut writer = PlainWriter::new(Vec::new(), Path::new("t"), &table()).unwrap();
        writer.write(&table()).unwrap();
        writer.write(&table()).unwrap();
        let bytes = bytes::Bytes::from(writer.finish().unwrap());
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 4);
    }

    #[test]
    fn a_table_without_rows_is_still_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("curves.parquet");
        let empty = PlainTable {
            columns: vec![("size", PlainColumn::Number(Vec::new()))],
            ..PlainTable::default()
        };
        empty
            .write_parquet(File::create(&path).unwrap(), &path)
            .unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
        assert_eq!(reader.schema().field(0).name(), "size");
    }

    #[test]
    fn columns_of_different_lengths_are_an_error() {
        let mut table = table();
        table.columns[1].1 = PlainColumn::Number(vec![None]);
        assert!(matches!(
            table.write_parquet(Vec::new(), Path::new("t.parquet")),
            Err(Error::Encode { .. })
        ));
    }
}

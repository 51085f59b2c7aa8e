//! A small table that is no trace: named columns of plain values, as one Parquet file.
//!
//! It is for results that people query beside traces, such as a list of prices. Nothing here knows
//! what the columns mean; what holds for all rows travels as key and value in the file's footer
//! (`parquet_kv_metadata` in `DuckDB`, `schema.metadata` in pyarrow).

use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;

use crate::draft::Draft;
use crate::error::Error;
use crate::parquet_table::{properties, write_error};

/// The values of a column, one a row; `None` is null.
#[derive(Clone, Debug, PartialEq)]
pub enum PlainColumn {
    /// Text.
    Text(Vec<Option<String>>),
    /// Numbers with a fraction.
    Number(Vec<Option<f64>>),
    /// Whole numbers.
    Count(Vec<Option<i64>>),
    /// Yes or no.
    Flag(Vec<Option<bool>>),
}

impl PlainColumn {
    /// How many rows it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Number(values) => values.len(),
            Self::Count(values) => values.len(),
            Self::Flag(values) => values.len(),
        }
    }

    /// Whether it has no row.
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

/// A table of plain columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlainTable {
    /// Names and values of the columns, from left to right. All must have as many rows.
    pub columns: Vec<(&'static str, PlainColumn)>,
    /// What holds for all rows.
    pub metadata: Vec<(String, String)>,
}

impl PlainTable {
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// Writes it as a Parquet file, in place of an older one. The file gets its name when it is whole.
    ///
    /// # Errors
    /// [`Error::Write`] when the file cannot be written, [`Error::Encode`] when the columns are not of
    /// one length.
    pub fn write_parquet(&self, path: &Path) -> Result<(), Error> {
        let batch = self.to_batch(path)?;
        let draft = Draft::create(path)?;
        let properties = properties(&batch.schema());
        let writer = ArrowWriter::try_new(draft, batch.schema(), Some(properties));
        let mut writer = writer.map_err(|err| write_error(path, err))?;
        writer.write(&batch).map_err(|err| write_error(path, err))?;
        for (key, value) in &self.metadata {
            writer.append_key_value_metadata(KeyValue::new(key.clone(), value.clone()));
        }
        let draft = writer.into_inner().map_err(|err| write_error(path, err))?;
        draft.publish()?;
        Ok(())
    }

    fn to_batch(&self, path: &Path) -> Result<RecordBatch, Error> {
        let fields: Vec<Field> = self
            .columns
            .iter()
            .map(|(name, column)| Field::new(*name, column.arrow_type(), true))
            .collect();
        let arrays = self.columns.iter().map(|(_, column)| column.to_arrow());
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows()));
        let schema = Arc::new(Schema::new(fields));
        RecordBatch::try_new_with_options(schema, arrays.collect(), &options)
            .map_err(|err| Error::encode(path, err))
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
        table().write_parquet(&path).unwrap();
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
    fn a_table_without_rows_is_still_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("curves.parquet");
        let empty = PlainTable {
            columns: vec![("size", PlainColumn::Number(Vec::new()))],
            ..PlainTable::default()
        };
        empty.write_parquet(&path).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
        assert_eq!(reader.schema().field(0).name(), "size");
    }

    #[test]
    fn columns_of_different_lengths_are_an_error_and_leave_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        let mut table = table();
        table.columns[1].1 = PlainColumn::Number(vec![None]);
        assert!(matches!(
            table.write_parquet(&path),
            Err(Error::Encode { .. })
        ));
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }
}

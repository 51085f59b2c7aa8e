//! A table of a finished trace: one Parquet file.
//!
//! Row groups are large, so that encodings work well. Each of them, and within it each page of the
//! column of moments, carries its first and last moment, so a span of time reads only what it
//! needs. The file gets its name when it is whole and on the disk.

use std::io;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, RowGroupMetaData, SortingColumn,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::{
    DeltaBinaryPackedEncoderOptions, EnabledStatistics, WriterProperties, WriterVersion,
};
use parquet::file::reader::Length;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnPath;
use swtch_core::Timestamp;

use crate::checked_file::CheckedFile;
use crate::checksums::{Checksums, Chunk};
use crate::contain::{ContainedIter, contained};
use crate::directory::Directory;
use crate::draft::Draft;
use crate::error::Error;
use crate::order::TIME;

/// Number of rows in a row group.
const ROW_GROUP_ROWS: usize = 1 << 20;

/// Number of rows decoded at a time.
const BATCH_ROWS: usize = 4096;

/// Number of rows in a page of a column. The pages of moments are smaller ([`TIME_PAGE_ROWS`]),
/// since they say which rows a span of time needs.
const PAGE_ROWS: usize = 100_000;

/// Number of rows in a page of the column of moments.
const TIME_PAGE_ROWS: usize = 20_000;

/// Level of zstd. Most of what it packs are indices into dictionaries, in which it finds
/// repetitions. A recording of pgbench is 1.8 % smaller at level 5 than at level 2, which takes 0.06 µs
/// a switch less to write; level 1 saves no more time and makes it another 1.5 % larger.
const ZSTD_LEVEL: i32 = 2;

/// Lengths of waits. Where a task waits for many others, few of them are alike, and a dictionary of
/// them takes more room than they do. So its dictionary has room for [`FEW_LENGTHS`] only, and what
/// comes after them is stored as differences. Runs are more alike.
const LENGTHS_OF_WAITS: [&str; 2] = ["off_ns", "runq_ns"];

/// Number of different lengths of waits that are kept in a dictionary.
const FEW_LENGTHS: usize = 2048;

/// Layout of differences: 32 of them share one width in bits (`DELTA_BINARY_PACKED` of
/// `Encodings.md` of Parquet), the fewest that it allows. Lengths that follow each other differ
/// much, so that fewer are wide because of one that is.
const DIFFERENCES_IN_A_BLOCK: usize = 128;
const WIDTHS_IN_A_BLOCK: usize = 4;

/// File name of a table in a finished trace.
pub(crate) fn parquet_name(table: &str) -> String {
    format!("{table}.parquet")
}

/// Writes a table from its batches; returns the checksums of its parts.
pub(crate) fn write_table(
    dir: &Directory,
    table: &str,
    schema: SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch, Error>>,
    mut on_rows: impl FnMut(usize),
) -> Result<Vec<Chunk>, Error> {
    let name = parquet_name(table);
    let path = dir.path().join(&name);
    let draft = Draft::create(dir, &name)?;
    let properties = properties(&schema);
    let writer = ArrowWriter::try_new(draft, schema, Some(properties));
    let mut writer = writer.map_err(|err| write_error(&path, err))?;
    for batch in batches {
        let batch = batch?;
        writer
            .write(&batch)
            .map_err(|err| write_error(&path, err))?;
        on_rows(batch.num_rows());
    }
    let draft = writer.into_inner().map_err(|err| write_error(&path, err))?;
    draft.publish()
}

/// The error of the system behind an encoder's error, if there is one.
pub(crate) fn write_error(path: &Path, error: ParquetError) -> Error {
    let ParquetError::External(source) = error else {
        return Error::encode(path, error);
    };
    match source.downcast::<io::Error>() {
        Ok(source) => Error::write(path, *source),
        Err(source) => Error::encode(path, source),
    }
}

/// Encodings, compression and statistics of a file's columns. Only moments have statistics: the least
/// and largest of a million words or lengths let no reader skip anything, and words take two comparisons
/// each for them.
pub(crate) fn properties(schema: &SchemaRef) -> WriterProperties {
    let level = ZstdLevel::try_new(ZSTD_LEVEL).expect("a level of zstd");
    let differences =
        DeltaBinaryPackedEncoderOptions::try_new(DIFFERENCES_IN_A_BLOCK, WIDTHS_IN_A_BLOCK)
            .expect("a layout that the format allows");
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("swtch ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_delta_binary_packed_encoder_options(differences)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::None);
    for (index, field) in (0..).zip(schema.fields()) {
        let path = ColumnPath::from(field.name().as_str());
        if field.name() == TIME {
            properties = properties
                .set_column_statistics_enabled(path.clone(), EnabledStatistics::Page)
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_data_page_row_count_limit(path.clone(), TIME_PAGE_ROWS)
                .set_sorting_columns(Some(vec![ascending(index)]));
        }
        if field.data_type().is_integer() {
            properties =
                properties.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
        }
        if LENGTHS_OF_WAITS.contains(&field.name().as_str()) {
            let bytes = FEW_LENGTHS * size_of::<i64>();
            properties = properties.set_column_dictionary_page_size_limit(path, bytes);
        }
    }
    properties.build()
}

fn ascending(column: i32) -> SortingColumn {
    SortingColumn {
        column_idx: column,
        descending: false,
        nulls_first: false,
    }
}

/// A table of a finished trace, open for reading.
#[derive(Debug)]
pub(crate) struct ParquetTable {
    file: CheckedFile,
    metadata: ArrowReaderMetadata,
}

impl ParquetTable {
    /// Opens the file of a table. Every byte of it must be listed in the checksums.
    pub(crate) fn open(dir: &Directory, table: &str, list: &Checksums) -> Result<Self, Error> {
        let file = CheckedFile::open(dir, &parquet_name(table), list)?;
        if file.unreadable_bytes() > 0 {
            let what = "its length is not that of the list in checksums.csv";
            return Err(Error::damaged(file.path(), what));
        }
        let metadata = contained(|| {
            ArrowReaderMetadata::load(
                &file,
                ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional),
            )
        });
        let metadata = metadata.map_err(|panic| file.explain(panic))?;
        let metadata = metadata.map_err(|err| file.explain(err))?;
        Ok(Self { file, metadata })
    }

    /// Number of rows in the table.
    pub(crate) fn rows(&self) -> u64 {
        let rows = self.metadata.metadata().file_metadata().num_rows();
        u64::try_from(rows).unwrap_or(0)
    }

    /// Size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.file.len()
    }

    /// The batches of the table, with only these `columns` (`None`: all), from the row groups and
    /// pages that overlap the span of time (`None`: all).
    pub(crate) fn batches<'a>(
        &'a self,
        columns: Option<&[&str]>,
        span: Option<Span>,
    ) -> impl Iterator<Item = Result<RecordBatch, Error>> + Send + use<'a> {
        let schema = self.metadata.parquet_schema();
        let mask = match columns {
            Some(columns) => ProjectionMask::columns(schema, columns.iter().copied()),
            None => ProjectionMask::all(),
        };
        let groups = self.metadata.metadata().row_groups().iter().enumerate();
        let groups = groups.filter(move |(_, group)| span.is_none_or(|span| reaches(group, span)));
        groups.flat_map(move |(index, _)| self.row_group(index, mask.clone(), span))
    }

    fn row_group(
        &self,
        index: usize,
        mask: ProjectionMask,
        span: Option<Span>,
    ) -> Box<dyn Iterator<Item = Result<RecordBatch, Error>> + Send> {
        let file = self.file.clone();
        match contained(|| self.reader_of_row_group(index, mask, span)) {
            Ok(Ok(reader)) => Box::new(ContainedIter::new(reader).map(move |batch| {
                let batch = batch.map_err(|panic| file.explain(panic))?;
                batch.map_err(|err| file.explain(err))
            })),
            Ok(Err(err)) => Box::new(std::iter::once(Err(file.explain(err)))),
            Err(panic) => Box::new(std::iter::once(Err(file.explain(panic)))),
        }
    }

    fn reader_of_row_group(
        &self,
        index: usize,
        mask: ProjectionMask,
        span: Option<Span>,
    ) -> Result<ParquetRecordBatchReader, ParquetError> {
        let metadata = self.metadata.clone();
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.file.clone(), metadata)
                .with_row_groups(vec![index])
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS);
        match span.and_then(|span| self.rows_of_pages(index, span)) {
            Some(rows) => builder.with_row_selection(rows).build(),
            None => builder.build(),
        }
    }

    /// Rows of the pages of a row group that may hold a row of the span. `None` where the file has
    /// no page index, so that all must be read.
    fn rows_of_pages(&self, group: usize, (since, until): Span) -> Option<RowSelection> {
        let metadata = self.metadata.metadata();
        let columns = metadata.row_group(group).columns();
        let time = columns
            .iter()
            .position(|column| column.column_path().string() == TIME)?;
        let index = metadata.page_index_for_row_group(group);
        let ColumnIndexMetaData::INT64(times) = index.column_index(time)? else {
            return None;
        };
        let (firsts, lasts) = (times.min_values(), times.max_values());
        // A moment beyond 2^63 comes from a broken clock; statistics compare it as negative.
        if firsts.iter().any(|first| *first < 0) {
            return None;
        }
        let all = usize::try_from(metadata.row_group(group).num_rows()).ok()?;
        let row = |page: usize| match index.offset_index(time)?.page_locations().get(page) {
            Some(location) => usize::try_from(location.first_row_index).ok(),
            None => Some(all),
        };
        let begin = lasts.partition_point(|last| last.cast_unsigned() < since.as_ns());
        let end = firsts.partition_point(|first| first.cast_unsigned() <= until.as_ns());
        let rows = row(begin)?..row(end.max(begin))?;
        Some(RowSelection::from_consecutive_ranges(
            std::iter::once(rows),
            all,
        ))
    }
}

/// From the first moment to the second, both included.
type Span = (Timestamp, Timestamp);

/// Returns true if a row group may hold a row of the span. Without statistics it may.
fn reaches(group: &RowGroupMetaData, (since, until): Span) -> bool {
    let time = |column: &&ColumnChunkMetaData| column.column_path().string() == TIME;
    let column = group.columns().iter().find(time);
    let Some(Statistics::Int64(times)) = column.and_then(|column| column.statistics()) else {
        return true;
    };
    match (times.min_opt(), times.max_opt()) {
        // A negative value is a moment beyond 2^63, from a broken clock; statistics misorder it.
        (Some(first), Some(last)) if *first >= 0 => {
            first.cast_unsigned() <= until.as_ns() && last.cast_unsigned() >= since.as_ns()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array};

    use super::*;

    const ROWS: u64 = 50_000;

    /// Bytes for each value of a column of these numbers.
    fn bytes_each(name: &str, numbers: impl Iterator<Item = u64>) -> f64 {
        let numbers = Int64Array::from_iter_values(numbers.map(u64::cast_signed));
        let column: ArrayRef = Arc::new(numbers);
        let batch = RecordBatch::try_from_iter([(name, column)]).unwrap();
        let properties = properties(&batch.schema());
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let metadata = writer.finish().unwrap();
        metadata.row_group(0).column(0).compressed_size() as f64 / ROWS as f64
    }

    /// Numbers below `end` that look like chance.
    fn scattered(end: u64) -> impl Iterator<Item = u64> {
        (0..ROWS).map(move |row| (row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % end)
    }

    /// Each of these lengths has 23 bits of chance, 2.9 bytes; a dictionary of them takes 5.
    #[test]
    fn waits_that_are_not_alike_need_no_dictionary() {
        for name in LENGTHS_OF_WAITS {
            let bytes = bytes_each(name, scattered(1 << 23));
            assert!(bytes < 3.3, "{name}: {bytes}");
        }
    }

    /// Each of these lengths has 10 bits of chance, 1.25 bytes.
    #[test]
    fn waits_of_few_lengths_are_stored_as_a_dictionary() {
        for name in LENGTHS_OF_WAITS {
            let bytes = bytes_each(name, scattered(1000).map(|length| 1_000_000 + 977 * length));
            assert!(bytes < 1.5, "{name}: {bytes}");
        }
    }
}

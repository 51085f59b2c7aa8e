//! Traces on disk: a directory `NAME.swtch/` that any Arrow tool can open.
//!
//! # The story of one trace
//!
//! While it is recorded, a trace is a file of records ([`RecordFile`]), as their source wrote them, and one Arrow
//! IPC stream for each table that does not come of them. Each [`Writer::flush`] appends whole blocks
//! and batches, and a line of `checksums.csv` for each, so that a kill at any moment loses only what
//! came after the last flush. On a clean end everything becomes Parquet: sorted, compressed. A
//! [`Trace`] reads it; it reads streams, too, and says which it found. An import has no records, and
//! streams of all tables.
//!
//! ```text
//!            record, push, flush                finish
//! Writer ─────────────────────▶ records.raw ───────────────▶ switch.parquet
//!                               stack.arrows …               stack.parquet …
//!                               meta.json                    meta.json
//!                               checksums.csv                checksums.csv
//!                                    └──────────▶ Trace ◀─────────┘
//! ```
//!
//! - [`schema`] is the one table of all columns; writer, reader and `docs/SCHEMA.md` follow it.
//! - Arrow IPC has no checksum of its own, so nothing is decoded before its bytes are checked: a
//!   flipped bit is an error or an announced end, never another number.
//! - `checksums.csv` decides which files a trace consists of. A trace is finished at the moment
//!   when one rename replaces that file.
//!
//! An [`EventWriter`] stands before a writer and makes the rows of events, for a recording and for
//! an import.
//!
//! A [`PlainTable`] is not a trace: it holds small results, as one Parquet file.
//!
//! What this crate does *not* do: judge (rules are in `swtch-core`), aggregate, or print.
#![forbid(unsafe_code)]

mod checked_file;
mod checksums;
mod column;
mod contain;
mod directory;
mod draft;
mod error;
mod event_writer;
mod final_table;
mod final_tables;
mod finish;
pub mod input;
mod look_events;
mod meta;
mod order;
mod packing;
mod parquet_table;
mod plain_table;
mod records;
mod rows;
mod scan;
pub mod schema;
mod schema_page;
mod segments;
mod stream_table;
mod trace;
mod user_events;
mod verdict;
mod writer;

pub use column::{ColumnType, Presence, TraceColumn};
pub use contain::{Panicked, contained};
pub use directory::{Directory, DirectoryState};
pub use error::Error;
pub use event_writer::EventWriter;
pub use look_events::{decode_looks, encode_look};
pub use meta::{
    ClockSample, Counts, DiskCounts, DiskFacts, FORMAT_VERSION, FiredSwitch, Hooks, HostLoad,
    Imported, KernelCounts, LastingGroup, LastingWaits, MemoryLimitFacts, Meta, Overhead,
    QuotaFacts, RecorderGuard, RecordingBackend, RecordingState, RingFacts, StackSettings,
    TraceHost, TreeCounts, UserCounts, WHOLE_SYSTEM,
};
pub use plain_table::{PlainColumn, PlainTable, PlainWriter};
pub use records::{RecordCounts, RecordFile, RecordStream, StreamKind};
pub use rows::{CgroupRow, CommandRow, SpanRow, WaitTypeRow, WaitingWorkersRow};
pub use scan::PieceReader;
pub use schema::{Columns, Table};
pub use schema_page::schema_markdown;
pub use segments::{FoundDump, Segments};
pub use trace::{Completeness, Trace};
pub use user_events::{UserEventDecoder, encode_user_event};
pub use writer::Writer;

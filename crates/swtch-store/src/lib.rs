//! Traces on disk: a directory `NAME.swtch/` that any Arrow tool can open.
//!
//! # The story of one trace
//!
//! While it is recorded, a trace is one Arrow IPC stream a table. Each [`Writer::flush`] appends
//! whole batches, and a line of `checksums.csv` for each, so that a kill at any moment costs what
//! came after the last flush and nothing else. On a clean end the streams become Parquet: sorted,
//! compressed, 8 to 18 bytes a switch. A [`Trace`] reads both and says which it found.
//!
//! ```text
//!            push, flush                      finish
//! Writer ───────────────▶ switch.arrows ───────────────▶ switch.parquet
//!                         task.arrows …                  task.parquet …
//!                         meta.json                      meta.json
//!                         checksums.csv                  checksums.csv
//!                              └──────────▶ Trace ◀───────────┘
//! ```
//!
//! - [`schema`] is the one table of all columns; writer, reader and `docs/SCHEMA.md` follow it.
//! - Arrow IPC has no checksum of its own, so nothing is decoded before its bytes are checked: a
//!   flipped bit is an error or an announced end, never another number.
//! - `checksums.csv` decides what a trace consists of. Replacing it by one rename is the moment at
//!   which a trace is finished.
//!
//! A [`PlainTable`] is no trace: small results, one Parquet file each.
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
mod finish;
pub mod input;
mod meta;
mod order;
mod parquet_table;
mod plain_table;
mod rows;
pub mod schema;
mod schema_page;
mod stream_table;
mod trace;
mod verdict;
mod writer;

pub use column::{Column, Kind, Presence};
pub use contain::{Panicked, contained};
pub use directory::{Directory, Whereabouts};
pub use error::Error;
pub use meta::{
    Clock, Counts, FORMAT_VERSION, Hooks, Host, Imported, KernelCounts, Meta, Overhead,
    RecorderGuard, Stacks, State, TreeCounts, UserCounts,
};
pub use plain_table::{PlainColumn, PlainTable, PlainWriter};
pub use rows::{CgroupRow, CommandRow, FrameRow, StackKind, StackRow, WaitTypeRow};
pub use schema::{Columns, Table};
pub use schema_page::schema_markdown;
pub use trace::{Completeness, Trace};
pub use writer::Writer;

//! From a trace to an answer.
//!
//! ```text
//! perf.data ─import─▶ NAME.swtch ─opening─▶ Trace ─┬▶ report  tables, JSON, CSV; bills
//!                                                  └▶ export  files for Perfetto, Firefox, …
//! ```
//!
//! - [`report`] answers questions about a trace; [`html`] is what pages that are sent share.
//! - [`export`] and [`import`] speak the formats of others; [`opening`] tells what a path leads to.
//! - [`replay`] makes rows of what a recording kept as records.
//! - [`prices`] finds the price list that a bill needs; [`price_file`] is such a list on disk.
//!
//! What it does not do: record, measure, or draw.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod export;
pub mod html;
pub mod import;
pub mod opening;
pub mod price_file;
pub mod prices;
pub mod replay;
pub mod report;
pub mod stamp;

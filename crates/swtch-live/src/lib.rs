//! Shows what switches do right now, while nothing is kept.
//!
//! - [`summary`]: `swtch record --summary`, counts that are told at the end.
//! - [`top`]: `swtch top`, a screen or a stream of frames.
//! - [`agent`]: `swtch agent`, the same counts for scrapers and collectors.
//! - [`fiber`]: `swtch fiber`, the user-mode schedulers of a process.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod agent;
mod counted_spans;
pub mod fiber;
pub mod summary;
pub mod top;

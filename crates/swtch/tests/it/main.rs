//! The program as a person meets it: started, watched from outside, judged by what it leaves.
//!
//! ```text
//! workload ─▶ swtch record ─▶ trace ─▶ judged here, against the construction, the kernel, the rules
//!             └─ killed, starved of disk, refused, lied to by names
//! ```
//!
//! - `truth`: every workload's switches have the reasons that follow from how it is built.
//! - `counts`: rows are as many as the kernel counted, in every scope.
//! - `endings`: exit codes, signals, kills, limits of time.
//! - `refusals`: what cannot be done is said, with the remedy.
//! - `damage`: full disks, torn files, flipped bytes.
//! - `output`: what is printed: formats, names from outside, closed pipes.
//! - `cost`: prices and bills: what is measured, kept, refused, and left behind.
//!
//! Tests named `root_…` record, so they need root and are ignored by default:
//!
//! ```text
//! sudo -E cargo test -p swtch -- --include-ignored
//! sudo -E cargo test -p swtch -- --include-ignored --nocapture truth     prints the table
//! ```
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cost;
mod counts;
mod damage;
mod endings;
mod machine;
mod output;
mod recording;
mod refusals;
mod truth;

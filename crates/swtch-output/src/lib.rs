//! How answers leave the program, whatever they say.
//!
//! - [`text`]: names of others made safe to show, numbers with their unit, columns, wrapped lines.
//! - [`format`](mod@format): table, JSON or CSV on stdout.
//! - [`message`](mod@message): progress, warnings and errors on stderr.
//! - [`destination`]: files that are written whole or not at all.
//! - [`caller`]: the user who called `sudo`, to whom the files belong.
//!
//! What it does not do: know what a switch, a trace or a price is.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod caller;
pub mod destination;
pub mod format;
pub mod message;
pub mod text;

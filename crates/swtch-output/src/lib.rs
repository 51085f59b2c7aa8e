//! Brings answers out of the program, whatever they say.
//!
//! - [`answer`]: what a verb has to say, written in the format that was asked for.
//! - [`column`](mod@column): a column, said once: key, meaning and cell.
//! - [`sheet`]: named columns and rows of cells, as a table, JSON or CSV.
//! - [`csv`]: the one writer of CSV.
//! - [`text`]: names of others made safe to show, numbers with their unit, columns, wrapped lines.
//! - [`format`](mod@format): the names of the three formats, and stdout.
//! - [`host`]: the machine, in the words of the first line.
//! - [`message`](mod@message): warnings and errors on stderr; [`progress`]: the line there that is
//!   written over.
//! - [`built`]: the version, and how much this program is optimised.
//! - [`exit_code`]: how a verb ended, as a number.
//! - [`destination`]: files that are written whole or not at all.
//! - [`caller`]: the user who called `sudo`, to whom the files belong.
//!
//! What it does not do: know what a switch or a trace is. Of `swtch-core` it takes lengths of time
//! and the machine of a price list.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod answer;
pub mod built;
pub mod caller;
pub mod column;
pub mod csv;
pub mod destination;
pub mod exit_code;
pub mod format;
pub mod host;
pub mod message;
pub mod progress;
pub mod sheet;
pub mod text;

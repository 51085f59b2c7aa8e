//! Made-up rows, traces and price lists for the tests of several crates. Nothing here was measured.
//!
//! - Rows and traces ([`row()`], [`seen`], [`handed_round`]) are short enough to see the time line
//!   in the test.
//! - [`MadeUpRun`] makes several runs of one program, which differ by chance.
//! - [`prices()`] is a list of round numbers; [`curves`] has the shapes that real lists have.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "it is called by tests only")]

pub mod curves;
mod prices;
mod runs;
mod trace;

pub use prices::{prices, prices_with_curve};
pub use runs::MadeUpRun;
pub use trace::{after, handed_round, meta, row, seen, woken_by};

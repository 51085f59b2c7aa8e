//! Hand-made rows for the tests of reports: those of `swtch_fixtures`, and what only reports need.

pub use swtch_fixtures::*;

use super::head::TraceHead;
use super::names::Names;

/// Two threads of one process (keys 1 and 2), and `hog`, a process of its own (key 3).
pub fn names() -> Names {
    Names::new(&[
        seen(1, 10, 10, "server"),
        seen(2, 10, 11, "worker"),
        seen(3, 30, 30, "hog"),
    ])
}

/// The head of a report on a trace with [`meta`].
pub fn head() -> TraceHead {
    TraceHead {
        path: "run.swtch".into(),
        meta: meta(),
        rows: 13,
        ..TraceHead::default()
    }
}

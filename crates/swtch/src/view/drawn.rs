//! A hand-made trace for tests, and what the command line prints for it.

use serde_json::Value;
use tempfile::TempDir;

use super::Loaded;
use crate::format::Format;
pub use crate::report::drawn::filters;
use crate::report::{By, Filter, Request, drawn, report};

/// The trace [`drawn::handed_round`], as the viewer loads it.
pub fn handed_round() -> (Loaded, TempDir) {
    let (trace, dir) = drawn::handed_round();
    (Loaded::read(trace.path(), 1).unwrap(), dir)
}

/// What `swtch report --format json` prints.
pub fn printed(loaded: &Loaded, by: By, filter: &Filter) -> Value {
    let request = Request {
        by,
        format: Format::Json,
        filter: filter.clone(),
        top: None,
    };
    let mut out = Vec::new();
    report(&loaded.trace, &request, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

//! A hand-made trace for tests, and what the command line prints for it.

use serde_json::Value;
use swtch_output::format::Format;
use swtch_report::report::{By, Filter, Moment, ReportRequest, report};
use tempfile::TempDir;

use super::Loaded;

/// The trace [`swtch_fixtures::handed_round`], as the viewer loads it.
pub fn handed_round() -> (Loaded, TempDir) {
    let (trace, dir) = swtch_fixtures::handed_round();
    (Loaded::read(trace.path(), 1).unwrap(), dir)
}

/// Returns what `swtch report --format json` prints.
pub fn printed(loaded: &Loaded, by: By, filter: &Filter) -> Value {
    let request = ReportRequest {
        by,
        format: Format::Json,
        filter: filter.clone(),
        top: None,
    };
    let mut out = Vec::new();
    report(&loaded.trace, &request, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// Filters that take all of [`handed_round`], and parts of it.
pub fn filters() -> Vec<Filter> {
    let spans = [("0", "1"), ("30us", "1"), ("0", "90us"), ("150us", "157us")];
    let moment = |words: &str| words.parse::<Moment>().ok();
    let of_span = spans.iter().map(|(since, until)| Filter {
        since: moment(since),
        until: moment(until),
        ..Filter::default()
    });
    let of_server = Filter {
        comms: vec!["server".to_owned()],
        ..Filter::default()
    };
    of_span.chain([of_server, Filter::default()]).collect()
}

//! Exports, read by the programs whose formats they are, and compared with `swtch report`.
//!
//! ```text
//! trace ─┬▶ swtch export ─▶ the peer's own reader ─▶ its sums ─┬▶ equal
//!        └▶ swtch report --format json ────────────────────────┘
//! ```
//!
//! `make test-peers` installs the readers and sets their paths in the environment; a test whose
//! reader is missing is skipped.

mod firefox;
mod flames;
mod otlp;
mod perfetto;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;

use crate::recording::{report, stderr};

/// The path of a reader. If there is none the test is skipped, and has to return.
fn reader(variable: &str) -> Option<OsString> {
    let place = std::env::var_os(variable);
    if place.is_none() {
        swtch_test::skipped(&format!(
            "{variable} is not set; make test-peers brings the reader"
        ));
    }
    place
}

/// The path of a script that queries a reader.
fn script(name: &str) -> String {
    format!("{}/tests/peers/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// These columns of `swtch report`, summed for each thread id.
fn report_by_thread<const N: usize>(
    trace: &Path,
    words: &[&str],
    columns: [&str; N],
) -> BTreeMap<u64, [u64; N]> {
    let words = [&["--by", "thread", "--format", "json"], words].concat();
    let output = report(trace, &words);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut threads = BTreeMap::new();
    for row in report["rows"].as_array().unwrap() {
        // A thread id may have been used by several threads.
        let thread = threads
            .entry(row["tid"].as_u64().unwrap())
            .or_insert([0; N]);
        for (sum, name) in thread.iter_mut().zip(columns) {
            *sum += row[name].as_u64().unwrap();
        }
    }
    threads
}

//! The logic of the Firefox Profiler, as its command line `profiler-cli` has it: CPU time and waits
//! of each thread must be those of the report.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, Output};

use serde_json::Value;

use super::{reader, report_by_thread};
use crate::exports::SyntheticTrace;
use crate::recording::{TraceDir, stderr};

/// A loaded profile. The reader keeps it in a process of its own, which ends when this is dropped.
struct ProfilerSession<'r> {
    reader: &'r OsString,
    place: TraceDir,
}

impl ProfilerSession<'_> {
    fn ask(&self, words: &[&str]) -> Output {
        let mut command = Command::new("node");
        // The reader keeps its sessions in the home directory.
        command.arg(self.reader).env("HOME", self.place.dir());
        command.args(words).output().unwrap()
    }

    fn answer(&self, words: &[&str]) -> Value {
        let output = self.ask(&[words, &["--json"]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for ProfilerSession<'_> {
    fn drop(&mut self) {
        self.ask(&["stop", "--all"]);
    }
}

#[test]
fn the_firefox_profilers_own_reader_agrees_with_the_report() {
    let Some(reader) = reader("SWTCH_FIREFOX_PROFILER") else {
        return;
    };
    let drawn = SyntheticTrace::new();
    let (profile, _) = drawn.export("firefox", &[]);
    let place = TraceDir::new();
    let session = ProfilerSession {
        reader: &reader,
        place,
    };
    let loaded = session.ask(&["load", profile.to_str().unwrap()]);
    assert!(loaded.status.success(), "{}", stderr(&loaded));
    let said = session.answer(&["thread", "list", "--limit", "0"]);
    let mut theirs = BTreeMap::new();
    let mut waits = 0;
    for thread in said["threads"].as_array().unwrap() {
        let tid = thread["tid"].as_str().unwrap().parse::<u64>().unwrap();
        let markers = thread["markerCount"].as_u64().unwrap();
        // In the precision that is shown: three decimals of a millisecond.
        theirs.insert(tid, (thread["cpuMs"].to_string(), markers));
        let handle = thread["threadHandle"].as_str().unwrap();
        let said = session.answer(&["thread", "markers", "--thread", handle, "--search", "futex"]);
        waits += said["filteredMarkerCount"].as_u64().unwrap();
    }
    let ours = report_by_thread(&drawn.place.trace(), &[], ["ran_ns", "waits"]);
    let ours = ours.into_iter().map(|(tid, [ran, waits])| {
        let milliseconds = Value::from((ran / 1_000) as f64 / 1_000.0);
        (tid, (milliseconds.to_string(), waits))
    });
    assert_eq!(theirs, ours.collect());
    // Two threads of 500 runs, with a wait before each but the first.
    assert_eq!(waits, 998);
}

//! `swtch doctor` names what makes a recording dearer.

use crate::machine::beside_others;
use crate::recording::{TraceDir, start_recorder, stdout, swtch};

/// A recording that runs is a program of others to the next one.
#[test]
#[ignore = "needs root"]
fn root_programs_of_another_recording_are_named() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let recorder = start_recorder(&place, &["--no-stacks", "--", "sleep", "60"]);
    let doctor = swtch(["doctor", "--format", "json"]).output().unwrap();
    let table = stdout(&swtch(["doctor"]).output().unwrap());
    drop(recorder);
    let doctor: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let is_ours = |row: &&serde_json::Value| {
        row["tracepoint"] == "sched_switch" && row["program"] == "sched_switch"
    };
    let programs = doctor["foreign_programs"].as_array().unwrap();
    let ours = programs.iter().find(is_ours);
    assert!(
        ours.is_some_and(|row| row["count"].as_u64() >= Some(1)),
        "{doctor}"
    );
    assert!(
        table.contains(" of others on the tracepoints") && table.contains("  sched_switch"),
        "{table}"
    );
}

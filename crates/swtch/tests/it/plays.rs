//! The experiments of `swtch lab` that run loads: every claim is answered, recorded or not, and
//! results of an early end are kept.
//!
//! They run as briefly as possible, on whatever machine runs the tests: no verdict is asserted that
//! a busy machine could change.

use std::sync::OnceLock;

use serde_json::Value;

use crate::machine::{alone, await_children, send};
use crate::recording::{stderr, swtch};

/// An experiment in its shortest form, and the claims that it answers.
type Short = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const SHORT: [Short; 5] = [
    (
        "oversubscribe",
        &["--work", "10ms", "--rounds", "1", "--most", "4"],
        &["A1", "A2", "A3", "A4", "A5"],
    ),
    (
        "turnaround",
        &[
            "--work",
            "10ms",
            "--rounds",
            "1",
            "--crowd",
            "8",
            "--crowd-work",
            "5ms",
            "--watch",
            "50ms",
        ],
        &["D1", "D2", "D3", "D4", "D5", "D6"],
    ),
    (
        "mutex",
        &["--repeats", "500", "--rounds", "1"],
        &["C1", "C2", "C3", "C4", "C5", "C6", "C7"],
    ),
    (
        "quantum",
        &[
            "--work",
            "40ms",
            "--short-work",
            "20ms",
            "--slices",
            "3ms,20ms",
        ],
        &["A6"],
    ),
    (
        "two-levels",
        &["--phase", "50ms", "--rounds", "1", "--megabytes", "1"],
        &["A7", "A8", "A9"],
    ),
];

#[derive(Clone, Copy)]
enum Recorded {
    No,
    Yes,
}

/// The answers of all experiments, each played once.
fn answers(recorded: Recorded) -> &'static [Value; SHORT.len()] {
    static ANSWERS: [OnceLock<[Value; SHORT.len()]>; 2] = [const { OnceLock::new() }; 2];
    ANSWERS[recorded as usize].get_or_init(|| {
        let _alone = alone();
        SHORT.map(|(name, words, _)| {
            let mut command = swtch(["lab", name, "--format", "json"]);
            command.args(words);
            if matches!(recorded, Recorded::No) {
                command.arg("--no-record");
            }
            let output = command.output().unwrap();
            // Exit code 1 says that a claim is undecided, as with a single round.
            let said = stderr(&output);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
            serde_json::from_slice(&output.stdout).unwrap()
        })
    })
}

fn claims(answer: &Value) -> Vec<&str> {
    let answers = answer["answers"].as_array().unwrap().iter();
    let mut claims: Vec<&str> = answers.map(|one| one["claim"].as_str().unwrap()).collect();
    claims.sort_unstable();
    claims
}

fn verdict<'a>(answer: &'a Value, claim: &str) -> &'a str {
    let mut answers = answer["answers"].as_array().unwrap().iter();
    let found = answers.find(|one| one["claim"] == claim).unwrap();
    found["verdict"].as_str().unwrap()
}

#[test]
fn every_claim_is_answered_without_a_recording() {
    for ((name, _, expected), answer) in SHORT.iter().zip(answers(Recorded::No)) {
        assert_eq!(claims(answer), *expected, "{name}");
        let needs_a_trace = ["A4", "C2", "C7", "D6"];
        for claim in expected
            .iter()
            .filter(|claim| needs_a_trace.contains(*claim))
        {
            assert_eq!(verdict(answer, claim), "cannot_be_tested", "{claim}");
        }
    }
}

/// A single round gives no interval, so no verdict that needs one may be given.
#[test]
fn one_round_decides_nothing_about_times() {
    for claim in ["D1", "D2"] {
        let verdict = verdict(&answers(Recorded::No)[1], claim);
        assert_eq!(verdict, "undecided", "{claim}");
    }
}

#[test]
#[ignore = "records, so it needs root"]
fn root_every_claim_is_answered_with_a_recording() {
    for ((name, _, expected), answer) in SHORT.iter().zip(answers(Recorded::Yes)) {
        assert_eq!(claims(answer), *expected, "{name}");
    }
}

/// Two processes that read the clock on one CPU cannot both run at a time: there are gaps in their
/// readings, and the trace explains the longest, however busy the machine is.
#[test]
#[ignore = "records, so it needs root"]
fn root_the_longest_gap_of_a_clock_is_time_off_the_cpu() {
    let longest = &answers(Recorded::Yes)[1]["tables"]["gaps"][0];
    assert!(longest["gap_ns"].as_u64().unwrap() > 1_000_000, "{longest}");
    assert!(longest["off_cpu_pct"].as_f64().unwrap() > 50.0, "{longest}");
}

#[test]
fn what_is_done_before_ctrl_c_is_kept() {
    let _alone = alone();
    let long = ["--no-record", "--rounds", "100000", "--most", "4"];
    let mut command = swtch(["lab", "oversubscribe", "--format", "json", "--work", "5ms"]);
    command.args(long).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    // Each play of one to four threads is a child.
    await_children(child.id(), 12);
    send(child.id(), libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["was_interrupted"], true);
    assert!(
        !answer["tables"]["threads"].as_array().unwrap().is_empty(),
        "{answer}"
    );
}

//! The first answer of `explain` fits one screen of any width, for a recording and for a trace;
//! processes are told apart by their command lines.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::machine::{SOON, TestProcess, beside_others, wait_until};
use crate::recording::{Recording, SWTCH, TraceDir, start_recorder, stderr, stdout, swtch};

/// Lines that fit on a terminal of 40 lines, at 80 columns or more.
const LINES: usize = 40;

fn explained(recording: &Recording, words: &[&str], columns: &str) -> String {
    let trace = recording.place.trace();
    let output = swtch(["explain", trace.to_str().unwrap(), "--no-bill"])
        .args(words)
        .env("COLUMNS", columns)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

fn widest(answer: &str) -> usize {
    answer
        .lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap()
}

#[test]
#[ignore = "needs root"]
fn root_a_trace_is_explained_again_on_one_screen_of_any_width() {
    let _machine = beside_others();
    let recording = Recording::of(&["--", SWTCH, "workload", "sampler", "--count", "300"]);
    let answer = explained(&recording, &[], "100");
    assert!(answer.lines().count() <= LINES, "{answer}");
    assert!(widest(&answer) <= 100, "{answer}");
    // Some kernels hide switches of some threads from tracing: then that is said instead.
    let contents = recording.read();
    let counts = contents.counts();
    let whole = match (counts.untraced, counts.untraced_in_scope) {
        (0, _) => "complete: no switch was lost",
        (_, Some(0)) => "none of them was lost (",
        _ => " that it did not report to tracing",
    };
    let answer_in_line = answer.replace("\n      ", " ");
    assert!(answer_in_line.contains(whole), "{whole}: {answer}");
    for part in [" context switches, ", "\nverdict\n1. "] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    let narrow = explained(&recording, &[], "80");
    assert!(
        narrow.lines().count() <= LINES && widest(&narrow) <= 80,
        "{narrow}"
    );
    // Values that no terminal has are ignored, and a very narrow one is treated as wider.
    for columns in ["20", "0", "1000000", "-7", "wide", ""] {
        let answer = explained(&recording, &[], columns);
        assert!(widest(&answer) <= 100, "{columns}: {answer}");
        assert!(answer.contains("verdict"), "{columns}: {answer}");
    }
    let full = explained(&recording, &["--full"], "200");
    assert!(
        full.contains("\nwho woke whom\n") && full.lines().count() > LINES,
        "{full}"
    );
    let narrow = explained(&recording, &["--full"], "80");
    assert!(narrow.contains("too narrow for: "), "{narrow}");
}

#[test]
fn a_trace_and_something_to_record_are_refused_together() {
    for words in [&["-a"][..], &["-p", "1"], &["--no-stacks"], &["--", "true"]] {
        let output = swtch(["explain", "x.swtch"]).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).contains("cannot be used with"),
            "{words:?}: {}",
            stderr(&output)
        );
    }
    let output = swtch(["explain", "/no/such.swtch"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("there is no /no/such.swtch"),
        "{}",
        stderr(&output)
    );
}

/// One program is short-lived, one runs already, one changes its command line while it runs, and
/// one has a hostile command line.
#[test]
#[ignore = "needs root"]
fn root_processes_are_told_apart_by_their_command_lines() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let there_already = TestProcess::start(Command::new("sleep").arg("61"));
    let hostile = "/bin/true \u{1b}[2J";
    let sleeps = "for i in 1 2 3 4 5 6; do sleep 0.3$i; done";
    let role = "exec perl -e '$0 = \"server: role of it\"; sleep 9'";
    let script = format!("until [ -e go ]; do sleep 0.1; done; {sleeps}; {hostile}; {role}");
    let mut shell = Command::new("sh");
    let load = TestProcess::start(shell.args(["-c", &script]).current_dir(place.dir()));
    let pids = format!("{},{}", load.pid(), there_already.pid());
    let mut recorder = start_recorder(&place, &["-p", &pids]);
    std::fs::write(place.dir().join("go"), "").unwrap();
    wait_until("it has its last name", || {
        let words = std::fs::read(format!("/proc/{}/cmdline", load.pid()));
        words.is_ok_and(|words| words.starts_with(b"server:"))
    });
    // A process that was forked has its command line looked at a second after its start.
    std::thread::sleep(Duration::from_secs(2));
    for process in [&there_already, &load] {
        process.signal(libc::SIGKILL);
    }
    assert!(recorder.ends_within(SOON).success());
    let trace = place.trace();
    let words = [
        "report",
        "--by",
        "process",
        "--format",
        "json",
        trace.to_str().unwrap(),
    ];
    let report = swtch(words).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let commands: Vec<_> = rows
        .iter()
        .filter_map(|row| row["command"].as_str())
        .collect();
    for expected in ["sleep 0.36", "server: role of it"] {
        assert!(commands.contains(&expected), "{expected}: {commands:?}");
    }
    let answer = swtch(["explain", trace.to_str().unwrap(), "--no-bill"])
        .output()
        .unwrap();
    assert!(!stdout(&answer).contains('\u{1b}'), "{}", stdout(&answer));
}

#[test]
#[ignore = "needs root"]
fn root_a_command_line_of_many_bytes_is_cut() {
    let _machine = beside_others();
    let long = "x".repeat(100_000);
    let words = ["--", "sh", "-c", "sleep 0.3; true", &long, &long, &long];
    let recording = Recording::that_succeeds(&words);
    let answer = explained(&recording, &[], "100");
    assert!(answer.len() < 20_000, "{} bytes", answer.len());
}

//! `swtch diff`: made-up runs are compared by the program itself.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use swtch_fixtures::MadeUpRun;
use swtch_store::{RecordingState, Writer};

use crate::recording::{TraceDir, stderr, stdout, swtch};

/// Writes five runs of each side, in turns: `base-1.swtch` … and `head-1.swtch` …, of which the
/// waits take `factor` times as long.
fn made_up(place: &TraceDir, factor: f64) -> [Vec<PathBuf>; 2] {
    let (mut base, mut head) = (Vec::new(), Vec::new());
    for turn in 1..=5 {
        for (side, name, factor) in [(&mut base, "base", 1.0), (&mut head, "head", factor)] {
            let mut run = MadeUpRun::began(turn * 10 + u64::from(name == "head"));
            run.wait_ns *= factor;
            let path = place.dir().join(format!("{name}-{turn}.swtch"));
            run.write(&path);
            side.push(path);
        }
    }
    [base, head]
}

/// Runs `swtch diff` without any saved price list.
fn diff(options: &[&str], a: &[PathBuf], b: &[PathBuf]) -> Output {
    let mut command = swtch(["diff"]);
    let home = Path::new("/nonexistent");
    command
        .env("HOME", home)
        .env("XDG_DATA_HOME", home)
        .env("XDG_CONFIG_HOME", home);
    command
        .args(options)
        .args(a)
        .arg("--")
        .args(b)
        .output()
        .unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn a_gate_fails_with_1_for_a_regression_and_only_for_that() {
    let place = TraceDir::new();
    let [base, head] = made_up(&place, 1.1);
    let failed = diff(&["--fail-over", "5%"], &base, &head);
    assert_eq!(code(&failed), Some(1), "{}", stderr(&failed));
    let page = stdout(&failed);
    assert!(page.starts_with("A  before   5 runs of 2.00 s"), "{page}");
    assert!(page.contains("\nverdict     B is worse than A"), "{page}");
    assert!(page.contains("FAILED: "), "{page}");
    for (options, expected) in [
        (&["--fail-over", "30%"][..], 0),
        (&[], 0),
        (&["--fail-over", "5", "--reason", "wakeup"], 0),
    ] {
        let output = diff(options, &base, &head);
        assert_eq!(
            code(&output),
            Some(expected),
            "{options:?}: {}",
            stdout(&output)
        );
    }
    let better = diff(&["--fail-over", "5%"], &head, &base);
    assert_eq!(code(&better), Some(0), "{}", stdout(&better));
    assert!(stdout(&better).contains("better"), "{}", stdout(&better));
}

#[test]
fn every_format_says_the_same() {
    let place = TraceDir::new();
    let [base, head] = made_up(&place, 1.2);
    let json = diff(&["--format", "json", "--fail-over", "5"], &base, &head);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["schema"], "swtch.diff/1");
    assert_eq!(json["a"]["runs"].as_array().unwrap().len(), 5);
    let rows = json["rows"].as_array().unwrap();
    let csv = stdout(&diff(
        &["--format", "csv", "--fail-over", "5"],
        &base,
        &head,
    ));
    assert_eq!(csv.lines().count(), rows.len() + 1, "{csv}");
    let worse = rows
        .iter()
        .filter(|row| row["is_regression"] == "yes")
        .count();
    assert!(worse > 0, "{rows:#?}");
    assert_eq!(csv.matches(",yes,").count(), worse, "{csv}");
    let table = stdout(&diff(&["--all"], &base, &head));
    for row in rows {
        let figure = row["figure"].as_str().unwrap();
        assert!(table.contains(figure), "{figure}: {table}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused_with_2() {
    let place = TraceDir::new();
    let [base, head] = made_up(&place, 1.0);
    let missing = vec![place.dir().join("missing.swtch")];
    let file = place.dir().join("file");
    std::fs::write(&file, "no trace").unwrap();
    for (a, b, words) in [
        (&base, &missing, "there is no"),
        (&base, &vec![file], "is no trace"),
        (
            &base,
            &base,
            "is on side A, and the same recording is on side B",
        ),
        (&vec![base[0].clone(); 2], &head, "give each run once"),
    ] {
        let output = diff(&["--fail-over", "5%"], a, b);
        let said = stderr(&output);
        assert_eq!(code(&output), Some(2), "{said}");
        assert!(
            said.starts_with("error: ") && said.contains(words),
            "{said}"
        );
        assert_eq!(stdout(&output), "", "{said}");
    }
}

/// A recording that goes on is compared as far as it has come, and that is said.
#[test]
fn an_unfinished_recording_is_compared_with_a_warning() {
    let place = TraceDir::new();
    let [base, _] = made_up(&place, 1.0);
    let path = place.dir().join("cut.swtch");
    let mut run = MadeUpRun::began(500);
    (run.meta.state, run.meta.end_ns) = (RecordingState::Recording, 0);
    let mut writer = Writer::create(&path, &run.meta).unwrap();
    writer
        .push_task(&swtch_fixtures::seen(1, 10, 10, "server"))
        .unwrap();
    for number in 1..=1000_u64 {
        let mut row = swtch_fixtures::row(1, swtch_core::Reason::Futex);
        row.ts = swtch_core::Timestamp::from_ns(run.meta.start_ns + number * 1_000_000);
        writer.push_switch(&row).unwrap();
    }
    writer.flush().unwrap();
    let output = diff(&[], &base[..1], &[path]);
    let said = stderr(&output);
    assert_eq!(code(&output), Some(0), "{said}");
    assert!(said.contains("cut.swtch is still being recorded"), "{said}");
    let page = stdout(&output);
    assert!(page.contains("unfinished: A 0 runs, B 1 run"), "{page}");
    assert!(page.contains("1 run of 1.00 s"), "{page}");
    drop(writer);
}

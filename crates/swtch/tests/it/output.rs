//! Tests what is printed: every report in every format, hostile names, and readers that close the pipe.

use std::collections::BTreeSet;
use std::process::{Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use swtch_test::MachineTurn;

use crate::machine::{alone, beside_others};
use crate::recording::{Recording, SWTCH, stderr, stdout, swtch};

/// The values of `--by` for reports, except `level`, whose report has another form.
pub const REPORTS: &[&str] = &[
    "reason",
    "process",
    "thread",
    "preemptor",
    "neighbour",
    "waker",
    "syscall",
    "wait",
    "stack",
    "cpu",
    "cgroup",
];
const FORMATS: [&str; 3] = ["table", "json", "csv"];

/// The reports whose rows count each switch once.
const COUNT_EACH_SWITCH: [&str; 6] = ["reason", "process", "thread", "syscall", "cpu", "cgroup"];

/// A recording of the sampler workload, shared by the tests here, and a turn beside others. The first call records
/// alone, so a test that has a turn already would wait for itself.
fn sample() -> (&'static Recording, MachineTurn) {
    static SAMPLE: OnceLock<Recording> = OnceLock::new();
    let sample = SAMPLE.get_or_init(|| {
        let _machine = alone();
        let words = ["--", SWTCH, "workload", "sampler", "--count", "700"];
        Recording::that_succeeds(&words)
    });
    (sample, beside_others())
}

/// Runs `swtch report` and parses its JSON answer.
fn json_report(recording: &Recording, words: &[&str]) -> Value {
    let output = recording.report(&[words, &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sum(rows: &Value, column: &str) -> u64 {
    let rows = rows["rows"].as_array().unwrap();
    rows.iter().map(|row| row[column].as_u64().unwrap()).sum()
}

#[test]
#[ignore = "needs root"]
fn root_every_report_says_the_same_number_of_switches() {
    let (sample, _machine) = sample();
    let all = json_report(sample, &["--by", "reason"]);
    let switches = all["trace"]["switches"].as_u64().unwrap();
    assert!(switches > 1000);
    for by in COUNT_EACH_SWITCH {
        let report = json_report(sample, &["--by", by]);
        assert_eq!(report["trace"]["switches"], switches, "{by}");
        assert_eq!(sum(&report, "switches"), switches, "{by}");
        let share: f64 = report["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["share_pct"].as_f64().unwrap())
            .sum();
        assert!((share - 100.0).abs() < 0.01, "{by}: {share} %");
    }
}

/// The cost of the recorder's programs in the kernel is measured at the beginning of each recording. A switch goes
/// through two to four of them, which take more than a few nanoseconds and, unless the statistics are wrong by a unit,
/// less than some tens of microseconds on a busy machine.
#[test]
#[ignore = "needs root"]
fn root_a_recording_says_what_it_costs_in_the_kernel() {
    let _machine = beside_others();
    let recording = Recording::of(&["--", SWTCH, "workload", "pipe"]);
    let overhead = recording.read().meta.overhead;
    let cost = overhead.kernel_ns_per_switch.unwrap();
    assert!((10.0..50_000.0).contains(&cost), "{overhead:?}");
    assert!(overhead.kernel_cost_switches >= 500, "{overhead:?}");
    let told = stderr(&recording.output);
    assert!(told.contains("ns a switch in the kernel"), "{told}");
    let head = stdout(&recording.report(&[]));
    assert!(head.contains("ns a switch in the kernel"), "{head}");
    let json: Value =
        serde_json::from_slice(&recording.report(&["--format", "json"]).stdout).unwrap();
    assert_eq!(json["trace"]["overhead"]["kernel_ns_per_switch"], cost);
}

/// Few switches give no mean. How many `true` makes is not known, so both are checked.
#[test]
#[ignore = "needs root"]
fn root_the_cost_in_the_kernel_is_said_only_of_five_hundred_switches() {
    let _machine = beside_others();
    let recording = Recording::of(&["--", "true"]);
    let overhead = recording.read().meta.overhead;
    let told = stderr(&recording.output);
    assert_eq!(
        overhead.kernel_ns_per_switch.is_some(),
        told.contains("in the kernel"),
        "{told}"
    );
    assert_eq!(
        overhead.kernel_ns_per_switch.is_some(),
        overhead.kernel_cost_switches >= 500
    );
}

/// Run-queue time is split among the tasks that had the CPU; the parts sum to the whole.
#[test]
#[ignore = "needs root"]
fn root_who_had_the_cpu_sums_to_the_run_queue_time() {
    let (sample, _machine) = sample();
    let waited = sum(&json_report(sample, &["--by", "thread"]), "runq_ns");
    let had = sum(&json_report(sample, &["--by", "preemptor"]), "runq_ns");
    assert_eq!(had, waited);
    let had = sum(&json_report(sample, &["--by", "neighbour"]), "runq_ns");
    assert_eq!(had, waited);
}

#[test]
#[ignore = "needs root"]
fn root_filters_only_leave_out() {
    let (sample, _machine) = sample();
    let all = json_report(sample, &["--by", "reason"])["trace"]["switches"]
        .as_u64()
        .unwrap();
    let some = |words: &[&str]| {
        let report = json_report(sample, &[&["--by", "reason"], words].concat());
        sum(&report, "switches")
    };
    let futex = some(&["--reason", "futex"]);
    assert!(futex > 0 && futex < all);
    let (before, after) = (some(&["--until", "300ms"]), some(&["--since", "300ms"]));
    assert_eq!(before + after, all);
    assert_eq!(some(&["--comm", "no such thread"]), 0);
    assert!(some(&["--comm", "hog"]) > 0);
}

/// A made-up price list: each switch between two threads costs 1 µs, and no other price is known.
fn made_up_prices() -> tempfile::NamedTempFile {
    let estimate = json!({ "point": 1000.0, "low": 900.0, "high": 1100.0, "confidence": 0.95,
                           "trees": 1, "rounds": 1 });
    let price = |kind: &str| {
        json!({ "kind": kind, "section": "switch", "members": "threads", "count": 2,
                "place": "same-cpu", "policy": "batch", "hand_off_ns": estimate,
                "baseline_ns": null, "net_ns": estimate, "voluntary_per_op": 1.0,
                "involuntary_per_op": 0.0, "per": { "per": "switch" }, "system_calls": null,
                "relative": null, "dropped_rounds": 0 })
    };
    let list = json!({
        "schema": "swtch.prices/1", "version": 1,
        "origin": { "hostname": "made-up", "kernel_release": "0", "kernel_version": "0",
                    "machine": "x86_64", "cpu_model": "none", "cpus": 1, "boot_id": "none",
                    "measured_at": "2020-01-01T00:00:00Z", "swtch_version": "0" },
        "session": { "effort": "made-up", "id": "0", "took_s": 0.0, "reference": "none",
                     "twins": [], "cpu": null, "was_interrupted": false,
                     "noise": { "trees": 1, "blocks": 1, "was_steady": true,
                                "dropped": { "foreign_switch": 0, "too_long": 0 } },
                     "verdict": { "verdict": "quiet" }, "is_resolved": true },
        "prices": [price("futex-shared"), price("yield")],
        "facts": [], "contrasts": [], "curves": [], "missing": [],
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), list.to_string()).unwrap();
    file
}

/// However the switches are grouped, the bill covers all of them, at 1 µs each.
#[test]
#[ignore = "needs root"]
fn root_every_bill_has_all_switches_and_names_foreign_prices() {
    let (sample, _machine) = sample();
    let prices = made_up_prices();
    let prices = prices.path().to_str().unwrap();
    let all = json_report(sample, &["--by", "reason"])["trace"]["switches"].as_u64();
    for by in ["reason", "process", "thread", "stack", "pair"] {
        let words = ["--bill", "--prices", prices, "--by", by];
        for format in FORMATS {
            let output = sample.report(&[&words[..], &["--format", format]].concat());
            assert!(output.status.success(), "{by}: {}", stderr(&output));
            assert!(stderr(&output).contains("the host was made-up"), "{by}");
            assert_is_harmless(&output);
        }
        let bill = json_report(sample, &words);
        assert_eq!(Some(sum(&bill, "switches")), all, "{by}");
        assert_eq!(
            Some(sum(&bill, "direct_ns")),
            all.map(|all| all * 1000),
            "{by}"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn root_every_report_has_every_format() {
    let (sample, _machine) = sample();
    for by in REPORTS.iter().copied() {
        for format in FORMATS {
            let output = sample.report(&["--by", by, "--format", format]);
            assert!(
                output.status.success(),
                "{by} {format}: {}",
                stderr(&output)
            );
            assert!(!output.stdout.is_empty(), "{by} {format}");
            assert_is_harmless(&output);
        }
    }
}

/// The fields of a line of CSV.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            other => fields.last_mut().unwrap().push(other),
        }
    }
    fields
}

/// csv: the header names each column once, and every line has as many fields.
#[test]
#[ignore = "needs root"]
fn root_csv_is_as_wide_as_its_header() {
    let (sample, _machine) = sample();
    for by in COUNT_EACH_SWITCH {
        let output = sample.report(&["--by", by, "--format", "csv"]);
        let text = stdout(&output);
        let header = fields(text.lines().next().unwrap());
        let names: BTreeSet<_> = header.iter().collect();
        assert_eq!(names.len(), header.len(), "{by}: {header:?}");
        assert!(text.lines().count() > 1, "{by}");
        for line in text.lines() {
            assert_eq!(fields(line).len(), header.len(), "{by}: {line}");
        }
    }
}

/// Threads whose names are escape sequences, newlines, markup and invalid UTF-8.
#[test]
#[ignore = "needs root"]
fn root_hostile_names_reach_no_terminal() {
    let _machine = beside_others();
    let recording = Recording::that_succeeds(&["--", SWTCH, "workload", "renamer"]);
    assert!(stdout(&recording.report(&["--by", "thread"])).contains("\\x1b"));
    for format in FORMATS {
        assert_is_harmless(&recording.report(&["--by", "thread", "--format", format]));
        assert_is_harmless(&recording.report(&["--by", "process", "--format", format]));
        assert_is_harmless(&recording.report(&["--by", "waker", "--format", format]));
    }
    assert_is_harmless(&recording.report(&[]));
}

/// Command lines and paths are not to be trusted either.
#[test]
#[ignore = "needs root"]
fn root_a_hostile_command_line_reaches_no_terminal() {
    let _machine = beside_others();
    let recording = Recording::of(&["--", "true", "\u{1b}[2J", "a\nb"]);
    assert!(recording.output.status.success());
    for format in FORMATS {
        assert_is_harmless(&recording.report(&["--by", "reason", "--format", format]));
    }
    let missing = Recording::of(&["--", "/no/\u{1b}[2J"]);
    assert_is_harmless(&missing.output);
}

/// Checks that stdout and stderr hold no control character except line ends (CR LF in csv).
fn assert_is_harmless(output: &Output) {
    for text in [stdout(output), stderr(output)] {
        let text = text.replace("\r\n", "\n");
        let hostile = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(hostile, None, "{text}");
    }
}

#[test]
#[ignore = "needs root"]
fn root_a_reader_that_goes_away_is_no_error() {
    let (sample, _machine) = sample();
    let trace = sample.place.trace();
    let trace = trace.to_str().unwrap();
    for words in [
        &["report", trace][..],
        &["report", trace, "--by", "thread"],
        &["doctor"],
    ] {
        assert_is_quiet_when_closed(words);
    }
}

/// The error about the path goes to stderr, which is read.
#[test]
#[ignore = "needs root"]
fn root_an_error_is_one_though_nobody_reads_the_answer() {
    let _machine = beside_others();
    let explain = ["explain", "-o", "/dev/null/x", "--", "true"];
    assert_eq!(closed(&explain).status.code(), Some(2));
}

#[test]
fn a_reader_of_a_list_that_goes_away_is_no_error() {
    assert_is_quiet_when_closed(&["workload"]);
    assert_is_quiet_when_closed(&["--help"]);
}

fn assert_is_quiet_when_closed(words: &[&str]) {
    let output = closed(words);
    let said = stderr(&output);
    assert!(
        !said.contains("panicked") && !said.contains("error"),
        "{words:?}: {said}"
    );
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{words:?}: {:?}",
        output.status
    );
}

/// Runs with a stdout whose reader has closed the pipe.
fn closed(words: &[&str]) -> Output {
    let mut child = swtch(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    child.wait_with_output().unwrap()
}

#[test]
fn help_names_every_verb_and_exits_with_0() {
    let output = swtch(["--help"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let help = stdout(&output);
    let first_words: BTreeSet<_> = help
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for verb in [
        "explain",
        "record",
        "dump",
        "report",
        "diff",
        "export",
        "import",
        "top",
        "agent",
        "view",
        "cost",
        "fiber",
        "lab",
        "lake",
        "doctor",
        "completions",
    ] {
        assert!(first_words.contains(verb), "{verb}: {help}");
    }
}

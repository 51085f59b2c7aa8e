//! `swtch diff`: made-up runs are compared by the program itself.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use swtch_fixtures::MadeUpRun;
use swtch_store::{RecordingState, StackSettings, Writer};

use crate::recording::{SWTCH, TraceDir, stderr, stdout, swtch};

/// Writes five runs of each side, in turns: `base-1.swtch` … and `head-1.swtch` …, of which the
/// waits take `factor` times as long.
fn made_up(place: &TraceDir, factor: f64) -> [Vec<PathBuf>; 2] {
    made_up_with(place, |run, is_head| {
        if is_head {
            run.wait_ns *= factor;
        }
    })
}

/// As [`made_up`], with runs as they are after `edit`, which is told whether a run is of the head.
fn made_up_with(place: &TraceDir, edit: impl Fn(&mut MadeUpRun, bool)) -> [Vec<PathBuf>; 2] {
    let (mut base, mut head) = (Vec::new(), Vec::new());
    for turn in 1..=5 {
        for (side, name) in [(&mut base, "base"), (&mut head, "head")] {
            let is_head = name == "head";
            let mut run = MadeUpRun::began(turn * 10 + u64::from(is_head));
            edit(&mut run, is_head);
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
    let table = stdout(&diff(&["--full"], &base, &head));
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

/// The base waits for its lock in `handle`, the head in a function that it calls for it.
fn with_functions(run: &mut MadeUpRun, is_head: bool) {
    run.has_stacks = true;
    run.meta.stacks = Some(StackSettings::default());
    let functions: &[&str] = match is_head {
        true => &["lock_slow", "try_again", "handle", "main"],
        false => &["lock_slow", "handle", "main"],
    };
    run.functions = functions.iter().map(|name| (*name).to_owned()).collect();
}

/// Writes a page and returns it, with what the program said.
fn page_of(place: &TraceDir, options: &[&str], [a, b]: &[Vec<PathBuf>; 2]) -> (String, Output) {
    let file = place.dir().join("page.html");
    let html = ["-o", file.to_str().unwrap()];
    let output = diff(&[&html, options].concat(), a, b);
    let page = std::fs::read_to_string(&file);
    (
        page.unwrap_or_else(|_| panic!("{}", stderr(&output))),
        output,
    )
}

/// A page that is sent must not need the traces, the network or the terminal that it was made in.
#[test]
fn a_page_holds_the_answer_both_timelines_and_the_stacks_of_both_sides() {
    let place = TraceDir::new();
    let sides = made_up_with(&place, |run, is_head| {
        with_functions(run, is_head);
        run.wait_ns *= if is_head { 1.3 } else { 1.0 };
    });
    let gate = ["--fail-over", "5%"];
    let (page, output) = page_of(&place, &gate, &sides);
    assert_eq!(code(&output), Some(1), "the page changes no exit code");
    let [a, b] = &sides;
    assert_eq!(output.stdout, diff(&gate, a, b).stdout, "nor the answer");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    for word in [
        "<script",
        "src=",
        "href=\"http",
        "@import",
        "url(",
        "<link",
        "<iframe",
    ] {
        assert!(!page.contains(word), "{word}");
    }
    let json = diff(&["--format", "json", "--fail-over", "5%"], a, b);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let words = page.replace("&lt;", "<").replace("&gt;", ">");
    assert!(words.contains(json["verdict"].as_str().unwrap()), "{words}");
    assert!(words.contains("FAILED: "), "{words}");
    for row in json["rows"].as_array().unwrap() {
        let is_shown = words.contains(&format!(">{}<", row["figure"].as_str().unwrap()));
        let is_change = ["worse", "better", "more", "less"]
            .iter()
            .any(|word| row["verdict"] == *word);
        assert!(is_shown || !is_change, "{row}: {words}");
    }
    for (side, name) in [("A", "base-"), ("B", "head-")] {
        let title = format!("<title>{side}: {}", place.dir().join(name).display());
        assert_eq!(page.matches(&title).count(), 1, "{title}: {page}");
    }
    let (of_b, of_a) = page.split_once("Width: time blocked in A, ").unwrap();
    let of_b = of_b.split_once("Width: time blocked in B, ").unwrap().1;
    for (graph, side, gone) in [(of_b, "B", "only in B"), (of_a, "A", "only in A")] {
        assert!(graph.contains("<title>handle: A "), "{side}: {graph}");
        let lock = graph.split("<title>lock_slow: A ").nth(1);
        let lock = lock.unwrap_or_else(|| panic!("{side}: {graph}"));
        let told = lock.split_once("</title>").unwrap().0;
        assert!(told.contains(gone), "{side}: {told}");
    }
    assert!(of_b.contains("<title>try_again: A ") && !of_a.contains("<title>try_again: A "));
}

/// The blocked time of a made-up run is 100 µs in each of 2,000 waits, in 2 s.
#[test]
fn the_graph_is_of_a_run_or_of_a_second() {
    let place = TraceDir::new();
    let sides = made_up_with(&place, |run, is_head| {
        with_functions(run, is_head);
        run.noise = 0.0;
        // A run that is twice as long with the same waits has half of them in a second.
        run.meta.end_ns += if is_head { 2_000_000_000 } else { 0 };
    });
    let blocked_ms = |page: &str, side: &str| {
        let (_, rest) = page
            .split_once(&format!("Width: time blocked in {side}, "))
            .unwrap();
        let words = rest.split_once(" ms").unwrap().0;
        words.parse::<f64>().unwrap()
    };
    for (per, expected) in [("run", [200.0, 200.0]), ("second", [100.0, 50.0])] {
        let (page, _) = page_of(&place, &["--per", per], &sides);
        for (side, expected) in ["A", "B"].into_iter().zip(expected) {
            let blocked = blocked_ms(&page, side);
            let error = (blocked / expected - 1.0).abs();
            assert!(error < 0.03, "{per} {side}: {blocked} for {expected}");
        }
    }
}

#[test]
fn without_stacks_a_page_names_the_option_that_takes_them() {
    let place = TraceDir::new();
    let sides = made_up_with(&place, |run, is_head| {
        if is_head {
            with_functions(run, is_head);
        }
    });
    let (page, output) = page_of(&place, &[], &sides);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let why =
        "There is no flame graph, because the traces of A have no stacks: record again, without";
    assert!(page.contains(why), "{page}");
    assert!(!page.contains("Width: time blocked"), "{page}");
    assert_eq!(page.matches("<svg ").count(), 2, "the timelines");
}

/// Anybody chooses the name of a process, and a library the names of its functions.
#[test]
fn names_cannot_become_markup_of_a_page() {
    const HOSTILE: &str = "<img src=x>\u{1b}\u{202e}";
    let place = TraceDir::new();
    let sides = made_up_with(&place, |run, is_head| {
        with_functions(run, is_head);
        run.comm = HOSTILE.to_owned();
        run.functions.push(HOSTILE.to_owned());
    });
    let (page, _) = page_of(&place, &["--full"], &sides);
    assert!(page.contains("&lt;img src=x&gt;\\x1b\\u{202e}"), "{page}");
    assert!(!page.contains("<img") && !page.contains(['\u{1b}', '\u{202e}']));
}

/// Minutes of reading would be lost, and a page that was not finished would look like one.
#[test]
fn a_page_that_cannot_be_written_is_refused_and_none_is_left() {
    let place = TraceDir::new();
    let [base, head] = made_up(&place, 1.0);
    let nowhere = place.dir().join("no/such/page.html");
    let output = diff(&["-o", nowhere.to_str().unwrap()], &base, &head);
    assert_eq!(code(&output), Some(2), "{}", stderr(&output));
    assert_eq!(stdout(&output), "", "it was found before anything was read");
    let page = place.dir().join("page.html");
    let same = [head, base.clone()].concat();
    let output = diff(&["-o", page.to_str().unwrap()], &base, &same);
    assert_eq!(code(&output), Some(2), "{}", stderr(&output));
    assert!(!page.exists());
}

/// Two recordings of the same lock, one with twice as many rounds.
#[test]
#[ignore = "needs root"]
fn root_a_page_of_recordings_shows_the_lock() {
    let place = TraceDir::new();
    let recorded = |name: &str, rounds: &str| {
        let path = place.dir().join(name);
        let mut record = swtch(["record", "-o"]);
        record.arg(&path).args([
            "--", SWTCH, "workload", "mutex", "--quiet", "--count", rounds,
        ]);
        let output = record.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        vec![path]
    };
    let sides = [recorded("base.swtch", "100"), recorded("head.swtch", "200")];
    let (page, output) = page_of(&place, &["--per", "run"], &sides);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    for (side, name) in [("A", "base.swtch"), ("B", "head.swtch")] {
        let title = format!("<title>{side}: {}", place.dir().join(name).display());
        assert!(page.contains(&title), "{title}: {page}");
    }
    let graphs = page.split_once("Width: time blocked in B, ").unwrap().1;
    for frame in ["futex_wait", "[futex]"] {
        // Several places wait for a futex, and frame pointers do not lead out of each of them.
        let mut places = graphs
            .split("<title>")
            .filter(|title| title.contains(frame));
        let is_on_both = |title: &str| title.contains(" a run, B ") && !title.contains("only in");
        assert!(places.any(is_on_both), "{frame}: {graphs}");
    }
}

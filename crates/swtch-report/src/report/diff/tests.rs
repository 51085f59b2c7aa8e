//! Tests, on made-up runs, of what is compared and said.

use std::path::PathBuf;

use serde_json::Value;
use swtch_core::Reason;
use swtch_output::format::Format;
use swtch_store::{HostLoad, StackSettings};
use tempfile::TempDir;

use super::*;
use crate::report::drawn::{MadeUpRun, prices};

/// Traces in a directory of their own.
struct Runs {
    dir: TempDir,
    made: u64,
}

impl Runs {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            made: 0,
        }
    }

    /// Writes a run, as it is after `edit`.
    fn make(&mut self, edit: impl FnOnce(&mut MadeUpRun)) -> PathBuf {
        self.made += 1;
        let mut run = MadeUpRun::began(self.made * 10);
        edit(&mut run);
        let path = self.dir.path().join(format!("run{}.swtch", self.made));
        run.write(&path);
        path
    }

    /// Two sides of five runs, written in turns.
    fn sides(&mut self, edit_b: impl Fn(&mut MadeUpRun)) -> DiffRequest {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            a.push(self.make(|_| ()));
            b.push(self.make(&edit_b));
        }
        request(a, b)
    }
}

fn request(a: Vec<PathBuf>, b: Vec<PathBuf>) -> DiffRequest {
    DiffRequest {
        a,
        b,
        filter: Filter::default(),
        per: None,
        prices: None,
        fail_over_pct: None,
        format: Format::Table,
        shows_all: false,
    }
}

fn answer(request: &DiffRequest) -> (String, DiffOutcome) {
    let mut out = Vec::new();
    let answer = compare(request).unwrap();
    answer.write(&mut out).unwrap();
    (String::from_utf8(out).unwrap(), answer.outcome())
}

fn json(request: &mut DiffRequest) -> Value {
    request.format = Format::Json;
    serde_json::from_str(&answer(request).0).unwrap()
}

fn refusal(request: &DiffRequest) -> String {
    format!("{:#}", compare(request).unwrap_err())
}

fn row<'j>(json: &'j Value, figure: &str) -> &'j Value {
    let rows = json["rows"].as_array().unwrap();
    let found = rows.iter().find(|row| row["figure"] == figure);
    found.unwrap_or_else(|| panic!("{figure}: {rows:#?}"))
}

#[test]
fn longer_waits_are_found_and_fail_a_gate() {
    let mut runs = Runs::new();
    let mut request = runs.sides(|run| run.wait_ns *= 1.1);
    request.fail_over_pct = Some(5.0);
    let (page, outcome) = answer(&request);
    assert_eq!(outcome, DiffOutcome::Regressed);
    assert!(page.contains("verdict     B is worse than A"), "{page}");
    assert!(page.contains("FAILED: "), "{page}");
    assert!(page.contains("comparable  yes"), "{page}");
    let json = json(&mut request);
    let waits = row(&json, "waits for futex, p50");
    let change = waits["change_pct"].as_f64().unwrap();
    assert!((7.0..13.0).contains(&change), "{waits}");
    assert_eq!(
        (&waits["verdict"], &waits["is_regression"]),
        (&"worse".into(), &"yes".into())
    );
    assert_eq!(row(&json, "switches: futex")["verdict"], "no sure change");
    request.fail_over_pct = Some(30.0);
    request.format = Format::Table;
    let (page, outcome) = answer(&request);
    assert_eq!(outcome, DiffOutcome::Passed);
    assert!(
        page.contains("passed: no figure is surely worse by more than 30 %"),
        "{page}"
    );
}

#[test]
fn runs_that_are_alike_pass() {
    let mut runs = Runs::new();
    let mut request = runs.sides(|_| ());
    request.fail_over_pct = Some(0.0);
    let (page, outcome) = answer(&request);
    assert_eq!(outcome, DiffOutcome::Passed);
    assert!(page.contains("no sure change in any of"), "{page}");
    let verdict = json(&mut request)["verdict"].as_str().unwrap().to_owned();
    assert!(
        verdict.contains("the noise could hide changes up to"),
        "{verdict}"
    );
}

#[test]
fn fewer_waits_are_better_and_new_preemptions_are_new() {
    let mut runs = Runs::new();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        a.push(runs.make(|run| (run.preemptions, run.waits) = (0, 4000)));
        b.push(runs.make(|run| run.waits = 2000));
    }
    let json = json(&mut request(a, b));
    assert_eq!(row(&json, "switches: futex")["verdict"], "better");
    let pair = row(&json, "preemptions: hog took from server");
    assert_eq!(
        (&pair["verdict"], &pair["scale"]),
        (&"worse".into(), &"difference".into())
    );
    assert_eq!(
        (&pair["taker"], &pair["victim"]),
        (&"hog".into(), &"server".into())
    );
    assert_eq!(
        (&pair["before"], &pair["change_pct"]),
        (&0.0.into(), &Value::Null)
    );
}

/// The runs of B take twice as long and do the same work.
#[test]
fn whole_runs_are_compared_on_request() {
    let mut runs = Runs::new();
    let mut request = runs.sides(|run| run.meta.end_ns += 2_000_000_000);
    let by_second = json(&mut request);
    assert_eq!(row(&by_second, "context switches")["verdict"], "better");
    assert_eq!(row(&by_second, "length of the run")["verdict"], "worse");
    let differences = by_second["differences"].as_array().unwrap();
    assert_eq!(differences[0]["what"], "length", "{differences:?}");
    request.per = Some(Per::Run);
    let by_run = json(&mut request);
    assert_eq!(
        row(&by_run, "context switches")["verdict"],
        "no sure change"
    );
    assert_eq!(row(&by_run, "context switches")["unit"], "per_run");
}

/// The server of B has twice the load; and then it also waits for the disk more often in each turn.
#[test]
fn per_turn_another_load_is_no_change() {
    let mut runs = Runs::new();
    let served = |messages: u64, second_reads_pct: u64| {
        move |run: &mut MadeUpRun| {
            (run.messages, run.second_reads_pct) = (messages + run.seed, second_reads_pct);
        }
    };
    let mut make = |messages, percent| -> Vec<_> {
        let runs = (0..5).map(|_| runs.make(served(messages, percent)));
        runs.collect()
    };
    let (a, loaded, more) = (make(1000, 10), make(2000, 10), make(2000, 32));
    let told = |b: &[PathBuf], per| {
        let mut request = request(a.clone(), b.to_vec());
        request.per = Some(per);
        row(&json(&mut request), "context switches").clone()
    };
    assert_eq!(told(&loaded, Per::Second)["verdict"], "worse");
    let by_turn = told(&loaded, Per::Turn);
    assert_eq!(
        (&by_turn["verdict"], &by_turn["unit"]),
        (&"no sure change".into(), &"per_turn".into())
    );
    let before = by_turn["before"].as_f64().unwrap();
    assert!((2.0..2.2).contains(&before), "{by_turn}");
    let by_turn = told(&more, Per::Turn);
    assert_eq!(by_turn["verdict"], "worse");
    let change = by_turn["change_pct"].as_f64().unwrap();
    assert!((8.0..13.0).contains(&change), "{by_turn}");
    // One on each side is judged by stretches of its time.
    let mut pair = request(vec![a[0].clone()], vec![more[0].clone()]);
    pair.per = Some(Per::Turn);
    assert_eq!(
        row(&json(&mut pair), "context switches")["verdict"],
        "worse"
    );
    // What has no messages has no turns.
    let mut request = request(vec![runs.make(|_| ())], vec![a[0].clone()]);
    request.per = Some(Per::Turn);
    assert!(
        refusal(&request).contains("has no turns"),
        "{}",
        refusal(&request)
    );
}

/// The server of B has twice the load, which is no change of what a span costs; and then each takes a tenth longer.
#[test]
fn where_all_have_spans_amounts_are_per_span() {
    let mut runs = Runs::new();
    let mut make = |messages: u64, span_ns: u64| -> Vec<_> {
        let served = |run: &mut MadeUpRun| {
            run.messages = messages + run.seed;
            run.span_ns = span_ns + run.seed * 7;
        };
        (0..5).map(|_| runs.make(served)).collect()
    };
    let (a, loaded, slower) = (make(1000, 50_000), make(2000, 50_000), make(2000, 55_000));
    let asked = request(a.clone(), loaded);
    let (page, _) = answer(&asked);
    let count = |line: &&str| line.starts_with("per         span query (A 5,");
    assert!(page.lines().any(|line| count(&line)), "{page}");
    let alike = json(&mut request(asked.a, asked.b));
    assert_eq!(
        (&alike["per"], &alike["span"]),
        (&"span".into(), &"query".into())
    );
    let switches = row(&alike, "context switches");
    assert_eq!(
        (&switches["verdict"], &switches["unit"]),
        (&"no sure change".into(), &"per_span".into())
    );
    assert_eq!(
        row(&alike, "length of a span query, p50")["verdict"],
        "no sure change"
    );
    let slower = json(&mut request(a.clone(), slower));
    let length = row(&slower, "length of a span query, p50");
    assert_eq!(
        (&length["verdict"], &length["kind"]),
        (&"worse".into(), &"span".into())
    );
    // One trace without spans: seconds, unless spans were asked for.
    let without = vec![runs.make(|run| run.messages = 1000)];
    let mut mixed = request(a, without);
    assert_eq!(json(&mut mixed)["per"], "second");
    mixed.per = Some(Per::Span);
    assert!(
        refusal(&mixed).contains("not every trace has spans of one kind"),
        "{}",
        refusal(&mixed)
    );
}

#[test]
fn a_single_pair_says_how_weak_it_is() {
    let mut runs = Runs::new();
    let [a, b] = [1.0, 1.5].map(|factor| runs.make(|run| run.wait_ns *= factor));
    let mut request = request(vec![a], vec![b]);
    let (page, _) = answer(&request);
    assert!(page.contains("B is worse than A: "), "{page}");
    assert!(page.contains("weak: one run on each side"), "{page}");
    let json = json(&mut request);
    assert_eq!(json["method"], "blocks");
    assert_eq!(row(&json, "waits for futex, p50")["verdict"], "worse");
    let length = row(&json, "length of the run");
    assert_eq!(length["verdict"], "not judged");
    assert!(
        length["not_judged_because"]
            .as_str()
            .unwrap()
            .contains("single value")
    );
}

/// Only B has preemptions: there is no ratio, and the blocks of B say how steady they are.
#[test]
fn what_a_single_run_has_and_the_other_has_not_is_new() {
    let mut runs = Runs::new();
    let a = runs.make(|run| run.preemptions = 0);
    let b = runs.make(|_| ());
    let mut request = request(vec![a], vec![b]);
    let (page, _) = answer(&request);
    assert!(page.contains("preemptions: hog took from server"), "{page}");
    let json = json(&mut request);
    let pair = row(&json, "preemptions: hog took from server");
    assert_eq!(
        (&pair["verdict"], &pair["change_pct"]),
        (&"worse".into(), &Value::Null)
    );
}

#[test]
fn what_is_too_rare_is_counted_and_not_dropped() {
    let mut runs = Runs::new();
    let mut request = runs.sides(|run| run.preemptions = 3);
    let mut few = runs.sides(|run| run.preemptions = 3);
    request.a = few.b.split_off(0);
    let (page, _) = answer(&request);
    assert!(page.contains("too rare to judge"), "{page}");
    let json = json(&mut request);
    let rare = row(&json, "switches: wakeup");
    assert_eq!(rare["not_judged_because"], "too rare to judge");
    assert!(rare["before"].as_f64().unwrap() > 0.0);
}

/// Sums of a host on which nobody waited for a CPU while it was recorded.
fn idle_host() -> HostLoad {
    HostLoad {
        cpu_pressure_before_ns: Some(7_000),
        cpu_pressure_after_ns: Some(7_000),
        steal_before_ns: Some(7_000),
        steal_after_ns: Some(7_000),
        ..HostLoad::default()
    }
}

/// A side whose traces do not tell how loaded the host was is not said to differ from one that was idle.
#[test]
fn a_load_that_is_not_known_is_no_difference() {
    let mut runs = Runs::new();
    let mut request = runs.sides(|run| run.meta.load = idle_host());
    let json = json(&mut request);
    assert_eq!(json["differences"], Value::Array(Vec::new()), "{json:#}");
    assert_eq!(json["b"]["runs"][0]["steal_ns"], 0);
    assert_eq!(json["a"]["runs"][0]["steal_ns"], Value::Null);
}

#[test]
fn every_difference_says_why_it_matters() {
    let mut runs = Runs::new();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        a.push(runs.make(|run| {
            run.meta.host.cpu_model = Some("one".to_owned());
            run.meta.load = idle_host();
        }));
    }
    for _ in 0..2 {
        b.push(runs.make(|run| {
            run.meta.host.kernel_release = "7.3.0".to_owned();
            run.meta.host.preemption = Some("lazy".to_owned());
            run.meta.host.cpu_model = Some("another one".to_owned());
            let length = run.meta.end_ns - run.meta.start_ns;
            run.meta.load = HostLoad {
                cpu_pressure_after_ns: Some(7_000 + length / 2),
                steal_after_ns: Some(7_000 + length / 5),
                ..idle_host()
            };
            run.meta.counts.filtered = 50_000;
            run.meta.counts.lost = 3;
            run.meta.counts.lost_names = 2;
        }));
    }
    let json = json(&mut request(a, b));
    let differences = json["differences"].as_array().unwrap();
    let what: Vec<_> = differences
        .iter()
        .map(|one| one["what"].as_str().unwrap())
        .collect();
    assert_eq!(
        what,
        [
            "CPU model",
            "kernel",
            "preemption",
            "load by others",
            "CPU pressure",
            "stolen time",
            "lost records",
            "lost names",
            "order"
        ]
    );
    assert!(
        differences
            .iter()
            .all(|one| one["why"].as_str().unwrap().len() > 20)
    );
}

#[test]
fn one_recording_is_one_run() {
    let mut runs = Runs::new();
    let [a, b] = [1, 2].map(|_| runs.make(|_| ()));
    let said = refusal(&request(vec![a.clone()], vec![a.clone()]));
    assert!(
        said.contains("is on side A, and the same recording is on side B"),
        "{said}"
    );
    let said = refusal(&request(vec![a.clone(), a.clone()], vec![b.clone()]));
    assert!(said.contains("both are on side A"), "{said}");
    let missing = runs.dir.path().join("no.swtch");
    let said = refusal(&request(vec![a], vec![missing]));
    assert!(said.contains("there is no"), "{said}");
}

#[test]
fn places_and_prices_are_compared_where_they_are_known() {
    let mut runs = Runs::new();
    let stacks = |run: &mut MadeUpRun| {
        run.has_stacks = true;
        run.meta.stacks = Some(StackSettings::default());
    };
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        a.push(runs.make(stacks));
        b.push(runs.make(|run| {
            stacks(run);
            run.waits *= 2;
        }));
    }
    let mut request = request(a, b);
    request.prices = Some(prices());
    let json = json(&mut request);
    let rows = json["rows"].as_array().unwrap();
    let place = rows.iter().find(|row| row["kind"] == "stack").unwrap();
    assert_eq!(
        (&place["verdict"], &place["reason"]),
        (&"worse".into(), &"futex".into())
    );
    assert!(
        place["stack"].as_str().unwrap().starts_with("server;"),
        "{place}"
    );
    let price = row(&json, "price of the switches");
    assert_eq!(
        (&price["verdict"], &price["unit"]),
        (&"worse".into(), &"ns_per_s".into())
    );
    let futex = row(&json, "switches: futex");
    assert_eq!(futex["reason"], Reason::Futex.as_str());
}

/// Names come from outside; no format shows a control character.
#[test]
fn hostile_names_are_escaped() {
    let mut runs = Runs::new();
    let hostile = |run: &mut MadeUpRun| run.comm = "\u{1b}[2Jx\n,\"".to_owned();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        a.push(runs.make(hostile));
        b.push(runs.make(|run| {
            hostile(run);
            run.preemptions *= 2;
        }));
    }
    let mut request = request(a, b);
    request.shows_all = true;
    for format in Format::ALL {
        request.format = format;
        let (text, _) = answer(&request);
        let is_plain = |c: char| c == '\n' || c == '\r' || !swtch_output::text::is_hostile(c);
        assert!(text.chars().all(is_plain), "{format:?}: {text}");
        assert!(text.contains("hog took from"), "{format:?}: {text}");
    }
}

#[test]
fn a_filter_holds() {
    let mut runs = Runs::new();
    let mut request = runs.sides(|_| ());
    request.filter.reasons = vec![Reason::Futex];
    let json = json(&mut request);
    assert!(!json["rows"].as_array().unwrap().is_empty());
    assert_eq!(json["filter"], "--reason futex");
    assert!(
        json["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["reason"] != "wakeup")
    );
}

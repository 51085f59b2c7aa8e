//! Spans of threads between two places of their program: found, counted, divided by what the switches say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use swtch_store::{SpanRow, Trace};

use crate::machine::beside_others;
use crate::names;
use crate::recording::{Recording, TraceDir, stderr, stdout, swtch};

/// Serves forty times, and sleeps meanwhile; every tenth time for longer. Each time it passes two markers, as `sys/sdt.h`
/// makes them. Beside it a function that is left by a jump.
const SHOP: &str = r#"
#include <setjmp.h>
#include <time.h>
__asm__(".pushsection .stapsdt.base,\"aG\",%progbits,.stapsdt.base,comdat\n.weak _.stapsdt.base\n"
	"_.stapsdt.base: .space 1\n.popsection\n");
#define MARK(name) __asm__ volatile("990: nop\n.pushsection .note.stapsdt,\"\",%%note\n.balign 4\n" \
	".4byte 992f-991f,994f-993f,3\n991: .asciz \"stapsdt\"\n992: .balign 4\n" \
	"993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte 0\n.asciz \"shop\"\n.asciz \"" name "\"\n.asciz \"\"\n" \
	"994: .balign 4\n.popsection\n" ::)
static volatile long done;
static jmp_buf back;
__attribute__((noinline)) void sleep_ms(int ms) { struct timespec t = {0, ms * 1000000L}; nanosleep(&t, 0); }
__attribute__((noinline)) void serve(int ms) { MARK("order_begin"); sleep_ms(ms); MARK("order_end"); done++; }
__attribute__((noinline)) void fail(void) { MARK("fail_begin"); if (done >= 0) longjmp(back, 1); MARK("fail_end"); }
__attribute__((noinline)) void deep(int n) { if (n) deep(n - 1); else sleep_ms(5); done++; }
int main(void) {
	deep(20);
	for (int i = 0; i < 40; i++) {
		if (!setjmp(back)) fail();
		serve(i % 10 == 9 ? 20 : 2);
	}
}
"#;

fn shop(place: &TraceDir) -> PathBuf {
    names::compiled(place, SHOP, &["-O2", "-no-pie"])
}

/// The facts about a recording's trace.
fn meta_of(recording: &Recording) -> Value {
    let meta = fs::read_to_string(recording.place.trace().join("meta.json")).unwrap();
    serde_json::from_str(&meta).unwrap()
}

/// A recording of a program with these spans.
fn recorded(program: &str, span: &str) -> Recording {
    Recording::that_succeeds(&["--no-stacks", "--span", span, "--", program])
}

fn spans_of(trace: &Path) -> Vec<SpanRow> {
    let mut spans = Vec::new();
    let trace = Trace::open(trace).unwrap();
    trace.each_span(&mut |row| spans.push(row.clone())).unwrap();
    spans
}

fn told(recording: &Recording) -> Value {
    let mut explain = swtch(["explain", "--no-bill", "--format", "json"]);
    let output = explain.arg(recording.place.trace()).output().unwrap();
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
#[ignore = "needs root"]
fn root_spans_are_as_many_as_the_program_has_and_their_parts_are_their_lengths() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = shop(&place);
    let program = program.to_str().unwrap();
    for (places, name) in [
        ("serve".to_owned(), "serve"),
        (
            "usdt:shop:order_begin..usdt:shop:order_end".to_owned(),
            "marker shop:order_begin to marker shop:order_end",
        ),
        (
            "serve..usdt:shop:order_end".to_owned(),
            "function serve to marker shop:order_end",
        ),
    ] {
        let span = format!("{program}:{places}");
        let recording = recorded(program, &span);
        let said = stderr(&recording.output);
        assert!(said.contains("swtch: 40 spans of all processes"), "{said}");
        let spans = spans_of(&recording.place.trace());
        assert!(spans.iter().all(|span| span.name == name), "{spans:?}");
        let lengths: Vec<_> = spans
            .iter()
            .map(|span| span.end.since(span.begin).unwrap().as_ns() / 1_000_000)
            .collect();
        // Others may keep it from the CPU for longer.
        let long = lengths.iter().filter(|ms| **ms >= 20).count();
        assert!((4..=20).contains(&long), "{lengths:?}");
        let answer = told(&recording);
        let turns = &answer["turns"][0];
        assert_eq!(turns["span"], name, "{turns}");
        assert_eq!(turns["from"], "places");
        // The kernel does not report each switch to tracing.
        let (whole, broken) = (count(&turns["all"]["turns"]), count(&turns["broken"]));
        assert!(whole + broken == 40 && broken <= 10, "{turns}");
        let all: u64 = lengths_of(&spans).iter().sum();
        let told = count(&turns["all"]["length_ns"]);
        assert!(
            told == all || (broken > 0 && told < all),
            "{told} of {all}: {turns}"
        );
        let asleep = count(&turns["all"]["blocked_ns_by_reason"]["sleep"]);
        // The time that it sleeps counts from before it leaves its CPU.
        assert!(told >= whole * 2_000_000, "{turns}");
        assert!(asleep > 0 && asleep <= told, "{turns}");
        assert!(count(&turns["all"]["switches"]) >= whole, "{turns}");
        the_slowest_are_listed(&recording, whole);
    }
}

/// The report has a row for each span that is known whole, the longest first, and its parts sum to its length.
fn the_slowest_are_listed(recording: &Recording, whole: u64) {
    let mut report = swtch(["report", "--by", "span", "--format", "json"]);
    let output = report.arg(recording.place.trace()).output().unwrap();
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!(rows.len() as u64, whole, "{answer}");
    for row in rows {
        let parts = ["ran_ns", "runq_ns", "blocked_ns"].map(|part| count(&row[part]));
        assert_eq!(parts.iter().sum::<u64>(), count(&row["length_ns"]), "{row}");
        assert_eq!(row["reason"], "sleep", "{row}");
        // It may be kept from leaving its CPU when the time of its sleep has begun.
        let slept = ["longest_wait_ns", "ran_ns", "runq_ns"].map(|part| count(&row[part]));
        assert!(slept.iter().sum::<u64>() >= 2_000_000, "{row}");
    }
    let lengths = rows.iter().map(|row| count(&row["length_ns"]));
    assert!(lengths.is_sorted_by(|one, next| one >= next), "{answer}");
}

fn count(number: &Value) -> u64 {
    number.as_u64().unwrap()
}

fn lengths_of(spans: &[SpanRow]) -> Vec<u64> {
    let lengths = spans.iter().map(|span| span.end.since(span.begin));
    lengths.map(|length| length.unwrap().as_ns()).collect()
}

/// A summary counts spans in passing, and says what each took.
#[test]
#[ignore = "needs root"]
fn root_a_summary_is_divided_by_spans() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = shop(&place);
    let program = program.to_str().unwrap();
    let span = format!("{program}:serve");
    let told = |format| {
        let words = ["record", "--summary", "--format", format, "--span", &span];
        let output = swtch(words).args(["--", program]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let answer: Value = serde_json::from_str(&told("json")).unwrap();
    let spans = answer["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 1, "{answer}");
    assert_eq!(
        (&spans[0]["span"], count(&spans[0]["count"])),
        (&"serve".into(), 40)
    );
    assert!(count(&spans[0]["p50_ns"]) >= 2_000_000, "{answer}");
    let table = told("table");
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "span serve took ",
        ": 40 spans, ",
        " slept, or waited for a signal",
    ] {
        assert!(words.contains(part), "{part}: {table}");
    }
}

/// Spans whose end is jumped over are counted, and others of the thread are right.
#[test]
#[ignore = "needs root"]
fn root_a_begin_without_an_end_is_no_span() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = shop(&place);
    let program = program.to_str().unwrap();
    let failing = format!("{program}:usdt:shop:fail_begin..usdt:shop:fail_end");
    let recording = recorded(program, &failing);
    let said = stderr(&recording.output);
    // The last is left open.
    let words =
        "no thread has come to both places in time; 39 more began and were left without an end";
    assert!(said.contains(words), "{said}");
    assert_eq!(told(&recording)["turns"], serde_json::json!([]));
    assert_eq!(meta_of(&recording)["spans"]["without_end"], 39);
    let mut explain = swtch(["explain", "--no-bill"]);
    let text = stdout(&explain.arg(recording.place.trace()).output().unwrap());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let untold = "Spans that are not told: 39 began and were left without an end.";
    assert!(words.contains(untold), "{text}");
}

/// Of calls within each other the outermost counts, however many they are.
#[test]
#[ignore = "needs root"]
fn root_of_a_recursive_function_the_outermost_call_counts() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = shop(&place);
    let program = program.to_str().unwrap();
    let span = format!("{program}:deep");
    let recording = recorded(program, &span);
    let spans = spans_of(&recording.place.trace());
    // Of 21 calls within each other eight are kept open at a time, and the others are counted.
    let said = stderr(&recording.output);
    assert_eq!(spans.len(), 8, "{said}");
    let untold = "13 more began within eight others that were open";
    assert!(said.contains(untold), "{said}");
    assert_eq!(meta_of(&recording)["spans"]["too_deep"], 13);
    let turns = &told(&recording)["turns"][0];
    let (whole, broken) = (count(&turns["all"]["turns"]), count(&turns["broken"]));
    assert_eq!(whole + broken, 1, "{turns}");
    let longest = lengths_of(&spans).into_iter().max().unwrap();
    assert_eq!(
        count(&turns["all"]["length_ns"]),
        whole * longest,
        "{turns}"
    );
    assert!(longest >= 5_000_000);
}

/// Probes come and go one after the other. Of a program that is in the middle of its spans all the time, no more than the
/// first and the last are missing.
#[test]
#[ignore = "needs root"]
fn root_spans_are_whole_from_the_first_probe_to_the_last() {
    const ENDLESS: &str = "#include <unistd.h>
static volatile long inner, outer;
__attribute__((noinline)) void part(void) { for (int i = 0; i < 200000; i++) inner++; }
__attribute__((noinline)) void whole(void) { part(); outer++; }
int main(void) { alarm(60); for (;;) whole(); }";
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = names::compiled(&place, ENDLESS, &["-O2", "-no-pie"]);
    let mut child = Command::new(&program).spawn().unwrap();
    let pid = child.id().to_string();
    let spans = ["whole", "part"].map(|function| format!("{}:{function}", program.display()));
    let words = ["--no-stacks", "-d", "1", "-p", &pid];
    let words = [&words[..], &["--span", &spans[0], "--span", &spans[1]]].concat();
    let output = place.record(&words).output().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let meta = fs::read_to_string(place.trace().join("meta.json")).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    // One of each kind may have been under way.
    let begins = count(&meta["spans"]["without_begin"]);
    let ends = count(&meta["spans"]["without_end"]);
    assert!(begins <= 2 && ends == 0, "{}", meta["spans"]);
    let spans = spans_of(&place.trace());
    let of = |name: &str| spans.iter().filter(|span| span.name == name).count();
    assert!(of("whole") > 20, "{}", of("whole"));
    // They are taken for as long as switches are recorded.
    let recorded = count(&meta["end_ns"]) - count(&meta["start_ns"]);
    let lengths: u64 = lengths_of(&spans).iter().sum();
    assert!(
        lengths * 2 > recorded * 3,
        "{lengths} of both kinds in {recorded} ns"
    );
    assert!(
        of("whole").abs_diff(of("part")) <= 1,
        "{} of {}",
        of("part"),
        of("whole")
    );
}

/// What cannot be had is refused before anything starts, with the remedy.
#[test]
#[ignore = "needs root"]
fn root_spans_that_cannot_be_are_refused_with_the_remedy() {
    let place = TraceDir::new();
    let program = shop(&place);
    let program = program.to_str().unwrap();
    for (span, words) in [
        (
            format!("{program}:nowhere"),
            "has no function nowhere; nm lists",
        ),
        (
            format!("{program}:serve..usdt:shop:nothing"),
            "has no marker shop:nothing; readelf -n lists",
        ),
        (
            "/no/such/program:serve".to_owned(),
            "cannot read /no/such/program",
        ),
        (format!("{}:serve", file!()), "cannot read"),
        (
            "/etc/passwd:serve".to_owned(),
            "/etc/passwd is no program or library (ELF)",
        ),
        (
            "serve".to_owned(),
            "a span is postgres, otel, FILE:FUNCTION",
        ),
    ] {
        let output = place
            .record(&["--span", &span, "--", "true"])
            .output()
            .unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{span}: {said}");
        assert!(said.contains(words), "{span}: {said}");
        assert!(!place.trace().exists(), "{span}");
    }
    for options in [
        ["--summary", "--span", "otel"].as_slice(),
        &["--ring", "5m"],
        &["--backend", "perf"],
    ] {
        let span = format!("{program}:serve");
        let words = [options, &["--span", &span, "--", "true"]].concat();
        let output = swtch(["record"])
            .args(words)
            .current_dir(place.dir())
            .output()
            .unwrap();
        let said = stderr(&output);
        assert!(said.contains("leave out --span"), "{options:?}: {said}");
    }
}

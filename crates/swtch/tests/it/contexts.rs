//! Contexts that programs publish for others to read (OTEP 4947): found wherever a program keeps them, and of each switch in
//! a request the id is known.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use swtch_core::{Tid, Timestamp};
use swtch_store::{Columns, SpanRow, Trace};

use crate::machine::beside_others;
use crate::names;
use crate::recording::{Recording, TraceDir, stderr, stdout, swtch};

/// The variable, and what sets it.
const WRITER: &str = r#"
#include <stdint.h>
struct record { uint8_t trace[16], span[8], valid, flags; uint16_t attributes; };
__thread struct record *otel_thread_ctx_v1;
void publish(struct record *record) { *(struct record *volatile *)&otel_thread_ctx_v1 = record; }
"#;

/// Two threads that serve requests for three seconds. In each they sleep four times, and once after it.
const SERVER: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
static void (*set)(struct record *);
static void sleep_ms(int ms) { struct timespec t = {0, ms * 1000000L}; nanosleep(&t, 0); }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static void *serve(void *thread) {
	struct record record;
	double end = now() + 3;
	for (int request = 1; now() < end; request++) {
		memset(&record, 0, sizeof record);
		record.trace[0] = record.span[0] = (long)thread;
		record.trace[14] = request >> 8;
		record.trace[15] = request;
		record.valid = 1;
		set(&record);
		for (int call = 0; call < 4; call++) sleep_ms(2);
		set(0);
		sleep_ms(1);
	}
	return 0;
}
int main(int argc, char **argv) {
	if (argc > 1) set = dlsym(dlopen(argv[1], RTLD_NOW), "publish");
	else set = publish;
	if (!set) { puts(dlerror()); return 1; }
	pthread_t threads[2];
	for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, serve, (void *)(i + 1));
	for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
}
"#;

/// What a server that keeps the variable itself is made of, and one that loads a library for it.
fn own_and_loaded() -> [String; 2] {
    let declared = WRITER
        .lines()
        .filter(|line| !line.contains("otel_thread_ctx_v1"));
    let declared: Vec<_> = declared.collect();
    let without = "static void publish(struct record *record) { (void)record; }";
    [
        [WRITER, SERVER].concat(),
        [&declared.join("\n"), without, SERVER].join("\n"),
    ]
}

/// The requests of each thread, by their number: the row of the table, and how many switches it holds.
type Requests = BTreeMap<(u8, u16), (SpanRow, u64)>;

fn requests(trace: &Path) -> Requests {
    let trace = Trace::open(trace).unwrap();
    let mut requests = Requests::new();
    trace
        .each_span(&mut |row| {
            let id = u128::from_str_radix(row.trace_id.as_ref().unwrap(), 16).unwrap();
            let bytes = id.to_be_bytes();
            let key = (bytes[0], u16::from_be_bytes([bytes[14], bytes[15]]));
            let span = row.span_id.as_ref().unwrap();
            assert_eq!(span, &format!("{:02x}00000000000000", bytes[0]));
            assert_eq!(row.name, "otel trace");
            assert!(requests.insert(key, (row.clone(), 0)).is_none(), "{row:?}");
        })
        .unwrap();
    let tasks = trace.tasks().unwrap();
    let mut left: BTreeMap<Tid, Vec<Timestamp>> = BTreeMap::new();
    trace
        .scan(Columns::TS | Columns::TASK, None, &mut |row| {
            let of = tasks.iter().find(|task| task.task == row.task);
            left.entry(of.unwrap().tid).or_default().push(row.ts);
        })
        .unwrap();
    for (row, switches) in requests.values_mut() {
        let all = left[&row.tid].iter();
        let within = all.filter(|ts| row.begin <= **ts && **ts < row.end);
        *switches = within.count() as u64;
    }
    requests
}

#[test]
#[ignore = "needs root"]
fn root_each_switch_of_a_request_carries_the_id_that_its_program_publishes() {
    let _machine = beside_others();
    let [own, loaded] = own_and_loaded();
    let library = ["-shared", "-fPIC"];
    let at_start = [&library[..], &["-ftls-model=initial-exec"]].concat();
    let servers = [
        (&own, "-pie", None),
        (&loaded, "-pie", Some(&library[..])),
        (&loaded, "-pie", Some(&at_start)),
    ];
    for (server, option, library) in servers {
        serves(server, option, library);
    }
    // The other dialect; in a program that is not moved, addresses of memory are small numbers.
    #[cfg(target_arch = "x86_64")]
    for option in ["-pie", "-no-pie"] {
        serves(
            &loaded,
            option,
            Some(&["-shared", "-fPIC", "-mtls-dialect=gnu2"]),
        );
    }
}

/// Records a server that is compiled so, with the library that it loads, if it does. The shell that starts it becomes it.
fn serves(server: &str, option: &str, library: Option<&[&str]>) {
    let places = [TraceDir::new(), TraceDir::new()];
    let options = ["-O2", "-fPIE", option, "-rdynamic", "-pthread"];
    let program = names::compiled(&places[0], server, &options);
    let library = library.map(|options| names::compiled(&places[1], WRITER, options));
    let mut words = vec!["--no-stacks", "--span", "otel", "--"];
    words.extend(["sh", "-c", "exec \"$0\" \"$@\""]);
    let files = [Some(&program), library.as_ref()].into_iter().flatten();
    words.extend(files.map(|file| file.to_str().unwrap()));
    let recording = Recording::that_succeeds(&words);
    let said = stderr(&recording.output);
    let process = "of 1 process with otel_thread_ctx_v1";
    assert!(said.contains(process), "{server} {option}: {said}");
    let trace = recording.place.trace();
    every_request_is_there(&requests(&trace));
    the_report_has_each(&trace);
}

/// From the moment on at which the process was found, no request is missing, and each has its four switches.
fn every_request_is_there(requests: &Requests) {
    for thread in [1, 2] {
        let of_thread = requests.iter().filter(|((id, _), _)| *id == thread);
        let of_thread: Vec<_> = of_thread.map(|((_, number), one)| (*number, one)).collect();
        assert!(of_thread.len() > 20, "{of_thread:?}");
        let numbers = of_thread.iter().map(|(number, _)| *number);
        let first = of_thread[0].0;
        assert!(numbers.eq((first..).take(of_thread.len())));
        // It may have been found in the middle of one.
        let all = &of_thread[1..];
        let whole = all.iter().filter(|(_, (_, switches))| *switches == 4);
        // The kernel does not report each switch to tracing, and others may take the CPU.
        assert!(whole.count() * 100 >= all.len() * 90, "{all:?}");
        assert!(all.iter().all(|(_, (_, switches))| *switches >= 3));
    }
}

/// Of each request that is known whole, the parts sum to the length.
fn the_report_has_each(trace: &Path) {
    let mut report = swtch(["report", "--by", "span", "--format", "json"]);
    let answer = report.arg(trace).output().unwrap();
    let answer: Value = serde_json::from_str(&stdout(&answer)).unwrap();
    let rows = answer["rows"].as_array().unwrap();
    assert!(rows.len() > 40, "{answer}");
    for row in rows {
        let parts = ["ran_ns", "runq_ns", "blocked_ns"].map(|part| row[part].as_u64().unwrap());
        assert_eq!(Some(parts.iter().sum()), row["length_ns"].as_u64(), "{row}");
        assert_eq!(row["trace_id"].as_str().map(str::len), Some(32), "{row}");
    }
    one_can_be_followed(trace, &rows[rows.len() / 2]);
}

/// What is asked of one request alone has its switches, and no others.
fn one_can_be_followed(trace: &Path, row: &Value) {
    let id = row["trace_id"].as_str().unwrap();
    let words = ["--by", "thread", "--format", "json", "--only-span", id];
    let answer = swtch(["report"]).args(words).arg(trace).output().unwrap();
    let answer: Value = serde_json::from_str(&stdout(&answer)).unwrap();
    let threads = answer["rows"].as_array().unwrap();
    let switches: u64 = threads
        .iter()
        .map(|row| row["switches"].as_u64().unwrap())
        .sum();
    assert_eq!(Some(switches), row["switches"].as_u64(), "{answer}");
    assert_eq!(threads.len(), 1, "{answer}");
    assert_eq!(threads[0]["tid"], row["tid"]);
}

//! Contexts that programs publish for others to read (OTEP 4947): found wherever a program keeps them, and of each switch in
//! a request the id is known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use swtch_core::{Tid, Timestamp};
use swtch_store::{Columns, SpanRow, Trace};

use crate::machine::beside_others;
use crate::names;
use crate::recording::{Recording, TraceDir, example, stdout, swtch};

/// Where the header is that programs of C include.
const HEADER: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../include");

/// What sets the variable, by the header for programs of C.
const WRITER: &str = r#"
#include "swtch_context.h"
void publish(const uint8_t *trace, const uint8_t *span) {
	static __thread struct swtch_context context;
	if (trace) swtch_context_set(&context, trace, span);
	swtch_context_attach(trace ? &context : 0);
}
"#;

/// Two threads that serve requests for three seconds, and tell of each its thread, begin, end and id. In each they sleep
/// four times, and once after it.
const SERVER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static void (*set)(const uint8_t *, const uint8_t *);
static void sleep_ms(int ms) { struct timespec t = {0, ms * 1000000L}; nanosleep(&t, 0); }
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
static void *serve(void *thread) {
	uint8_t id[16] = {(long)thread};
	long end = now() + 3000000000L;
	for (int request = 1; now() < end; request++) {
		id[6] = request >> 8;
		id[7] = request;
		long begin = now();
		set(id, id);
		for (int call = 0; call < 4; call++) sleep_ms(2);
		set(0, 0);
		printf("%d %ld %ld %02lx0000000000%04x%016d\n", gettid(), begin, now(), (long)thread, request, 0);
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

/// A server that loads a library to publish has nothing of its own.
const NO_WRITER: &str = "
#include <stdint.h>
static void publish(const uint8_t *trace, const uint8_t *span) { (void)trace; (void)span; }
";

/// A stretch of a thread's time in which it served a request, as the program tells.
#[derive(Debug)]
struct ServedStretch {
    tid: Tid,
    begin: Timestamp,
    end: Timestamp,
    trace_id: String,
}

fn served(told: &str) -> Vec<ServedStretch> {
    let lines = told.lines().map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        ServedStretch {
            tid: Tid::new(words[0].parse().unwrap()),
            begin: Timestamp::from_ns(words[1].parse().unwrap()),
            end: Timestamp::from_ns(words[2].parse().unwrap()),
            trace_id: words[3].to_owned(),
        }
    });
    lines.collect()
}

/// From the moment on at which the process was found, at least 99 % of the switches inside requests carry the id of that
/// very one, and no request is missing.
fn switches_carry_the_id(trace: &Path, served: &[ServedStretch]) {
    let trace = Trace::open(trace).unwrap();
    // Others may publish at the same time, too.
    let own: BTreeSet<_> = served.iter().map(|one| one.tid).collect();
    let mut spans: BTreeMap<Tid, Vec<SpanRow>> = BTreeMap::new();
    trace
        .each_span(&mut |row| {
            if !own.contains(&row.tid) {
                return;
            }
            let id = row.trace_id.as_ref().unwrap();
            assert_eq!(row.span_id.as_deref(), Some(&id[..16]));
            assert_eq!(row.name, "otel trace");
            spans.entry(row.tid).or_default().push(row.clone());
        })
        .unwrap();
    let found = spans.values().flatten().map(|row| row.begin).min().unwrap();
    let served: Vec<_> = served.iter().filter(|one| one.begin >= found).collect();
    assert!(served.len() > 40, "{served:?}");
    for one in &served {
        let mut of_thread = spans[&one.tid].iter();
        assert!(
            of_thread.any(|row| row.trace_id.as_ref() == Some(&one.trace_id)),
            "{one:?}"
        );
    }
    let tasks = trace.tasks().unwrap();
    let (mut inside, mut carry) = (0_u64, 0_u64);
    trace
        .scan(Columns::TS | Columns::TASK, None, &mut |row| {
            let task = tasks.iter().find(|task| task.task == row.task);
            let tid = task.unwrap().tid;
            let mut served = served.iter().filter(|one| one.tid == tid);
            let Some(one) = served.find(|one| one.begin <= row.ts && row.ts < one.end) else {
                return;
            };
            let mut rows = spans[&tid].iter();
            let of_row = rows.find(|span| span.begin <= row.ts && row.ts < span.end);
            inside += 1;
            carry +=
                u64::from(of_row.and_then(|span| span.trace_id.as_ref()) == Some(&one.trace_id));
        })
        .unwrap();
    assert!(inside > 40, "{inside} switches");
    assert!(carry * 100 >= inside * 99, "{carry} of {inside} switches");
}

#[test]
#[ignore = "needs root"]
fn root_each_switch_of_a_request_carries_the_id_that_its_program_publishes() {
    let _machine = beside_others();
    let [own, loaded] = [WRITER, NO_WRITER].map(|writer| [writer, SERVER].concat());
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
    let exported = "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1";
    let options = [HEADER, "-O2", "-fPIE", option, exported, "-pthread"];
    let program = names::compiled(&places[0], server, &options);
    let library = library
        .map(|options| names::compiled(&places[1], WRITER, &[&[HEADER, "-O2"], options].concat()));
    let mut command = vec!["sh", "-c", "exec \"$0\" \"$@\""];
    let files = [Some(&program), library.as_ref()].into_iter().flatten();
    command.extend(files.map(|file| file.to_str().unwrap()));
    let trace = recorded(&command);
    the_report_has_each(&trace.place.trace());
}

/// Records a program that tells what it serves.
fn recorded(command: &[&str]) -> Recording {
    let words = [&["--no-stacks", "--span", "otel", "--"], command].concat();
    let recording = Recording::that_succeeds(&words);
    let told = served(&stdout(&recording.output));
    switches_carry_the_id(&recording.place.trace(), &told);
    recording
}

#[test]
#[ignore = "needs root"]
fn root_each_switch_carries_the_id_of_the_fiber_that_runs() {
    let _machine = beside_others();
    recorded(&[example("fiber_requests").to_str().unwrap()]);
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

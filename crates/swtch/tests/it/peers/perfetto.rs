//! Perfetto's trace processor: runs, blocked time and run-queue time of each thread must be those
//! of the report, to the nanosecond.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use swtch_core::{Level, Switch, Wait};
use swtch_store::Trace;

use super::{reader, report_by_thread, script};
use crate::exports::SyntheticTrace;
use crate::machine::{TestProcess, alone};
use crate::recording::{SWTCH, TraceDir, stderr, swtch};

/// For each thread id: switches, and ns running, blocked and runnable.
type ByThread = BTreeMap<u64, [u64; 4]>;

/// The answers of Perfetto's trace processor to each query.
fn ask_perfetto(reader: &OsString, trace: &Path, queries: &[&str]) -> Vec<Value> {
    let output = Command::new("node")
        .arg(script("trace_processor.js"))
        .args([reader.as_os_str(), trace.as_os_str()])
        .args(queries)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const ERRORS: &str = "SELECT name FROM stats WHERE value > 0 AND severity != 'info'";
const RUNS: &str =
    "SELECT tid, count(*) AS switches, sum(dur) AS ns FROM sched JOIN thread USING (utid)
    WHERE tid BETWEEN 1 AND 4194303 AND dur >= 0 GROUP BY tid";
const STATES: &str = "SELECT tid, state, sum(dur) AS ns FROM thread_state JOIN thread USING (utid)
    WHERE tid BETWEEN 1 AND 4194303 AND dur >= 0 GROUP BY tid, state";

/// Returns what the trace processor reads from an export, by thread.
fn perfettos(reader: &OsString, export: &Path, trace_dir: &Path) -> ByThread {
    let answers = ask_perfetto(reader, export, &[ERRORS, RUNS, STATES]);
    let errors = answers[0].as_array().unwrap().iter();
    let errors: BTreeSet<_> = errors.filter_map(|error| error["name"].as_str()).collect();
    // Lost records are marked on their CPU, in the way that the format provides.
    let has_lost = !Trace::open(trace_dir).unwrap().gaps().unwrap().is_empty();
    let expected = has_lost.then_some("ftrace_cpu_has_data_loss");
    assert_eq!(errors, BTreeSet::from_iter(expected));
    let mut threads = ByThread::new();
    for run in answers[1].as_array().unwrap() {
        let number = |name: &str| run[name].as_u64().unwrap();
        let thread = threads.entry(number("tid")).or_default();
        *thread = [number("switches"), number("ns"), 0, 0];
    }
    for state in answers[2].as_array().unwrap() {
        let thread = threads.entry(state["tid"].as_u64().unwrap()).or_default();
        let ns = state["ns"].as_u64().unwrap();
        match state["state"].as_str().unwrap() {
            "Running" => assert_eq!(ns, thread[1], "{state}"),
            "R" | "R+" => thread[3] += ns,
            "PI" => {}
            _ => thread[2] += ns,
        }
    }
    threads
}

/// Ids of threads that are not in the scope of the recording.
fn out_of_scope(trace: &Path) -> BTreeSet<u64> {
    let events = Trace::open(trace).unwrap().tasks().unwrap();
    let others = events.iter().filter(|event| !event.in_scope);
    others.map(|event| event.tid.get().into()).collect()
}

/// Exports to Perfetto and compares every thread of the report with its reader. Returns the number
/// of switches.
fn perfetto_agrees(reader: &OsString, trace: &Path, words: &[&str]) -> u64 {
    let export = trace.with_extension("pftrace");
    let output = swtch(["export", "--to", "perfetto", "-o"])
        .args([&export, trace])
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let theirs = perfettos(reader, &export, trace);
    let columns = ["switches", "ran_ns", "blocked_ns", "runq_ns"];
    let ours = report_by_thread(trace, words, columns);
    // A thread that only waited until the end is in the report but in no table of the reader.
    let of_theirs = |tid: &u64| (*tid, theirs.get(tid).copied().unwrap_or_default());
    let known: ByThread = ours.keys().map(of_theirs).collect();
    assert_eq!(known, ours, "{words:?}");
    // Of threads out of scope, a recording has the runs that others waited for, but no waits.
    let others = out_of_scope(trace);
    let is_empty = |tid, sums: &[u64; 4]| match others.contains(tid) {
        true => sums[2..] == [0, 0],
        false => *sums == [0; 4],
    };
    let unknown = theirs
        .iter()
        .find(|(tid, sums)| !ours.contains_key(tid) && !is_empty(tid, sums));
    assert_eq!(unknown, None, "a thread that is in no report: {words:?}");
    let switches = ours.values().map(|sums| sums[0]).sum();
    println!("{} {words:?}: {switches} switches agree", trace.display());
    switches
}

#[test]
fn perfettos_own_reader_agrees_with_the_report() {
    let Some(reader) = reader("SWTCH_TRACE_PROCESSOR") else {
        return;
    };
    let drawn = SyntheticTrace::new();
    for words in [
        &[][..],
        &["--comm", "server"],
        &["--since", "1ms", "--until", "9ms"],
    ] {
        assert!(perfetto_agrees(&reader, &drawn.place.trace(), words) > 100);
    }
    let (path, _) = drawn.export("perfetto", &[]);
    let workers = "SELECT count(*) AS n FROM slice WHERE category = 'user'";
    let waits =
        "SELECT count(*) AS n FROM slice WHERE name = 'futex' AND category = 'synchronization'";
    let answers = ask_perfetto(&reader, &path, &[workers, waits]);
    assert_eq!(answers[0][0]["n"], 1);
    // Two threads of 500 runs: a wait before each but the first, and one open at the end.
    assert_eq!(answers[1][0]["n"], 1_000);
}

/// The reader extends a state to the next event of its thread. Where rows are missing, or do not
/// tell when a run began or who woke the thread, that is longer than the trace says.
#[test]
fn perfettos_own_reader_concludes_no_time_that_the_trace_does_not_tell() {
    let Some(reader) = reader("SWTCH_TRACE_PROCESSOR") else {
        return;
    };
    let drawn = SyntheticTrace::changed(|rows| {
        let mut number = 0;
        rows.retain(|row| {
            number += 1;
            row.level == Level::User || number % 10 != 0
        });
        for (number, row) in rows.iter_mut().enumerate() {
            if number % 13 == 0 {
                *row = without_start(row);
            } else if number % 17 == 0 {
                (row.wait.runq, row.wait.wakeup.kind) = (None, None);
            }
        }
    });
    let trace = drawn.place.trace();
    assert!(perfetto_agrees(&reader, &trace, &[]) > 1_000);
    assert!(perfetto_agrees(&reader, &trace, &["--since", "1ms", "--until", "9ms"]) > 100);
}

fn without_start(row: &Switch) -> Switch {
    Switch {
        ran: None,
        wait: Wait::default(),
        ..*row
    }
}

/// A recording of a million switches and more on this machine.
#[test]
#[ignore = "needs root"]
fn root_perfettos_own_reader_agrees_with_a_recording_of_a_million_switches() {
    let Some(reader) = reader("SWTCH_TRACE_PROCESSOR") else {
        return;
    };
    let _machine = alone();
    let place = TraceDir::new();
    let _loads = [["storm", "3000"], ["nanosleep", "2000"], ["pipe", "50000"]].map(load);
    let output = place.record(&["-a", "-d", "3"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(perfetto_agrees(&reader, &place.trace(), &[]) > 1_000_000);
    perfetto_agrees(&reader, &place.trace(), &["--since", "1", "--until", "1.5"]);
}

/// While the recorder is stopped its rings fill up, and further records are lost.
#[test]
#[ignore = "needs root"]
fn root_perfettos_own_reader_agrees_with_a_recording_that_lost_switches() {
    let Some(reader) = reader("SWTCH_TRACE_PROCESSOR") else {
        return;
    };
    let _machine = alone();
    let place = TraceDir::new();
    let _loads = [["storm", "3000"], ["nanosleep", "2000"]].map(load);
    let mut recorder = TestProcess::start(&mut place.record(&["-a", "-d", "2"]));
    thread::sleep(Duration::from_millis(800));
    recorder.signal(libc::SIGSTOP);
    thread::sleep(Duration::from_millis(800));
    recorder.signal(libc::SIGCONT);
    assert!(recorder.ends_within(Duration::from_secs(60)).success());
    let trace = Trace::open(&place.trace()).unwrap();
    let lost: u64 = trace.gaps().unwrap().iter().map(|gap| gap.lost).sum();
    println!("{lost} switches were lost");
    assert!(lost > 0, "the recorder was stopped in vain");
    perfetto_agrees(&reader, &place.trace(), &[]);
}

/// Rows of other threads are recorded only where they had the CPU meanwhile.
#[test]
#[ignore = "needs root"]
fn root_perfettos_own_reader_agrees_with_a_recording_of_one_process() {
    let Some(reader) = reader("SWTCH_TRACE_PROCESSOR") else {
        return;
    };
    let _machine = alone();
    let place = TraceDir::new();
    let _other = load(["pipe-processes", "100000"]);
    let pipe = load(["pipe", "500000"]);
    let pid = pipe.pid().to_string();
    let output = place.record(&["-p", &pid, "-d", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(perfetto_agrees(&reader, &place.trace(), &[]) > 1_000);
}

/// A workload that makes switches until it is dropped, or has made `count` of them.
fn load([name, count]: [&str; 2]) -> TestProcess {
    let mut command = Command::new(SWTCH);
    command.args(["workload", "--quiet", name, "--count", count]);
    TestProcess::start(command.stderr(Stdio::null()))
}

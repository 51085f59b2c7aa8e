//! Threads that were blocked all the time make no switch, and are named all the same.

use std::fs;
use std::process::Command;

use serde_json::Value;
use swtch_store::Trace;

use crate::machine::{TestProcess, beside_others, wait_until};
use crate::recording::{TraceDir, stderr, stdout, swtch};

/// Waits until `ps` would show this state.
fn reaches(process: &TestProcess, state: &str) {
    let path = format!("/proc/{}/stat", process.pid());
    wait_until("it is blocked", || {
        let stat = fs::read_to_string(&path).unwrap();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with(state))
    });
}

#[test]
#[ignore = "needs root"]
fn root_threads_that_are_blocked_all_the_time_are_named_with_call_and_state() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let fifo = place.dir().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let mut open = Command::new("sh");
    let open = TestProcess::start(open.args(["-c", "exec 3< \"$0\""]).arg(&fifo));
    let stopped = TestProcess::start(Command::new("sleep").arg("600"));
    reaches(&open, "S");
    reaches(&stopped, "S");
    stopped.signal(libc::SIGSTOP);
    reaches(&stopped, "T");
    let pids = [&open, &stopped].map(|process| process.pid().to_string());
    let recorded = place
        .record(&["-p", &pids[0], "-p", &pids[1], "-d", "0.5"])
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{}", stderr(&recorded));

    let trace = Trace::open(&place.trace()).unwrap();
    let lasting = trace.meta().lasting.clone().unwrap();
    assert_eq!((lasting.threads, lasting.not_listed), (2, 0), "{lasting:?}");
    for group in &lasting.groups {
        assert_eq!(group.tids, [group.pid], "{group:?}");
        let ran = group.ran_last_ns.unwrap();
        assert!(ran < trace.meta().start_ns, "{group:?}");
        assert!(group.function.is_some(), "{group:?}");
    }

    let path = place.trace();
    let explain = |words: &[&str]| {
        let mut explain = swtch(["explain", path.to_str().unwrap(), "--no-bill"]);
        let output = explain.args(words).env("COLUMNS", "300").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    // A screen is at most 100 columns wide: a sentence goes on below its label.
    let screen = explain(&[]).replace("\n         ", " ");
    for line in [
        format!("blocked: 1 thread of sleep (process {}) in ", pids[1]),
        "state T (stopped by a signal), since before the recording; last on a CPU ".to_owned(),
        format!(
            "blocked: 1 thread of sh (process {}) in openat (kernel: ",
            pids[0]
        ),
        "state S (asleep), since before the recording; last on a CPU ".to_owned(),
    ] {
        assert!(screen.contains(&line), "{line}: {screen}");
    }
    assert!(explain(&["--full"]).contains("threads that were blocked all the time\n"));
    let json: Value = serde_json::from_str(&explain(&["--format", "json"])).unwrap();
    let rows = json["lasting"].as_array().unwrap();
    let calls: Vec<_> = rows.iter().map(|row| &row["syscall"]).collect();
    assert!(calls.contains(&&Value::from("openat")), "{rows:?}");
}

/// A thread that runs between is in the rows, and a process out of scope is nobody's business.
#[test]
#[ignore = "needs root"]
fn root_threads_that_run_or_are_out_of_scope_are_not_called_blocked_all_the_time() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let _stranger = TestProcess::start(Command::new("sleep").arg("600"));
    let script = "while :; do sleep 0.05; done";
    let busy = TestProcess::start(Command::new("sh").args(["-c", script]));
    let recorded = place
        .record(&["-p", &busy.pid().to_string(), "-d", "0.5"])
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    let trace = Trace::open(&place.trace()).unwrap();
    let lasting = trace.meta().lasting.clone().unwrap();
    assert!(lasting.groups.is_empty(), "{lasting:?}");
}

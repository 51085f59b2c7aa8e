//! Compares the numbers that `docs/COMING-FROM.md` calls equal: another tool and swtch watch the same processes during
//! their whole life.
//!
//! ```text
//! sh waits ─▶ both attach to it ─▶ it is let go, and becomes the load ─▶ the load ends ─▶ both are ended
//! ```

use std::fs::File;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use swtch_core::{Reason, Switch};
use swtch_store::Trace;

use crate::machine::{alone, send, wait_until};
use crate::recording::{SWTCH, TraceContents, TraceDir, swtch};

/// Time in which a tool of libbpf-tools has attached itself: it does not tell when.
const ATTACHES_WITHIN: Duration = Duration::from_secs(3);

/// The output of a tool, and swtch's recording of the same load.
struct WatchedLoad {
    printed: String,
    recorded: TraceContents,
}

/// Runs a tool of libbpf-tools on a workload that swtch records, too; `None` if it is not installed.
fn watch(tool: &str, options: &[&str], load: &str) -> Option<WatchedLoad> {
    let help = Command::new(tool).arg("--help").output().ok()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    // The tools of bcc have the same names, and say "usage" otherwise.
    help.contains("USAGE: ").then_some(())?;
    let place = TraceDir::new();
    let mut load = Command::new("sh")
        .args(["-c", "read go && exec \"$0\" workload \"$1\"", SWTCH, load])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = load.id().to_string();
    let path = place.dir().join("printed");
    let mut other = Command::new(tool)
        .args(options)
        .args(["-p", &pid])
        .stdout(File::create(&path).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut recorder = swtch(["record", "--no-children", "-o"]);
    recorder
        .arg(place.trace())
        .args(["-p", &pid])
        .stderr(Stdio::null());
    let mut recorder = recorder.spawn().unwrap();
    wait_until("the recorder is there", || {
        place.trace().join("meta.json").exists()
    });
    thread::sleep(ATTACHES_WITHIN);
    load.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(load.wait().unwrap().success());
    assert!(recorder.wait().unwrap().success());
    end(&mut other);
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    assert_eq!(recorded.counts().lost, 0);
    let printed = std::fs::read_to_string(path).unwrap();
    Some(WatchedLoad { printed, recorded })
}

fn end(tool: &mut Child) {
    send(tool.id(), libc::SIGINT);
    tool.wait().unwrap();
}

/// The sum of a histogram's counts: `2 -> 3 : 34 |****`.
fn waits_in(histogram: &str) -> usize {
    let count = |line: &str| -> Option<usize> {
        let (range, rest) = line.split_once(" : ")?;
        range.contains("->").then_some(())?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    };
    histogram.lines().filter_map(count).sum()
}

fn rows_in_scope(recorded: &TraceContents) -> Vec<&Switch> {
    let tasks = recorded.tasks.iter().filter(|task| task.in_scope);
    let own: std::collections::BTreeSet<_> = tasks.map(|task| task.task).collect();
    let rows = recorded.switches.iter();
    rows.filter(|row| own.contains(&row.task)).collect()
}

fn assert_near(what: &str, others: usize, ours: usize) {
    println!("{what}: {others}, swtch: {ours}");
    assert!(ours > 40, "{what}: {ours}");
    assert!(
        others.abs_diff(ours) * 100 <= ours.max(100),
        "{what}: {others}, swtch: {ours}"
    );
}

#[test]
#[ignore = "needs root"]
fn root_runqlat_counts_the_waits_of_swtch() {
    let _machine = alone();
    let _quiet = swtch_test::depends_on_quiet();
    for load in ["futex", "hogs"] {
        let Some(both) = watch("runqlat", &[], load) else {
            swtch_test::skip!("runqlat of libbpf-tools is not installed");
        };
        let rows = rows_in_scope(&both.recorded);
        let waits = rows.iter().filter(|row| row.wait.length().is_some());
        assert_near("runqlat", waits_in(&both.printed), waits.count());
    }
}

/// It leaves out every run that ended by the task's own wish.
#[test]
#[ignore = "needs root"]
fn root_cpudist_counts_only_runs_that_ended_involuntarily() {
    let _machine = alone();
    let _quiet = swtch_test::depends_on_quiet();
    let Some(both) = watch("cpudist", &[], "hogs") else {
        swtch_test::skip!("cpudist of libbpf-tools is not installed");
    };
    let rows = rows_in_scope(&both.recorded);
    let involuntary = rows.iter().filter(|row| row.evidence.state == 0);
    assert_near("cpudist", waits_in(&both.printed), involuntary.count());
    assert!(
        rows.iter().any(|row| row.rule.reason == Reason::Exit),
        "there are others, too"
    );
}

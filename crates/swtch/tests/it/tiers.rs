//! What is recorded without root, held against what root records of the same run by eBPF programs.
//!
//! ```text
//! swtch record (root, eBPF) ─▶ swtch record (nobody, perf events) ─▶ workload
//!        └▶ root.swtch                └▶ own.swtch         the same threads in both
//! ```

use std::collections::BTreeMap;
use std::fs;

use swtch_core::{EvidenceBits, Reason, Switch};
use swtch_store::{RecordingBackend, Trace};

use crate::machine::alone;
use crate::recording::{Ids, SWTCH, TraceContents, TraceDir, stderr, stdout, swtch};
use crate::stranger::Stranger;

/// Moments of one switch in both traces: the record of perf is written a little after the
/// tracepoint.
const MOST_APART_NS: u64 = 200_000;

/// As long as the teardown of a task may take between the record of its exit and its last switch.
const MOST_EXIT_NS: u64 = 100_000_000;

/// `TASK_DEAD` (`include/linux/sched.h`).
const TASK_DEAD: u32 = 0x80;

fn is_last(row: &Switch) -> bool {
    row.evidence.state & TASK_DEAD != 0
}

/// Whether two rows of a thread are of one switch. The record of an exit stands for the last
/// switch-out, before which a task may still wait until its address space is taken down.
fn is_same(of_root: &Switch, own: &Switch) -> bool {
    let apart = of_root.ts.as_ns().abs_diff(own.ts.as_ns());
    match is_last(own) {
        true => is_last(of_root) && apart < MOST_EXIT_NS,
        false => of_root.cpu == own.cpu && apart < MOST_APART_NS,
    }
}

/// The rows of each thread, by its ids.
fn rows(recorded: &TraceContents) -> BTreeMap<Ids, Vec<&Switch>> {
    recorded.by_thread()
}

/// Records a workload without root, and root records all of it.
fn record_both(load: &[&str]) -> (TraceContents, TraceContents) {
    let stranger = Stranger::new();
    let place = TraceDir::new();
    let own = stranger.dir().join("own.swtch");
    let mut command = swtch(["record", "-o"]);
    command.arg(place.trace()).args(["--", "setpriv"]);
    command.args(Stranger::words(&[])).arg(stranger.program());
    command.args(["record", "-o"]).arg(&own).arg("--");
    let program = stranger.program().to_str().unwrap();
    command.args(
        load.iter()
            .map(|word| if *word == SWTCH { program } else { word }),
    );
    let output = command.current_dir(stranger.dir()).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("by perf events"), "{said}");
    let open = |path| TraceContents::new(Trace::open(path).unwrap());
    (open(&place.trace()), open(&own))
}

/// Every switch that the stranger sees is one of root's, at the same moment, on the same CPU, and
/// of the same side: asleep, or able to run on.
#[test]
#[ignore = "needs root"]
fn root_without_root_the_same_switches_are_seen_and_none_is_called_wrongly() {
    let _machine = alone();
    for load in ["futex", "sampler", "yield", "wait4", "hogs", "forks"] {
        let words = [SWTCH, "workload", load];
        let (roots, own) = record_both(&words);
        assert_eq!(own.meta.backend, RecordingBackend::Perf);
        assert_eq!(own.meta.counts.lost, 0, "{load}");
        own.assert_balanced();
        let (roots, own) = (rows(&roots), rows(&own));
        let (mut seen, mut there) = (0, 0);
        for (ids, own) in &own {
            let all = &roots[ids];
            let first = own[0].ts.as_ns().saturating_sub(MOST_APART_NS);
            // Root has recorded the thread before the stranger's recording began, and sees what it
            // does in its own end, between the record of its exit and its last switch.
            let end = own.last().map_or(0, |row| row.ts.as_ns());
            let is_seen = |row: &&&Switch| {
                let ts = row.ts.as_ns();
                ts >= first && (ts <= end || is_last(row))
            };
            let all: Vec<_> = all.iter().filter(is_seen).collect();
            there += all.len();
            seen += own.len();
            let mut all = all.into_iter();
            for row in own {
                let same = all.find(|of_root| is_same(of_root, row));
                let same = same.unwrap_or_else(|| panic!("{load}, {ids:?}: root has no {row:?}"));
                let reason = match same.evidence.state {
                    // Preempted inside the kernel, on its way to sleep.
                    _ if same.evidence.bits.has(EvidenceBits::KERNEL_PREEMPT) => Reason::Preempted,
                    0 => Reason::Preempted,
                    _ if is_last(same) => Reason::Exit,
                    _ => Reason::Blocked,
                };
                assert_eq!(row.rule.reason, reason, "{load}, {ids:?}: {same:?}");
            }
        }
        println!("{load}: {seen} switches seen without root, {there} by root");
        assert!(seen > 100, "{load}: {seen}");
        assert!(seen * 100 >= there * 99, "{load}: {seen} of {there}");
    }
}

/// A running process with threads, taken by -p; the answer says what it lacks and how to get it.
#[test]
#[ignore = "needs root"]
fn root_without_root_a_running_process_is_recorded_and_the_answer_says_what_it_lacks() {
    let _machine = alone();
    let stranger = Stranger::new();
    let script = "./swtch workload sampler >&2 & sleep 0.2; ./swtch explain --no-bill -o own.swtch -d 1 -p $!; wait";
    let mut command = std::process::Command::new("setpriv");
    command
        .args(Stranger::words(&[]))
        .args(["sh", "-c", script]);
    let output = command.current_dir(stranger.dir()).output().unwrap();
    let (said, answer) = (stderr(&output), stdout(&output));
    assert!(said.contains("run it with sudo"), "{said}");
    assert!(answer.contains("recorded by perf events"), "{answer}");
    assert!(!answer.contains("complete: 0"), "{answer}");
    let own = TraceContents::new(Trace::open(&stranger.dir().join("own.swtch")).unwrap());
    own.assert_balanced();
    assert!(
        own.by_thread().len() >= 2,
        "its threads: {:?}",
        own.identities()
    );
}

/// What cannot be had without root is refused with the way to it, and nothing is left behind.
#[test]
#[ignore = "needs root"]
fn root_without_root_the_whole_machine_and_stacks_are_refused() {
    let _machine = alone();
    let stranger = Stranger::new();
    for (words, says) in [
        (
            &["record", "--backend", "perf", "-a", "-d", "1"][..],
            "sudo",
        ),
        (&["record", "--stacks", "--", "true"], "cap_perfmon"),
        (
            &["record", "--backend", "proc", "--", "true"],
            "explain --backend proc",
        ),
        (
            &["record", "--backend", "perf", "--stacks", "--", "true"],
            "as root",
        ),
    ] {
        let output = stranger.run(&[], words);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
        let left: Vec<_> = fs::read_dir(stranger.dir()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "only the program: {left:?}");
    }
}

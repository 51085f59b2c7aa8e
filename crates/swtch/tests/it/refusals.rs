//! Whatever cannot be done is refused with the cause and the remedy, and the attempt does no harm.

use std::fs;
use std::path::Path;

use crate::machine::beside_others;
use crate::recording::{Recording, TraceContents, TraceDir, stderr, stdout, swtch};
use crate::stranger::Stranger;
use swtch_store::Trace;

/// An id that no process has: above the largest that the kernel assigns by default.
const NOBODYS_PID: &str = "4194305";

/// The exit code of a refusal.
const REFUSED: Option<i32> = Some(2);

#[test]
fn recording_nothing_is_refused() {
    let output = swtch(["record"]).output().unwrap();
    assert_eq!(output.status.code(), REFUSED);
    assert!(
        stderr(&output).contains("give a command after --"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_path_that_is_no_trace_is_refused() {
    for path in ["/no/such.swtch", "/tmp", "/etc/passwd"] {
        let output = swtch(["report", path]).output().unwrap();
        assert_eq!(output.status.code(), REFUSED, "{path}");
        assert!(stderr(&output).contains(path), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

/// Every command that reads traces refuses other paths and says how to get a trace.
#[test]
fn every_reader_says_how_to_come_to_a_trace() {
    let place = TraceDir::new();
    let path = |name: &str| place.dir().join(name);
    fs::write(path("perf.data"), "PERFILE2 and what follows").unwrap();
    let (missing, of_perf) = (path("nope.swtch"), path("perf.data"));
    for (trace, what, advice) in [
        (&missing, "there is no ", "swtch record"),
        (&of_perf, "perf recorded", "import it first: swtch import "),
    ] {
        for words in [
            &["report"][..],
            &["report", "--by", "thread"],
            &["report", "-o", "page.html"],
            &["report", "-o", "plot.svg"],
            &["export", "--to", "csv"],
            &["view", "--no-open"],
        ] {
            let mut command = swtch(words.iter());
            let output = command.arg(trace).current_dir(place.dir()).output();
            let output = output.unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), REFUSED, "{words:?}: {said}");
            assert!(said.contains(what), "{words:?}: {said}");
            assert!(said.contains(advice), "{words:?}: {said}");
            assert_eq!(stdout(&output), "");
        }
    }
    let left = fs::read_dir(place.dir()).unwrap().count();
    assert_eq!(left, 1, "nothing was written");
}

/// Zeros for a span without data could be taken for an answer, and a picture of it for a quiet
/// time.
#[test]
fn a_span_that_holds_nothing_is_refused_by_every_reader() {
    let place = TraceDir::new();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swtch-store/tests/format-1.swtch");
    for words in [
        &["report"][..],
        &["report", "--by", "reason"],
        &["report", "--by", "level", "--format", "json"],
        &["report", "-o", "page.html"],
        &["report", "-o", "plot.svg"],
        &["export", "--to", "csv"],
        &["export", "--to", "perfetto", "-o", "file"],
    ] {
        for (span, why) in [
            (
                ["--since=5", "--until=1"],
                "--until 1 is not after --since 5",
            ),
            (
                ["--since=3600", "--until=7200"],
                "--since 3600 is after its end",
            ),
        ] {
            let mut command = swtch(words.iter());
            let command = command.arg(&kept).args(span).current_dir(place.dir());
            let output = command.output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), REFUSED, "{words:?}: {said}");
            assert!(said.contains(why), "{words:?}: {said}");
            assert_eq!(stdout(&output), "");
        }
    }
    assert_eq!(fs::read_dir(place.dir()).unwrap().count(), 0);
}

#[test]
fn words_that_mean_nothing_are_refused() {
    for words in [
        ["report", "x.swtch", "--by", "moon"],
        ["record", "-a", "-d", "never"],
        ["record", "-a", "-d", "-1"],
        ["record", "-p", "none", "-a"],
        ["record", "-a", "-d", "0"],
    ] {
        let output = swtch(words).output().unwrap();
        assert_eq!(output.status.code(), REFUSED, "{words:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn root_a_process_that_is_not_there_is_refused() {
    let _machine = beside_others();
    let recording = Recording::of(&["-p", NOBODYS_PID]);
    let said = stderr(&recording.output);
    assert_eq!(recording.output.status.code(), REFUSED, "{said}");
    assert!(
        said.contains(&format!("process {NOBODYS_PID} is not there")),
        "{said}"
    );
    assert!(!recording.place.trace().exists());
}

#[test]
#[ignore = "needs root"]
fn root_a_path_that_is_no_cgroup_is_refused() {
    let _machine = beside_others();
    let recording = Recording::of(&["--cgroup", "/etc"]);
    let said = stderr(&recording.output);
    assert_eq!(recording.output.status.code(), REFUSED, "{said}");
    assert!(said.contains("/etc is not a cgroup"), "{said}");
    assert!(!recording.place.trace().exists());
}

/// An existing trace or other file is kept, and the command does not run.
#[test]
#[ignore = "needs root"]
fn root_an_existing_path_is_never_overwritten() {
    let _machine = beside_others();
    let place = TraceDir::new();
    fs::write(place.trace(), "precious").unwrap();
    let mark = place.dir().join("mark");
    let output = place.record(&["--", "touch"]).arg(&mark).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), REFUSED, "{said}");
    assert!(said.contains("already exists"), "{said}");
    assert_eq!(fs::read_to_string(place.trace()).unwrap(), "precious");
    assert!(!mark.exists(), "the command did not run");
}

#[test]
#[ignore = "needs root"]
fn root_a_path_that_cannot_be_written_is_refused_before_the_command_runs() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let mark = place.dir().join("mark");
    let output = swtch(["record", "-o", "/proc/x.swtch", "--", "touch"])
        .arg(&mark)
        .output()
        .unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), REFUSED, "{said}");
    assert!(said.contains("cannot write /proc/x.swtch"), "{said}");
    assert!(!mark.exists(), "the command did not run");
}

#[test]
#[ignore = "needs root"]
fn root_without_privilege_the_remedy_is_said() {
    let _machine = beside_others();
    let stranger = Stranger::new();
    let words = [
        "record",
        "--backend",
        "ebpf",
        "-o",
        "t.swtch",
        "--",
        "touch",
        "mark",
    ];
    let output = stranger.run(&[], &words);
    let said = stderr(&output);
    assert_eq!(output.status.code(), REFUSED, "{said}");
    assert!(
        said.contains("not permitted") && said.contains("sudo"),
        "{said}"
    );
    assert!(said.contains("cap_bpf,cap_perfmon"), "{said}");
    assert!(!stranger.dir().join("t.swtch").exists());
    assert!(
        !stranger.dir().join("mark").exists(),
        "the command did not run"
    );
}

/// The answer comes from the kernel's own counters, and says that it is no recording.
#[test]
#[ignore = "needs root"]
fn root_without_privilege_explain_still_answers() {
    let _machine = beside_others();
    let stranger = Stranger::new();
    let script = "touch mark; sleep 0.05; exit 7";
    let words = ["explain", "--backend", "proc", "--", "sh", "-c", script];
    let output = stranger.run(&[], &words);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let answer = stdout(&output);
    assert!(answer.contains("No switch was recorded"), "{answer}");
    assert!(
        answer.contains("voluntary") && answer.contains("cap_bpf"),
        "{answer}"
    );
    assert!(stranger.dir().join("mark").exists(), "the command ran");
}

/// The advised remedy is sufficient.
#[test]
#[ignore = "needs root"]
fn root_the_advised_capabilities_suffice() {
    let _machine = beside_others();
    let stranger = Stranger::new();
    let granted = ["--inh-caps=+bpf,+perfmon", "--ambient-caps=+bpf,+perfmon"];
    let words = [
        "record",
        "-o",
        "t.swtch",
        "--",
        "sh",
        "-c",
        "sleep 0.05; exit 7",
    ];
    let output = stranger.run(&granted, &words);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let recorded = TraceContents::new(Trace::open(&stranger.dir().join("t.swtch")).unwrap());
    recorded.assert_balanced();
    assert!(!recorded.switches.is_empty());
}

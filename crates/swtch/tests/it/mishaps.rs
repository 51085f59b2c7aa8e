//! Tests what can happen to a trace while it is recorded: its directory is removed, moved or replaced, its name is
//! taken, or `/proc` or `/dev` lack something. The recorder must notice and report it correctly, and harm no other
//! files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use swtch_store::{RecordingState, Trace};

use crate::machine::{beside_others, wait_until};
use crate::recording::{Recording, SWTCH, TraceContents, TraceDir, stderr, stdout, swtch};

/// A recording of a command that waits for the file `go`; its messages go to a file.
struct Ongoing {
    place: TraceDir,
    recorder: std::process::Child,
}

impl Ongoing {
    fn start() -> Self {
        let place = TraceDir::new();
        let script = "n=0; until [ -e go ] || [ $n -gt 400 ]; do sleep 0.05; n=$((n+1)); done";
        let mut record = place.record(&["--", "sh", "-c", script]);
        let said = fs::File::create(place.dir().join("said")).unwrap();
        let recorder = record.stdin(Stdio::null()).stderr(said).spawn().unwrap();
        wait_until("the trace is there", || {
            place.trace().join("frame.arrows").exists()
        });
        // The first flush takes place after half a second.
        std::thread::sleep(Duration::from_millis(800));
        Self { place, recorder }
    }

    fn said(&self) -> String {
        fs::read_to_string(self.place.dir().join("said")).unwrap()
    }

    /// Lets the command end. Returns the exit code and the messages.
    fn end(mut self) -> (Option<i32>, String, TraceDir) {
        fs::write(self.place.dir().join("go"), "").unwrap();
        let code = self.recorder.wait().unwrap().code();
        (code, self.said(), self.place)
    }
}

#[test]
#[ignore = "needs root"]
fn root_a_trace_that_is_removed_while_it_is_recorded_is_missed_soon() {
    let _machine = beside_others();
    let ongoing = Ongoing::start();
    fs::remove_dir_all(ongoing.place.trace()).unwrap();
    wait_until("it is said while the command goes on", || {
        ongoing.said().contains("was removed while it was written")
    });
    let (code, said, place) = ongoing.end();
    assert_eq!(
        code,
        Some(2),
        "the command succeeded, the recording did not: {said}"
    );
    assert!(said.contains("there is no trace"), "{said}");
    assert!(said.contains("0 switches stored, "), "{said}");
    assert!(!said.contains("the trace is "), "{said}");
    assert!(!place.trace().exists());
}

/// A cleanup job may delete the files but leave the directory.
#[test]
#[ignore = "needs root"]
fn root_files_that_are_removed_while_they_are_written_are_missed_too() {
    let _machine = beside_others();
    let ongoing = Ongoing::start();
    for entry in fs::read_dir(ongoing.place.trace()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    wait_until("it is said while the command goes on", || {
        ongoing.said().contains("was removed while it was written")
    });
    let (code, said, _place) = ongoing.end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no switch of it is stored"), "{said}");
}

#[test]
#[ignore = "needs root"]
fn root_a_trace_that_is_moved_is_recorded_to_the_end_and_harms_none_that_takes_its_name() {
    let _machine = beside_others();
    let other = Recording::of(&["--", "true"]);
    let ongoing = Ongoing::start();
    let (trace, away) = (
        ongoing.place.trace(),
        ongoing.place.dir().join("away.swtch"),
    );
    fs::rename(&trace, &away).unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(other.place.trace())
        .arg(&trace)
        .status();
    assert!(copied.unwrap().success());
    let (code, said, place) = ongoing.end();
    assert_eq!(code, Some(0), "{said}");
    let now = format!("it is {}", away.canonicalize().unwrap().display());
    assert!(said.contains(&now), "{said}");
    TraceContents::new(Trace::open(&away).unwrap()).assert_balanced();
    for (path, bytes) in contents(&other.place.trace()) {
        assert_eq!(
            fs::read(place.trace().join(&path)).unwrap(),
            bytes,
            "{}",
            path.display()
        );
    }
    assert_eq!(
        contents(&place.trace()).len(),
        contents(&other.place.trace()).len()
    );
}

fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let read = entries.map(|entry| (entry.file_name().into(), fs::read(entry.path()).unwrap()));
    read.collect()
}

/// Three times in a row, so that in one of them all recordings begin in the same second.
#[test]
#[ignore = "needs root"]
fn root_recordings_that_choose_the_same_name_all_run() {
    let _machine = beside_others();
    let place = TraceDir::new();
    for round in 1..=3 {
        let start = |_| {
            let mut record = swtch(["record", "--", "true"]);
            record
                .current_dir(place.dir())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let recorders: Vec<_> = (0..3).map(start).collect();
        for recorder in recorders {
            let output = recorder.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
        }
        let traces = fs::read_dir(place.dir()).unwrap();
        let traces: Vec<_> = traces.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(traces.len(), 3 * round);
        for trace in traces {
            assert_eq!(
                Trace::open(&trace).unwrap().meta().state,
                RecordingState::Finished
            );
        }
    }
}

/// Whoever makes the directory has it: the other one says so, and does not run its command.
#[test]
#[ignore = "needs root"]
fn root_of_two_recorders_of_one_path_one_records_and_one_refuses() {
    let _machine = beside_others();
    for options in [&[][..], &["--ring", "1m"]] {
        let place = TraceDir::new();
        let recorders = ["one", "other"].map(|mark| {
            let script = format!("touch {mark}; sleep 0.3");
            let words = [options, &["--", "sh", "-c", &script]].concat();
            let mut record = place.record(&words);
            record.stdin(Stdio::null()).stderr(Stdio::piped());
            record.spawn().unwrap()
        });
        let ended = recorders.map(|recorder| recorder.wait_with_output().unwrap());
        let mut codes = [&ended[0], &ended[1]].map(|output| output.status.code().unwrap());
        let refused = usize::from(codes[1] != 0);
        codes.sort_unstable();
        let said = stderr(&ended[refused]);
        assert_eq!(codes, [0, 2], "{options:?} {said}");
        assert!(said.contains("t.swtch already exists"), "{said}");
        let has_run = ["one", "other"].map(|mark| place.dir().join(mark).exists());
        assert_eq!(has_run, [refused != 0, refused != 1]);
        TraceContents::new(Trace::open(&place.trace()).unwrap()).assert_balanced();
    }
}

/// `swtch` with these arguments, after `script` has changed the mounts.
fn where_mounts_differ(place: &TraceDir, script: &str, words: &str) -> Output {
    let script = format!("{script} || exit 99; exec {SWTCH} {words}");
    place.run_with_own_mounts(&script)
}

#[test]
#[ignore = "needs root"]
fn root_without_dev_null_it_records() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let empty_dev = "mount -t tmpfs none /dev";
    let output = where_mounts_differ(&place, empty_dev, "record -o t.swtch -- sh -c 'exit 7'");
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    TraceContents::new(Trace::open(&place.trace()).unwrap()).assert_balanced();
}

#[test]
#[ignore = "needs root"]
fn root_without_proc_the_remedy_is_named_and_explain_still_counts() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let empty_proc = "mount -t tmpfs none /proc";
    let command = "-- sh -c 'touch mark; exit 7'";
    let output = where_mounts_differ(&place, empty_proc, &format!("record {command}"));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("mount -t proc proc /proc"), "{said}");
    assert_eq!(
        fs::read_dir(place.dir()).unwrap().count(),
        0,
        "nothing ran, nothing is left"
    );
    let output = where_mounts_differ(&place, empty_proc, &format!("explain {command}"));
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("No switch was recorded"),
        "{}",
        stdout(&output)
    );
    assert!(place.dir().join("mark").exists(), "the command ran");
}

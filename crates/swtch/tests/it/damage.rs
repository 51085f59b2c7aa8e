//! Full disks, torn files, flipped bytes. A trace is read up to where it is intact, or refused;
//! there is never a panic or a wrong number.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use swtch_report::opening;
use swtch_store::RecordingState;

use crate::machine::{Orphan, TestProcess, alone, beside_others, command_of, wait_until};
use crate::recording::{Recording, SWTCH, TraceContents, TraceDir, report, stderr, stdout};

/// The command runs to its end, its exit code is passed on, and what was written is a trace.
#[test]
#[ignore = "needs root"]
fn root_a_full_disk_ends_the_recording_and_not_the_command() {
    let _machine = alone();
    for size in ["512k", "1m", "2m"] {
        let place = TraceDir::new();
        let output = record_on_small_disk(&place, size, "workload yield --count 200000");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(said.contains("No space left on device"), "{said}");
        assert!(said.contains("stopped early"), "{said}");
        assert!(!said.contains(" switches, 0 lost"), "{said}");
        assert!(
            place.dir().join("mark").exists(),
            "the command came to its end"
        );
        let recorded = TraceContents::new(opening::open(&place.trace()).unwrap());
        println!(
            "{size}: {} rows, {:?}",
            recorded.switches.len(),
            recorded.completeness
        );
        assert_eq!(recorded.meta.state, RecordingState::StoppedEarly);
        let counts = recorded.counts();
        assert!(counts.storage_failed > 0);
        let last_words = [
            format!(
                "swtch: {} switches stored, {} not stored, ",
                counts.stored, counts.storage_failed
            ),
            match counts.stored {
                0 => "no switch of it is stored".to_owned(),
                stored => format!("the {stored} switches that were stored before are in the trace"),
            },
        ];
        assert!(
            last_words.iter().all(|words| said.contains(words)),
            "{said}"
        );
        let went = counts.stored + counts.filtered + counts.lost + counts.storage_failed;
        assert_eq!(counts.switches_seen, went, "{counts:?}");
        let page = report(&place.trace(), &[]);
        assert!(page.status.success(), "{}", stderr(&page));
        let page = stdout(&page);
        assert!(
            page.contains("stopped early") || page.contains("unfinished"),
            "{page}"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn root_a_disk_too_small_for_anything_is_refused() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let output = record_on_small_disk(&place, "4k", "workload");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(
        !place.dir().join("mark").exists(),
        "the command did not run"
    );
}

/// Records to a tmpfs in a mount namespace of its own, and copies the trace to `place`.
fn record_on_small_disk(place: &TraceDir, size: &str, words: &str) -> Output {
    let script = format!(
        "mkdir small && mount -t tmpfs -o size={size} none small || exit 99
         {SWTCH} record -o small/t.swtch -- sh -c '{SWTCH} {words} >/dev/null; touch mark; exit 7'
         code=$?
         cp -r small/t.swtch t.swtch 2>/dev/null
         exit $code"
    );
    place.run_with_own_mounts(&script)
}

/// Every file of a finished trace, cut and flipped at many places.
#[test]
#[ignore = "needs root"]
fn root_a_damaged_finished_trace_is_refused_or_whole() {
    let _machine = beside_others();
    let recording = Recording::that_succeeds(&["--", SWTCH, "workload", "pipe", "--count", "300"]);
    let truth = rows_of(&report(&recording.place.trace(), &["--format", "json"]));
    for damage in damages(&recording.place.trace()) {
        let said = damage.report(&recording.place);
        if said.status.success() {
            assert_eq!(rows_of(&said), truth, "{damage:?}");
        } else {
            assert_refused(&said, &damage);
        }
    }
}

/// Of the trace of a killed recorder, fewer rows may be readable, but never more.
#[test]
#[ignore = "needs root"]
fn root_a_damaged_unfinished_trace_is_refused_or_a_prefix() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let words = ["--", SWTCH, "workload", "nanosleep", "--count", "100000"];
    let mut recorder = TestProcess::start(&mut place.record(&words));
    wait_until("it records", || place.trace().join("frame.arrows").exists());
    let _command = Orphan(command_of(recorder.pid()));
    thread::sleep(Duration::from_millis(1500));
    recorder.signal(libc::SIGKILL);
    recorder.ends_within(Duration::from_secs(10));
    let whole = rows_of(&report(&place.trace(), &["--format", "json"]));
    assert!(whole > 100, "{whole}");
    for damage in damages(&place.trace()) {
        let said = damage.report(&place);
        if said.status.success() {
            assert!(rows_of(&said) <= whole, "{damage:?}");
        } else {
            assert_refused(&said, &damage);
        }
    }
}

/// One file of a trace, changed at one place.
#[derive(Debug)]
struct Damage {
    file: PathBuf,
    bytes: Vec<u8>,
    what: String,
}

/// Cuts and flips in every part of every file, always at the same places, so that a failure can be
/// repeated.
fn damages(trace: &Path) -> Vec<Damage> {
    let mut damages = Vec::new();
    let files = fs::read_dir(trace).unwrap().flatten();
    let mut files: Vec<_> = files.map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let whole = fs::read(&file).unwrap();
        let length = whole.len();
        let mut add = |what: String, bytes: Vec<u8>| {
            let file = file.clone();
            damages.push(Damage { file, bytes, what });
        };
        for cut in [0, 1, length / 2, length.saturating_sub(1)] {
            add(format!("cut to {cut} of {length}"), whole[..cut].to_vec());
        }
        for place in [0, length / 3, length / 2, length * 4 / 5, length - 1] {
            let mut bytes = whole.clone();
            bytes[place] ^= 0x10;
            add(format!("byte {place} of {length} flipped"), bytes);
        }
    }
    damages
}

impl Damage {
    /// The output of `swtch report` for the trace with this damage; the damage is undone
    /// afterwards.
    fn report(&self, place: &TraceDir) -> Output {
        let whole = fs::read(&self.file).unwrap();
        fs::write(&self.file, &self.bytes).unwrap();
        let said = report(&place.trace(), &["--by", "reason", "--format", "json"]);
        fs::write(&self.file, whole).unwrap();
        said
    }
}

fn assert_refused(said: &Output, damage: &Damage) {
    let (file, what) = (damage.file.display(), &damage.what);
    let text = stderr(said);
    assert_eq!(said.status.code(), Some(2), "{file} {what}: {text}");
    assert!(
        text.starts_with("error: ") && !text.contains("panicked"),
        "{file} {what}: {text}"
    );
    assert!(text.contains("t.swtch"), "it names the trace: {text}");
    assert_eq!(stdout(said), "", "{file} {what}");
}

fn rows_of(report: &Output) -> u64 {
    let json: Value = serde_json::from_slice(&report.stdout).unwrap();
    json["trace"]["rows"].as_u64().unwrap()
}

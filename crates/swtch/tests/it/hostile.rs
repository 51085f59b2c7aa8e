//! Hostile input, paths that are no files, and what a damaged trace says about itself.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use swtch_core::rules::all_rules;
use swtch_core::{
    CgroupId, CpuId, Evidence, Level, Nanos, Switch, TaskKey, Timestamp, UserSide, Wait,
};
use swtch_fixtures::seen;
use swtch_store::{Meta, RecordingState, Writer};

use crate::exports::FORMATS;
use crate::recording::{TraceDir, report, stderr, stdout, swtch};

/// A command that takes longer than this hangs, even on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command and requires that it ends within [`PATIENCE`].
fn ends(command: &mut Command, what: &str) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = thread::spawn(move || {
        let mut bytes = Vec::new();
        out.read_to_end(&mut bytes).map(|_| bytes)
    });
    let read_errors = thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).map(|_| bytes)
    });
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{what}: no end after {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(20));
    };
    Output {
        status,
        stdout: read.join().unwrap().unwrap(),
        stderr: read_errors.join().unwrap().unwrap(),
    }
}

fn assert_refused(output: &Output, words: &str, what: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{what}: {said}");
    assert!(said.starts_with("error: "), "{what}: {said}");
    assert!(!said.contains("panicked"), "{what}: {said}");
    assert!(said.contains(words), "{what}: {said}");
}

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// Copies a small recording that is kept in the source tree to `place`.
fn kept_trace(place: &TraceDir) -> PathBuf {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swtch-store/tests/format-1.swtch");
    fs::create_dir(place.trace()).unwrap();
    for entry in fs::read_dir(kept).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), place.trace().join(entry.file_name())).unwrap();
    }
    place.trace()
}

/// A FIFO without writer and an endless device must neither be waited for nor read into memory.
#[test]
fn what_is_no_regular_file_is_refused_wherever_a_file_is_read() {
    let place = TraceDir::new();
    let trace = kept_trace(&place);
    let fifo = place.dir().join("fifo");
    make_fifo(&fifo);
    for (special, kind) in [
        (fifo.as_path(), "a FIFO"),
        (Path::new("/dev/zero"), "a character device"),
        (Path::new("/dev/urandom"), "a character device"),
    ] {
        let shown = special.display().to_string();
        for words in [
            vec!["import", &shown],
            vec!["lab", "run", &shown],
            vec!["cost", "--compare", &shown, &shown],
            vec![
                "report",
                trace.to_str().unwrap(),
                "--bill",
                "--prices",
                &shown,
            ],
        ] {
            let output = ends(swtch(&words).current_dir(place.dir()), &words.join(" "));
            assert_refused(&output, kind, &words.join(" "));
        }
        for entry in fs::read_dir(&trace).unwrap() {
            let file = entry.unwrap().path();
            let whole = fs::read(&file).unwrap();
            fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink(special, &file).unwrap();
            let what = format!("{} as {shown}", file.display());
            let output = ends(swtch(["report"]).arg(&trace), &what);
            assert_refused(&output, kind, &what);
            fs::remove_file(&file).unwrap();
            fs::write(&file, whole).unwrap();
        }
    }
}

/// A file may say that it is longer than every memory.
#[test]
fn a_sparse_file_of_a_terabyte_is_refused() {
    let place = TraceDir::new();
    let trace = kept_trace(&place);
    let sparse = place.dir().join("sparse");
    fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    let shown = sparse.display().to_string();
    for words in [
        vec!["import", &shown],
        vec!["lab", "run", &shown],
        vec!["cost", "--compare", &shown, &shown],
    ] {
        let output = ends(swtch(&words).current_dir(place.dir()), &words.join(" "));
        assert_refused(&output, "", &words.join(" "));
    }
    for name in ["checksums.csv", "meta.json"] {
        let file = trace.join(name);
        let whole = fs::read(&file).unwrap();
        fs::rename(&sparse, &file).unwrap();
        let output = ends(swtch(["report"]).arg(&trace), name);
        assert_refused(&output, "the limit for such a file", name);
        fs::rename(&file, &sparse).unwrap();
        fs::write(&file, whole).unwrap();
    }
}

fn switch(number: u64) -> Switch {
    Switch {
        ts: Timestamp::from_ns(1_000_000_000 + number * 1_000),
        cpu: CpuId::new(0),
        task: TaskKey::new(1),
        ran: Some(Nanos::from_ns(600)),
        irq: Nanos::ZERO,
        stolen: Nanos::ZERO,
        rule: all_rules().next().unwrap(),
        evidence: Evidence::RUNNABLE,
        next_task: None,
        user_task: None,
        level: Level::Os,
        user: UserSide::default(),
        cgroup: CgroupId::new(1),
        wait: Wait::default(),
    }
}

/// Writes a complete trace with a thread of this name.
fn write_trace(path: &Path, comm: &str, command: &[String], state: RecordingState) {
    let meta = Meta {
        state,
        command: command.to_vec(),
        start_ns: 1_000_000_000,
        end_ns: if state == RecordingState::Recording {
            0
        } else {
            1_002_000_000
        },
        ..Meta::default()
    };
    let mut writer = Writer::create(path, &meta).unwrap();
    writer.push_task(&seen(1, 10, 10, comm)).unwrap();
    for number in 0..2_000 {
        writer.push_switch(&switch(number)).unwrap();
        if number % 100 == 99 {
            writer.flush().unwrap();
        }
    }
    match state {
        RecordingState::Recording => drop(writer),
        _ => writer.finish(&meta, &mut |_, _| ()).unwrap(),
    }
}

/// Exports and CSV hold rows and nothing else, so their readers must learn elsewhere that rows are
/// missing.
#[test]
fn every_way_out_says_what_is_missing_of_a_torn_trace() {
    let place = TraceDir::new();
    write_trace(&place.trace(), "torn", &[], RecordingState::Recording);
    let file = place.trace().join("switch.arrows");
    let length = fs::metadata(&file).unwrap().len();
    let opened = fs::File::options().write(true).open(&file).unwrap();
    opened.set_len(length * 6 / 10).unwrap();
    let table = stdout(&report(&place.trace(), &[]));
    let note = table
        .lines()
        .find_map(|line| line.strip_prefix("note: unfinished"));
    let note = note.unwrap_or_else(|| panic!("{table}"));
    assert!(note.contains("switch cannot be read"), "{note}");
    assert!(note.contains("rows can be read, which span "), "{note}");
    let mut outputs: Vec<(String, Output)> = Vec::new();
    for by in ["reason", "thread", "stack", "level", "wait"] {
        let output = report(&place.trace(), &["--by", by, "--format", "csv"]);
        outputs.push((format!("report by {by}"), output));
    }
    for to in FORMATS {
        let mut command = swtch(["export", "--to", to, "-o", "out"]);
        let output = command.arg(place.trace()).current_dir(place.dir()).output();
        outputs.push((format!("export to {to}"), output.unwrap()));
    }
    for (what, output) in outputs {
        let said = stderr(&output);
        assert!(output.status.success(), "{what}: {said}");
        let expected = format!("swtch: note: unfinished{note}\n");
        assert!(said.contains(&expected), "{what}: {said}");
    }
}

/// A warning that always appears is of no use.
#[test]
fn a_whole_trace_is_exported_without_a_note() {
    let place = TraceDir::new();
    write_trace(&place.trace(), "whole", &[], RecordingState::Finished);
    let mut command = swtch(["export", "--to", "csv"]);
    let output = command.arg(place.trace()).output().unwrap();
    assert_eq!(stderr(&output), "");
    let output = report(&place.trace(), &["--by", "thread", "--format", "csv"]);
    assert_eq!(stderr(&output), "");
}

/// Spreadsheets compute what begins with `=`; a negative number stays a number.
#[test]
fn names_are_no_formulas_in_csv() {
    let place = TraceDir::new();
    write_trace(&place.trace(), "=1+1", &[], RecordingState::Finished);
    let output = report(&place.trace(), &["--by", "thread", "--format", "csv"]);
    assert!(stdout(&output).contains("'=1+1,"), "{}", stdout(&output));
    let mut command = swtch(["export", "--to", "csv"]);
    let output = command.arg(place.trace()).output().unwrap();
    let rows = stdout(&output);
    assert!(rows.contains(",'=1+1,"), "{rows}");
    assert!(!rows.contains(",=1+1,"), "{rows}");
    // Programs that read JSON do not compute formulas: the name is unchanged.
    let output = report(&place.trace(), &["--by", "thread", "--format", "json"]);
    assert!(stdout(&output).contains("\"=1+1\""), "{}", stdout(&output));
}

/// The kernel keeps 15 bytes of a name. A name of a megabyte would make a column of a megabyte.
#[test]
fn a_name_of_a_megabyte_is_refused_with_the_limit() {
    let place = TraceDir::new();
    write_trace(
        &place.trace(),
        &"n".repeat(1 << 20),
        &[],
        RecordingState::Finished,
    );
    let output = ends(swtch(["report"]).arg(place.trace()), "report");
    assert_refused(&output, "256 is the limit", "report");
    assert!(
        stderr(&output).contains("column comm"),
        "{}",
        stderr(&output)
    );
}

/// A Java class path is a word of 40,000 characters, and a command line may have 100,000 words.
#[test]
fn a_page_of_a_very_long_command_is_made_in_no_time() {
    let long_word = vec!["java".to_owned(), "x".repeat(500_000)];
    let many_words: Vec<_> = (0..90_000).map(|number| number.to_string()).collect();
    for command in [long_word, many_words] {
        let place = TraceDir::new();
        write_trace(&place.trace(), "java", &command, RecordingState::Finished);
        let page = place.dir().join("page.html");
        let mut words = swtch(["report", "-o"]);
        let output = ends(words.arg(&page).arg(place.trace()), "report -o");
        assert!(output.status.success(), "{}", stderr(&output));
        let page = fs::read_to_string(page).unwrap();
        // The whole text is in the page once; drawings hold only its beginning.
        let whole = command.join(" ");
        assert!(page.contains(&whole));
        assert!(page.len() < 3 * whole.len() + 1_000_000, "{}", page.len());
    }
}

/// A load file is written by hand, so a very large one is refused.
#[test]
fn load_files_have_limits_that_are_named() {
    let place = TraceDir::new();
    let file = place.dir().join("load.toml");
    let group = |name: &str| format!("[[group]]\nname = \"{name}\"\nbody = [\"yield\"]\n");
    let many: String = (0..20_000)
        .map(|number| group(&number.to_string()))
        .collect();
    let long = group(&"x".repeat(70_000));
    let word = group(&format!("g\"\ncount = \"{}", "x".repeat(70_000)));
    let large = format!("{}# {}\n", group("g"), "x".repeat(2 << 20));
    for (groups, limit) in [
        (many, "there are 20000 groups, and 1000 is the limit"),
        (long, "this name has 70000 characters, and 100 is the limit"),
        (word, "invalid type: string \"xxx"),
        (large, "it has more than 1048576 bytes"),
    ] {
        fs::write(&file, format!("title = \"t\"\n{groups}")).unwrap();
        let output = ends(swtch(["lab", "run"]).arg(&file), limit);
        let said = stderr(&output);
        assert_refused(&output, limit, limit);
        assert!(said.len() < 2_000, "{} bytes are said", said.len());
    }
}

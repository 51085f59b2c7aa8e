//! `swtch lab run`: what is run, refused, kept after an early end, and left behind.
//!
//! No test here asserts that the machine was quiet: a run that was disturbed says so and is still
//! correct.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::machine::{TestProcess, alone, beside_others, send, wait_until};
use crate::recording::{SWTCH, stderr, stdout, swtch};

const PAGE: &str = include_str!("../../../../docs/LOADS.md");

/// A load that was ended must be gone within this time.
const SOON: Duration = Duration::from_secs(10);

/// A file that describes a load, deleted with the test.
struct TempLoadFile {
    dir: TempDir,
}

impl TempLoadFile {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("load.toml"), text).unwrap();
        Self { dir }
    }

    /// A load with a variant for each name and length, whose members sleep for that length.
    fn of_sleepers(names: &[(&str, &str)]) -> Self {
        let variant = |(name, length): &(&str, &str)| {
            format!(
                "[[variant]]\nname = \"{name}\"\n[[variant.group]]\nname = \"{name}\"\ncount = 2\n\
                 members = \"processes\"\nbody = [{{ sleep = \"{length}\" }}]\n\
                 [[variant.group]]\nname = \"{name}\"\nbody = [{{ sleep = \"{length}\" }}]\n"
            )
        };
        let variants: String = names.iter().map(variant).collect();
        Self::new(&format!("title = \"sleepers\"\n{variants}"))
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// `swtch lab run` for this file, with its temporary files in the same directory.
    fn run(&self, options: &[&str]) -> Command {
        let mut command = swtch(["lab", "run", "load.toml"]);
        command
            .args(options)
            .current_dir(self.dir())
            .env("TMPDIR", self.dir());
        command
    }

    fn played(&self, options: &[&str]) -> Value {
        let output = self
            .run(options)
            .args(["--format", "json"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Files that were left beside the load file.
    fn leftovers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir()).unwrap().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| !path.ends_with("load.toml")).collect()
    }
}

fn members(answer: &Value) -> &[Value] {
    answer["tables"]["members"].as_array().unwrap()
}

/// Processes whose name begins with `name`: members, and the processes of groups of threads.
fn processes_named(name: &str) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_named = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(name))
    };
    pids.filter(is_named).collect()
}

fn players(of: &Path) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let of = of.to_str().unwrap();
    let is_player = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|words| {
            words.starts_with(SWTCH) && words.contains("\0lab-play\0") && words.contains(of)
        })
    };
    pids.filter(is_player).collect()
}

#[test]
fn examples_of_the_page_are_played() {
    let _machine = beside_others();
    let examples = PAGE.split("```toml\n").skip(1);
    let examples: Vec<_> = examples
        .map(|text| text.split("```").next().unwrap())
        .collect();
    let expected: [(usize, &[&str]); 2] = [
        (3, &["adder-0", "adder-1", "adder-2"]),
        (
            7,
            &["worker-0", "helper-0", "runner-0", "runner-1", "runner-2"],
        ),
    ];
    assert_eq!(examples.len(), expected.len());
    for (text, (count, names)) in examples.into_iter().zip(expected) {
        let file = TempLoadFile::new(text);
        let answer = file.played(&["--quick", "--no-record"]);
        assert_eq!(members(&answer).len(), count, "{answer}");
        for name in names {
            assert!(
                members(&answer).iter().any(|row| row["member"] == *name),
                "{answer}"
            );
        }
        assert_eq!(file.leftovers(), Vec::<PathBuf>::new());
    }
}

#[test]
fn parameters_are_set_and_variants_chosen() {
    let _machine = beside_others();
    let text = "title = \"t\"\n[parameters.n]\nabout = \"\"\ndefault = 1\n[[variant]]\nname = \"one\"\n\
                [[variant.group]]\nname = \"a\"\nbody = [\"yield\"]\n[[variant]]\nname = \"many\"\n\
                [[variant.group]]\nname = \"b\"\ncount = \"$n\"\nbody = [\"yield\"]\n";
    let file = TempLoadFile::new(text);
    let answer = file.played(&["--no-record", "--variant", "many", "--set", "n=4"]);
    assert_eq!(members(&answer).len(), 4);
    assert_eq!(answer["parameters"]["n"], 4);
    let output = file.run(&["--variant", "few"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "error: there is no variant `few`; there are: one, many\n"
    );
}

#[test]
fn a_mistake_is_shown_with_its_line() {
    let file = TempLoadFile::new(
        "title = \"t\"\n[[group]]\nname = \"g\"\ncount = 0\nbody = [\"yield\"]\n",
    );
    let output = file.run(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "error: load.toml:4:9: count must be at least 1\n    4 | count = 0\n      |         ^\n"
    );
    assert_eq!(stdout(&output), "");
}

/// Names in a file may hold control sequences, which must not reach the terminal.
#[test]
fn hostile_text_in_a_file_is_shown_escaped() {
    let file = TempLoadFile::new(
        "title = \"t\"\n[[group]]\nname = \"\\u001B[31m\"\ncuont = \"\u{202e}\"\n",
    );
    let said = stderr(&file.run(&[]).output().unwrap());
    assert!(said.contains("unknown field `cuont`"), "{said}");
    let file = TempLoadFile::new("title = \"t\"\n[[group]]\nname = 1 # \u{202e}\nbody = []\n");
    let said = stderr(&file.run(&[]).output().unwrap());
    assert!(
        said.contains("\\u{202e}") && !said.contains('\u{202e}'),
        "{said}"
    );
}

/// The first variant was complete, the second was not.
#[test]
fn ctrl_c_keeps_what_is_done_and_leaves_nothing() {
    let _machine = beside_others();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let file = TempLoadFile::of_sleepers(&[("shortie", "1ms"), ("longie", "50s")]);
        let child = file
            .run(&["--no-record", "--format", "json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("the second variant is played", || {
            processes_named("longie").len() == 3
        });
        send(child.id(), signal);
        let output = child.wait_with_output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(members(&answer).len(), 3, "{answer}");
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        // They are dead, but must still be reaped by their parent.
        wait_until("no member is left", || processes_named("longie").is_empty());
        assert_eq!(file.leftovers(), Vec::<PathBuf>::new());
    }
}

#[test]
fn members_end_with_the_program() {
    let _machine = beside_others();
    let file = TempLoadFile::of_sleepers(&[("orphan", "50s")]);
    let mut running = TestProcess::start(&mut file.run(&["--no-record"]));
    wait_until("it is played", || processes_named("orphan").len() == 3);
    running.signal(libc::SIGKILL);
    running.ends_within(SOON);
    wait_until("no member is left", || processes_named("orphan").is_empty());
}

#[test]
fn members_end_with_the_player_and_the_program_says_so() {
    let _machine = beside_others();
    let file = TempLoadFile::of_sleepers(&[("bereft", "50s")]);
    let child = file
        .run(&["--no-record"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it is played", || processes_named("bereft").len() == 3);
    players(file.dir())
        .into_iter()
        .for_each(|pid| send(pid, libc::SIGKILL));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("the player ended without a result"), "{said}");
    wait_until("no member is left", || processes_named("bereft").is_empty());
    assert_eq!(file.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn one_cpu_is_enough() {
    let _machine = beside_others();
    let file = TempLoadFile::new(
        "title = \"t\"\n[[group]]\nname = \"g\"\ncount = 3\ncpus = \"round-robin\"\nbody = [{ work = \"5ms\" }]\n",
    );
    let mut command = Command::new("taskset");
    command
        .args([
            "-c",
            "0",
            SWTCH,
            "lab",
            "run",
            "load.toml",
            "--no-record",
            "--format",
            "json",
        ])
        .current_dir(file.dir());
    let output = command.output().expect("taskset is part of util-linux");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        members(&answer).iter().all(|row| row["cpu"] == 0),
        "{answer}"
    );
}

/// Two hogs on one CPU, recorded: each reason is in the table, and their sum is the kernel's count.
#[test]
#[ignore = "needs root"]
fn root_reasons_of_members_add_up_to_what_the_kernel_counted() {
    let _machine = alone();
    let file = TempLoadFile::new(
        "title = \"t\"\n[[group]]\nname = \"hog\"\ncount = 2\ncpus = \"last\"\nbody = [{ work = \"300ms\" }]\n",
    );
    let answer = file.played(&[]);
    for row in members(&answer) {
        let number = |key: &str| row[key].as_u64().unwrap_or_default();
        let counted = number("voluntary") + number("involuntary");
        let columns = row.as_object().unwrap().keys();
        let reasons = columns.filter(|key| swtch_core::Reason::from_word(key).is_some());
        let recorded: u64 = reasons.map(|key| number(key)).sum();
        assert!(number("slice") >= 10, "{row}");
        // A switch may occur between reading a counter and reading the clock.
        assert!(recorded.abs_diff(counted) <= 2, "{row}");
    }
    assert_eq!(file.leftovers(), Vec::<PathBuf>::new());
}

/// Neither the recorder nor its members outlive the program.
#[test]
#[ignore = "needs root"]
fn root_a_recorded_play_ends_with_the_program() {
    let _machine = beside_others();
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let file = TempLoadFile::of_sleepers(&[("taped", "50s")]);
        let mut running = TestProcess::start(&mut file.run(&[]));
        wait_until("it is played", || processes_named("taped").len() == 3);
        running.signal(signal);
        running.ends_within(SOON);
        wait_until("no member is left", || processes_named("taped").is_empty());
        wait_until("no recorder is left", || players(file.dir()).is_empty());
    }
}

/// A load runner that gave its rights up to a recorder can still start real-time members.
#[test]
#[ignore = "needs root"]
fn root_real_time_members_are_recorded() {
    let _machine = alone();
    let file = TempLoadFile::new(
        "title = \"t\"\n[[group]]\nname = \"first\"\nclass = \"fifo\"\ncpus = \"last\"\n\
         body = [{ repeat = 20, body = [{ sleep = \"1ms\" }, { work = \"1ms\" }] }]\n\
         [[group]]\nname = \"second\"\ncpus = \"last\"\nbody = [{ work = \"60ms\" }]\n",
    );
    let answer = file.played(&[]);
    let row = |name: &str| {
        members(&answer)
            .iter()
            .find(|row| row["member"] == name)
            .unwrap()
    };
    assert_eq!(row("first-0")["sleep"], 20, "{answer}");
    // On a machine without other work it is nearly 20.
    assert!(row("second-0")["class"].as_u64() >= Some(1), "{answer}");
    let notes = answer["notes"].to_string();
    assert!(!notes.contains("ran without"), "{notes}");
}
